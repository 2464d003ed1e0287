"""The messages of the extension for tasks, which the SDK does not have."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from mcp.client.extension import ClaimContext, ResultClaim
from mcp_types import CallToolResult, Request, RequestParams, Result
from pydantic import ConfigDict, Field


class CreatedTask(Result):
    """The answer to a call that became a task.

    Its fields are checked by `ServerTasks`, because a server may write anything.
    """

    model_config = ConfigDict(populate_by_name=True)

    result_type: Literal["task"] = Field(alias="resultType")
    task_id: Any = Field(default=None, alias="taskId")
    status: Any = None
    status_message: Any = Field(default=None, alias="statusMessage")
    poll_interval_ms: Any = Field(default=None, alias="pollIntervalMs")


class TaskAnswer(Result):
    """The answer to `tasks/get`."""

    model_config = ConfigDict(populate_by_name=True)

    task_id: Any = Field(default=None, alias="taskId")
    status: Any = None
    status_message: Any = Field(default=None, alias="statusMessage")
    poll_interval_ms: Any = Field(default=None, alias="pollIntervalMs")
    result: Any = None
    error: Any = None
    input_requests: Any = Field(default=None, alias="inputRequests")


class TaskParams(RequestParams):
    """The task that a request is about."""

    model_config = ConfigDict(populate_by_name=True)

    task_id: str = Field(serialization_alias="taskId")


class UpdateParams(TaskParams):
    """The answers to a task's questions."""

    input_responses: dict[str, Any] = Field(serialization_alias="inputResponses")


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    """Asks for a task's state."""

    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams


class UpdateTask(Request[UpdateParams, Literal["tasks/update"]]):
    """Answers a task's questions."""

    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateParams


class CancelTask(Request[TaskParams, Literal["tasks/cancel"]]):
    """Cancels a task."""

    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams


async def _left_to_the_caller(created: CreatedTask, context: ClaimContext) -> CallToolResult:
    raise AssertionError("`ServerCalls` handles the task of a call.")


TASK_CLAIM = ResultClaim(result_type="task", model=CreatedTask, resolve=_left_to_the_caller)
"""Lets a call be answered with a task."""
