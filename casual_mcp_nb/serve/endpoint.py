"""An address at which a session is served, until it is closed or the session ends."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Self

from casual_mcp_nb.base.displayable import Displayable
from casual_mcp_nb.base.service import ServedTools, ServiceStatus
from casual_mcp_nb.notebook.blocking import awaited, blocking, on_engine
from casual_mcp_nb.notebook.loop import EngineThread


class Endpoint(Displayable, ABC):
    """An address at which a session is served: a context manager, or call `close`.

    It ends with the session, too. `url` is for clients on this computer.
    """

    def __init__(self, engine: EngineThread, host: str, port: int, path: str = "") -> None:
        name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        if ":" in name:
            name = f"[{name}]"
        self._engine = engine
        self.host = host
        self.port = port
        self.url = f"http://{name}:{port}{path}"
        self._ending = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether it has ended, or is about to."""
        return self._ending.is_set()

    @property
    @abstractmethod
    def status(self) -> ServiceStatus | ServedTools:
        """The service's current state."""

    @blocking
    async def close(self) -> None:
        """Accept nothing more, and stop the work for clients. The session stays.

        Closing twice is allowed.
        """
        if not self._engine.inherited:
            await on_engine(self.end())

    close_async = awaited(close)

    @blocking
    async def wait(self) -> None:
        """Wait until it has ended: closed by another thread, or with the session."""
        await on_engine(self._ended.wait())

    wait_async = awaited(wait)

    async def begin(self) -> None:
        """Begin to serve, on the engine's loop. Returns as soon as clients can connect."""
        try:
            await self._begin()
        except BaseException:
            await self.end()
            raise

    async def end(self) -> None:
        """End it, on the engine's loop, see `close`."""
        if self._ending.is_set():
            await self._ended.wait()
            return
        self._ending.set()
        try:
            await self._end()
        finally:
            self._ended.set()

    @abstractmethod
    async def _begin(self) -> None:
        """Accept clients."""

    @abstractmethod
    async def _end(self) -> None:
        """Stop all work, and accept nothing more. Called once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close_async()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<{type(self).__name__}: {self.url}{state}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.status._repr_mimebundle_(include, exclude)
