from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.history import assert_valid
from kit.processes import marked
from kit.raw_server import OK, received
from kit.scripted_http import Reply, ScriptedHttp
from kit.turns import ask
from kit.waiting import wait_until

from casual_mcp_nb.base.secret import MASK
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.errors import ConnectError
from casual_mcp_nb.providers.scripted import call, calls

Raw = Callable[..., dict[str, Any]]
Opened = Callable[..., Any]

BOTH = calls(call("left__a"), call("right__a"))


def beside(raw: Raw, broken: dict[str, Any]) -> dict[str, Any]:
    """A broken server between two that work."""
    return {"left": raw(calls={"a": OK}), "broken": broken, "right": raw(calls={"a": OK})}


async def assert_the_others_work(chat: Any) -> None:
    turn = await ask(chat, BOTH, "done")
    assert [c.result for c in turn.tool_calls] == ["ok", "ok"]
    assert turn.answer == "done"
    assert_valid(turn.messages)


@pytest.mark.fault(1)
async def test_a_command_that_does_not_exist_is_shown_and_the_other_two_servers_work(
    opened: Opened, raw: Raw
) -> None:
    chat = await opened(beside(raw, {"command": "/no/such/server"}))
    status = chat.server_manager.statuses["broken"]
    assert status.state == "failed"
    assert "'/no/such/server'" in (status.error or "")
    for shown in (repr(status), status._repr_html_()):
        assert "/no/such/server" in shown
        assert "not found" in shown
    await assert_the_others_work(chat)


@pytest.mark.fault(2)
async def test_a_server_that_exits_at_once_fails_with_its_stderr_cleaned_and_masked(
    opened: Opened, raw: Raw
) -> None:
    stderr = "loading\n\x1b[31mKeyError: 'MY_TOKEN' is not set, s3cret-key\x1b[0m\n"
    broken = raw({"env": {"KEY": "s3cret-key"}}, stderr=stderr, exit=1)
    chat = await opened(beside(raw, broken))
    status = chat.server_manager.statuses["broken"]
    assert "exited" in (status.error or "")
    assert status.stderr_tail == f"loading\nKeyError: 'MY_TOKEN' is not set, {MASK}"
    assert "MY_TOKEN" in status._repr_html_()
    assert "s3cret" not in repr(status) + status._repr_html_()
    await assert_the_others_work(chat)
    alone = await opened({"broken": broken})
    with pytest.raises(ConnectError, match="KeyError: 'MY_TOKEN' ") as caught:
        await ask(alone, "never")
    assert "\x1b" not in str(caught.value)


@pytest.mark.kernel
@pytest.mark.fault(2)
def test_in_a_kernel_the_error_of_a_cell_holds_the_end_of_the_servers_stderr(raw: Raw) -> None:
    from kit.kernel import started_kernel

    config = {"servers": {"broken": raw(stderr="KeyError: 'MY_TOKEN' is not set\n", exit=1)}}
    with started_kernel() as kernel:
        ran = kernel.run(
            "from casual_mcp_nb import Session\n"
            "from casual_mcp_nb.providers.scripted import scripted_model\n"
            f"Session.from_config({config!r}).chat('Hello', model=scripted_model('never'))"
        )
    assert ran.status == "error"
    assert "KeyError: 'MY_TOKEN'" in ran.text()
    assert "broken" in ran.text()


@pytest.mark.fault(3)
async def test_a_silent_server_fails_at_its_limit_and_the_others_were_usable_long_before(
    opened: Opened, raw: Raw, mark: str
) -> None:
    silent = raw({"init_timeout": 3.0}, handshake="silent", ignore_eof=True)
    chat = McpToolChat.from_config({"servers": beside(raw, silent)})
    connecting = asyncio.create_task(chat.server_manager.connect())
    for name in ("left", "right"):
        result = await chat.server_manager.call(ToolSpec(name, "a"), {})
        assert result.content[0].text == "ok"
    assert chat.server_manager.statuses["broken"].state == "starting"
    await connecting
    assert (chat.server_manager.statuses["broken"].error or "").startswith("no answer in 3 s")
    assert len(marked(mark)) == 2
    await assert_the_others_work(chat)
    await chat.close()


@pytest.mark.fault(4)
async def test_a_banner_instead_of_an_answer_is_quoted(opened: Opened, raw: Raw, mark: str) -> None:
    banner = raw({"init_timeout": 2.0}, handshake="silent", banner="Welcome to <b>1.0</b>!\x1b[2J")
    chat = await opened(beside(raw, banner))
    error = chat.server_manager.statuses["broken"].error or ""
    assert re.search(r" 2 s\b.*stdout .*'Welcome to <b>1\.0</b>!'", error)
    assert "<b>1.0" not in chat.server_manager.statuses["broken"]._repr_html_()
    assert len(marked(mark)) == 2
    await assert_the_others_work(chat)


@pytest.mark.fault(5)
async def test_a_handshake_that_is_answered_with_an_error_fails_with_the_servers_message(
    opened: Opened, raw: Raw, mark: str
) -> None:
    chat = await opened(beside(raw, raw(handshake="error")))
    assert "licence" in (chat.server_manager.statuses["broken"].error or "")
    assert len(marked(mark)) == 2
    await assert_the_others_work(chat)


@pytest.mark.fault(6)
async def test_a_protocol_version_that_nobody_knows_is_named_beside_ours(
    opened: Opened, raw: Raw, mark: str
) -> None:
    chat = await opened(beside(raw, raw(version="1999-01-01")))
    error = chat.server_manager.statuses["broken"].error or ""
    assert "1999-01-01" in error
    assert "2025-11-25" in error or "2026-07-28" in error
    assert len(marked(mark)) == 2
    await assert_the_others_work(chat)


@pytest.mark.fault(7)
@pytest.mark.fault(8)
@pytest.mark.parametrize(
    ("listing", "reason"),
    [
        ("error", "the index is broken"),
        ("silent", "no answer in 1 s (if it needs longer, raise servers.broken.init_timeout)"),
    ],
    ids=["fails", "never answers"],
)
async def test_a_chat_starts_without_the_tools_of_a_server_whose_listing_fails_or_hangs(
    opened: Opened, raw: Raw, listing: str, reason: str
) -> None:
    chat = await opened(beside(raw, raw({"init_timeout": 1.0}, listing=listing)))
    status = chat.server_manager.statuses["broken"]
    assert (status.state, status.tools) == ("unlisted", 0)
    assert (status.error or "").endswith(f": {reason}")
    assert reason in status._repr_html_()
    await assert_the_others_work(chat)


@pytest.mark.fault(9)
async def test_when_all_servers_fail_one_error_lists_the_reasons_and_a_chat_still_works(
    opened: Opened, raw: Raw
) -> None:
    servers = {
        "gone": {"command": "/no/such/server"},
        "leaver": raw(stderr="out of licences\n", exit=1),
        "silent": raw({"init_timeout": 0.5}, handshake="silent"),
    }
    chat = await opened(servers)
    with pytest.raises(ConnectError) as caught:
        await ask(chat, "never")
    lines = str(caught.value).splitlines()
    gone, leaver, silent = (line for line in lines if line.startswith("- "))
    assert re.match(r"- gone: .*'/no/such/server'", gone)
    assert re.match(r"- leaver: .*\bexited\b", leaver)
    assert lines[lines.index(leaver) + 1] == "    out of licences"
    assert re.match(r"- silent: .* 0\.5 s\b", silent)
    chat.selection.servers.update(dict.fromkeys(servers, "off"))
    turn = await ask(chat, "Without tools, then.")
    assert (turn.status, turn.answer) == ("done", "Without tools, then.")


@pytest.mark.fault(10)
async def test_three_servers_that_are_ready_only_when_all_were_started_become_ready(
    opened: Opened, raw: Raw, tmp_path: Path
) -> None:
    server = raw({"init_timeout": 30.0}, meets=[str(tmp_path), 3], calls={"a": OK})
    chat = await opened(dict.fromkeys(("one", "two", "three"), server))
    assert [status.state for status in chat.server_manager.statuses.values()] == ["ready"] * 3


@pytest.mark.fault(11)
async def test_a_repaired_server_is_reconnected_by_name_and_its_tools_are_in_the_next_turn(
    opened: Opened, raw: Raw, mark: str, tmp_path: Path
) -> None:
    flag = tmp_path / "repaired"
    chat = await opened(beside(raw, raw(fails_until=str(flag), calls={"mended": OK})))
    before = await ask(chat, call("broken__mended"), "no such tool")
    assert before.tool_calls[0].status == "error"
    others = {process.pid for process in marked(mark)}
    flag.touch()
    await chat.server_manager.reconnect("broken")
    turn = await ask(chat, call("broken__mended"), "done", history=before.messages)
    assert turn.tool_calls[0].result == "ok"
    assert others < {process.pid for process in marked(mark)}
    assert_valid(turn.messages)


@pytest.mark.fault(12)
@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        pytest.param(None, "it cannot be reached", id="refused"),
        pytest.param(Reply(401), "HTTP 401: the credentials were not accepted", id="401"),
        pytest.param(Reply(403), "HTTP 403: access was refused", id="403"),
        pytest.param(Reply(404), "HTTP 404", id="404"),
        pytest.param(Reply(500, "s3cret-header"), "HTTP 500", id="500"),
        pytest.param(Reply(200, "<html>Welcome</html>"), "text/html", id="html"),
    ],
)
async def test_a_remote_that_refuses_is_failed_with_status_and_address_without_credentials(
    opened: Opened, raw: Raw, transport: str, reply: Reply | None, reason: str
) -> None:
    with ScriptedHttp(lambda request: reply or Reply()) as server:
        host = server.url.removeprefix("http://")
        if reply is None:
            server.stop()
        remote = {
            "url": f"http://me:hunter2@{host}/mcp?key=s3cret-query",
            "transport": transport,
            "headers": {"Authorization": "Bearer s3cret-header"},
        }
        chat = await opened(beside(raw, remote))
        status = chat.server_manager.statuses["broken"]
        assert status.state == "failed"
        assert reason in (status.error or "")
        assert host in status.address
        for text in (repr(status), status._repr_html_(), str(status)):
            assert not any(secret in text for secret in ("hunter2", "s3cret"))
        await assert_the_others_work(chat)


@pytest.mark.fault(13)
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_remote_that_stays_silent_fails_at_its_limit_and_the_others_work(
    opened: Opened, raw: Raw, transport: str
) -> None:
    with ScriptedHttp(lambda request: Reply(silent=True)) as server:
        chat = await opened(
            beside(raw, {"url": server.url, "transport": transport, "init_timeout": 1.5})
        )
        assert (chat.server_manager.statuses["broken"].error or "").startswith("no answer in 1.5 s")
        await assert_the_others_work(chat)


@pytest.mark.fault(14)
async def test_a_connect_that_is_cancelled_ends_at_once_and_a_second_one_works(
    raw: Raw, mark: str, tmp_path: Path
) -> None:
    # It is ready when it is started for the second time.
    slow = raw({"init_timeout": 600.0}, meets=[str(tmp_path), 2], calls={"a": OK})
    chat = McpToolChat.from_config({"servers": {"slow": slow, "quick": raw(calls={"a": OK})}})
    connecting = asyncio.create_task(chat.server_manager.connect())
    await asyncio.to_thread(
        wait_until, lambda: list(tmp_path.iterdir()), "the start of the slow server"
    )
    connecting.cancel()
    await asyncio.wait({connecting})
    assert connecting.cancelled()
    assert "meets" not in " ".join(process.command for process in marked(mark))
    await chat.server_manager.connect()
    turn = await ask(chat, calls(call("slow__a"), call("quick__a")), "done")
    assert [c.result for c in turn.tool_calls] == ["ok", "ok"]
    await chat.close()


ASKED = {
    "elicitation/create": {
        "message": "Your name?",
        "requestedSchema": {"type": "object", "properties": {}},
    },
    "sampling/createMessage": {"messages": [], "maxTokens": 5},
    "roots/list": {},
}


@pytest.mark.fault(16)
@pytest.mark.parametrize("method", ASKED)
async def test_a_request_without_a_handler_is_refused_and_the_turn_says_who_asked(
    opened: Opened, raw: Raw, tmp_path: Path, method: str
) -> None:
    record = tmp_path / "record"
    plan = {"ask": method, "ask_params": ASKED[method], "answer": "asked"}
    chat = await opened({"asker": raw(calls={"a": plan}, record=str(record))})
    turn = await ask(chat, call("asker__a"), "done")
    (hello,) = received(record, "initialize")
    assert hello["params"]["capabilities"].keys() == {"extensions"}
    assert '"code"' in turn.tool_calls[0].result
    assert [log.server for log in turn.server_logs] == ["asker"]
    for text in (turn.server_logs[0].text, turn._repr_html_()):
        assert method in text
        assert "refused" in text
