"""Rows of files and tables, each with its place: JSON lines, JSON, YAML, CSV, DataFrames."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from casual_mcp_nb.base.yaml_text import YamlError, read_yaml
from casual_mcp_nb.errors import UsageError, shown

Fields = Mapping[str, Any]
"""A row's values by name."""

MAX_CELL = 100_000_000
"""How many characters a CSV cell may have."""


@dataclass(frozen=True)
class Row:
    """A row with its place.

    Args:
        where: Its place, for errors.
        fields: Its fields.
        problem: Why it cannot be read, or empty if it can.
    """

    where: str
    fields: Fields = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Rows:
    """The rows in a file or table.

    Args:
        all: The rows in order, with those that cannot be read.
        shared: What a document says beside its list of cases.
    """

    all: tuple[Row, ...]
    shared: Fields = field(default_factory=dict)

    def strict(self) -> tuple[Row, ...]:
        """Return the rows. A UsageError if one cannot be read."""
        for row in self.all:
            if row.problem:
                raise UsageError(row.problem)
        return self.all


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
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            rows.append(_line(line, f"{path.name}, line {number}"))
    return Rows(tuple(rows))


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
    shared: Fields = {}
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
    rows = []
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
    records = table
    if hasattr(table, "to_dict"):
        records = table.to_dict("records")
    rows = [Row(f"row {number}", _cells(record)) for number, record in enumerate(records, 1)]
    return Rows(tuple(rows))


def _cells(fields: Fields) -> dict[str, Any]:
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
