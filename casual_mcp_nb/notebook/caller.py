"""Where a session is called from: a shell, a thread or a loop, and how functions are run there."""

from __future__ import annotations

import asyncio
import contextvars
import shutil
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.callbacks import ignore_outcome
from casual_mcp_nb.errors import ToolCallError
from casual_mcp_nb.own_tools.context import Call, Job, on_thread, on_worker, run_here

if TYPE_CHECKING:
    from casual_mcp_nb.base.handover import Handover
    from casual_mcp_nb.conversation.step import ToolCall


def shell() -> Any | None:
    """Get IPython's shell, in a kernel or a terminal. None if there is none.

    This does not import IPython.
    """
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    return get_ipython()


def notebook_shell() -> Any | None:
    """Get IPython's shell if this process is a Jupyter kernel, else None."""
    running = shell()
    if not hasattr(running, "kernel"):
        return None
    return running


def terminal_width() -> int | None:
    """Return how many columns the terminal has if IPython runs in one, else None."""
    if shell() is None or notebook_shell() is not None:
        return None
    try:
        is_terminal = sys.stdout.isatty()
    except (AttributeError, ValueError):
        return None
    if not is_terminal:
        return None
    return shutil.get_terminal_size().columns


@dataclass(frozen=True, eq=False)
class Caller:
    """The thread that called a session, and waits for the engine.

    Attributes:
        loop: The loop that runs on it, or None.
        blocking: Whether the thread does nothing else while it waits, so that it can run functions.
    """

    loop: asyncio.AbstractEventLoop | None
    blocking: bool
    _jobs: SimpleQueue[Job | None] = field(default_factory=SimpleQueue)

    async def run(self, call: Call) -> Any:
        """Have the waiting thread run a function, and return its result."""
        return await on_thread(call, self._jobs.put)

    def serve(self) -> None:
        """Run functions on this thread until `end` is called.

        An interrupt is not caught: it cancels the turn as well.
        """
        while (job := self._jobs.get()) is not None:
            job()

    def end(self, _future: object = None) -> None:
        """Let `serve` return."""
        self._jobs.put(None)


CALLER: ContextVar[Caller | None] = ContextVar("casual_mcp_caller", default=None)
"""Who waits for the work that runs in this context, or None."""


class NotebookRunner:
    """Runs the notebook's functions where their objects live.

    In a cell's turn, that is the cell's thread, or its loop for async functions. In a turn without
    a cell, it is a worker's thread, or the kernel's loop for async functions.

    Attributes:
        home: The kernel's loop, once a cell has called `note_home`.
    """

    def __init__(self) -> None:
        self.home: asyncio.AbstractEventLoop | None = None

    def note_home(self) -> None:
        """Remember this thread's loop, if one runs: the kernel's, when a cell calls this."""
        self.home = _running_loop() or self.home

    async def __call__(self, call: Call, is_async: bool) -> Any:
        """Run a call to its end, and return its result.

        Raises:
            ToolCallError: The function is async, and its loop is held by a blocking call.
        """
        caller = CALLER.get()
        loop = self.home
        run: Callable[[Call], Awaitable[Any]] = on_worker
        if caller is not None:
            loop = caller.loop
            if caller.blocking:
                run = caller.run
        if not is_async:
            return await run(call)
        if loop is None or not loop.is_running():
            # No loop: a script that blocks, or a separate thread.
            return await run(lambda: asyncio.run(call()))
        if caller is not None and caller.blocking:
            raise ToolCallError(
                "this tool is async, and its event loop is held by a blocking call.",
                hint="Await the turn instead: await session.chat_async(…).",
            )
        return await _on_loop(call, loop)

    def wait(
        self, prepare: Callable[[], Handover[ToolCall]], context: contextvars.Context
    ) -> ToolCall:
        """Start a nested call on the engine, and block the function's thread until it ends.

        A thread that waits for its turn waits for the nested call meanwhile, and runs the functions
        that the nested call needs.

        Args:
            prepare: Prepares the call.
            context: The context in which the function runs.
        """
        caller = context.get(CALLER)
        if caller is None or not caller.blocking:
            return run_here.wait(prepare, context)
        own = Caller(caller.loop, blocking=True)
        with _prepared_for(own, prepare, context) as nested:
            nested.future.add_done_callback(own.end)
            nested.start()
            own.serve()
            return nested.future.result()

    async def wait_async(
        self, prepare: Callable[[], Handover[ToolCall]], context: contextvars.Context
    ) -> ToolCall:
        """Start a nested call on the engine, and await its end on the function's loop.

        For the arguments, see `wait`.
        """
        with _prepared_for(caller_here(blocking=False), prepare, context) as nested:
            nested.start()
            return await asyncio.wrap_future(nested.future)


def _prepared_for(
    caller: Caller, prepare: Callable[[], Handover[ToolCall]], context: contextvars.Context
) -> Handover[ToolCall]:
    """Prepare a nested call in a copy of the context, with the one who waits for it."""
    context = context.copy()
    context.run(CALLER.set, caller)
    return context.run(prepare)


async def _on_loop(call: Call, loop: asyncio.AbstractEventLoop) -> Any:
    """Run an async call on another thread's loop. Cancelling this cancels the call."""
    # `run_coroutine_threadsafe` takes more rounds in both loops.
    here = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = here.create_future()
    running: asyncio.Task[None] | None = None

    def end(value: Any, error: BaseException | None) -> None:
        if isinstance(error, asyncio.CancelledError):
            ended.cancel()
        elif ended.done():
            return
        elif error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(value)

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
            running.add_done_callback(ignore_outcome)

    def cancel() -> None:
        if running is not None:
            running.cancel()

    loop.call_soon_threadsafe(start)
    try:
        return await ended
    except asyncio.CancelledError:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(cancel)
        raise


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def caller_here(*, blocking: bool) -> Caller:
    """Describe this thread as a caller, see `Caller`."""
    return Caller(_running_loop(), blocking)
