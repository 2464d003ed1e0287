"""An HTTP server on the loop of the engine: no further thread, and an end that leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextvars
import socket

import uvicorn
from starlette.types import ASGIApp

from casual_mcp_nb.errors import UsageError, brief, shown
from casual_mcp_nb.serve.connection import ServiceProtocol

MAX_PORT = 65_535
KEEP_ALIVE_SECONDS = 15
END_SECONDS = 2.0
"""How long responses have to be read when the server ends."""


def bound_socket(host: str, port: int) -> socket.socket:
    """Bind a socket to an address; port 0 is any free one.

    Raises:
        UsageError: The address does not exist, or is in use.
    """
    # The resolver would take what is left of a larger number.
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= MAX_PORT:
        raise UsageError(f"port cannot be {brief(port)}.", hint=f"It must be 0 to {MAX_PORT}; 0 takes a free one.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(f"Cannot serve at {shown(host)}: {error}.") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # A head and its body are two writes: without it, the second would wait 40 ms for the acknowledgement of the first.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bound.bind(address)
    except (OSError, OverflowError) as error:
        bound.close()
        reason = error.strerror if isinstance(error, OSError) else error
        hint = "Give another port; port=0 takes a free one."
        raise UsageError(f"Cannot serve at {shown(host)}, port {port}: {reason}.", hint=hint) from None
    return bound


class Listener(uvicorn.Server):
    """Serves an application at a socket; its coroutines run on the engine's loop.

    Args:
        app: The application.
        bound: The socket; it is closed in the end.
        owner: What is kept from being collected while it serves.
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
        """Serve until `end`; returns as soon as clients can connect."""
        # Not in the caller's context: functions of the notebook would wait for the cell that has begun this.
        self._serving = asyncio.create_task(self.serve([self._bound]), context=contextvars.Context())
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
