"""The display of a running turn: one handle, updated in place, static HTML when the turn ends."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.types.event import Event, StepFinished, StepStarted, TextDelta, ToolFinished, ToolStarted, TurnStarted
from casual_mcp_nb.types.trace import Turn

if TYPE_CHECKING:
    from casual_mcp_nb.display import Detail

Echo = Literal["none", "text", "output", "all"]
"""What a cell shows of a turn: nothing, the answer alone, the usual display, or everything unfolded."""

_SECONDS_BETWEEN_UPDATES = 0.1
_SECONDS_BETWEEN_TICKS = 1.0
_MODEL = ""
"""Stands for the model among the ids of calls that run."""
_STARTING = {"text/plain": "Starting …", "text/html": "<em>Starting …</em>"}
_NOTHING = {"text/plain": "", "text/html": ""}


def check_echo(echo: str) -> None:
    """Raise `UnknownNameError` for a word that is no echo level."""
    if echo not in get_args(Echo):
        raise UnknownNameError("echo level", echo, get_args(Echo))


@cache
def _painter() -> ThreadPoolExecutor:
    """The thread that draws: drawing on the engine thread would hold up every connection."""
    return ThreadPoolExecutor(1, thread_name_prefix="casual-mcp-display")


if hasattr(os, "register_at_fork"):
    # A fork copies no threads.
    os.register_at_fork(after_in_child=_painter.cache_clear)


class LiveOutput:
    """Shows a turn while it runs.

    Create it on the kernel's thread, in its cell; after that only the handle is updated, from other threads.

    Args:
        turn: The turn to show; it can be one that has not begun.
        detail: How much of it is shown.
        streamed: Whether text is shown as it arrives; otherwise at the end of each step.
    """

    def __init__(self, turn: Turn, detail: Detail = "output", *, streamed: bool = True) -> None:
        from IPython.display import DisplayHandle

        self._turn = turn
        self._detail: Detail = detail
        self._streamed = streamed
        self._lock = threading.Lock()
        self._ended = False
        self._running: set[str] = set()
        self._silent = False
        self._pending: asyncio.TimerHandle | None = None
        self._painting: Future[None] | None = None
        self._next = 0.0
        self._began = 0.0
        self._shown: dict[str, str] = {}
        # The kernel finds the cell that an output belongs to by the context.
        self._context = contextvars.copy_context()
        self._handle = DisplayHandle()  # type: ignore[no-untyped-call]
        self._handle.display(_STARTING, raw=True)  # type: ignore[no-untyped-call]

    @property
    def handle(self) -> Any:
        """The display in the cell."""
        return self._handle

    def on_event(self, event: Event) -> None:
        """Take note of an event; called on the engine's loop. Steps and the first text of each are drawn at once, the rest at
        most ten times a second."""
        loop = asyncio.get_running_loop()
        self._began = loop.time() - event.at
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
            case TextDelta() if not self._streamed:
                return
        if isinstance(event, TextDelta) and self._silent:
            self._silent = False
            self._draw_now(loop)
        elif isinstance(event, StepStarted | StepFinished) and loop.time() >= self._next:
            self._draw(loop)
        else:
            self._draw_at(loop, max(self._next, loop.time()))

    def finish(self) -> None:
        """Show the turn as it ended, for good; called on the thread that waited for it."""
        from casual_mcp_nb.display import turn_bundle

        began = bool(self._turn.trace.of(TurnStarted))
        with self._lock:
            self._ended = True
            self._update(turn_bundle(self._turn, self._detail) if began else _NOTHING)

    def _draw_now(self, loop: asyncio.AbstractEventLoop) -> None:
        painting = self._painting
        if painting is None or painting.done():
            self._draw(loop)
        else:
            # What is being painted may have begun too early to show it.
            painting.add_done_callback(lambda _: loop.call_soon_threadsafe(self._draw, loop))

    def _draw_at(self, loop: asyncio.AbstractEventLoop, time: float) -> None:
        if self._pending is not None:
            if self._pending.when() <= time:
                return
            self._pending.cancel()
        self._pending = loop.call_at(time, self._draw, loop)

    def _draw(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        if self._ended:
            return
        self._next = loop.time() + _SECONDS_BETWEEN_UPDATES
        if self._painting is not None and not self._painting.done():
            self._draw_at(loop, self._next)
            return
        # At the end of the process the painter takes nothing more.
        with contextlib.suppress(RuntimeError):
            self._painting = _painter().submit(self._context.run, self._paint, loop.time() - self._began)
        if self._running:
            self._draw_at(loop, loop.time() + _SECONDS_BETWEEN_TICKS)

    def _paint(self, now: float) -> None:
        from casual_mcp_nb.display import live_bundle

        bundle = live_bundle(self._turn, self._detail, now)
        with self._lock:
            if not self._ended and bundle != self._shown:
                self._shown = bundle
                self._update(bundle)

    def _update(self, bundle: dict[str, str]) -> None:
        self._handle.update(bundle, raw=True)  # type: ignore[no-untyped-call]
