"""Run records, the file that collects them, and statistics: intervals, comparisons, failures, tool use."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import math
import os
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from casual_mcp_nb.base.displayable import Displayable, DisplayableList, count, display
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.conversation.codec import dump_traces, load_traces
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.errors import UnknownNameError, UsageError, shown
from casual_mcp_nb.experiments.matching import FAILURE_GROUPS, FailureGroup
from casual_mcp_nb.experiments.results import Exportable, Way
from casual_mcp_nb.experiments.statistics import (
    Interval,
    PairedDifference,
    holm,
    mean_interval,
    paired_difference,
    pass_hat_k,
    share_interval,
    smallest_difference,
)

MeasureName = Literal["right", "input_tokens", "output_tokens", "steps", "calls", "searches", "seconds", "cost"]
MEASURES: tuple[MeasureName, ...] = get_args(MeasureName)
ResultsStatus = Literal["running", "done", "stopped", "over budget", "failing"]
"""`over budget`: the next run could have exceeded the budget. `failing`: run after run could not be made."""


@dataclass(frozen=True)
class RunRecord(Displayable):
    """One run: a case in an arm.

    Args:
        key: A hash of everything that the run depends on: the case, the model and its options, the definitions sent, the
            delivery, the repeat. Runs with a known key are not repeated.
        case: The case's id.
        arm: The arm's name.
        repeat: Which time, from 0.
        cluster: The case's cluster, or its id.
        message: The last message.
        made: Whether it was completed. A run that a provider or server broke off is neither right nor wrong.
        right: Whether it is right, or None if it was not completed.
        failure: Why it is wrong.
        detail: The failure, or why it was not completed, in a sentence.
        tool: The tool concerned.
        parameters: The parameters concerned.
        matched: How many expected calls were made.
        expected: How many were expected.
        extra: How many other calls were made.
        steps: Model calls.
        calls: Tool calls without searches.
        searches: Searches for tools.
        input_tokens: Input tokens, over all requests.
        output_tokens: Output tokens, or None if they were not reported.
        origin: Who counted the input tokens.
        seconds: How long it took.
        cost: Its cost by the price table, or None without prices.
        currency: The currency.
        model: The model's name.
        answer: The last answer.
        needed: The tools that the case expects.
        deferred: Tools in `needed`, `found` and `called` that were deferred at the start.
        found: The tools that searches returned.
        called: The tools that were called.
        transcript: The turns as JSON, without the tool definitions, which the file has once.
    """

    key: str
    case: str
    arm: str
    repeat: int
    cluster: str
    message: str = ""
    made: bool = True
    right: bool | None = None
    failure: FailureGroup | None = None
    detail: str = ""
    tool: str | None = None
    parameters: tuple[str, ...] = ()
    matched: int = 0
    expected: int = 0
    extra: int = 0
    steps: int = 0
    calls: int = 0
    searches: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    origin: str = "estimated"
    seconds: float = 0.0
    cost: float | None = None
    currency: str | None = None
    model: str | None = None
    answer: str = ""
    needed: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    called: tuple[str, ...] = ()
    transcript: str = field(default="", repr=False, compare=False)

    def __repr__(self) -> str:
        outcome = "right" if self.right else self.failure or self.detail
        return f"<RunRecord: {self.case} in {self.arm}, repeat {self.repeat + 1}: {outcome}>"

    @property
    def label(self) -> str:
        """The case by its id, or by how its message begins if the id was made up."""
        if not self.message or not re.fullmatch(r"case-(?:[0-9a-f]{8}){1,2}", self.case):
            return self.case
        return textwrap.shorten(self.message[:1_000], 80, placeholder=" …") or self.case

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Its turns with everything that happened, or none if it has no transcript."""
        return tuple(map(Turn, load_traces(self.transcript, Trace)[0])) if self.transcript else ()

    @property
    def turn(self) -> Turn | None:
        """Its last turn, or None if it has no transcript."""
        return self.turns[-1] if self.transcript else None

    def row(self) -> dict[str, Any]:
        """Collect its fields as plain values, without the transcript."""
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "transcript"}
        return {name: ", ".join(value) if isinstance(value, tuple) else value for name, value in fields.items()}


def transcript_of(turns: Iterable[Turn]) -> str:
    """Write a run's turns as JSON."""
    return dump_traces(turn.trace for turn in turns)


class ResultsFile:
    """An append-only results file: each line is a record, an arm, or a tool definition.

    Lines are appended whole, so that a killed process loses nothing that was there. A torn last line is ignored. Several
    processes may write at the same time.

    Args:
        path: The file, which need not exist.
        mask: Removes secrets from a line.

    Raises:
        UsageError: It cannot be read, or is another file.
    """

    def __init__(self, path: str | Path, mask: Callable[[str], str] = lambda line: line) -> None:
        self.path = Path(path).expanduser()
        self.records: dict[str, RunRecord] = {}
        self.ways: dict[str, Way] = {}
        self._mask = mask
        self._definitions: dict[str, Any] = {}
        self._whole = True
        try:
            data = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise UsageError(f"{shown(self.path)} cannot be read: {error.strerror}.") from None
        lines = data.split(b"\n")
        # The last one has no end: it is empty, or was being written.
        self._whole = not lines.pop()
        for number, line in enumerate(lines, 1):
            try:
                self._read(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                if line.strip() and number == 1:
                    hint = "Name a new file, or one that such runs have written."
                    raise UsageError(f"{shown(self.path)} is not a results file.", hint=hint) from None

    def _read(self, row: dict[str, Any]) -> None:
        if "definition" in row:
            self._definitions[row["tool"]] = row["definition"]
        elif "way" in row:
            self.ways[row["way"]["name"]] = Way(**row["way"])
        else:
            names = {each.name for each in dataclasses.fields(RunRecord)}
            fields: dict[str, Any] = {}
            for name in names & row.keys():
                fields[name] = tuple(row[name]) if isinstance(row[name], list) else row[name]
            document = row.get("transcript")
            if document:
                document["tools"] = [self._definitions[tool] for tool in document["tools"]]
                fields["transcript"] = json.dumps(document)
            record = RunRecord(**fields)
            self.records[record.key] = record

    def add(self, *items: RunRecord | Way) -> None:
        """Append records and arms.

        Raises:
            UsageError: The file cannot be written.
        """
        rows: list[dict[str, Any]] = []
        is_new = not self.records
        for item in items:
            if isinstance(item, Way):
                if self.ways.get(item.name) != item:
                    self.ways[item.name] = item
                    rows.append({"way": dataclasses.asdict(item)})
                continue
            self.records[item.key] = item
            fields = {each.name: getattr(item, each.name) for each in dataclasses.fields(item)}
            fields = {name: value for name, value in fields.items() if value not in (None, "", ())}
            if item.transcript:
                document = json.loads(item.transcript)
                for number, definition in enumerate(document["tools"]):
                    digest = hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()[:16]
                    if digest not in self._definitions:
                        self._definitions[digest] = definition
                        rows.append({"tool": digest, "definition": definition})
                    document["tools"][number] = digest
                fields["transcript"] = document
            rows.append(fields)
        lines = [self._mask(json.dumps(row, ensure_ascii=False, separators=(",", ":"))) for row in rows]
        text = "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")
        if not text:
            return
        try:
            if is_new:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                os.write(descriptor, text if self._whole else b"\n" + text)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise UsageError(f"{shown(self.path)} cannot be written: {error.strerror}.") from None
        self._whole = True


def load_runs(path: str | Path) -> RunResults:
    """Read earlier results, for example as a baseline.

    Args:
        path: A file that `session.experiments.run(…, results=path)` has written.

    Raises:
        UsageError: It does not exist, or is another file.
    """
    if not Path(path).expanduser().exists():
        raise UsageError(f"There is no file {shown(Path(path))}.")
    file = ResultsFile(path)
    records = tuple(file.records.values())
    arms = tuple(file.ways.get(name, Way(name)) for name in dict.fromkeys(record.arm for record in records))
    if not records:
        raise UsageError(f"{shown(Path(path))} has no runs.")
    repeats = max(record.repeat for record in records) + 1
    return RunResults(records, arms, tuple(dict.fromkeys(record.case for record in records)), repeats)


@dataclass(frozen=True)
class ArmResults:
    """One arm's runs. Arms differ in model, delivery, toolset, descriptions and so on.

    Args:
        way: The arm.
        records: Its runs.
    """

    way: Way
    records: tuple[RunRecord, ...]

    @property
    def done(self) -> tuple[RunRecord, ...]:
        """The completed runs. All figures are about these."""
        return tuple(record for record in self.records if record.made)

    @property
    def by_case(self) -> dict[str, tuple[RunRecord, ...]]:
        """Each case's runs."""
        groups: dict[str, list[RunRecord]] = {}
        for record in self.done:
            groups.setdefault(record.case, []).append(record)
        return {case: tuple(records) for case, records in groups.items()}

    @property
    def right(self) -> Interval | None:
        """The share of right runs with its interval, each case counting the same. None without runs."""
        groups = self.by_case
        if not groups:
            return None
        successes = [sum(record.right is True for record in records) for records in groups.values()]
        clusters = [records[0].cluster for records in groups.values()]
        return share_interval(successes, [len(records) for records in groups.values()], clusters)

    def pass_hat(self, k: int) -> float | None:
        """Estimate how many cases have k right runs in k, as a share, or return None if a case has fewer runs."""
        groups = self.by_case.values()
        return pass_hat_k([sum(record.right is True for record in records) for records in groups], [*map(len, groups)], k)

    def means(self, name: MeasureName) -> dict[Hashable, float]:
        """Compute a figure's mean by case. Cases in which it is unknown are left out."""
        means: dict[Hashable, float] = {}
        for case, records in self.by_case.items():
            values = [getattr(record, name) for record in records]
            if None not in values:
                means[case] = math.fsum(values) / len(values)
        return means

    def mean(self, name: MeasureName) -> Interval | None:
        """Compute a figure's mean with its interval, or None if it is unknown."""
        means, clusters = self.means(name), {record.case: record.cluster for record in self.records}
        return mean_interval([*means.values()], [clusters[str(case)] for case in means]) if means else None

    @property
    def failures(self) -> dict[FailureGroup, int]:
        """How many runs failed, by reason."""
        counts = Counter(record.failure for record in self.done if record.failure)
        return {group: counts[group] for group in FAILURE_GROUPS if counts[group]}


@dataclass(frozen=True)
class ArmComparison:
    """Two arms over the same cases. All differences are the second minus the first.

    Args:
        first: The arm to compare with.
        second: The other one.
        right: The difference in right runs, as a share.
        measures: Differences in all other figures that both arms have, by name.
    """

    first: str
    second: str
    right: PairedDifference
    measures: Mapping[MeasureName, PairedDifference] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """Collect its fields as plain values."""
        return {"first": self.first, "second": self.second, **dataclasses.asdict(self.right)}


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
        records: The runs, by repeat, case and arm, or while it runs in the order in which they ended.
        ways: The arms, in the order given. Others are compared with the first.
        cases: The case ids.
        repeats: How often each case is run in each arm.
        status: `running`, `done`, or why it ended early.
        planned: How many runs there should be.
        reused: How many runs the file had already.
        seconds: How long it has taken.
        problem: Why it ended early, in a sentence.
        clusters: How many clusters the cases form, or 0 to count those in the records.
        active: Runs in progress in this process, by case and arm.
    """

    _kind = "An evaluation"

    records: tuple[RunRecord, ...]
    ways: tuple[Way, ...]
    cases: tuple[str, ...]
    repeats: int = 1
    status: ResultsStatus = "done"
    planned: int = 0
    reused: int = 0
    seconds: float = 0.0
    problem: str = ""
    clusters: int = 0
    active: frozenset[tuple[str, str]] = frozenset()

    def __getitem__(self, name: str) -> ArmResults:
        way = {way.name: way for way in self.ways}[name]
        return ArmResults(way, tuple(record for record in self.records if record.arm == name))

    def __iter__(self) -> Iterator[str]:
        return (way.name for way in self.ways)

    def __len__(self) -> int:
        return len(self.ways)

    def __repr__(self) -> str:
        runs = f"{len(self.records):,} of {count(max(self.planned, len(self.records)), 'run')}"
        return f"<RunResults: {self.status}, {count(len(self.ways), 'arm')}, {count(len(self.cases), 'case')}, {runs}>"

    @property
    def smallest_difference(self) -> float | None:
        """The smallest mean gain that a comparison this large finds in four out of five experiments. Known before any run."""
        clusters = self.clusters or len({record.cluster for record in self.records})
        return smallest_difference(clusters, self.repeats)

    def rows(self) -> list[dict[str, Any]]:
        """Build a list of rows, one per run, for a DataFrame or a CSV file."""
        return [record.row() for record in self.records]

    def frame(self) -> Any:
        """Build a DataFrame with a row per run. Without pandas, the list of rows."""
        return frame_of(self.rows())

    def arms_frame(self) -> Any:
        """Build a DataFrame with a row per arm: right runs with their interval, pass^k, tokens, cost, failures."""
        rows = []
        for name, arm in self.items():
            right = arm.right
            row: dict[str, Any] = {"arm": name, "runs": len(arm.done), "not_made": len(arm.records) - len(arm.done)}
            row |= {"right": right and right.value, "low": right and right.low, "high": right and right.high}
            for k in range(2, self.repeats + 1):
                row[f"pass^{k}"] = arm.pass_hat(k)
            for measure in MEASURES[1:]:
                interval = arm.mean(measure)
                row[measure] = interval.value if interval else None
            failures = arm.failures
            row.update((group, failures.get(group, 0)) for group in FAILURE_GROUPS)
            rows.append(row)
        return frame_of(rows)

    def compare(self, first: str, second: str, *, seed: int = 0) -> ArmComparison | None:
        """Compare two arms by case, with a paired test. Repeats are averaged first. Clusters are the unit.

        Args:
            first: The arm to compare with.
            second: The other arm.
            seed: For the random flips, with more than 12 clusters.

        Returns:
            The differences, or None if they have no case in common.

        Raises:
            UnknownNameError: There is no such arm.
        """
        for name in (first, second):
            if name not in self:
                raise UnknownNameError("arm", name, self)
        return compare_arms(self[first], self[second], seed=seed)

    def comparisons(self, *, seed: int = 0) -> tuple[ArmComparison, ...]:
        """Compare each other arm with the first one. Holm's method corrects for several comparisons."""
        first, *others = self
        pairs = [each for name in others if (each := self.compare(first, name, seed=seed)) is not None]
        if len(pairs) < 2:
            return tuple(pairs)
        adjusted = holm([each.right.p for each in pairs])
        return tuple(
            dataclasses.replace(each, right=dataclasses.replace(each.right, adjusted_p=p))
            for each, p in zip(pairs, adjusted, strict=True)
        )

    def cases_frame(self) -> Any:
        """Build a DataFrame with a row per case: how often each arm was right."""
        shares = {name: arm.means("right") for name, arm in self.items()}
        rows = [{"case": case} | {name: shares[name].get(case) for name in self} for case in self.cases]
        return frame_of(rows)

    def failures(self, group: FailureGroup | None = None, *, arm: str | None = None) -> tuple[RunRecord, ...]:
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
            record for record in wrong if (group is None or record.failure == group) and (arm is None or record.arm == arm)
        )

    @property
    def not_made(self) -> tuple[RunRecord, ...]:
        """Runs that could not be completed. They do not count, and are tried again with the same file."""
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
            baseline: Earlier results. An arm with the same name must not be worse by more than `max_drop`, with 95% certainty.
            max_drop: How much worse it may be, from 0 to 1.

        Returns:
            A sentence per missed threshold, or none.
        """
        problems = [] if self.status == "done" else [f"Not all runs were made: {self.problem or self.status}"]
        if self.not_made:
            problems.append(f"{count(len(self.not_made), 'run')} could not be made: {self.not_made[0].detail}")
        for name, arm in self.items():
            right, cost = arm.right, arm.mean("cost")
            if right is None:
                problems.append(f"{name}: no run was made.")
                continue
            if min_right is not None and right.value < min_right:
                problems.append(f"{name}: {right.value:.1%} of the runs are right, and {min_right:.1%} are required.")
            passed = arm.pass_hat(min(map(len, arm.by_case.values())))
            if min_pass is not None and passed is not None and passed < min_pass:
                problems.append(f"{name}: {passed:.1%} of the cases are right each time, and {min_pass:.1%} are required.")
            if max_cost is not None and cost is not None and cost.value > max_cost:
                problems.append(f"{name}: a run costs {cost.value:.6f}, and at most {max_cost:.6f} is allowed.")
            if baseline is not None and name in baseline:
                comparison = compare_arms(baseline[name], arm)
                if comparison is not None and comparison.right.high < -max_drop:
                    drop = comparison.right
                    interval = f"{-drop.high:.1%} to {-drop.low:.1%}"
                    problems.append(f"{name}: {-drop.mean:.1%} ({interval}) fewer runs are right than in the baseline.")
        return problems

    def to_inspect(self, path: str | Path, *, arm: str | None = None, overwrite: bool = False) -> tuple[Path, ...]:
        """Write inspect-ai logs, one per arm, for `inspect view` and its dashboards. That package need not be installed.

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
            raise UsageError("A file holds only one arm's log.", hint=f"Name a folder, or one arm: {', '.join(arms)}.")
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
                raise UsageError(f"{shown(file.parent)} cannot be created: {error.strerror}.") from None
            text = json.dumps(log, ensure_ascii=False, indent=1)
            write_text(file, text, overwrite=overwrite, hint="To replace it: overwrite=True.")
            files.append(file)
        return tuple(files)

    def plot(self) -> Any:
        """Draw each arm's right runs with their interval: a matplotlib figure, or an SVG without matplotlib."""
        return display().figure_of(self)

    def _about(self) -> dict[str, Any]:
        return {"status": self.status, "arms": list(self), "cases": list(self.cases), "repeats": self.repeats}


def compare_arms(first: ArmResults, second: ArmResults, *, seed: int = 0) -> ArmComparison | None:
    """Compare two arms by the cases that both have, which may be from different results. See `RunResults.compare`."""
    clusters: dict[Hashable, Hashable] = {record.case: record.cluster for record in (*first.records, *second.records)}

    def difference(name: MeasureName) -> PairedDifference | None:
        return paired_difference(first.means(name), second.means(name), clusters, seed=seed)

    right = difference("right")
    if right is None:
        return None
    # For these, less is better.
    measures = {
        name: dataclasses.replace(each, better=each.worse, worse=each.better)
        for name in MEASURES[1:]
        if (each := difference(name)) is not None
    }
    right = dataclasses.replace(right, low=max(right.low, -1.0), high=min(right.high, 1.0))
    return ArmComparison(first.way.name, second.way.name, right, measures)


def frame_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Build a pandas DataFrame from rows. Without pandas, return the rows."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        return list(rows)
    return pandas.DataFrame(rows)
