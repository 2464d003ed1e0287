"""Many tools in few bytes: rows that stay, and a letter for each tool that changes."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from casual_mcp_nb.display.text import first
from casual_mcp_nb.engine.view import ToolView
from casual_mcp_nb.types.selection import Mode
from casual_mcp_nb.types.tool import Catalog, ToolName, ToolSpec

MAX_NAME = 120
MAX_SUMMARY = 110

Rows = dict[str, list[list[Any]]]

LOADED, DEFERRED, BY_HAND, BY_TOOL_SET, CHANGED, SERVER_OFF, BY_CONFIG = "ldotcsx"
"""What becomes of a tool: sent at once, found by search; out by hand, by the toolset, since it changed, with its server, by the
config."""
RESTRICTED = {"app only": "a", "task only": "k"}
"""The same for tools that no model is offered."""


def rows_of(catalog: Catalog) -> Rows:
    """The tools of each server as `[name, name on the wire, price in tokens, badges, summary]`, without ends that are empty."""
    return {server: [_row(tool) for tool in tools] for server, tools in catalog.by_server.items()}


def _row(tool: ToolSpec) -> list[Any]:
    badges = " ".join(tool.annotations.badges) if tool.annotations else ""
    row = [first(tool.name, MAX_NAME), tool.wire_name, tool.tokens, badges, first(tool.description, MAX_SUMMARY)]
    while row[-1] == "":
        row.pop()
    return row


def tool_statuses(view: ToolView, modes: Mapping[str, Mode], off: Set[ToolName]) -> dict[str, str]:
    """A letter for each tool of each server, in the order of the rows.

    Args:
        view: What the selection makes of the catalog.
        modes: The mode of each server.
        off: The tools that are taken out one by one.
    """
    loaded, deferred = view.loaded_by_name, view.deferred_by_name

    def fate(tool: ToolSpec) -> str:
        if tool.wire_name in loaded:
            return LOADED
        if tool.wire_name in deferred:
            return DEFERRED
        name = tool.tool_name
        if tool.restriction is not None:
            return RESTRICTED[tool.restriction]
        if name in view.excluded:
            return BY_CONFIG
        if name in off:
            return BY_HAND
        if name in view.blocked:
            return CHANGED
        return SERVER_OFF if modes.get(tool.server) == "off" else BY_TOOL_SET

    return {server: "".join(map(fate, tools)) for server, tools in view.catalog.by_server.items()}
