"""Where a function of the notebook runs: on the thread or loop that its objects belong to.

While a cell blocks in `session.chat`, its thread waits for the engine and can meanwhile run functions: matplotlib, sqlite3
connections and `display()` work there. While a cell awaits, and for turns that no cell waits for, they run on a worker thread.
An async function runs on the caller's own loop, where its objects live, unless a blocking call holds that loop.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import ToolCallError
from casual_mcp_nb.toolbox.run_here import Call, Job, on_thread, on_worker

if TYPE_CHECKING:
    from casual_mcp_nb.types.step import ToolCall


@dataclass(frozen=True, eq=False)
class Caller:
    """Who waits for work of the engine.

    Args:
        loop: The loop that runs on the caller's thread, if one does.
        blocking: Whether the thread does nothing but wait.
    """

    loop: asyncio.AbstractEventLoop | None
    blocking: bool
    _jobs: SimpleQueue[Job | None] = field(default_factory=SimpleQueue)

    async def run(self, call: Call) -> Any:
        """Have the waiting thread run a function; the result is the function's."""
        return await on_thread(call, self._jobs.put)

    def serve(self) -> None:
        """Run functions on this thread until `end` is called. An interrupt passes: the turn is cancelled with it."""
        while (job := self._jobs.get()) is not None:
            job()

    def end(self, _future: object = None) -> None:
        """Let `serve` return."""
        self._jobs.put(None)


CALLER: ContextVar[Caller | None] = ContextVar("casual_mcp_caller", default=None)
"""Who waits for the work that runs now; None where nobody does."""


class NotebookRunner:
    """Runs the notebook's functions where their objects live; a `toolbox.context.FunctionRunner`.

    Attributes:
        home: The loop of the kernel, for async functions in turns that no cell waits for; None where there is none.
    """

    def __init__(self) -> None:
        self.home: asyncio.AbstractEventLoop | None = None

    def note_home(self) -> None:
        """Remember the loop of this thread, if one runs: that of the kernel, when a cell calls this."""
        self.home = _running_loop() or self.home

    async def __call__(self, call: Call, is_async: bool) -> Any:
        """Run a call to its end; the result is the call's.

        Raises:
            ToolCallError: It is async, and a blocking call holds its loop.
        """
        caller = CALLER.get()
        run = caller.run if caller is not None and caller.blocking else on_worker
        if not is_async:
            return await run(call)
        loop = caller.loop if caller is not None else self.home
        if loop is None or not loop.is_running():
            # No loop: a script that blocks, or a separate thread.
            return await run(lambda: asyncio.run(call()))
        if caller is not None and caller.blocking:
            raise ToolCallError(
                "this tool is async, and its event loop is held by a blocking call.",
                hint="Await the turn instead: await session.chat_async(…).",
            )
        return await _on_loop(call, loop)

    def wait(self, start: Callable[[], Future[ToolCall]], context: contextvars.Context) -> ToolCall:
        """Start a nested call on the engine, and block this thread, which is the function's, until it has ended.

        Where the function runs on a thread that waits for its turn, that thread now waits for the nested call, and runs the
        functions that this one needs.
        """
        caller = context.get(CALLER)
        context = context.copy()
        if caller is None or not caller.blocking:
            return context.run(start).result()
        nested = Caller(caller.loop, blocking=True)
        context.run(CALLER.set, nested)
        future = context.run(start)
        future.add_done_callback(nested.end)
        try:
            nested.serve()
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def wait_async(self, start: Callable[[], Future[ToolCall]], context: contextvars.Context) -> ToolCall:
        """Start a nested call on the engine, and await its end on this loop, which is the function's and not held."""
        context = context.copy()
        context.run(CALLER.set, caller_here(blocking=False))
        return await asyncio.wrap_future(context.run(start))


async def _on_loop(call: Call, loop: asyncio.AbstractEventLoop) -> Any:
    """Run an async call on the loop of another thread; it is cancelled with this."""
    # `run_coroutine_threadsafe` takes more rounds of both loops.
    here = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = here.create_future()
    running: asyncio.Task[None] | None = None

    def end(value: Any, error: BaseException | None) -> None:
        if isinstance(error, asyncio.CancelledError):
            ended.cancel()
        elif not ended.done():
            ended.set_result(value) if error is None else ended.set_exception(error)

    async def run() -> None:
        value, error = None, None
        try:
            value = await call()
        except BaseException as raised:
            error = raised
            raise
        finally:
            # The engine's loop may have ended before the function.
            with suppress(RuntimeError):
                here.call_soon_threadsafe(end, value, error)

    def start() -> None:
        nonlocal running
        if not ended.cancelled():
            running = loop.create_task(run())
            running.add_done_callback(lambda task: task.cancelled() or task.exception())

    loop.call_soon_threadsafe(start)
    try:
        return await ended
    except asyncio.CancelledError:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: running and running.cancel())
        raise


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def caller_here(*, blocking: bool) -> Caller:
    """Create the caller on this thread."""
    return Caller(_running_loop(), blocking)
