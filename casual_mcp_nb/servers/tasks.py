"""Tasks: tool calls that a server continues after it has answered them, until they end or are
cancelled.

A server may answer `tools/call` with a task in place of a result. It is polled with `tasks/get`
until it ends. Its questions are asked meanwhile, and answered with `tasks/update`.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.mcp import OVER, TASK_STATUSES, TaskStatus
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.errors import ServerError, ToolCallError, shown
from casual_mcp_nb.servers._errors import is_answer, root_cause
from casual_mcp_nb.servers.deadlines import CallLimits
from casual_mcp_nb.servers.logs import logger
from casual_mcp_nb.servers.redaction import Redactor, clean
from casual_mcp_nb.servers.server_requests import ServerRequests

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ElicitRequest

    from casual_mcp_nb.servers._task_messages import CreatedTask, TaskAnswer
    from casual_mcp_nb.servers.lifecycle import Lifecycle
    from casual_mcp_nb.servers.mcp_session import McpSession

MAX_ID = 1_000
MAX_MESSAGE = 300
MAX_RUNNING = 100
"""How many tasks of one server are followed at a time. Further ones are cancelled."""
MAX_QUESTIONS = 50
"""How many questions one task can ask."""
MAX_UNREADABLE = 5
"""After this many unreadable answers in a row, a task counts as lost."""
MAX_FAILURES = 8
"""After this many failed requests in a row, a task is polled again only when its server is used
again.
"""
FIRST_POLL = 0.5
USUAL_POLL = 2.0
LEAST_POLL = 0.2
MAX_POLL = 60.0
POLL_SHARE = 0.01
"""A task that has run for long is polled at intervals of at least this share of that time, whatever
its server wishes.
"""
_NOT_ALLOWED = frozenset({"sampling/createMessage", "roots/list"})
"""Requests that tasks may not make, because this client does not declare them in the only version
that has tasks.

Source: https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr, server
requirement 7.
"""
REQUEST_SECONDS = 30.0
CANCEL_SECONDS = 10.0
"""How long a server may take to end a task that was cancelled."""
CANCEL_POLL = 1.0


class Unreadable(ValueError):
    """A server's answer about a task cannot be used."""


def task_id_of(created: CreatedTask) -> str:
    """Read the id of a new task, or raise Unreadable."""
    if not isinstance(created.task_id, str) or not 0 < len(created.task_id) <= MAX_ID:
        raise Unreadable("the task has no usable id")
    return created.task_id


def poll_seconds(answer: CreatedTask | TaskAnswer) -> float:
    """Read after how many seconds the server wants to be asked again, within bounds."""
    wanted = answer.poll_interval_ms
    if (
        isinstance(wanted, bool)
        or not isinstance(wanted, int | float)
        or wanted != wanted
        or wanted in (math.inf, -math.inf)
    ):
        return USUAL_POLL
    # Bounded before it is divided: JSON has integers that no float can hold.
    return min(max(wanted, LEAST_POLL * 1_000), MAX_POLL * 1_000) / 1_000


@dataclass(eq=False)
class FollowedTask:
    """A task of a server, as far as it is known.

    Args:
        id: The server's name for it, with which anybody may ask for it.
        number: The number by which the person and the model know it, or 0 before somebody has given
            it one.
        began: When it was started, in seconds since 1970. `ended` likewise, or None.
        message: The server's message about its state.
        problem: Why it is not polled now, or empty.
        asking: Whether it waits for the person.
        result: Its result, once it is completed.
        error: Why it has none, once it has ended without one.
        on_change: Called after each change.
        in_call: Whether the call that started it waits for it, or did when it ended.
        stop: Ends following it. It continues at its server.
        cancelling: Whether its server was told to cancel it.
    """

    tool: ToolName
    id: str = field(repr=False)
    began: float
    number: int = 0
    status: TaskStatus = "working"
    message: str = ""
    problem: str = ""
    asking: bool = False
    ended: float | None = None
    result: ToolResult | None = None
    error: str = ""
    on_change: Callable[[FollowedTask], None] = ignore
    cancelling: bool = False
    in_call: bool = False
    stop: Callable[[], object] = ignore

    def __post_init__(self) -> None:
        self._over = asyncio.Event()
        self.wake = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.status in OVER

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until it has ended, or for some seconds. Return whether it has ended."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            pass
        return self.is_over

    def update(
        self, status: TaskStatus, message: str = "", problem: str = "", asking: bool | None = None
    ) -> None:
        """Take note of its state."""
        if asking is None:
            asking = self.asking
        if not self.is_over and (status, message, problem, asking) != (
            self.status,
            self.message,
            self.problem,
            self.asking,
        ):
            self.status, self.message, self.problem, self.asking = status, message, problem, asking
            self.on_change(self)

    def end(
        self,
        status: TaskStatus,
        result: ToolResult | None = None,
        error: str = "",
        ended: float | None = None,
    ) -> None:
        """Take note of its end, now or at another time. Only the first one counts."""
        if not self.is_over:
            self.result, self.error, self.ended = result, error, ended or time.time()
            self.problem, self.asking = "", False
            self.status = status
            self._over.set()
            self.on_change(self)

    def outcome(self) -> ToolResult:
        """Return the result of a task that has ended, or raise a ToolCallError if it has none."""
        if self.result is not None:
            return self.result
        raise ToolCallError(
            self.error or "The task has no result.", server=self.tool.server, tool=self.tool.tool
        )


OnTask = Callable[[FollowedTask], int]
"""Called with a new task that may continue after its call has returned.

Gives it a number, and returns that.
"""


def started_result(number: int) -> ToolResult:
    """Build the result of a call whose task continues."""
    text = (
        f"Started task {number}, which is still running. Its result will be given to you in a later"
        " message, as soon as it is there. Do not make this call again. Do something else, or tell"
        " the user that the task is running."
    )
    return ToolResult((ContentPart("text", text),), task=number)


class ServerTasks:
    """Follows the tasks of one server, each in an asyncio task on the engine's loop, until they
    end.

    Polling starts no server: it waits until the server is used again.

    Args:
        convert: Checks and converts the result of a tool, as it came.
    """

    def __init__(
        self,
        server: str,
        lifecycle: Lifecycle,
        limits: CallLimits,
        server_requests: ServerRequests,
        redact: Redactor,
        secrets: Any,
        convert: Callable[[CallToolResult, Any], Awaitable[ToolResult]],
    ) -> None:
        self._server = server
        self._lifecycle = lifecycle
        self._limits = limits
        self._server_requests = server_requests
        self._redact = redact
        self._secrets = secrets
        self._convert = convert
        self._following: dict[FollowedTask, asyncio.Task[None]] = {}
        self._cancelling: set[asyncio.Task[None]] = set()
        self._open_questions: dict[FollowedTask, dict[str, asyncio.Task[None]]] = {}

    def follow(
        self, tool: str, id: str, began: float | None = None, number: int = 0, first: float = 0.0
    ) -> FollowedTask:
        """Follow a task, first after some seconds."""
        task = FollowedTask(ToolName(self._server, tool), id, began or time.time(), number)
        # Without the variables of the cell or the call that started it, which end before it.
        context = contextvars.Context()
        following = asyncio.get_running_loop().create_task(
            self._follow(task, first), name=f"task of {self._server}", context=context
        )
        self._following[task], task.stop = following, following.cancel
        following.add_done_callback(lambda _: self._forget(task))
        return task

    def start(self, tool: str, created: CreatedTask) -> FollowedTask:
        """Follow a task that a call has just started.

        A ToolCallError if it has no usable id, or there are too many.
        """
        try:
            id = task_id_of(created)
        except Unreadable as error:
            raise ToolCallError(
                f"Server {shown(self._server)} answered the call of {shown(tool)} with a task, but"
                f" {error}.",
                server=self._server,
                tool=tool,
            ) from None
        task = self.follow(tool, id, first=min(poll_seconds(created), FIRST_POLL))
        if len(self._following) > MAX_RUNNING:
            self._spawn_cancel(task)
            text = (
                f"Server {shown(self._server)} has started more than {MAX_RUNNING} tasks, so this"
                " one was cancelled."
            )
            raise ToolCallError(text, server=self._server, tool=tool)
        message = self._text(created.status_message)
        if created.status in TASK_STATUSES and created.status not in OVER:
            task.update(created.status, message)
        return task

    async def call(self, tool: str, created: CreatedTask, on_task: OnTask | None) -> ToolResult:
        """Return the result of a call that became a task.

        With `on_task` the task goes on if it does not end soon. Otherwise it is waited for, within
        the limits of a call, and cancelled at the limit, or if the caller is cancelled.
        """
        task = self.start(tool, created)
        if on_task is not None:
            task.in_call = True
            number = on_task(task)
            try:
                if await task.wait(self._limits.task_wait):
                    return task.outcome()
                return started_result(number)
            finally:
                task.in_call &= task.is_over
        try:
            async with asyncio.timeout(self._limits.total):
                await task.wait()
        except BaseException:
            self._spawn_cancel(task)
            raise
        return task.outcome()

    async def cancel(self, task: FollowedTask) -> None:
        """Cancel a task. It has ended when its server reports that, or after `CANCEL_SECONDS`,
        whether or not its server still answers.

        Raises:
            ToolCallError: The server could not be asked, or refused it.
        """
        from mcp_types import Result

        from casual_mcp_nb.servers._task_messages import CancelTask, TaskParams

        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                session = await self._lifecycle.ensure()
                await session.sdk.send_request(
                    CancelTask(params=TaskParams(task_id=task.id)), Result
                )
        except Exception as error:
            if isinstance(error, ServerError):
                raise
            self._check(error, session=self._lifecycle.session)
            reason = self._reason(error)
            raise ToolCallError(
                f"Task {task.number} was not cancelled: {reason}",
                server=self._server,
                tool=task.tool.tool,
            ) from None
        task.cancelling = True
        task.wake.set()
        following = self._following.get(task)
        if following is not None:
            timer = asyncio.get_running_loop().call_later(
                CANCEL_SECONDS, self._abandon, task, context=contextvars.Context()
            )
            following.add_done_callback(lambda _: timer.cancel())

    def _abandon(self, task: FollowedTask) -> None:
        """End a cancelled task at which its server goes on, or about which it says nothing."""
        task.end(
            "cancelled",
            error=(
                "The task was cancelled. Its server has not ended it, and it is not followed any"
                " more."
            ),
        )
        task.stop()

    def wake(self) -> None:
        """Poll now, because the server is ready again."""
        for task in self._following:
            task.wake.set()

    def close(self) -> None:
        """Stop following. The tasks themselves continue."""
        for each in (*self._following.values(), *self._cancelling):
            each.cancel()

    def _forget(self, task: FollowedTask) -> None:
        self._following.pop(task, None)
        for question in self._open_questions.pop(task, {}).values():
            question.cancel()

    def _spawn_cancel(self, task: FollowedTask) -> None:
        """Cancel a task that nobody waits for, without waiting for that."""

        async def cancel() -> None:
            try:
                await self.cancel(task)
            except Exception as error:
                logger.debug(
                    "A task of server %s was not cancelled: %s", shown(self._server), error
                )
            finally:
                task.end("cancelled", error="The task was cancelled.")
                if (following := self._following.get(task)) is not None:
                    following.cancel()

        cancelling = asyncio.get_running_loop().create_task(cancel(), context=contextvars.Context())
        self._cancelling.add(cancelling)
        cancelling.add_done_callback(self._cancelling.discard)

    async def _follow(self, task: FollowedTask, wait: float) -> None:
        from mcp import MCPError
        from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

        loop = asyncio.get_running_loop()
        start = loop.time()
        failures = unreadable = 0
        while not task.is_over:
            await self._pause(task, wait)
            session = None
            try:
                session = await self._session(task)
                answer = await self._ask(session, task)
                await self._apply(session, task, answer)
            except Unreadable as problem:
                unreadable += 1
                if unreadable >= MAX_UNREADABLE:
                    task.end(
                        "lost",
                        error=(
                            f"The task cannot be followed any more: {self._redact(str(problem))}."
                        ),
                    )
                wait = LEAST_POLL * 2**unreadable
                continue
            except Exception as error:
                if not isinstance(error, ServerError):
                    self._check(error, session)
                if isinstance(error, MCPError) and error.error.code in (
                    INVALID_PARAMS,
                    METHOD_NOT_FOUND,
                ):
                    task.end(
                        "lost",
                        error=f"The server does not know the task any more: {self._reason(error)}",
                    )
                    return
                failures += 1
                wait = min(2.0 ** (failures - 1), MAX_POLL)
                if failures >= MAX_FAILURES:
                    failures, wait = 0, math.inf
                task.update(task.status, task.message, self._reason(error))
                continue
            failures = unreadable = 0
            wait = max(poll_seconds(answer), min((loop.time() - start) * POLL_SHARE, MAX_POLL))
            if task.cancelling:
                wait = min(wait, CANCEL_POLL)

    async def _pause(self, task: FollowedTask, seconds: float) -> None:
        """Wait until the next poll, or until somebody wakes it."""
        try:
            async with asyncio.timeout(None if math.isinf(seconds) else seconds):
                await task.wake.wait()
        except TimeoutError:
            pass
        task.wake.clear()

    async def _session(self, task: FollowedTask) -> McpSession:
        """Get the session to ask in.

        A server that this process has not connected yet is waited for, not started.
        """
        lifecycle = self._lifecycle
        while lifecycle.session is None:
            task.update(task.status, task.message, "its server is not connected")
            await self._pause(task, math.inf)
        await lifecycle.connect()
        return lifecycle.session

    async def _ask(self, session: McpSession, task: FollowedTask) -> TaskAnswer:
        from casual_mcp_nb.servers._task_messages import GetTask, TaskAnswer, TaskParams

        async with asyncio.timeout(REQUEST_SECONDS):
            answer: TaskAnswer = await session.sdk.send_request(
                GetTask(params=TaskParams(task_id=task.id)), TaskAnswer
            )
        return answer

    async def _apply(self, session: McpSession, task: FollowedTask, answer: TaskAnswer) -> None:
        """Take over a task's state. Raises Unreadable."""
        if answer.task_id is not None and answer.task_id != task.id:
            raise Unreadable("its server answers with another task")
        if answer.status not in TASK_STATUSES:
            raise Unreadable(
                f"its server answers with the unknown status {shown(str(answer.status))}"
            )
        status: TaskStatus = answer.status
        message = self._text(answer.status_message)
        match status:
            case "completed":
                result = await self._result(session, task, answer.result)
                if result.is_error:
                    task.end(
                        "failed",
                        result,
                        next((part.text for part in result.content), "")[:MAX_MESSAGE],
                    )
                else:
                    task.end("completed", result)
            case "failed":
                error = answer.error
                text = ""
                if isinstance(error, Mapping):
                    text = self._text(error.get("message"))
                task.end(
                    "failed",
                    error=f"The task failed: {text or message or 'its server gives no reason'}",
                )
            case "cancelled":
                task.end("cancelled", error="The task was cancelled.")
            case "input_required":
                self._answer_questions(task, answer.input_requests)
                task.update("input_required", message, asking=self._is_asking(task))
            case _:
                self._withdraw(task, ())
                task.update("working", message, asking=False)

    async def _result(self, session: McpSession, task: FollowedTask, raw: Any) -> ToolResult:
        from mcp_types import CallToolResult
        from pydantic import ValidationError

        if not isinstance(raw, dict):
            raise Unreadable("it is completed, but its server gives no result")
        try:
            repaired = session.sdk.repairs.repair("tools/call", raw)
            result = CallToolResult.model_validate(repaired, by_name=False)
        except ValidationError:
            raise Unreadable("it is completed, but its result cannot be read") from None
        return await self._convert(result, session.output_schema(task.tool.tool))

    def _is_asking(self, task: FollowedTask) -> bool:
        return any(not question.done() for question in self._open_questions.get(task, {}).values())

    def _answer_questions(self, task: FollowedTask, requests: Any) -> None:
        """Ask the person each new question, and withdraw those that the server does not ask any
        more.
        """
        from mcp_types import ElicitRequest
        from pydantic import ValidationError

        if not isinstance(requests, dict) or not requests:
            raise Unreadable("it waits for an answer, but its server does not ask anything")
        self._withdraw(task, requests)
        questions = self._open_questions.setdefault(task, {})
        for key, request in requests.items():
            if key in questions:
                # A server goes on asking until it has read the answer.
                continue
            if len(questions) >= MAX_QUESTIONS:
                self._give_up(task, f"it asked more than {MAX_QUESTIONS} questions")
                return
            try:
                question = ElicitRequest.model_validate(request, by_name=False)
            except ValidationError:
                method = ""
                if isinstance(request, Mapping):
                    method = self._text(request.get("method"))
                undeclared = "which this client has not declared, as MCP 2026-07-28 deprecates it"
                reason = "which is not supported here"
                if method in _NOT_ALLOWED:
                    reason = undeclared
                self._give_up(task, f"it asks for {shown(method or 'something')}, {reason}")
                return
            questions[key] = asyncio.create_task(self._answer_question(task, key, question))

    async def _answer_question(self, task: FollowedTask, key: str, question: ElicitRequest) -> None:
        from mcp_types import Result

        from casual_mcp_nb.servers._task_messages import UpdateParams, UpdateTask

        answer = await self._server_requests.elicit_for_task(question.params)
        response = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
        update = UpdateTask(params=UpdateParams(task_id=task.id, input_responses={key: response}))
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                session = await self._lifecycle.ensure()
                await session.sdk.send_request(update, Result)
        except Exception as error:
            if not isinstance(error, ServerError):
                self._check(error, self._lifecycle.session)
            # It is asked again if the server still wants it.
            self._open_questions.get(task, {}).pop(key, None)
            task.update(
                task.status,
                task.message,
                f"the answer could not be sent: {self._reason(error)}",
                asking=False,
            )
            return
        task.update(task.status, task.message, asking=False)
        task.wake.set()

    def _withdraw(self, task: FollowedTask, requests: Any) -> None:
        """End the questions that are not among a server's present ones."""
        for key, question in self._open_questions.get(task, {}).items():
            if key not in requests and not question.done():
                question.cancel()

    def _give_up(self, task: FollowedTask, why: str) -> None:
        self._server_requests.warn(f"Task {task.number} was cancelled, because {why}.")
        self._spawn_cancel(task)
        task.end("failed", error=f"The task was cancelled, because {why}.")

    def _text(self, value: Any) -> str:
        if isinstance(value, str):
            return clean(self._redact(value[: MAX_MESSAGE * 4]))[:MAX_MESSAGE]
        return ""

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {REQUEST_SECONDS:g} s"
        return clean(root_cause(error, self._secrets))[:MAX_MESSAGE]

    def _check(self, error: Exception, session: McpSession | None) -> None:
        """End a session that is broken, so that the server's next use opens another one."""
        if session is not None and not isinstance(error, TimeoutError) and not is_answer(error):
            session.give_up()
