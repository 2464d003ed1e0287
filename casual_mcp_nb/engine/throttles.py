"""Limits on how often something is drawn or reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Report = tuple[float, float | None, str | None]
"""How far a call has got, the total if it is known, and a message if there is one."""

REPORT_SECONDS = 0.1

REPORTS_AT_FULL_RATE = 100
"""After this many reports, and after each further as many, the time between two of them doubles."""

MAX_MESSAGE = 1_000


class LoopThrottle:
    """Calls a function as soon as there is a request and enough time has passed since the last
    call.

    Args:
        interval: The seconds to wait after a call, as a function of the call count.
    """

    def __init__(self, function: Callable[[], None], interval: Callable[[int], float]) -> None:
        self._function = function
        self._interval = interval
        self._loop = asyncio.get_running_loop()
        self._next = 0.0
        self._requested = False
        self._timer: asyncio.TimerHandle | None = None
        self.calls = 0

    def request(self, immediately: bool = False) -> None:
        """Request a call."""
        self._requested = True
        if immediately or self._loop.time() >= self._next:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._next, self.flush)

    def flush(self) -> None:
        """Make the requested call, if it is still pending."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._requested:
            return
        self._requested = False
        self.calls += 1
        self._next = self._loop.time() + self._interval(self.calls)
        self._function()


class ProgressThrottle:
    """Passes on the first and the last report of a call's progress, and as many others as a person
    can follow.

    A ten-minute call passes on about 600 reports, a day-long one about 1,300.
    """

    def __init__(self, emit: Callable[[Report], None]) -> None:
        self._emit = emit
        self._last: Report = (0.0, None, None)
        self._throttle: LoopThrottle | None = None
        self.received = 0

    @property
    def left_out(self) -> int:
        """How many reports were dropped."""
        return self.received - (self._throttle.calls if self._throttle else 0)

    def add(self, progress: float, total: float | None, message: str | None) -> None:
        """Add the next report."""
        self.received += 1
        self._last = (progress, total, message[:MAX_MESSAGE] if message else message)
        if self._throttle is None:
            # Few calls report anything.
            self._throttle = LoopThrottle(self._emit_last, _report_interval)
        self._throttle.request()

    def close(self) -> None:
        """Emit the last report, if it is still pending."""
        if self._throttle is not None:
            self._throttle.flush()

    def _emit_last(self) -> None:
        self._emit(self._last)


def _report_interval(reports: int) -> float:
    return float(REPORT_SECONDS * 2 ** ((reports - 1) // REPORTS_AT_FULL_RATE))
