"""The events of a turn on the loop of whoever follows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from casual_mcp_nb.types.event import Event
    from casual_mcp_nb.types.trace import Trace


class Follower:
    """Gives the events of a trace as they come. What comes faster than it is read waits in the trace, which has it anyway.

    Belongs to the loop on which it was made.

    Args:
        trace: The trace; events may be added on another thread.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._ended = False

    def on_event(self, event: Event) -> None:
        """Take note that there is an event; called on whatever thread adds it."""
        # One wake-up is enough for whatever came since the last one.
        if not self._news.is_set() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    def on_end(self, _: object) -> None:
        """Take note that nothing more comes; called on the follower's own loop."""
        self._ended = True
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[Event]:
        seen = 0
        while True:
            self._news.clear()
            ended = self._ended
            for event in self._trace.since(seen):
                seen += 1
                yield event
            if ended:
                return
            if not self._ended and seen == len(self._trace):
                await self._news.wait()
