"""Time limits on work that usually ends long before them: one timer of the event loop serves them all."""

from __future__ import annotations

import asyncio
import math
import threading
from types import TracebackType
from typing import Self

_here = threading.local()


class TimeLimit:
    """Limits the time of its body as `asyncio.timeout_at` does: cancels the task at a deadline, and raises TimeoutError.

    asyncio sets and cancels a timer for each body. Here a timer that is left of an earlier body is used again, because most
    bodies end in a thousandth of their time; a call of a tool has two around it.

    Args:
        deadline: When, on the clock of the running loop; None for never.

    Attributes:
        deadline: As given, or as set with `move`.
        expired: Whether the deadline was reached within the body.
    """

    def __init__(self, deadline: float | None) -> None:
        self.deadline = deadline
        self.expired = False

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit is only for tasks")
        self._task, self._cancelling = task, task.cancelling()
        loop = asyncio.get_running_loop()
        timer: _Timer | None = getattr(_here, "timer", None)
        if timer is None or timer.loop is not loop:
            _here.timer = timer = _Timer(loop)
        self._timer = timer
        timer.limits.add(self)
        if self.deadline is not None and self.deadline < timer.at:
            timer.set(self.deadline)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._timer.limits.discard(self)
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def move(self, deadline: float | None) -> None:
        """Set another deadline.

        Args:
            deadline: When, on the loop's clock; None for never.
        """
        self.deadline = deadline
        if deadline is not None and deadline < self._timer.at:
            self._timer.set(deadline)

    def expire(self) -> None:
        """Cancel the body."""
        self.expired = True
        self._task.cancel()


class _Timer:
    """The timer of a loop, set for a deadline of these limits or for an earlier one that is no longer needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.limits: set[TimeLimit] = set()
        self.at = math.inf
        self._handle: asyncio.TimerHandle | None = None

    def set(self, deadline: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self.at = deadline
        self._handle = self.loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self.at, self._handle = math.inf, None
        now = self.loop.time()
        waiting = [(limit.deadline, limit) for limit in self.limits if limit.deadline is not None and not limit.expired]
        waiting.sort(key=lambda pair: pair[0])
        for deadline, limit in waiting:
            if deadline <= now:
                limit.expire()
        if later := [deadline for deadline, _ in waiting if deadline > now]:
            self.set(min(later))
