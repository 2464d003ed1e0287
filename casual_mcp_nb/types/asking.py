"""Limits of questions to the person: how long they stay open, and how many."""

from __future__ import annotations

import math
from dataclasses import dataclass

from casual_mcp_nb.errors import UsageError

ANSWER_SECONDS = 600.0


@dataclass
class AnswerLimits:
    """Limits of questions to the person, shared by everything in a session that asks.

    Args:
        seconds: How long an approval or a request of a server waits for an answer. None waits forever.
        per_server: Maximum number of open requests from one server.
        in_all: Maximum number of open requests from all servers together.
    """

    seconds: float | None = ANSWER_SECONDS
    per_server: int = 8
    in_all: int = 32

    def wait(self, seconds: float | None) -> None:
        """Set how long to wait for an answer.

        Raises:
            UsageError: It is neither a positive number of seconds nor None.
        """
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool) and math.isfinite(seconds)
        if seconds is not None and not (number and seconds > 0):
            raise UsageError("The time limit for answers must be a positive number of seconds.", hint="None waits forever.")
        self.seconds = seconds

    @property
    def nobody_answered(self) -> str:
        """The message when the time is over."""
        return f"Nobody answered within {_in_words(self.seconds or 0)}."


def _in_words(seconds: float) -> str:
    minutes, seconds_left = divmod(seconds, 60)
    if minutes and not seconds_left:
        return f"{minutes:g} minute{'s' if minutes > 1 else ''}"
    return f"{seconds:g} s"
