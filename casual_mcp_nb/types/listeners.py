"""Subscriptions: functions that are called when something happens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")

_log = logging.getLogger(__name__)


class Listeners(Generic[P]):
    """Functions that are called when something happens, in the order in which they were added."""

    def __init__(self) -> None:
        self._functions: list[Callable[P, object]] = []

    def __len__(self) -> int:
        return len(self._functions)

    def add(self, listener: Callable[P, object]) -> Callable[[], None]:
        """Have a function called from now on.

        Args:
            listener: Called on the thread that notifies. When it raises, the error goes to the log, and the others are called.

        Returns:
            A function that ends the subscription; calling it twice is harmless.
        """
        self._functions.append(listener)
        return lambda: self._functions.remove(listener) if listener in self._functions else None

    def notify(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Call every function with these arguments."""
        for listener in tuple(self._functions):
            try:
                listener(*args, **kwargs)
            except Exception:
                _log.exception("A listener failed.")

    def clear(self) -> None:
        """End all subscriptions, without a call."""
        self._functions.clear()
