"""Follow a turn event by event, on another event loop than the one on which it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

from casual_mcp_nb.conversation.event import Event

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.turn import Trace


class Follower:
    """Iterates over a trace's events as they arrive. Unread ones wait in the trace.

    It belongs to the event loop that created it.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._ended = False

    def on_event(self, event: Event) -> None:
        """Wake the iterator. Called for each event, on whatever thread adds it."""
        # One wake-up is enough for whatever came since the last one.
        if not self._wake.is_set():
            # A turn can outlive the follower's loop.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake.set)

    def on_end(self, _: object) -> None:
        """Let the iterator end after the last event. Called on the follower's own loop."""
        self._ended = True
        self._wake.set()

    async def __aiter__(self) -> AsyncIterator[Event]:
        count = 0
        while True:
            self._wake.clear()
            ended = self._ended
            for event in self._trace.since(count):
                count += 1
                yield event
            if ended:
                return
            if not self._ended and count == len(self._trace):
                await self._wake.wait()
