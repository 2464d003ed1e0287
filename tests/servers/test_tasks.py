"""Calls that become tasks: polled, answered, cancelled, and servers that lie about them."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from kit.tasks import Params, Tasks, tasks_server
from mcp import MCPError
from mcp_types import INTERNAL_ERROR

from casual_mcp_nb.base.mcp import TASKS_EXTENSION, QuestionAnswer, ServerQuestion
from casual_mcp_nb.errors import ToolCallError
from casual_mcp_nb.servers import tasks as limits
from casual_mcp_nb.servers._task_messages import CreatedTask
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.handlers import Handlers
from casual_mcp_nb.servers.tasks import FollowedTask, poll_seconds

Opened = Callable[[Connection], Connection]
Until = Callable[..., Awaitable[None]]
SECRET = "tok-9f8e7d6c5b4a"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tasks polled as fast as their server wishes."""
    monkeypatch.setattr(limits, "LEAST_POLL", 0.01)
    monkeypatch.setattr(limits, "FIRST_POLL", 0.01)


async def lab(
    opened: Opened, extension: Tasks, handlers: Handlers | None = None, secrets: Any = ()
) -> Connection:
    connection = opened(
        Connection("lab", server=tasks_server(extension), handlers=handlers, secrets=secrets)
    )
    await connection.connect()
    return connection


def started(connection: Connection, extension: Tasks, tool: str, **arguments: Any) -> FollowedTask:
    """A task that the server has already, as after a restart."""
    extension._save("abc", {"tool": tool, "arguments": arguments, "polls": 0, "status": "working"})
    return connection.tasks.follow(tool, "abc")


async def test_a_call_waits_for_its_task_where_nobody_keeps_it(opened: Opened) -> None:
    extension = Tasks()
    connection = await lab(opened, extension)
    assert TASKS_EXTENSION in connection.status.extensions
    result = await connection.call("crunch", {"topic": "wheat"})
    assert (result.content[0].text, result.data, result.task) == (
        "wheat: 42 rows",
        {"rows": 42},
        None,
    )
    assert extension.requests == ["tasks/get"] * 3
    assert (await connection.call("now", {})).content[0].text == "now"


async def test_polls_are_in_the_group_of_the_call_that_became_the_task(opened: Opened) -> None:
    connection = await lab(opened, Tasks())
    for topic in ("wheat", "rye"):
        await connection.call("crunch", {"topic": topic})
    groups = [group for group in connection.read_wire().groups if group[0].method == "tools/call"]
    assert [
        [record.method for record in group if record.kind == "request"] for group in groups
    ] == [["tools/call", *["tasks/get"] * 3]] * 2
    assert {record.tool for group in groups for record in group} == {"crunch"}
    assert not [group for group in connection.read_wire().groups if group[0].method == "tasks/get"]


async def test_a_kept_task_tells_its_changes_and_can_end_within_the_call(opened: Opened) -> None:
    extension = Tasks()
    connection = await lab(opened, extension)
    seen: list[tuple[str, str]] = []

    def keep(task: FollowedTask) -> int:
        task.on_change = lambda task: seen.append((task.status, task.message))
        return 7

    result = await connection.call("crunch", {}, on_task=keep)
    assert result.content[0].text == "sales: 42 rows"
    assert seen == [
        ("working", "batch 1 of 2"),
        ("working", "batch 2 of 2"),
        ("completed", "batch 2 of 2"),
    ]


async def test_a_failed_and_a_cancelled_task_are_errors_of_their_call(opened: Opened) -> None:
    extension = Tasks()
    connection = await lab(opened, extension)
    with pytest.raises(ToolCallError, match="the disk is full"):
        await connection.call("fail", {})
    task = started(connection, extension, "endless")
    await connection.tasks.cancel(task)
    await task.wait()
    assert task.status == "cancelled"
    with pytest.raises(ToolCallError):
        task.outcome()


async def test_a_task_whose_result_is_an_error_has_failed(opened: Opened) -> None:
    result = {"content": [{"type": "text", "text": "no disk"}], "isError": True}
    extension = Tasks(overrides={"status": "completed", "result": result})
    connection = await lab(opened, extension)
    task = started(connection, extension, "crunch")
    await task.wait()
    assert (task.status, task.error, task.outcome().is_error) == ("failed", "no disk", True)


async def test_a_call_that_is_cancelled_cancels_its_task_unless_somebody_keeps_it(
    opened: Opened, until: Until
) -> None:
    extension = Tasks()
    connection = await lab(opened, extension)
    call = asyncio.create_task(connection.call("endless", {}))
    await until(lambda: "tasks/get" in extension.requests)
    call.cancel()
    await until(lambda: "tasks/cancel" in extension.requests)
    kept: list[FollowedTask] = []
    call = asyncio.create_task(
        connection.call("endless", {}, on_task=lambda task: kept.append(task) or 1)
    )  # type: ignore[func-returns-value]
    await until(lambda: kept and kept[0].message)
    call.cancel()
    await asyncio.wait({call})
    assert (kept[0].status, kept[0].in_call) == ("working", False)
    assert extension.requests.count("tasks/cancel") == 1


async def test_a_question_is_asked_once_and_its_answer_sent(opened: Opened) -> None:
    asked: list[tuple[str, str, bool]] = []

    async def person(question: ServerQuestion) -> QuestionAnswer:
        asked.append((question.server, question.message, question.of_task))
        return QuestionAnswer("accept", {"region": "north"})

    extension = Tasks()
    connection = await lab(opened, extension, Handlers(elicitation=person))
    result = await connection.call("survey", {})
    assert result.content[0].text == 'accept {"region": "north"}'
    assert asked == [("lab", "Which region?", True)]
    assert extension.requests.count("tasks/update") == 1


async def test_without_a_person_a_question_is_cancelled(opened: Opened) -> None:
    connection = await lab(opened, Tasks())
    assert (await connection.call("survey", {})).content[0].text == "cancel null"


async def test_closing_ends_the_polling_and_leaves_the_task(opened: Opened, until: Until) -> None:
    extension = Tasks()
    connection = await lab(opened, extension)
    task = started(connection, extension, "endless")
    await until(lambda: len(extension.requests) > 1)
    await connection.close()
    polls = len(extension.requests)
    await asyncio.sleep(0)
    assert not connection.tasks._following
    assert (len(extension.requests), task.status) == (polls, "working")


async def test_a_task_is_polled_when_its_server_is_there_and_starts_none(
    opened: Opened, until: Until
) -> None:
    extension = Tasks()
    connection = opened(Connection("lab", server=tasks_server(extension)))
    task = started(connection, extension, "crunch")
    await until(lambda: task.problem)
    assert connection.status.state == "closed"
    await connection.connect()
    await task.wait()
    assert (task.status, task.problem) == ("completed", "")


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        ({"status": "on holiday"}, "on holiday"),
        ({"status": None}, "None"),
        ({"taskId": "another"}, "another task"),
        ({"status": "completed", "result": None}, "no result"),
        ({"status": "completed", "result": {"resultType": "later"}}, "cannot be read"),
        ({"status": "input_required"}, "does not ask"),
    ],
)
async def test_a_server_that_lies_about_a_task_loses_it(
    opened: Opened, overrides: dict[str, Any], error: str
) -> None:
    extension = Tasks(overrides=overrides)
    connection = await lab(opened, extension)
    task = started(connection, extension, "endless")
    await task.wait()
    assert task.status == "lost"
    assert error in task.error
    assert len(extension.requests) == limits.MAX_UNREADABLE


async def test_a_task_that_never_existed_is_lost_at_once(opened: Opened) -> None:
    extension = Tasks()
    connection = await lab(opened, extension)
    task = connection.tasks.follow("crunch", "nobody")
    await task.wait()
    assert (task.status, extension.requests) == ("lost", ["tasks/get"])


@pytest.mark.parametrize("id", [None, "", 7, "x" * 2_000])
async def test_a_new_task_without_a_usable_id_is_an_error(opened: Opened, id: Any) -> None:
    connection = await lab(opened, Tasks(created={"taskId": id}))
    with pytest.raises(ToolCallError, match="no usable id"):
        await connection.call("crunch", {})


@pytest.mark.parametrize(
    ("method", "reason", "deprecated"),
    [
        ("sampling/createMessage", "not declared", ("sampling",)),
        ("roots/list", "not declared", ("roots",)),
        ("elicitation/<b>other", "not supported", ()),
    ],
)
async def test_a_request_for_something_else_than_a_form_cancels_the_task(
    opened: Opened, until: Until, method: str, reason: str, deprecated: tuple[str, ...]
) -> None:
    extension = Tasks(
        overrides={
            "status": "input_required",
            "inputRequests": {"a": {"method": method, "params": {}}},
        }
    )
    connection = await lab(opened, extension)
    with pytest.raises(ToolCallError, match=method) as error:
        await connection.call("endless", {})
    assert reason in str(error.value)
    assert connection.status.deprecated == deprecated
    await until(lambda: "tasks/cancel" in extension.requests)
    assert "tasks/update" not in extension.requests


async def test_a_server_cannot_ask_without_an_end(opened: Opened) -> None:
    form = {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": "?", "requestedSchema": {"type": "object"}},
    }
    many = {str(number): form for number in range(limits.MAX_QUESTIONS + 1)}
    connection = await lab(
        opened, Tasks(overrides={"status": "input_required", "inputRequests": many})
    )
    with pytest.raises(ToolCallError, match="more than"):
        await connection.call("endless", {})


async def test_a_task_that_goes_on_when_cancelled_is_left(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CANCEL_SECONDS", 0.0)
    extension = Tasks()
    connection = await lab(opened, extension)
    task = started(connection, extension, "stubborn")
    await connection.tasks.cancel(task)
    await task.wait()
    assert task.status == "cancelled"


class Leaving(Tasks):
    """A server that stops answering polls once it was asked to cancel a task.

    Args:
        how: `silent` never answers, `failing` answers with errors.
    """

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    async def _get(self, context: Any, params: Params) -> Any:
        if "tasks/cancel" not in self.requests:
            return await super()._get(context, params)
        if self.how == "silent":
            await asyncio.Event().wait()
        raise MCPError(code=INTERNAL_ERROR, message="no disk")


@pytest.mark.parametrize("how", ["silent", "failing"])
async def test_a_cancelled_task_ends_though_its_server_stops_answering(
    opened: Opened, until: Until, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(limits, "CANCEL_SECONDS", 0.2)
    extension = Leaving(how)
    connection = await lab(opened, extension)
    task = started(connection, extension, "stubborn")
    changes: list[str] = []
    task.on_change = lambda task: changes.append(task.status)
    await connection.tasks.cancel(task)
    assert await task.wait(15)
    assert (task.status, task.problem, changes[-1]) == ("cancelled", "", "cancelled")
    assert "not followed" in task.error
    await until(lambda: not connection.tasks._following)


async def test_there_are_at_most_so_many_tasks_of_a_server(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_RUNNING", 1)
    extension = Tasks()
    connection = await lab(opened, extension)
    started(connection, extension, "endless")
    with pytest.raises(ToolCallError, match="more than 1"):
        await connection.call("endless", {})


async def test_secrets_are_masked_in_all_that_a_task_says(opened: Opened) -> None:
    result = {"content": [{"type": "text", "text": f"key {SECRET}"}]}
    extension = Tasks(overrides={"statusMessage": f"using {SECRET}", "result": result})
    connection = await lab(opened, extension, secrets=[SECRET])
    texts: list[str] = []

    def keep(task: FollowedTask) -> int:
        task.on_change = lambda task: texts.append(task.message)
        return 1

    answer = await connection.call("crunch", {}, on_task=keep)
    assert SECRET not in json.dumps([answer.content[0].text, *texts])
    assert texts


@pytest.mark.parametrize(
    ("wanted", "seconds"),
    [
        (None, 2.0),
        ("soon", 2.0),
        (True, 2.0),
        (math.nan, 2.0),
        (0, 0.2),
        (-5, 0.2),
        (3_000, 3.0),
        (10**12, 60.0),
        (10**400, 60.0),
        (-(10**400), 0.2),
        (math.inf, 2.0),
    ],
)
def test_the_interval_that_a_server_wishes_has_bounds(
    monkeypatch: pytest.MonkeyPatch, wanted: Any, seconds: float
) -> None:
    monkeypatch.undo()
    assert poll_seconds(CreatedTask(result_type="task", poll_interval_ms=wanted)) == seconds


async def test_another_process_of_the_server_goes_on_with_a_task(
    opened: Opened, tmp_path: Path
) -> None:
    first = Tasks(tmp_path)
    started(await lab(opened, first), first, "endless")
    second = Tasks(tmp_path)
    task = (await lab(opened, second)).tasks.follow("endless", "abc")
    second._save(
        "abc", {"tool": "crunch", "arguments": {"polls": 0}, "polls": 0, "status": "working"}
    )
    await task.wait()
    assert task.status == "completed"
