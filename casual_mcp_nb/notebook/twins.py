"""Each method that takes time twice: one that blocks, one that is awaited. Written once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from casual_mcp_nb.notebook.loop import EngineThread


class HasEngine(Protocol):
    """Whoever has an engine thread."""

    engine: EngineThread


S = TypeVar("S", bound=HasEngine)
P = ParamSpec("P")
T = TypeVar("T")

Core = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


def blocking(core: Core[S, P, T]) -> Callable[Concatenate[S, P], T]:
    """The method that runs `core` on the engine thread and waits for it."""

    @functools.wraps(core)
    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.engine.run(core(self, *args, **kwargs))

    method.__name__ = core.__name__.removeprefix("_")
    return method


def awaited(core: Core[S, P, T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The method that runs `core` on the engine thread and is awaited on any other loop."""

    @functools.wraps(core)
    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.engine.wait(core(self, *args, **kwargs))

    method.__name__ = f"{core.__name__.removeprefix('_')}_async"
    return method
