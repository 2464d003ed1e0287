"""Manage a session's servers concurrently: one that fails does not affect the others."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import operator
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterable, KeysView, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.content import OnProgress, ToolResult
from casual_mcp_nb.base.iterables import by_name, drop_none
from casual_mcp_nb.base.mcp import Prompts, Resources, Skill, Skills
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tool import MAX_TOOLS_ON_LOOP, Catalog, ToolName, ToolSpec
from casual_mcp_nb.base.wire import Messages, ServerLog, Wire
from casual_mcp_nb.errors import (
    ClosedError,
    ConnectError,
    ServerError,
    ToolCallError,
    UnknownNameError,
    UsageError,
    shown,
)
from casual_mcp_nb.isolation.worker import Worker
from casual_mcp_nb.servers.askers import RunningCalls
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.handlers import Handlers
from casual_mcp_nb.servers.lifecycle import StartSlots
from casual_mcp_nb.servers.listing import DEFAULT_TTL
from casual_mcp_nb.servers.resources import ServerResources
from casual_mcp_nb.servers.tasks import FollowedTask, OnTask
from casual_mcp_nb.servers.transport import Unusable

if TYPE_CHECKING:
    from fastmcp import FastMCP


T = TypeVar("T")
_MAX_REASON = 500


class _ToolServer(Protocol):
    """A server's interface in a server manager. `Connection` documents each member."""

    @property
    def name(self) -> str: ...
    @property
    def config(self) -> ServerConfig | None: ...
    @property
    def status(self) -> ServerStatus: ...
    @property
    def instructions(self) -> str: ...
    @property
    def tools(self) -> tuple[ToolSpec, ...]: ...
    @property
    def tools_version(self) -> str: ...
    @property
    def settled(self) -> bool: ...
    @property
    def fresh(self) -> bool: ...
    def read_log(self) -> ServerLog: ...
    def read_messages(self, tool: str | None = None) -> Messages: ...
    def read_wire(self) -> Wire: ...
    async def ensure(self) -> None: ...
    async def refresh(self, force: bool = False) -> tuple[ToolSpec, ...]: ...
    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        on_task: OnTask | None = None,
    ) -> ToolResult: ...
    async def reconnect(self) -> None: ...
    async def close(self) -> None: ...
    def abandon(self) -> None: ...


class ServerManager:
    """A session's connections.

    Args:
        in_process: In-process servers by name. They come after the config's.
        unusable: Servers that cannot be started, each with the reason. They have failed from the
            beginning.
        on_change: Called whenever a server's status or its tools changed.

    Attributes:
        disabled: The servers that the config disables and nobody has enabled.
        version: Counts changes to servers' states and tools.
        running_calls: For whom servers are running calls.
        worker: The process for work that servers and templates could make endless. It ends with
            this object.
    """

    def __init__(
        self,
        servers: Mapping[str, ServerConfig],
        *,
        in_process: Mapping[str, FastMCP[Any]] | None = None,
        unusable: Mapping[str, str] | None = None,
        cache_ttl: float | None = DEFAULT_TTL,
        handlers: Handlers | None = None,
        on_change: Callable[[], None] = ignore,
        secrets: Collection[str] = (),
    ) -> None:
        self.version = 0
        self.running_calls = RunningCalls()
        self._cache_ttl = cache_ttl
        self._secrets = secrets
        self._on_change = on_change
        self._handlers = handlers or Handlers()
        self.worker = Worker()
        self._slots = StartSlots()
        self._connections: dict[str, _ToolServer] = {}
        self._originals: dict[str, _ToolServer] = {}
        self._substitute: Callable[[_ToolServer], _ToolServer] | None = None
        self._absent = _Absent(self)
        self._known = _KnownTools([], self._absent)
        self._known_skills: tuple[Skill, ...] = ()
        self._with_skills: tuple[int, tuple[ServerResources, ...]] = -1, ()
        self._closed = False
        self._beside: weakref.WeakSet[ServerManager] = weakref.WeakSet()
        self._added: Mapping[str, _ToolServer] = {}
        self.disabled = {name for name, config in servers.items() if not config.enabled}
        for name, config in servers.items():
            self._connections[name] = self._new_connection(name, config)
        for name, reason in (unusable or {}).items():
            self._connections[name] = self._new_connection(name, server=Unusable(reason))
        for name, server in (in_process or {}).items():
            self._check_new(name)
            self._connections[name] = self._new_connection(name, server=server)

    @property
    def names(self) -> KeysView[str]:
        """Server names, in config order."""
        return self._connections.keys()

    @property
    def statuses(self) -> Mapping[str, ServerStatus]:
        """Server statuses, in config order, built at each access: read it once, and use `names`
        where they suffice.
        """
        return {name: connection.status for name, connection in self._connections.items()}

    def status_of(self, name: str) -> ServerStatus:
        """Look up one server's status."""
        return self._connection_to(name).status

    @property
    def instructions(self) -> Mapping[str, str]:
        """Each server's instructions for its use, or empty if it has none."""
        return {name: connection.instructions for name, connection in self._connections.items()}

    @property
    def fresh(self) -> bool:
        """Whether all tool lists are fresh."""
        self._check_open()
        return all(connection.fresh for connection in self._connections.values())

    @property
    def has_streams(self) -> bool:
        """Whether any server is reached over a stream, which can bring several messages at a
        time.
        """
        for connection in self._connections.values():
            if connection.config is not None:
                return True
        return False

    @property
    def waiting(self) -> list[str]:
        """The servers that `connect` would start. None after the server manager was closed."""
        if self._closed:
            return []
        return [connection.name for connection in self._enabled() if not connection.settled]

    def config_of(self, name: str) -> ServerConfig | None:
        """Look up a server's config, or None if it has none or does not exist."""
        connection = self._connections.get(name)
        if connection:
            return connection.config
        return None

    def add(
        self, name: str, config: ServerConfig | None = None, server: FastMCP[Any] | None = None
    ) -> None:
        """Add a server after the others, by its config or as an in-process object.

        The next `connect` starts it.
        """
        self._check_open()
        self._check_new(name)
        self._put(self._new_connection(name, config, server))
        self.changed()

    def beside(self, servers: Mapping[str, ServerConfig | FastMCP[Any] | None]) -> ServerManager:
        """Create a manager with other servers, which shares this one's other connections.

        End it with `close_added`.

        Args:
            servers: Servers in place of those with these names, or besides them. None leaves one
                out.

        Raises:
            UsageError: A cassette is in use, which would not know the two apart.
        """
        self._check_open()
        if self._substitute is not None:
            raise UsageError("Other servers cannot be used with a cassette.", hint="End it first.")
        other = copy.copy(self)
        other._connections = {
            name: each for name, each in self._connections.items() if name not in servers
        }
        other._absent = _Absent(other)
        other._known = _KnownTools([], other._absent)
        other._with_skills, other._beside = (-1, ()), weakref.WeakSet()
        other.disabled = self.disabled - servers.keys()
        added = {}
        for name, server in servers.items():
            if isinstance(server, ServerConfig):
                added[name] = other._new_connection(name, server)
            elif server is not None:
                added[name] = other._new_connection(name, server=server)
        other._connections |= added
        other._added = added
        self._beside.add(other)
        return other

    @property
    def added(self) -> Collection[str]:
        """The names of the servers that `beside` has added."""
        return self._added.keys()

    async def close_added(self) -> None:
        """Close only the connections that `beside` has made."""
        async with asyncio.TaskGroup() as group:
            for connection in self._added.values():
                group.create_task(connection.close())

    def attach(self, server: _ToolServer) -> None:
        """Add a server that is not reached over MCP: the notebook's functions.

        A second time it does nothing.
        """
        self._check_open()
        if server not in (self._connections.get(server.name), self._originals.get(server.name)):
            if self._substitute is None or server.name in self._originals:
                self._check_new(server.name)
            self._put(server)

    def substitute(
        self, replace: Callable[[_ToolServer], _ToolServer], others: Iterable[_ToolServer] = ()
    ) -> None:
        """Replace the connections with other servers, even for servers that are added later, until
        `restore`.
        """
        self.restore()
        self._originals, self._substitute = self._connections, replace
        self._connections = by_name((*map(replace, self._originals.values()), *others))
        self.changed()

    def add_substitute(self, server: _ToolServer) -> None:
        """Use one more server that is not reached over MCP, until `restore`."""
        self._connections = {**self._connections, server.name: server}
        self.changed()

    def restore(self) -> None:
        """End `substitute`."""
        if self._substitute is not None:
            self._connections, self._originals, self._substitute = self._originals, {}, None
            self.changed()

    def _put(self, server: _ToolServer) -> None:
        # New dicts, because other threads may be iterating over the old ones.
        if self._substitute is not None:
            self._originals = {**self._originals, server.name: server}
            server = self._substitute(server)
        self._connections = {**self._connections, server.name: server}

    async def remove(self, name: str) -> None:
        """Stop and remove a server. Calls that wait for it fail."""
        self._check_open()
        connection = self._connection_to(name)
        # A new dict, because other threads may be iterating over the old one.
        self._connections = {
            other: each for other, each in self._connections.items() if each is not connection
        }
        original = self._originals.get(name, connection)
        self._originals = {
            other: each for other, each in self._originals.items() if each is not original
        }
        self.disabled.discard(name)
        self.changed()
        await original.close()

    def log_of(self, name: str) -> ServerLog:
        """Read a server's last log lines."""
        return self._connection_to(name).read_log()

    def messages_of(self, name: str, tool: str | None = None) -> Messages:
        """List the last messages to and from a server, for one tool or all."""
        return self._connection_to(name).read_messages(tool)

    def read_wire(self, name: str | None = None) -> Wire:
        """List the last messages to and from a server, or all servers, with the HTTP exchanges that
        carried them.
        """
        if name is not None:
            return self._connection_to(name).read_wire()
        wires = [connection.read_wire() for connection in self._connections.values()]
        records = sorted(itertools.chain.from_iterable(wires), key=lambda record: record.at)
        return Wire(tuple(records), sum(wire.dropped for wire in wires))

    async def connect(self, names: Iterable[str] | None = None) -> None:
        """Connect servers concurrently, and return when each is ready or failed.

        Failures are in `statuses`, not raised.

        About two processes per processor start at the same time. Each one's time limit counts from
        its own start.

        Servers that are ready, or whose start has failed before, are skipped: use `reconnect` for
        the latter. Cancelling it ends the starts in progress. A second call starts them again.
        """
        self._check_open()
        connections = self._enabled()
        if names is not None:
            connections = list(map(self._connection_to, names))
        # Each turn calls this, and usually there is nothing to do.
        unsettled = [connection for connection in connections if not connection.settled]
        if unsettled:
            async with asyncio.TaskGroup() as group:
                for connection in unsettled:
                    group.create_task(_connect(connection))

    def set_cache_ttl(self, seconds: float | None) -> None:
        """Set how long tool lists are fresh, from the next listing on. None is forever."""
        self._cache_ttl = seconds
        for connection in self._connections.values():
            if isinstance(connection, Connection):
                connection.listing.ttl = seconds

    async def invalidate(self) -> None:
        """Make the next use list all servers' tools again."""
        for connection in self._connections.values():
            if isinstance(connection, Connection):
                connection.listing.invalidate()

    async def set_log_level(self, level: str) -> None:
        """Ask the servers for log messages from this severity on, including servers that connect
        later.
        """
        for connection in self._connections.values():
            if isinstance(connection, Connection):
                connection.set_log_level(level)

    def enable(self, names: Iterable[str]) -> None:
        """Enable servers that the config disables, so that they are connected with the others."""
        self.disabled.difference_update(names)

    def is_current(self, catalog: Catalog) -> bool:
        """Check whether `connect` and `list_tools` have nothing to do, and would end with this one."""
        self._check_open()
        if catalog is not self._known.catalog or self._known.version != self.version:
            return False
        for connection in self._connections.values():
            if not connection.fresh or not (connection.settled or connection.name in self.disabled):
                return False
        return True

    async def list_tools(self) -> Catalog:
        """List all servers' tools, in config order. Stale lists are refreshed concurrently.

        A server that died keeps its last known tools, since using them starts it again. One that
        could not be started has none. The same object is returned until a server's tools change.
        """
        self._check_open()
        stale = [connection for connection in self._connections.values() if not connection.fresh]
        if stale:
            async with asyncio.TaskGroup() as group:
                for connection in stale:
                    group.create_task(_refresh(connection))
        version, lists = self.version, self._lists()
        if sum(map(len, lists)) > MAX_TOOLS_ON_LOOP and not self._known.has(lists):
            self._known = await asyncio.to_thread(_KnownTools, lists, self._absent)
        elif not self._known.has(lists):
            self._known = _KnownTools(lists, self._absent)
        self._known.version = version
        return self._known.catalog

    @property
    def known_tools(self) -> Catalog:
        """All servers' tools as last listed."""
        lists = self._lists()
        if not self._known.has(lists):
            self._known = _KnownTools(lists, self._absent)
        return self._known.catalog

    @property
    def absent(self) -> Mapping[str, str]:
        """The servers whose tools are unknown although they were started, each with why."""
        absent = {}
        for name, connection in self._connections.items():
            if not connection.tools:
                reason = _why_absent(connection.status)
                if reason:
                    absent[name] = reason
        return absent

    def _lists(self) -> list[tuple[ToolSpec, ...]]:
        return [connection.tools for connection in self._connections.values() if connection.tools]

    async def call(
        self,
        tool: ToolSpec,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        on_task: OnTask | None = None,
    ) -> ToolResult:
        """Call a tool from the catalog, once. See `Connection.call`."""
        self._check_open()
        if tool.restriction == "task only":
            raise UsageError(
                f"Tool {shown(tool.name)} of {shown(tool.server)} runs only as a task, which this"
                " client does not start.",
                hint="Ask the server's authors for a tool that answers directly.",
                server=tool.server,
                tool=tool.wire_name,
            )
        connection = self._connections.get(tool.server)
        if connection is not None:
            # A context manager takes as long as all else here.
            asker = self.running_calls.begin(tool.server)
            try:
                return await connection.call(
                    tool.name, arguments, on_progress=on_progress, meta=meta, on_task=on_task
                )
            except (ServerError, ClosedError):
                if self._connections.get(tool.server) is connection:
                    raise
            finally:
                self.running_calls.end(tool.server, asker)
        raise ToolCallError(
            f"Server {shown(tool.server)} was removed.", server=tool.server, tool=tool.wire_name
        )

    def follow_task(
        self, tool: ToolName, id: str, began: float, number: int
    ) -> FollowedTask | None:
        """Follow a task that an earlier session has started, or None if there is no such server
        here.
        """
        connection = self._connections.get(tool.server)
        if isinstance(connection, Connection):
            return connection.tasks.follow(tool.tool, id, began, number)
        return None

    async def cancel_task(self, task: FollowedTask) -> None:
        """Cancel a task, see `ServerTasks.cancel`."""
        connection = self._connections.get(task.tool.server)
        if not isinstance(connection, Connection):
            raise ToolCallError(
                f"Server {shown(task.tool.server)} was removed.", server=task.tool.server
            )
        await connection.tasks.cancel(task)

    def shows_apps(self, name: str) -> bool:
        """Check whether a server's apps are shown. Without such a server, the session's setting
        holds.
        """
        return self._handlers.shows_apps(self.config_of(name))

    def resources_of(self, name: str) -> ServerResources:
        """Find the reader for a server's resources and prompts."""
        self._check_open()
        readers = self.resources
        if name not in readers:
            raise UnknownNameError("server", name, readers)
        return readers[name]

    @property
    def resources(self) -> Mapping[str, ServerResources]:
        """The readers for resources and prompts, one per MCP server, in config order."""
        # Notebook functions have none.
        readers = {
            name: getattr(each, "resources", None) for name, each in self._connections.items()
        }
        return drop_none(readers)

    async def list_resources(self) -> Resources:
        """List all connected servers' resources.

        If one server fails, the others are still listed.
        """
        # By name, because the readers of recorded and replayed servers are of another class.
        return Resources(*await self._listed(operator.methodcaller("resources")))

    async def list_prompts(self) -> Prompts:
        """List all connected servers' prompts. If one server fails, the others are still listed."""
        return Prompts(*await self._listed(operator.methodcaller("prompts")))

    async def list_skills(self) -> Skills:
        """List all connected servers' skills. If one server fails, the others are still listed."""
        return Skills(*await self._listed(operator.methodcaller("skills")))

    async def refresh_skills(self) -> None:
        """List the skills again where the list is not fresh.

        A server that fails keeps those that it had.
        """
        if stale := [reader for reader in self.skill_readers if not reader.skills_fresh]:
            await asyncio.gather(*(reader.refresh_skills() for reader in stale))

    @property
    def skill_readers(self) -> tuple[ServerResources, ...]:
        """The readers of the connected servers with skills, usually none.

        Each step of a turn asks.
        """
        version, readers = self._with_skills
        if version != self.version:
            # Counted before: a server that connects meanwhile is found the next time.
            version = self.version
            readers = tuple(reader for reader in self.resources.values() if reader.has_skills)
            self._with_skills = version, readers
        return readers

    @property
    def known_skills(self) -> tuple[Skill, ...]:
        """The skills as last listed, in config order. The same tuple as long as they are."""
        if self._with_skills == (self.version, ()) and not self._known_skills:
            return ()
        known = [reader.known_skills for reader in self.skill_readers]
        skills = tuple(itertools.chain.from_iterable(known))
        if skills != self._known_skills:
            self._known_skills = skills
        return self._known_skills

    async def _listed(
        self, list_those_of: Callable[[ServerResources], Awaitable[tuple[T, ...]]]
    ) -> tuple[tuple[T, ...], dict[str, str]]:
        self._check_open()
        readers = self.resources
        ready = []
        for name, status in self.statuses.items():
            if status.state in ("ready", "unlisted") and name in readers:
                ready.append(name)
        results = await asyncio.gather(
            *(list_those_of(readers[name]) for name in ready), return_exceptions=True
        )
        items: list[T] = []
        problems: dict[str, str] = {}
        for name, result in zip(ready, results, strict=True):
            if isinstance(result, ServerError):
                problems[name] = str(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                items += result
        return tuple(items), problems

    async def reconnect(self, name: str) -> None:
        """Reconnect one server, whatever its state. The others are not affected."""
        self._check_open()
        connection = self._connection_to(name)
        self.enable([name])
        await connection.reconnect()

    async def close(self) -> None:
        """Close all connections concurrently, in at most 5 seconds. Closing twice is harmless."""
        self._closed = True
        async with asyncio.TaskGroup() as group:
            for connection in (self._connections | self._originals).values():
                group.create_task(connection.close())
        await self.worker.aclose()

    async def disconnect(self) -> None:
        """End all sessions and their processes concurrently. The next use starts them again."""
        async with asyncio.TaskGroup() as group:
            for connection in (self._connections | self._originals).values():
                if isinstance(connection, Connection):
                    group.create_task(connection.disconnect())
        await self.worker.aclose(for_good=False)

    def abandon(self) -> None:
        """Close without ending anything, in a forked child: processes and connections are the
        parent's.
        """
        self._closed = True
        for connection in (self._connections | self._originals).values():
            connection.abandon()

    def _new_connection(
        self,
        name: str,
        config: ServerConfig | None = None,
        server: FastMCP[Any] | Unusable | None = None,
    ) -> Connection:
        return Connection(
            name,
            config,
            server=server,
            handlers=self._handlers,
            running_calls=self.running_calls,
            on_change=self.changed,
            cache_ttl=self._cache_ttl,
            secrets=self._secrets,
            worker=self.worker,
            slots=self._slots,
        )

    def changed(self) -> None:
        """Count a change to a server or its tools, and pass it on."""
        self.version += 1
        for other in tuple(self._beside):
            other.version += 1
        self._on_change()

    def _enabled(self) -> Iterable[_ToolServer]:
        if not self.disabled:
            return self._connections.values()
        return [
            connection
            for name, connection in self._connections.items()
            if name not in self.disabled
        ]

    def _connection_to(self, name: str) -> _ToolServer:
        if name not in self._connections:
            raise UnknownNameError("server", name, self._connections)
        return self._connections[name]

    def _check_new(self, name: str) -> None:
        if name in self._connections:
            raise UsageError(f"There is already a server {shown(name)}.", server=name)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(
                "The connections to the servers are closed.",
                hint="Create a new session, and keep it in a variable: one that nothing holds is closed.",
            )


async def _connect(connection: _ToolServer) -> None:
    # The reason is in the status.
    with contextlib.suppress(ConnectError, ClosedError):
        await connection.ensure()


async def _refresh(connection: _ToolServer) -> None:
    # The reason is in the status; a server without a list has no tools, and the others have theirs.
    with contextlib.suppress(Exception):
        await connection.refresh()


class _KnownTools:
    """The catalog of all servers' tools, and the lists that it was made of.

    Attributes:
        version: The server manager's when the lists were read, or -1 if they may have been stale.
    """

    def __init__(self, lists: list[tuple[ToolSpec, ...]], absent: _Absent) -> None:
        self.catalog = Catalog(itertools.chain.from_iterable(lists), absent)
        self.version = -1
        self._lists = lists

    def has(self, lists: list[tuple[ToolSpec, ...]]) -> bool:
        """Check whether these are its lists.

        Tools that did not change stay the same objects, however often they are listed.
        """
        return len(lists) == len(self._lists) and all(map(operator.is_, lists, self._lists))


class _Absent:
    """What a catalog asks for servers without tools.

    Catalogs are kept with turns, longer than the servers.
    """

    def __init__(self, manager: ServerManager) -> None:
        self._manager: Callable[[], ServerManager | None] = weakref.ref(manager)

    def __call__(self) -> Mapping[str, str]:
        manager = self._manager()
        if manager is None:
            return {}
        return manager.absent

    def __reduce__(self) -> tuple[type, tuple[()]]:
        # In another process there are no servers.
        return dict, ()


def _why_absent(status: ServerStatus) -> str:
    reason = " ".join((status.error or "it gave no reason").split())[:_MAX_REASON]
    match status.state:
        case "failed":
            return f"did not start: {reason}"
        case "unlisted":
            return f"is connected, but {reason}"
        case "starting":
            return "is still starting"
    return ""
