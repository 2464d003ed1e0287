"""Thresholds that results must reach, as CI checks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.display.words import listed
from casual_mcp_nb.experiments.arm_results import ArmResults, by_case_of, difference_between


@dataclass(frozen=True)
class Thresholds:
    """What each arm must reach. `RunResults.problems` describes the thresholds; None is not
    checked.

    Args:
        repeats: How often each case is run.
        tests: How many arms share the risk of .05 that one of them only seems worse than before.
        min_right: See `RunResults.problems`, for this and all below.
        min_pass: See there.
        max_cost: See there.
        baseline: See there.
        max_drop: See there.
    """

    repeats: int
    tests: int
    min_right: float | None
    min_pass: float | None
    max_cost: float | None
    baseline: Mapping[str, ArmResults] | None
    max_drop: float

    def missed_by(self, arm: ArmResults) -> Iterator[str]:
        """Write a sentence per threshold that an arm misses."""
        name, right = arm.name, arm.right
        shares = (
            (
                self.min_right,
                right.value if right else None,
                "of the runs are right",
                "none of the runs is judged",
            ),
            (
                self.min_pass,
                arm.pass_hat(self.repeats),
                "of the cases are right each time",
                "no case has all its runs",
            ),
        )
        for least, share, what, unknown in shares:
            if least is None:
                continue
            if share is None:
                yield f"{name}: {unknown}, and {least:.1%} are required."
            elif share < least:
                yield f"{name}: {share:.1%} {what}, and {least:.1%} are required."
        short = arm.cases_short_of(self.repeats)
        if self.min_pass is not None and short:
            runs = count(self.repeats, "run")
            yield f"{name}: {count(short, 'case')} with fewer than {runs} cannot be checked."
        most, cost = self.max_cost, arm.mean("cost")
        if most is not None and cost is None:
            yield f"{name}: the cost of a run is unknown, and at most {most:.6f} is allowed."
        elif most is not None and cost is not None and cost.value > most:
            yield f"{name}: a run costs {cost.value:.6f}, and at most {most:.6f} is allowed."
        if self.baseline is not None:
            yield from self._worse_than(self.baseline, arm)

    def _worse_than(self, baseline: Mapping[str, ArmResults], arm: ArmResults) -> Iterator[str]:
        """Write how an arm is worse than in earlier results, or why the two cannot be compared."""
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
        drop = difference_between(baseline[name], arm, "right", tests=self.tests)
        if drop is not None and drop.high < -self.max_drop:
            yield (
                f"{name}: {-drop.mean:.1%} ({-drop.high:.1%} to {-drop.low:.1%}) fewer runs are"
                " right than in the baseline."
            )


def without_runs(arm: ArmResults, cases: Sequence[str]) -> Iterator[str]:
    """Write which cases an arm has no run of."""
    have = {record.case for record in arm.records}
    without = [case for case in cases if case not in have]
    if without:
        number = count(len(without), "case")
        yield f"{arm.name}: {number} without a run: {listed(without, 3)}."
