"""Tasks of a server that others wrote: fastmcp-tasks, from PyPI."""

from __future__ import annotations

from pathlib import Path

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.notebook.questions import FormQuestion
from tests.integration.conftest import BIN, FOLDER

SERVER = """
import asyncio
from fastmcp import Context, FastMCP
from fastmcp_tasks import TasksExtension
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

mcp = FastMCP("real")
mcp.add_extension(TasksExtension())

@mcp.tool(task=True)
async def crunch(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "crunched"

@mcp.tool(task=True)
async def ask(ctx: Context):
    if not ctx.input_responses:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        form = ElicitRequestFormParams(message="Name?", requested_schema=schema)
        return InputRequiredResult(input_requests={"who": ElicitRequest(params=form)})
    return f"hello {ctx.input_responses['who'].content['name']}"

@mcp.tool(task=True)
async def fail() -> str:
    raise ValueError("no disk")

mcp.run(show_banner=False)
"""


@pytest.mark.slow
def test_tasks_run_ask_fail_and_are_cancelled(tmp_path: Path) -> None:
    if not (FOLDER / "tasks" / "installed").exists():
        pytest.skip(".third-party/tasks is missing: `python3 .ci/third_party.py tasks` installs it")
    (tmp_path / "server.py").write_text(SERVER)
    command = {
        "command": str(FOLDER / "tasks" / BIN / "python"),
        "args": [str(tmp_path / "server.py")],
    }
    with Session(
        {"servers": {"real": {**command, "task_wait": 0, "init_timeout": 60}}}, quiet=True
    ) as session:
        tasks = session.servers.tasks
        assert session.tools.call("real:crunch", seconds=0.1).status == "ok"
        assert tasks.result(1).structured == {"result": "crunched"}
        session.tools.call("real:ask")
        question = session.questions.wait()
        assert isinstance(question, FormQuestion)
        question.answer({"name": "Ada"})
        assert tasks.result(2).result == "hello Ada"
        session.tools.call("real:fail")
        assert "no disk" in tasks.wait(3).text
        session.tools.call("real:crunch", seconds=600)
        tasks.cancel(4)
        assert [each.status for each in tasks] == ["completed", "completed", "failed", "cancelled"]
