"""The calls that a function makes while it runs as a tool: limited in depth, ended with the call around them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

from pydantic_core import to_jsonable_python

from casual_mcp_nb.errors import ToolCallError, UsageError, shown
from casual_mcp_nb.toolbox.context import SCOPE, STOPPED
from casual_mcp_nb.types.step import ToolCall

MAX_DEPTH = 5
"""How many calls can be nested in one another."""


@dataclass(frozen=True)
class NestedCall:
    """A call that a function makes.

    Args:
        id: Its id, made from that of the call around it.
        parent: The id of the call around it.
        name: The tool, by any name that the catalog resolves.
        arguments: The arguments, as JSON.
        depth: How many calls are around it.
    """

    id: str
    parent: str
    name: str
    arguments: dict[str, Any]
    depth: int


@dataclass(eq=False)
class Nesting:
    """The calls nested in one call; an async context manager around it, which ends them with it.

    Args:
        call_id: The id of the call.
        values: The context of the conversation.
        run: Runs a nested call.
        depth: How many calls are around this one.
    """

    call_id: str
    values: Mapping[str, Any] = field(repr=False)
    run: Callable[[NestedCall], Awaitable[ToolCall]]
    depth: int = 0

    def __post_init__(self) -> None:
        self._numbers = count(1)
        self._tasks: set[asyncio.Task[Any] | None] = set()
        self._ended = False

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Make a nested call, in a separate task.

        Raises:
            ToolCallError: It failed or was not approved, it is nested too deep, or the call around it has ended.
            UsageError: There is no such tool, or the arguments have no JSON form.
        """
        if self._ended:
            raise ToolCallError(STOPPED)
        if self.depth >= MAX_DEPTH:
            raise ToolCallError(f"Tool {shown(name)} was not called: {MAX_DEPTH} calls are nested in one another already.")
        try:
            jsonable = to_jsonable_python(dict(arguments))
        except ValueError:
            raise UsageError(f"The arguments for tool {shown(name)} have no JSON form.") from None
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            nested = NestedCall(f"{self.call_id}/{next(self._numbers)}", self.call_id, name, jsonable, self.depth + 1)
            call = await self.run(nested)
        finally:
            self._tasks.discard(task)
        if call.status != "ok":
            raise ToolCallError(call.result.removeprefix("Error: "), server=call.tool.server, tool=call.tool.tool)
        return call

    async def __aenter__(self) -> Self:
        self._token = SCOPE.set(self)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        SCOPE.reset(self._token)
        self._ended = True
        if tasks := [task for task in self._tasks if task is not None]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
