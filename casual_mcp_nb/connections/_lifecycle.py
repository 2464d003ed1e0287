"""The lifecycle of a connection: started, ready, lost, started anew, closed. It knows nothing of tools and calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.connections._imports import link_class
from casual_mcp_nb.connections._reasons import closed_error, connect_error, lost_reason, root_cause, start_reason
from casual_mcp_nb.connections._redactor import shown_address
from casual_mcp_nb.connections._transport import open_route
from casual_mcp_nb.connections._ways import Way, first_way, legacy_way, notes_of, older_way
from casual_mcp_nb.errors import ConnectError
from casual_mcp_nb.types.server import ServerConfig
from casual_mcp_nb.types.session import ServerState

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from casual_mcp_nb.connections._mcp_session import McpSession


@dataclass(frozen=True)
class Hooks:
    """What a lifecycle asks of its connection.

    Args:
        client_options: The handlers for a new client.
        opened: Called when the handshake is done, with the time on the loop's clock when the limit of the start is reached;
            may take until then.
        changed: Called when the state changed.
        tools_changed: Called when the server says that its tools changed.
        refused: Called with the method of a request of the server that nobody is there to answer.
    """

    client_options: dict[str, Any]
    opened: Callable[[float], Awaitable[None]]
    changed: Callable[[], None]
    tools_changed: Callable[[], Awaitable[None]]
    refused: Callable[[str], None]


class _BothFailed(Exception):
    """Neither way led to the server; the message has both reasons, fit to be shown."""


class Lifecycle:
    """The sessions of one server, one after the other; a lock lets one caller at a time start one.

    Its methods raise ConnectError when the server cannot be connected, and ClosedError after `close`.

    Args:
        name: The server's name.
        config: Its config; None for a server that is handed in.
        server: A server that lives in this process.
        limit: Limit of a start in seconds.
        hooks: The connection.
        secrets: What is masked in all that is said of it.
    """

    def __init__(
        self,
        name: str,
        config: ServerConfig | None,
        server: FastMCP[Any] | None,
        limit: float,
        hooks: Hooks,
        secrets: Collection[str],
    ) -> None:
        self.link: McpSession | None = None
        self.state: ServerState = "closed"
        self.error: str | None = None
        self.seconds: float | None = None
        self.startable = True
        """Whether the next use starts it: it was never started, or it was ready and died."""
        self._next_way: Way | None = None
        self._name = name
        self._config = config
        self._server = server
        self.way: Way = first_way(config)
        """How it is reached, and how the protocol version is agreed on; an older way stays once it was needed."""
        self._limit = limit
        self._hooks = hooks
        self._secrets = secrets
        self._lock = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._closed = False

    @property
    def alive(self) -> bool:
        """Whether calls can be made now.

        Raises:
            ClosedError: It was closed.
        """
        if self._closed:
            raise closed_error(self._name)
        return self.link is not None and self.state == "ready" and self.link.alive

    async def connect(self) -> None:
        """Make a session unless there is a live one."""
        failures = self._failures
        async with self._lock:
            if self.alive:
                return
            if failures != self._failures:
                # It was tried while this caller waited; trying again would only double the wait.
                raise self._connect_error()
            await self._start()

    async def reconnect(self) -> None:
        """End the session, if there is one, and make a new one."""
        async with self._lock:
            await self._start()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth knowing of how the server was connected."""
        return notes_of(self.way, self._config, self._name, self.link)

    @property
    def change_wished(self) -> bool:
        """Whether `change_way` would do something."""
        return self._next_way is not None

    def wish_for_questions(self) -> bool:
        """Note that the server should be connected by the older handshake, on which it can ask; whether that is going to be."""
        if self._next_way is None and self.way.protocol == "auto" and not self.way.note:
            why = "A tool could not ask its question on the newer protocol, so the server was connected by the older handshake."
            self._next_way = legacy_way(self.way, self._config, self._name, why)
        return self._next_way is not None

    async def change_way(self) -> None:
        """Connect as was wished, if anything was; as before where the server does not take that."""
        async with self._lock:
            before, way, self._next_way = self.way, self._next_way, None
            if way is None or self._closed:
                return
            self.way = way
            try:
                await self._start()
            except ConnectError:
                self.way = replace(
                    before, note="A tool could not ask its question, and the server refuses the older handshake."
                )
                await self._start()

    async def ensure(self) -> McpSession:
        """The live session: the one there is, or a new one for what was never started or has died since."""
        if not self.alive:
            async with self._lock:
                if not self.alive:
                    if not self.startable:
                        raise self._connect_error()
                    await self._start()
        assert self.link is not None
        return self.link

    async def close(self) -> None:
        """End the session for good, with all its processes."""
        self._closed = True
        self.startable = False
        if self.link is not None:
            self._end_link(self.link)
        async with self._lock:
            if self.link is not None:
                self._end_link(self.link)
            self._set("closed")
        if self._ending:
            await asyncio.wait(set(self._ending))

    def abandon(self) -> None:
        """Count as closed, and leave the session to the process that made it."""
        self._closed = True
        self.startable = False
        self.state, self.error = "closed", None

    async def _start(self) -> None:
        if self._closed:
            raise closed_error(self._name)
        # Only a session that was ready is made anew by itself; after a start that failed a person decides.
        self.startable = False
        self._set("starting")
        start = asyncio.get_running_loop().time()
        try:
            await self._open_link()
        except asyncio.CancelledError:
            self.startable = not self._closed
            self._set("closed")
            if self.link is not None:
                await self._end_link(self.link, grace=0)
            raise
        except Exception as error:
            self.seconds = asyncio.get_running_loop().time() - start
            self._failures += 1
            self._set("failed", self._start_reason(error, start))
            if self.link is not None:
                await self._end_link(self.link, grace=0)
                # Only now is the end of its stderr known.
                self._hooks.changed()
            raise self._connect_error() from None
        self.seconds = asyncio.get_running_loop().time() - start
        self.startable = True
        self._set("ready")

    async def _open_link(self) -> None:
        config = self._config
        make_link = await link_class(in_process=config is None or config.transport == "in-process")
        if self.link is not None:
            await self.link.close()
            self.link = None
        start = asyncio.get_running_loop().time()
        deadline = start + self._limit
        try:
            await self._open_by(self.way, make_link, deadline)
        except Exception as error:
            older = self._older_way(error, start, deadline)
            if older is None or self.link is None:
                raise
            failed = self._start_reason(error, start)
            await self._end_link(self.link, grace=0)
            await self._open_older(older, make_link, deadline, failed)

    async def _open_by(self, way: Way, make_link: type[McpSession], deadline: float) -> None:
        if self._closed:
            raise closed_error(self._name)
        route = await open_route(way.transport, self._config, self._server, self._secrets)
        if self._closed:
            route.release()
            raise closed_error(self._name)
        hooks = self._hooks
        self.link = make_link(
            self._name,
            route,
            hooks.client_options,
            self._lost,
            hooks.tools_changed,
            hooks.refused,
            way.protocol,
            self._limit,
        )
        async with asyncio.timeout_at(deadline):
            await self.link.open()
        await hooks.opened(deadline)
        if not self.link.alive:
            raise ConnectionError(self.link.broken_by or "it ended right after the handshake")

    async def _open_older(self, way: Way, make_link: type[McpSession], deadline: float, failed: str) -> None:
        start = asyncio.get_running_loop().time()
        try:
            await self._open_by(way, make_link, deadline)
        except Exception as error:
            if way.transport == self.way.transport:
                raise
            reason = f"{failed}; the older transport {way.transport} failed too: {self._start_reason(error, start)}"
            raise _BothFailed(reason) from None
        self.way = way

    def _older_way(self, error: Exception, start: float, deadline: float) -> Way | None:
        enough = deadline - asyncio.get_running_loop().time() > self._limit / 2
        if self.link is None or self._closed or isinstance(error, TimeoutError) or not enough:
            return None
        return older_way(self.way, self._config, self._name, self.link, start)

    def _end_link(self, link: McpSession, **grace: float) -> asyncio.Future[None]:
        task = asyncio.create_task(link.close(**grace))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return asyncio.shield(task)

    def _lost(self, link: McpSession) -> None:
        self._end_link(link)
        if link is self.link and self.state == "ready":
            self._set("failed", lost_reason(link.broken_by))

    def _connect_error(self) -> ConnectError:
        tail = self.link.stderr_tail if self.link else ""
        return connect_error(self._name, shown_address(self._config, self._secrets), self.error, tail)

    def _start_reason(self, error: Exception, start: float) -> str:
        if isinstance(error, _BothFailed):
            return str(error)
        link = self.link
        reason = root_cause(error, self._secrets)
        return start_reason(
            (link.broken_by or link.route.better(reason, start)) if link else reason,
            limit=f"{self._limit:g} s" if isinstance(error, TimeoutError) else "",
            setting=f"servers.{self._name}.init_timeout" if self._config else "",
            stray_output=link.stray_output if link else None,
        )

    def _set(self, state: ServerState, error: str | None = None) -> None:
        self.state, self.error = state, error
        self._hooks.changed()
