"""`casual-mcp-nb servers` and `audit`: the servers' status, their tools and costs, and the reasons for failures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from casual_mcp_nb.cli.exit_codes import FAILED
from casual_mcp_nb.cli.source import Source, connect
from casual_mcp_nb.cli.terminal import AsJson, show, write_json
from casual_mcp_nb.errors import UnknownNameError

if TYPE_CHECKING:
    from casual_mcp_nb.display.view import View
    from casual_mcp_nb.types.session import Servers, ServerStatus

_SOURCE = Source()
_FIELDS = (
    *("name", "state", "tools", "tokens", "seconds", "transport", "address", "version", "protocol_version", "capabilities"),
    *("error", "stderr_tail", "notes"),
)


def servers(server: str | None = None, /, *, source: Source = _SOURCE, json: AsJson = False) -> int:
    """Start the servers, and list them with their tools, tokens and errors. Fails if one of them failed.

    Args:
        server: Show everything about this one.
        json: Write JSON.
    """
    with source.open() as session:
        if server is not None and server not in session.servers:
            raise UnknownNameError("server", server, session.servers)
        connect(session)
        statuses = session.servers
        chosen = statuses if server is None else {server: statuses[server]}
        if json:
            write_json([_plain(status, statuses.modes[name]) for name, status in chosen.items()])
        elif server is not None:
            show(statuses[server])
        else:
            show(_view(statuses))
        return FAILED if any(status.state == "failed" or status.error for status in chosen.values()) else 0


def audit(path: Path, /, *, trust: Annotated[bool, Parameter(negative=())] = False, json: AsJson = False) -> int:
    """Start the servers of a config, also of another MCP host, and list what their tools cost in tokens, sorted by price.

    Also tells what would be sent instead if every tool were deferred. Nothing is changed. Fails if a server failed.

    Args:
        path: The config, such as ~/.claude.json, .vscode/mcp.json, ~/.codex/config.toml or jupyter-ai's mcp_settings.json.
        trust: Start what the config names although you have not accepted it yet.
        json: Write JSON.
    """
    from casual_mcp_nb.config.loader import load_readable

    config, unreadable = load_readable(path)
    with Source(path, trust=trust).open(config) as session:
        connect(session)
        measured = session.tool_service.host_audit(unreadable)
    if json:
        write_json(measured.as_dict())
    else:
        show(measured, whole=True)
    return FAILED if measured.failed else 0


def _plain(status: ServerStatus, mode: str) -> dict[str, Any]:
    return {**{name: getattr(status, name) for name in _FIELDS}, "mode": mode}


def _view(servers: Servers) -> View:
    from casual_mcp_nb.display.servers import failures, servers_view
    from casual_mcp_nb.display.view import SIZE_TIERS, Column, Table, View

    limits = SIZE_TIERS[0]
    view = servers_view(servers, limits)
    table = view.blocks[0]
    if not isinstance(table, Table):
        return view
    rows = tuple((*row, status.version or "") for row, status in zip(table.rows, servers.values(), strict=False))
    table = Table((*table.columns, Column("Version")), rows, table.hidden)
    return View(view.name, view.title, (table, *failures(servers, limits)), view.mark, view.note)
