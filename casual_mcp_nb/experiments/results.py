"""What all arms' runs tell together: comparisons, failures and prices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from casual_mcp_nb.base.content import frame_of
from casual_mcp_nb.base.displayable import Displayable, count, display
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.base.iterables import attributes, by_name
from casual_mcp_nb.display.words import one_line
from casual_mcp_nb.errors import (
    UnknownNameError,
    UsageError,
    cannot_be,
    did_you_mean,
    shown,
)
from casual_mcp_nb.experiments.arm_results import (
    MEASURES,
    ArmComparison,
    ArmComparisons,
    ArmResults,
    clusters_of,
    compare_arms,
    difference_between,
)
from casual_mcp_nb.experiments.arms import Arm
from casual_mcp_nb.experiments.case_files import CaseSource, load_tool_cases
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.csv_text import as_csv
from casual_mcp_nb.experiments.graded import Agreement
from casual_mcp_nb.experiments.judging import judged_again
from casual_mcp_nb.experiments.matching import FAILURE_GROUPS, FailureGroup
from casual_mcp_nb.experiments.pricing import (
    ArmPrice,
    DiscoveryEffect,
    cheapest_of,
    discovery_effects_of,
    prices_of,
)
from casual_mcp_nb.experiments.run_record import ROW, RunRecord, Setup, judge_cost_of
from casual_mcp_nb.experiments.statistics import holm, smallest_difference
from casual_mcp_nb.experiments.thresholds import Thresholds, without_runs
from casual_mcp_nb.experiments.tool_uses import ToolUses, use_of

if TYPE_CHECKING:
    from casual_mcp_nb.experiments.checks import Functions

_SET_BY_AN_ARM = ("tool_set", "strategy", "delivery", "descriptions", "servers")
_COLUMNS = (*ROW, *_SET_BY_AN_ARM)
ResultsStatus = Literal["running", "done", "stopped", "over budget", "failing"]
"""`over budget`: the next run could have exceeded the budget.

`failing`: run after run could not be made.
"""


def check_count(name: str, value: object) -> None:
    """Raise UsageError unless an argument is a whole number from 1."""
    if type(value) is not int or value < 1:
        raise cannot_be(name, value, "It must be a whole number from 1.")


@dataclass(frozen=True, repr=False)
class RunResults(Mapping[str, ArmResults], Displayable):
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
        return self._by_arm[name]

    @cached_property
    def _by_arm(self) -> dict[str, ArmResults]:
        records: dict[str, list[RunRecord]] = {}
        for record in self.records:
            records.setdefault(record.arm, []).append(record)
        return by_name(ArmResults(arm, tuple(records.get(arm.name, ()))) for arm in self.arms)

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
            setup = self.setups.get(record.setup)
            if setup is not None and setup.absent:
                absent.setdefault(record.arm, {}).update(setup.absent)
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
        answered = [arm for arm in self.values() if arm.done]
        cases = [set(arm.by_case) for arm in answered]
        common = set[str]().union(*cases).intersection(*cases)
        if not common:
            return ()
        return tuple(arm.of_cases(common) for arm in answered)

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
        wanted = frozenset(cases)
        chosen = tuple(case for case in self.cases if case in wanted)
        records = tuple(record for record in self.records if record.case in wanted)
        return replace(self, records=records, cases=chosen, planned=0, clusters=0)

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
        return replace(
            self,
            records=records,
            cases=tuple(case.id for case in cases),
            clusters=len({case.unit for case in cases}),
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
        settings = {arm.name: attributes(arm, _SET_BY_AN_ARM) for arm in self.arms}
        nothing = dict.fromkeys(_SET_BY_AN_ARM)
        return [{**record.row(), **settings.get(record.arm, nothing)} for record in self.records]

    def frame(self) -> Any:
        """Build a DataFrame with a row per run. Without pandas, the list of rows."""
        return frame_of(self.rows(), _COLUMNS)

    def arms_frame(self, *, by: Literal["tag"] | None = None) -> Any:
        """Build a DataFrame with a row per arm: right runs with their interval, pass^k, tokens,
        cost, failures.

        Args:
            by: `tag` for a row per tag and arm.
        """
        if by is None:
            return frame_of(self._arm_rows())
        rows = []
        for tag, part in self.by_tag().items():
            rows += [{"tag": tag, **row} for row in part._arm_rows()]
        return frame_of(rows)

    def _arm_rows(self) -> list[dict[str, Any]]:
        rows = []
        for name, arm in self.items():
            right = arm.right
            row: dict[str, Any] = {
                "arm": name,
                "runs": len(arm.done),
                "not_made": arm.not_made,
                "not_graded": arm.not_graded,
                "right": right and right.value,
                "low": right and right.low,
                "high": right and right.high,
            }
            for k in range(2, self.repeats + 1):
                row[f"pass^{k}"] = arm.pass_hat(k)
            for measure in MEASURES[1:]:
                interval = arm.mean(measure)
                row[measure] = interval and interval.value
            if self.graded:
                row["judge_tokens"] = sum(record.judge_tokens for record in arm.records)
                row["judge_cost"] = judge_cost_of(arm.records)
            rows.append(row | dict.fromkeys(FAILURE_GROUPS, 0) | arm.failures)
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
            UsageError: `tests` is not a whole number from 1.
        """
        check_count("tests", tests)
        self._check_arms(first, second)
        return compare_arms(self[first], self[second], seed=seed, tests=tests)

    def comparisons(self, *, seed: int = 0, looks: int | None = None) -> ArmComparisons:
        """Compare each other arm with the first one.

        Holm's method corrects for several comparisons.

        Args:
            seed: For the random flips, with more than 12 clusters.
            looks: How many looks at these cases were planned, while repeats or cases are added, or
                None for as many as there were.

        Raises:
            UsageError: `looks` is not a whole number from 1.
        """
        if looks is None:
            looks = self.looks
        check_count("looks", looks)
        first, *others = self
        base = self[first]
        values = {}
        for name in others:
            right = difference_between(base, self[name], "right", seed=seed)
            if right is not None:
                values[name] = right.p
        corrected = []
        for name, (p, tests) in zip(values, holm([*values.values()], looks), strict=True):
            each = compare_arms(base, self[name], seed=seed, tests=tests)
            if each is None:
                continue
            if len(values) * looks > 1:
                each = replace(each, right=replace(each.right, adjusted_p=p))
            corrected.append(each)
        return ArmComparisons(tuple(corrected))

    def cases_frame(self) -> Any:
        """Build a DataFrame with a row per case: its cluster, and how often each arm was right."""
        shares = {name: arm.means("right") for name, arm in self.items()}
        clusters = clusters_of(self.records)
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
        self._check_arms(arm)
        wrong = []
        for record in self.records:
            is_wanted = group in (None, record.failure) and arm in (None, record.arm)
            if record.right is False and is_wanted:
                wrong.append(record)
        return tuple(wrong)

    def _check_arms(self, *names: str | None) -> None:
        for name in names:
            if name is not None and name not in self:
                raise UnknownNameError("arm", name, self)

    @property
    def not_made(self) -> tuple[RunRecord, ...]:
        """Runs that could not be completed.

        They do not count, and are tried again with the same file.
        """
        return tuple(record for record in self.records if not record.made)

    def tool_uses(self) -> ToolUses:
        """Count for each deferred tool how often it was needed, searched for, found and called."""
        uses = []
        for arm in self.values():
            tools = set[str]().union(*(record.deferred for record in arm.done))
            uses += [use_of(tool, arm) for tool in sorted(tools)]
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
        thresholds = Thresholds(
            self.repeats, len(self), min_right, min_pass, max_cost, baseline, max_drop
        )
        problems = list(self._missing())
        for name, arm in self.items():
            if not arm.done:
                problems.append(f"{name}: no run was made.")
                continue
            if self.status == "done":
                problems += without_runs(arm, self.cases)
            problems += thresholds.missed_by(arm)
        # A name or a reason with a line end must not look like several problems.
        return list(map(one_line, problems))

    def _missing(self) -> Iterator[str]:
        """Write what could not be made or graded."""
        if self.status != "done":
            yield f"Not all runs were made: {self.problem or self.status}"
        for name, reason in self.failed_arms.items():
            yield f"{name} could not be run: {reason}"
        if failed := self.not_made:
            yield f"{count(len(failed), 'run')} could not be made: {failed[0].detail}"
        ungraded = [record for record in self.records if record.ungraded]
        if ungraded:
            yield f"{count(len(ungraded), 'answer')} could not be graded: {ungraded[0].detail}"

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write it to a file.

        Args:
            path: The file. Its extension decides the format: `.html` (one page, without scripts or
                network access), `.csv` (a row per run), or `.json` (the same rows).
            overwrite: Replace a file that exists.

        Returns:
            The file. It is written whole or not at all.

        Raises:
            UsageError: The extension is unknown, or the file exists or cannot be written.
        """
        path = Path(path).expanduser()
        match path.suffix.casefold():
            case ".html":
                text = display().page(self, "An experiment with casual_mcp_nb")
            case ".csv":
                text = as_csv(self.rows(), _COLUMNS)
            case ".json":
                document = {
                    "status": self.status,
                    "arms": list(self),
                    "cases": list(self.cases),
                    "repeats": self.repeats,
                    "runs": self.rows(),
                }
                text = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
            case _:
                formats = (".html", ".csv", ".json")
                raise UsageError(
                    f"An experiment cannot be saved as {shown(path.suffix or path.name)}.",
                    hint=did_you_mean([], formats),
                )
        write_text(path, text, overwrite=overwrite)
        return path

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
        from casual_mcp_nb.experiments.inspect_logs import inspect_log, write_logs

        self._check_arms(arm)
        names = list(self) if arm is None else [arm]
        logs = {}
        for name in names:
            logs[name] = inspect_log(self[name], status=self.status, repeats=self.repeats)
        return write_logs(logs, path, overwrite=overwrite)

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
            second: The other arm, or None for all others. Its interval is the same either way:
                all others are candidates, for which `comparisons` corrects.
            by: `tag` for a row per tag and arm.
            looks: How many looks were planned, see `comparisons`.

        Returns:
            A matplotlib figure, or an SVG without matplotlib.

        Raises:
            UnknownNameError: There is no such arm.
            UsageError: Both arms are the same.
        """
        from casual_mcp_nb.experiments.plots import difference_plot

        if first is None:
            first = next(iter(self))
        self._check_arms(first, second)
        if first == second:
            raise UsageError(f"Arm {shown(first)} cannot be compared with itself.")
        others = [name for name in self if name != first]
        ordered = replace(self, arms=tuple(self[name].arm for name in (first, *others)))
        parts = {"": ordered} if by is None else ordered.by_tag()
        drawn = others if second is None else [second]
        rows = []
        for tag, part in parts.items():
            for each in part.comparisons(looks=looks):
                if each.second not in drawn:
                    continue
                label = each.second
                if by is not None:
                    label = tag if len(drawn) == 1 else f"{tag}: {label}"
                rows.append((label, each.right))
        return difference_plot(first, rows)


@dataclass(frozen=True)
class Experiments(Displayable):
    """A session's experiments, as a value.

    Args:
        results: The last results, or None before the first.
    """

    results: RunResults | None = None
