"""The file that collects runs: what was asked, how it was judged, and what was spent.

A file has a JSON object per line. The first one names the format. A `transcript` is what a model
was asked and did. A `verdict` says what that means for a case, and the last one for a transcript
counts. There are also the `arm`s, what each `setup` offered, each `tool` definition once, the
`case`s, and the tokens that each model call `reserved` and `spent`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from casual_mcp_nb.base.iterables import attributes, field_names
from casual_mcp_nb.base.secret import NO_SECRETS, Mask, masked_value
from casual_mcp_nb.conversation.codec import NEWER, Format
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.experiments.arms import Arm
from casual_mcp_nb.experiments.budget import Amount, Ledger
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.graded import Verdict
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.run_record import RunRecord, Setup

RUNS = Format("casual_mcp_nb runs", 2)
VERDICT = (
    "case",
    "cluster",
    "tags",
    "right",
    "failure",
    "detail",
    "tool",
    "parameters",
    "matched",
    "expected",
    "extra",
    "needed",
    "deferred",
    "judged_by",
    "reference",
    "grades",
)
"""The fields of a record that depend on what its case expects."""
_FIELDS = field_names(RunRecord)
_ARM = field_names(Arm)
_ASKED = tuple(name for name in _FIELDS if name not in (*VERDICT, "transcript"))


@dataclass(frozen=True)
class FilePart:
    """A results file to which another process may append, where it can reach it.

    Args:
        path: The file.
        id: The id in its first line, since the path may be another file there.
    """

    path: Path
    id: str

    def opened(self, mask: Mask) -> ResultsFile | None:
        """Open it to append, or return None if it is not there."""
        try:
            with self.path.open(encoding="utf-8") as file:
                header = json.loads(file.readline())
        except (OSError, ValueError):
            return None
        if not isinstance(header, dict) or header.get("id") != self.id:
            return None
        return ResultsFile(self.path, mask, only_append=True)


class ResultsFile:
    """An append-only results file.

    Lines are appended whole, so that a killed process loses nothing that was there. A torn last
    line is ignored. Several processes may write at the same time.

    Args:
        path: The file, which need not exist.
        mask: Removes secrets from a line.
        only_append: Whether to leave what it has unread.

    Attributes:
        records: The runs by arm and key, each with its last verdict.
        asked: The transcripts by key, in whatever arm, without a verdict.
        version: The format's version.
        ledger: What was spent.
        looks: How many looks at a comparison it has, and the most runs of an arm at the last one.

    Raises:
        UsageError: It cannot be read, is another file, or comes from a later version.
    """

    def __init__(
        self,
        path: str | Path,
        mask: Mask = NO_SECRETS,
        *,
        only_append: bool = False,
    ) -> None:
        self.path = Path(path).expanduser()
        self.records: dict[tuple[str, str], RunRecord] = {}
        self.arms: dict[str, Arm] = {}
        self.setups: dict[str, Setup] = {}
        self.version = RUNS.version
        self.id = ""
        self.ledger = Ledger(self._spend)
        self.looks = self.runs_at_last_look = 0
        self._mask = mask
        self.asked: dict[str, RunRecord] = {}
        self._definitions: dict[str, Any] = {}
        self._cases: set[str] = set()
        self._empty = not only_append
        if not only_append:
            self.read()

    def read(self) -> None:
        """Read it, also again after other processes have appended to it."""
        if self.path.exists() and not self.path.is_file():
            raise UsageError(f"{shown(self.path)} is not a file.")
        try:
            data = self.path.read_bytes() if self.path.exists() else b""
        except OSError as error:
            raise UsageError(f"{shown(self.path)} cannot be read: {error.strerror}.") from None
        self.ledger = Ledger(self._spend)
        self.looks = 0
        *lines, torn = data.split(b"\n")
        lines = [line for line in lines if line.strip()]
        self._empty = not lines
        if self._empty and torn.strip():
            raise self._foreign()
        for number, line in enumerate(lines, 1):
            try:
                self._take(json.loads(line), number)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                if number == 1:
                    raise self._foreign() from None
            if problem := RUNS.problem(shown(self.path), self.version):
                raise UsageError(problem, hint=NEWER)

    def _foreign(self) -> UsageError:
        hint = "Name a new file, or one that such runs have written."
        return UsageError(f"{shown(self.path)} is not a results file.", hint=hint)

    def check_format(self) -> None:
        """Check that runs can be added.

        Raises:
            UsageError: It has an earlier version's format.
        """
        if self.version != RUNS.version:
            raise UsageError(
                f"{shown(self.path)} has the format of an earlier version of casual_mcp_nb.",
                hint="Name a new file. As a baseline, and with load_runs, it can still be read.",
            )

    def _take(self, row: dict[str, Any], number: int) -> None:
        """Read a line."""
        if number == 1:
            self.version, self.id = 1, ""
            if row.get("format") == RUNS.name:
                self.version, self.id = row["version"], row["id"]
        match row:
            case {"tool": digest, "definition": definition}:
                self._definitions[digest] = definition
            case {"asked": fields, "transcript": document}:
                asked = _read(fields, _ASKED)
                asked["transcript"] = self._with_definitions(document)
                self._set_asked(asked)
            case {"verdict": fields}:
                verdict = _read(fields, _FIELDS)
                verdict["grades"] = tuple(Verdict(**each) for each in verdict.get("grades", ()))
                self._set(replace(self.asked[verdict["key"]], **verdict))
            case {"setup": digest, "loaded": loaded, "deferred": deferred, "absent": absent}:
                self.setups[digest] = Setup(tuple(loaded), tuple(deferred), absent)
            case {"arm": {"name": name} as fields}:
                self.arms[name] = Arm(**_read(fields, _ARM))
            case {"case": _, "digest": digest}:
                self._cases.add(digest)
            case {"reserved": [call, tokens, cost]}:
                self.ledger.read("reserved", call, (float(tokens), float(cost)))
            case {"spent": [call, tokens, cost]}:
                self.ledger.read("spent", call, (float(tokens), float(cost)))
            case {"look": runs}:
                self.looks += 1
                self.runs_at_last_look = runs
            case _ if self.version == 1:
                self._take_version_1(row)

    def _take_version_1(self, row: dict[str, Any]) -> None:
        """Read a line of the first format, whose records have asking and verdict in one."""
        if "way" in row:
            way = {name: value for name, value in row["way"].items() if name != "without"}
            without = row["way"].get("without")
            self.arms[way["name"]] = Arm(**way, without=(without,) if without else ())
            return
        fields = _read(row, _FIELDS)
        if "message" in row:
            fields["messages"] = (row["message"],)
        if row.get("transcript"):
            fields["transcript"] = self._with_definitions(row["transcript"])
        self._set(RunRecord(**fields))

    def _set_asked(self, fields: dict[str, Any]) -> None:
        self.asked[fields["key"]] = RunRecord(case="", cluster="", **fields)

    def _set(self, record: RunRecord) -> None:
        # At the end, since the order tells which runs are newer.
        self.records.pop((record.arm, record.key), None)
        self.records[record.arm, record.key] = record

    def _with_definitions(self, document: dict[str, Any] | None) -> str:
        if not document:
            return ""
        document["tools"] = [self._definitions[tool] for tool in document["tools"]]
        return json.dumps(document)

    def add_arms(
        self, arms: Sequence[Arm], setups: Mapping[str, Setup], cases: Sequence[ToolUseCase]
    ) -> None:
        """Append what is new among arms, set-ups and cases."""
        rows: list[dict[str, Any]] = []
        for arm in arms:
            if self.arms.get(arm.name) != arm:
                self.arms[arm.name] = arm
                rows.append({"arm": dataclasses.asdict(arm)})
        for digest, setup in setups.items():
            if digest not in self.setups:
                self.setups[digest] = setup
                rows.append({"setup": digest, **dataclasses.asdict(setup)})
        for case in cases:
            if case.digest not in self._cases:
                self._cases.add(case.digest)
                rows.append({"case": case.plain(), "digest": case.digest})
        self._append(rows)

    def add(self, *records: RunRecord) -> None:
        """Append runs: what was asked, if that is new, and the verdict.

        Raises:
            UsageError: The file cannot be written.
        """
        rows: list[dict[str, Any]] = []
        for record in records:
            fields = attributes(record, _ASKED)
            asked = _without_empty(fields)
            earlier = self.asked.get(record.key)
            if earlier is None or earlier.attempts != record.attempts:
                rows += self._transcript_rows(record, asked)
                self._set_asked({**fields, "transcript": record.transcript})
            verdict = attributes(record, VERDICT)
            verdict["grades"] = tuple(map(dataclasses.asdict, record.grades))
            run = {"key": record.key, "arm": record.arm, "repeat": record.repeat}
            rows.append({"verdict": run | _without_empty(verdict)})
            self._set(record)
        self._append(rows)

    def _transcript_rows(
        self, record: RunRecord, asked: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        document = None
        if record.transcript:
            document = json.loads(record.transcript)
            for number, definition in enumerate(document["tools"]):
                text = json.dumps(definition, sort_keys=True)
                digest = hashlib.sha256(text.encode()).hexdigest()[:16]
                if digest not in self._definitions:
                    self._definitions[digest] = definition
                    yield {"tool": digest, "definition": definition}
                document["tools"][number] = digest
        yield {"asked": asked, "transcript": document}

    def add_look(self, runs: int) -> None:
        """Append that a comparison of arms with so many runs was looked at, unless they had as many
        before.
        """
        if runs > self.runs_at_last_look:
            self.looks += 1
            self.runs_at_last_look = runs
            self._append([{"look": runs}])

    def part(self) -> FilePart:
        """Describe the file for another process."""
        self._append([])
        return FilePart(self.path.resolve(), self.id)

    def _spend(self, kind: str, call: str, amount: Amount) -> None:
        self._append([{kind: [call, *amount]}])

    def _append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if self._empty:
            self.id = uuid.uuid4().hex
            rows = [{**RUNS.head, "id": self.id}, *rows]
        if not rows:
            return
        lines = [masked_json(_dumped(row), self._mask) for row in rows]
        text = "\n".join([*lines, ""]).encode("utf-8", "replace")
        try:
            if self._empty:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                _write(descriptor, text)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise UsageError(f"{shown(self.path)} cannot be written: {error.strerror}.") from None
        self._empty = False

    def newest(self) -> tuple[tuple[RunRecord, ...], int]:
        """Choose each case's runs in each arm's newest set-up.

        Returns:
            The runs, and how many of earlier set-ups are left out.
        """
        newest: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}
        for record in self.records.values():
            newest[record.case, record.arm] = record.setup, record.messages
        chosen = {}
        for record in self.records.values():
            if newest[record.case, record.arm] == (record.setup, record.messages):
                chosen[record.case, record.arm, record.repeat] = record
        return tuple(chosen.values()), len(self.records) - len(chosen)


def _dumped(row: Any) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=str)


def masked_json(text: str, mask: Mask) -> str:
    """Remove secrets from a text in JSON, which stays JSON."""
    masked = mask(text)
    if masked == text:
        return text
    try:
        json.loads(masked)
    except ValueError:
        # A secret of digits is in a number as well, which is none.
        return _dumped(masked_value(json.loads(text), mask))
    return masked


def _write(descriptor: int, lines: bytes) -> None:
    """Append lines, after the end of a line that another process or a full disk tore."""
    size = os.fstat(descriptor).st_size
    os.lseek(descriptor, max(0, size - 1), os.SEEK_SET)
    if os.read(descriptor, 1) not in (b"", b"\n"):
        lines = b"\n" + lines
    while lines:
        lines = lines[os.write(descriptor, lines) :]


def _without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "", ())}


def _read(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Read a dataclass's fields. Those that it does not have are from a later version."""
    fields = {}
    for name in names:
        if name in row:
            value = row[name]
            fields[name] = tuple(value) if isinstance(value, list) else value
    return fields


def load_runs(path: str | Path) -> RunResults:
    """Read earlier results, for example as a baseline.

    Runs of an earlier set-up, before a description or a message was changed, are left out and
    counted in `left_out`.

    Args:
        path: A file that `session.experiments.run(…, results=path)` has written.

    Raises:
        UsageError: It does not exist, is another file, or comes from a later version.
    """
    if not Path(path).expanduser().exists():
        raise UsageError(f"There is no file {shown(Path(path))}.")
    file = ResultsFile(path)
    records, left_out = file.newest()
    if not records:
        raise UsageError(f"{shown(Path(path))} has no runs.")
    names = dict.fromkeys(record.arm for record in records)
    return RunResults(
        records,
        tuple(file.arms.get(name, Arm(name)) for name in names),
        tuple(dict.fromkeys(record.case for record in records)),
        max(record.repeat for record in records) + 1,
        setups=file.setups,
        left_out=left_out,
        looks=max(1, file.looks),
        spent=file.ledger.spent,
    )
