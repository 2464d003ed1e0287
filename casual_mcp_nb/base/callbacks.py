"""Functions that callers hand on as callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


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
