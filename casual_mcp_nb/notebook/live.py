"""The display of a running turn: one handle, updated in place, static HTML when the turn ends."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Literal

from casual_mcp_nb.types.event import Event, StepFinished, StepStarted, TextDelta, TurnStarted
from casual_mcp_nb.types.trace import Turn

Echo = Literal["none", "output"]

_SECONDS_BETWEEN_UPDATES = 0.1
_STARTING = {"text/plain": "Starting …", "text/html": "<em>Starting …</em>"}
_NOTHING = {"text/plain": "", "text/html": ""}


def notebook_shell() -> Any | None:
    """IPython's shell when this process is a Jupyter kernel, else None. IPython is not imported for it."""
    import sys

    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    return shell if shell is not None and hasattr(shell, "kernel") else None


class LiveOutput:
    """Shows a turn while it runs.

    Create it on the kernel's thread, in its cell; after that only the handle is updated, from any thread.

    Args:
        turn: The turn to show; it can be one that has not begun.
        streamed: Whether text is shown as it arrives; otherwise at the end of each step.
    """

    def __init__(self, turn: Turn, *, streamed: bool = True) -> None:
        from IPython.display import DisplayHandle

        self._turn = turn
        self._streamed = streamed
        self._lock = threading.Lock()
        self._ended = False
        self._pending: asyncio.TimerHandle | None = None
        self._next = 0.0
        self._handle = DisplayHandle()  # type: ignore[no-untyped-call]
        self._handle.display(_STARTING, raw=True)  # type: ignore[no-untyped-call]

    def on_event(self, event: Event) -> None:
        """Take note of an event; called on the engine's loop. Steps are drawn at once, the rest at most ten times a second."""
        if isinstance(event, TextDelta) and not self._streamed:
            return
        loop = asyncio.get_running_loop()
        if isinstance(event, StepStarted | StepFinished) and loop.time() >= self._next:
            self._draw(loop)
        elif self._pending is None:
            self._pending = loop.call_at(max(self._next, loop.time()), self._draw, loop)

    def finish(self) -> None:
        """Show the turn as it ended, for good; called on the thread that waited for it."""
        began = bool(self._turn.trace.of(TurnStarted))
        with self._lock:
            self._ended = True
            self._update(self._turn._repr_mimebundle_() if began else _NOTHING)

    def _draw(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
        self._next = loop.time() + _SECONDS_BETWEEN_UPDATES
        with self._lock:
            if not self._ended:
                self._update(self._turn._repr_mimebundle_())

    def _update(self, bundle: dict[str, str]) -> None:
        self._handle.update(bundle, raw=True)  # type: ignore[no-untyped-call]
