"""The checks before a turn: are servers connected, and is everything there that the selection names?"""

from __future__ import annotations

from collections.abc import Mapping

from casual_mcp_nb.base.config import ToolSetConfig
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tool import Catalog
from casual_mcp_nb.conversation.event import Notice
from casual_mcp_nb.discovery.toolsets import check_tool_set, missing_servers, resolve_tool_set
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.errors import ConnectError, UnknownNameError
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK
from casual_mcp_nb.servers.server_manager import ServerManager


class PreflightChecks:
    """The checks before a turn, which hold for every conversation.

    Cached until a server or the view changes.
    """

    def __init__(self) -> None:
        self._view: ToolView | None = None
        self._version = 0
        self._missing: tuple[Notice, ...] = ()

    def missing(
        self, view: ToolView, server_manager: ServerManager, tool_sets: Mapping[str, ToolSetConfig]
    ) -> tuple[Notice, ...]:
        """Build a notice for each server in use whose tools are missing."""
        if view is not self._view or server_manager.version != self._version:
            version, statuses = server_manager.version, server_manager.statuses
            _check_selection(view.selection, statuses, view.catalog, tool_sets)
            tool_set = resolve_tool_set(view.selection.tool_set, tool_sets)
            self._missing = missing_servers(tool_set, _in_use(view.selection, statuses))
            self._view, self._version = view, version
        return self._missing


def _check_selection(
    selection: Selection,
    statuses: Mapping[str, ServerStatus],
    catalog: Catalog,
    tool_sets: Mapping[str, ToolSetConfig],
) -> None:
    for name in selection.servers:
        if name not in statuses:
            raise UnknownNameError("server", name, statuses)
    in_use = _in_use(selection, statuses).values()
    if in_use and all(status.state == "failed" for status in in_use):
        reasons = "\n".join(map(_reason, in_use))
        raise ConnectError(
            f"No server could be connected:\n{reasons}\n",
            hint="Fix one and reconnect it, or turn them off to chat without tools.",
        )
    tool_set = resolve_tool_set(selection.tool_set, tool_sets)
    if tool_set is not None:
        tool_set_name = selection.tool_set if isinstance(selection.tool_set, str) else None
        check_tool_set(
            tool_set,
            {NOTEBOOK: ServerStatus(NOTEBOOK, "ready"), **statuses},
            catalog,
            name=tool_set_name,
        )


def _in_use(selection: Selection, statuses: Mapping[str, ServerStatus]) -> dict[str, ServerStatus]:
    return {
        name: status for name, status in statuses.items() if selection.servers.get(name) != "off"
    }


def _reason(status: ServerStatus) -> str:
    tail = status.stderr_tail.splitlines()[-3:]
    return "\n".join([f"- {status.name}: {status.error}", *(f"    {line}" for line in tail)])
