"""Waiting for changes without a signal: files, and lists that another thread fills."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

PAUSE_SECONDS = 0.01


def wait_until(condition: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    """Check again and again until a condition holds; after so many seconds fail with `what` did not
    happen.
    """
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        threading.Event().wait(PAUSE_SECONDS)


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    """The same in a loop, which goes on meanwhile."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (processes and files signal nothing)
            await asyncio.sleep(PAUSE_SECONDS)


def wait_for_text(path: Path, text: str, count: int = 1) -> None:
    """Wait until a text stands in a file so many times; the file need not be there yet."""
    wait_until(
        lambda: path.exists() and path.read_text().count(text) >= count,
        f"{count} times {text!r} in {path.name}",
    )
