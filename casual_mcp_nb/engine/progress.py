"""The progress of a running call, thinned out: a server can report it thousands of times a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Report = tuple[float, float | None, str | None]

SECONDS_BETWEEN = 0.1
REPORTS_AT_FULL_RATE = 100
"""After so many reports, and after each further so many, the time between two of them doubles."""
MAX_MESSAGE = 1_000


class ProgressThrottle:
    """Passes on the first report, the last one, and of the others as many as a person can follow.

    A call of ten minutes passes on about 600 reports, one of a day about 1,300.

    Args:
        emit: Takes each report that is passed on.
    """

    def __init__(self, emit: Callable[[Report], None]) -> None:
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        self._next = 0.0
        self._pending: Report | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._passed = 0
        self.received = 0

    @property
    def left_out(self) -> int:
        """How many reports were not passed on."""
        return self.received - self._passed

    def take(self, progress: float, total: float | None, message: str | None) -> None:
        """Take the next report."""
        self.received += 1
        self._pending = (progress, total, message[:MAX_MESSAGE] if message else message)
        if self._loop.time() >= self._next:
            self._pass()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._next, self._pass)

    def close(self) -> None:
        """Pass on the last report, if it still waits."""
        self._pass()

    def _pass(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending is None:
            return
        report, self._pending = self._pending, None
        self._next = self._loop.time() + SECONDS_BETWEEN * 2 ** (self._passed // REPORTS_AT_FULL_RATE)
        self._passed += 1
        self._emit(report)
