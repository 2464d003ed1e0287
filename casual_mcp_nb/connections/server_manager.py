"""All servers of a session, side by side: a fault of one costs the others nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.connections._deadlines import OnProgress
from casual_mcp_nb.connections.cache import DEFAULT_TTL
from casual_mcp_nb.connections.connection import MAX_TOOLS_ON_LOOP, Connection
from casual_mcp_nb.connections.handlers import Handlers
from casual_mcp_nb.errors import ClosedError, ConnectError, UnknownNameError, UsageError, shown
from casual_mcp_nb.isolation import Worker
from casual_mcp_nb.types.content import ToolResult
from casual_mcp_nb.types.server import ServerConfig
from casual_mcp_nb.types.session import ServerStatus
from casual_mcp_nb.types.tool import Catalog, ToolSpec

if TYPE_CHECKING:
    from fastmcp import FastMCP


class ServerManager:
    """The connections of a session.

    Args:
        servers: Server configs by name.
        in_process: Servers that live in this process, by name; they come after those of the config.
        cache_ttl: How long a list of tools is fresh, in seconds; None for ever.
        handlers: What servers may ask of us or tell us.
        secrets: What is masked in all that servers send; each server's own are in any case.

    Attributes:
        worker: The process for what servers and templates can make long; it ends with the server manager.
    """

    def __init__(
        self,
        servers: Mapping[str, ServerConfig],
        *,
        in_process: Mapping[str, FastMCP[Any]] | None = None,
        cache_ttl: float | None = DEFAULT_TTL,
        handlers: Handlers | None = None,
        secrets: Collection[str] = (),
    ) -> None:
        self.version = 0
        """Counts the changes of servers' states and tools."""
        self._cache_ttl = cache_ttl
        self._secrets = secrets
        self._told = handlers.changed if handlers else None
        self._handlers = replace(handlers or Handlers(), changed=self._changed)
        self.worker = Worker()
        self._connections: dict[str, Connection] = {}
        self._catalog = Catalog()
        self._catalog_key: tuple[tuple[str, str], ...] = ()
        self._closed = False
        self._asleep = {name for name, config in servers.items() if not config.enabled}
        for name, config in servers.items():
            self._connections[name] = self._connection(name, config)
        for name, server in (in_process or {}).items():
            self._check_new(name)
            self._connections[name] = self._connection(name, server=server)

    @property
    def statuses(self) -> Mapping[str, ServerStatus]:
        """How each server is, in the order of the config."""
        return {name: connection.status for name, connection in self._connections.items()}

    @property
    def fresh(self) -> bool:
        """Whether `catalog` has nothing to list.

        Raises:
            ClosedError: The server manager was closed.
        """
        self._check_open()
        return all(connection.fresh for connection in self._connections.values())

    @property
    def waiting(self) -> list[str]:
        """The servers that `connect` would start; none after the server manager was closed."""
        if self._closed:
            return []
        awake = ((name, each) for name, each in self._connections.items() if name not in self._asleep)
        return [name for name, each in awake if not each.settled]

    def config_of(self, name: str) -> ServerConfig | None:
        """The config of a server, or None where it has none or does not exist."""
        connection = self._connections.get(name)
        return connection.config if connection else None

    async def connect(self, names: Iterable[str] | None = None) -> None:
        """Connect servers side by side; returns when each is ready or failed. What failed is in `statuses`, not raised.

        Servers that are ready, and those whose start has failed before, are left alone: `reconnect` tries the latter again.
        Cancelling it ends the starts that are under way, and a second call makes them anew.

        Args:
            names: Which servers; None for all but those that the config switches off and nobody has woken.

        Raises:
            UnknownNameError: There is no server of that name.
            ClosedError: The server manager was closed.
        """
        self._check_open()
        awake = [name for name in self._connections if name not in self._asleep]
        connections = [self._known(name) for name in (awake if names is None else names)]
        # A turn asks each time, and mostly there is nothing to do.
        unsettled = [connection for connection in connections if not connection.settled]
        if unsettled:
            async with asyncio.TaskGroup() as group:
                for connection in unsettled:
                    group.create_task(_connect(connection))

    def wake(self, names: Iterable[str]) -> None:
        """Let servers that the config switches off be connected with the others from now on: a person has turned them on."""
        self._asleep.difference_update(names)

    async def catalog(self) -> Catalog:
        """Every tool of every server, in the order of the config; stale lists are made anew side by side.

        A server that died keeps its last known tools, since their use starts it again; one that could not be started has
        none. The same object comes back as long as no server's tools changed.

        Raises:
            ClosedError: The server manager was closed.
        """
        self._check_open()
        connections = list(self._connections.values())
        stale = [connection for connection in connections if not connection.fresh]
        if stale:
            async with asyncio.TaskGroup() as group:
                for connection in stale:
                    group.create_task(_refresh(connection))
        key = tuple((each.name, each.cache.version) for each in connections if each.tools)
        if key != self._catalog_key:
            tools = [tool for each in connections for tool in each.tools]
            # On a thread where there are many, so that the loop is not held.
            made = await asyncio.to_thread(Catalog, tools) if len(tools) > MAX_TOOLS_ON_LOOP else Catalog(tools)
            self._catalog, self._catalog_key = made, key
        return self._catalog

    async def call(
        self,
        tool: ToolSpec,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Call a tool of the catalog, once; see `Connection.call`.

        Raises:
            UnknownNameError: Its server is not in this server manager.
            UsageError: It runs only as a task.
            ToolTimeoutError, ToolCallError, ConnectError: As of `Connection.call`.
            ClosedError: The server manager was closed.
        """
        self._check_open()
        if tool.restriction == "task only":
            raise UsageError(
                f"Tool {shown(tool.name)} of {shown(tool.server)} runs only as a task, which this client does not start.",
                hint="Ask the server's makers for a tool that answers directly.",
                server=tool.server,
                tool=tool.wire_name,
            )
        return await self._known(tool.server).call(tool.name, arguments, on_progress=on_progress, meta=meta)

    async def reconnect(self, name: str) -> None:
        """Connect one server anew, whatever its state; the others do not notice.

        Raises:
            UnknownNameError: There is no server of that name.
            ConnectError: It could not be connected.
            ClosedError: The server manager was closed.
        """
        self._check_open()
        connection = self._known(name)
        self.wake([name])
        await connection.reconnect()

    async def add(self, name: str, server: FastMCP[Any]) -> None:
        """Take in a server that lives in this process, and connect it.

        Raises:
            UsageError: There is a server of that name.
            ConnectError: It could not be connected.
            ClosedError: The server manager was closed.
        """
        self._check_open()
        self._check_new(name)
        connection = self._connections[name] = self._connection(name, server=server)
        await connection.connect()

    async def close(self) -> None:
        """Close all connections side by side, in at most 5 seconds. Twice is harmless; use afterwards is an error."""
        self._closed = True
        async with asyncio.TaskGroup() as group:
            for connection in self._connections.values():
                group.create_task(connection.close())
        await asyncio.to_thread(self.worker.close)

    def abandon(self) -> None:
        """Close without ending anything, in a forked child: processes and connections are the parent's."""
        self._closed = True
        for connection in self._connections.values():
            connection.abandon()

    def _connection(self, name: str, config: ServerConfig | None = None, server: FastMCP[Any] | None = None) -> Connection:
        return Connection(
            name,
            config,
            server=server,
            handlers=self._handlers,
            cache_ttl=self._cache_ttl,
            secrets=self._secrets,
            worker=self.worker,
        )

    def _changed(self) -> None:
        self.version += 1
        if self._told is not None:
            self._told()

    def _known(self, name: str) -> Connection:
        if name not in self._connections:
            raise UnknownNameError("server", name, self._connections)
        return self._connections[name]

    def _check_new(self, name: str) -> None:
        if name in self._connections:
            raise UsageError(f"There is already a server {shown(name)}.", server=name)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("The connections to the servers are closed.", hint="Make a new session.")


async def _connect(connection: Connection) -> None:
    # The status has the reason.
    with contextlib.suppress(ConnectError, ClosedError):
        await connection.ensure()


async def _refresh(connection: Connection) -> None:
    # The status has the reason; a server without a list has no tools, and the others are there.
    with contextlib.suppress(Exception):
        await connection.refresh()
