"""Live displays: updated in place, and static HTML when the work has ended."""

from __future__ import annotations

import contextvars
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.throttle import Throttle
from casual_mcp_nb.types.displayable import display
from casual_mcp_nb.types.event import Event, StepFinished, StepStarted, TextDelta, ToolFinished, ToolStarted, TurnStarted
from casual_mcp_nb.types.trace import Turn

if TYPE_CHECKING:
    from casual_mcp_nb.types.displayable import Detail

Echo = Literal["none", "text", "output", "all"]
"""What a cell shows of a turn: nothing, only the answer, the usual display, or everything unfolded."""

_SECONDS_BETWEEN_UPDATES = 0.1
_MODEL = ""
"""Represents the model call among the ids of running calls."""
_STARTING = {"text/plain": "Starting …", "text/html": "<em>Starting …</em>"}
_NOTHING = {"text/plain": "", "text/html": ""}


def check_echo(echo: str) -> None:
    """Check an echo level.

    Raises:
        UnknownNameError: There is no such level.
    """
    if echo not in get_args(Echo):
        raise UnknownNameError("echo level", echo, get_args(Echo))


class LiveDisplay(ABC):
    """A display in a cell that is updated in place while something runs.

    Create it on the kernel's thread, in its cell; after that only the handle is updated, from other threads.

    Args:
        engine: The thread on which it runs.
        ticking: Whether to draw once a second even if nothing changed.
    """

    def __init__(self, engine: EngineThread, ticking: Callable[[], bool]) -> None:
        from IPython.display import DisplayHandle

        self._lock = threading.Lock()
        self._ended = False
        self._shown: dict[str, str] = {}
        # The kernel finds the cell that an output belongs to by the context.
        paint = partial(contextvars.copy_context().run, self._paint)
        self._throttle = Throttle(engine, paint, _SECONDS_BETWEEN_UPDATES, ticking)
        self._handle = DisplayHandle()  # type: ignore[no-untyped-call]
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
        """Show how it ended; called on the thread that waited for it."""
        self._throttle.end()
        with self._lock:
            self._ended = True
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
        engine: The thread on which the turn runs.
        turn: The turn to show; it may not have begun yet.
        detail: How much of it is shown.
        streamed: Whether text is shown as it arrives; otherwise at the end of each step.
    """

    def __init__(self, engine: EngineThread, turn: Turn, detail: Detail = "output", *, streamed: bool = True) -> None:
        self._turn = turn
        self._detail: Detail = detail
        self._streamed = streamed
        self._running: set[str] = set()
        self._silent = False
        self._started = 0.0
        super().__init__(engine, lambda: bool(self._running))

    def on_event(self, event: Event) -> None:
        """Record an event; called on the engine's loop.

        The first text of each step is drawn immediately, everything else at most ten times a second.
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
        return display().turn_bundle(self._turn, self._detail) if self._turn.trace.of(TurnStarted) else _NOTHING
