"""Thresholds that results must reach, as CI checks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.display.words import listed
from casual_mcp_nb.experiments.arm_results import ArmResults, by_case_of, difference_between

if TYPE_CHECKING:
    from casual_mcp_nb.experiments.results import RunResults


def problems_of(
    results: RunResults,
    min_right: float | None,
    min_pass: float | None,
    max_cost: float | None,
    baseline: Mapping[str, ArmResults] | None,
    max_drop: float,
) -> Iterator[str]:
    """Write a sentence per missed threshold, see `RunResults.problems`."""
    yield from _missing(results)
    repeats = results.repeats
    for name, arm in results.items():
        if not arm.done:
            yield f"{name}: no run was made."
            continue
        if results.status == "done":
            yield from _without_runs(results, arm)
        if min_right is not None:
            right = arm.right
            yield from _too_few(
                name,
                min_right,
                right.value if right else None,
                "of the runs are right",
                "none of the runs is judged",
            )
        if min_pass is not None:
            yield from _too_few(
                name,
                min_pass,
                arm.pass_hat(repeats),
                "of the cases are right each time",
                "no case has all its runs",
            )
            if short := arm.cases_short_of(repeats):
                cases, runs = count(short, "case"), count(repeats, "run")
                yield f"{name}: {cases} with fewer than {runs} cannot be checked."
        if max_cost is not None:
            yield from _too_expensive(arm, max_cost)
        if baseline is not None:
            yield from _worse_than(baseline, arm, max_drop, tests=len(results))


def _missing(results: RunResults) -> Iterator[str]:
    """Write what could not be made or graded."""
    if results.status != "done":
        yield f"Not all runs were made: {results.problem or results.status}"
    for name, reason in results.failed_arms.items():
        yield f"{name} could not be run: {reason}"
    if failed := results.not_made:
        yield f"{count(len(failed), 'run')} could not be made: {failed[0].detail}"
    ungraded = [record for record in results.records if record.ungraded]
    if ungraded:
        yield f"{count(len(ungraded), 'answer')} could not be graded: {ungraded[0].detail}"


def _without_runs(results: RunResults, arm: ArmResults) -> Iterator[str]:
    """Write which cases an arm has no run of."""
    have = {record.case for record in arm.records}
    without = [case for case in results.cases if case not in have]
    if without:
        number = count(len(without), "case")
        yield f"{arm.name}: {number} without a run: {listed(without, 3)}."


def _too_few(
    name: str, least: float, share: float | None, what: str, unknown: str
) -> Iterator[str]:
    if share is None:
        yield f"{name}: {unknown}, and {least:.1%} are required."
    elif share < least:
        yield f"{name}: {share:.1%} {what}, and {least:.1%} are required."


def _too_expensive(arm: ArmResults, most: float) -> Iterator[str]:
    cost = arm.mean("cost")
    if cost is None:
        yield f"{arm.name}: the cost of a run is unknown, and at most {most:.6f} is allowed."
    elif cost.value > most:
        yield f"{arm.name}: a run costs {cost.value:.6f}, and at most {most:.6f} is allowed."


def _worse_than(
    baseline: Mapping[str, ArmResults], arm: ArmResults, max_drop: float, tests: int
) -> Iterator[str]:
    """Write how an arm is worse than in earlier results, or why the two cannot be compared.

    So many `tests` share the risk of .05 that one of them only seems worse.
    """
    name = arm.name
    if name not in baseline:
        yield f"{name}: the baseline has no such arm. It has {', '.join(baseline)}."
        return
    before, now = by_case_of(baseline[name].judged), by_case_of(arm.judged)
    common = before.keys() & now.keys()
    missing: dict[str, None] = {}
    for record in baseline[name].records:
        was_wanted = record.right is not None or not record.made
        if was_wanted and record.case not in common:
            missing[record.case] = None
    if not common:
        yield f"{name}: no case was judged both here and in the baseline."
        return
    if missing:
        cases = count(len(missing), "case")
        yield f"{name}: {cases} of the baseline cannot be compared: {listed(missing, 3)}."
    drop = difference_between(baseline[name], arm, "right", tests=tests)
    if drop is not None and drop.high < -max_drop:
        yield (
            f"{name}: {-drop.mean:.1%} ({-drop.high:.1%} to {-drop.low:.1%}) fewer runs are right"
            " than in the baseline."
        )
