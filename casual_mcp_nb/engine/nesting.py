"""Calls that a call makes: those of notebook functions and of a model's programs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

from pydantic_core import to_jsonable_python

from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.iterables import present
from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.engine.outcomes import CallOutcome
from casual_mcp_nb.errors import ToolCallError, UsageError, shown
from casual_mcp_nb.own_tools.context import SCOPE, STOPPED

MAX_NESTED_CALLS = 5
"""How many calls may be nested in one another."""


@dataclass(frozen=True)
class NestedCall:
    """A call that a function makes."""

    id: str
    parent: str
    name: str
    arguments: dict[str, Any]
    depth: int


def ended_call(
    nested: NestedCall, tool: ToolSpec, outcome: CallOutcome, seconds: float, at: float = 0.0
) -> ToolCall:
    """Build what the function gets for a nested call that has ended."""
    return ToolCall(
        id=nested.id,
        name=tool.wire_name,
        tool=tool.tool_name,
        arguments=nested.arguments,
        status=outcome.status,
        result=encodable(outcome.text),
        original=outcome.result or ToolResult(),
        seconds=seconds,
        at=at,
    )


@dataclass(eq=False)
class Nesting:
    """The calls nested in one call. An async context manager around that call: leaving it ends the
    nested ones too.

    Args:
        call_id: The id of the call around them.
        values: The conversation's context, for the functions' parameters.
        run: Runs one nested call to its end.
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
        """Run a nested call, in the task that makes it.

        Raises:
            ToolCallError: It failed or nobody approved it, it is nested too deep, or the call
                around it has ended.
            UsageError: There is no such tool, or the arguments have no JSON form.
        """
        call = await self.make_call(name, arguments)
        if call.status != "ok":
            raise ToolCallError(
                call.result.removeprefix("Error: "), server=call.tool.server, tool=call.tool.tool
            )
        return call

    async def make_call(self, name: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Run a nested call, and return it whatever its status is.

        Raises:
            ToolCallError: It is nested too deep, or the call around it has ended.
            UsageError: There is no such tool, or the arguments have no JSON form.
        """
        if self._ended:
            raise ToolCallError(STOPPED)
        if self.depth >= MAX_NESTED_CALLS:
            raise ToolCallError(
                f"Tool {shown(name)} was not called: {MAX_NESTED_CALLS} calls are nested in one another"
                " already."
            )
        try:
            jsonable = to_jsonable_python(dict(arguments))
        except ValueError:
            raise UsageError(f"The arguments for tool {shown(name)} have no JSON form.") from None
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            nested = NestedCall(
                id=f"{self.call_id}/{next(self._numbers)}",
                parent=self.call_id,
                name=name,
                arguments=jsonable,
                depth=self.depth + 1,
            )
            return await self.run(nested)
        finally:
            self._tasks.discard(task)

    async def __aenter__(self) -> Self:
        self._token = SCOPE.set(self)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        SCOPE.reset(self._token)
        self._ended = True
        await end_all(present(self._tasks))


async def end_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until all of them have ended.

    If this is cancelled meanwhile, the cancellation is raised only when all have ended, so that
    none runs on after its caller.
    """
    cancelled: asyncio.CancelledError | None = None
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError as error:
            cancelled = error
        running = {task for task in running if not task.done()}
    if cancelled is not None:
        raise cancelled
