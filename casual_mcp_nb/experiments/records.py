"""What all arms' runs tell together: comparisons, failures, prices, tool use, thresholds."""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from casual_mcp_nb.base.displayable import DisplayableList, count, display
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.display.words import one_line
from casual_mcp_nb.errors import UnknownNameError, UsageError, shown
from casual_mcp_nb.experiments.arm_results import (
    MEASURES,
    ArmComparison,
    ArmResults,
    by_case_of,
    compare_arms,
    difference_between,
)
from casual_mcp_nb.experiments.arms import Arm
from casual_mcp_nb.experiments.case_files import CaseSource, load_tool_cases
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.exportable import Exportable
from casual_mcp_nb.experiments.graded import Agreement
from casual_mcp_nb.experiments.judging import judged_again
from casual_mcp_nb.experiments.matching import FAILURE_GROUPS, FailureGroup
from casual_mcp_nb.experiments.pricing import (
    ArmPrice,
    DiscoveryEffect,
    cheapest_of,
    comparable,
    discovery_effects_of,
    prices_of,
)
from casual_mcp_nb.experiments.run_record import RunRecord, Setup
from casual_mcp_nb.experiments.statistics import holm, smallest_difference

if TYPE_CHECKING:
    from casual_mcp_nb.experiments.checks import Functions

_SET_BY_AN_ARM = ("tool_set", "strategy", "delivery", "descriptions", "servers")
ResultsStatus = Literal["running", "done", "stopped", "over budget", "failing"]
"""`over budget`: the next run could have exceeded the budget.

`failing`: run after run could not be made.
"""


@dataclass(frozen=True)
class ToolUse:
    """How a deferred tool fared in an arm, as run counts.

    Args:
        tool: The tool.
        arm: The arm.
        runs: Runs in which it was deferred.
        needed: Runs whose case expects it.
        searched: Of these, runs in which the model searched for tools.
        found: Of these, runs in which a search returned it.
        called: Of these, runs in which it was called.
        unneeded_found: Other runs in which a search returned it.
        unneeded_called: Other runs in which it was called.
    """

    tool: str
    arm: str
    runs: int
    needed: int
    searched: int
    found: int
    called: int
    unneeded_found: int = 0
    unneeded_called: int = 0


@dataclass(frozen=True, repr=False)
class ToolUses(DisplayableList[ToolUse], items="uses"):
    """How the deferred tools fared: how often each was needed, searched for, found and called."""

    uses: tuple[ToolUse, ...]

    def __repr__(self) -> str:
        return f"<ToolUses: {count(len(self), 'tool')}>"

    def rows(self) -> list[dict[str, Any]]:
        """Build a list of rows, one per tool and arm, for a DataFrame or a CSV file."""
        return [dataclasses.asdict(use) for use in self.uses]


@dataclass(frozen=True, repr=False)
class RunResults(Mapping[str, ArmResults], Exportable):
    """Case runs in one or several arms: a mapping from arm names to arms.

    Args:
        records: The runs, by repeat, case and arm, or while it runs in the order in which they
            ended.
        arms: The arms, in the order given. Others are compared with the first.
        cases: The case ids.
        repeats: How often each case is run in each arm.
        status: `running`, `done`, or why it ended early.
        planned: How many runs there should be.
        reused: How many runs the file had already.
        seconds: How long it has taken.
        problem: Why it ended early, in a sentence.
        clusters: How many clusters the cases form, or 0 to count those in the records.
        active: Runs in progress in this process, by case and arm.
        setups: What the arms offered to the model, by the hash in a record's `setup`.
        failed_arms: Arms that could not be run, each with the reason.
        left_out: How many runs of an earlier set-up the file has, which are not among `records`.
        looks: How often a comparison of these cases was looked at, including this time: each
            finished experiment with more runs of an arm than the one before is a look.
        spent: The tokens and the money that were spent, also for runs that were not completed.
    """

    _kind = "An experiment"

    records: tuple[RunRecord, ...]
    arms: tuple[Arm, ...]
    cases: tuple[str, ...]
    repeats: int = 1
    status: ResultsStatus = "done"
    planned: int = 0
    reused: int = 0
    seconds: float = 0.0
    problem: str = ""
    clusters: int = 0
    active: frozenset[tuple[str, str]] = frozenset()
    setups: Mapping[str, Setup] = field(default_factory=dict)
    failed_arms: Mapping[str, str] = field(default_factory=dict)
    left_out: int = 0
    looks: int = 1
    spent: tuple[float, float] = (0.0, 0.0)

    def __getitem__(self, name: str) -> ArmResults:
        arm = {arm.name: arm for arm in self.arms}[name]
        return ArmResults(arm, tuple(record for record in self.records if record.arm == name))

    def __iter__(self) -> Iterator[str]:
        return (arm.name for arm in self.arms)

    def __len__(self) -> int:
        return len(self.arms)

    def __repr__(self) -> str:
        runs = f"{len(self.records):,} of {count(max(self.planned, len(self.records)), 'run')}"
        return (
            f"<RunResults: {self.status}, {count(len(self.arms), 'arm')},"
            f" {count(len(self.cases), 'case')}, {runs}>"
        )

    @property
    def judged(self) -> bool:
        """Whether any run is right or wrong. Prompts without a check are only compared."""
        return any(record.right is not None for record in self.records)

    @property
    def absent(self) -> dict[str, dict[str, str]]:
        """The servers that did not start, by arm, each with the reason."""
        absent: dict[str, dict[str, str]] = {}
        for record in self.records:
            if record.setup in self.setups and self.setups[record.setup].absent:
                absent.setdefault(record.arm, {}).update(self.setups[record.setup].absent)
        return absent

    @property
    def retried(self) -> tuple[RunRecord, ...]:
        """The runs that a provider or server broke off, and that were asked again."""
        return tuple(record for record in self.records if record.attempts > 1)

    @property
    def comparable(self) -> tuple[ArmResults, ...]:
        """The arms with an answer, each with its runs of the cases that all of them have
        answered.
        """
        return comparable(self.values())

    @property
    def prices(self) -> dict[str, ArmPrice]:
        """Each comparable arm's mean price per run, with a cold and with a warm prompt cache."""
        return prices_of(self.comparable)

    @property
    def cheapest(self) -> ArmResults | None:
        """The cheapest arm among those that are right most often, or None without two, or if it
        depends on the cache.

        Arms are ranked by cost if all runs have one, else by input tokens, with reused ones counted
        as a tenth.
        """
        return cheapest_of(self.comparable)

    @property
    def discovery_effects(self) -> tuple[DiscoveryEffect, ...]:
        """The effect of deferring, for each arm that deferred something."""
        return discovery_effects_of(self.comparable)

    def of_cases(self, cases: Iterable[str]) -> RunResults:
        """Select some cases' part."""
        chosen = tuple(case for case in self.cases if case in set(cases))
        records = tuple(record for record in self.records if record.case in chosen)
        return dataclasses.replace(self, records=records, cases=chosen, planned=0, clusters=0)

    @property
    def graded(self) -> tuple[RunRecord, ...]:
        """The runs whose answer a judge model was asked about."""
        return tuple(record for record in self.records if record.grades)

    def agreement(self) -> Agreement:
        """Compare the judge's labels with those that a person gave to the cases: how often they
        agree, and Cohen's kappa.
        """
        return Agreement(
            [(record.reference, record.grade) for record in self.records if record.reference]
        )

    def by_tag(self) -> dict[str, RunResults]:
        """Divide the results by the cases' tags.

        A case with several tags is in each of their parts.
        """
        tagged: dict[str, set[str]] = {}
        for record in self.records:
            for tag in record.tags:
                tagged.setdefault(tag, set()).add(record.case)
        return {tag: self.of_cases(cases) for tag, cases in sorted(tagged.items())}

    def judge(self, cases: CaseSource, *, functions: Functions | None = None) -> RunResults:
        """Judge the runs again by their transcripts, after an expectation was corrected.

        No model is asked.

        A run belongs to the case with the same messages, so that ids, clusters, tags and all that
        is expected may change. An answer that a judge model graded keeps its grade. To have others
        graded: `session.experiments.judge`.

        Args:
            cases: The cases, as for `session.experiments.run`.
            functions: The functions that `$function` in a case file may name.

        Returns:
            The results with the new verdicts. Runs of other messages are left out.
        """
        loaded = load_tool_cases(cases, functions=functions)
        return self.with_verdicts(judged_again(self.records, self.setups, loaded), loaded)

    def with_verdicts(
        self, records: tuple[RunRecord, ...], cases: Sequence[ToolUseCase]
    ) -> RunResults:
        """Put records that were judged by other cases in place of these."""
        return dataclasses.replace(
            self,
            records=records,
            cases=tuple(case.id for case in cases),
            clusters=len({case.cluster or case.id for case in cases}),
            left_out=self.left_out + len(self.records) - len(records),
        )

    @property
    def smallest_difference(self) -> float | None:
        """The smallest mean gain that a comparison this large finds in four out of five
        experiments.

        Known before any run.
        """
        clusters = self.clusters or len({record.cluster for record in self.records})
        return smallest_difference(
            clusters, self.repeats, candidates=max(1, len(self) - 1), looks=self.looks
        )

    def rows(self) -> list[dict[str, Any]]:
        """Build a list of rows, one per run, for a DataFrame or a CSV file.

        What its arm sets is in it too.
        """
        settings = {
            arm.name: {name: getattr(arm, name) for name in _SET_BY_AN_ARM} for arm in self.arms
        }
        nothing = dict.fromkeys(_SET_BY_AN_ARM)
        return [{**record.row(), **settings.get(record.arm, nothing)} for record in self.records]

    def frame(self) -> Any:
        """Build a DataFrame with a row per run. Without pandas, the list of rows."""
        return frame_of(self.rows())

    def arms_frame(self, *, by: Literal["tag"] | None = None) -> Any:
        """Build a DataFrame with a row per arm: right runs with their interval, pass^k, tokens,
        cost, failures.

        Args:
            by: `tag` for a row per tag and arm.
        """
        if by is None:
            return frame_of(self._arm_rows())
        rows: list[dict[str, Any]] = []
        for tag, part in self.by_tag().items():
            rows += [{"tag": tag, **row} for row in part._arm_rows()]
        return frame_of(rows)

    def _arm_rows(self) -> list[dict[str, Any]]:
        rows = []
        for name, arm in self.items():
            right = arm.right
            row: dict[str, Any] = {"arm": name, "runs": len(arm.done), "not_made": arm.not_made}
            row |= {
                "right": right and right.value,
                "low": right and right.low,
                "high": right and right.high,
            }
            for k in range(2, self.repeats + 1):
                row[f"pass^{k}"] = arm.pass_hat(k)
            for measure in MEASURES[1:]:
                interval = arm.mean(measure)
                row[measure] = interval.value if interval else None
            if self.graded:
                row["judge_tokens"] = sum(record.judge_tokens for record in arm.records)
                costs = [record.judge_cost for record in arm.records]
                row["judge_cost"] = None if None in costs else sum(filter(None, costs))
            failures = arm.failures
            row.update((group, failures.get(group, 0)) for group in FAILURE_GROUPS)
            rows.append(row)
        return rows

    def compare(
        self, first: str, second: str, *, seed: int = 0, tests: int = 1
    ) -> ArmComparison | None:
        """Compare two arms by case, with a paired test. Repeats are averaged first.

        Clusters are the unit.

        Args:
            first: The arm to compare with.
            second: The other arm.
            seed: For the random flips, with more than 12 clusters.
            tests: How many tests, of candidates and looks, share the risk of .05. It is divided by
                them, for p and for the interval.

        Returns:
            The differences, or None if they have no case in common.

        Raises:
            UnknownNameError: There is no such arm.
        """
        for name in (first, second):
            if name not in self:
                raise UnknownNameError("arm", name, self)
        return compare_arms(self[first], self[second], seed=seed, tests=tests)

    def comparisons(self, *, seed: int = 0, looks: int | None = None) -> tuple[ArmComparison, ...]:
        """Compare each other arm with the first one.

        Holm's method corrects for several comparisons.

        Args:
            seed: For the random flips, with more than 12 clusters.
            looks: How many looks at these cases were planned, while repeats or cases are added, or
                None for as many as there were.
        """
        looks = self.looks if looks is None else looks
        first, *others = self
        base = self[first]
        found = {name: difference_between(base, self[name], "right", seed=seed) for name in others}
        values = {name: right.p for name, right in found.items() if right is not None}
        corrected = []
        for name, (p, tests) in zip(values, holm([*values.values()], looks), strict=True):
            each = compare_arms(base, self[name], seed=seed, tests=tests)
            if each is not None:
                right = (
                    each.right
                    if len(values) * looks == 1
                    else dataclasses.replace(each.right, adjusted_p=p)
                )
                corrected.append(dataclasses.replace(each, right=right))
        return tuple(corrected)

    def cases_frame(self) -> Any:
        """Build a DataFrame with a row per case: its cluster, and how often each arm was right."""
        shares = {name: arm.means("right") for name, arm in self.items()}
        clusters = {record.case: record.cluster for record in self.records}
        rows = []
        for case in self.cases:
            row = {"case": case, "cluster": clusters.get(case, case)}
            rows.append(row | {name: shares[name].get(case) for name in self})
        return frame_of(rows)

    def failures(
        self, group: FailureGroup | None = None, *, arm: str | None = None
    ) -> tuple[RunRecord, ...]:
        """List the wrong runs, each with its transcript.

        Args:
            group: Only this reason.
            arm: Only this arm.

        Raises:
            UnknownNameError: There is no such group or arm.
        """
        if group is not None and group not in FAILURE_GROUPS:
            raise UnknownNameError("group of failures", group, FAILURE_GROUPS)
        if arm is not None and arm not in self:
            raise UnknownNameError("arm", arm, self)
        wrong = (record for record in self.records if record.right is False)
        return tuple(
            record
            for record in wrong
            if (group is None or record.failure == group) and (arm is None or record.arm == arm)
        )

    @property
    def not_made(self) -> tuple[RunRecord, ...]:
        """Runs that could not be completed.

        They do not count, and are tried again with the same file.
        """
        return tuple(record for record in self.records if not record.made)

    def tool_uses(self) -> ToolUses:
        """Count for each deferred tool how often it was needed, searched for, found and called."""
        uses = []
        for name, arm in self.items():
            tools = sorted({tool for record in arm.done for tool in record.deferred})
            for tool in tools:
                needing = [record for record in arm.done if tool in record.needed]
                others = [record for record in arm.done if tool not in record.needed]
                uses.append(
                    ToolUse(
                        tool,
                        name,
                        len(arm.done),
                        needed=len(needing),
                        searched=sum(record.searches > 0 for record in needing),
                        found=sum(tool in record.found for record in needing),
                        called=sum(tool in record.called for record in needing),
                        unneeded_found=sum(tool in record.found for record in others),
                        unneeded_called=sum(tool in record.called for record in others),
                    )
                )
        return ToolUses(tuple(uses))

    def problems(
        self,
        *,
        min_right: float | None = None,
        min_pass: float | None = None,
        max_cost: float | None = None,
        baseline: RunResults | None = None,
        max_drop: float = 0.0,
    ) -> list[str]:
        """Check thresholds, as CI does.

        Args:
            min_right: The lowest accepted share of right runs, in each arm.
            min_pass: The lowest accepted share of cases whose repeats are all right.
            max_cost: The highest accepted mean cost per run.
            baseline: Earlier results. An arm with the same name must not be worse by more than
                `max_drop`, with 95% certainty over all arms.
            max_drop: How much worse it may be, from 0 to 1.

        Returns:
            A sentence per missed threshold, or none.
        """
        problems = (
            []
            if self.status == "done"
            else [f"Not all runs were made: {self.problem or self.status}"]
        )
        problems += [
            f"{name} could not be run: {reason}" for name, reason in self.failed_arms.items()
        ]
        if self.not_made:
            problems.append(
                f"{count(len(self.not_made), 'run')} could not be made: {self.not_made[0].detail}"
            )
        ungraded = [record for record in self.records if record.ungraded]
        if ungraded:
            problems.append(
                f"{count(len(ungraded), 'answer')} could not be graded: {ungraded[0].detail}"
            )
        for name, arm in self.items():
            if not arm.done:
                problems.append(f"{name}: no run was made.")
                continue
            problems += self._without_runs(arm)
            problems += _right_too_rarely(arm, min_right)
            problems += _passed_too_rarely(arm, min_pass, self.repeats)
            problems += _too_expensive(arm, max_cost)
            if baseline is not None:
                problems += _worse_than(baseline, arm, max_drop, tests=len(self))
        # A name or a reason with a line end must not look like several problems.
        return [one_line(problem) for problem in problems]

    def _without_runs(self, arm: ArmResults) -> Iterator[str]:
        have = {record.case for record in arm.records}
        without = [case for case in self.cases if case not in have]
        if without and self.status == "done":
            cases = count(len(without), "case")
            yield f"{arm.arm.name}: {cases} without a run: {_some(without)}."

    def to_inspect(
        self, path: str | Path, *, arm: str | None = None, overwrite: bool = False
    ) -> tuple[Path, ...]:
        """Write inspect-ai logs, one per arm, for `inspect view` and its dashboards.

        That package need not be installed.

        Args:
            path: A folder, or a file ending in `.json` for one arm.
            arm: The arm, or None for all.
            overwrite: Replace files that exist.

        Returns:
            The files. `inspect view bundle --log-dir FOLDER` turns a folder into a page.

        Raises:
            UnknownNameError: There is no such arm.
            UsageError: A file is for one arm, exists, or cannot be written.
        """
        from casual_mcp_nb.experiments.inspect_logs import inspect_log

        if arm is not None and arm not in self:
            raise UnknownNameError("arm", arm, self)
        path, arms = Path(path).expanduser(), [arm] if arm is not None else list(self)
        is_file = path.suffix.casefold() == ".json"
        if is_file and len(arms) > 1:
            raise UsageError(
                "A file holds only one arm's log.",
                hint=f"Name a folder, or one arm: {', '.join(arms)}.",
            )
        files = []
        for name in arms:
            log = inspect_log(self, name)
            slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:60] or "arm"
            # The viewer reads time, task and id from such a name.
            stamp = log["eval"]["created"].replace(":", "-")
            file = path if is_file else path / f"{stamp}_{slug}_{log['eval']['task_id']}.json"
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(
                    f"{shown(file.parent)} cannot be created: {error.strerror}."
                ) from None
            text = json.dumps(log, ensure_ascii=False, indent=1)
            write_text(file, text, overwrite=overwrite, hint="To replace it: overwrite=True.")
            files.append(file)
        return tuple(files)

    def plot(self) -> Any:
        """Draw each arm's right runs with their interval: a matplotlib figure, or an SVG without
        matplotlib.
        """
        return display().figure_of(self)

    def plot_difference(
        self,
        first: str | None = None,
        second: str | None = None,
        *,
        by: Literal["tag"] | None = None,
        looks: int | None = None,
    ) -> Any:
        """Draw how much more or less often arms are right than another, with the interval of the
        paired test.

        Args:
            first: The arm to compare with, or None for the first.
            second: The other arm, or None for all others.
            by: `tag` for a row per tag and arm.
            looks: How many looks were planned, see `comparisons`.

        Returns:
            A matplotlib figure, or an SVG without matplotlib.

        Raises:
            UnknownNameError: There is no such arm.
        """
        from casual_mcp_nb.experiments.plots import difference_plot

        first = next(iter(self)) if first is None else first
        others = [name for name in self if name != first] if second is None else [second]
        for name in (first, *others):
            if name not in self:
                raise UnknownNameError("arm", name, self)
        chosen = dataclasses.replace(self, arms=tuple(self[name].arm for name in (first, *others)))
        if by is None:
            return difference_plot(
                first, [(each.second, each.right) for each in chosen.comparisons(looks=looks)]
            )
        rows = []
        for tag, part in chosen.by_tag().items():
            for each in part.comparisons(looks=looks):
                rows.append((tag if len(others) == 1 else f"{tag}: {each.second}", each.right))
        return difference_plot(first, rows)

    def _about(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "arms": list(self),
            "cases": list(self.cases),
            "repeats": self.repeats,
        }


def _some(cases: Sequence[str]) -> str:
    """List the first cases."""
    return ", ".join(cases[:3]) + (" …" if len(cases) > 3 else "")


def _right_too_rarely(arm: ArmResults, least: float | None) -> Iterator[str]:
    if least is None:
        return
    right = arm.right
    if right is None:
        yield f"{arm.arm.name}: none of the runs is judged, and {least:.1%} are required."
    elif right.value < least:
        share = f"{right.value:.1%} of the runs are right"
        yield f"{arm.arm.name}: {share}, and {least:.1%} are required."


def _passed_too_rarely(arm: ArmResults, least: float | None, repeats: int) -> Iterator[str]:
    if least is None:
        return
    passed, short = arm.pass_hat(repeats), arm.cases_short_of(repeats)
    if passed is None:
        yield f"{arm.arm.name}: no case has all its runs, and {least:.1%} are required."
    elif passed < least:
        share = f"{passed:.1%} of the cases are right each time"
        yield f"{arm.arm.name}: {share}, and {least:.1%} are required."
    if short:
        runs = count(repeats, "run")
        cases = count(short, "case")
        yield f"{arm.arm.name}: {cases} with fewer than {runs} cannot be checked."


def _too_expensive(arm: ArmResults, most: float | None) -> Iterator[str]:
    if most is None:
        return
    cost = arm.mean("cost")
    if cost is None:
        yield f"{arm.arm.name}: the cost of a run is unknown, and at most {most:.6f} is allowed."
    elif cost.value > most:
        yield f"{arm.arm.name}: a run costs {cost.value:.6f}, and at most {most:.6f} is allowed."


def _worse_than(
    baseline: RunResults, arm: ArmResults, max_drop: float, tests: int
) -> Iterator[str]:
    """Write how an arm is worse than in earlier results, or why the two cannot be compared.

    The risk of .05 is that any of so many tests finds a drop that does not exist.
    """
    name = arm.arm.name
    if name not in baseline:
        yield f"{name}: the baseline has no such arm. It has {', '.join(baseline)}."
        return
    before, now = by_case_of(baseline[name].judged), by_case_of(arm.judged)
    wanted = dict.fromkeys(
        record.case
        for record in baseline[name].records
        if record.right is not None or not record.made
    )
    missing = [case for case in wanted if case not in now or case not in before]
    if not before.keys() & now.keys():
        yield f"{name}: no case was judged both here and in the baseline."
        return
    if missing:
        cases = count(len(missing), "case")
        yield f"{name}: {cases} of the baseline cannot be compared: {_some(missing)}."
    comparison = compare_arms(baseline[name], arm, tests=tests)
    if comparison is not None and comparison.right.high < -max_drop:
        drop = comparison.right
        interval = f"{-drop.high:.1%} to {-drop.low:.1%}"
        yield f"{name}: {-drop.mean:.1%} ({interval}) fewer runs are right than in the baseline."


def frame_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Build a pandas DataFrame from rows. Without pandas, return the rows."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        return list(rows)
    return pandas.DataFrame(rows)
