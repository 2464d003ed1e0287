"""Run the tool calls of one model response concurrently, within limits, and format their results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.engine.dispatch import CallListener, CallOutcome, Dispatcher
from casual_mcp_nb.engine.large_results import LargeResults
from casual_mcp_nb.engine.limits import TurnLimits
from casual_mcp_nb.engine.nested_calls import NestedCall, Nesting
from casual_mcp_nb.engine.repeats import Repeats
from casual_mcp_nb.engine.results import characters_within, cut_result, encodable
from casual_mcp_nb.engine.throttle import ProgressThrottle
from casual_mcp_nb.errors import shown
from casual_mcp_nb.toolbox.toolbox import NOTEBOOK
from casual_mcp_nb.types.bridged_call import NamedCall
from casual_mcp_nb.types.content import ToolResult
from casual_mcp_nb.types.event import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    Notice,
    ToolFinished,
    ToolProgress,
    ToolsSearched,
    ToolStarted,
)
from casual_mcp_nb.types.large_result import LargeResult
from casual_mcp_nb.types.nesting import parse_arguments
from casual_mcp_nb.types.permission import Permission
from casual_mcp_nb.types.result_text import format_result
from casual_mcp_nb.types.step import UNANSWERED, ToolCall
from casual_mcp_nb.types.tool import ToolName

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall

    from casual_mcp_nb.discovery import SyntheticToolResult


class Calls:
    """Runs the tool calls of one turn.

    Args:
        dispatcher: Runs each of them.
        limits: The limits of the turn.
        emit: Called with each event.
        now: Returns the seconds since the turn began.
        large_results: Keeps the results of which the model reads only the head.

    Attributes:
        servers: The server of each call that is running now.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        limits: TurnLimits,
        emit: Callable[[Event], None],
        now: Callable[[], float],
        large_results: LargeResults,
    ) -> None:
        self._dispatcher = dispatcher
        self._limits = limits
        self._emit = emit
        self._now = now
        self._large_results = large_results
        self._slots: asyncio.Semaphore | None = None
        self.repeats = Repeats()
        self.servers: list[str] = []

    async def run(self, step: int, calls: Sequence[AssistantToolCall], refused: Mapping[str, str]) -> list[CallOutcome]:
        """Run the calls of a step concurrently; those beyond the limit are refused.

        Args:
            step: The step, from 0.
            calls: The calls.
            refused: Errors for the model in place of calls that are not run, by their ids.

        Returns:
            An outcome for each call, in their order.
        """
        if len(calls) == 1 and not refused:
            # Most steps make one call, which needs no separate task.
            call, named = calls[0], self._dispatcher.read(calls[0])
            return [await self._call(step, call, named, self._started(step, call, *named[:2]))]
        limit = self._limits.max_calls_per_step
        over_limit = f"Error: this call was not run: an answer can have {limit} calls. Make it again in your next answer."
        refused = {**dict.fromkeys((call.id for call in calls[limit:]), over_limit), **refused}
        ended = await self._run_all(step, [call for call in calls if call.id not in refused])
        if len(calls) > limit:
            text = f"The model made {len(calls):,} calls in one answer; the first {limit:,} were run."
            self._emit(Notice(text, at=self._now()))
        return [self._refuse(step, call, refused[call.id]) if call.id in refused else ended[call.id] for call in calls]

    async def _run_all(self, step: int, calls: Sequence[AssistantToolCall]) -> dict[str, CallOutcome]:
        """Run calls concurrently, those of unknown tools after the others, which may add the tools."""
        unknown = await self._dispatcher.unknown(calls)
        if len(unknown) == len(calls):
            unknown = set()
        self._slots = asyncio.Semaphore(self._limits.parallel_calls)
        outcomes: dict[str, CallOutcome] = {}
        read = []
        for call in calls:
            # Observers may set variables when a call starts, such as its span, which are for this call only.
            context, named = copy_context(), self._dispatcher.read(call)
            read.append((context, call, named, context.run(self._started, step, call, *named[:2])))
        for late in (False, True):
            group = [each for each in read if (each[1].id in unknown) is late]
            tasks = [
                asyncio.create_task(self._call(step, call, named, tool, late), context=context)
                for context, call, named, tool in group
            ]
            ended = await asyncio.gather(*tasks)
            outcomes.update((call.id, outcome) for (_, call, _, _), outcome in zip(group, ended, strict=True))
        return outcomes

    async def _call(
        self, step: int, call: AssistantToolCall, named: NamedCall, tool: ToolName, late: bool = False
    ) -> CallOutcome:
        name, arguments, bridged = named

        def read(text: str, outcome: CallOutcome) -> str:
            if not outcome.search and self._limits.result_format != "result":
                text = format_result(text, self._limits.result_format, name, arguments)
            if outcome.status != "ok":
                return text + self.repeats.record(step, str(tool), arguments, text)
            warning, notice = self.repeats.record_success(step, str(tool), arguments, text)
            if notice:
                self._emit(Notice(notice, tool.server, self._now()))
            return text + warning

        run = partial(self._dispatcher.run, name, arguments, bridged=bridged, late=late)
        _, outcome = await self._observed(step, call.id, tool, run, read)
        return outcome

    async def _nested(self, step: int, nested: NestedCall) -> ToolCall:
        """Run a call that a function makes."""
        tool, at = self._dispatcher.view.catalog.resolve(nested.name), self._now()
        name, arguments = tool.wire_name, nested.arguments
        self._emit(ToolStarted(step, nested.id, name, tool.tool_name, arguments, at, name, nested.parent))
        outcome, _ = await self._observed(
            step,
            nested.id,
            tool.tool_name,
            partial(self._dispatcher.run_nested, tool, arguments),
            lambda text, _: text,
            nested.depth,
        )
        result = outcome.result or ToolResult()
        return ToolCall(
            nested.id,
            name,
            tool.tool_name,
            arguments,
            outcome.status,
            encodable(outcome.text),
            result.content,
            result.structured,
            seconds=self._now() - at,
            at=at,
            payload=result.payload,
            mocked=result.mocked,
            returned=result.returned,
        )

    async def _observed(
        self,
        step: int,
        call_id: str,
        tool: ToolName,
        run: Callable[[CallListener], Awaitable[CallOutcome]],
        read: Callable[[str, CallOutcome], str],
        depth: int = 0,
    ) -> tuple[CallOutcome, CallOutcome]:
        """Run a call that has started, and emit its progress, its questions and its end.

        Args:
            step: The step.
            call_id: The call's id.
            tool: Which tool.
            run: Runs it.
            read: Returns what is read, for a text that is not too large and its outcome.
            depth: How many calls are around it.

        Returns:
            The outcome, and the outcome as the model reads it.
        """
        progress = ProgressThrottle(lambda report: self._emit(ToolProgress(call_id, *report, self._now())))
        permission: Permission | None = None

        def on_approval(waiting: bool) -> None:
            self._emit((ApprovalAsked if waiting else ApprovalAnswered)(call_id, self._now()))

        def on_permission(decided: Permission) -> None:
            nonlocal permission
            permission = decided

        self.servers.append(tool.server)
        try:
            listener = CallListener(progress.add, on_approval, on_permission)
            # A nested call takes no slot, since the call around it has one.
            running = run(listener) if depth or self._slots is None else _in(self._slots, run, listener)
            if tool.server == NOTEBOOK:
                # Its functions can make calls.
                async with Nesting(call_id, self._dispatcher.context, partial(self._nested, step), depth):
                    outcome = await running
            else:
                outcome = await running
            text, result, large = await self._within_limit(outcome, call_id, tool.server)
        except asyncio.CancelledError:
            progress.close()
            stopped = ToolFinished(step, call_id, tool, "stopped", UNANSWERED, at=self._now(), permission=permission)
            self._emit(stopped)
            raise
        finally:
            self.servers.remove(tool.server)
        progress.close()
        visible = CallOutcome(outcome.status, read(text, outcome), result, outcome.search)
        ended = (visible.status, visible.text, visible.result, self._now(), permission, large)
        self._emit(ToolFinished(step, call_id, tool, *ended))
        if progress.left_out:
            counts = f"{progress.received:,} times; {progress.left_out:,} of them are left out"
            self._emit(Notice(f"Tool {shown(tool.tool)} reported progress {counts}.", tool.server, self._now()))
        return outcome, visible

    def _refuse(self, step: int, call: AssistantToolCall, text: str) -> CallOutcome:
        name, arguments, _ = self._dispatcher.read(call)
        tool = self._started(step, call, name, arguments)
        self._emit(ToolFinished(step, call.id, tool, "error", text, at=self._now()))
        return CallOutcome("error", text)

    def _started(self, step: int, call: AssistantToolCall, name: str, arguments: dict[str, Any] | str) -> ToolName:
        tool, wire_name = self._dispatcher.identify(name)
        self._emit(ToolStarted(step, call.id, name, tool, arguments, self._now(), wire_name))
        return tool

    async def _within_limit(
        self, outcome: CallOutcome, call_id: str, server: str
    ) -> tuple[str, ToolResult | None, LargeResult | None]:
        """Keep a large result and shorten it to its head; other outcomes keep their text and result."""
        text, result = encodable(outcome.text), outcome.result
        limit = self._large_results.limit_for(server, self._limits.result_tokens)
        # No character is more than a token.
        if outcome.search or limit is None or len(text) <= limit or characters_within(text, limit) == len(text):
            if result is None or result.rows is None:
                return text, result, None
            noted, large = await self._large_results.keep_rows(call_id, result.rows, text)
            return noted, result, large
        head, large = await self._large_results.keep(call_id, result, text, limit)
        return head, result and cut_result(result, limit), large


async def _in(
    slots: asyncio.Semaphore, run: Callable[[CallListener], Awaitable[CallOutcome]], listener: CallListener
) -> CallOutcome:
    async with slots:
        return await run(listener)


def search_event(
    step: int, call: AssistantToolCall, search: SyntheticToolResult, offered: int, at: float
) -> ToolsSearched | None:
    """Build the event for a call that searched for tools; None for another call.

    Args:
        step: The step, from 0.
        call: The call.
        search: Its result.
        offered: How many tools the model has after it.
        at: Seconds since the turn began.
    """
    if search.rows is None:
        return None
    arguments = parse_arguments(call.function.arguments)
    query = _query_in_words(arguments) if isinstance(arguments, dict) else ""
    return ToolsSearched(step, call.id, query, search.rows, offered, at, tuple(tool.tool_name for tool in search.unloaded))


def _query_in_words(arguments: dict[str, Any]) -> str:
    names = arguments.get("tool_names") or arguments.get("names")
    parts = [
        str(arguments["query"]) if arguments.get("query") else "",
        f"server {arguments['server_name']}" if arguments.get("server_name") else "",
        f"named {', '.join(map(str, names))}" if isinstance(names, list) and names else "",
    ]
    return ", ".join(part for part in parts if part)[:1000]
