"""Servers that die, hang, or answer what cannot be read: it costs one call."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.history import assert_valid
from kit.mcp_http import McpHttp
from kit.processes import marked, wait_gone
from kit.raw_server import OK, received
from kit.scripted_http import Reply
from kit.turns import ask
from kit.waiting import until

from casual_mcp_nb.conversation.event import ToolProgress
from casual_mcp_nb.providers.scripted import call, calls

Raw = Callable[..., dict[str, Any]]
Opened = Callable[..., Any]

REPLY = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "text", "text": "first"}]}}\n'


def outcomes(turn: Any) -> list[tuple[str, str]]:
    return [(c.status, c.result) for c in turn.tool_calls]


@pytest.mark.fault(17)
async def test_a_death_in_a_call_costs_that_call_and_the_next_one_restarts_the_server(
    opened: Opened, raw: Raw, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    mortal = raw(
        calls={"die": {"die": True, "stderr": "out of paper\n"}, "fine": OK}, record=str(record)
    )
    chat = await opened({"mortal": mortal, "healthy": raw(calls={"a": OK | {"delay": 0.2}})})
    first = await ask(chat, calls(call("mortal__die"), call("healthy__a")), "one failed")
    died, sibling = first.tool_calls
    assert died.status == "error"
    assert re.search(r"'mortal' .*'die': .*\bclosed\b", died.result)
    assert "out of paper" in died.result
    assert sibling.result == "ok"
    second = await ask(
        chat, calls(call("mortal__fine"), call("healthy__a")), "fine", history=first.messages
    )
    third = await ask(chat, call("mortal__fine"), "fine", history=second.messages)
    assert outcomes(second) + outcomes(third) == [("ok", "ok")] * 3
    assert [message["params"]["name"] for message in received(record, "tools/call")] == [
        "die",
        "fine",
        "fine",
    ]
    assert len(received(record, "initialize")) == 2
    assert_valid(third.messages)


@pytest.mark.fault(18)
async def test_a_death_between_calls_is_mended_once_and_a_second_one_is_told_to_the_model(
    opened: Opened, raw: Raw, tmp_path: Path
) -> None:
    record, flag = tmp_path / "record", tmp_path / "works"
    flag.touch()
    brief = raw(calls={"last": OK | {"die_after": 0.2}}, record=str(record), fails_until=str(flag))
    chat = await opened({"brief": brief, "other": raw(calls={"a": OK})})

    async def died() -> None:
        await until(lambda: chat.server_manager.statuses["brief"].state == "failed")

    first = await ask(chat, call("brief__last"), "done")
    await died()
    assert outcomes(first) == [("ok", "ok")]

    async def call_again_when_it_cannot_start(messages: Any, tools: Any) -> Any:
        flag.unlink()
        await died()
        return calls(call("brief__last"), call("other__a"))

    second = await ask(
        chat, call("brief__last"), call_again_when_it_cannot_start, "done", history=first.messages
    )
    assert [c.status for c in second.tool_calls] == ["ok", "error", "ok"]
    assert "not repaired yet" in second.tool_calls[1].result
    assert "exited" in (chat.server_manager.statuses["brief"].error or "")
    assert len(received(record, "initialize")) == 2
    assert_valid(second.messages)


@pytest.mark.fault(18)
async def test_a_server_that_has_just_died_is_noticed_before_a_call_is_given_to_it(
    opened: Opened, raw: Raw, mark: str
) -> None:
    chat = await opened({"brief": raw(calls={"a": OK})})
    (process,) = marked(mark)
    os.kill(process.pid, signal.SIGKILL)
    # Blocks the loop, so that nothing of the death can have been read.
    wait_gone(mark)
    turn = await ask(chat, call("brief__a"), "done")
    assert outcomes(turn) == [("ok", "ok")]


@pytest.mark.fault(19)
async def test_a_call_that_never_returns_is_cancelled_at_its_limit_and_its_sibling_is_kept(
    opened: Opened, raw: Raw, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    chat = await opened(
        {"hung": raw({"call_timeout": 1.0}, calls={"hang": {}, "fine": OK}, record=str(record))}
    )
    turn = await ask(
        chat, calls(call("hung__hang"), call("hung__fine")), call("hung__fine"), "done"
    )
    assert [c.status for c in turn.tool_calls] == ["timeout", "ok", "ok"]
    assert "servers.hung.call_timeout" in turn.tool_calls[0].result
    assert turn.answer == "done"
    hanging = next(
        message for message in received(record, "tools/call") if message["params"]["name"] == "hang"
    )
    await until(lambda: received(record, "notifications/cancelled"))
    assert received(record, "notifications/cancelled")[0]["params"]["requestId"] == hanging["id"]
    assert_valid(turn.messages)


@pytest.mark.fault(20)
async def test_progress_extends_the_limit_of_a_call_but_not_beyond_the_total(
    opened: Opened, raw: Raw
) -> None:
    busy = raw({"call_timeout": 1.0, "total_timeout": 2.5}, calls={"busy": {"progress": 0.1}})
    chat = await opened({"busy": busy})
    turn = await ask(chat, call("busy__busy"), "done")
    assert turn.tool_calls[0].status == "timeout"
    assert "servers.busy.total_timeout" in turn.tool_calls[0].result
    assert len(turn.trace.of(ToolProgress)) > 10


@pytest.mark.fault(22)
async def test_a_reply_that_the_parser_refuses_fails_only_that_call(
    opened: Opened, raw: Raw
) -> None:
    reply = REPLY.replace('"first"', "[" * 5000)
    chat = await opened(
        {"garbled": raw({"call_timeout": 600.0}, calls={"garbled": {"raw": reply}, "fine": OK})}
    )
    turn = await ask(chat, call("garbled__garbled"), call("garbled__fine"), "done")
    assert "reply cannot be read" in turn.tool_calls[0].result
    assert [c.status for c in turn.tool_calls] == ["error", "ok"]
    assert_valid(turn.messages)


@pytest.mark.fault(23)
async def test_bytes_that_are_not_utf_8_fail_that_call_at_its_limit_and_the_next_one_works(
    opened: Opened, raw: Raw
) -> None:
    chat = await opened(
        {"bytes": raw({"call_timeout": 0.7}, calls={"bytes": {"raw": "\xff\xfe\n"}, "fine": OK})}
    )
    turn = await ask(chat, call("bytes__bytes"), call("bytes__fine"), "done")
    assert "an unreadable reply" in turn.tool_calls[0].result
    assert [c.status for c in turn.tool_calls] == ["timeout", "ok"]
    within = await opened(
        {"bytes": raw(calls={"a": {"raw": REPLY.replace("first", "caf\xe9 \xff")}})}
    )
    turn = await ask(within, call("bytes__a"), "done")
    assert outcomes(turn) == [("ok", "caf� �")]


LONE = '"half \\ud83d pair, whole \\uD83D\\uDE00, text \\\\ud83d"'


@pytest.mark.fault(22)
@pytest.mark.parametrize("way", ["stdio", "json", "event stream", "sse"])
async def test_half_a_surrogate_pair_becomes_a_mark_over_every_transport(
    opened: Opened, raw: Raw, way: str
) -> None:
    said, read = json.loads(LONE), "half \ufffd pair, whole \U0001f600, text \\ud83d"
    tools = [
        {"name": name, "description": said, "inputSchema": {"type": "object"}}
        for name in ("a", "b")
    ]
    result = {"content": [{"type": "text", "text": said}], "structuredContent": {said: said}}
    with McpHttp(
        {"a": result, "b": OK["result"]},
        tools=tools,
        events=way == "event stream",
        transport="sse" if way == "sse" else "http",
    ) as server:
        local = raw(tools=tools, calls={"a": {"result": result}, "b": OK})
        chat = await opened({"odd": local if way == "stdio" else server.config()})
        turn = await ask(chat, calls(call("odd__a"), call("odd__b")), "done")
        assert [c.status for c in turn.tool_calls] == ["ok", "ok"]
        assert [c.description for c in await chat.server_manager.list_tools()] == [read, read]
        assert turn.tool_calls[0].content[0].text == read
        assert turn.tool_calls[0].structured == {read: read}


@pytest.mark.fault(23)
@pytest.mark.parametrize("bad", [b"caf\xe9", b"\xed\xa0\x80"], ids=["latin-1", "encoded surrogate"])
async def test_bytes_that_are_not_utf_8_become_marks_in_a_result_over_http(
    opened: Opened, bad: bytes
) -> None:
    with McpHttp({"a": OK["result"]}) as server:
        chat = await opened({"odd": server.config()})
        await ask(chat, call("odd__a"), "warm")
        number = server.received("tools/call")[-1].body["id"] + 1
        body = (
            json.dumps({"jsonrpc": "2.0", "id": number, **OK})
            .encode()
            .replace(b'"ok"', b'"' + bad + b'"')
        )
        server.script("tools/call", Reply(200, body, {"content-type": "application/json"}))
        turn = await ask(chat, call("odd__a"), "done")
    assert turn.tool_calls[0].status == "ok"
    assert "\ufffd" in turn.tool_calls[0].result


@pytest.mark.fault(31)
async def test_foreign_ids_second_replies_and_half_messages_break_nothing_else(
    opened: Opened, raw: Raw
) -> None:
    plan = {
        "foreign": {"raw": REPLY.replace("ID", "99999")},
        "twice": {"raw": REPLY + REPLY.replace("first", "second")},
        "half": {"raw": REPLY[:40], "die": True},
        "fine": OK,
    }
    chat = await opened({"odd": raw({"call_timeout": 0.7}, calls=plan)})
    turn = await ask(
        chat,
        *(call(f"odd__{name}") for name in ("foreign", "twice", "fine", "half", "fine")),
        "done",
    )
    assert [c.status for c in turn.tool_calls] == ["timeout", "ok", "ok", "error", "ok"]
    assert [c.result for c in turn.tool_calls[1:3]] == ["first", "ok"]
    assert "tool 'half'" in turn.tool_calls[3].result
    assert_valid(turn.messages)


@pytest.mark.fault(37)
@pytest.mark.timeout(60)
async def test_104_calls_of_one_turn_run_eight_at_once_with_results_in_order(
    opened: Opened, raw: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_MAX_CALLS_PER_STEP", "104")
    record = tmp_path / "record"
    count = {"answer": "running", "together": 8, "delay": 0.1}
    chat = await opened({"lab": raw(calls={"count": count}, record=str(record))})
    turn = await ask(chat, calls(*(call("lab__count", n=number) for number in range(104))), "done")
    assert [c.arguments for c in turn.tool_calls] == [{"n": number} for number in range(104)]
    assert {c.status for c in turn.tool_calls} == {"ok"}
    assert {c.result for c in turn.tool_calls} == {"8"}
    asked, results = turn.messages[1], turn.messages[2:-1]
    assert [message.tool_call_id for message in results] == [made.id for made in asked.tool_calls]
    assert_valid(turn.messages)
