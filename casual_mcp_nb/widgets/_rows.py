"""Servers, tools, forms and prices as the JSON that the explorer shows."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from casual_mcp_nb.base.selection import Mode, Selection
from casual_mcp_nb.base.status import ExplorerSnapshot, Manifest, Servers, ServerStatus, ToolSets
from casual_mcp_nb.base.tokens import total_tokens
from casual_mcp_nb.base.tool import Catalog, ToolChange, ToolName, ToolSpec
from casual_mcp_nb.base.wire import Wire, WireRecord
from casual_mcp_nb.conversation.audit import Audit
from casual_mcp_nb.conversation.direct_calls import DirectCall
from casual_mcp_nb.conversation.view_calls import outcome_of
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import pretty
from casual_mcp_nb.display.words import clean, cut, first
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.errors import ConnectError, UsageError, shown
from casual_mcp_nb.notebook.status import (
    estimated_budget,
    manifest_of,
    servers_of,
    tool_sets_of,
    tools_of,
)
from casual_mcp_nb.servers.views import caller_of, decided, header_words, protocol_words, tool_of
from casual_mcp_nb.servers.wire_views import exchange_texts, outcome_of_group, rounds_of
from casual_mcp_nb.widgets.base import HasParts, State
from casual_mcp_nb.widgets.tool_form import fields_of

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
"""A tool's status: sent with every request, or found by search; or excluded by hand, by the toolset,
because it changed, with its server, or by the config.
"""
RESTRICTED = {"app only": "a", "task only": "k"}
"""The same for tools that no model is offered."""


def rows_of(catalog: Catalog) -> Rows:
    """List each server's tools as `[name, wire name, tokens, badges, summary]`, without empty
    values at the end.
    """
    return {server: list(map(_row, tools)) for server, tools in catalog.by_server.items()}


def _row(tool: ToolSpec) -> list[Any]:
    badges = " ".join(_badges(tool))
    row = [
        first(tool.name, MAX_NAME),
        tool.wire_name,
        tool.tokens,
        badges,
        first(tool.description, MAX_SUMMARY),
    ]
    while row[-1] == "":
        row.pop()
    return row


def _badges(tool: ToolSpec) -> list[str]:
    """List what the server claims of a tool in words, and whether it has an app."""
    badges: list[str] = []
    if tool.annotations:
        badges += tool.annotations.badges
    if tool.app:
        badges.append("app")
    return badges


def tool_statuses(view: ToolView, modes: Mapping[str, Mode], off: Set[ToolName]) -> dict[str, str]:
    """Build a letter for each tool, by server and in row order."""
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
        if modes.get(tool.server) == "off":
            return SERVER_OFF
        return BY_TOOL_SET

    statuses = {}
    for server, tools in view.catalog.by_server.items():
        statuses[server] = "".join(map(status, tools))
    return statuses


def server_row(
    status: ServerStatus, selection: Selection, effective: Mode, inside: Sequence[ToolSpec]
) -> dict[str, Any]:
    """Convert a server to JSON.

    Args:
        status: The server's state.
        selection: The selection, which has the server's chosen `mode`.
        effective: The mode that results.
        inside: Its tools that the selection includes. In the row, `inside` and `tokens` count only
            these.
    """
    row: dict[str, Any] = {
        "state": status.state,
        "mode": selection.servers.get(status.name, "loaded"),
        "effective": effective,
        "tools": status.tools,
        "inside": len(inside),
        "tokens": total_tokens(inside),
        "all_tokens": status.tokens,
        "transport": status.transport,
    }
    if status.error:
        row["error"] = cut(clean(status.error), _MAX_REASON)
        row["tail"] = cut(clean(status.stderr_tail), _MAX_TAIL)
    if status.protocol_version:
        row["protocol"] = cut(clean(protocol_words(status)), MAX_NAME)
    if status.extensions:
        row["extensions"] = cut(clean(", ".join(status.extensions)), _MAX_REASON)
    if status.deprecated:
        row["deprecated"] = cut(clean(", ".join(status.deprecated)), _MAX_REASON)
    if status.instructions:
        row["instructions"] = cut(clean(status.instructions), _MAX_INSTRUCTIONS)
    if status.seconds is not None:
        row["seconds"] = words.seconds(status.seconds)
    return row


def not_connected(status: ServerStatus) -> ConnectError:
    """Shorten a server's error: the whole reason is shown with the server."""
    reason = (status.stderr_tail.strip() or status.error or "no reason was given").splitlines()[-1]
    text = f"Server {shown(status.name)} could not be connected: {first(clean(reason), _MAX_ALERT)}"
    return ConnectError(text, server=status.name)


def tool_detail(tool: ToolSpec, change: ToolChange | None) -> dict[str, Any]:
    """Convert a tool to JSON: names, description, claims, price, form fields for parameters,
    schemas as text.

    Args:
        tool: The tool.
        change: How the server has changed it, if it has; `change` then has the difference and
            whether it blocks the tool.
    """
    detail: dict[str, Any] = {
        "name": _text(tool.name, 500),
        "wire_name": tool.wire_name,
        "server": _text(tool.server, 500),
        "title": _text(tool.title or "", 500),
        "description": _text(tool.description),
        "badges": _badges(tool),
        "destructive": tool.annotations is not None and bool(tool.annotations.destructive),
        "tokens": tool.tokens,
        "fields": fields_of(tool),
        "schema": _text(pretty(tool.input_schema)),
    }
    if headers := header_words(tool):
        detail["headers"] = _text(headers, _MAX_REASON)
    if tool.output_schema is not None:
        detail["result_schema"] = _text(pretty(tool.output_schema))
    if change is not None:
        detail["change"] = {"diff": _text(change.diff), "blocked": change.blocked}
    return detail


def call_row(direct_call: DirectCall) -> dict[str, Any]:
    """Convert a call that the person made, without its result. `arguments` is JSON as text."""
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
    """List a session's last calls, the newest first."""
    number = audit.dropped + len(audit)
    rows = []
    for record in reversed(audit.records[-MAX_AUDITED:]):
        row = {
            "number": number,
            "at": record.at,
            "tool": first(tool_of(record), MAX_NAME),
            "caller": caller_of(record),
            "decided_by": _text(decided(record.permission)),
            "status": record.status,
            "outcome": outcome_of(record.status).text,
            "seconds": words.seconds(record.seconds),
        }
        rows.append(row)
        number -= 1
    return rows


MAX_GROUPS = 50
"""How many message groups per server the explorer lists."""
MAX_RECORDS = 40
"""How many messages per group it lists."""
MAX_WIRE_TEXT = 400_000
"""Maximum total length of listed messages. Earlier ones come without their text."""


def wire_rows(wire: Wire) -> dict[str, Any]:
    """List a server's last message groups, the newest first.

    Returns:
        `groups`: for each its `number`, `method`, `tool`, `at`, `seconds` in words, how many
        `rounds` it had, how it `ended` (`ok`, `error` or `open`), its `messages`, and how many
        messages are `hidden`. `hidden`: how many groups came before. `dropped`: how many messages
        are gone.
    """
    groups, room = wire.groups, MAX_WIRE_TEXT
    rows = []
    for group in reversed(groups[-MAX_GROUPS:]):
        row, room = _wire_group(group, room)
        rows.append(row)
    return {"groups": rows, "hidden": len(groups) - len(rows), "dropped": wire.dropped}


def _wire_group(group: Sequence[WireRecord], room: int) -> tuple[dict[str, Any], int]:
    first_record, messages = group[0], []
    for record in group[:MAX_RECORDS]:
        message = _wire_message(record)
        if room > 0:
            texts = _wire_texts(record)
            room -= sum(map(len, texts.values()))
            message |= texts
        messages.append(message)
    seconds = ""
    if len(group) > 1:
        seconds = words.seconds(group[-1].at - first_record.at)
    row = {
        "number": first_record.group,
        "method": first(clean(first_record.method or first_record.kind), MAX_NAME),
        "tool": first(clean(first_record.tool), MAX_NAME),
        "at": first_record.at,
        "seconds": seconds,
        "rounds": rounds_of(group),
        "ended": outcome_of_group(group),
        "messages": messages,
        "hidden": len(group) - len(messages),
    }
    return row, room


def _wire_message(record: WireRecord) -> dict[str, Any]:
    message: dict[str, Any] = {
        "at": record.at,
        "direction": record.direction,
        "kind": record.kind,
        "method": first(clean(record.method), MAX_NAME),
        "id": "",
        "size": "",
        "seconds": "",
        "status": 0,
    }
    if record.id is not None:
        message["id"] = first(clean(str(record.id)), MAX_NAME)
    if record.size:
        about = "≈ " if record.cut else ""
        message["size"] = f"{about}{words.size(record.size)}"
    if record.seconds is not None:
        message["seconds"] = words.seconds(record.seconds)
    if record.http:
        message["status"] = record.http.status or 0
    return message


def _wire_texts(record: WireRecord) -> dict[str, str]:
    """Collect a message's `text`, and over HTTP its `request` and `response`."""
    texts = {"text": ""}
    if record.text:
        texts["text"] = _text(pretty(record.message))
    for name, text in exchange_texts(record).items():
        texts[name] = _text(text)
    return texts


def _text(text: str, limit: int = MAX_TEXT) -> str:
    return cut(clean(text), limit)


def budget_of(view: ToolView) -> dict[str, Any]:
    """Count the first request's estimated tokens, by part.

    Returns:
        `total`; `servers`: each one's loaded tools; `finder`: the search tool, or those for
        browsing; `manifest`.
    """
    return {
        "total": view.first_call_tokens,
        "servers": _by_server(view.loaded),
        "finder": view.search_tool_tokens,
        "manifest": view.manifest_tokens,
    }


def undeferred_budget_of(view: ToolView) -> dict[str, Any]:
    """Count the first request's estimated tokens if every tool were loaded."""
    return {
        "total": view.undeferred_tokens,
        "servers": _by_server(view.included),
        "finder": 0,
        "manifest": 0,
    }


def _by_server(tools: Iterable[ToolSpec]) -> dict[str, int]:
    prices: Counter[str] = Counter()
    for tool in tools:
        prices[tool.server] += tool.tokens
    return dict(prices)


class ToolsState(State):
    """Follows the selection and a session's servers.

    It connects servers in the background, and their tools appear one server after the other.
    """

    def __init__(self, session: HasParts) -> None:
        super().__init__(session)
        self._chat = session.parts.chat
        self._updating = False
        self._update_again = False
        self.follow(self._chat.selection.watch(self.changed))
        self.follow(session.parts.observers.changes.add(self._tools_changed))
        session.parts.engine.submit(self._connect())

    @property
    def catalog(self) -> Catalog:
        """The tools known so far."""
        return self._chat.catalog

    @property
    def view(self) -> ToolView:
        """The model's view on them.

        Without a toolset if the selection names one that does not exist.
        """
        return self._chat.current_view()

    @property
    def servers(self) -> Servers:
        """The servers' state for the front end."""
        return servers_of(self._chat)

    @property
    def tool_sets(self) -> ToolSets:
        """The toolsets for the front end."""
        return tool_sets_of(self._chat, self.view)

    @property
    def manifest(self) -> Manifest:
        """The manifest for the front end."""
        return manifest_of(self.view)

    @property
    def exploration(self) -> ExplorerSnapshot:
        """The complete state for the front end."""
        view = self.view
        return ExplorerSnapshot(
            servers=self.servers,
            selection=self._chat.selection.snapshot(),
            tool_sets=self.tool_sets,
            manifest=self.manifest,
            prices=budget_of(view)["servers"],
            offered=len(view.loaded),
            undeferred_tokens=view.undeferred_tokens,
            budget=estimated_budget(self._chat, view),
            tools=tools_of(view),
        )

    def _off(self, selection: Selection) -> frozenset[ToolName]:
        """Find the tools that were excluded one by one."""
        off = set()
        for name in selection.tools_off:
            tool = self.catalog.get(name)
            if tool is not None:
                off.add(tool.tool_name)
        return frozenset(off)

    def _tools_changed(self) -> None:
        """Update after a change to a server or its tools. On any thread."""
        self.changed()
        self.parts.engine.submit(self._update_tools())

    async def _update_tools(self) -> None:
        self._update_again = self._updating
        if self._updating:
            return
        self._updating = True
        before = self.catalog
        try:
            with contextlib.suppress(UsageError):
                await self._chat.tools.update()
        finally:
            self._updating = False
        if self.catalog is not before:
            self.changed()
        if self._update_again:
            await self._update_tools()

    async def _connect(self) -> None:
        # A closed session still shows the last state.
        with contextlib.suppress(UsageError):
            await self.parts.starter.view()
        self.changed()
