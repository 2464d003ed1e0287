"""For whom a server runs calls: its questions to a person go to whoever called it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol


class Asker(Protocol):
    """Who made a call that did not come from the session itself, and can pass on a question."""

    @property
    def client(self) -> object:
        """The client that made the call; its calls have the same one."""

    async def elicit(self, server: str, message: str, params: Any) -> Any:
        """Pass on what a server asks during the call, and return the answer, an `ElicitResult`."""


ASKER: ContextVar[Asker | None] = ContextVar("casual_mcp_asker", default=None)
"""Who makes the calls of this task; None for the session."""


class RunningCalls:
    """The calls that run now, by server."""

    def __init__(self) -> None:
        self._askers: dict[str, list[Asker | None]] = {}

    @contextmanager
    def noted(self, server: str) -> Iterator[None]:
        """Note a call of this task at a server while the body runs."""
        asker, askers = ASKER.get(), self._askers.setdefault(server, [])
        askers.append(asker)
        try:
            yield
        finally:
            askers.remove(asker)
            if not askers and self._askers.get(server) is askers:
                del self._askers[server]

    def askers(self, server: str) -> list[Asker | None]:
        """Return who has calls running at a server, each client once, by its last call; None is the session."""
        by_client = {asker and asker.client: asker for asker in self._askers.get(server, ())}
        return list(by_client.values())
