"""What a model would call: planned calls, which a person reads, edits and runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.types.displayable import Displayable, DisplayableList
from casual_mcp_nb.types.step import ToolCall
from casual_mcp_nb.types.tool import ToolSpec
from casual_mcp_nb.types.trace import Turn

Check = Callable[[ToolSpec, Mapping[str, Any]], Sequence[str]]
"""Returns what is wrong with the arguments of a tool."""


@dataclass(eq=False)
class PlannedCall(Displayable):
    """A call that a model would make. Assign to `arguments` or to a part of them to change it.

    Args:
        id: The id of the model's call.
        name: The tool's name as the model wrote it.
        tool: The tool; None if there is none of that name.
        arguments: The arguments, or the model's text if that is not a JSON object.
        check: Checks the arguments.
        skipped: Whether `PlannedCalls.run` leaves it out.
        call: The call as it was run; None if it was not.
    """

    id: str
    name: str
    tool: ToolSpec | None
    arguments: dict[str, Any] | str
    check: Check = field(repr=False)
    skipped: bool = False
    call: ToolCall | None = field(default=None, repr=False)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with it as it is now, by the schema of the tool; empty if nothing is."""
        if self.tool is None:
            return ("There is no such tool.",)
        if isinstance(self.arguments, str):
            return ("The arguments are not a JSON object.",)
        return tuple(self.check(self.tool, self.arguments))

    def skip(self) -> None:
        """Leave it out when all calls are run; `skipped = False` includes it again."""
        self.skipped = True


class ToolCalls(DisplayableList[ToolCall]):
    """Calls that were run.

    Args:
        calls: The calls, in order.
    """

    def __init__(self, calls: Iterable[ToolCall]) -> None:
        self._calls = tuple(calls)

    @property
    def _items(self) -> tuple[ToolCall, ...]:
        return self._calls

    def __repr__(self) -> str:
        return f"<ToolCalls: {len(self)}>"


class PlannedCalls(DisplayableList[PlannedCall]):
    """What a model would call to answer a prompt; nothing of it was run, except searches for tools.

    Args:
        turn: The turn of planning: its searches, requests and tokens. It is not part of the conversation.
        calls: The calls, in order.
        run: Runs some of them and waits.
        run_async: Runs some of them, to be awaited.
    """

    def __init__(
        self,
        turn: Turn,
        calls: Iterable[PlannedCall],
        run: Callable[[Sequence[PlannedCall]], ToolCalls],
        run_async: Callable[[Sequence[PlannedCall]], Awaitable[ToolCalls]],
    ) -> None:
        self.turn = turn
        self._calls = tuple(calls)
        self._run = run
        self._run_async = run_async

    @property
    def _items(self) -> tuple[PlannedCall, ...]:
        return self._calls

    @property
    def answer(self) -> str:
        """What the model wrote beside the calls, or instead of any."""
        return self.turn.answer

    def run(self, *indices: int) -> ToolCalls:
        """Run the calls, at the same time, as a turn would: the person is asked where the policy says so.

        The conversation does not change.

        Args:
            indices: Which of them, from 0; without any, all that were neither run yet nor skipped.

        Returns:
            The calls with their results.

        Raises:
            UsageError: There is no such index.
        """
        return self._run(self._chosen(indices))

    async def run_async(self, *indices: int) -> ToolCalls:
        """Run the calls as `run` does; to be awaited."""
        return await self._run_async(self._chosen(indices))

    def _chosen(self, indices: Sequence[int]) -> list[PlannedCall]:
        if not indices:
            return [each for each in self if each.call is None and not each.skipped]
        for index in indices:
            if not -len(self) <= index < len(self):
                raise UsageError(f"There is no planned call {index}.", hint=f"There are {len(self)}, from 0.")
        return [self[index] for index in dict.fromkeys(index % len(self) for index in indices)]

    def __repr__(self) -> str:
        return f"<PlannedCalls: {', '.join(each.name for each in self) or 'none'}>"
