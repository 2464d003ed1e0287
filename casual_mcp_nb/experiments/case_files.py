"""Read cases from files and tables, whatever their form, and write them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from casual_mcp_nb.base.callbacks import unchanged
from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.base.yaml_text import YamlError, read_yaml, write_yaml
from casual_mcp_nb.cassettes.format import Cassette
from casual_mcp_nb.conversation.codec import CASSETTE, CONVERSATION
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import UnknownNameError, UsageError, brief, closest, did_you_mean, shown
from casual_mcp_nb.experiments.cases import ArgumentMode, ExpectedCall, ToolUseCase
from casual_mcp_nb.experiments.checks import Functions
from casual_mcp_nb.experiments.drafts import cases_of_cassette, cases_of_turns
from casual_mcp_nb.experiments.importers import Context, MissingAnswersError, importer_of
from casual_mcp_nb.experiments.matchers import Matcher, Satisfies, read_expectation

CaseSource = str | Path | Iterable[Any]
"""A file, a DataFrame, a list of rows or cases, or past turns."""

MAX_CELL = 100_000_000
"""How many characters a CSV cell may have."""

_YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class Row:
    """A row with its place.

    Args:
        where: Its place, for errors.
        fields: Its fields.
        problem: Why it cannot be read, or None if it can.
    """

    where: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Rows:
    """The rows in a file or table.

    Args:
        all: The rows in order, with those that cannot be read.
        shared: What a document says beside its list of cases.
    """

    all: tuple[Row, ...]
    shared: Mapping[str, Any] = field(default_factory=dict)

    def strict(self) -> tuple[Row, ...]:
        """Return the rows. A UsageError if one cannot be read."""
        for row in self.all:
            if row.problem:
                raise UsageError(row.problem)
        return self.all


class Cases(tuple[ToolUseCase, ...]):
    """Cases from a file or table.

    Attributes:
        skipped: The rows that are not cases, each with its place (`where`) and `problem`.
    """

    skipped: tuple[Row, ...] = ()


def load_tool_cases(
    source: CaseSource,
    *,
    functions: Functions | None = None,
    answers: str | Path | None = None,
    arguments: ArgumentMode | None = None,
    strict: bool | None = None,
) -> Cases:
    """Read cases. The format follows from the content.

    Args:
        source: A file in this package's form (JSON lines, JSON, YAML, CSV), a saved conversation or
            a cassette, a file from pydantic-evals, MCP-Atlas, BFCL or LiveMCPBench, a DataFrame, or
            a list of rows, cases or past turns.
        functions: The functions that `$function` in a file may name.
        answers: The file with the possible answers, where BFCL's questions are apart from them.
        arguments: How to compare arguments, instead of as the cases define. For MCP-Atlas they are
            ignored by default, since other trajectories may be right as well.
        strict: Whether a row that is not a case is an error. Otherwise it is skipped, with a
            warning. None for an error in this package's form, since you can correct it, but not in
            another project's.

    Returns:
        The cases. Their `skipped` lists the rows that are not cases. In another project's file,
        equal ids get a number.

    Raises:
        UsageError: It cannot be read. File, line and field are named.
    """
    cases = _cases(source, functions or {}, answers, strict)
    if arguments is None:
        return cases
    changed = Cases(replace(case, arguments=arguments) for case in cases)
    changed.skipped = cases.skipped
    return changed


def _cases(
    source: CaseSource, functions: Functions, answers: str | Path | None, strict: bool | None
) -> Cases:
    if not isinstance(source, str | Path):
        is_table = hasattr(source, "to_dict") and hasattr(source, "columns")
        items = [] if is_table else list(source)
        if is_table or (items and all(isinstance(item, Mapping) for item in items)):
            return _read(
                table_rows(source if is_table else items), Context(functions), "the table", strict
            )
        if items and all(isinstance(item, Turn) for item in items):
            items = cases_of_turns(items)
        return distinct(items)
    path = Path(source).expanduser()
    suffix = path.suffix.casefold()
    if suffix in (".json", ".html", ".htm"):
        head = _head(path)
        if CASSETTE.name in head or suffix != ".json":
            return distinct(cases_of_cassette(Cassette.load(path)))
        if CONVERSATION.name in head:
            return distinct(cases_of_turns(Conversation.load(path), cluster=path.stem))
    possible = None
    if answers is not None:
        possible = {
            str(row.fields.get("id")): row.fields for row in rows_of(Path(answers)).strict()
        }
    rows = rows_of(path)
    evaluators = rows.shared.get("evaluators")
    context = Context(functions, possible, evaluators if isinstance(evaluators, list) else [])
    return _read(rows, context, shown(path.name), strict)


def _head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(2_000)
    except OSError as error:
        raise UsageError(f"{shown(path)} cannot be read: {error.strerror}.") from None


def _read(rows: Rows, context: Context, name: str, strict: bool | None) -> Cases:
    """Convert rows to cases. Those of another project may be skipped."""
    foreign = any(importer_of(row.fields, context) for row in rows.all)
    lenient = foreign if strict is None else not strict
    cases: list[ToolUseCase] = []
    skipped: list[Row] = []
    for row in rows.all:
        try:
            cases.append(_case(row, context))
        except MissingAnswersError as error:
            raise UsageError(f"{row.where}: {error}") from None
        except UsageError as error:
            if not lenient:
                raise
            skipped.append(replace(row, problem=str(error)))
    if skipped and not cases:
        raise UsageError(
            f"None of the {count(len(skipped), 'row')} in {name} is a case. {skipped[0].problem}"
        )
    result = distinct(_numbered(cases) if foreign else cases)
    result.skipped = tuple(skipped)
    if skipped:
        total = count(len(rows.all), "row")
        text = (
            f"{len(skipped):,} of {total} in {name} were skipped, the first because:"
            f" {skipped[0].problem}"
        )
        # The person's line, behind `load_tool_cases`.
        warnings.warn(text, stacklevel=4)
    return result


def _case(row: Row, context: Context) -> ToolUseCase:
    """Convert a row. A UsageError that names its place if that is not possible."""
    if row.problem:
        raise UsageError(row.problem)
    importer = importer_of(row.fields, context)
    if importer is None:
        return read_case(row.fields, row.where, context.functions)
    try:
        return importer(row.fields, context)
    except MissingAnswersError:
        raise
    except UsageError as error:
        raise UsageError(f"{row.where}: {error}") from None
    # Another project's row may have anything anywhere.
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        SyntaxError,
        RecursionError,
        MemoryError,
    ) as error:
        raise UsageError(
            f"{row.where} cannot be read: {type(error).__name__}: {shown(str(error), 200)}."
        ) from None


def _numbered(cases: Iterable[ToolUseCase]) -> Iterator[ToolUseCase]:
    """Give equal ids a number."""
    taken: set[str] = set()
    for case in cases:
        name, number = case.id, 1
        while name in taken:
            number += 1
            name = f"{case.id}-{number}"
        taken.add(name)
        yield case if name == case.id else replace(case, id=name)


def distinct(cases: Iterable[ToolUseCase]) -> Cases:
    """Collect cases, each once.

    Raises:
        UsageError: There are none, or two that differ have the same id.
    """
    by_id: dict[str, ToolUseCase] = {}
    for case in cases:
        if not isinstance(case, ToolUseCase):
            raise UsageError(
                f"A case cannot be {brief(case)}.",
                hint="Build a ToolUseCase, or give the path of a file.",
            )
        if by_id.setdefault(case.id, case) != case:
            raise UsageError(
                f"Two cases have the id {shown(case.id)}.", hint="Give each its own, or none."
            )
    if not by_id:
        raise UsageError("There are no cases.")
    return Cases(by_id.values())


# A row in this package's form

_FIELDS = [each.name for each in dataclasses.fields(ToolUseCase)]
_CALL_FIELDS = [each.name for each in dataclasses.fields(ExpectedCall)]


def read_case(
    row: Mapping[str, Any], where: str, functions: Functions | None = None
) -> ToolUseCase:
    """Build a case from a row.

    Args:
        row: Its fields, as in a file.
        where: Where the row is, for errors.
        functions: The functions that `$function` may name.

    Raises:
        UsageError: A field is unknown or wrong. It is named with its place.
    """
    values: dict[str, Any] = {}
    for name, value in row.items():
        if name == "label":
            continue
        if name not in _FIELDS:
            raise UsageError(
                f"{where}: unknown field {shown(str(name))}.",
                hint=did_you_mean(closest(str(name), _FIELDS), _FIELDS),
            )
        try:
            values[name] = _field(name, value, functions)
        except UsageError as error:
            raise UsageError(f"{where}, field {name}: {error}") from None
    if "label" in row:
        # A person's grade of the answer, to compare a judge's with.
        values["metadata"] = {**values.get("metadata", {}), "label": row["label"]}
    if "message" not in values:
        raise UsageError(f"{where}: the field message is missing.")
    try:
        return ToolUseCase(**values)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _field(name: str, value: Any, functions: Functions | None) -> Any:
    """Convert a field from a file."""
    match name:
        case "calls":
            return [_read_call(each, functions) for each in _list(value)]
        case "alternatives":
            return [_field("calls", calls, functions) for calls in _list(value)]
        case "answer" if isinstance(value, list):
            return [_read_check(each, functions) for each in value]
        case "answer" if value is not None:
            return _read_check(value, functions)
        case "no_call" | "any_call" | "judged":
            return _boolean(value)
        case "extra_calls":
            return _whole(value)
        case "metadata" if not isinstance(value, Mapping):
            raise UsageError(f"This is {brief(value)}, not an object.")
        case "id" | "cluster" if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
    return value


def _boolean(value: Any) -> bool:
    """Read a boolean, which in a table may be a text or a number."""
    if isinstance(value, bool):
        return value
    known = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
    if str(value).casefold() not in known:
        raise UsageError(f"This is {brief(value)}, not true or false.")
    return known[str(value).casefold()]


def _whole(value: Any) -> Any:
    """Read a whole number, which in a table may be a text or have a decimal point."""
    if isinstance(value, str | float):
        try:
            number = float(value)
        except ValueError:
            return value
        return int(number) if number.is_integer() else value
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UsageError(f"This is {brief(value)}, not a list.")
    return value


def _read_call(value: Any, functions: Functions | None) -> ExpectedCall:
    if isinstance(value, str):
        return ExpectedCall(value)
    if not isinstance(value, Mapping) or "tool" not in value:
        raise UsageError(
            f"A call cannot be {brief(value)}.",
            hint='Write {"tool": "server:tool", "arguments": {…}}.',
        )
    for name in value:
        if name not in _CALL_FIELDS:
            raise UnknownNameError("field of a call", str(name), _CALL_FIELDS)
    arguments = value.get("arguments") or {}
    if isinstance(arguments, Mapping):
        arguments = {
            str(name): read_expectation(each, functions) for name, each in arguments.items()
        }
    return ExpectedCall(**{**value, "arguments": arguments})


def _read_check(value: Any, functions: Functions | None) -> Any:
    check = read_expectation(value, functions)
    if isinstance(check, Satisfies):
        return check.function
    if isinstance(check, str | Matcher):
        return check
    if isinstance(check, int | float) and not isinstance(check, bool):
        return str(check)
    raise UsageError(
        f"A check of the answer cannot be {brief(value)}.", hint='Give a text, or {"$regex": …}.'
    )


# Rows of files and tables


def rows_of(path: str | Path) -> Rows:
    """Read a file's rows, each with its place: JSON lines, a JSON or YAML list, or CSV.

    Raises:
        UsageError: It cannot be read, or has another format.
    """
    path = Path(path).expanduser()
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"{shown(path)} cannot be read: {reason}.") from error
    match path.suffix.casefold():
        case ".yaml" | ".yml":
            return _yaml_rows(text, path.name)
        case ".csv":
            return _csv_rows(text, path.name)
        case ".json":
            # BFCL's files have a document on each line.
            first, _, others = text.strip().partition("\n")
            if not others or not isinstance(_json(first), Mapping):
                return _json_rows(text, path.name)
    lines = enumerate(text.split("\n"), 1)
    return Rows(
        tuple(_line(line, f"{path.name}, line {number}") for number, line in lines if line.strip())
    )


def _line(line: str, where: str) -> Row:
    value = _json(line)
    if isinstance(value, Exception):
        return Row(where, problem=f"{where} is not JSON: {value}.")
    return _row(where, value)


def _json(text: str) -> Any:
    """Parse a text, or return why it cannot be parsed."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return error


def _row(where: str, value: Any) -> Row:
    if isinstance(value, Mapping):
        return Row(where, value)
    return Row(where, problem=f"{where} is not an object.")


def _json_rows(text: str, name: str) -> Rows:
    document = _json(text)
    if isinstance(document, Exception):
        raise UsageError(f"{name} is not JSON: {document}.")
    if isinstance(document, Mapping) and "cases" not in document:
        document = [document]
    return _listed(document, name, lambda path: f"entry {path[-1] + 1}")


def _yaml_rows(text: str, name: str) -> Rows:
    try:
        document, positions, _ = read_yaml(text)
    except YamlError as error:
        raise UsageError(
            f"{name}, line {error.line} is not YAML that can be read: {error}."
        ) from None
    return _listed(document, name, lambda path: f"line {positions[path][0]}")


def _listed(document: Any, name: str, place: Callable[[tuple[Any, ...]], str]) -> Rows:
    """List the rows of a document: a list, or an object with a list under `cases`.

    `place` names a row by its path.
    """
    at: tuple[str, ...] = ()
    shared: Mapping[str, Any] = {}
    if isinstance(document, Mapping):
        at, shared = ("cases",), document
        document = document.get("cases")
    if not isinstance(document, list):
        raise UsageError(
            f"{name} has no list of cases.", hint="Write a list, or a list under the key cases."
        )
    rows = (_row(f"{name}, {place((*at, index))}", row) for index, row in enumerate(document))
    return Rows(tuple(rows), shared)


def _csv_rows(text: str, name: str) -> Rows:
    # A trajectory is longer than the default.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL))
    reader = csv.DictReader(io.StringIO(text, newline=""))
    rows: list[Row] = []
    try:
        for fields in reader:
            where = f"{name}, line {reader.line_num}"
            if None in fields:
                rows.append(Row(where, problem=f"{where} has more cells than the first line."))
            else:
                rows.append(Row(where, _cells(fields)))
    except csv.Error as error:
        raise UsageError(f"{name}, line {reader.line_num} is not CSV: {error}.") from None
    return Rows(tuple(rows))


def table_rows(table: Any) -> Rows:
    """List the rows in a DataFrame or a list of objects.

    Empty cells are left out, and lists may be written as JSON.
    """
    records: Sequence[Any] = table.to_dict("records") if hasattr(table, "to_dict") else table
    rows = [_row(f"row {number}", record) for number, record in enumerate(records, 1)]
    return Rows(tuple(replace(row, fields=_cells(row.fields)) for row in rows))


def _cells(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _cell(value) for name, value in fields.items() if not _is_empty(value)}


def _is_empty(value: Any) -> bool:
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and not value)
    )


def _cell(value: Any) -> Any:
    if hasattr(value, "item") and not isinstance(value, str):
        return value.item() if getattr(value, "ndim", 0) == 0 else value.tolist()
    if isinstance(value, str) and value[:1] in ("[", "{"):
        document = _json(value)
        return value if isinstance(document, Exception) else document
    return value


def save_tool_cases(
    cases: Iterable[ToolUseCase],
    path: str | Path,
    *,
    overwrite: bool = False,
    mask: Callable[[str], str] = unchanged,
) -> Path:
    """Write cases to a file: `.yaml`, or JSON lines with any other extension.

    A function is written as its name.

    Args:
        cases: The cases.
        path: The file.
        overwrite: Replace a file that exists.
        mask: Removes secrets from the text.

    Raises:
        UsageError: The file exists, or cannot be written.
    """
    path, rows = Path(path).expanduser(), [case.plain() for case in cases]
    if path.suffix.casefold() in _YAML:
        text = write_yaml(rows)
    else:
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    write_text(path, mask(text), overwrite=overwrite, hint="To replace it: overwrite=True.")
    return path
