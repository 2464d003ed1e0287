"""Lists of listeners: functions that are called on a notification."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")

_log = logging.getLogger(__name__)


class Listeners(Generic[P]):
    """Functions that are called on a notification, in the order in which they were added."""

    def __init__(self) -> None:
        self._functions: list[Callable[P, object]] = []

    def __len__(self) -> int:
        return len(self._functions)

    def add(self, listener: Callable[P, object]) -> Callable[[], None]:
        """Add a listener.

        Args:
            listener: Called on the notifying thread. If it raises, the error is logged and the others are still called.

        Returns:
            A function that ends the subscription; calling it twice is harmless.
        """
        self._functions.append(listener)
        return lambda: self._functions.remove(listener) if listener in self._functions else None

    def notify(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call every listener with these arguments."""
        for listener in tuple(self._functions):
            try:
                listener(*args, **kwargs)
            except Exception:
                _log.exception("A listener failed.")

    def clear(self) -> None:
        """Remove all listeners without calling them."""
        self._functions.clear()
