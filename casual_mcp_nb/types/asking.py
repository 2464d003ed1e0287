"""How long, and how often, a person is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass

from casual_mcp_nb.errors import UsageError

ANSWER_SECONDS = 600.0


@dataclass
class AnswerLimits:
    """The limits of questions to the person; shared by all who ask in a session.

    Args:
        seconds: How long an approval or a request of a server waits for an answer. None waits for ever.
        per_server: How many requests of one server can be open.
        in_all: How many requests of all servers together can be open.
    """

    seconds: float | None = ANSWER_SECONDS
    per_server: int = 8
    in_all: int = 32

    def wait(self, seconds: float | None) -> None:
        """Set how long an answer is waited for.

        Raises:
            UsageError: It is not a positive number of seconds, and not None.
        """
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool) and math.isfinite(seconds)
        if seconds is not None and not (number and seconds > 0):
            raise UsageError("The time limit for answers must be a positive number of seconds.", hint="None waits for ever.")
        self.seconds = seconds

    @property
    def nobody_answered(self) -> str:
        """What is said when the time is over."""
        return f"Nobody answered within {_in_words(self.seconds or 0)}."


def _in_words(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    if minutes and not rest:
        return f"{minutes:g} minute{'s' if minutes > 1 else ''}"
    return f"{seconds:g} s"
