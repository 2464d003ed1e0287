"""The order of the calls in one answer: a call that writes is not overtaken on its server."""

from __future__ import annotations

import asyncio
from typing import Any

from casual_mcp_nb.base.tool import ToolSpec


class CallOrder:
    """Says which calls of an answer wait for which, in the order in which the model wrote them.

    A call of a tool that is declared to write waits for all calls to its server before it, and all
    calls to this server after it wait for it. Other calls run at the same time: those that read,
    those whose server does not declare whether they write, and those to different servers.
    """

    def __init__(self) -> None:
        self._last_write: dict[str, asyncio.Task[Any]] = {}
        self._since: dict[str, list[asyncio.Task[Any]]] = {}

    def before(self, tool: ToolSpec) -> list[asyncio.Task[Any]]:
        """List the calls that a call of this tool waits for, if it comes next."""
        last_write = self._last_write.get(tool.server)
        earlier = [last_write] if last_write is not None else []
        if tool.declared_to_write:
            earlier += self._since.get(tool.server, ())
        return earlier

    def add(self, tool: ToolSpec, task: asyncio.Task[Any]) -> None:
        """Add a call of this tool as the last one."""
        if tool.declared_to_write:
            self._last_write[tool.server] = task
            self._since[tool.server] = []
        else:
            self._since.setdefault(tool.server, []).append(task)
