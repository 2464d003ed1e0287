"""Deadlines of calls, which progress extends, and which pause while a server waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from casual_mcp_nb.types.sampling import MAX_SAMPLES
from casual_mcp_nb.types.server import ServerConfig
from casual_mcp_nb.types.time_limit import TimeLimit

OnProgress = Callable[[float, float | None, str | None], None]


@dataclass(frozen=True)
class CallLimits:
    """Time limits in seconds: for start, handshake and listing; for a call since its last progress; for a whole call."""

    init: float = 20.0
    call: float = 60.0
    total: float = 600.0

    @classmethod
    def of(cls, config: ServerConfig | None) -> CallLimits:
        """Read a config's limits, with defaults for missing ones."""
        return cls(config.init_timeout, config.call_timeout, config.total_timeout) if config else cls()


class CallTimeout(Exception):
    """A call reached a time limit, with the seconds and the config field that sets it."""

    def __init__(self, seconds: float, field: str) -> None:
        super().__init__(f"no result in {seconds:.3g} s")
        self.seconds = seconds
        self.field = field


class CallDeadline(TimeLimit):
    """The deadline of one running call: a context manager around it.

    The server is notified when a limit is reached or the caller is cancelled.

    Args:
        limits: The limits.
        running: The deadlines of the server's running calls.

    Raises:
        CallTimeout: A limit was reached.
    """

    def __init__(self, limits: CallLimits, running: CallDeadlines) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._running = running
        self.start = self._loop.time()
        self._end = self.start + limits.total
        self._paused_at: float | None = None
        self.samples = 0
        super().__init__(min(self.start + limits.call, self._end))

    def __enter__(self) -> Self:
        self._running.add(self)
        return super().__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        self._running.discard(self)
        try:
            super().__exit__(*exc_info)
        except TimeoutError:
            raise CallTimeout(self._loop.time() - self.start, self.field) from None

    @property
    def field(self) -> str:
        """The config field whose limit is reached first."""
        return "total_timeout" if self.deadline == self._end else "call_timeout"

    def reset(self) -> None:
        """Restart the time of a call, within the limit of the whole call."""
        if self._paused_at is None and not self.expired:
            self.move(min(self._loop.time() + self._limits.call, self._end))

    def pause(self) -> None:
        """Stop counting."""
        if self._paused_at is None and not self.expired:
            self._paused_at = self._loop.time()
            self.move(None)

    def resume(self) -> None:
        """Resume counting; the pause does not count."""
        if self._paused_at is not None:
            self._end += self._loop.time() - self._paused_at
            self._paused_at = None
            self.reset()


class CallDeadlines(set[CallDeadline]):
    """The deadlines of the running calls of one server."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = 0
        self._until_empty: list[asyncio.Future[None]] = []

    def discard(self, deadline: object, /) -> None:
        """Remove the deadline of a call that has ended."""
        super().discard(deadline)
        if not self:
            for future in self._until_empty:
                if not future.done():
                    future.set_result(None)
            self._until_empty.clear()

    def take_sample(self) -> bool:
        """Count a server's request for an answer of the model; return whether its running calls leave room for one."""
        # It is unknown which call it belongs to.
        call = min(self, key=lambda call: call.samples, default=None)
        if call is None or call.samples >= MAX_SAMPLES:
            return False
        call.samples += 1
        return True

    def until_empty(self) -> asyncio.Future[None]:
        """Create a future that is done when the last running call has ended; never done if none is running."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self:
            self._until_empty.append(future)
        return future

    @contextmanager
    def waiting_for_a_person(self) -> Iterator[None]:
        """Pause all deadlines in the body, because it is unknown which call a server's question belongs to."""
        self._waiting += 1
        for deadline in self:
            deadline.pause()
        try:
            yield
        finally:
            self._waiting -= 1
            for deadline in () if self._waiting else self:
                deadline.resume()
