"""A connection's lifecycle: started, ready, lost, restarted, closed, and how to connect."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from casual_mcp_nb.base.config import Protocol, ServerConfig, other_python
from casual_mcp_nb.base.cutting import cut_at_word
from casual_mcp_nb.base.proxies import connection_advice
from casual_mcp_nb.base.status import ServerState
from casual_mcp_nb.errors import ConfigError, ConnectError
from casual_mcp_nb.servers._errors import (
    ENDED,
    EXITED,
    advice_of_silence,
    advice_of_stderr,
    closed_error,
    connect_error,
    root_cause,
    start_reason,
)
from casual_mcp_nb.servers.handlers import PersonToAsk
from casual_mcp_nb.servers.logs import keep_out_of_log, route_library_logs, telling_line
from casual_mcp_nb.servers.redaction import shown_address
from casual_mcp_nb.servers.session_protocols import SessionConnection
from casual_mcp_nb.servers.transport import Unusable, open_transport, transport_kind

if TYPE_CHECKING:
    from fastmcp import FastMCP

    from casual_mcp_nb.servers.mcp_session import McpSession


NOT_STREAMABLE = (400, 404, 405)
"""HTTP statuses after which a client tries the older transport, see
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#backwards-compatibility.
"""
_FROM_PROXIES = ("HTTP 403", "HTTP 407", "HTTP 502", "HTTP 503", "HTTP 504")
"""How reasons begin that a proxy can be behind, which refuses an address or does not reach it."""
FIRST_WITHOUT_HANDSHAKE = "2026-07-28"
"""Since this version, a server answers a call with its questions, and can no longer send requests.
"""
_MAX_LINE = 300
"""How many characters of a line of stderr are in a reason."""
_CANNOT_ASK = re.compile(r"server-initiated requests?\b|\bno back-?channel\b", re.IGNORECASE)


@dataclass(frozen=True)
class ConnectMode:
    """A transport and a handshake, and why they differ from the config, if they do."""

    transport: str
    protocol: Protocol = "auto"
    note: str = ""


def cannot_ask(texts: Iterable[str], version: str | None) -> bool:
    """Check whether a call failed because the server cannot ask questions in this protocol
    version.
    """
    return (
        version is not None
        and version >= FIRST_WITHOUT_HANDSHAKE
        and any(map(_CANNOT_ASK.search, texts))
    )


class StartSlots:
    """Limits how many server processes start at the same time: too many would only slow each other
    down past their limits.

    A process that takes long is probably not waiting for a processor, so the next one gets its
    slot. By default, two per processor start together.
    """

    def __init__(self, number: int | None = None, seconds: float = 4.0) -> None:
        self._free = asyncio.Semaphore(number or 2 * (os.cpu_count() or 1))
        self._seconds = seconds

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot, and keep it for the body or its time, whichever is shorter."""
        await self._free.acquire()
        held = True

        def give_back() -> None:
            nonlocal held
            if held:
                held = False
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._seconds, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()


class _BothFailed(Exception):
    """Neither transport reached the server. The message has both reasons, redacted."""


class Lifecycle:
    """One server's successive sessions. A lock lets only one caller at a time start one.

    Its methods raise ConnectError when the server cannot be connected, and ClosedError after
    `close`.

    Attributes:
        startable: Whether the next use starts it: it was never started, or it was ready and died.
        mode: How it is connected. Once a fallback was needed, it stays in use.
        requested_mode: The mode that `change_mode` will use, or None if it has nothing to do.
    """

    def __init__(
        self,
        name: str,
        config: ServerConfig | None,
        server: FastMCP[Any] | Unusable | None,
        limit: float,
        connection: SessionConnection,
        secrets: Collection[str],
        slots: StartSlots,
    ) -> None:
        self.session: McpSession | None = None
        self.state: ServerState = "closed"
        self.error: str | None = None
        self.seconds: float | None = None
        self.startable = True
        self.mode = ConnectMode(transport_kind(config), config.protocol if config else "auto")
        self.requested_mode: ConnectMode | None = None
        self._name = name
        self._config = config
        self._server = server
        self._limit = limit
        self._connection = connection
        self._secrets = secrets
        self._slots = slots
        self._started_at = 0.0
        self._lock = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._was_ready = False
        self._closed = False

    @property
    def alive(self) -> bool:
        """Whether calls can be made now."""
        if self._closed or self.session is None:
            return False
        return self.state == "ready" and self.session.alive

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user on how the server was connected."""
        notes: list[str] = []
        if self.mode.note:
            notes.append(self.mode.note)
        if self.session is not None and self.session.negotiation.failure == "silent":
            version = self.session.server_info.protocol_version
            if version and version < FIRST_WITHOUT_HANDSHAKE:
                waited = (
                    "It did not answer the request for its protocol versions, so the older"
                    " handshake was used."
                )
                notes.append(waited + self._advice())
        return tuple(notes)

    def _advice(self) -> str:
        if self._config is not None:
            return f" Set servers.{self._name}.protocol to legacy to start with that."
        return ""

    def _legacy_mode(self, reason: str) -> ConnectMode:
        return replace(self.mode, protocol="legacy", note=reason + self._advice())

    async def connect(self) -> None:
        """Open a session unless there is a live one."""
        failures = self._failures
        async with self._lock:
            self.check_open()
            if self.alive:
                return
            if failures != self._failures:
                # Another caller tried while this one waited; trying again would only double the
                # wait.
                raise self._connect_error()
            await self._start()

    async def ensure(self) -> McpSession:
        """Open a session if the server was never started or has died since.

        Otherwise return the live one.
        """
        if not self.alive:
            self.check_open()
            async with self._lock:
                await self._start_again()
        assert self.session is not None
        return self.session

    async def _start_again(self) -> None:
        self.check_open()
        if self.alive:
            return
        if not self.startable:
            raise self._connect_error()
        await self._start()

    async def reconnect(self) -> None:
        """End the session, if there is one, and open a new one."""
        async with self._lock:
            await self._start()

    def request_legacy_mode(self) -> bool:
        """Request the older handshake, which lets the server ask questions.

        Return whether it will be used.
        """
        if self.requested_mode is None and self.mode.protocol == "auto" and not self.mode.note:
            reason = (
                "A tool could not ask its question on the newer protocol, so the older handshake"
                " was used."
            )
            self.requested_mode = self._legacy_mode(reason)
        return self.requested_mode is not None

    async def change_mode(self) -> None:
        """Reconnect in the requested mode, if any.

        Fall back to the previous one if the server refuses it.
        """
        async with self._lock:
            previous, mode, self.requested_mode = self.mode, self.requested_mode, None
            if mode is None or self._closed:
                return
            self.mode = mode
            try:
                await self._start()
            except ConnectError:
                note = (
                    "A tool could not ask its question, and the server refuses the older handshake."
                )
                self.mode = replace(previous, note=note)
                await self._start()

    async def close(self) -> None:
        """End the session for good, with all its processes."""
        self._closed = True
        self.startable = False
        if self.session is not None:
            self._end_session(self.session)
        async with self._lock:
            if self.session is not None:
                self._end_session(self.session)
            self._set("closed")
        if self._ending:
            await asyncio.wait(set(self._ending))

    async def disconnect(self) -> None:
        """End the session with all its processes. The next use opens another one.

        A start in progress is waited for.
        """
        async with self._lock:
            if self._closed:
                return
            self.startable = True
            self._set("closed")
            if self.session is not None:
                await self._end_session(self.session)

    def abandon(self) -> None:
        """Mark as closed, and leave the session to the process that opened it."""
        self._closed = True
        self.startable = False
        self.state, self.error = "closed", None

    async def _start(self) -> None:
        self.check_open()
        # Only a session that was ready is reopened automatically; after a failed start, the user
        # decides. See `_may_return`.
        self.startable = False
        self._set("starting")
        self._started_at = asyncio.get_running_loop().time()
        try:
            if self.mode.transport == "stdio":
                async with self._slots.slot():
                    await self._open_session()
            else:
                await self._open_session()
        except asyncio.CancelledError:
            self.startable = not self._closed
            self._set("closed")
            if self.session is not None:
                await self._end_session(self.session, grace=0)
            raise
        except Exception as error:
            self.seconds = asyncio.get_running_loop().time() - self._started_at
            self._failures += 1
            reason = self._start_reason(error, self._started_at) + self._of_address()
            self.startable = self._may_return(error)
            if self.startable:
                reason += ". It is tried again at its next use"
            self._set("failed", reason)
            if self.session is not None:
                await self._end_session(self.session, grace=0)
                # The end of its stderr is known only now.
                self._set("failed", reason + self._of_stderr(self.session, reason))
            raise self._connect_error() from None
        self.seconds = asyncio.get_running_loop().time() - self._started_at
        self.startable = self._was_ready = True
        self._set("ready")

    def _of_stderr(self, session: McpSession, reason: str) -> str:
        """Say what stderr tells about a failed start, and what helps."""
        command = None
        if self._config is not None:
            command = self._config.command
        stderr = session.stderr_tail
        if not stderr.strip():
            return f". {advice_of_silence(command)}" if reason == EXITED else ""
        line, text = telling_line(stderr), ""
        if len(line) > _MAX_LINE:
            line = f"{cut_at_word(line, _MAX_LINE)} …"
        if line:
            text = f", with this on its stderr: {line}"
        advice = advice_of_stderr(stderr, command)
        if not advice and "No module named" in stderr and self._config is not None:
            other = other_python(self._config)
            if other is not None:
                advice = f"It runs with {other}, and this session with {sys.executable}"
        return f"{text}. {advice}" if advice else text

    def _of_address(self) -> str:
        """Say what helps if nothing was found at an address that has no path."""
        http = self.session.context.http if self.session is not None else None
        if http is None or self._config is None:
            return ""
        refused = http.status_since(self._started_at) in (404, 405)
        if not refused or urlsplit(self._config.url or "").path not in ("", "/"):
            return ""
        return ". The address has no path, and most servers answer at /mcp"

    async def _open_session(self) -> None:
        # Time spent waiting for a slot is not its own.
        self._started_at = asyncio.get_running_loop().time()
        await asyncio.to_thread(import_sdks, in_process=self.mode.transport == "in-process")
        if self.session is not None:
            await self.session.close()
            self.session = None
        start = asyncio.get_running_loop().time()
        deadline = start + self._limit
        try:
            await self._open_in(self.mode, deadline)
        except Exception as error:
            fallback = self._fallback_mode(error, start, deadline)
            if fallback is None or self.session is None:
                raise
            reason = self._start_reason(error, start)
            await self._end_session(self.session, grace=0)
            await self._open_fallback(fallback, deadline, reason)

    async def _open_in(self, mode: ConnectMode, deadline: float) -> None:
        from casual_mcp_nb.servers.mcp_session import McpSession

        self.check_open()
        connection = self._connection
        person = PersonToAsk(
            self._name, connection.sign_in, connection.deadlines.waiting_for_a_person, self._learn
        )
        context = await open_transport(
            mode.transport, self._config, self._server, self._secrets, person
        )
        if self._closed:
            context.release()
            raise closed_error(self._name)
        if context.stderr is not None:
            context.stderr.on_chunk = connection.log.stderr()
        self.session = McpSession(
            self._name, context, connection, self._lost, mode.protocol, self._limit, self._config
        )
        async with connection.deadlines.within(deadline) as limit:
            await self.session.open()
            # A sign-in does not count.
            deadline = limit.when() or deadline
        await connection.session_opened(deadline)
        if not self.session.alive:
            raise ConnectionError(
                self.session.broken_reason or "it ended right after the handshake"
            )

    async def _open_fallback(self, mode: ConnectMode, deadline: float, first_reason: str) -> None:
        start = asyncio.get_running_loop().time()
        try:
            await self._open_in(mode, deadline)
        except Exception as error:
            if mode.transport == self.mode.transport:
                raise
            reason = self._start_reason(error, start)
            raise _BothFailed(
                f"{first_reason}. The older transport {mode.transport} failed as well: {reason}"
            ) from None
        self.mode = mode

    def _fallback_mode(self, error: Exception, start: float, deadline: float) -> ConnectMode | None:
        enough_time = deadline - asyncio.get_running_loop().time() > self._limit / 2
        if (
            self.session is None
            or self._closed
            or isinstance(error, TimeoutError)
            or not enough_time
        ):
            return None
        http = self.session.context.http
        if (
            self.mode.transport == "http"
            and self._config is not None
            and self._config.transport is None
            and http is not None
        ):
            status = http.status_since(start)
            if status in NOT_STREAMABLE:
                note = (
                    f"Its address does not take streamable HTTP (HTTP {status}), so the older SSE"
                    " transport is used."
                )
                advice = f"Set servers.{self._name}.transport to sse to skip the attempt."
                return replace(self.mode, transport="sse", note=f"{note} {advice}")
        if (
            self.mode.transport == "stdio"
            and self.mode.protocol == "auto"
            and self.session.negotiation.failure == "ended"
        ):
            note = (
                "It exited on the request for its protocol versions, so it was restarted with the"
                " older handshake."
            )
            return self._legacy_mode(note)
        return None

    def _may_return(self, error: Exception) -> bool:
        """Check whether a remote server that was ready has only gone away for a moment, as one does
        that restarts.

        It is tried again at each use, so that must not take long.
        """
        http = self.session.context.http if self.session is not None else None
        if http is None or not self._was_ready or self._closed or isinstance(error, TimeoutError):
            return False
        status = http.status_since(self._started_at)
        return status is None or status >= 500

    def _end_session(self, session: McpSession, **grace: float) -> asyncio.Future[None]:
        task = asyncio.create_task(session.close(**grace))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return asyncio.shield(task)

    def _learn(self, secrets: Collection[str]) -> None:
        """Mask the secrets of a sign-in, which a server could repeat."""
        self._connection.learn(secrets)
        if self.session is not None:
            self.session.context.redact.learn(secrets)
        keep_out_of_log(secrets)

    def _lost(self, session: McpSession) -> None:
        self._end_session(session)
        if session is self.session and self.state == "ready":
            self._set(
                "failed", f"{session.broken_reason or ENDED}. It is started again at its next use"
            )

    def check_open(self) -> None:
        """Raise ClosedError after `close`."""
        if self._closed:
            raise closed_error(self._name)

    def _connect_error(self) -> ConnectError:
        tail = ""
        if self.session:
            tail = self.session.stderr_tail
        return connect_error(
            self._name, shown_address(self._config, self._secrets), self.error, tail
        )

    def _start_reason(self, error: Exception, start: float) -> str:
        if isinstance(error, _BothFailed):
            return str(error)
        reason, stray_output = root_cause(error, self._secrets), None
        if self.session is not None:
            stray_output = self.session.stray_output
            reason = self.session.broken_reason or self.session.context.explain(reason, start)
        limit = setting = ""
        if isinstance(error, TimeoutError):
            limit = f"{self._limit:g} s"
        if self._config is not None:
            setting = f"servers.{self._name}.init_timeout"
        return start_reason(
            self._with_advice(reason, error),
            process=self.mode.transport == "stdio",
            limit=limit,
            setting=setting,
            stray_output=stray_output,
        )

    def _with_advice(self, reason: str, error: Exception) -> str:
        """Add the variable at fault if the address is not reached, or if a proxy answers in its
        place.
        """
        hint = ""
        if isinstance(error, ConfigError):
            hint = error.hint
        url = self._config.url if self._config is not None else None
        if not hint and url and reason.startswith(("it cannot be reached", *_FROM_PROXIES)):
            hint = connection_advice(url, reason)
        if hint:
            return f"{reason.rstrip('.')}. {hint.rstrip('.')}"
        return reason

    def _set(self, state: ServerState, error: str | None = None) -> None:
        self.state, self.error = state, error
        self._connection.changed()


def import_sdks(in_process: bool = False) -> None:
    """Import what a session needs.

    The first call takes up to two seconds, so run it on a worker thread.
    """
    from casual_mcp_nb.servers import mcp_session as _session  # noqa: F401

    if in_process:
        import fastmcp.server.server  # noqa: F401

    route_library_logs()
