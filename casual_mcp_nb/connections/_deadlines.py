"""A call with limits that progress moves, and that stand still while its server waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.types.server import ServerConfig

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from casual_mcp_nb.connections._mcp_session import McpSession

OnProgress = Callable[[float, float | None, str | None], None]


@dataclass(frozen=True)
class CallLimits:
    """Limits in seconds: of start, handshake and listing; of a call without progress; of a call altogether."""

    init: float = 20.0
    call: float = 60.0
    total: float = 600.0

    @classmethod
    def of(cls, config: ServerConfig | None) -> CallLimits:
        """The limits of a config, or the defaults."""
        return cls(config.init_timeout, config.call_timeout, config.total_timeout) if config else cls()


class CallTimeout(Exception):
    """A call was given up: after how many seconds, and the field of the config that says so."""

    def __init__(self, seconds: float, field: str) -> None:
        super().__init__(f"no result in {seconds:.3g} s")
        self.seconds = seconds
        self.field = field


class CallDeadline:
    """The limits of one running call."""

    def __init__(self, limits: CallLimits) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self.start = self._loop.time()
        self._end = self.start + limits.total
        self._stopped_at: float | None = None
        self.timer = asyncio.timeout_at(self._next())

    @property
    def field(self) -> str:
        """The field of the config whose limit it runs into."""
        return "total_timeout" if self.timer.when() == self._end else "call_timeout"

    def reset(self) -> None:
        """Give the server the time of a call anew, as long as the whole allows it."""
        if self._stopped_at is None and not self.timer.expired():
            self.timer.reschedule(self._next())

    def pause(self) -> None:
        """Let no limit be reached."""
        if self._stopped_at is None and not self.timer.expired():
            self._stopped_at = self._loop.time()
            self.timer.reschedule(None)

    def resume(self) -> None:
        """Count again; the time in between does not count."""
        if self._stopped_at is not None:
            self._end += self._loop.time() - self._stopped_at
            self._stopped_at = None
            self.reset()

    def _next(self) -> float:
        return min(self._loop.time() + self._limits.call, self._end)


class CallDeadlines(set[CallDeadline]):
    """The clocks of the running calls of one server."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = 0
        self._until_empty: list[asyncio.Future[None]] = []

    def discard(self, clock: object, /) -> None:
        """Take out the clock of a call that has ended."""
        super().discard(clock)
        if not self:
            for waiting in self._until_empty:
                if not waiting.done():
                    waiting.set_result(None)
            self._until_empty.clear()

    def until_empty(self) -> asyncio.Future[None]:
        """Is done when the calls that run now, and those that begin meanwhile, have ended; never where none runs now."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self:
            self._until_empty.append(waiting)
        return waiting

    @contextmanager
    def waiting_for_a_person(self) -> Iterator[None]:
        """Let them stand still in the body: which of its calls a server asks for, nobody knows."""
        self._waiting += 1
        for clock in self:
            clock.pause()
        try:
            yield
        finally:
            self._waiting -= 1
            for clock in () if self._waiting else self:
                clock.resume()


async def limited_call(
    link: McpSession,
    limits: CallLimits,
    clocks: CallDeadlines,
    name: str,
    arguments: Mapping[str, Any],
    on_progress: OnProgress | None = None,
    meta: Mapping[str, Any] | None = None,
) -> CallToolResult:
    """Call a tool within its limits; the server is told when one is reached or the caller is cancelled.

    Raises:
        CallTimeout: A limit was reached.
        Exception: Whatever the libraries raise.
    """
    clock = CallDeadline(limits)
    clocks.add(clock)

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        clock.reset()
        if on_progress is not None:
            on_progress(progress, total, link.route.mask(message) if message else message)

    try:
        async with clock.timer:
            return await link.client.call_tool_mcp(
                name, dict(arguments), progress_handler=progressed, meta=dict(meta) if meta else None
            )
    except TimeoutError:
        if not clock.timer.expired():
            raise
        raise CallTimeout(asyncio.get_running_loop().time() - clock.start, clock.field) from None
    finally:
        clocks.discard(clock)
