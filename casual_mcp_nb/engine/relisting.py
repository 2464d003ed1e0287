"""List tools again during a turn when servers report changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

RELIST_SECONDS = 3.0
"""How long a step waits for servers that list their tools again."""
_LOOP_ITERATIONS = 3


class Relisting:
    """Lists tools again if a server reported a change or its list has expired.

    Args:
        is_fresh: Returns whether there is nothing to list.
        relist: Lists what is not fresh. It is not cancelled when it takes too long: the next step may use the result.
    """

    def __init__(self, is_fresh: Callable[[], bool], relist: Callable[[], Awaitable[None]]) -> None:
        self._is_fresh = is_fresh
        self._relist = relist
        self._task: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait until the lists are up to date, a few seconds at most; only once for a server that does not answer."""
        # A notification that came with a result is read by another task, just after it.
        for _ in range(_LOOP_ITERATIONS):
            await asyncio.sleep(0)
        if self._task is not None and not self._task.done():
            return
        if not self._is_fresh():
            self._task = asyncio.ensure_future(self._relist())
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.wait({self._task}, timeout=RELIST_SECONDS)

    def close(self) -> None:
        """Cancel a listing in progress."""
        if self._task is not None:
            self._task.cancel()
