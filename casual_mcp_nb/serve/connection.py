"""One connection of a client, which may be slow, broken or hostile, without costing the others anything."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from casual_mcp_nb.serve.problems import ProblemError

logger = logging.getLogger(__name__)

HEAD_SECONDS = 20.0
"""How long a client may take to send the head of a request."""
READ_BYTES = 8 * 1024
"""How much is read at a time: a body in chunks of one byte takes 20 microseconds for each, all in one callback of the loop."""
READ_SECONDS = 30.0
"""How long a client may read nothing of a response."""


class ServiceProtocol(H11Protocol):
    """A connection of uvicorn with two more time limits: for a request to arrive, and for a client to read the response.

    Whoever exceeds one is disconnected.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = logger
        self._arrival: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

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
        """Wait for a client that does not read."""
        super().pause_writing()
        self._reading = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Write on."""
        if self._reading is not None:
            self._reading.cancel()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP with a problem like any other."""
        response = ProblemError(400, "invalid_http", msg).response()
        head = h11.Response(status_code=400, headers=[*response.raw_headers, (b"connection", b"close")], reason=b"Bad Request")
        for event in (head, h11.Data(data=bytes(response.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _await_request(self) -> None:
        waiting = self.cycle is None or self.cycle.response_complete
        if waiting and self._arrival is None:
            self._arrival = self.loop.call_later(HEAD_SECONDS, self.transport.abort)
        elif not waiting and self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None
