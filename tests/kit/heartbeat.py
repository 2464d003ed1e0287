"""The longest time for which an event loop did nothing else."""

from __future__ import annotations

import asyncio
import time
from typing import Self

BEAT_SECONDS = 0.01


class Heartbeat:
    """Beats on a loop while the block runs; `longest` is the longest time in seconds that a beat was late.

    Args:
        loop: The loop to watch, which may run on another thread; None for the running one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.longest = 0.0
        self._loop = loop or asyncio.get_running_loop()
        self._due = 0.0
        self._stopped = False

    def __enter__(self) -> Self:
        self._due = time.monotonic()
        self._loop.call_soon_threadsafe(self._beat)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopped = True
        self._note()

    def _beat(self) -> None:
        if self._stopped:
            return
        self._note()
        self._due = time.monotonic() + BEAT_SECONDS
        self._loop.call_later(BEAT_SECONDS, self._beat)

    def _note(self) -> None:
        self.longest = max(self.longest, time.monotonic() - self._due)
