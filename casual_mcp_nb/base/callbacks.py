"""Functions that callers hand on as callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

VALUE_READERS: list[Callable[[Any, Any], object]] = []
"""Called with each tool call whose `value` is read, and the value: a notebook keeps track of the
variables that hold one.
"""


def ignore(*_: object) -> None:
    """Take no notice of what is told."""


def ignore_outcome(task: asyncio.Task[Any]) -> None:
    """Take no notice of how a task ended. Without this, asyncio logs an error that nobody asked
    for.
    """
    if not task.cancelled():
        task.exception()


def unchanged(text: str) -> str:
    """Return a text as it is."""
    return text
