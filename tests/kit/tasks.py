"""A server whose calls become tasks, with its tasks in a folder, so that another process of it goes
on with them.

A task moves on when it is polled, so that nothing depends on the clock. `python -m kit.tasks
FOLDER` serves it over stdio, with a JSON object as a second argument for the fields that replace
those of its answers.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastmcp import FastMCP
from fastmcp.server.extensions import MethodBinding, ServerExtension
from mcp import MCPError
from mcp_types import INVALID_PARAMS, RequestParams
from pydantic import BaseModel, ConfigDict, Field

TASKS = "io.modelcontextprotocol/tasks"
FORM = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "title": "Region", "enum": ["north", "south"]},
        "year": {"type": "integer"},
    },
    "required": ["region"],
}


class Params(RequestParams):
    """The fields of all requests about a task."""

    model_config = ConfigDict(populate_by_name=True)

    task_id: str = Field(alias="taskId")
    input_responses: dict[str, Any] = Field(default_factory=dict, alias="inputResponses")


class Answer(BaseModel):
    """An answer with whatever fields a test wants."""

    model_config = ConfigDict(extra="allow")


class Tasks(ServerExtension):
    """The extension on the server's side.

    Args:
        folder: Where each task is a file; None keeps them in memory.
        overrides: Fields that replace those of each answer to `tasks/get`, for hostile servers.
        created: The same for the answer to a call.

    Attributes:
        requests: The methods of all requests about tasks, in order.
    """

    identifier = TASKS

    def __init__(
        self,
        folder: Path | None = None,
        overrides: dict[str, Any] | None = None,
        created: dict[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.overrides = overrides or {}
        self.created = created or {}
        self.requests: list[str] = []
        self.tasks: dict[str, dict[str, Any]] = {}

    def methods(self) -> Sequence[MethodBinding]:
        """The three requests."""
        handlers = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }
        return [
            MethodBinding(method=name, params_type=Params, handler=each)
            for name, each in handlers.items()
        ]

    async def intercept_tool_call(self, params: Any, context: Any, call_next: Any) -> Any:
        """Make each call a task, if the client can have one, but those of the tool `now`."""
        if context.client_extension_settings(TASKS) is None or params.name == "now":
            return await call_next()
        id = uuid.uuid4().hex
        self._save(
            id,
            {
                "tool": params.name,
                "arguments": params.arguments or {},
                "polls": 0,
                "status": "working",
            },
        )
        return Answer(resultType="task", **{**_fields(id, "working"), **self.created})

    async def _get(self, _context: Any, params: Params) -> Any:
        self.requests.append("tasks/get")
        task = self._load(params.task_id)
        task["polls"] += 1
        answer = self._answer(params.task_id, task)
        self._save(params.task_id, task)
        return Answer(**{**answer, **self.overrides})

    def _answer(self, id: str, task: dict[str, Any]) -> dict[str, Any]:
        if task["status"] != "working":
            return _fields(id, task["status"])
        tool, arguments, polls = task["tool"], task["arguments"], task["polls"]
        if tool == "crunch":
            needed = arguments.get("polls", 2)
            if polls <= needed:
                return _fields(id, "working", statusMessage=f"batch {polls} of {needed}")
            text = f"{arguments.get('topic', 'sales')}: 42 rows"
            result = {
                "content": [{"type": "text", "text": text}],
                "structuredContent": {"rows": 42},
                "isError": False,
            }
            return _fields(id, "completed", result=result)
        if tool == "survey":
            if "answers" not in task:
                params = {"mode": "form", "message": "Which region?", "requestedSchema": FORM}
                request = {"region": {"method": "elicitation/create", "params": params}}
                return _fields(id, "input_required", inputRequests=request)
            told = task["answers"]["region"]
            text = f"{told['action']} {json.dumps(told.get('content'), sort_keys=True)}"
            return _fields(id, "completed", result={"content": [{"type": "text", "text": text}]})
        if tool == "fail":
            return _fields(id, "failed", error={"code": -32000, "message": "the disk is full"})
        return _fields(id, "working", statusMessage="still at it")

    async def _update(self, _context: Any, params: Params) -> Any:
        self.requests.append("tasks/update")
        task = self._load(params.task_id)
        task["answers"] = params.input_responses
        self._save(params.task_id, task)
        return Answer()

    async def _cancel(self, _context: Any, params: Params) -> Any:
        self.requests.append("tasks/cancel")
        task = self._load(params.task_id)
        if task["tool"] != "stubborn":
            task["status"] = "cancelled"
        self._save(params.task_id, task)
        return Answer()

    def _load(self, id: str) -> dict[str, Any]:
        if self.folder is not None:
            path = self.folder / f"{id}.json"
            task = json.loads(path.read_text()) if id.isalnum() and path.exists() else None
        else:
            task = self.tasks.get(id)
        if task is None:
            raise MCPError(code=INVALID_PARAMS, message=f"Task {id} not found")
        return dict(task)

    def _save(self, id: str, task: dict[str, Any]) -> None:
        self.tasks[id] = task
        if self.folder is not None:
            (self.folder / f"{id}.json").write_text(json.dumps(task))


def _fields(id: str, status: str, **more: Any) -> dict[str, Any]:
    now = "2026-11-27T00:00:00Z"
    fields = {
        "taskId": id,
        "status": status,
        "createdAt": now,
        "lastUpdatedAt": now,
        "ttlMs": 60_000,
        "pollIntervalMs": 10,
    }
    return fields | more


def tasks_server(extension: Tasks | None = None) -> FastMCP[Any]:
    """Create a server `lab` of tools that become tasks."""
    lab: FastMCP[Any] = FastMCP("lab")
    lab.add_extension(extension or Tasks())

    @lab.tool(annotations={"readOnlyHint": True}, output_schema=None)
    def crunch(topic: str = "sales", polls: int = 2) -> str:
        """Crunch the numbers of a topic. Takes a while."""
        return f"{topic}: 42 rows"

    @lab.tool(annotations={"readOnlyHint": True}, output_schema=None)
    def survey() -> str:
        """Make a survey of a region. Asks which one."""
        return ""

    @lab.tool(annotations={"readOnlyHint": True}, output_schema=None)
    def endless() -> str:
        """Never end."""
        return ""

    @lab.tool(annotations={"readOnlyHint": True}, output_schema=None)
    def stubborn() -> str:
        """Never end, not even when cancelled."""
        return ""

    @lab.tool(annotations={"readOnlyHint": True}, output_schema=None)
    def fail() -> str:
        """Fail."""
        return ""

    @lab.tool(annotations={"readOnlyHint": True}, output_schema=None)
    def now() -> str:
        """Answer directly."""
        return "now"

    return lab


if __name__ == "__main__":
    tasks_server(Tasks(Path(sys.argv[1]), *map(json.loads, sys.argv[2:]))).run(show_banner=False)
