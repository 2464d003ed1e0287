"""What real servers send beside results: progress, logs, changes of their tools, and requests of
their own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.mcp import QuestionAnswer, SamplingAnswer, SamplingRequest, ServerQuestion
from casual_mcp_nb.conversation.event import ServerLog, ToolProgress, ToolStarted
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.handlers import Handlers

pytestmark = pytest.mark.integration

ON_REQUEST = {"get-roots-list", "trigger-elicitation-request", "trigger-sampling-request"}

GROWING = """
import { McpServer } from "%(sdk)s/server/mcp.js";
import { StdioServerTransport } from "%(sdk)s/server/stdio.js";
const server = new McpServer({ name: "growing", version: "1" });
const say = (text) => async () => ({ content: [{ type: "text", text }] });
server.registerTool("grow", { description: "Grow." }, async () => {
  server.registerTool("grown", { description: "What has grown." }, say("an apple"));
  return say("grown")();
});
await server.connect(new StdioServerTransport());
"""


@asynccontextmanager
async def connected(
    config: dict[str, Any], handlers: Handlers | None = None
) -> AsyncIterator[Connection]:
    connection = Connection("everything", ServerConfig.model_validate(config), handlers=handlers)
    try:
        await connection.connect()
        yield connection
    finally:
        await connection.close()


def test_progress_is_seen_in_the_turn_while_the_call_runs(session: Session) -> None:
    model = scripted_model(
        call("everything__trigger-long-running-operation", duration=2, steps=4), "done"
    )
    turn = session.chat("go", model=model)
    (started,) = turn.trace.of(ToolStarted)
    progress = turn.trace.of(ToolProgress)
    assert [(each.progress, each.total) for each in progress] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert {each.call_id for each in progress} == {started.call_id}


def test_progress_of_two_calls_at_the_same_time_is_not_mixed_up(session: Session) -> None:
    tool = "everything__trigger-long-running-operation"
    model = scripted_model(
        calls(call(tool, duration=0.2, steps=2), call(tool, duration=0.2, steps=3)), "done"
    )
    turn = session.chat("go", model=model)
    first, second = (each.call_id for each in turn.trace.of(ToolStarted))
    totals = {(each.call_id, each.total) for each in turn.trace.of(ToolProgress)}
    assert totals == {(first, 2), (second, 3)}


def test_a_log_message_is_seen_in_the_turn(session: Session) -> None:
    toggle = call("everything__toggle-simulated-logging")
    turn = session.chat("go", model=scripted_model(toggle, toggle, "done"))
    assert [c.status for c in turn.tool_calls] == ["ok", "ok"]
    (log, *_) = turn.trace.of(ServerLog)
    assert log.server == "everything"
    assert "message" in log.text
    assert log.level in (
        "debug",
        "info",
        "notice",
        "warning",
        "error",
        "critical",
        "alert",
        "emergency",
    )


async def test_what_nobody_handles_is_not_declared_so_the_server_offers_no_such_tool(
    servers: dict[str, Any],
) -> None:
    async with connected(servers["everything"]) as connection:
        assert ON_REQUEST & {tool.name for tool in connection.tools} == set()


async def test_a_server_asks_for_roots_an_answer_and_a_sample_when_handlers_are_set(
    servers: dict[str, Any], folder: Path
) -> None:
    asked: list[str] = []

    async def answer(question: ServerQuestion) -> QuestionAnswer:
        asked.append(f"{question.server}: {question.message}")
        return QuestionAnswer("decline")

    async def sample(server: str, _: SamplingRequest) -> SamplingAnswer:
        return SamplingAnswer(f"a sample for {server}", "model", False, "")

    handlers = Handlers(elicitation=answer, sampling=sample)
    async with connected(
        {**servers["everything"], "roots": [str(folder)], "sampling": True}, handlers
    ) as connection:
        assert {tool.name for tool in await connection.list_tools()} >= ON_REQUEST
        roots = await connection.call("get-roots-list", {})
        declined = await connection.call("trigger-elicitation-request", {})
        sampled = await connection.call("trigger-sampling-request", {"prompt": "hi"})
    assert folder.as_uri() in roots.content[0].text
    assert "decline" in declined.content[0].text
    assert asked[0].startswith("everything: ")
    assert "a sample for everything" in sampled.content[0].text


async def test_a_change_of_tools_announced_at_the_start_is_part_of_the_listing(
    servers: dict[str, Any], tmp_path: Path
) -> None:
    sent = tmp_path / "sent.jsonl"
    program = servers["everything"]["args"][0]
    recorded = {"command": "sh", "args": ["-c", 'node "$1" | tee "$2"', "sh", program, str(sent)]}
    async with connected(recorded) as connection:
        assert "simulate-research-query" in {tool.name for tool in await connection.list_tools()}
    methods = [json.loads(line).get("method") for line in sent.read_text().splitlines()]
    assert "notifications/tools/list_changed" in methods


def test_a_tool_that_appears_in_a_turn_is_there_in_the_next_one(
    node_modules: Path, tmp_path: Path
) -> None:
    program = tmp_path / "growing.mjs"
    program.write_text(GROWING % {"sdk": (node_modules / "sdk" / "dist" / "esm").as_uri()})
    config = {"mcpServers": {"growing": {"command": "node", "args": [str(program)]}}}
    with Session.from_config(config) as session:
        assert [tool.name for tool in session.tools] == ["grow"]
        session.chat("go", model=scripted_model(call("growing__grow"), "done"))
        turn = session.chat("go", model=scripted_model(call("growing__grown"), "done"))
        assert turn.tool_calls[0].result == "an apple"
        assert [tool.name for tool in session.tools] == ["grow", "grown"]
