"""Read cases from files and tables, whatever their form, and write them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from casual_mcp_nb.base.callbacks import unchanged
from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.base.files import write_text
from casual_mcp_nb.base.iterables import all_are, field_names
from casual_mcp_nb.base.yaml_text import write_yaml
from casual_mcp_nb.cassettes.format import Cassette
from casual_mcp_nb.conversation.codec import CASSETTE, CONVERSATION
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.foreign.opening import reader_of
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import (
    UnknownNameError,
    UsageError,
    brief,
    cannot_be,
    closest,
    did_you_mean,
    shown,
)
from casual_mcp_nb.experiments.cases import ArgumentMode, ExpectedCall, ToolUseCase
from casual_mcp_nb.experiments.checks import Functions
from casual_mcp_nb.experiments.drafts import cases_of_cassette, cases_of_turns
from casual_mcp_nb.experiments.importers import Context, MissingAnswersError, importer_of
from casual_mcp_nb.experiments.matchers import Matcher, Satisfies, read_expectation
from casual_mcp_nb.experiments.rows import Fields, Row, Rows, rows_of, table_rows

CaseSource = str | Path | Iterable[Any]
"""A file, a DataFrame, a list of rows or cases, or past turns."""

_YAML = (".yaml", ".yml")


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
        source: A file in this package's form (JSON lines, JSON, YAML, CSV), a saved conversation, a
            cassette or another agent's session, a file from pydantic-evals, MCP-Atlas, BFCL or
            LiveMCPBench, a DataFrame, or a list of rows, cases or past turns.
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
    if isinstance(source, str | Path):
        cases = _of_file(Path(source).expanduser(), functions or {}, answers, strict)
    else:
        cases = _of_values(source, functions or {}, strict)
    if arguments is None:
        return cases
    changed = Cases(replace(case, arguments=arguments) for case in cases)
    changed.skipped = cases.skipped
    return changed


def _of_values(source: Iterable[Any], functions: Functions, strict: bool | None) -> Cases:
    if hasattr(source, "to_dict") and hasattr(source, "columns"):
        return _read(table_rows(source), Context(functions), "the table", strict)
    items = list(source)
    if items and all_are(items, Mapping):
        return _read(table_rows(items), Context(functions), "the table", strict)
    if items and all_are(items, Turn):
        return distinct(cases_of_turns(items))
    return distinct(items)


def _of_file(
    path: Path, functions: Functions, answers: str | Path | None, strict: bool | None
) -> Cases:
    suffix = path.suffix.casefold()
    head = _head(path) if suffix in (".json", ".html", ".htm") else ""
    if CASSETTE.name in head or suffix in (".html", ".htm"):
        return distinct(cases_of_cassette(Cassette.load(path)))
    if CONVERSATION.name in head or (path.is_file() and reader_of(path) is not None):
        return distinct(cases_of_turns(Conversation.load(path), cluster=path.stem))
    context = Context(functions)
    if answers is not None:
        answer_rows = rows_of(answers).strict()
        possible = {str(row.fields.get("id")): row.fields for row in answer_rows}
        context = replace(context, answers=possible)
    rows = rows_of(path)
    evaluators = rows.shared.get("evaluators")
    if isinstance(evaluators, list):
        context = replace(context, evaluators=evaluators)
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
    cases = []
    skipped = []
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
    taken = set()
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
            raise cannot_be("A case", case, "Build a ToolUseCase, or give the path of a file.")
        if by_id.setdefault(case.id, case) != case:
            raise UsageError(
                f"Two cases have the id {shown(case.id)}.", hint="Give each its own, or none."
            )
    if not by_id:
        raise UsageError("There are no cases.")
    return Cases(by_id.values())


# A row in this package's form

_FIELDS = field_names(ToolUseCase)
_CALL_FIELDS = field_names(ExpectedCall)


def read_case(row: Fields, where: str, functions: Functions | None = None) -> ToolUseCase:
    """Build a case from a row.

    Args:
        row: Its fields, as in a file.
        where: Where the row is, for errors.
        functions: The functions that `$function` may name.

    Raises:
        UsageError: A field is unknown or wrong. It is named with its place.
    """
    values = {}
    for name, value in row.items():
        # A label is a person's grade of the answer, to compare a judge's with.
        if name not in (*_FIELDS, "label"):
            raise UsageError(
                f"{where}: unknown field {shown(str(name))}.",
                hint=did_you_mean(closest(str(name), _FIELDS), _FIELDS),
            )
        try:
            values[name] = _field(name, value, functions)
        except UsageError as error:
            raise UsageError(f"{where}, field {name}: {error}") from None
    if "label" in values:
        label = values.pop("label")
        values["metadata"] = {**values.get("metadata", {}), "label": label}
    if "message" not in values:
        raise UsageError(f"{where}: the field message is missing.")
    try:
        return ToolUseCase(**values)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def _field(name: str, value: Any, functions: Functions | None) -> Any:
    """Convert a field from a file."""
    match name:
        case "calls" if isinstance(value, list):
            return [_read_call(each, functions) for each in value]
        case "alternatives" if isinstance(value, list):
            return [_field("calls", calls, functions) for calls in value]
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
    known = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
    meant = known.get(str(value).casefold())
    if meant is None:
        raise UsageError(f"This is {brief(value)}, not true or false.")
    return meant


def _whole(value: Any) -> Any:
    """Read a whole number, which in a table may be a text or have a decimal point."""
    if isinstance(value, str | float):
        try:
            number = float(value)
        except ValueError:
            return value
        return int(number) if number.is_integer() else value
    return value


def _read_call(value: Any, functions: Functions | None) -> ExpectedCall:
    if isinstance(value, str):
        return ExpectedCall(value)
    if not isinstance(value, Mapping) or "tool" not in value:
        raise cannot_be("A call", value, 'Write {"tool": "server:tool", "arguments": {…}}.')
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
    raise cannot_be("A check of the answer", value, 'Give a text, or {"$regex": …}.')


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
    write_text(path, mask(text), overwrite=overwrite)
    return path
