"""The listeners to a session's events, and a subscription that can be closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from casual_mcp_nb.base.selection import Listeners
from casual_mcp_nb.conversation.event import Event
from casual_mcp_nb.conversation.turn import Turn


class Observers:
    """One session's listeners.

    Attributes:
        events: Called with a turn and each event in it.
        served: The same for clients' turns, which do not belong to it, see `SessionServe.http`.
        changes: Called after each change to a server, the tools, the turns, the model or a
            question.
        closing: Called once, when the session closes.
    """

    def __init__(self) -> None:
        self.events = Listeners[[Turn, Event]]()
        self.served = Listeners[[Turn, Event]]()
        self.changes = Listeners[[]]()
        self.closing = Listeners[[]]()

    def clear(self) -> None:
        """Remove all listeners, without notifying them."""
        for listeners in (self.events, self.served, self.changes, self.closing):
            listeners.clear()


class Observation:
    """A subscription to a session's events.

    Args:
        ends: Called in order when it is closed. Each must tolerate a second call.
    """

    def __init__(self, *ends: Callable[[], object]) -> None:
        self._ends = ends

    def close(self) -> None:
        """End the subscription. Closing twice is harmless."""
        for end in self._ends:
            end()

    __call__ = close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
