"""Structured results of tools, as tables where they are tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.schema import pretty
from casual_mcp_nb.display.view import Block, Column, KeyValues, Section, Table

_COLUMNS = 8
_ROWS = 50
_LIST_IN_AN_OBJECT = 2


def structured_blocks(value: Any) -> tuple[Block, ...]:
    """Show a folded section: a table for a list of flat objects, or the fields of a flat object.

    Other values get none: they are in the text of the result already.
    """
    value = unwrapped(value)
    if isinstance(value, Mapping) and len(value) > 1 and _is_flat(value):
        rows = tuple((str(name), _cell(item)) for name, item in list(value.items())[:_ROWS])
        return (Section("As fields", (KeyValues(rows),), note=words.count(len(value), "field"), fold="closed"),)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and value and all(map(_is_flat, value[:_ROWS])):
        return (Section("As a table", (_table(value),), note=words.count(len(value), "row"), fold="closed"),)
    return ()


def unwrapped(value: Any) -> Any:
    """Unwrap a list that a server had to put into an object because MCP's structured content always is one."""
    if isinstance(value, Mapping) and len(value) <= _LIST_IN_AN_OBJECT:
        lists = [item for item in value.values() if isinstance(item, list)]
        if len(lists) == 1:
            return lists[0]
    return value


def _is_flat(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value) and not any(isinstance(item, Mapping | list) for item in value.values())


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    names = list(dict.fromkeys(str(name) for row in rows[:_ROWS] for name in row))
    visible = names[:_COLUMNS]
    titles = tuple(map(Column, visible))
    cells = tuple(tuple(_cell(row.get(name, "")) for name in visible) for row in rows[:_ROWS])
    return Table(titles, cells, len(rows) - len(cells))


def _cell(value: object) -> str:
    return value if isinstance(value, str) else pretty(value, indent=None)
