"""The MCP client and the tool cache with casual-mcp's constructors."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.mcp import Prompts, Resources
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.config.settings import Settings
from casual_mcp_nb.engine.results import result_text
from casual_mcp_nb.errors import ToolCallError, UsageError, shown
from casual_mcp_nb.servers.server_manager import ServerManager

if TYPE_CHECKING:
    import mcp
    from fastmcp import Client, FastMCP


class CallsTools(Protocol):
    """A client of one's own: what is asked of it. If it can be entered, it is while connected."""

    async def list_tools(self) -> Sequence[Any]:
        """List the tools: the MCP SDK's, or objects with their fields."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], *, meta: dict[str, Any] | None
    ) -> Any:
        """Call a tool. Return a result with `content`, and perhaps `structured_content`."""


class ListsTools(Protocol):
    """A tool cache of one's own: what is asked of it."""

    async def get_tools(self) -> Sequence[Any]:
        """List the tools: the MCP SDK's, or objects with their fields."""


class McpClient:
    """Connections to all servers in a config, each separate: one that fails or hangs does not
    affect the others.

    As an async context manager it connects, and ends everything it started with the outermost
    `async with`. The next use starts it again.

    Args:
        server_manager: The connections.
        asked: The client of one's own that the servers ask, if there is one.
    """

    def __init__(self, server_manager: ServerManager, asked: AnyClient | None = None) -> None:
        self.server_manager = server_manager
        self.asked = asked
        self._entered = 0

    @classmethod
    def of(cls, client: AnyClient, server_names: Iterable[str] = ()) -> McpClient:
        """Find a client's connections.

        They are those of one of ours. A FastMCP client's server or config is connected again.
        Anything else with `list_tools` and `call_tool` is asked itself.
        """
        if isinstance(client, McpClient):
            return client
        if isinstance(client, ServerManager):
            return cls(client)
        names = tuple(server_names)
        return cls._reconnected(client, names) or cls.asking(client, None, names)

    @classmethod
    def _reconnected(cls, client: Any, server_names: tuple[str, ...]) -> McpClient | None:
        """Connect a FastMCP client's server or config again, or return None if that cannot be."""
        fastmcp = sys.modules.get("fastmcp")
        if fastmcp is None or not isinstance(client, fastmcp.Client):
            return None
        from casual_mcp_nb.compat._own_clients import has_fastmcps_methods

        if not has_fastmcps_methods(client):
            return None
        transport = client.transport
        if (server := getattr(transport, "server", None)) is not None:
            return cls._in_process({(server_names or (server.name,))[0]: server})
        if (config := getattr(transport, "config", None)) is not None:
            return load_mcp_client(config.model_dump(include={"mcpServers"}, exclude_none=True))
        if (entry := _entry_of(transport)) is not None:
            return load_mcp_client({"servers": {(server_names or ("server",))[0]: entry}})
        return None

    @classmethod
    def asking(
        cls, client: AnyClient, tool_cache: ListsTools | None, server_names: Iterable[str]
    ) -> McpClient:
        """Ask a client of any kind for each call, and it or a cache of one's own for the tools.

        Raises UsageError if one of them lacks the method for that.
        """
        lister, method = (client, "list_tools") if tool_cache is None else (tool_cache, "get_tools")
        for thing, needed in ((lister, method), (client, "call_tool")):
            if not callable(getattr(thing, needed, None)):
                raise UsageError(
                    f"A {type(thing).__name__} has no method {needed}.",
                    hint=(
                        "Use load_mcp_client(config), a fastmcp.Client, or an object with"
                        " list_tools and call_tool."
                    ),
                )
        from casual_mcp_nb.compat._own_clients import servers_of

        servers = servers_of(client, getattr(lister, method), tuple(server_names))
        return cls._in_process(servers, client)

    @classmethod
    def _in_process(
        cls, servers: Mapping[str, FastMCP[Any]], asked: AnyClient | None = None
    ) -> McpClient:
        ttl = _settings(None).tool_cache_ttl
        return cls(ServerManager({}, in_process=servers, cache_ttl=ttl), asked)

    async def __aenter__(self) -> Self:
        self._entered += 1
        await self.server_manager.connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._entered -= 1
        if not self._entered:
            await self.server_manager.disconnect()

    async def list_tools(self) -> list[ToolSpec]:
        """List all server tools. Connects servers first if needed."""
        await self.server_manager.connect()
        return list(await self.server_manager.list_tools())

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        raise_on_error: bool = True,
    ) -> ToolResult:
        """Call a tool as the person does, without approval.

        Args:
            name: The tool, in any spelling that is unique.
            arguments: Its arguments.
            meta: Passed to the server with the call.
            raise_on_error: Whether a failure that the tool itself reports is raised. Otherwise the
                result has it.

        Raises:
            UnknownNameError: There is no such tool.
            ServerError: The call failed, or the tool reported a failure.
        """
        await self.server_manager.connect()
        if self.asked is not None:
            from casual_mcp_nb.compat._own_clients import answer_of

            tool_name, server, wire_name = name, "", name
            result = await answer_of(self.asked, name, dict(arguments or {}), meta)
        else:
            tool = (await self.server_manager.list_tools()).resolve(name)
            tool_name, server, wire_name = str(tool.tool_name), tool.server, tool.wire_name
            result = await self.server_manager.call(tool, arguments or {}, meta=meta)
        if result.is_error and raise_on_error:
            text = f"Tool {shown(tool_name)}: {result_text(result)}"
            raise ToolCallError(text, server=server, tool=wire_name)
        return result

    async def list_resources(self) -> Resources:
        """List all server resources. Connects servers first if needed."""
        await self.server_manager.connect()
        return await self.server_manager.list_resources()

    async def list_prompts(self) -> Prompts:
        """List all server prompts. Connects servers first if needed."""
        await self.server_manager.connect()
        return await self.server_manager.list_prompts()

    async def ping(self) -> bool:
        """Connect servers if needed. Return whether any is connected."""
        await self.server_manager.connect()
        return self.is_connected()

    def is_connected(self) -> bool:
        """Check whether any server is connected."""
        return any(
            status.state in ("ready", "unlisted")
            for status in self.server_manager.statuses.values()
        )

    async def close(self) -> None:
        """End all connections and server processes, for good."""
        await self.server_manager.close()


def _settings(folder: Path | None) -> Settings:
    return Settings.from_environ(read_environment(folder))


def _entry_of(transport: Any) -> dict[str, Any] | None:
    """Convert a FastMCP transport to its server's config, or None if a config cannot express it."""
    if getattr(transport, "command", None):
        entry = {
            "command": transport.command,
            "args": list(transport.args),
            "env": transport.env,
            "cwd": transport.cwd and str(transport.cwd),
        }
    elif getattr(transport, "url", None):
        token = getattr(transport.auth, "token", None)
        if transport.auth is not None and token is None:
            return None
        entry = {
            "url": str(transport.url),
            "transport": "sse" if type(transport).__name__ == "SSETransport" else "http",
            "headers": transport.headers,
            "auth": token and token.get_secret_value(),
        }
    else:
        return None
    return {key: value for key, value in entry.items() if value}


def load_mcp_client(config: Config | str | Path | Mapping[str, Any]) -> McpClient:
    """Create connections to a config's servers. Nothing is started before the first use.

    Args:
        config: A path, a dict, or a loaded config.

    Raises:
        ConfigError: The config is not valid.
    """
    loaded = load_config(config)
    ttl = _settings(loaded.folder).tool_cache_ttl
    return McpClient(
        ServerManager(loaded.servers, cache_ttl=ttl, secrets=loaded.high_confidence_secrets())
    )


AnyClient: TypeAlias = "McpClient | ServerManager | Client[Any] | CallsTools"


class ToolCache:
    """All server tools, listed again when the list has expired.

    Each server's list is cached on its own.

    Args:
        client: The result of `load_mcp_client`, a FastMCP client, or an object with `list_tools`
            and `call_tool`.
        ttl_seconds: How long a list is fresh. 0 or less forever, None for `MCP_TOOL_CACHE_TTL` or
            30 seconds.

    Attributes:
        client: The connections.
    """

    def __init__(self, client: AnyClient, ttl_seconds: float | None = None) -> None:
        self.client = McpClient.of(client)
        self._primed: tuple[list[Any], float] | None = None
        self._primes = 0
        self._ttl = _settings(None).tool_cache_ttl
        self._has_own_ttl = ttl_seconds is not None
        if ttl_seconds is not None:
            self._ttl = ttl_seconds if ttl_seconds > 0 else None
            self.client.server_manager.set_cache_ttl(self._ttl)

    def naming(self, server_names: Iterable[str]) -> McpClient:
        """Tell the servers of a client of one's own apart by these names, if there are any. Return
        the connections.
        """
        names = tuple(server_names)
        if self.client.asked is not None and names:
            self.client = McpClient.of(self.client.asked, names)
            if self._has_own_ttl:
                self.client.server_manager.set_cache_ttl(self._ttl)
        return self.client

    async def get_tools(self, force_refresh: bool = False) -> list[ToolSpec]:
        """List the tools. Connects servers first if needed.

        Args:
            force_refresh: List them even if the lists are fresh.
        """
        if force_refresh:
            await self.invalidate()
        if self._primed is not None and time.monotonic() < self._primed[1]:
            return self._primed[0]
        return await self.client.list_tools()

    async def prime(self, tools: Iterable[ToolSpec | mcp.Tool]) -> None:
        """Have `get_tools` return these tools, without asking a server, until they expire or are
        invalidated.

        Args:
            tools: The tools. A chat lists its servers' tools itself when it connects.
        """
        until = float("inf") if self._ttl is None else time.monotonic() + self._ttl
        self._primed = list(tools), until
        self._primes += 1

    async def invalidate(self) -> None:
        """Make the next use list the tools again."""
        self._primed = None
        await self.client.server_manager.invalidate()

    @property
    def version(self) -> int:
        """A count that grows when a server's state or tools change."""
        return self.client.server_manager.version + self._primes
