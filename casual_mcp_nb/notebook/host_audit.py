"""Measure the cost of a config's tools, and the first request if all of them were deferred."""

from __future__ import annotations

from collections.abc import Mapping

from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.turn_estimate import turn_budget
from casual_mcp_nb.types.config import Config
from casual_mcp_nb.types.host_audit import HostAudit, ServerTokens, ToolTokens
from casual_mcp_nb.types.session import ServerStatus
from casual_mcp_nb.types.tokens import estimate_tokens


def measure(chat: McpToolChat, config: Config, unreadable: Mapping[str, str]) -> HostAudit:
    """Measure the cost of the servers of a config that are connected now.

    Args:
        chat: Has the connections. What its selection leaves out by a toolset counts; servers that are off do not.
        config: Its config.
        unreadable: Servers whose entries cannot be used, each with the reason.
    """
    loaded = chat.selection.snapshot()
    loaded.tool_set, loaded.discovery = None, False
    deferred = loaded.snapshot()
    deferred.discovery, deferred.defer_all = True, True
    view, deferring = chat.current_view(loaded), chat.current_view(deferred)
    tools: dict[str, list[ToolTokens]] = {}
    for tool in view.loaded:
        tools.setdefault(tool.server, []).append(ToolTokens(tool.tool_name, tool.tokens))
    servers = [
        _server(status, tools.get(name, []))
        for name, status in chat.server_manager.statuses.items()
        if loaded.servers.get(name) != "off"
    ]
    servers += [ServerTokens(name, "failed", error=f"its entry cannot be used: {why}") for name, why in unreadable.items()]
    servers.sort(key=lambda server: -server.tokens)
    return HostAudit(
        source=config.path.name if config.path else "a config made in Python",
        servers=tuple(servers),
        deferred_tokens=deferring.first_call_tokens,
        budget=turn_budget(deferring) if view.loaded else None,
        notes=config.notes,
    )


def _server(status: ServerStatus, tools: list[ToolTokens]) -> ServerTokens:
    error = status.error
    if error is None and status.state != "ready":
        error = status.state
    return ServerTokens(
        server=status.name,
        state=status.state,
        tools=tuple(sorted(tools, key=lambda each: -each.tokens)),
        error=error,
        instructions=estimate_tokens(status.instructions),
        left_out=status.left_out,
    )
