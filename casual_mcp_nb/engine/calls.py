"""Run one model response's tool calls concurrently, within limits, including nested and repeated
ones.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Coroutine, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from pydantic_core import to_jsonable_python

from casual_mcp_nb.base.arguments import parse_arguments
from casual_mcp_nb.base.content import LargeResult, ToolResult, format_result
from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.tool import Permission, ToolName, ToolSpec
from casual_mcp_nb.conversation.event import (
    PACKAGE_TOOLS,
    SYNTHETIC,
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    Notice,
    SearchRow,
    SkillRead,
    ToolFinished,
    ToolProgress,
    ToolsSearched,
    ToolStarted,
)
from casual_mcp_nb.conversation.step import UNANSWERED, NamedCall, ToolCall, is_program, loaded_in
from casual_mcp_nb.discovery.synthetic import SyntheticToolResult
from casual_mcp_nb.engine.dispatch import CallListener, CallOutcome, Dispatcher, TaskDesk
from casual_mcp_nb.engine.large_results import THROUGH_BRIDGE, LargeResults
from casual_mcp_nb.engine.options import TurnLimits
from casual_mcp_nb.engine.results import characters_within, cut_result
from casual_mcp_nb.engine.small_models import SmallModelAid
from casual_mcp_nb.engine.throttles import ProgressThrottle
from casual_mcp_nb.errors import RepeatedCallError, ToolCallError, UsageError, shown
from casual_mcp_nb.own_tools.context import SCOPE, STOPPED
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK
from casual_mcp_nb.servers.tasks import FollowedTask

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall


WARN_AFTER = 3
"""After this many identical calls with the same result or failure, the model gets a warning."""
END_AFTER = 5
"""After this many identical failures, the turn ends.

Successes do not end it: a model may ask often whether a job is done.
"""

_MAX_REASON = 200
_MAX_RESULT = 300
_MAX_FOR_APP = 2_000_000
"""How long a result may be that is kept whole for an app, in characters."""

_SYNTHETIC = f"{SYNTHETIC}:"
_NOTHING: Mapping[str, str] = {}
_JSON = json.JSONEncoder(sort_keys=True, default=str)

_Identity = tuple[str, str, str]
"""Tool, arguments, and result or error."""


def _written(arguments: dict[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else _JSON.encode(arguments)


class Repeats:
    """One turn's repeated calls.

    Two calls are the same if their tool, arguments and result or error are. Within a step they
    count once: the model has read nothing in between.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], tuple[int, dict[str, Any] | str]] = {}
        self._steps: dict[_Identity, set[int]] = defaultdict(set)
        self._error: RepeatedCallError | None = None
        self._warned: set[_Identity] = set()
        self._last_success = "", ""

    @property
    def last_useful(self) -> str:
        """The last call that succeeded, with the beginning of its result, or empty if none did."""
        name, text = self._last_success
        if not name:
            return ""
        beginning = " ".join(text[: _MAX_RESULT * 2].split())
        return f"{name}: {shown(beginning, _MAX_RESULT)}"

    def record_success(
        self,
        step: int,
        name: str,
        arguments: dict[str, Any] | str,
        text: str,
        aid: SmallModelAid,
    ) -> tuple[str, str]:
        """Count a successful call by a model.

        Returns:
            A note to add to the result for the model, and the first time a notice for the person.
            Otherwise, empty.
        """
        call, times = self._count(step, name, arguments, text)
        if not name.startswith(_SYNTHETIC):
            self._last_success = name, text
            if reminder := aid.reminder(times):
                return reminder, ""
        if times < WARN_AFTER:
            return "", ""
        warning = (
            f"\nThis call has now been made {times} times with the same arguments and the same"
            " result. Do not make it again: use the result, change the arguments, or answer."
        )
        if call in self._warned:
            return warning, ""
        self._warned.add(call)
        notice = (
            f"The model made the same call of {shown(name)} {times} times, and the result was the"
            " same each time: it was told."
        )
        return warning, notice

    def _count(
        self, step: int, name: str, arguments: dict[str, Any] | str, text: str
    ) -> tuple[_Identity, int]:
        """Count the steps in which a call occurred, and identify the call."""
        at, first = self._first.setdefault((name, text), (step, arguments))
        if at == step and first is arguments:
            # Most results come once, and writing the arguments takes as long as all else here.
            return (name, "", text), 1
        self._steps[name, _written(first), text].add(at)
        identity = (name, _written(arguments), text)
        self._steps[identity].add(step)
        return identity, len(self._steps[identity])

    def record(self, step: int, name: str, arguments: dict[str, Any] | str, text: str) -> str:
        """Count a failed call.

        Returns:
            A warning for the model, to add to the failure, or empty for the first times.
        """
        _, times = self._count(step, name, arguments, text)
        if times >= END_AFTER:
            reason = " ".join(text[: _MAX_REASON * 2].split())[:_MAX_REASON]
            self._error = RepeatedCallError(
                f"The model called {shown(name)} {times} times with the same arguments, "
                f"and it failed each time with the same error: {reason}",
                hint=(
                    "Completed steps are kept. Correct the cause of the error, or tell the model to"
                    " do something else."
                ),
            )
        if times < WARN_AFTER:
            return ""
        return (
            f"\nThis call has now failed {times} times in the same way. Do not make it again:"
            " change the arguments, use another tool, or answer without it."
        )

    def check(self) -> None:
        """Check that no call has failed too often."""
        if self._error is not None:
            raise self._error


MAX_DEPTH = 5
"""Maximum nesting depth for calls."""


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
    """Build the value for a nested call that has ended."""
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
    """The calls nested in one call. An async context manager around it, which ends them with it.

    Args:
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
        """Run a nested call in a separate task.

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
        """Run a nested call in a separate task, in whatever status it ends.

        Raises:
            ToolCallError: It is nested too deep, or the call around it has ended.
            UsageError: There is no such tool, or the arguments have no JSON form.
        """
        if self._ended:
            raise ToolCallError(STOPPED)
        if self.depth >= MAX_DEPTH:
            raise ToolCallError(
                f"Tool {shown(name)} was not called: {MAX_DEPTH} calls are nested in one another"
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
                f"{self.call_id}/{next(self._numbers)}",
                self.call_id,
                name,
                jsonable,
                self.depth + 1,
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
        if tasks := [task for task in self._tasks if task is not None]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


@dataclass(eq=False, repr=False)
class Calls:
    """Runs one turn's tool calls.

    Args:
        tasks: Keeps the tasks that calls become, or None if such calls wait for their end.

    Attributes:
        servers: The server of each running call.
    """

    dispatcher: Dispatcher
    limits: TurnLimits
    emit: Callable[[Event], None]
    now: Callable[[], float]
    large_results: LargeResults
    tasks: TaskDesk | None = None
    repeats: Repeats = field(default_factory=Repeats)
    servers: list[str] = field(default_factory=list)
    _slots: asyncio.Semaphore | None = None
    _recorded: Mapping[str, str] = field(default_factory=dict)

    async def run(
        self,
        step: int,
        calls: Sequence[AssistantToolCall],
        refused: Mapping[str, str],
        recorded: Mapping[str, str] = _NOTHING,
    ) -> list[CallOutcome]:
        """Run a step's calls concurrently. Refuses those beyond the limit.

        Args:
            step: The step's number.
            calls: The calls in the model's answer.
            refused: Errors in place of calls, by the calls' ids.
            recorded: The results' texts in the cassette that is replayed, by the calls' ids.
        """
        self._recorded = recorded
        if len(calls) == 1 and not refused:
            # Most steps make one call, which needs no separate task.
            call, named = calls[0], self.dispatcher.read(calls[0])
            return [(await self._call(step, call, named, self._started(step, call, *named[:2])))[1]]
        limit = self.limits.max_calls_per_step
        over_limit = (
            f"Error: this call was not run: an answer can have {limit} calls. Make it again in your"
            " next answer."
        )
        refused = {**dict.fromkeys((call.id for call in calls[limit:]), over_limit), **refused}
        ended = await self._run_all(step, [call for call in calls if call.id not in refused])
        if len(calls) > limit:
            text = (
                f"The model made {len(calls):,} calls in one answer. The first {limit:,} were run."
            )
            self.emit(Notice(text, at=self.now()))
        return [
            self._refuse(step, call, refused[call.id]) if call.id in refused else ended[call.id]
            for call in calls
        ]

    async def _run_all(
        self, step: int, calls: Sequence[AssistantToolCall]
    ) -> dict[str, CallOutcome]:
        """Run calls concurrently, those to unknown tools after the others, which may add the
        tools.
        """
        unknown = await self.dispatcher.unknown(calls)
        if len(unknown) == len(calls):
            unknown = set()
        self._slots = asyncio.Semaphore(self.limits.parallel_calls)
        outcomes: dict[str, CallOutcome] = {}
        read = []
        for call in calls:
            # Observers may set variables when a call starts, such as its span, which are for this
            # call only.
            context, named = copy_context(), self.dispatcher.read(call)
            read.append((context, call, named, context.run(self._started, step, call, *named[:2])))
        for late in (False, True):
            group = [each for each in read if (each[1].id in unknown) is late]
            tasks = [
                asyncio.create_task(self._call(step, call, named, tool, late), context=context)
                for context, call, named, tool in group
            ]
            ended = await asyncio.gather(*tasks)
            outcomes.update(
                (call.id, visible)
                for (_, call, _, _), (_, visible) in zip(group, ended, strict=True)
            )
        return outcomes

    def _call(
        self,
        step: int,
        call: AssistantToolCall,
        named: NamedCall,
        tool: ToolName,
        late: bool = False,
    ) -> Coroutine[Any, Any, tuple[CallOutcome, CallOutcome]]:
        """Prepare a call by the model that has started, see `_observed`."""
        name, arguments, bridged = named

        def read(text: str, outcome: CallOutcome) -> str:
            text = worded(text, outcome)
            return text if _runs_in_replays(tool, outcome) else self._recorded.get(call.id, text)

        def worded(text: str, outcome: CallOutcome) -> str:
            if not outcome.search and self.limits.result_format != "result":
                text = format_result(text, self.limits.result_format, name, arguments)
            if outcome.status != "ok":
                return text + outcome.note + self.repeats.record(step, str(tool), arguments, text)
            warning, notice = self.repeats.record_success(
                step, str(tool), arguments, text, self.dispatcher.aid
            )
            if notice:
                self.emit(Notice(notice, tool.server, self.now()))
            return text + outcome.note + warning

        run = partial(self.dispatcher.run, name, arguments, bridged=bridged, late=late)
        return self._observed(step, call.id, tool, run, read)

    async def _nested(self, step: int, nested: NestedCall) -> ToolCall:
        """Run a call that a function makes."""
        tool, at = self.dispatcher.tools.view.catalog.resolve(nested.name), self.now()
        name, arguments = tool.wire_name, nested.arguments
        self.emit(
            ToolStarted(step, nested.id, name, tool.tool_name, arguments, at, name, nested.parent)
        )
        outcome, _ = await self._observed(
            step,
            nested.id,
            tool.tool_name,
            partial(self.dispatcher.run, tool, arguments),
            lambda text, _: text,
            nested.depth,
        )
        return ended_call(nested, tool, outcome, self.now() - at, at)

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

        Returns:
            The outcome, and the outcome as the model reads it.
        """
        progress = ProgressThrottle(
            lambda report: self.emit(ToolProgress(call_id, *report, self.now()))
        )
        permission: Permission | None = None

        def on_approval(waiting: bool) -> None:
            self.emit((ApprovalAsked if waiting else ApprovalAnswered)(call_id, self.now()))

        def on_permission(decided: Permission) -> None:
            nonlocal permission
            permission = decided

        task = 0

        def on_task(started: FollowedTask) -> int:
            nonlocal task
            assert self.tasks is not None
            task = self.tasks.keep(started, step, call_id, self.emit, self.now)
            return task

        self.servers.append(tool.server)
        try:
            # A function that makes a call needs the result.
            may_go_on = self.tasks is not None and not depth
            listener = CallListener(
                progress.add, on_approval, on_permission, on_task if may_go_on else None
            )
            # A nested call takes no slot, since the call around it has one.
            running = (
                run(listener) if depth or self._slots is None else _in(self._slots, run, listener)
            )
            if tool.server == NOTEBOOK or is_program(tool):
                # Functions and programs can make calls.
                async with Nesting(
                    call_id, self.dispatcher.context, partial(self._nested, step), depth
                ):
                    outcome = await running
            else:
                outcome = await running
            text, result, large = await self._within_limit(outcome, call_id, tool)
            if large is not None and self.dispatcher.tools.bridges:
                text += THROUGH_BRIDGE
        except asyncio.CancelledError:
            progress.close()
            text = stopped_with_task(task) if task else UNANSWERED
            stopped = ToolFinished(
                step, call_id, tool, "stopped", text, at=self.now(), permission=permission
            )
            self.emit(stopped)
            raise
        finally:
            self.servers.remove(tool.server)
        progress.close()
        visible = CallOutcome(outcome.status, read(text, outcome), result, outcome.search)
        ended = (visible.status, visible.text, visible.result, self.now(), permission, large)
        self.emit(ToolFinished(step, call_id, tool, *ended))
        if (read_file := outcome.skill) is not None:
            name = ToolName(read_file.server, read_file.name)
            file = read_file.path, read_file.tokens, read_file.digest, read_file.checked
            self.emit(SkillRead(step, call_id, name, *file, self.now()))
        if progress.left_out:
            counts = f"{progress.received:,} times, and {progress.left_out:,} of them are left out"
            self.emit(
                Notice(
                    f"Tool {shown(tool.tool)} reported progress {counts}.", tool.server, self.now()
                )
            )
        return outcome, visible

    def _refuse(self, step: int, call: AssistantToolCall, text: str) -> CallOutcome:
        name, arguments, _ = self.dispatcher.read(call)
        tool = self._started(step, call, name, arguments)
        text = self._recorded.get(call.id, text)
        self.emit(ToolFinished(step, call.id, tool, "error", text, at=self.now()))
        return CallOutcome("error", text)

    def _started(
        self, step: int, call: AssistantToolCall, name: str, arguments: dict[str, Any] | str
    ) -> ToolName:
        tool, wire_name = self.dispatcher.tools.identify(name)
        spec = self.dispatcher.tools.view.catalog.by_wire_name.get(wire_name)
        self.emit(
            ToolStarted(
                step,
                call.id,
                name,
                tool,
                arguments,
                self.now(),
                wire_name,
                None,
                spec.app if spec else "",
            )
        )
        return tool

    async def _within_limit(
        self, outcome: CallOutcome, call_id: str, tool: ToolName
    ) -> tuple[str, ToolResult | None, LargeResult | None]:
        """Keep a large result and shorten it to its head.

        Other outcomes keep their text and result.
        """
        text, result = encodable(outcome.text), outcome.result
        limit = self.large_results.limit_for(tool.server, self.limits.result_tokens)
        # No character is more than a token.
        if (
            outcome.search
            or limit is None
            or len(text) <= limit
            or characters_within(text, limit) == len(text)
        ):
            if result is None or result.rows is None:
                return text, result, None
            noted, large = await self.large_results.keep_rows(call_id, result.rows, text)
            return noted, result, large
        head, large = await self.large_results.keep(call_id, result, text, limit)
        if result is None:
            return head, None, large
        spec = self.dispatcher.tools.view.catalog.get(tool)
        whole = result if spec is not None and spec.app and len(text) <= _MAX_FOR_APP else None
        return head, replace(cut_result(result, limit), whole=whole), large


def _runs_in_replays(tool: ToolName, outcome: CallOutcome) -> bool:
    """Check whether a replay runs a call as well: those of functions, programs, stubs and a
    person's own synthetic tools.
    """
    if tool.server == SYNTHETIC:
        return is_program(tool) or tool.tool not in PACKAGE_TOOLS
    return tool.server == NOTEBOOK or (outcome.result is not None and outcome.result.mocked)


def stopped_with_task(number: int) -> str:
    """Format the result of a call that was stopped while it waited for its task."""
    return (
        f"This call was stopped, but its task {number} goes on. Its result will be given to you as"
        " soon as it is there."
    )


async def _in(
    slots: asyncio.Semaphore,
    run: Callable[[CallListener], Awaitable[CallOutcome]],
    listener: CallListener,
) -> CallOutcome:
    async with slots:
        return await run(listener)


def search_event(
    step: int, call: AssistantToolCall, search: SyntheticToolResult, offered: int, at: float
) -> ToolsSearched | None:
    """Build the event for a call that searched for tools, or None for another call."""
    if search.rows is None:
        return None
    arguments = parse_arguments(call.function.arguments)
    query = _query_in_words(arguments) if isinstance(arguments, dict) else ""
    unloaded = tuple(tool.tool_name for tool in search.unloaded)
    return ToolsSearched(
        step, call.id, query, search.rows, offered, at, unloaded, search.ranked_by, search.skills
    )


def as_presented(
    search: SyntheticToolResult, text: str, deferred: Mapping[str, ToolSpec], loaded: Container[str]
) -> SyntheticToolResult:
    """Correct a search's result to the tools that a text presents as loaded, which is the text that
    the model reads.

    Args:
        search: The result of the search.
        text: The text, from the cassette that is replayed.
        deferred: The deferred tools, by wire name.
        loaded: The wire names of those that are loaded already.
    """
    names = loaded_in(text)
    if names == loaded_in(search.content):
        return search
    rows = {row.tool: row for row in search.rows or ()}
    tools = [deferred[name] for name in names if name in deferred]
    new = [tool for tool in tools if tool.wire_name not in loaded]
    ranked = []
    for tool in tools:
        row = rows.get(tool.tool_name) or SearchRow(tool.tool_name, None, newly_loaded=True)
        ranked.append(replace(row, newly_loaded=tool in new))
    presented = tuple(ranked) if search.rows is not None else None
    return SyntheticToolResult(
        text, new, presented, search.unloaded, search.ranked_by, search.skills
    )


def _query_in_words(arguments: dict[str, Any]) -> str:
    parts = []
    if query := arguments.get("query"):
        parts.append(str(query))
    if server := arguments.get("server_name"):
        parts.append(f"server {server}")
    names = arguments.get("tool_names") or arguments.get("names")
    if isinstance(names, list) and names:
        parts.append(f"named {', '.join(map(str, names))}")
    return ", ".join(parts)[:1000]
