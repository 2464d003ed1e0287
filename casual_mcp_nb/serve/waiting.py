"""Work that is done as long as the client waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from casual_mcp_nb.serve.problems import ProblemError

T = TypeVar("T")


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do some work as long as the client is connected; then it is cancelled.

    Args:
        receive: Reports when the client has gone.
        work: What the client waits for.

    Raises:
        ProblemError: The client has gone; nobody will read it.
    """
    working = asyncio.create_task(work)
    gone = asyncio.create_task(disconnected(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ProblemError(408, "disconnected", "The client has gone.")
        return working.result()
    finally:
        gone.cancel()
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await working


async def disconnected(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
