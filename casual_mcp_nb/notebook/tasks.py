"""A session's tasks: calls that servers continue by themselves.

A task's start, its changes and its end are events of the turn that started it, even after that turn
has ended. From them, a process that resumes the conversation continues its tasks, and a later turn
tells the model how they ended.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.displayable import NamespaceList
from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.mcp import OVER, ServerTask, TaskReport, Tasks, TaskStatus
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.event import (
    AppCalled,
    Event,
    Notice,
    TaskChanged,
    TaskEnded,
    TaskReported,
    TaskStarted,
)
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.events import Observers
from casual_mcp_nb.engine.results import result_text_async, with_result
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.notebook.blocking import awaited, blocking, on_engine, on_engine_told
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.open_questions import Questions
from casual_mcp_nb.notebook.questions import Channel
from casual_mcp_nb.notebook.starting import ServerStarter
from casual_mcp_nb.servers.tasks import FollowedTask

LaterEvent = TaskChanged | TaskEnded | AppCalled | Notice
"""Events that are added to a turn after it has ended."""

CHANGE_SECONDS = 0.5
CHANGE_SHARE = 0.05
"""The time that passes at least between two changes of a task's text that are recorded: so many
seconds, or this share of the time for which it has run if that is more.
"""

_ENDINGS = {
    "completed": "has completed. Its result:",
    "failed": "has failed.",
    "cancelled": "was cancelled.",
    "lost": "cannot be followed any more.",
}


@dataclass(eq=False)
class _Entry:
    """A task in the register.

    Attributes:
        task: The task.
        turn: The turn that started it, or None if the person's own call did.
        call_id: The id of the call that became it.
        emit: Emits an event in that turn while it runs, or None.
        now: Returns the turn's time.
        next_change: When its next change of text may be recorded.
        last: Status, text, and whether it asks, as last recorded.
        handle: The handle of its result, if that is large.
    """

    task: FollowedTask
    turn: Turn | None = None
    call_id: str = ""
    emit: Callable[[Event], None] | None = None
    now: Callable[[], float] = lambda: 0.0
    next_change: float = 0.0
    last: tuple[TaskStatus, str, bool] = ("working", "", False)
    handle: str = ""


class TaskRegister:
    """The tasks of a session by number. It records what happens to them in the conversation.

    On the engine's loop.
    """

    def __init__(self, chat: McpToolChat, observers: Observers) -> None:
        self._chat = chat
        self._observers = observers
        self.tasks: Mapping[int, _Entry] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self.add_later: Callable[[Turn, LaterEvent, Callable[[Turn], bool]], None] = ignore

    def find(self, number: int) -> FollowedTask:
        """Find a task. An UnknownNameError has the numbers that there are."""
        entry = self.tasks.get(number)
        if entry is None:
            hint = ""
            if not self.tasks:
                hint = "There are no tasks."
            raise UnknownNameError("task", str(number), map(str, self.tasks), hint=hint)
        return entry.task

    async def settled(self) -> None:
        """Wait until the ends of all tasks that have ended are recorded."""
        if self._ending:
            await asyncio.wait(tuple(self._ending))

    def keep_by_hand(self, task: FollowedTask) -> int:
        """Keep a task that the person's own call became. Returns its number."""
        return self.keep(_Entry(task))

    def adopt(self, turns: Sequence[Turn]) -> None:
        """Continue the tasks of a conversation from elsewhere. On the engine's loop."""
        for turn in turns:
            ended = {event.number: event for event in turn.trace.all_of(TaskEnded)}
            for started in turn.trace.all_of(TaskStarted):
                present = self.tasks.get(started.number)
                if present is not None and present.task.id == started.task_id:
                    present.turn, present.emit = turn, None
                    if present.task.is_over and started.number not in ended:
                        # It ended while the session had another conversation.
                        self._changed(present)
                    continue
                if present is not None:
                    self._make_room(present)
                self._adopt(turn, started, ended.get(started.number))
        self._observers.changes.notify()

    def _adopt(self, turn: Turn, started: TaskStarted, ended: TaskEnded | None) -> None:
        task = None
        if ended is None and started.task_id:
            manager = self._chat.server_manager
            task = manager.follow_task(started.tool, started.task_id, started.began, started.number)
        if task is None:
            task = FollowedTask(started.tool, started.task_id, started.began, started.number)
            task.problem = "its server is not here"
        if ended is not None:
            if ended.status == "completed":
                result = ended.result or ToolResult((ContentPart("text", ended.text),))
                task.end(ended.status, result, "", ended.ended)
            else:
                task.end(ended.status, ended.result, ended.text, ended.ended)
        entry = _Entry(task, turn, started.call_id)
        self._put(started.number, entry)
        task.on_change = partial(self._changed, entry)

    def _make_room(self, entry: _Entry) -> None:
        """Give up a number that a resumed conversation has for another task."""
        self.tasks = {number: other for number, other in self.tasks.items() if other is not entry}
        if entry.turn is None:
            entry.task.number = 0
            self.keep(entry)
        else:
            # Its conversation continues it when it is resumed.
            entry.task.on_change = ignore
            entry.task.stop()

    def keep(self, entry: _Entry) -> int:
        """Keep a task, and give it a number unless it has one. Returns the number."""
        task = entry.task
        task.number = task.number or max(self.tasks, default=0) + 1
        self._put(task.number, entry)
        task.on_change = partial(self._changed, entry)
        self._observers.changes.notify()
        return task.number

    def _put(self, number: int, entry: _Entry) -> None:
        # A new dict, because other threads may be iterating over the old one.
        self.tasks = dict(sorted({**self.tasks, number: entry}.items()))

    def _changed(self, entry: _Entry, _task: object = None) -> None:
        """Record a change of a task. On the engine's loop."""
        task = entry.task
        if task.is_over:
            ending = asyncio.get_running_loop().create_task(self._record_end(entry))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            return
        clock = time.monotonic()
        status, message, asking = entry.last
        # A new text can wait, unless it is the first one.
        only_text = (task.status, task.asking) == (status, asking)
        can_wait = only_text and bool(message) and clock < entry.next_change
        if can_wait or (only_text and task.message == message):
            self._observers.changes.notify()
            return
        entry.last = task.status, task.message, task.asking
        entry.next_change = clock + max(CHANGE_SECONDS, (time.time() - task.began) * CHANGE_SHARE)
        self._record(
            entry, TaskChanged(entry.call_id, task.number, task.status, task.message, task.asking)
        )

    async def _record_end(self, entry: _Entry) -> None:
        task, text, result = entry.task, entry.task.error, entry.task.result
        if result is not None and not task.in_call:
            text = encodable(await result_text_async(result))
            read = await self._chat.state.large_results.within(
                self._chat.limits.result_tokens,
                f"task-{task.number}",
                text,
                result,
                server=task.tool.server,
            )
            text = read.text
            if read.large is not None:
                entry.handle = read.large.handle
            if result.is_error and not text.startswith("Error"):
                text = f"Error: {text}"
            result = read.result
        ended = task.ended or time.time()
        if task.in_call:
            # The call still waits, and gives the result itself.
            result = None
        event = TaskEnded(
            entry.call_id, task.number, task.status, text, result, ended, task.in_call
        )
        self._record(entry, event)

    def _record(self, entry: _Entry, event: TaskChanged | TaskEnded) -> None:
        turn = entry.turn
        if turn is not None and turn.running and entry.emit is not None:
            entry.emit(replace(event, at=entry.now()))
        elif turn is not None:
            self.add_later(turn, event, lambda turn: _has(turn.trace, event))
        self._observers.changes.notify()

    def desk(self, turn: Turn, earlier: Sequence[Turn]) -> TurnTasks:
        """Create the desk of a turn.

        Args:
            turn: The turn.
            earlier: The turns before it, whose tasks it reports too.
        """
        return TurnTasks(self, turn, tuple(earlier))

    def end_replayed(self, reports: Iterable[TaskReport]) -> list[TaskReport]:
        """End tasks as they ended when a cassette was recorded, and return the reports with the ids
        that their calls have now.
        """
        replayed: list[TaskReport] = []
        for report in reports:
            entry = self.tasks.get(report.number)
            if entry is not None:
                report = report._replace(call_id=entry.call_id)
                if not entry.task.is_over:
                    _end_as(report, entry.task)
            replayed.append(report)
        return replayed


class SessionTasks(NamespaceList[ServerTask]):
    """The tasks of a session, the oldest first: `session.servers.tasks`."""

    def __init__(
        self,
        register: TaskRegister,
        chat: McpToolChat,
        engine: EngineThread,
        questions: Questions,
        starter: ServerStarter,
    ) -> None:
        self._register = register
        self._chat = chat
        self._engine = engine
        self._questions = questions
        self._starter = starter
        self._complete = True

    @property
    def now(self) -> Tasks:
        """The tasks as they are now."""
        return Tasks(tuple(_row(entry.task) for entry in self._register.tasks.values()))

    @blocking
    async def wait(self, number: int, seconds: float | None = None) -> ServerTask:
        """Wait until a task has ended. Its questions are asked in this cell.

        An interrupt ends the waiting, not the task.

        Args:
            number: Its number.
            seconds: How long at most, or None for as long as it takes.

        Returns:
            The task as it is then.

        Raises:
            UsageError: There is no such task.
        """
        task = self._register.find(number)
        await on_engine_told(partial(self._waited, task, seconds))
        return _row(task)

    wait_async = awaited(wait)

    @blocking
    async def result(self, number: int, seconds: float | None = None) -> ToolCall:
        """Wait for a task's result, as `wait` does.

        Args:
            number: Its number.
            seconds: How long at most, or None for as long as it takes.

        Returns:
            The call, with the whole result in `value`, `content` and `structured`.

        Raises:
            ToolCallError: It has ended without a result.
            UsageError: There is no such task, or it is still running after that time.
        """
        task = self._register.find(number)
        if not await on_engine_told(partial(self._waited, task, seconds)):
            raise UsageError(
                f"Task {number} is still running.", hint=f"To wait for it: %mcp tasks wait {number}"
            )
        result = task.outcome()
        call = ToolCall(
            id="",
            name=task.tool.tool,
            tool=task.tool,
            arguments={},
            status="ok",
            seconds=_row(task).seconds,
        )
        return await on_engine(with_result(call, result))

    result_async = awaited(result)

    @blocking
    async def cancel(self, number: int) -> ServerTask:
        """Cancel a task at its server.

        Args:
            number: Its number.

        Returns:
            The task. It has ended within some seconds, whatever its server does.

        Raises:
            UsageError: There is no such task.
            ToolCallError: The server could not be asked, or refuses it.
        """
        task = self._register.find(number)
        if not task.is_over:
            await on_engine(self._cancelled(task))
        return _row(task)

    cancel_async = awaited(cancel)

    async def _waited(self, task: FollowedTask, seconds: float | None, blocks: bool) -> bool:
        if task.is_over:
            await self._register.settled()
            return True
        channel: Channel = "input"
        if not blocks:
            channel = self._questions.channel_of_awaited_cells()
        async with self._questions.prompt_on(channel):
            await self._starter.view()
            task.wake.set()
            self._questions.ask_open()
            over = await task.wait(seconds)
        await self._register.settled()
        return over

    async def _cancelled(self, task: FollowedTask) -> None:
        await self._starter.view()
        await self._chat.server_manager.cancel_task(task)
        # The answer comes with the next poll.
        await task.wait(2.0)
        await self._register.settled()


def _has(trace: Trace, event: TaskChanged | TaskEnded) -> bool:
    """Check whether an event is about a task that was started in a trace."""
    return any(
        started.number == event.number and started.call_id == event.call_id
        for started in trace.all_of(TaskStarted)
    )


def _row(task: FollowedTask) -> ServerTask:
    text = task.message
    if task.is_over:
        text = task.error
    return ServerTask(
        task.number,
        task.tool.server,
        task.tool.tool,
        task.status,
        text,
        task.began,
        task.ended,
        task.asking,
        task.problem,
    )


def report_text(number: int, tool: ToolName, status: TaskStatus, text: str) -> str:
    """Format how a task has ended, as the model reads it."""
    return f"[Task {number}, {tool}, {_ENDINGS[status]}]\n{text}"


def _end_as(report: TaskReport, task: FollowedTask) -> None:
    """End a task as a report says."""
    text = report.text.partition("]\n")[2]
    if report.status == "completed":
        task.end(report.status, report.result or ToolResult((ContentPart("text", text),)), "")
    else:
        task.end(report.status, report.result, text)


@dataclass(eq=False)
class TurnTasks:
    """The desk of one turn, see `TaskDesk`."""

    _register: TaskRegister
    _turn: Turn
    _earlier: tuple[Turn, ...]

    def keep(
        self,
        task: FollowedTask,
        step: int,
        call_id: str,
        emit: Callable[[Event], None],
        now: Callable[[], float],
    ) -> int:
        """Keep a task that a call of the turn became, and emit that it has started.

        Args:
            task: The task.
            step: The index of the call's step.
            call_id: The call's id.
            emit: Emits an event in the turn.
            now: Returns the turn's time.

        Returns its number.
        """
        number = self._register.keep(_Entry(task, self._turn, call_id, emit, now))
        emit(TaskStarted(step, call_id, number, task.tool, task.id, task.began, now()))
        return number

    def due(self) -> list[TaskReport]:
        """List the tasks that have ended, and about which the model has not read yet."""
        turns = (*self._earlier, self._turn)
        # Each step asks, and most conversations have no tasks, however long they are.
        if not any(TaskStarted in turn.trace.kinds for turn in turns):
            return []
        tools: dict[int, ToolName] = {}
        ended: dict[int, TaskEnded] = {}
        reported: set[int] = set()
        for turn in turns:
            for started in turn.trace.all_of(TaskStarted):
                tools[started.number] = started.tool
            for end in turn.trace.all_of(TaskEnded):
                ended[end.number] = end
            for told in turn.trace.all_of(TaskReported):
                reported.add(told.number)
        due: list[TaskReport] = []
        for number, end in ended.items():
            if number not in tools or number in reported:
                continue
            # The end of a call that waited for its task is in the call's own result.
            if not end.in_call and end.status in OVER:
                text = report_text(number, tools[number], end.status, end.text)
                entry = self._register.tasks.get(number)
                report = TaskReport(number, end.status, text, call_id=end.call_id)
                if entry is not None and entry.handle:
                    report = report._replace(handle=entry.handle, result=entry.task.result)
                due.append(report)
        return due

    def replayed(self, reports: Iterable[TaskReport]) -> Sequence[TaskReport]:
        """End tasks as they ended when a cassette was recorded."""
        return self._register.end_replayed(reports)

    async def settled(self) -> None:
        """Wait until the results of all tasks that have ended are kept."""
        await self._register.settled()
