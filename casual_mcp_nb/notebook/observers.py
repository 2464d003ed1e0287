"""Who wants to know what happens in a session: displays, panels, code of the notebook."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from casual_mcp_nb.types.event import Event
from casual_mcp_nb.types.trace import Turn

logger = logging.getLogger(__name__)

OnEvent = Callable[[Turn, Event], None]
OnChange = Callable[[], None]
L = TypeVar("L")


class Observers:
    """The listeners of one session. One that raises harms neither the session nor the others: its error goes to the log."""

    def __init__(self) -> None:
        self._on_event: list[OnEvent] = []
        self._on_change: list[OnChange] = []
        self._on_close: list[OnChange] = []

    def observe(self, listener: OnEvent) -> Callable[[], None]:
        """Have `listener` called with the turn and each of its events; returns what ends it."""
        return _added(self._on_event, listener)

    def on_change(self, listener: OnChange) -> Callable[[], None]:
        """Have `listener` called after each change; returns what ends it."""
        return _added(self._on_change, listener)

    def on_close(self, listener: OnChange) -> Callable[[], None]:
        """Have `listener` called once, when the session closes; returns what ends it."""
        return _added(self._on_close, listener)

    def event(self, turn: Turn, event: Event) -> None:
        """Tell of an event."""
        for listener in tuple(self._on_event):
            try:
                listener(turn, event)
            except Exception:
                logger.exception("A listener to the events of a session failed.")

    def changed(self) -> None:
        """Tell of a change."""
        _tell(self._on_change)

    def closed(self) -> None:
        """Tell that the session has closed; whoever was told is not told again."""
        listeners = self._on_close.copy()
        self._on_close.clear()
        _tell(listeners)

    def clear(self) -> None:
        """Forget all listeners, without telling them."""
        self._on_event.clear()
        self._on_change.clear()
        self._on_close.clear()


def _tell(listeners: list[OnChange]) -> None:
    for listener in tuple(listeners):
        try:
            listener()
        except Exception:
            logger.exception("A listener to a session failed.")


def _added(listeners: list[L], listener: L) -> Callable[[], None]:
    listeners.append(listener)
    return lambda: listeners.remove(listener) if listener in listeners else None
