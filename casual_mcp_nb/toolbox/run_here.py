"""Run functions without a notebook, and on separate threads."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import ToolCallError

if TYPE_CHECKING:
    from casual_mcp_nb.types.step import ToolCall

Call = Callable[[], Any]
Job = Callable[[], None]

_MAX_IDLE = 4
_idle: list[SimpleQueue[Job]] = []
"""The queues of threads that wait for a function."""
if hasattr(os, "register_at_fork"):
    # A child has none of the threads.
    os.register_at_fork(after_in_child=_idle.clear)


class RunHere:
    """Runs an async function on the loop of the call, and another one on a worker thread; a `FunctionRunner`."""

    async def __call__(self, call: Call, is_async: bool) -> Any:
        """Run a function."""
        if is_async:
            return await call()
        context = contextvars.copy_context()
        return await on_worker(lambda: context.run(call))

    def wait(self, start: Callable[[], Future[ToolCall]], context: contextvars.Context) -> ToolCall:
        """Start a nested call and block until it has ended."""
        return context.copy().run(start).result()

    async def wait_async(self, start: Callable[[], Future[ToolCall]], context: contextvars.Context) -> ToolCall:
        """Start a nested call and await its end."""
        return await asyncio.wrap_future(context.copy().run(start))


run_here = RunHere()


async def on_thread(call: Call, give: Callable[[Job], object]) -> Any:
    """Have another thread run a function. Where the wait is cancelled before, it is not run.

    An interrupt of the function passes, and is for that thread.

    Args:
        call: The function.
        give: Hands a job to the thread.
    """
    # Without a future of concurrent.futures chained to it, a function that does little takes half as long.
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def end(value: Any, error: Exception | None) -> None:
        if not ended.cancelled():
            ended.set_result(value) if error is None else ended.set_exception(error)

    def post(value: Any, error: Exception | None = None) -> None:
        # A function can outlive the loop of its turn.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(end, value, error)

    def job() -> None:
        if ended.cancelled():
            return
        try:
            value = call()
        except StopIteration as stop:
            # No future takes one.
            error = RuntimeError("the function raised StopIteration")
            error.__cause__ = stop
            post(None, error)
        except Exception as error:
            post(None, error)
        else:
            post(value)

    give(job)
    return await ended


async def on_worker(call: Call) -> Any:
    """Run a function on a thread that runs nothing else: one that has ended its last function, or a new one.

    A thread of an executor would hold the end of the process until its function has ended, and functions that wait for nested
    calls would leave none for those.
    """

    def contained() -> Any:
        try:
            return call()
        except Exception:
            raise
        except BaseException as end:
            # Such as sys.exit(): nobody else would hear of it.
            raise ToolCallError(f"it ended with {type(end).__name__}.") from None

    return await on_thread(contained, _give)


def _give(job: Job) -> None:
    try:
        jobs = _idle.pop()
    except IndexError:
        jobs = SimpleQueue()
        threading.Thread(target=_work, args=(jobs,), name="casual-mcp-tool", daemon=True).start()
    jobs.put(job)


def _work(jobs: SimpleQueue[Job]) -> None:
    while True:
        # As on a new thread, no variable of an earlier function is set.
        contextvars.Context().run(jobs.get())
        if len(_idle) >= _MAX_IDLE:
            return
        _idle.append(jobs)
