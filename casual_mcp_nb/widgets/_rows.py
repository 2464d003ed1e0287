"""Servers, tools and prices as the JSON that the explorer shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.calls import outcome_of
from casual_mcp_nb.display.records import caller_of, decided, tool_of
from casual_mcp_nb.display.schema import pretty
from casual_mcp_nb.display.text import clean, cut, first
from casual_mcp_nb.engine.view import ToolView
from casual_mcp_nb.errors import ConnectError, shown
from casual_mcp_nb.types.audit import Audit
from casual_mcp_nb.types.direct_call import DirectCall
from casual_mcp_nb.types.selection import Mode, Selection
from casual_mcp_nb.types.session import ServerStatus
from casual_mcp_nb.types.tool import Catalog, ToolChange, ToolName, ToolSpec
from casual_mcp_nb.widgets._fields import fields_of

MAX_NAME = 120
MAX_SUMMARY = 110
MAX_TEXT = 20_000
MAX_ARGUMENTS = 2_000
MAX_AUDITED = 100
"""How many calls the panel lists."""
_MAX_REASON = 2_000
_MAX_TAIL = 4_000
_MAX_INSTRUCTIONS = 4_000
_MAX_ALERT = 300

Rows = dict[str, list[list[Any]]]

LOADED, DEFERRED, BY_HAND, BY_TOOL_SET, CHANGED, SERVER_OFF, BY_CONFIG = "ldotcsx"
"""The status of a tool: sent with every request, found by search; excluded by hand, by the toolset, because it changed, with
its server, by the config."""
RESTRICTED = {"app only": "a", "task only": "k"}
"""The same for tools that no model is offered."""


def rows_of(catalog: Catalog) -> Rows:
    """List the tools of each server as `[name, wire name, tokens, badges, summary]`, without empty values at the end."""
    return {server: [_row(tool) for tool in tools] for server, tools in catalog.by_server.items()}


def _row(tool: ToolSpec) -> list[Any]:
    badges = " ".join(tool.annotations.badges) if tool.annotations else ""
    row = [first(tool.name, MAX_NAME), tool.wire_name, tool.tokens, badges, first(tool.description, MAX_SUMMARY)]
    while row[-1] == "":
        row.pop()
    return row


def tool_statuses(view: ToolView, modes: Mapping[str, Mode], off: Set[ToolName]) -> dict[str, str]:
    """Build a letter for each tool of each server, in the order of the rows.

    Args:
        view: What the selection makes of the catalog.
        modes: The mode of each server.
        off: The tools that were excluded one by one.
    """
    loaded, deferred = view.loaded_by_name, view.deferred_by_name

    def status(tool: ToolSpec) -> str:
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

    return {server: "".join(map(status, tools)) for server, tools in view.catalog.by_server.items()}


def server_row(status: ServerStatus, selection: Selection, effective: Mode, inside: Sequence[ToolSpec]) -> dict[str, Any]:
    """Convert a server to JSON; `mode` is the chosen mode, `effective` the one that results.

    Args:
        status: The server's state.
        selection: What was chosen.
        effective: The effective mode.
        inside: Its tools that the selection includes; `inside` and `tokens` of the row count only these.
    """
    row: dict[str, Any] = {
        "state": status.state,
        "mode": selection.servers.get(status.name, "loaded"),
        "effective": effective,
        "tools": status.tools,
        "inside": len(inside),
        "tokens": sum(tool.tokens for tool in inside),
        "all_tokens": status.tokens,
        "transport": status.transport,
    }
    if status.error:
        row["error"] = cut(clean(status.error), _MAX_REASON)
        row["tail"] = cut(clean(status.stderr_tail), _MAX_TAIL)
    if status.instructions:
        row["instructions"] = cut(clean(status.instructions), _MAX_INSTRUCTIONS)
    return row if status.seconds is None else {**row, "seconds": words.seconds(status.seconds)}


def not_connected(status: ServerStatus) -> ConnectError:
    """Shorten the error of a server: its whole reason is shown with the server."""
    reason = (status.stderr_tail.strip() or status.error or "no reason was given").splitlines()[-1]
    text = f"Server {shown(status.name)} could not be connected: {first(clean(reason), _MAX_ALERT)}"
    return ConnectError(text, server=status.name)


def tool_detail(tool: ToolSpec, change: ToolChange | None) -> dict[str, Any]:
    """Convert a tool to JSON: names, description, claims, price, form fields of the parameters, schemas as text.

    Args:
        tool: The tool.
        change: How the server has changed it, if it has; `change` then has the difference and whether it blocks the tool.
    """
    detail: dict[str, Any] = {
        "name": _text(tool.name, 500),
        "wire_name": tool.wire_name,
        "server": _text(tool.server, 500),
        "title": _text(tool.title or "", 500),
        "description": _text(tool.description),
        "badges": list(tool.annotations.badges) if tool.annotations else [],
        "destructive": tool.destructive,
        "tokens": tool.tokens,
        "fields": fields_of(tool),
        "schema": _text(pretty(tool.input_schema)),
    }
    if tool.output_schema is not None:
        detail["result_schema"] = _text(pretty(tool.output_schema))
    if change is not None:
        detail["change"] = {"diff": _text(change.diff), "blocked": change.blocked}
    return detail


def call_row(direct_call: DirectCall) -> dict[str, Any]:
    """Convert a call that the person made, without its result; `arguments` is JSON as text."""
    call = direct_call.call
    return {
        "id": direct_call.id,
        "at": direct_call.at,
        "tool": call.name,
        "arguments": _text(pretty(call.arguments, indent=None), MAX_ARGUMENTS),
        "status": call.status,
        "seconds": words.seconds(call.seconds),
    }


def audit_rows(audit: Audit) -> list[dict[str, Any]]:
    """List the last calls of a session, the newest first."""
    first_number = audit.dropped + len(audit)
    return [
        {
            "number": first_number - index,
            "at": record.at,
            "tool": first(tool_of(record), MAX_NAME),
            "caller": caller_of(record),
            "decided_by": _text(decided(record.permission)),
            "status": record.status,
            "outcome": outcome_of(record.status).text,
            "seconds": words.seconds(record.seconds),
        }
        for index, record in enumerate(audit.records[: -MAX_AUDITED - 1 : -1])
    ]


def _text(text: str, limit: int = MAX_TEXT) -> str:
    return cut(clean(text), limit)


def budget_of(view: ToolView) -> dict[str, Any]:
    """Count the estimated tokens of the first request, by part.

    Returns:
        `total`; `servers`: the loaded tools of each; `finder`: the search tool, or those for browsing; `manifest`.
    """
    return {
        "total": view.first_call_tokens,
        "servers": _by_server(view.loaded),
        "finder": view.search_tool_tokens,
        "manifest": view.manifest_tokens,
    }


def undeferred_budget_of(view: ToolView) -> dict[str, Any]:
    """Count the estimated tokens that the first request would have if every tool were loaded."""
    return {"total": view.undeferred_tokens, "servers": _by_server((*view.loaded, *view.deferred)), "finder": 0, "manifest": 0}


def _by_server(tools: Iterable[ToolSpec]) -> dict[str, int]:
    prices: Counter[str] = Counter()
    for tool in tools:
        prices[tool.server] += tool.tokens
    return dict(prices)
