"""Listeners to the events of a session: displays, panels, code in the notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from casual_mcp_nb.types.event import Event
from casual_mcp_nb.types.listeners import Listeners
from casual_mcp_nb.types.trace import Turn


class Observers:
    """The listeners of one session.

    Attributes:
        events: Called with a turn of the conversation and each of its events.
        served: The same for the turns of clients, which are not part of it, see `Session.serve`.
        changes: Called after each change: of a server, the tools, the turns, the model, a question.
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
    """A subscription to the events of a session.

    Args:
        *ends: Called in this order when it ends; each may be called twice.
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
