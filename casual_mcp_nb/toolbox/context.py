"""What a function that runs as a tool can tell and ask."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from casual_mcp_nb.errors import ToolCallError

OnProgress = Callable[[float, float | None, str | None], None]


@dataclass(frozen=True, eq=False)
class ToolContext:
    """The call that a function of the notebook runs in. A parameter with this type gets it; no model sees that parameter.

    Args:
        on_progress: Called with progress, total and message; on any thread.
        on_log: Called with level and text; on any thread.
    """

    on_progress: OnProgress
    on_log: Callable[[str, str], None]
    _cancelled: threading.Event = field(default_factory=threading.Event)

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the call is; the display of the turn shows it.

        Args:
            progress: How far, in any unit.
            total: What it goes up to; None where that is not known.
            message: What is being done.
        """
        self.on_progress(progress, total, message)

    def log(self, text: str, level: str = "info") -> None:
        """Add a line to the log of the server `notebook`.

        Args:
            text: The line.
            level: `debug`, `info`, `warning` or `error`.
        """
        self.on_log(level, text)

    @property
    def cancelled(self) -> bool:
        """Whether the turn was stopped. A worker thread cannot be ended from outside, so long loops look at this."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise an error if the turn was stopped; call it where the function can end.

        Raises:
            ToolCallError: It was stopped.
        """
        if self.cancelled:
            raise ToolCallError("The turn was stopped.")

    def cancel(self) -> None:
        """Tell the function that the turn was stopped."""
        self._cancelled.set()
