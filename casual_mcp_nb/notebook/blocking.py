"""Make two methods of one coroutine function: one blocks, and one, named `…_async`, is awaited.

    the caller's thread                              the engine's thread

    the coroutine begins
    `await on_engine(work)` hands over  ─────────►   work runs
        blocking: the thread waits                       …
        awaited: its loop goes on                        …
    the coroutine goes on, shows things  ◄─────────  and returns

The two methods differ only in how they wait. The coroutine yields its work to a driver, which does
the waiting: `drive_blocking` calls `EngineThread.run`, and `drive_awaited` awaits
`EngineThread.wait`. The coroutine may await nothing else, because under a blocking call no loop
runs on the caller's thread. The drivers refuse it in both forms.
"""

from __future__ import annotations

import asyncio
import functools
import types
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

from casual_mcp_nb.errors import CassetteMismatchError, UsageError

if TYPE_CHECKING:
    from casual_mcp_nb.notebook.loop import EngineThread

T = TypeVar("T")


class HasEngine(Protocol):
    """An object with an engine thread."""

    _engine: EngineThread


S = TypeVar("S", bound=HasEngine)

P = ParamSpec("P")

Blocking = Callable[Concatenate[S, P], T]

Awaited = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


class _EngineWork(Generic[T]):
    """Work that a coroutine yields to its driver.

    Args:
        start: Begins the work. Its argument is whether the caller blocks.
    """

    def __init__(self, start: Callable[[bool], Coroutine[Any, Any, T]]) -> None:
        self.start = start


@types.coroutine
def on_engine(work: Coroutine[Any, Any, T]) -> Generator[_EngineWork[T], T, T]:
    """Have the engine thread do some work, and return its result.

    Only for coroutines that `drive_blocking` or `drive_awaited` drives.
    """
    return (yield _EngineWork(lambda _: work))


@types.coroutine
def on_engine_told(
    work: Callable[[bool], Coroutine[Any, Any, T]],
) -> Generator[_EngineWork[T], T, T]:
    """Have the engine thread do some work that must know whether the caller blocks.

    Args:
        work: Begins it. Its argument is whether the caller blocks. See `on_engine`.
    """
    return (yield _EngineWork(work))


def _next(resume: Callable[[Any], Any], value: Any) -> _EngineWork[Any]:
    """Resume a coroutine with a value or an error, and get the work that it yields next."""
    try:
        request = resume(value)
    except RuntimeError as error:
        if str(error) != _NO_LOOP:
            raise
        raise UsageError(_AWAITS_OTHERS, hint=_ON_ENGINE) from error
    if isinstance(request, _EngineWork):
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

_ON_ENGINE = "Have the engine await it: await on_engine(…)."


def drive_blocking(engine: EngineThread, steps: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine to its end on the caller's thread, which blocks while the engine works.

    Returns what the coroutine returns, and raises what it raises.
    """
    try:
        request = _next(steps.send, None)
        while True:
            try:
                result = engine.run(request.start(True))
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


async def drive_awaited(engine: EngineThread, steps: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine to its end on the caller's loop, which goes on while the engine works.

    On the engine's own loop, as in a widget's command, the work is awaited there.

    Returns what the coroutine returns, and raises what it raises.
    """
    try:
        request = _next(steps.send, None)
        while True:
            try:
                work = request.start(False)
                if not engine.is_current:
                    work = engine.wait(work)
                result = await work
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
        return drive_blocking(self._engine, core(self, *args, **kwargs))

    return cast("Blocking[S, P, T]", method)


def awaited(twin: Blocking[S, P, T]) -> Awaited[S, P, T]:
    """Get the awaitable twin of a method that `blocking` made. Its name ends in `_async`."""
    core: Awaited[S, P, T] = cast("Any", twin).__wrapped__

    @functools.wraps(core)
    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await drive_awaited(self._engine, core(self, *args, **kwargs))

    method.__name__ += "_async"
    method.__qualname__ += "_async"
    return cast("Awaited[S, P, T]", method)
