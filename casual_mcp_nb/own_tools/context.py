"""Functions that run as tools: their context, and the threads on which they run without a
notebook.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from casual_mcp_nb.base.content import OnProgress
from casual_mcp_nb.base.handover import Handover
from casual_mcp_nb.errors import ToolCallError, UsageError

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.step import ToolCall


STOPPED = "The turn was stopped."


class CallScope(Protocol):
    """The scope that a call hands to its function. `values` is the conversation's context."""

    values: Mapping[str, Any]

    def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Coroutine[Any, Any, ToolCall]:
        """Make a nested call, on the call's loop."""
        ...

    def make_call(self, name: str, arguments: Mapping[str, Any]) -> Coroutine[Any, Any, ToolCall]:
        """Make a nested call that may fail, on the call's loop."""
        ...


SCOPE: ContextVar[CallScope | None] = ContextVar("casual_mcp_call", default=None)
"""The call that is being made. None outside of one."""


class FunctionRunner(Protocol):
    """Runs functions where their objects live, and waits there for the nested calls that they
    make.
    """

    async def __call__(self, call: Callable[[], Any], is_async: bool) -> Any:
        """Run a function without arguments. With `is_async` its result is awaited."""
        ...

    def wait(
        self, prepare: Callable[[], Handover[ToolCall]], context: contextvars.Context
    ) -> ToolCall:
        """Start a nested call, and block the function's thread until it has ended.

        `prepare` runs in the function's own call `context`.
        """
        ...

    async def wait_async(
        self, prepare: Callable[[], Handover[ToolCall]], context: contextvars.Context
    ) -> ToolCall:
        """Start a nested call, and await its end on the function's loop."""
        ...


@dataclass(eq=False)
class ToolContext:
    """The call that a notebook function runs in. A parameter with this type gets it.

    Models do not see that parameter.

    Args:
        on_progress: Called with progress, total and message. On any thread.
        on_log: Called with level and text. On any thread.
        values: The conversation's context, as given to `Session.chat` or `Session.context`.
    """

    on_progress: OnProgress
    on_log: Callable[[str, str], None]
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _nested: NestedCalls | None = field(default=None, repr=False)
    _cancelled: bool = field(default=False, init=False, repr=False)

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report how far the call is. The turn's display shows it.

        Args:
            progress: How far, in any unit.
            total: The final value, or None if it is unknown.
            message: The current activity.
        """
        self.on_progress(progress, total, message)

    def log(self, text: str, level: str = "info") -> None:
        """Add a line to the log of the server `notebook`. The turn's display shows it too.

        Args:
            text: The line.
            level: `debug`, `info`, `warning` or `error`.
        """
        self.on_log(level, text)

    def call_tool(self, name: str, /, **arguments: Any) -> ToolCall:
        """Call another tool and wait for its result.

        In an async function await `call_tool_async` instead.

        It is handled like a model's call: the person is asked according to the tool's policy, and
        displays show it below the call that made it. The result goes to the function, not to the
        model.

        Args:
            name: Any name that the catalog resolves, such as `math__add` or `math:add`.
            arguments: The tool's arguments.

        Returns:
            The call. `result` is its text, `structured` its structured content.

        Raises:
            UnknownNameError: There is no such tool.
            ToolCallError: The call failed or was not approved, too many calls are nested, or the
                turn was stopped.
            UsageError: The function is async.
        """
        return self._checked().call(name, arguments)

    async def call_tool_async(self, name: str, /, **arguments: Any) -> ToolCall:
        """Call another tool and await its result. For async functions, see `call_tool`."""
        return await self._checked().call_async(name, arguments)

    def _checked(self) -> NestedCalls:
        self.check()
        if self._nested is None:
            raise UsageError("There is no turn to call a tool in.")
        return self._nested

    @property
    def cancelled(self) -> bool:
        """Whether the turn was stopped.

        A worker thread cannot be ended from outside, so long loops look at this.
        """
        return self._cancelled

    def check(self) -> None:
        """Raise an error if the turn was stopped. Call it where the function can end.

        Raises:
            ToolCallError: It was stopped.
        """
        if self.cancelled:
            raise ToolCallError(STOPPED)

    def cancel(self) -> None:
        """Tell the function that the turn was stopped."""
        self._cancelled = True


class NestedCalls:
    """Makes a function's nested calls.

    Created on the loop and in the context of the function's own call.
    """

    def __init__(self, runner: FunctionRunner, scope: CallScope, is_async: bool) -> None:
        self._runner = runner
        self._scope = scope
        self._is_async = is_async
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()

    def call(self, name: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Make a call and block until it has ended, see `ToolContext.call_tool`."""
        if self._is_async:
            raise UsageError(
                "call_tool would block the event loop of this async function.",
                hint="Await call_tool_async instead.",
            )
        try:
            return self._runner.wait(partial(self._prepare, name, arguments), self._context)
        except concurrent.futures.CancelledError:
            raise ToolCallError(STOPPED) from None

    async def call_async(self, name: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Make a call and await its end."""
        prepare = partial(self._prepare, name, arguments)
        return await self._runner.wait_async(prepare, self._context)

    def _prepare(self, name: str, arguments: Mapping[str, Any]) -> Handover[ToolCall]:
        return Handover(self._scope.call_tool(name, arguments), self._loop)


Call = Callable[[], Any]
Job = Callable[[], None]

_MAX_IDLE = 4
_idle: list[SimpleQueue[Job]] = []
"""Queues for threads that wait for a function."""
if hasattr(os, "register_at_fork"):
    # A forked child has none of the threads.
    os.register_at_fork(after_in_child=_idle.clear)


class RunHere:
    """Runs an async function on the call's loop, and another one on a worker thread.

    A `FunctionRunner`.
    """

    async def __call__(self, call: Call, is_async: bool) -> Any:
        """Run a function."""
        if is_async:
            return await call()
        return await on_worker(partial(contextvars.copy_context().run, call))

    def wait(
        self, prepare: Callable[[], Handover[ToolCall]], context: contextvars.Context
    ) -> ToolCall:
        """Start a nested call and block until it has ended."""
        with context.copy().run(prepare) as nested:
            nested.start()
            return nested.future.result()

    async def wait_async(
        self, prepare: Callable[[], Handover[ToolCall]], context: contextvars.Context
    ) -> ToolCall:
        """Start a nested call and await its end."""
        with context.copy().run(prepare) as nested:
            nested.start()
            return await asyncio.wrap_future(nested.future)


run_here = RunHere()


async def on_thread(call: Call, give: Callable[[Job], object]) -> Any:
    """Have another thread run a function. It is not run if the wait is cancelled first.

    An interrupt of the function passes through to that thread.
    """
    # Without a chained concurrent.futures future, a function that does little takes half as long.
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def end(value: Any, error: Exception | None) -> None:
        if ended.cancelled():
            return
        if error is None:
            ended.set_result(value)
        else:
            ended.set_exception(error)

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
    """Run a function on a thread that runs nothing else: one that has ended its last function, or a
    new one.

    An executor's thread would delay process exit until its function ends, and functions that wait
    for nested calls would leave no threads for those.
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
        # As on a new thread, no variable from an earlier function is set.
        contextvars.Context().run(jobs.get())
        if len(_idle) >= _MAX_IDLE:
            return
        _idle.append(jobs)
