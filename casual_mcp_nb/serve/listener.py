"""The HTTP server of a service, on the engine's loop, with limits for clients that are slow."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import socket
import sys
from contextlib import suppress
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from casual_mcp_nb.errors import UsageError, brief, shown
from casual_mcp_nb.serve.turns import ProblemError

logger = logging.getLogger(__name__)

HEAD_SECONDS = 20.0
"""How long a client may take to send a request's head."""

READ_BYTES = 8 * 1024
"""How much is read at a time: a body in one-byte chunks takes 20 microseconds each, all in one loop
callback.
"""

READ_SECONDS = 30.0
"""How long a client may read nothing of its response. One that reads slowly is not limited."""


class ServiceProtocol(H11Protocol):
    """A uvicorn connection with two more time limits: `HEAD_SECONDS` for a request to arrive, and
    `READ_SECONDS` for a client that has stopped reading. After them, the connection is closed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = logger
        self._arrival: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        self._unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        with suppress(AttributeError):
            # Only asyncio's own transports have it.
            transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        self._await_request()

    def data_received(self, data: bytes) -> None:
        """Read on, and wait for the rest if it is not a whole head yet."""
        super().data_received(data)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the waiting."""
        for timer in (self._arrival, self._reading):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Stop writing until the client has read, and close the connection if it reads nothing."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """Write on."""
        if self._reading is not None:
            self._reading.cancel()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP with a problem like any other."""
        response = ProblemError(400, "invalid_http", msg).response()
        head = h11.Response(
            status_code=400,
            headers=[*response.raw_headers, (b"connection", b"close")],
            reason=b"Bad Request",
        )
        for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _await_reader(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._reading = self.loop.call_later(READ_SECONDS, self._check_reader)

    def _check_reader(self) -> None:
        """Wait on if the client has read something since the last check."""
        if self.transport.get_write_buffer_size() < self._unread:
            self._await_reader()
        else:
            self.transport.abort()

    def _await_request(self) -> None:
        waiting = self.cycle is None or self.cycle.response_complete
        if waiting and self._arrival is None:
            self._arrival = self.loop.call_later(HEAD_SECONDS, self.transport.abort)
        elif not waiting and self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None


MAX_PORT = 65_535

KEEP_ALIVE_SECONDS = 15

END_SECONDS = 2.0
"""How long responses have to be read when the server ends."""


def bound_socket(host: str, port: int) -> socket.socket:
    """Bind a socket to an address. Port 0 is any free one.

    A UsageError if the address does not exist, or is in use.
    """
    # The resolver would accept a larger number, cut.
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= MAX_PORT:
        raise UsageError(
            f"port cannot be {brief(port)}.",
            hint=f"It must be 0 to {MAX_PORT}, and 0 takes a free one.",
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(f"Cannot serve at {shown(host)}: {error}.") from None
    try:
        if sys.platform != "win32":
            # On Windows, it would let two services bind one port.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # A head and its body are two writes: without it, the second would wait 40 ms for the first
        # to be acknowledged.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.bind(address)
    except (OSError, OverflowError) as error:
        bound.close()
        reason = error.strerror if isinstance(error, OSError) else error
        hint = "Give another port, or port=0 for a free one."
        raise UsageError(
            f"Cannot serve at {shown(host)}, port {port}: {reason}.", hint=hint
        ) from None
    return bound


class Listener(uvicorn.Server):
    """Serves an application at a socket, and closes it when done. Keeps an owner alive meanwhile.

    Its coroutines run on the engine's loop.
    """

    def __init__(self, app: ASGIApp, bound: socket.socket, owner: object = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=ServiceProtocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
            )
        )
        self._bound = bound
        self._owner = owner
        self._ready = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self._ready.set()

    async def begin(self) -> None:
        """Serve until `end`. Returns as soon as clients can connect."""
        # Not in the caller's context: notebook functions would wait for the cell that began this.
        self._serving = asyncio.create_task(
            self.serve([self._bound]), context=contextvars.Context()
        )
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait({ready, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if self._serving.done():
            self._serving.result()

    async def end(self) -> None:
        """Accept nothing more, let clients read their answers, and close every connection."""
        if self._serving is None:
            self._bound.close()
            return
        self.should_exit = True
        await asyncio.wait({self._serving}, timeout=END_SECONDS)
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()
        await asyncio.wait({self._serving}, timeout=END_SECONDS)
        self._serving.cancel()
