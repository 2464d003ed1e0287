"""Run the tool calls in a model's answer, and the calls nested in them, within limits. Those that
`CallOrder` does not hold back run at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from casual_mcp_nb.base.content import format_result
from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.base.tool import Permission, ToolName
from casual_mcp_nb.conversation.event import (
    PACKAGE_TOOLS,
    SYNTHETIC,
    ApprovalAnswered,
    ApprovalAsked,
    CallStatus,
    Event,
    Notice,
    SkillRead,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from casual_mcp_nb.conversation.step import UNANSWERED, NamedCall, ToolCall, is_program
from casual_mcp_nb.engine.call_order import CallOrder
from casual_mcp_nb.engine.dispatch import CallListener, Dispatcher
from casual_mcp_nb.engine.large_results import THROUGH_BRIDGE, LargeResults, Readable, passing
from casual_mcp_nb.engine.nesting import NestedCall, Nesting, end_all, ended_call
from casual_mcp_nb.engine.options import TurnLimits
from casual_mcp_nb.engine.outcomes import CallOutcome, FinishedCall, ModelText
from casual_mcp_nb.engine.repeats import Repeats
from casual_mcp_nb.engine.task_reports import TaskDesk
from casual_mcp_nb.engine.throttles import ProgressThrottle, Report
from casual_mcp_nb.errors import shown
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK
from casual_mcp_nb.servers.tasks import FollowedTask

if TYPE_CHECKING:
    from casual_llm.messages import AssistantToolCall

    from casual_mcp_nb.base.mcp import SkillContents


UNFINISHED = "Error: this call has no result: something else failed while it ran."
"""The result of a call with which its turn failed."""
_NOTHING: Mapping[str, str] = {}


@dataclass(eq=False, repr=False)
class RunningCall:
    """A call while it runs: it listens to the call, and emits its events.

    It is a context manager around the whole call. Entering emits the call's start. Leaving ends the
    call without a result, unless `finish` was called.

    Args:
        started: The event of its start.
        dispatch: Has the dispatcher run it, and report to the listener.
        tasks: Keeps the task that the call becomes, or None if it waits for the task's end.
        named: What the model wrote, or None for a call that a function makes.
        taped: The result's text in the cassette that is replayed, or None.
        depth: How many calls are around it.
    """

    started: ToolStarted
    dispatch: Callable[[CallListener], Awaitable[CallOutcome]]
    emit: Callable[[Event], None]
    now: Callable[[], float]
    tasks: TaskDesk | None = None
    named: NamedCall | None = None
    taped: str | None = None
    depth: int = 0
    _permission: Permission | None = None
    _task: int = 0
    _ended: bool = False

    def __post_init__(self) -> None:
        self._progress = ProgressThrottle(self._on_progress)

    def __enter__(self) -> Self:
        try:
            self.emit(self.started)
        except BaseException as error:
            # An observer failed, after the start was recorded.
            self._end_without_result(error)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if not self._ended:
            self._end_without_result(error)

    @property
    def step(self) -> int:
        """The step's number."""
        return self.started.step

    @property
    def id(self) -> str:
        """The call's id."""
        return self.started.call_id

    @property
    def tool(self) -> ToolName:
        """The tool that it calls."""
        return self.started.tool

    @property
    def listener(self) -> CallListener:
        """What the dispatcher reports to."""
        return CallListener(
            on_progress=self._progress.add,
            on_approval=self._on_approval,
            on_permission=self._on_permission,
            on_task=self._on_task if self.tasks is not None else None,
        )

    def _on_progress(self, report: Report) -> None:
        progress, total, text = report
        self.emit(ToolProgress(self.id, progress=progress, total=total, text=text, at=self.now()))

    def _on_approval(self, waiting: bool) -> None:
        if waiting:
            self.emit(ApprovalAsked(self.id, at=self.now()))
        else:
            self.emit(ApprovalAnswered(self.id, at=self.now()))

    def _on_permission(self, decided: Permission) -> None:
        self._permission = decided

    def _on_task(self, started: FollowedTask) -> int:
        assert self.tasks is not None
        self._task = self.tasks.keep(started, self.step, self.id, self.emit, self.now)
        return self._task

    def _end_without_result(self, error: BaseException | None) -> None:
        """Emit that it failed or was stopped. If it has become a task, that goes on."""
        self._ended = True
        self._progress.close()
        status: CallStatus = "stopped"
        text = UNANSWERED
        if isinstance(error, Exception):
            # The turn fails with it, and says why.
            status, text = "error", UNFINISHED
        elif self._task:
            text = stopped_with_task(self._task)
        self.emit(
            ToolFinished(
                self.step,
                self.id,
                self.tool,
                status=status,
                text=text,
                at=self.now(),
                permission=self._permission,
            )
        )

    def finish(self, outcome: CallOutcome, read: Readable, text: ModelText) -> None:
        """Emit how it ended.

        Args:
            outcome: How it ended for the caller.
            read: The part of its result that the model reads at once.
            text: The whole text that the model reads.
        """
        self._ended = True
        self._progress.close()
        self.emit(
            ToolFinished(
                self.step,
                self.id,
                self.tool,
                status=outcome.status,
                text=text.of_call,
                result=read.result,
                at=self.now(),
                permission=self._permission,
                large=read.large,
            )
        )
        if outcome.skill is not None:
            self._tell_skill(outcome.skill)
        if self._progress.left_out:
            self._tell_left_out()

    def _tell_skill(self, file: SkillContents) -> None:
        self.emit(
            SkillRead(
                self.step,
                self.id,
                skill=ToolName(file.server, file.name),
                path=file.path,
                tokens=file.tokens,
                digest=file.digest,
                checked=file.checked,
                at=self.now(),
            )
        )

    def _tell_left_out(self) -> None:
        """Emit a notice on the reports of progress that were left out."""
        text = (
            f"Tool {shown(self.tool.tool)} reported progress {self._progress.received:,} times, and"
            f" {self._progress.left_out:,} of them are left out."
        )
        self.emit(Notice(text, server=self.tool.server, at=self.now()))


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

    async def run_calls(
        self,
        step: int,
        calls: Sequence[AssistantToolCall],
        refused: Mapping[str, str],
        taped: Mapping[str, str] = _NOTHING,
    ) -> list[FinishedCall]:
        """Run a step's calls concurrently. Refuses those beyond the limit.

        Args:
            step: The step's number.
            calls: The calls in the model's answer.
            refused: Errors in place of calls, by the calls' ids.
            taped: The results' texts in the cassette that is replayed, by the calls' ids.
        """
        if len(calls) == 1 and not refused:
            # Most steps make one call, which needs no separate task.
            with self._by_model(step, calls[0], taped) as running:
                return [await self._run(running)]
        limit = self.limits.max_calls_per_step
        over_limit = (
            f"Error: this call was not run: an answer can have {limit} calls. Make it again in your"
            " next answer."
        )
        refused = {**dict.fromkeys((call.id for call in calls[limit:]), over_limit), **refused}
        to_run = [call for call in calls if call.id not in refused]
        finished = await self._run_all(step, to_run, taped)
        if len(calls) > limit:
            text = (
                f"The model made {len(calls):,} calls in one answer. The first {limit:,} were run."
            )
            self.emit(Notice(text, at=self.now()))
        in_order = []
        for call in calls:
            if call.id in refused:
                with self._by_model(step, call, taped) as running:
                    in_order.append(_refused(running, refused[call.id]))
            else:
                in_order.append(finished[call.id])
        return in_order

    async def _run_all(
        self, step: int, calls: Sequence[AssistantToolCall], taped: Mapping[str, str]
    ) -> dict[str, FinishedCall]:
        """Run calls concurrently, as far as `CallOrder` allows.

        Calls to unknown tools run after all others, which may add the tools.
        """
        unknown = await self.dispatcher.unknown(calls)
        if len(unknown) == len(calls):
            unknown = set()
        self._slots = asyncio.Semaphore(self.limits.parallel_calls)
        # Each in a task: observers may set variables when a call starts, such as its span, which
        # are for this call only.
        tasks: dict[str, asyncio.Task[FinishedCall]] = {}
        order = CallOrder()
        known: list[asyncio.Task[FinishedCall]] = []
        for call in calls:
            late = call.id in unknown
            running = self._by_model(step, call, taped, late)
            spec = self.dispatcher.offered.view.catalog.get(running.tool)
            earlier: Collection[asyncio.Task[FinishedCall]] = ()
            if late:
                earlier = known
            elif spec is not None:
                earlier = order.before(spec)
            task = asyncio.create_task(self._run_after(earlier, running))
            tasks[call.id] = task
            if not late:
                known.append(task)
                if spec is not None:
                    order.add(spec, task)
        try:
            finished = await asyncio.gather(*tasks.values())
        except BaseException:
            # None of them runs on after the turn.
            await end_all(tasks.values())
            raise
        return dict(zip(tasks, finished, strict=True))

    async def _run_after(
        self, earlier: Collection[asyncio.Task[FinishedCall]], call: RunningCall
    ) -> FinishedCall:
        """Start a call, and run it when the earlier ones have ended."""
        with call:
            # All of them start before the first one runs.
            await asyncio.sleep(0)
            if earlier:
                await asyncio.wait(earlier)
            return await self._run(call)

    def _by_model(
        self,
        step: int,
        call: AssistantToolCall,
        taped: Mapping[str, str],
        late: bool = False,
    ) -> RunningCall:
        """Read a call that the model wrote, and prepare to run it."""
        named = self.dispatcher.read(call)
        name, arguments, bridged = named
        tool, wire_name = self.dispatcher.offered.identify(name)
        spec = self.dispatcher.offered.view.catalog.by_wire_name.get(wire_name)
        app = spec.app if spec else ""
        return RunningCall(
            ToolStarted(
                step,
                call.id,
                name=name,
                tool=tool,
                arguments=arguments,
                at=self.now(),
                wire_name=wire_name,
                app=app,
            ),
            partial(self.dispatcher.dispatch, name, arguments, bridged=bridged, late=late),
            self.emit,
            self.now,
            tasks=self.tasks,
            named=named,
            taped=taped.get(call.id),
        )

    async def _nested(self, step: int, nested: NestedCall) -> ToolCall:
        """Run a call that a function makes."""
        tool = self.dispatcher.offered.view.catalog.resolve(nested.name)
        at = self.now()
        name, arguments = tool.wire_name, nested.arguments
        # Without a desk for tasks, it waits for its end: the function needs the result.
        call = RunningCall(
            ToolStarted(
                step,
                nested.id,
                name=name,
                tool=tool.tool_name,
                arguments=arguments,
                at=at,
                wire_name=name,
                parent=nested.parent,
            ),
            partial(self.dispatcher.dispatch_nested, tool, arguments),
            self.emit,
            self.now,
            depth=nested.depth,
        )
        with call:
            finished = await self._run(call)
        return ended_call(nested, tool, finished.outcome, self.now() - at, at)

    async def _run(self, call: RunningCall) -> FinishedCall:
        """Run a call that has started, with the calls nested in it, to its end."""
        server = call.tool.server
        slot: AbstractAsyncContextManager[Any] = nullcontext()
        if self._slots is not None and not call.depth:
            # A nested call takes no slot: the call around it has one, and waits for it.
            slot = self._slots
        nesting: AbstractAsyncContextManager[Any] = nullcontext()
        if server == NOTEBOOK or is_program(call.tool):
            # Functions and programs can make calls.
            nesting = Nesting(
                call.id,
                values=self.dispatcher.context,
                run=partial(self._nested, call.step),
                depth=call.depth,
            )
        self.servers.append(server)
        try:
            async with nesting, slot:
                outcome = await call.dispatch(call.listener)
            read = await self._within_limit(call, outcome)
        finally:
            self.servers.remove(server)
        text = self._text_for_model(call, outcome, read.text)
        call.finish(outcome, read, text)
        handles = (read.large.handle,) if read.large is not None else ()
        return FinishedCall(outcome, text, read.result, handles)

    def _text_for_model(self, call: RunningCall, outcome: CallOutcome, body: str) -> ModelText:
        """Compose the text that the model reads as a call's result.

        Args:
            call: The call.
            outcome: How it ended for the caller.
            body: The part of the outcome's text that the model reads at once.
        """
        if call.named is None:
            # The function has the whole text. This one is for the person.
            return ModelText(body)
        name, arguments, _ = call.named
        heading = ""
        if outcome.synthetic is None:
            heading = format_result("", self.limits.result_format, name, arguments)
        repeated = (call.step, str(call.tool), arguments, heading + body)
        if outcome.status != "ok":
            warning = self.repeats.record_failure(*repeated)
        else:
            warning, notice = self.repeats.record_success(*repeated, self.dispatcher.aid)
            if notice:
                self.emit(Notice(notice, server=call.tool.server, at=self.now()))
        taped = None if _runs_in_replays(call.tool, outcome) else call.taped
        return ModelText(body, heading=heading, note=outcome.note, warning=warning, taped=taped)

    async def _within_limit(self, call: RunningCall, outcome: CallOutcome) -> Readable:
        """Shorten a large result to its head, and keep the whole."""
        text, server = encodable(outcome.text), call.tool.server
        limit = 0
        if outcome.synthetic is None:
            limit = self.limits.result_tokens
        offered = self.dispatcher.offered
        spec = offered.view.catalog.get(call.tool)
        read = await self.large_results.within(
            limit,
            call.id,
            text,
            outcome.result,
            server=server,
            for_app=spec is not None and bool(spec.app),
        )
        if read.large is None:
            return read
        text = read.text
        if offered.bridges:
            text += THROUGH_BRIDGE
        if self.dispatcher.passer is not None and offered.others_take(call.tool):
            text += passing(read.large.handle)
        return read._replace(text=text, large=replace(read.large, tokens=estimate_tokens(text)))


def _refused(call: RunningCall, text: str) -> FinishedCall:
    """End a call that is not run, with a text that says why."""
    outcome = CallOutcome("error", text)
    for_model = ModelText(text, taped=call.taped)
    call.finish(outcome, Readable(text), for_model)
    return FinishedCall(outcome, for_model)


def _runs_in_replays(tool: ToolName, outcome: CallOutcome) -> bool:
    """Check whether a replay runs a call again: it runs functions, programs, stubs and a person's
    own synthetic tools.
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
