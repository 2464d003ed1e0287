"""Read catalogs and cases from JSON Lines files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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
