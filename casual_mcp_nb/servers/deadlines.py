"""The time limits of calls: progress extends them, and questions pause them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Self

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.mcp import MAX_SAMPLES


@dataclass(frozen=True)
class CallLimits:
    """Time limits in seconds: for start, handshake and listing, for a call since its last progress,
    and for a whole call.

    `task_wait` is how long a call waits for the task that it became.
    """

    init: float = 20.0
    call: float = 60.0
    total: float = 600.0
    task_wait: float = 5.0

    @classmethod
    def of(cls, config: ServerConfig | None) -> CallLimits:
        """Read a config's limits, with defaults for missing ones."""
        if config is None:
            return cls()
        return cls(config.init_timeout, config.call_timeout, config.total_timeout, config.task_wait)


class CallTimeout(Exception):
    """A call reached a time limit, with the seconds and the config field that sets it."""

    def __init__(self, seconds: float, field: str) -> None:
        super().__init__(f"no result in {seconds:.3g} s")
        self.seconds = seconds
        self.field = field


class CallDeadline:
    """One running call's deadline: a context manager around it, which raises CallTimeout at a
    limit.

    The server is notified then, and when the caller is cancelled.
    """

    def __init__(self, limits: CallLimits, running: CallDeadlines) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._running = running
        self.start = self._loop.time()
        self._end = self.start + limits.total
        self._paused_at: float | None = None
        self.samples = 0
        self._timeout = asyncio.timeout_at(min(self.start + limits.call, self._end))

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._running.add(self)
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        self._running.discard(self)
        try:
            await self._timeout.__aexit__(*exc_info)
        except TimeoutError:
            raise CallTimeout(self._loop.time() - self.start, self.field) from None

    @property
    def field(self) -> str:
        """The config field whose limit is reached first."""
        if self._timeout.when() == self._end:
            return "total_timeout"
        return "call_timeout"

    def reset(self) -> None:
        """Restart a call's time limit, within the limit for the whole call."""
        if self._paused_at is None and self._is_running:
            self._timeout.reschedule(min(self._loop.time() + self._limits.call, self._end))

    def pause(self) -> None:
        """Stop counting."""
        if self._paused_at is None and self._is_running:
            self._paused_at = self._loop.time()
            self._timeout.reschedule(None)

    def resume(self) -> None:
        """Resume counting. The pause does not count."""
        if self._paused_at is not None:
            self._end += self._loop.time() - self._paused_at
            self._paused_at = None
            self.reset()

    @property
    def _is_running(self) -> bool:
        # A server may report progress after its call's end.
        return self in self._running and not self._timeout.expired()


class CallDeadlines(set[CallDeadline]):
    """The deadlines for a server's running calls."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = 0
        self._until_empty: list[asyncio.Future[None]] = []
        # Each with its end on the loop's clock, or with the seconds that are left while it is paused.
        self._timeouts: dict[asyncio.Timeout, float] = {}

    def add(self, deadline: CallDeadline, /) -> None:
        """Add a call's deadline when it has begun, paused while a question waits."""
        super().add(deadline)
        if self._waiting:
            deadline.pause()

    def discard(self, deadline: object, /) -> None:
        """Remove a call's deadline after it has ended."""
        super().discard(deadline)
        if not self:
            for future in self._until_empty:
                if not future.done():
                    future.set_result(None)
            self._until_empty.clear()

    def take_sample(self) -> bool:
        """Count a server's request for a model's answer.

        Return whether its running calls leave room for one.
        """
        # It is unknown which call it belongs to.
        call = min(self, key=lambda call: call.samples, default=None)
        if call is None or call.samples >= MAX_SAMPLES:
            return False
        call.samples += 1
        return True

    def until_empty(self) -> asyncio.Future[None]:
        """Create a future that is done when the last running call has ended.

        Never done if none is running.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self:
            self._until_empty.append(future)
        return future

    @asynccontextmanager
    async def within(self, end: float) -> AsyncIterator[asyncio.Timeout]:
        """Limit the body to a time on the loop's clock, which is paused with the others.

        TimeoutError when it is over.
        """
        async with asyncio.timeout_at(end) as timeout:
            self._timeouts[timeout] = end
            if self._waiting:
                self._pause(timeout)
            try:
                yield timeout
            finally:
                del self._timeouts[timeout]

    @contextmanager
    def waiting_for_a_person(self) -> Iterator[None]:
        """Pause all deadlines in the body, because it is unknown which call a server's question
        belongs to.
        """
        if not self._waiting:
            self._pause_all()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._resume_all()

    def _pause_all(self) -> None:
        for deadline in self:
            deadline.pause()
        for timeout in self._timeouts:
            self._pause(timeout)

    def _resume_all(self) -> None:
        for deadline in self:
            deadline.resume()
        now = asyncio.get_running_loop().time()
        for timeout, left in self._timeouts.items():
            if not timeout.expired():
                timeout.reschedule(now + left)

    def _pause(self, timeout: asyncio.Timeout) -> None:
        end = timeout.when()
        if end is not None and not timeout.expired():
            self._timeouts[timeout] = end - asyncio.get_running_loop().time()
            timeout.reschedule(None)
