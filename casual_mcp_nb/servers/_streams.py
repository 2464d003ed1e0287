"""A session's message streams, recorded as the messages pass."""

from __future__ import annotations

from typing import Any, Self

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification
from pydantic import ValidationError

from casual_mcp_nb.servers.message_limits import answer_to_unreadable
from casual_mcp_nb.servers.wire import SENT, WireLog

MAX_PROGRESS = 2**63


class _Recorded:
    def __init__(self, stream: Any, wire: WireLog) -> None:
        self._stream = stream
        self._wire = wire

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


class Received(_Recorded):
    """A message stream that is recorded as it arrives. An unreadable answer becomes an error."""

    @property
    def last_context(self) -> Any:
        """The sender's context, which in-process streams have."""
        return getattr(self._stream, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._noted(await self._stream.__anext__())

    async def receive(self) -> Any:
        return self._noted(await self._stream.receive())

    def _noted(self, item: Any) -> Any:
        reply = answer_to_unreadable(item) if isinstance(item, ValidationError) else None
        if reply:
            item = SessionMessage(JSONRPCError.model_validate(reply))
        if isinstance(item, SessionMessage):
            _bound_progress(item.message)
            self._wire.add("received", item.message, self.last_context)
        return item


def _bound_progress(message: Any) -> None:
    """Bound the numbers of a progress notification.

    The SDK makes floats of them, and JSON has integers that none can hold.
    """
    if not isinstance(message, JSONRPCNotification) or message.method != "notifications/progress":
        return
    for name, value in (message.params or {}).items():
        if isinstance(value, int) and abs(value) > MAX_PROGRESS and message.params is not None:
            message.params[name] = MAX_PROGRESS


class Sent(_Recorded):
    """A message stream that is recorded as it is sent, for the HTTP exchange that carries it."""

    async def send(self, item: Any) -> None:
        token = SENT.set(self._wire.add("sent", item.message))
        try:
            await self._stream.send(item)
        finally:
            SENT.reset(token)
