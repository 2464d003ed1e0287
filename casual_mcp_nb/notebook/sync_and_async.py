"""Each method that takes time twice: one that blocks, one that is awaited. Written once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from casual_mcp_nb.notebook.loop import EngineThread


class HasEngine(Protocol):
    """Whoever has an engine thread."""

    engine: EngineThread

    def start_shown(self) -> AbstractContextManager[object]:
        """Show how servers start while the body runs."""


S = TypeVar("S", bound=HasEngine)
P = ParamSpec("P")
T = TypeVar("T")

Core = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


def blocking(core: Core[S, P, T]) -> Callable[Concatenate[S, P], T]:
    """The method that runs `core` on the engine thread and waits for it."""

    @functools.wraps(core)
    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.start_shown():
            return self.engine.run(core(self, *args, **kwargs))

    return cast("Callable[Concatenate[S, P], T]", _named(method, core, ""))


def awaited(core: Core[S, P, T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The method that runs `core` on the engine thread and is awaited on any other loop."""

    @functools.wraps(core)
    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.start_shown():
            return await self.engine.wait(core(self, *args, **kwargs))

    return cast("Callable[Concatenate[S, P], Coroutine[Any, Any, T]]", _named(method, core, "_async"))


def _named(method: Callable[..., Any], core: Callable[..., Any], ending: str) -> Any:
    """The method under the name that it has in its class."""
    method.__name__ = core.__name__.removeprefix("_") + ending
    owner = core.__qualname__.rpartition(".")[0]
    method.__qualname__ = f"{owner}.{method.__name__}" if owner else method.__name__
    return method
