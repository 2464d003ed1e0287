"""The calls of tools that one answer of the model asks for: run side by side, counted, their results put into words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.engine.dispatch import CallOutcome, Dispatcher
from casual_mcp_nb.engine.limits import TurnLimits
from casual_mcp_nb.engine.progress import ProgressThrottle
from casual_mcp_nb.engine.read_on import CutResults, how_to_read_on
from casual_mcp_nb.engine.repeats import Repeats
from casual_mcp_nb.engine.results import cut_text, encodable
from casual_mcp_nb.errors import shown
from casual_mcp_nb.types.event import (
    UNKNOWN,
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    Notice,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from casual_mcp_nb.types.nesting import parse_arguments
from casual_mcp_nb.types.result_text import format_result
from casual_mcp_nb.types.step import UNANSWERED

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall


class Calls:
    """Runs the calls of one turn.

    Args:
        dispatcher: Runs each of them.
        limits: What the turn may take.
        emit: Takes each event.
        now: Seconds since the turn began.
        cut_results: Takes the full text of each result that the model reads only a part of.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        limits: TurnLimits,
        emit: Callable[[Event], None],
        now: Callable[[], float],
        cut_results: CutResults,
    ) -> None:
        self._dispatcher = dispatcher
        self._limits = limits
        self._emit = emit
        self._now = now
        self._cut_results = cut_results
        self._slots = asyncio.Semaphore(limits.parallel_calls)
        self.repeats = Repeats()

    async def run(self, step: int, calls: Sequence[AssistantToolCall], refused: Mapping[str, str]) -> list[CallOutcome]:
        """Run the calls of a step side by side; those beyond the limit are refused.

        Args:
            step: The step that asked for them.
            calls: The calls.
            refused: What the model is told of calls that are not run, by their ids.

        Returns:
            An outcome for each call, in their order.
        """
        most = self._limits.max_calls_per_step
        beyond = f"Error: this call was not run: an answer can have {most} calls. Make it again in your next answer."
        why = {**dict.fromkeys((call.id for call in calls[most:]), beyond), **refused}
        ran = iter(await _side_by_side([self._call(step, call) for call in calls if call.id not in why]))
        if len(calls) > most:
            said = f"The model asked for {len(calls):,} calls in one answer; the first {most:,} were run."
            self._emit(Notice(said, at=self._now()))
        return [self._not_run(step, call, why[call.id]) if call.id in why else next(ran) for call in calls]

    async def _call(self, step: int, call: AssistantToolCall) -> CallOutcome:
        name, arguments = call.function.name, parse_arguments(call.function.arguments)
        progress = ProgressThrottle(lambda report: self._emit(ToolProgress(call.id, *report, self._now())))
        self._started(step, call, arguments)
        tool = self._dispatcher.owner(name)
        try:
            async with self._slots:
                outcome = await self._dispatcher.run(
                    name,
                    arguments,
                    progress.take,
                    lambda asked: self._emit((ApprovalAsked if asked else ApprovalAnswered)(call.id, self._now())),
                )
        except asyncio.CancelledError:
            progress.close()
            self._emit(ToolFinished(step, call.id, tool, "stopped", UNANSWERED, at=self._now()))
            raise
        progress.close()
        text = outcome.text if outcome.search else self._for_the_model(outcome.text, call, arguments)
        if outcome.status != "ok":
            text += self.repeats.note(step, str(tool), arguments, text)
        self._emit(ToolFinished(step, call.id, tool, outcome.status, text, outcome.result, self._now()))
        if progress.left_out:
            counts = f"{progress.received:,} times; {progress.left_out:,} of them are left out"
            said = f"Tool {shown(tool.tool)} reported progress {counts}."
            self._emit(Notice(said, tool.server, self._now()))
        return replace(outcome, text=text)

    def _not_run(self, step: int, call: AssistantToolCall, text: str) -> CallOutcome:
        self._started(step, call, parse_arguments(call.function.arguments))
        tool = self._dispatcher.owner(call.function.name)
        self._emit(ToolFinished(step, call.id, tool, "error", text, at=self._now()))
        return CallOutcome("error", text)

    def _started(self, step: int, call: AssistantToolCall, arguments: dict[str, Any] | str) -> None:
        name = call.function.name
        tool = self._dispatcher.owner(name)
        wire_name = "" if tool.server == UNKNOWN else self._dispatcher.wire_name(name) or name
        self._emit(ToolStarted(step, call.id, name, tool, arguments, self._now(), wire_name))

    def _for_the_model(self, text: str, call: AssistantToolCall, arguments: dict[str, Any] | str) -> str:
        whole = encodable(text)
        cut = cut_text(whole, self._limits.result_tokens, lambda offset: how_to_read_on(call.id, offset))
        if cut is whole:
            self._cut_results.forget(call.id)
        else:
            self._cut_results.keep(call.id, whole)
        return format_result(cut, self._limits.result_format, call.function.name, arguments)


async def _side_by_side(calls: Sequence[Coroutine[Any, Any, CallOutcome]]) -> list[CallOutcome]:
    # Most steps make one call, which needs no task of its own.
    return [await calls[0]] if len(calls) == 1 else await asyncio.gather(*calls)
