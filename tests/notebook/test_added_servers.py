"""Servers that a person adds to a session and removes again, direct calls to their tools, and the
record of both.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.asked import asked
from kit.history import assert_valid
from kit.raw_server import raw_config, text_result
from kit.shops import shop
from kit.waiting import wait_until

from casual_mcp_nb import Session
from casual_mcp_nb.base.config import ToolSetConfig
from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.direct_calls import MAX_CALLS, MAX_SIZE, RecordedCalls
from casual_mcp_nb.conversation.step import ToolCall
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import ConfigError, ToolCallError, UnknownNameError, UsageError
from casual_mcp_nb.magics.commands import COMMANDS
from casual_mcp_nb.notebook.questions import ApprovalQuestion
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

CONFIG: dict[str, Any] = {
    "servers": {"math": {"bundled": "math", "transport": "in-process"}},
    "tool_sets": {"numbers": {"servers": {"math": ["add"]}}, "both": {"servers": {"math": True}}},
}
GREETING = """
from fastmcp import FastMCP

server = FastMCP("greeting")


@server.tool
def greet() -> str:
    return "hello"


server.run()
"""
SECRET = "s3cr3t-of-the-server"


@pytest.fixture
def session() -> Iterator[Session]:
    with Session.from_config(CONFIG, in_process={"shop": shop()}) as session:
        yield session


@pytest.mark.slow
def test_a_server_is_added_from_a_text_an_entry_or_an_object(
    session: Session, tmp_path: Path
) -> None:
    script = tmp_path / "greeting_server.py"
    script.write_text(GREETING)
    assert session.servers.add(None, f"{sys.executable} {script}").name == "greeting"
    assert session.servers.add("clock", "time").state == "ready"
    assert session.servers.add("own", FastMCP("own")).state == "ready"
    entry = session.servers.add(
        "later", {"bundled": "text", "transport": "in-process", "defer_loading": True}
    )
    assert entry.tools > 0
    assert list(session.servers) == ["math", "shop", "greeting", "clock", "own", "later"]
    assert (session.servers.modes["clock"], session.selection.servers["later"]) == (
        "loaded",
        "deferred",
    )
    assert session.tools.call("greeting:greet").result == "hello"
    with pytest.raises(UsageError, match="already"):
        session.servers.add("clock", "time")
    with pytest.raises(ConfigError):
        session.servers.add("wrong", {"command": "npx", "url": "https://example.com"})
    assert "wrong" not in session.servers


def test_one_that_cannot_start_says_why_and_can_be_tried_again(
    session: Session, tmp_path: Path
) -> None:
    missing = tmp_path / "later"
    config = raw_config(
        fails_until=str(missing), config={"env": {"TOKEN": SECRET}}, stderr=f"token {SECRET}\n"
    )
    status = session.servers.add("weak", config)
    assert status.state == "failed"
    assert SECRET not in str(status)
    missing.touch()
    assert session.servers.reconnect("weak").state == "ready"
    assert SECRET not in str(session.servers.log("weak"))


async def test_both_have_twins_to_await(session: Session) -> None:
    assert (await session.servers.add_async("clock", "time")).state == "ready"
    await session.servers.remove_async("clock")
    assert "clock" not in session.servers


def test_what_named_a_removed_server_goes_with_it(session: Session) -> None:
    session.selection.servers["math"] = "deferred"
    session.selection.tools_off = {"math:add", "math__subtract", "shop:burn"}  # type: ignore[assignment]
    session.selection.always_loaded = ("math", "shop")
    session.selection.tool_set = ToolSetConfig(servers={"math": True, "shop": True})
    session.servers.remove("math")
    assert list(session.servers) == ["shop"]
    assert {tool.server for tool in session.tools} == {"shop"}
    assert dict(session.selection.servers) == {"shop": "loaded"}
    assert list(session.selection.tools_off) == ["shop:burn"]
    assert session.selection.always_loaded == ("shop",)
    assert session.selection.tool_set == ToolSetConfig(servers={"shop": True})
    assert session.status.notes == ()
    with pytest.raises(UnknownNameError):
        session.servers.remove("math")
    with pytest.raises(UnknownNameError):
        session.tools.call("math:add", a=1, b=2)


def test_a_toolset_in_use_that_named_it_is_used_without_it(session: Session) -> None:
    session.selection.tool_set = "both"
    session.servers.remove("math")
    assert session.selection.tool_set == ToolSetConfig()
    turn = session.chat("Hello", model=scripted_model("Hi."), echo="none")
    assert turn.status == "done"
    assert "both" in session.tools.sets


def test_a_turn_that_runs_goes_on_without_the_removed_server(session: Session) -> None:
    session.servers.add("slow", raw_config(calls={"wait": {"stderr": "called\n"}}))
    future = session.submit(
        "Wait", model=scripted_model(call("slow__wait"), call("slow__wait"), "It is gone.")
    )
    wait_until(
        lambda: "called" in [line.text for line in session.servers.log("slow")], "the call arrived"
    )
    session.servers.remove("slow")
    turn = future.result(30)
    assert turn.status == "done"
    assert [made.status for made in turn.tool_calls] == ["error", "error"]
    assert "removed" in turn.tool_calls[0].result
    assert_valid(session.messages)
    assert session.chat("And now?", model=scripted_model("Nothing."), echo="none").status == "done"


def test_a_removed_server_leaves_no_approval_to_one_of_its_name(session: Session) -> None:
    bank = raw_config(calls={"pay": {"result": text_result("paid")}}, config={"approval": "always"})

    def pay() -> Future[Turn]:
        return session.submit("Pay", model=scripted_model(call("bank__pay"), "Done."))

    session.servers.add("bank", bank)
    first = pay()
    asked(session, ApprovalQuestion).approve(for_conversation=True)
    assert first.result(30).status == pay().result(30).status == "done"
    session.servers.remove("bank")
    session.servers.add("bank", bank)
    again = pay()
    asked(session, ApprovalQuestion).deny()
    assert again.result(30).tool_calls[0].status == "denied"


def test_a_question_of_a_call_that_waits_ends_with_its_server(session: Session) -> None:
    session.servers.add("bank", raw_config(calls={"pay": {}}, config={"approval": "always"}))
    future = session.submit(
        "Pay", model=scripted_model(calls(call("bank__pay"), call("math__add", a=1, b=2)), "Done.")
    )
    question = asked(session, ApprovalQuestion)
    session.servers.remove("bank")
    question.approve()
    turn = future.result(30)
    assert {made.tool.server: made.status for made in turn.tool_calls} == {
        "bank": "error",
        "math": "ok",
    }


def test_calls_by_hand_are_recorded_the_newest_first(session: Session) -> None:
    session.tools.call("math:add", a=1, b=2)
    session.tools.call("shop:burn", reason="cold")
    session.servers.add("weak", raw_config(calls={"die": {"die": True}}))
    with pytest.raises(ToolCallError):
        session.tools.call("weak:die")
    made = session.tools.calls
    assert [(each.call.tool, each.call.status) for each in made] == [
        (ToolName("weak", "die"), "error"),
        (ToolName("shop", "burn"), "error"),
        (ToolName("math", "add"), "ok"),
    ]
    assert made[2].call.result == "3"
    assert made[2].at <= made[0].at
    assert "math:add" in str(made)
    with pytest.raises(UnknownNameError):
        session.tools.call("math:ad")
    assert len(session.tools.calls) == 3


def test_the_record_of_calls_is_bounded_in_number_and_size() -> None:
    recorded = RecordedCalls()
    tool = ToolName("math", "add")
    for number in range(MAX_CALLS + 5):
        recorded.add(float(number), ToolCall("", "math__add", tool, {}, "ok", "3"))
    assert [made.id for made in recorded.list()][:: MAX_CALLS - 1] == [str(MAX_CALLS + 5), "6"]
    large = ContentPart("image", data=bytes(MAX_SIZE // 2))
    for _ in range(3):
        recorded.add(0.0, ToolCall("", "math__add", tool, {}, "ok", original=ToolResult((large,))))
    assert len(recorded.list()) == 2
    assert recorded.by_id(str(MAX_CALLS + 8)).call.content == (large,)
    with pytest.raises(UnknownNameError):
        recorded.by_id("1")


def test_messages_are_told_by_server_and_tool(session: Session) -> None:
    session.tools.call("math:add", a=1, b=2)
    messages = session.servers.messages("math", "add")
    assert [(message.direction, message.method, message.tool) for message in messages] == [
        ("sent", "tools/call", "add"),
        ("received", "tools/call", "add"),
    ]
    assert "tools/list" in {message.method for message in session.servers.messages("math")}
    assert '"name": "add"' in str(messages)
    with pytest.raises(UnknownNameError):
        session.servers.messages("maths")


@pytest.mark.parametrize(
    "line",
    ["add time", "add --name clock time", "calls", "budget", "log math", "messages math add"],
)
def test_each_has_a_command(session: Session, line: str) -> None:
    name, _, rest = line.partition(" ")
    run = COMMANDS[name].run
    assert run is not None
    assert str(run(session, rest))


def test_a_server_is_removed_by_a_command(session: Session) -> None:
    run = COMMANDS["remove"].run
    assert run is not None
    assert "math" in str(run(session, "math"))
    assert "math" not in session.servers


def test_a_text_without_a_meaning_is_refused(session: Session) -> None:
    with pytest.raises(UsageError, match="time"):
        session.servers.add("clock", "tiem")
    assert "clock" not in session.servers


def test_a_failed_server_that_is_added_again_is_tried_again(tmp_path: Path) -> None:
    script = tmp_path / "late_server.py"
    script.write_text("raise SystemExit('not yet')")
    with Session({}, quiet=True, store=None) as session:
        assert session.servers.add(None, f"{sys.executable} {script}").state == "failed"
        assert "not yet" in str(session.status).split("End of stderr")[0]
        script.write_text("from fastmcp import FastMCP\nFastMCP('late').run(show_banner=False)")
        status = session.servers.add(None, f"{sys.executable} {script}")
        assert status.state == "ready"
        assert list(session.servers) == [status.name]
