"""Live displays: updated in place while work runs, and static HTML once it has ended."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.displayable import display
from casual_mcp_nb.base.iterables import attributes, field_names
from casual_mcp_nb.base.status import Servers, SessionStatus
from casual_mcp_nb.conversation.event import (
    Event,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.notebook.loop import EngineThread

if TYPE_CHECKING:
    from casual_mcp_nb.base.displayable import Detail


_TICK_SECONDS = 1.0

_log = logging.getLogger(__name__)


@cache
def drawing_thread() -> ThreadPoolExecutor:
    """Get the one thread that draws turns and widgets.

    Drawing on the engine's loop would hold up every connection.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="casual-mcp-display")


if hasattr(os, "register_at_fork"):
    # A fork copies no threads.
    os.register_at_fork(after_in_child=drawing_thread.cache_clear)


class Throttle:
    """Does some work on the drawing thread whenever it is requested, but not too often.

    Requests in between count as one. The work sees every change that was made before the last
    request. Drawing a long turn takes some 10 ms.

    Args:
        engine: The engine thread, which times the work.
        work: The work.
        seconds: The time that passes at least after one work before the next.
        ticking: Whether to work once a second even without a request, for a display in which time
            passes.
    """

    def __init__(
        self,
        engine: EngineThread,
        work: Callable[[], None],
        seconds: float,
        ticking: Callable[[], bool] = lambda: False,
    ) -> None:
        self._engine = engine
        self._work = work
        self._seconds = seconds
        self._ticking = ticking
        self._lock = threading.Lock()
        self._planned = False
        self._tick_planned = False
        self._ended = False
        self._next = 0.0
        self._waiting: list[Future[None]] = []

    def __call__(self, *, urgent: bool = False) -> None:
        """Request the work, from any thread. If urgent, it does not wait for `seconds` to pass."""
        with self._lock:
            if self._ended or (self._planned and not urgent):
                return
            self._planned = True
            wait = 0.0
            if not urgent:
                wait = self._next - time.monotonic()
        if wait > 0:
            self._engine.call_later(wait, self._start)
        else:
            self._start()

    async def settled(self) -> None:
        """Wait until the requested work is done.

        Return immediately if there is none, or at process exit.
        """
        done = Future[None]()
        with self._lock:
            is_planned = self._planned
            if is_planned:
                self._waiting.append(done)
        if not is_planned:
            # Work may be under way. There is only one thread for it, so wait for that.
            try:
                done = drawing_thread().submit(ignore)
            except RuntimeError:
                return
        await asyncio.wrap_future(done)

    def end(self) -> None:
        """Ignore all further requests."""
        self._ended = True

    def _start(self) -> None:
        # At process exit the thread accepts no more work.
        with suppress(RuntimeError):
            drawing_thread().submit(self._run)

    def _run(self) -> None:
        with self._lock:
            if not self._planned:
                # An urgent request has been served meanwhile.
                return
            self._planned = False
            self._next = time.monotonic() + self._seconds
            waiting, self._waiting = self._waiting, []
        try:
            if not self._ended:
                self._work()
        except Exception:
            _log.exception("A display could not be updated.")
        for done in waiting:
            if done.set_running_or_notify_cancel():
                done.set_result(None)
        if self._ticking() and not self._ended and not self._tick_planned:
            self._tick_planned = True
            self._engine.call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._tick_planned = False
        self()


class ShownInCell:
    """Mixin for values that a cell has shown already, and does not show again as its result."""

    _shell: Any
    _cell: int

    @classmethod
    def of(cls, value: Any, shell: Any) -> Any:
        """Copy a dataclass as one that the running cell shows already.

        Pickling restores the original class.
        """
        copy = cls(**attributes(value, field_names(value)))
        copy._shown_in(shell)
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        value: Any = self
        return type(self).__mro__[2], tuple(attributes(value, field_names(value)).values())

    def _shown_in(self, shell: Any) -> None:
        # Some models are frozen.
        object.__setattr__(self, "_shell", shell)
        object.__setattr__(self, "_cell", shell.execution_count)

    def _ipython_display_(self) -> None:
        if self._shell.execution_count == self._cell:
            return
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)  # type: ignore[attr-defined, no-untyped-call]


class ShownTurn(ShownInCell, Turn):
    """A turn that was shown live in its cell.

    Attributes:
        redraw: Draws it again after a change of one of its tasks.
    """

    def __init__(self, trace: Trace, shell: Any) -> None:
        super().__init__(trace)
        self.redraw: Callable[[], None] = ignore
        self._shown_in(shell)

    def __reduce__(self) -> tuple[type[Turn], tuple[Trace]]:
        return Turn, (self.trace,)


class ShownServers(ShownInCell, Servers):
    """Servers that were shown in their cell while they started."""

    def __init__(self, servers: Servers, shell: Any) -> None:
        super().__init__(dict(servers), servers.modes)
        self._shown_in(shell)

    def __reduce__(self) -> tuple[type[Servers], tuple[Any, ...]]:
        return Servers, (dict(self), self.modes)


class ShownStatus(ShownInCell, SessionStatus):
    """A session status that was shown in its cell."""


Echo = Literal["none", "text", "output", "all"]
"""A turn's output in a cell: nothing, only the answer, the usual display, or everything unfolded.
"""

_SECONDS_BETWEEN_UPDATES = 0.1
_MODEL = ""
_STARTING = {"text/plain": "Starting …", "text/html": "<em>Starting …</em>"}
_NOTHING = {"text/plain": "", "text/html": ""}


def check_echo(echo: str) -> None:
    """Raise an error unless there is such an echo level."""
    if echo not in get_args(Echo):
        raise UnknownNameError("echo level", echo, get_args(Echo))


class LiveDisplay(ABC):
    """A display in a cell that is updated in place while something runs.

    Create it on the kernel's thread, in its cell, and call `begin` there where an interrupt leads
    to `finish`. After that only the handle is updated, from other threads.
    """

    def __init__(self, engine: EngineThread, ticking: Callable[[], bool]) -> None:
        from IPython.display import DisplayHandle

        self._lock = threading.Lock()
        self._ended = False
        self._shown: dict[str, str] = {}
        # The kernel finds the cell that an output belongs to by the context.
        self._context = contextvars.copy_context()
        paint = partial(self._context.run, self._paint)
        self._throttle = Throttle(engine, paint, _SECONDS_BETWEEN_UPDATES, ticking)
        self._handle = DisplayHandle()  # type: ignore[no-untyped-call]

    def begin(self) -> None:
        """Show that it starts."""
        self._handle.display(_STARTING, raw=True)  # type: ignore[no-untyped-call]

    @property
    def handle(self) -> Any:
        """The display in the cell."""
        return self._handle

    @abstractmethod
    def _live(self) -> dict[str, str]:
        """Draw the display as it is now."""

    @abstractmethod
    def _final(self) -> dict[str, str]:
        """Draw the display that remains in the cell."""

    def finish(self) -> None:
        """Show how it ended. Called on the thread that waited for it.

        If that is interrupted, the drawing thread does it.
        """
        try:
            self._throttle.end()
            self._ended = True
            self._repaint()
        except KeyboardInterrupt:
            self._ended = True
            self.redraw()
            raise

    def redraw(self) -> None:
        """Draw changes since it ended, from any thread."""
        self.in_cell(self._repaint)

    def in_cell(self, work: Callable[[], object]) -> None:
        """Have the drawing thread do something in the cell's context.

        What that displays appears below this display. From any thread.
        """
        # At the end of the process the thread accepts no more work.
        with suppress(RuntimeError):
            drawing_thread().submit(self._context.copy().run, work)

    def _repaint(self) -> None:
        with self._lock:
            if self._ended:
                self._update(self._final())

    def _paint(self) -> None:
        bundle = self._live()
        with self._lock:
            if not self._ended and bundle != self._shown:
                self._shown = bundle
                self._update(bundle)

    def _update(self, bundle: dict[str, str]) -> None:
        self._handle.update(bundle, raw=True)  # type: ignore[no-untyped-call]


class LiveOutput(LiveDisplay):
    """Shows a turn while it runs.

    Args:
        engine: The engine thread.
        turn: The turn.
        detail: How much of it is shown.
        streamed: Whether its text is shown as it arrives, or only at each step's end.
    """

    def __init__(
        self, engine: EngineThread, turn: Turn, detail: Detail = "output", *, streamed: bool = True
    ) -> None:
        self._turn = turn
        self._detail: Detail = detail
        self._streamed = streamed
        self._running: set[str] = set()
        self._silent = False
        self._started = 0.0
        super().__init__(engine, lambda: bool(self._running))

    def on_event(self, event: Event) -> None:
        """Record an event. Called on the engine's loop.

        Each step's first text is drawn immediately, everything else at most ten times a second.
        """
        self._started = time.monotonic() - event.at
        first_text = self._silent and self._streamed and isinstance(event, TextDelta)
        match event:
            case StepStarted():
                self._running.add(_MODEL)
                self._silent = True
            case StepFinished():
                self._running.discard(_MODEL)
            case ToolStarted():
                self._running.add(event.call_id)
            case ToolFinished():
                self._running.discard(event.call_id)
            case TextDelta() if self._streamed:
                self._silent = False
            case TextDelta():
                return
        self._throttle(urgent=first_text)

    def _live(self) -> dict[str, str]:
        return display().live_bundle(self._turn, self._detail, time.monotonic() - self._started)

    def _final(self) -> dict[str, str]:
        if not self._turn.trace.of(TurnStarted):
            return _NOTHING
        return display().turn_bundle(self._turn, self._detail)
