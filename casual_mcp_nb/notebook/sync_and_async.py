"""Each method that takes time twice: one that blocks, one that is awaited. Written once.

Such a method is a coroutine on the side of the caller, on whose thread it shows what it shows; what belongs to the engine it
hands over with `await on_engine(work)`. How the caller waits for that is the only difference between the twins.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

from casual_mcp_nb.notebook.loop import EngineThread


class HasEngine(Protocol):
    """Whoever has an engine thread."""

    engine: EngineThread


S = TypeVar("S", bound=HasEngine)
P = ParamSpec("P")
T = TypeVar("T")

Blocking = Callable[Concatenate[S, P], T]
Awaited = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


class _Handover(Generic[T]):
    def __init__(self, work: Callable[[bool], Coroutine[Any, Any, T]]) -> None:
        self.work = work

    def __await__(self) -> Generator[_Handover[T], T, T]:
        return (yield self)


async def on_engine(work: Callable[[bool], Coroutine[Any, Any, T]]) -> T:
    """Have the engine thread work, in a coroutine that `run` or `wait` drives.

    Args:
        work: Makes the coroutine for the engine; is told whether the caller blocks meanwhile.
    """
    handover: _Handover[T] = _Handover(work)
    return await handover


def run(engine: EngineThread, steps: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine of the caller's side to its end; the caller blocks while the engine works for it."""
    try:
        asked = steps.send(None)
        while True:
            try:
                result = engine.run(asked.work(True))
            except BaseException as error:
                asked = steps.throw(error)
            else:
                asked = steps.send(result)
    except StopIteration as end:
        return cast("T", end.value)
    finally:
        steps.close()


async def wait(engine: EngineThread, steps: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine of the caller's side to its end; the caller's loop goes on while the engine works for it."""
    try:
        asked = steps.send(None)
        while True:
            try:
                result = await engine.wait(asked.work(False))
            except BaseException as error:
                asked = steps.throw(error)
            else:
                asked = steps.send(result)
    except StopIteration as end:
        return cast("T", end.value)
    finally:
        steps.close()


def blocking(core: Awaited[S, P, T]) -> Blocking[S, P, T]:
    """Make the method that blocks out of its coroutine function. A decorator."""

    @functools.wraps(core)
    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(self.engine, core(self, *args, **kwargs))

    return cast("Blocking[S, P, T]", method)


def awaited(twin: Blocking[S, P, T]) -> Awaited[S, P, T]:
    """Make the twin of a method that `blocking` has made; its name ends in `_async`."""
    core: Awaited[S, P, T] = cast("Any", twin).__wrapped__

    @functools.wraps(core)
    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await wait(self.engine, core(self, *args, **kwargs))

    method.__name__ += "_async"
    method.__qualname__ += "_async"
    return cast("Awaited[S, P, T]", method)
