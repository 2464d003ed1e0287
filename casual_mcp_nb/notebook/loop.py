"""The engine thread: one daemon thread with one event loop, on which the engine and every
connection run.

A notebook function runs on the thread or loop that its objects belong to. While a cell blocks in
`session.chat`, its thread waits for the engine and can meanwhile run functions: matplotlib, sqlite3
connections and `display()` work there. While a cell awaits, and for turns that no cell waits for,
they run on a worker thread. An async function runs on the caller's own loop, where its objects
live, unless a blocking call holds that loop.

One coroutine function makes two methods, one that blocks, and one, named `…_async`, that is
awaited. The coroutine runs on the caller's thread, where it displays results, and passes work to
the engine thread with `await on_engine(work)`. How the caller waits for that work is the only
difference between the two. It awaits nothing else: under a blocking call no loop runs on the
caller's thread, so the drivers refuse that in both forms.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import os
import sys
import threading
import types
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
)

from casual_mcp_nb.errors import CassetteMismatchError, ClosedError, ToolCallError, UsageError
from casual_mcp_nb.own_tools.context import Call, Job, on_thread, on_worker

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.step import ToolCall


def shell() -> Any | None:
    """Get IPython's shell if there is one, in a kernel or a terminal, else None.

    Does not import IPython.
    """
    if "IPython" not in sys.modules:
        return None
    from IPython.core.getipython import get_ipython

    return get_ipython()


def notebook_shell() -> Any | None:
    """Get IPython's shell if this process is a Jupyter kernel, else None."""
    running = shell()
    return running if hasattr(running, "kernel") else None


@dataclass(frozen=True, eq=False)
class Caller:
    """Who waits for the engine, and whether its thread does nothing but wait."""

    loop: asyncio.AbstractEventLoop | None
    blocking: bool
    _jobs: SimpleQueue[Job | None] = field(default_factory=SimpleQueue)

    async def run(self, call: Call) -> Any:
        """Have the waiting thread run a function, and return its result."""
        return await on_thread(call, self._jobs.put)

    def serve(self) -> None:
        """Run functions on this thread until `end` is called.

        An interrupt passes: the turn is cancelled with it.
        """
        while (job := self._jobs.get()) is not None:
            job()

    def end(self, _future: object = None) -> None:
        """Let `serve` return."""
        self._jobs.put(None)


CALLER: ContextVar[Caller | None] = ContextVar("casual_mcp_caller", default=None)
"""Who waits for the current work, or None."""


class NotebookRunner:
    """Runs the notebook's functions where their objects live: in turns without a cell, async ones
    on the kernel's loop.
    """

    def __init__(self) -> None:
        self.home: asyncio.AbstractEventLoop | None = None

    def note_home(self) -> None:
        """Remember this thread's loop, if one runs: the kernel's, when a cell calls this."""
        self.home = _running_loop() or self.home

    async def __call__(self, call: Call, is_async: bool) -> Any:
        """Run a call to its end. The result is the call's."""
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
        """Start a nested call on the engine, and block this thread, the function's, until it ends.

        If this thread was waiting for its turn, it now waits for the nested call, and runs the
        functions that it needs.
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

    async def wait_async(
        self, start: Callable[[], Future[ToolCall]], context: contextvars.Context
    ) -> ToolCall:
        """Start a nested call on the engine, and await its end on this loop, the function's,
        without blocking it.
        """
        context = context.copy()
        context.run(CALLER.set, caller_here(blocking=False))
        return await asyncio.wrap_future(context.run(start))


async def _on_loop(call: Call, loop: asyncio.AbstractEventLoop) -> Any:
    """Run an async call on another thread's loop. It is cancelled with this."""
    # `run_coroutine_threadsafe` takes more rounds in both loops.
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


T = TypeVar("T")

CLEAN_UP_SECONDS = 0.5
_WAKE_SECONDS = 0.05
OTHER_PROCESS = "it belongs to the process that opened it, and this is a child of that process"
"""Why a forked child cannot use the session that it inherited."""


def _show_in_one_line(interrupt: BaseException) -> None:
    """Let IPython show one line for an interrupt, instead of a stack, whose drawing alone takes
    half a second.
    """
    line = f"{type(interrupt).__name__}: stopped. Completed steps are kept."
    interrupt._render_traceback_ = lambda: [line]  # type: ignore[attr-defined]


class EngineThread:
    """Runs coroutines on its own event loop, for callers that block and for callers that await.

    The loop keeps running while a cell sleeps, computes or waits: connections stay alive and
    displays are updated.
    """

    def __init__(self) -> None:
        self.blocked = 0
        self._blocking = threading.Lock()
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="casual-mcp-engine", daemon=True
        )
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether the caller is on the engine thread itself."""
        return threading.current_thread() is self._thread

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child's copy: a fork does not copy threads, so nothing would
        ever run on it.
        """
        return os.getpid() != self._process

    def check_process(self) -> None:
        """Raise ClosedError if the engine was inherited through a fork: nothing would ever run on
        it.
        """
        if self.inherited:
            raise ClosedError(
                f"This session is closed: {OTHER_PROCESS}.",
                hint="Open a new session here, in the child.",
            )

    def submit(
        self, work: Coroutine[Any, Any, T], caller: Caller | None = None
    ) -> tuple[Future[T], threading.Event]:
        """Start `work` on the loop, for a caller that waits for it or for nobody.

        Returns its future, and an event that is set when the work has ended, even if the future was
        cancelled earlier.
        """
        if self.inherited:
            work.close()
        self.check_process()
        future, ended = Future[T](), threading.Event()
        context = contextvars.copy_context()
        context.run(CALLER.set, caller)

        def end(task: asyncio.Task[T]) -> None:
            ended.set()
            if task.cancelled():
                future.cancel()
            if not future.set_running_or_notify_cancel():
                return
            if (error := task.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        def start() -> None:
            task = self._loop.create_task(work, context=context)
            task.add_done_callback(end)
            future.add_done_callback(
                lambda _: future.cancelled() and self._loop.call_soon_threadsafe(task.cancel)
            )

        self._loop.call_soon_threadsafe(start)
        return future, ended

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and block until it has ended.

        An interrupt cancels it, waits up to half a second for its clean-up, and passes on. IPython
        shows one line for it.
        """
        if self.is_current and not self.inherited:
            work.close()
            raise UsageError(
                "This call would block the engine thread.",
                hint="Await the method that ends in _async instead.",
            )
        caller = caller_here(blocking=True)
        future, ended = self.submit(work, caller)
        future.add_done_callback(caller.end)
        self._count(1)
        try:
            caller.serve()
            return future.result()
        except BaseException as error:
            if future.cancel():
                ended.wait(CLEAN_UP_SECONDS)
            if isinstance(error, KeyboardInterrupt):
                _show_in_one_line(error)
            raise
        finally:
            self._count(-1)

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and await its end from any other loop.

        The caller's loop is woken twenty times a second, so that an interrupt is noticed. It
        cancels the work too, which has half a second to clean up. IPython shows one line for it
        instead of a stack.
        """
        future, ended = self.submit(work, caller_here(blocking=False))
        waiting = asyncio.wrap_future(future)
        try:
            while not waiting.done():
                await asyncio.wait({waiting}, timeout=_WAKE_SECONDS)
        except asyncio.CancelledError as cancelled:
            future.cancel()
            await asyncio.to_thread(ended.wait, CLEAN_UP_SECONDS)
            # The very error goes on: asyncio.timeout and TaskGroup know their own cancellation by
            # its exact type.
            _show_in_one_line(cancelled)
            raise
        return waiting.result()

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a short function on the loop after a delay. Thread-safe.

        Does nothing in a forked child.
        """
        if self.inherited:
            return
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, function)

    def _count(self, change: int) -> None:
        with self._blocking:
            self.blocked += change

    def stop(self) -> None:
        """End the thread. Work that still runs on it is dropped."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLEAN_UP_SECONDS)
        self._loop.close()


_lock = threading.Lock()
_engine: EngineThread | None = None
_inherited: list[EngineThread] = []
"""Engines inherited through forks, never collected: closing such a loop would remove the parent's
wake-up call from the epoll object that both share.
"""


def engine_thread() -> EngineThread:
    """Get this process's engine thread, started when it is first used.

    A forked child has its own.
    """
    global _engine
    with _lock:
        if _engine is None:
            _engine = EngineThread()
        return _engine


def _in_forked_child() -> None:
    global _lock, _engine
    # Another thread may have held it at the fork, and nobody is left to release it.
    _lock = threading.Lock()
    if _engine is not None:
        _inherited.append(_engine)
        _engine = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)


def enable_nested_asyncio() -> Literal["on", "already on"]:
    """Allow `asyncio.run` and `run_until_complete` inside a running loop, with nest-asyncio.

    It patches asyncio for the whole process, and cannot be undone: an interrupted blocking call
    continues in the background, and calls that overlap end last in, first out. Prefer `await`, or
    the blocking methods of `Session`, which need no patch.

    Returns:
        `on`, or `already on`.

    Raises:
        UsageError: It would do harm here: Python 3.14 or later, or a uvloop loop.
    """
    if sys.version_info >= (3, 14):
        raise UsageError(
            "nest-asyncio breaks asyncio on Python 3.14 and later.",
            hint="Use `await`, or the blocking methods of Session.",
        )
    loop = _running_loop()
    if loop is not None and not isinstance(loop, asyncio.BaseEventLoop):
        raise UsageError(
            f"nest-asyncio cannot patch a loop of {type(loop).__module__}.",
            hint="Use `await`, or the blocking methods of Session.",
        )
    import nest_asyncio

    already = hasattr(asyncio, "_nest_patched")
    nest_asyncio.apply(loop)
    return "already on" if already else "on"


def is_set(variable: str) -> bool:
    """Check whether an environment variable turns something on: empty, `0` and `false` do not."""
    return os.environ.get(variable, "").strip().lower() not in ("", "0", "false")


logger = logging.getLogger("casual_mcp_nb")
# Without a handler, Python would print warnings into the cell.
logger.addHandler(logging.NullHandler())


def show_log(level: str, libraries: str | None = None) -> None:
    """Log from `level` on, the MCP libraries from `libraries` on, to stderr unless logging is set
    up already.
    """
    logger.setLevel(level)
    for name in ("fastmcp", "mcp"):
        logging.getLogger(name).setLevel(libraries or level)
    if all(
        isinstance(handler, logging.NullHandler)
        for handler in (*logger.handlers, *logging.getLogger().handlers)
    ):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)


class HasEngine(Protocol):
    """An object with an engine thread."""

    _engine: EngineThread


S = TypeVar("S", bound=HasEngine)
P = ParamSpec("P")

Blocking = Callable[Concatenate[S, P], T]
Awaited = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


class _Handover(Generic[T]):
    def __init__(self, work: Callable[[bool], Coroutine[Any, Any, T]]) -> None:
        self.work = work


@types.coroutine
def on_engine(work: Callable[[bool], Coroutine[Any, Any, T]]) -> Generator[_Handover[T], T, T]:
    """Have the engine thread do some work. `work` is told whether the caller blocks.

    Only for coroutines that `run` or `wait` drives.
    """
    return (yield _Handover(work))


def _next(resume: Callable[[Any], Any], value: Any) -> _Handover[Any]:
    try:
        request = resume(value)
    except RuntimeError as error:
        if str(error) != _NO_LOOP:
            raise
        raise UsageError(_AWAITS_OTHERS, hint=_ON_ENGINE) from error
    if isinstance(request, _Handover):
        return request
    if isinstance(request, asyncio.Future):
        request.cancel()
    raise UsageError(_AWAITS_OTHERS, hint=_ON_ENGINE)


_NO_LOOP = "no running event loop"
"""asyncio's message on a thread that blocks."""
_AWAITS_OTHERS = (
    "A method with a blocking and an awaited form awaits something on the caller's thread, where no"
    " loop may run."
)
_ON_ENGINE = "Have the engine await it: await on_engine(lambda _: …)."


def run(engine: EngineThread, steps: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine on the caller's thread to its end.

    The caller blocks while the engine works.
    """
    try:
        request = _next(steps.send, None)
        while True:
            try:
                result = engine.run(request.work(True))
            except BaseException as error:
                request = _next(steps.throw, error)
            else:
                request = _next(steps.send, result)
    except StopIteration as end:
        return cast("T", end.value)
    except CassetteMismatchError as error:
        error.raised = True
        raise
    finally:
        steps.close()


async def wait(engine: EngineThread, steps: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine on the caller's thread to its end.

    The caller's loop keeps running while the engine works.

    On the engine's own loop, as in a widget command, the work is awaited there.
    """
    try:
        request = _next(steps.send, None)
        while True:
            try:
                work = request.work(False)
                result = await work if engine.is_current else await engine.wait(work)
            except BaseException as error:
                request = _next(steps.throw, error)
            else:
                request = _next(steps.send, result)
    except StopIteration as end:
        return cast("T", end.value)
    except CassetteMismatchError as error:
        error.raised = True
        raise
    finally:
        steps.close()


def blocking(core: Awaited[S, P, T]) -> Blocking[S, P, T]:
    """Turn a coroutine function into a method that blocks. A decorator."""

    @functools.wraps(core)
    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(self._engine, core(self, *args, **kwargs))

    return cast("Blocking[S, P, T]", method)


def awaited(twin: Blocking[S, P, T]) -> Awaited[S, P, T]:
    """Get the awaitable twin of a method that `blocking` made. Its name ends in `_async`."""
    core: Awaited[S, P, T] = cast("Any", twin).__wrapped__

    @functools.wraps(core)
    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await wait(self._engine, core(self, *args, **kwargs))

    method.__name__ += "_async"
    method.__qualname__ += "_async"
    return cast("Awaited[S, P, T]", method)
