"""What casual-mcp calls the MCP client, and its tool cache: two faces of a server manager."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from casual_mcp_nb.config import Settings, load_config, read_environment
from casual_mcp_nb.connections import ServerManager
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.types.config import Config
from casual_mcp_nb.types.content import ToolResult
from casual_mcp_nb.types.tool import ToolSpec

if TYPE_CHECKING:
    from fastmcp import Client


class McpClient:
    """The connections to all servers of a config, each separate: one that fails or hangs costs the others nothing.

    Args:
        server_manager: The connections.
    """

    def __init__(self, server_manager: ServerManager) -> None:
        self.server_manager = server_manager

    @classmethod
    def of(cls, client: McpClient | ServerManager | Client[Any], server_names: Iterable[str] = ()) -> McpClient:
        """Return the connections of a client.

        Args:
            client: What `load_mcp_client` returned, or a FastMCP client: its server, or its config, is connected again.
            server_names: The name of the server of a FastMCP client for one server of this process.

        Raises:
            UsageError: It is neither, or its transport names no config.
        """
        if isinstance(client, McpClient):
            return client
        if isinstance(client, ServerManager):
            return cls(client)
        transport = getattr(client, "transport", None)
        if (server := getattr(transport, "server", None)) is not None:
            name = next(iter(server_names), None) or server.name
            return cls(ServerManager({}, in_process={name: server}))
        if (config := getattr(transport, "config", None)) is not None:
            return load_mcp_client(load_config(config.model_dump(include={"mcpServers"}, exclude_none=True)))
        raise UsageError(
            f"A {type(client).__name__} is not a client of config or of a server.",
            hint="Use load_mcp_client(config), or fastmcp.Client with a FastMCP server or a config.",
        )

    async def __aenter__(self) -> Self:
        await self.server_manager.connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def list_tools(self) -> list[ToolSpec]:
        """Return the tools of all servers; connect those that are not connected yet."""
        await self.server_manager.connect()
        return list(await self.server_manager.catalog())

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> ToolResult:
        """Call a tool, as the person does: no model asks, so nobody is asked.

        Args:
            name: The tool, in any spelling that is unique.
            arguments: Its arguments.
            meta: Passed to the server with the call.

        Raises:
            UnknownNameError: There is no such tool.
            ServerError: The call failed.
        """
        await self.server_manager.connect()
        tool = (await self.server_manager.catalog()).resolve(name)
        return await self.server_manager.call(tool, arguments or {}, meta=meta)

    async def close(self) -> None:
        """End all connections and server processes, for good."""
        await self.server_manager.close()


def load_mcp_client(config: Config | str | Path | Mapping[str, Any]) -> McpClient:
    """Return the connections to the servers of a config. Nothing is started before the first use.

    Args:
        config: A path, a dict, or a loaded config.

    Raises:
        ConfigError: The config is not valid.
    """
    loaded = load_config(config)
    settings = Settings.from_environ(read_environment(loaded.folder))
    manager = ServerManager(loaded.servers, cache_ttl=settings.tool_cache_ttl, secrets=loaded.high_confidence_secrets())
    return McpClient(manager)


class ToolCache:
    """The tools of all servers, listed again when the list has expired. Each server's list is cached on its own.

    Args:
        client: What `load_mcp_client` returned, or a FastMCP client.
        ttl_seconds: How long a list is fresh; 0 or less forever, None for `MCP_TOOL_CACHE_TTL` or 30 seconds.

    Attributes:
        client: The connections.
    """

    def __init__(self, client: McpClient | ServerManager | Client[Any], ttl_seconds: float | None = None) -> None:
        self.client = McpClient.of(client)
        if ttl_seconds is not None:
            self.client.server_manager.set_cache_ttl(ttl_seconds if ttl_seconds > 0 else None)

    async def get_tools(self, force_refresh: bool = False) -> list[ToolSpec]:
        """Return the tools; connect servers that are not connected yet.

        Args:
            force_refresh: List them even if the lists are fresh.
        """
        if force_refresh:
            await self.invalidate()
        return await self.client.list_tools()

    async def invalidate(self) -> None:
        """Make the next use list the tools again."""
        await self.client.server_manager.invalidate()

    @property
    def version(self) -> int:
        """A count that grows when a server's state or tools change."""
        return self.client.server_manager.version
