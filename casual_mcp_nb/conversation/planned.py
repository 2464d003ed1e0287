"""The calls that a model would make: a person reads and edits them before they run."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from casual_mcp_nb.base.displayable import Displayable, DisplayableList
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.conversation.event import Event
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import UsageError

Check = Callable[[ToolSpec, Mapping[str, Any]], Sequence[str]]
"""Returns the problems in a tool's arguments."""


@dataclass(eq=False)
class PlannedCall(Displayable):
    """A call that a model would make. To change it, assign to `arguments` or a part.

    Args:
        id: The model's call id.
        name: The tool's name as the model wrote it.
        tool: The tool, or None if there is none with that name.
        arguments: The arguments, or the model's text if that is not a JSON object.
        check: Checks the arguments.
        skipped: Whether `PlannedCalls.run` leaves it out.
        call: The call with its result, or None before `PlannedCalls.run`.
        ran: Whether its tool was called, which happens once, and never if it was denied, mocked or
            not sent.
        events: The call's events.
    """

    id: str
    name: str
    tool: ToolSpec | None
    arguments: dict[str, Any] | str
    check: Check = field(repr=False)
    skipped: bool = False
    call: ToolCall | None = field(default=None, repr=False)
    ran: bool = False
    events: tuple[Event, ...] = field(default=(), repr=False)

    @property
    def problems(self) -> tuple[str, ...]:
        """Where the current arguments break the tool's schema. Empty if nowhere."""
        if self.tool is None:
            return ("There is no such tool.",)
        if isinstance(self.arguments, str):
            return ("The arguments are not a JSON object.",)
        return tuple(self.check(self.tool, self.arguments))

    def skip(self) -> None:
        """Leave it out when all calls are run; `skipped = False` includes it again."""
        self.skipped = True


def _is_open(call: PlannedCall) -> bool:
    """Check whether a call was neither run nor skipped."""
    return call.call is None and not call.skipped


class ToolCalls(DisplayableList[ToolCall], items="_calls"):
    """Calls that were run."""

    def __init__(self, calls: Iterable[ToolCall]) -> None:
        self._calls = tuple(calls)

    def __repr__(self) -> str:
        return f"<ToolCalls: {len(self)}>"


class PlannedCalls(DisplayableList[PlannedCall], items="_calls"):
    """The calls that a model would make to answer a prompt. Only searches for tools were run.

    Args:
        turn: The planning turn, with its searches, requests and tokens. The conversation does not
            include it.
        run: Runs calls and waits.
        run_async: Runs calls, to be awaited.
        resume: Continues the conversation and waits. Takes a notebook's live output.
        resume_async: Continues the conversation, to be awaited.
    """

    def __init__(
        self,
        turn: Turn,
        calls: Iterable[PlannedCall],
        run: Callable[[Sequence[PlannedCall]], ToolCalls],
        run_async: Callable[[Sequence[PlannedCall]], Awaitable[ToolCalls]],
        resume: Callable[[Any], Turn],
        resume_async: Callable[[Any], Awaitable[Turn]],
    ) -> None:
        self.turn = turn
        self._calls = tuple(calls)
        self._run, self._run_async = run, run_async
        self._resume, self._resume_async = resume, resume_async
        self._lock = threading.Lock()
        self._running: set[str] = set()

    @property
    def answer(self) -> str:
        """The model's text beside the calls, or instead of any."""
        return self.turn.answer

    def run(self, *indices: int) -> ToolCalls:
        """Run the calls, at the same time, as a turn would: the person is asked according to the
        policy.

        The conversation does not change. `resume` gives the results to the model. Each call's tool
        is called once.

        Args:
            indices: Which calls, from 0. Without any, all that were neither run nor skipped.

        Returns:
            The calls with their results.

        Raises:
            UsageError: There is no such index, a call was run already, or a tool definition has
                changed since the model read it. Nothing was run.
        """
        with self._chosen(indices) as calls:
            return self._run(calls)

    async def run_async(self, *indices: int) -> ToolCalls:
        """Run the calls as `run` does. To be awaited."""
        with self._chosen(indices) as calls:
            return await self._run_async(calls)

    def resume(self, *, echo: Literal["none", "text", "output", "all"] = "output") -> Turn:
        """Continue the conversation: the model reads the calls' results, and answers or calls more
        tools.

        The planned turn joins the conversation, with the arguments as they were run. The model
        reads which calls you skipped. Options stay as given to `Session.plan`.

        Args:
            echo: See `Session.chat`.

        Returns:
            The turn, like `Session.chat`.

        Raises:
            UsageError: A call was neither run nor skipped, the conversation has changed since the
                plan, or a turn is running.
        """
        self._check_complete()
        return self._resume(echo)

    async def resume_async(
        self, *, echo: Literal["none", "text", "output", "all"] = "output"
    ) -> Turn:
        """Continue the conversation as `resume` does. To be awaited."""
        self._check_complete()
        return await self._resume_async(echo)

    def _check_complete(self) -> None:
        with self._lock:
            waiting = []
            for n, each in enumerate(self):
                if each.id in self._running or _is_open(each):
                    waiting.append(n)
        if waiting:
            raise UsageError(
                f"Planned call {waiting[0]} was not run or skipped.",
                hint=f"Run it: plan.run({waiting[0]}). Or leave it out: plan[{waiting[0]}].skip().",
            )

    @contextmanager
    def _chosen(self, indices: Sequence[int]) -> Iterator[list[PlannedCall]]:
        for index in indices:
            if not -len(self) <= index < len(self):
                raise UsageError(
                    f"There is no planned call {index}.", hint=f"There are {len(self)}, from 0."
                )
        numbers = list(dict.fromkeys(index % len(self) for index in indices))
        with self._lock:
            for number in numbers:
                if self[number].ran or self[number].id in self._running:
                    raise UsageError(
                        f"Planned call {number} has already run, and runs only once.",
                        hint=(
                            f"Its result: plan[{number}].call. To make it again, call the tool:"
                            " session.tools.call(…)."
                        ),
                    )
            chosen = [self[number] for number in numbers]
            if not indices:
                chosen = [each for each in self if _is_open(each) and each.id not in self._running]
            self._running |= {each.id for each in chosen}
        try:
            yield chosen
        finally:
            with self._lock:
                self._running -= {each.id for each in chosen}

    def __repr__(self) -> str:
        return f"<PlannedCalls: {', '.join(each.name for each in self) or 'none'}>"
