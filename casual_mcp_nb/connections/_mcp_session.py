"""One live session with a server: opened once, closed once, never entered again."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import math
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mcp.client.subscriptions import listen
from mcp_types import Implementation, Tool, ToolListChangedNotification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from casual_mcp_nb.connections._log import logger
from casual_mcp_nb.connections._messages import input_of
from casual_mcp_nb.connections._process import POLL_SECONDS, end_group, process_ended, signal_group
from casual_mcp_nb.connections._redactor import clean
from casual_mcp_nb.connections._session import TolerantClient, TolerantTransport, Undiscovered
from casual_mcp_nb.connections._transport import TransportContext
from casual_mcp_nb.connections.convert import CLOSED, error_text
from casual_mcp_nb.errors import shown
from casual_mcp_nb.types.server import Protocol

MAX_EXTENSIONS = 20
MAX_PAGES = 100
MAX_TOOLS = 20_000
CLOSE_SECONDS = 4.5
"""What a close takes at most."""
GRACE_SECONDS = 1.2
"""How long a server may take to end by itself before its process group is asked to end; it is killed 0.5 s later, before
the SDK, which waits longer, begins to do the same."""
KILL_SECONDS = 0.5
DISCOVER_SHARE = 1 / 3
"""The part of the start's limit after which a server that does not answer `server/discover` is offered the older handshake."""
WATCH_SECONDS = 0.25
"""How often a look is taken whether the server's process is still there."""
LAST_ANSWER_SECONDS = 2.0
"""How long after the end of a process at its start an answer of it is waited for."""


@dataclass(frozen=True)
class ServerInfo:
    """What a server said of itself at the handshake, with secrets masked."""

    protocol_version: str | None = None
    version: str | None = None
    instructions: str = ""
    capabilities: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


class McpSession:
    """A fastmcp client and the task that owns it. The task enters the client, waits for its end, and cleans up.

    Args:
        name: The server's name.
        route: How it is reached.
        client_options: Handlers for the client.
        on_lost: Called once when the session ended without being closed.
        on_tools_changed: Called when the server says that its tools changed.
        on_refused: Called with the method of a request of the server that nobody is there to answer.
        protocol: How the protocol version is agreed on; see `ServerConfig`.
        limit: Seconds that the start may take.

    Attributes:
        greeting: What the server said of itself.
        broken_by: Why the session was given up, in words; None where that is not known.
        undiscovered: What the server did instead of saying which protocol versions it knows; None where it answered.
    """

    def __init__(
        self,
        name: str,
        route: TransportContext,
        client_options: dict[str, Any],
        on_lost: Callable[[McpSession], None],
        on_tools_changed: Callable[[], Awaitable[None]],
        on_refused: Callable[[str], None],
        protocol: Protocol,
        limit: float,
    ) -> None:
        self.name = name
        self.route = route
        self.greeting = ServerInfo()
        self.broken_by: str | None = None
        self.undiscovered: Undiscovered | None = None
        self.stray_output: str | None = None
        self.strayed_at = -math.inf
        self._on_lost = on_lost
        self._on_tools_changed = on_tools_changed
        self._end = asyncio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing: asyncio.Task[None] | None = None
        self._ready = False
        self.client = TolerantClient(
            TolerantTransport(
                route.transport,
                name,
                on_closed=self._stream_ended,
                on_refused=on_refused,
                on_undiscovered=self._note_undiscovered,
                discover_seconds=limit * DISCOVER_SHARE,
                mask=route.mask,
            ),
            mode=protocol,
            message_handler=self._on_message,
            client_info=Implementation(name="casual-mcp-nb", version=_own_version()),
            # The connection's own limit ends the handshake, and says so in words.
            init_timeout=0,
            **client_options,
        )
        if route.http is not None:
            route.http.broken = self.give_up
        if route.lines is not None:
            route.lines.on_endless = self.give_up
        self._owner = asyncio.create_task(self._own(), name=f"mcp {name}")

    @property
    def alive(self) -> bool:
        """Whether calls can be made."""
        if not self._ready or self._end.is_set():
            return False
        # The end of its stdout may not have been read yet.
        pid = self.route.stderr.pid if self.route.stderr else None
        return pid is None or not process_ended(pid)

    @property
    def stderr_tail(self) -> str:
        """The last lines of the server's stderr, cleaned and masked; empty where it has none."""
        return self.route.stderr.tail() if self.route.stderr else ""

    async def open(self) -> None:
        """Wait for the end of the handshake.

        Raises:
            Exception: Why it failed, as the libraries say it.
        """
        await asyncio.shield(self._opened)

    async def all_tools(self) -> list[Tool]:
        """The server's tools, page by page; a listing without end stops at a limit, with a logged warning."""
        tools: list[Tool] = []
        seen: set[str] = set()
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self.client.list_tools_mcp(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                return tools
            if cursor in seen or len(tools) > MAX_TOOLS:
                break
            seen.add(cursor)
        logger.warning("The list of tools of server %s has no end; the first %d are kept.", shown(self.name), len(tools))
        return tools

    def output_schema(self, tool: str) -> dict[str, Any] | None:
        """The output schema of a tool, as the server wrote it; None where it declares none or was not listed."""
        return getattr(self.client.session, "output_schemas", {}).get(tool)

    def give_up(self, reason: str | None = None) -> None:
        """Let the session end: it is broken although its stream is still open.

        Args:
            reason: Why, in words.
        """
        self.broken_by = self.broken_by or reason
        if not self._opened.done():
            self._owner.cancel()
        self._stream_ended()

    async def close(self, grace: float = GRACE_SECONDS) -> None:
        """End the session and every process of it, in at most 5 seconds. Goes on when the caller is cancelled.

        Args:
            grace: How long the server may take to end by itself.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(grace))
        await asyncio.shield(self._closing)

    async def _own(self) -> None:
        watch = asyncio.create_task(self._watch_process())
        try:
            async with self.client:
                self._greet()
                if self.route.stderr is not None:
                    self.route.stderr.close_writer()
                self._opened.set_result(None)
                subscription = asyncio.create_task(self._subscribe())
                try:
                    await self._end.wait()
                finally:
                    subscription.cancel()
        except asyncio.CancelledError:
            pass
        except Exception as error:
            if not self._opened.done():
                self._opened.set_exception(error)
            else:
                logger.debug("A session ended with: %s", error_text(error, self.route.mask))
        finally:
            watch.cancel()
            await self._clean_up()

    async def _watch_process(self) -> None:
        # A child that holds the server's stdout keeps the stream open when the server itself has ended.
        stderr = self.route.stderr
        while stderr is not None:
            await asyncio.sleep(WATCH_SECONDS)
            if stderr.pid is not None and process_ended(stderr.pid):
                # What it answered before its end may still have to be read.
                await asyncio.wait({self._opened}, timeout=LAST_ANSWER_SECONDS)
                self.give_up()
                return

    def _greet(self) -> None:
        info = self.client.server_info
        self.greeting = ServerInfo(
            protocol_version=self.client.protocol_version,
            version=clean(self.route.mask(f"{info.name} {info.version}".strip()))[:200] if info else None,
            instructions=self.route.mask(self.client.instructions or ""),
            capabilities=_capabilities(self.client.server_capabilities),
            extensions=self._extensions(),
        )
        self._ready = True

    def _extensions(self) -> tuple[str, ...]:
        capabilities = self.client.server_capabilities
        names = list((capabilities.extensions if capabilities else None) or ())[:MAX_EXTENSIONS]
        return tuple(clean(self.route.mask(str(name)))[:100] for name in names)

    def _note_undiscovered(self, how: Undiscovered) -> None:
        self.undiscovered = how

    async def _clean_up(self) -> None:
        self._end.set()
        if not self._opened.done():
            self._opened.set_exception(ConnectionError(CLOSED))
        # Nobody may be waiting any more; asyncio would report the failure as forgotten.
        self._opened.exception()
        stderr = self.route.stderr
        if stderr is not None:
            stderr.close_writer()
            # The children of a server survive its clean exit.
            if stderr.pid is not None:
                await end_group(stderr.pid)
            await stderr.wait_end(0.3)
        self.route.release()

    async def _close(self, grace: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CLOSE_SECONDS
        self._end.set()
        if not self._opened.done():
            self._owner.cancel()
        await asyncio.wait({self._owner}, timeout=grace)
        asked_at: float | None = None
        while not self._owner.done() and loop.time() < deadline:
            asked_at = self._push(asked_at, loop.time())
            await asyncio.wait({self._owner}, timeout=POLL_SECONDS)
        if not self._owner.done():
            logger.warning("A server did not let itself be closed within %s s; its session is abandoned.", CLOSE_SECONDS)
            self._owner.cancel()

    def _push(self, asked_at: float | None, now: float) -> float | None:
        # The process id arrives on stderr a moment after the start.
        pid = self.route.stderr.pid if self.route.stderr else None
        if pid is None:
            return None
        if asked_at is None:
            signal_group(pid, signal.SIGTERM)
            return now
        if now - asked_at > KILL_SECONDS:
            signal_group(pid, signal.SIGKILL)
        return asked_at

    def _stream_ended(self) -> None:
        if self._end.is_set():
            return
        self._end.set()
        if self._ready:
            self._on_lost(self)

    async def _subscribe(self) -> None:
        capabilities = self.client.server_capabilities
        tools = capabilities.tools if capabilities else None
        if self.client.protocol_version not in MODERN_PROTOCOL_VERSIONS or not (tools and tools.list_changed):
            return
        # Since 2026-07-28 a server says that its tools changed only to those who listen.
        with contextlib.suppress(Exception):
            async with listen(self.client.session, tools_list_changed=True):
                await self._end.wait()

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            await self._on_tools_changed()
        elif isinstance(message, ValidationError):
            self.strayed_at = asyncio.get_running_loop().time()
            self.stray_output = self.stray_output or clean(self.route.mask(input_of(message)))[:200]


def _capabilities(said: Any) -> tuple[str, ...]:
    """The names of the capabilities that a server declares; extensions, whose names it makes up, stand apart."""
    fields = type(said).model_fields if said is not None else ()
    return tuple(name for name in fields if name not in ("experimental", "extensions") and getattr(said, name) is not None)


def _own_version() -> str:
    try:
        return importlib.metadata.version("casual-mcp-nb")
    except importlib.metadata.PackageNotFoundError:
        return "0"
