from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from kit.raw_server import OK, received
from kit.waiting import wait_until

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.mcp import APPS_EXTENSION, TASKS_EXTENSION, QuestionAnswer, ServerQuestion
from casual_mcp_nb.base.secret import MASK
from casual_mcp_nb.errors import ConnectError, ToolCallError, ToolTimeoutError
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.handlers import Handlers
from casual_mcp_nb.servers.mcp_session import WATCH_SECONDS

Raw = Callable[..., ServerConfig]
Opened = Callable[..., Any]


@pytest.mark.fault(17)
async def test_a_server_that_dies_in_a_call_fails_the_call_and_restarts_on_next_use(
    opened: Opened, raw: Raw, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    calls = {"die": {"die": True, "stderr": "out of paper\n"}, "hang": {}, "fine": OK}
    connection = opened(Connection("mortal", raw(calls=calls, record=str(record))))
    await connection.connect()
    fine = await connection.call("fine", {})
    with pytest.raises(ToolCallError, match="connection was closed") as caught:
        await connection.call("die", {})
    assert (caught.value.server, caught.value.tool) == ("mortal", "die")
    assert "out of paper" in str(caught.value)
    assert caught.value.retryable
    assert connection.status.state == "failed"
    assert "next use" in (connection.status.error or "")
    assert await connection.call("fine", {}) == fine
    assert connection.status.state == "ready"
    names = [message["params"]["name"] for message in received(record, "tools/call")]
    assert names == ["fine", "die", "fine"]


async def test_every_call_under_way_ends_when_the_server_dies(opened: Opened, raw: Raw) -> None:
    connection = opened(Connection("mortal", raw(calls={"die": {"die": True}, "hang": {}})))
    await connection.connect()
    hanging = asyncio.create_task(connection.call("hang", {}))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        results = await asyncio.gather(hanging, connection.call("die", {}), return_exceptions=True)
    assert [type(result) for result in results] == [ToolCallError, ToolCallError]


@pytest.mark.fault(18)
async def test_a_death_between_calls_is_noticed_and_the_next_call_starts_the_server_once(
    opened: Opened, raw: Raw, until: Callable[..., Any], tmp_path: Path
) -> None:
    record = tmp_path / "record"
    connection = opened(
        Connection("brief", raw(calls={"last": OK | {"die_after": 0.5}}, record=str(record)))
    )
    await connection.connect()
    await connection.call("last", {})
    await until(lambda: connection.status.state == "failed")
    assert len(connection.tools) == 1
    results = await asyncio.gather(*(connection.call("last", {}) for _ in range(3)))
    assert [result.content[0].text for result in results] == ["ok"] * 3
    assert len(received(record, "initialize")) == 2


@pytest.mark.holds_the_loop("the process ends before the loop reads its answer")
async def test_the_last_answer_of_a_process_is_read_also_if_it_ended_before(
    opened: Opened,
    raw: Raw,
    until: Callable[..., Any],
    processes: Callable[[], list[str]],
    tmp_path: Path,
) -> None:
    record = tmp_path / "record"
    plan = OK | {"delay": 0.2, "die_after": 0}
    connection = opened(Connection("brief", raw(calls={"last": plan}, record=str(record))))
    await connection.connect()
    calling = asyncio.create_task(connection.call("last", {}))
    await until(lambda: received(record, "tools/call"))
    wait_until(lambda: not processes(), "the end of the process")
    # The next look at the process is due as well.
    held_until = time.monotonic() + WATCH_SECONDS
    wait_until(lambda: time.monotonic() > held_until, "the next look")
    assert (await calling).content[0].text == "ok"


async def test_a_server_that_cannot_restart_is_failed_and_not_retried_on_every_use(
    opened: Opened, raw: Raw, until: Callable[..., Any], tmp_path: Path
) -> None:
    flag = tmp_path / "works"
    flag.touch()
    connection = opened(
        Connection("brief", raw(fails_until=str(flag), calls={"last": OK | {"die_after": 0.05}}))
    )
    await connection.connect()
    await connection.call("last", {})
    await until(lambda: connection.status.state == "failed")
    flag.unlink()
    for _ in range(2):
        with pytest.raises(ConnectError, match="not repaired yet"):
            await connection.call("last", {})
    assert connection.status.state == "failed"
    assert "exited" in (connection.status.error or "")
    assert connection.tools == ()


@pytest.mark.fault(19)
async def test_a_hanging_call_ends_at_its_limit_and_the_server_is_notified(
    opened: Opened, raw: Raw, tmp_path: Path, until: Callable[..., Any]
) -> None:
    record = tmp_path / "record"
    connection = opened(
        Connection(
            "hung", raw({"call_timeout": 0.5}, calls={"hang": {}, "fine": OK}, record=str(record))
        )
    )
    await connection.connect()
    hanging = asyncio.create_task(connection.call("hang", {}))
    assert (await connection.call("fine", {})).content[0].text == "ok"
    with pytest.raises(ToolTimeoutError, match=r" 0\.5\d* s\b") as caught:
        await hanging
    assert (caught.value.server, caught.value.tool) == ("hung", "hang")
    assert "servers.hung.call_timeout" in str(caught.value)
    await until(lambda: received(record, "notifications/cancelled"))
    assert (await connection.call("fine", {})).content[0].text == "ok"
    assert len(received(record, "initialize")) == 1


@pytest.mark.fault(20)
async def test_progress_extends_the_limit_of_a_call_but_not_beyond_the_total(
    opened: Opened, raw: Raw
) -> None:
    config = raw({"call_timeout": 0.7, "total_timeout": 1.2}, calls={"busy": {"progress": 0.1}})
    connection = opened(Connection("busy", config))
    await connection.connect()
    seen: list[tuple[float, float | None, str | None]] = []
    with pytest.raises(ToolTimeoutError, match="total_timeout"):
        await connection.call("busy", {}, on_progress=lambda *progress: seen.append(progress))
    assert seen[:2] == [(1.0, None, "on it"), (2.0, None, "on it")]


async def test_cancelling_the_caller_cancels_the_request_and_keeps_the_connection(
    opened: Opened, raw: Raw, tmp_path: Path, until: Callable[..., Any]
) -> None:
    record = tmp_path / "record"
    connection = opened(
        Connection("patient", raw(calls={"hang": {}, "fine": OK}, record=str(record)))
    )
    await connection.connect()
    call = asyncio.create_task(connection.call("hang", {}))
    await until(lambda: received(record, "tools/call"))
    call.cancel()
    await asyncio.wait({call}, timeout=2)
    assert call.cancelled()
    await until(lambda: received(record, "notifications/cancelled"))
    assert (await connection.call("fine", {})).content[0].text == "ok"


async def test_a_call_in_memory_that_is_cancelled_is_cancelled_in_the_tool(opened: Opened) -> None:
    server = FastMCP("inside")
    begun, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()
        return "late"

    connection = opened(Connection("inside", server=server))
    await connection.connect()
    call = asyncio.create_task(connection.call("wait", {}))
    async with asyncio.timeout(30):
        await begun.wait()
        call.cancel()
        await ended.wait()


@pytest.mark.fault(26)
async def test_an_error_without_content_and_a_json_rpc_error_reach_the_caller(
    opened: Opened, raw: Raw
) -> None:
    calls = {
        "mute": {"result": {"content": [], "isError": True}},
        "refused": {"error": {"code": -32000, "message": "no disk left"}},
    }
    connection = opened(Connection("strict", raw(calls=calls)))
    await connection.connect()
    mute = await connection.call("mute", {})
    assert mute.is_error
    assert mute.content == ()
    with pytest.raises(ToolCallError, match="no disk left") as caught:
        await connection.call("refused", {})
    assert (caught.value.server, caught.value.tool) == ("strict", "refused")
    assert connection.status.state == "ready"


@pytest.mark.fault(28)
async def test_invalid_structured_content_is_an_error_that_names_the_field(
    opened: Opened, raw: Raw
) -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "integer"}}}
    tools = [{"name": "ask", "inputSchema": {"type": "object"}, "outputSchema": schema}]
    result = {
        "content": [{"type": "text", "text": "forty-two"}],
        "structuredContent": {"answer": "forty-two"},
    }
    connection = opened(Connection("loose", raw(tools=tools, calls={"ask": {"result": result}})))
    await connection.connect()
    answer = await connection.call("ask", {})
    assert answer.is_error
    assert answer.content[0].text == "forty-two"
    assert re.search(r"\$\.answer: 'forty-two' .*'integer'", answer.content[1].text)
    assert answer.structured == {"answer": "forty-two"}


@pytest.mark.fault(30)
async def test_content_of_an_unknown_type_is_an_error_that_keeps_the_known_parts(
    opened: Opened, raw: Raw
) -> None:
    calls = {
        "future": {
            "result": {
                "content": [{"type": "text", "text": "seen"}, {"type": "hologram", "cube": 1}]
            }
        },
        "broken": {"result": {"resultType": "later"}},
        "fine": OK,
    }
    connection = opened(Connection("future", raw(calls=calls)))
    await connection.connect()
    result = await connection.call("future", {})
    assert result.is_error
    assert [part.kind for part in result.content] == ["text", "unknown"]
    assert result.content[0].text == "seen"
    assert "'hologram'" in result.content[1].text
    with pytest.raises(ToolCallError, match="cannot be read: content"):
        await connection.call("broken", {})
    assert (await connection.call("fine", {})).content[0].text == "ok"


async def test_meta_reaches_the_server(opened: Opened, raw: Raw, tmp_path: Path) -> None:
    record = tmp_path / "record"
    connection = opened(Connection("told", raw(calls={"a": OK}, record=str(record))))
    await connection.connect()
    await connection.call("a", {"x": 1}, meta={"lesson": "7"})
    params = received(record, "tools/call")[0]["params"]
    assert params["arguments"] == {"x": 1}
    assert params["_meta"]["lesson"] == "7"


@pytest.mark.fault(16)
async def test_capabilities_without_a_handler_are_undeclared_and_refused(
    opened: Opened, raw: Raw, tmp_path: Path, until: Callable[..., Any]
) -> None:
    record = tmp_path / "record"
    elicit = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {}}}
    sample = {"messages": [], "maxTokens": 5}
    calls = {
        "elicit": OK | {"ask": "elicitation/create", "ask_params": elicit},
        "sample": OK | {"ask": "sampling/createMessage", "ask_params": sample},
        "roots": OK | {"ask": "roots/list"},
    }
    connection = opened(Connection("asker", raw(calls=calls, record=str(record))))
    await connection.connect()
    for name in calls:
        await connection.call(name, {})

    def answers() -> dict[str, Any]:
        messages = map(json.loads, record.read_text().splitlines())
        return {message["id"]: message for message in messages if "method" not in message}

    await until(lambda: len(answers()) == 3)
    declared = received(record, "initialize")[0]["params"]["capabilities"]
    assert declared.keys() == {"extensions"}
    # Tasks need the version without a handshake.
    assert APPS_EXTENSION in declared["extensions"]
    assert TASKS_EXTENSION not in declared["extensions"]
    assert all("error" in answer for answer in answers().values())


async def test_a_handler_is_declared_and_gets_the_servers_name(
    opened: Opened, raw: Raw, tmp_path: Path, until: Callable[..., Any]
) -> None:
    record = tmp_path / "record"
    questions: list[tuple[str, str]] = []

    async def elicitation(question: ServerQuestion) -> QuestionAnswer:
        questions.append((question.server, question.message))
        return QuestionAnswer("accept", {"name": "Ada"})

    elicit = {
        "message": "Your name?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
    calls = {
        "elicit": OK | {"ask": "elicitation/create", "ask_params": elicit},
        "roots": OK | {"ask": "roots/list"},
    }
    shared = raw({"roots": [str(tmp_path)]}, calls=calls, record=str(record))
    connection = opened(Connection("asker", shared, handlers=Handlers(elicitation=elicitation)))
    await connection.connect()
    await connection.call("elicit", {})
    await connection.call("roots", {})
    await until(lambda: '"Ada"' in record.read_text() and tmp_path.as_uri() in record.read_text())
    assert questions == [("asker", "Your name?")]
    assert set(received(record, "initialize")[0]["params"]["capabilities"]) == {
        "elicitation",
        "roots",
        "extensions",
    }


async def test_log_messages_reach_the_handler_with_the_servers_name_and_secrets_masked(
    opened: Opened, raw: Raw, until: Callable[..., Any]
) -> None:
    notice = {
        "method": "notifications/message",
        "params": {"level": "warning", "data": {"key": "s3cret-key"}},
    }
    logs: list[tuple[str, str, str]] = []
    config = raw({"env": {"KEY": "s3cret-key"}}, calls={"a": OK | {"notify": notice}})
    connection = opened(
        Connection("chatty", config, handlers=Handlers(log=lambda *log: logs.append(log)))
    )
    await connection.connect()
    await connection.call("a", {})
    await until(lambda: logs)
    assert logs == [("chatty", "warning", f'{{"key": "{MASK}"}}')]


async def test_a_notice_that_tools_changed_makes_the_next_listing_anew(
    opened: Opened, raw: Raw, until: Callable[..., Any]
) -> None:
    notice = {"method": "notifications/tools/list_changed"}
    tools = [{"name": "new", "inputSchema": {"type": "object"}}]
    changes: list[int] = []
    config = raw(calls={"grow": OK | {"notify": notice, "plan": {"tools": tools}}})
    connection = opened(
        Connection("growing", config, on_change=lambda: changes.append(1), cache_ttl=None)
    )
    await connection.connect()
    assert [tool.name for tool in await connection.list_tools()] == ["grow"]
    before = len(changes)
    await connection.call("grow", {})
    await until(lambda: len(changes) > before)
    assert [tool.name for tool in await connection.list_tools()] == ["new"]


async def test_calls_of_one_server_run_side_by_side_and_report_their_own_progress(
    opened: Opened,
) -> None:
    server = FastMCP("inside")
    together = asyncio.Barrier(3)

    @server.tool
    async def meet(number: int, ctx: Context) -> int:
        await together.wait()
        await ctx.report_progress(number, 3)
        return number

    connection = opened(Connection("inside", server=server))
    await connection.connect()
    seen: dict[int, list[float]] = {0: [], 1: [], 2: []}

    async def call(number: int) -> Any:
        return await connection.call(
            "meet", {"number": number}, on_progress=lambda step, *_: seen[number].append(step)
        )

    async with asyncio.timeout(30):
        results = await asyncio.gather(*(call(number) for number in range(3)))
    assert [result.structured["result"] for result in results] == [0, 1, 2]
    assert seen == {0: [0.0], 1: [1.0], 2: [2.0]}
