"""Work that is done as long as the client waits for it."""

from __future__ import annotations

import asyncio
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
    task = asyncio.current_task()
    assert task is not None
    has_gone = False

    async def watch() -> None:
        nonlocal has_gone
        await disconnected(receive)
        has_gone = True
        task.cancel()

    # The work itself needs no task: each change of task is one more turn of the loop, in which others come in between.
    watching = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if has_gone and not task.uncancel():
            raise ProblemError(408, "disconnected", "The client has gone.") from None
        raise
    finally:
        watching.cancel()


async def disconnected(receive: Receive) -> None:
    """Wait until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
