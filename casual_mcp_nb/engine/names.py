"""The names that a selection can hold: those of the servers, toolsets and tools of a chat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from casual_mcp_nb.connections import ServerManager
from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.toolbox.mocks import ALL_TOOLS
from casual_mcp_nb.toolbox.toolbox import NOTEBOOK
from casual_mcp_nb.toolsets import check_tool_set, resolve_tool_set
from casual_mcp_nb.types.config import ToolSetConfig
from casual_mcp_nb.types.session import ServerStatus
from casual_mcp_nb.types.tool import Catalog


class ChatNames:
    """Checks names when they are assigned; a `SelectionNames`. A server that has not listed its tools may have any tool.

    Args:
        server_manager: Knows the servers.
        tool_sets: The toolsets by name.
        catalog: Returns the tools that are known now.
    """

    def __init__(
        self, server_manager: ServerManager, tool_sets: Mapping[str, ToolSetConfig], catalog: Callable[[], Catalog]
    ) -> None:
        self._server_manager = server_manager
        self._tool_sets = tool_sets
        self._catalog = catalog

    def check_tool_set(self, tool_set: str | ToolSetConfig) -> None:
        """Check that a toolset exists, and that the servers and tools it names do.

        Raises:
            UnknownNameError: No toolset has that name.
            ToolSetError: It names unknown servers or tools.
        """
        catalog = self._catalog()
        # The first function may be added later.
        servers = {NOTEBOOK: ServerStatus(NOTEBOOK, "starting")} | {
            name: status if name in catalog.by_server else replace(status, state="starting")
            for name, status in self._server_manager.statuses.items()
        }
        name = tool_set if isinstance(tool_set, str) else None
        check_tool_set(resolve_tool_set(tool_set, self._tool_sets), servers, catalog, name=name)

    def check_server(self, name: str) -> None:
        """Check that a server exists.

        Raises:
            UnknownNameError: It does not.
        """
        if name not in self._server_manager.names:
            raise UnknownNameError("server", str(name), self._server_manager.names)

    def check_stubs(self, names: Iterable[str]) -> None:
        """Check the names for which stubs answer: tools, `server:*` and `*`.

        Raises:
            UnknownNameError: There is no such server or tool.
        """
        for name in names:
            server, separator, tool = name.partition(":")
            if separator and tool == ALL_TOOLS:
                self.check_server(server)
            elif name != ALL_TOOLS:
                self.check_tool(name)

    def check_tool(self, name: str) -> None:
        """Check that a tool exists, unless it can belong to a server that has not listed its tools.

        Raises:
            UnknownNameError: It does not.
            UsageError: Tools of several servers have that name.
        """
        catalog = self._catalog()
        owner, separator, _ = name.partition(":")
        if separator:
            self.check_server(owner)
        else:
            owner = name.partition("__")[0]
        all_listed = self._server_manager.names <= catalog.by_server.keys()
        if all_listed or owner in catalog.by_server or catalog.named(name):
            catalog.resolve(name)
