"""Read catalogs and cases from JSON Lines files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.types.evaluation import Case
from casual_mcp_nb.types.tool import Catalog, ToolName, ToolSpec


def load_catalog(path: str | Path) -> Catalog:
    """Read tools from a file.

    Args:
        path: A file with one object per line: `server`, `name`, and optionally `description` and `input_schema`.

    Raises:
        UsageError: The file cannot be read, or a line is not a tool; the line is named.
    """
    return Catalog([_tool(row, where) for where, row in _rows(path)])


def load_cases(path: str | Path) -> tuple[Case, ...]:
    """Read cases from a file.

    Args:
        path: A file with one object per line: `query`, and `gold`, a list of needs, each a list of the `[server, tool]` that
            meet it.

    Raises:
        UsageError: The file cannot be read, or a line is not a case; the line is named.
    """
    return tuple(_case(row, where) for where, row in _rows(path))


def save_cases(cases: Iterable[Case], path: str | Path) -> Path:
    """Write cases to a new file, as `load_cases` reads it.

    Args:
        cases: The cases.
        path: Where to.

    Returns:
        The file.

    Raises:
        UsageError: The file exists, or cannot be written.
    """
    path = Path(path)
    rows = ({"query": case.query, "gold": [_pairs(need) for need in case.needs]} for case in cases)
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    try:
        with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{shown(path)} exists already.", hint="Name another file, or delete this one.") from None
    except OSError as error:
        raise UsageError(f"{shown(path)} cannot be written: {error.strerror}.") from error
    return path


def _pairs(need: Iterable[ToolName]) -> list[list[str]]:
    return sorted([name.server, name.tool] for name in need)


def _rows(path: str | Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{shown(Path(path))} cannot be read: {error}.") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield f"{Path(path).name}, line {number}", _object(line, f"{Path(path).name}, line {number}")


def _object(line: str, where: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{where} is not JSON: {error}.") from None
    if not isinstance(row, Mapping):
        raise UsageError(f"{where} is not an object.")
    return row


def _tool(row: Mapping[str, Any], where: str) -> ToolSpec:
    server, name = row.get("server"), row.get("name")
    if not (isinstance(server, str) and isinstance(name, str)):
        raise UsageError(f"{where} is not a tool: it needs a server and a name, both strings.")
    schema = row.get("input_schema")
    return ToolSpec(server, name, str(row.get("description") or ""), schema if isinstance(schema, Mapping) else {})


def _case(row: Mapping[str, Any], where: str) -> Case:
    try:
        needs = tuple(frozenset(ToolName(server, tool) for server, tool in need) for need in row["gold"])
        return Case(str(row["query"]), needs)
    except (KeyError, TypeError, ValueError):
        raise UsageError(f'{where} is not a case, such as {{"query": text, "gold": [[[server, tool], ...], ...]}}.') from None
