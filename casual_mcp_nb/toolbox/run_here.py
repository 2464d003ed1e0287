"""Run functions without a notebook, and on separate threads."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from casual_mcp_nb.errors import ToolCallError
from casual_mcp_nb.types.step import ToolCall

Call = Callable[[], Any]

_MAX_IDLE = 4
_idle: list[SimpleQueue[tuple[Future[Any], Call]]] = []
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
        return await asyncio.wrap_future(on_worker(lambda: context.run(call)))

    def wait(self, start: Callable[[], Future[ToolCall]], context: contextvars.Context) -> ToolCall:
        """Start a nested call and block until it has ended."""
        return context.copy().run(start).result()

    async def wait_async(self, start: Callable[[], Future[ToolCall]], context: contextvars.Context) -> ToolCall:
        """Start a nested call and await its end."""
        return await asyncio.wrap_future(context.copy().run(start))


run_here = RunHere()


def on_worker(call: Call) -> Future[Any]:
    """Run a function on a thread that runs nothing else: one that has ended its last function, or a new one.

    A thread of an executor would hold the end of the process until its function has ended, and functions that wait for nested
    calls would leave none for those.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    try:
        jobs = _idle.pop()
    except IndexError:
        jobs = SimpleQueue()
        threading.Thread(target=_work, args=(jobs,), name="casual-mcp-tool", daemon=True).start()
    jobs.put((future, call))
    return future


def finish(future: Future[Any], call: Call) -> None:
    """Call a function, and give its result or its exception to a future. An interrupt passes, and is for the caller."""
    try:
        future.set_result(call())
    except Exception as error:
        future.set_exception(error)


def _work(jobs: SimpleQueue[tuple[Future[Any], Call]]) -> None:
    while True:
        # As on a new thread, no variable of an earlier function is set.
        contextvars.Context().run(_run, *jobs.get())
        if len(_idle) >= _MAX_IDLE:
            return
        _idle.append(jobs)


def _run(future: Future[Any], call: Call) -> None:
    try:
        finish(future, call)
    except BaseException as end:
        # Such as sys.exit(): nobody else would hear of it.
        future.set_exception(ToolCallError(f"it ended with {type(end).__name__}."))
