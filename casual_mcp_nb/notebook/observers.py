"""Listeners to the events of a session: displays, panels, code in the notebook."""

from __future__ import annotations

from casual_mcp_nb.types.event import Event
from casual_mcp_nb.types.listeners import Listeners
from casual_mcp_nb.types.trace import Turn


class Observers:
    """The listeners of one session.

    Attributes:
        events: Called with a turn and each of its events.
        changes: Called after each change: of a server, the tools, the turns, the model, a question.
        closing: Called once, when the session closes.
    """

    def __init__(self) -> None:
        self.events = Listeners[[Turn, Event]]()
        self.changes = Listeners[[]]()
        self.closing = Listeners[[]]()

    def clear(self) -> None:
        """Remove all listeners, without notifying them."""
        for listeners in (self.events, self.changes, self.closing):
            listeners.clear()
