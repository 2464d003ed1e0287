"""The explorer's commands on servers and calls: add, remove, log, messages, wire, history, code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from kit.mcp_http import McpHttp
from kit.raw_server import raw_config, text_result

from casual_mcp_nb import Session
from casual_mcp_nb.bundled import BUNDLED
from casual_mcp_nb.errors import ServerError, UnknownNameError, UsageError
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb.widgets._rows import MAX_GROUPS, MAX_RECORDS, MAX_WIRE_TEXT
from casual_mcp_nb.widgets.selection import SelectionState

Do = Callable[..., Any]


@pytest.fixture
def state(session: Session) -> Iterator[SelectionState]:
    state = SelectionState(session)
    yield state
    state.close()


def test_a_server_is_added_and_removed_from_the_page(
    session: Session, state: SelectionState, do: Do
) -> None:
    assert state.snapshot()["bundled_names"] == {
        name: server.summary for name, server in BUNDLED.items()
    }
    assert do(state, "add_server", text="bundled:time", name="") == {
        "server": "time",
        "state": "ready",
    }
    shown = state.snapshot()
    assert shown["order"][-1] == "time"
    assert shown["servers"]["time"]["tools"] == len(shown["tools"]["time"]) > 0
    assert do(state, "add_server", text="time") == {"server": "time-2", "state": "ready"}
    assert (
        do(state, "add_server", text="no-such-command-anywhere --quick", name="lost")["state"]
        == "failed"
    )
    assert "no-such-command-anywhere" in state.snapshot()["servers"]["lost"]["error"]
    for name in ("time", "time-2", "lost"):
        assert do(state, "remove_server", server=name) is None
    shown = state.snapshot()
    assert shown["order"] == ["math", "units", "gone", "shop"]
    assert "time" not in shown["tools"]
    with pytest.raises(UnknownNameError):
        do(state, "remove_server", server="time")
    with pytest.raises(UsageError):
        do(state, "add_server", text="tiem")


def test_the_log_and_the_messages_of_a_server_are_told(
    session: Session, state: SelectionState, do: Do
) -> None:
    config = raw_config(
        config={"env": {"TOKEN": "a-secret-of-it"}},
        calls={"say": {"stderr": "a-secret-of-it\nsaid\n", "result": text_result("ok")}},
    )
    session.servers.add("raw", config)
    session.tools.call("raw:say")
    do(state, "reconnect", server="raw")
    log = do(state, "server_log", server="raw")
    assert log["dropped"] == 0
    assert [(line["level"], line["text"]) for line in log["lines"]] == [
        ("stderr", "**********"),
        ("stderr", "said"),
    ]
    assert log["lines"][0]["at"] <= log["lines"][1]["at"]
    messages = do(state, "messages", server="raw", tool="raw__say")
    assert [(each["direction"], each["method"], each["tool"]) for each in messages] == [
        ("sent", "tools/call", "say"),
        ("received", "tools/call", "say"),
    ]
    assert json.loads(messages[1]["text"])["result"]["content"][0]["text"] == "ok"
    assert json.dumps([log, messages])
    for command in ("server_log", "messages"):
        with pytest.raises(UnknownNameError):
            do(state, command, server="rwa")


def test_the_wire_of_a_server_is_listed_by_group(
    session: Session, state: SelectionState, do: Do
) -> None:
    evil = "<b>\x1b[31m\u202e"
    answers = {
        "say": {"result": text_result(f"a-secret-of-it {evil}")},
        "fail": {"error": {"code": -32000, "message": evil}},
    }
    session.servers.add(
        "raw", raw_config(config={"env": {"TOKEN": "a-secret-of-it"}}, calls=answers)
    )
    session.tools.call("raw:say", password="hunter2-hunter2")
    with pytest.raises(ServerError):
        session.tools.call("raw:fail")
    wire = do(state, "wire", server="raw")
    failed, said = wire["groups"][:2]
    assert [(each["direction"], each["kind"], each["method"]) for each in said["messages"]] == [
        ("sent", "request", "tools/call"),
        ("received", "response", "tools/call"),
    ]
    assert (said["tool"], said["rounds"], said["ended"], said["hidden"]) == ("say", 1, "ok", 0)
    assert (failed["tool"], failed["ended"], failed["messages"][1]["kind"]) == (
        "fail",
        "error",
        "error",
    )
    assert json.loads(said["messages"][0]["text"])["params"]["arguments"] == {
        "password": "**********"
    }
    assert all(message["size"] and message["status"] == 0 for message in said["messages"])
    sent = json.dumps(wire, ensure_ascii=False)
    assert not [part for part in ("a-secret-of-it", "hunter2", "\x1b", "\u202e") if part in sent]
    assert [
        group["tool"]
        for group in do(state, "wire", server="raw", method="tools/call", text="secret")["groups"]
    ] == []
    assert [
        group["tool"] for group in do(state, "wire", server="raw", text="PASSWORD")["groups"]
    ] == ["say"]
    assert {
        group["method"] for group in do(state, "wire", server="raw", method="*list")["groups"]
    } == {"tools/list"}
    with pytest.raises(UnknownNameError):
        do(state, "wire", server="rwa")


def test_the_wire_is_bounded_in_groups_messages_and_text(
    session: Session, state: SelectionState, do: Do
) -> None:
    server: FastMCP[Any] = FastMCP("noisy")

    @server.tool
    async def count(ctx: Context) -> str:
        for number in range(MAX_RECORDS):
            await ctx.report_progress(number, MAX_RECORDS)
        return "done"

    session.servers.add("noisy", server)
    session.tools.call("noisy:count")
    newest = do(state, "wire", server="noisy")["groups"][0]
    assert (len(newest["messages"]), newest["hidden"]) == (MAX_RECORDS, 2)
    session.servers.add("raw", raw_config(calls={"say": {"result": text_result("y" * 15_000)}}))
    for _ in range(MAX_GROUPS + 5):
        session.tools.call("raw:say")
    wire = do(state, "wire", server="raw")
    assert len(wire["groups"]) == MAX_GROUPS
    assert wire["hidden"] > 5
    assert "text" in wire["groups"][0]["messages"][1]
    assert "text" not in wire["groups"][-1]["messages"][1]
    assert len(json.dumps(wire)) < 2 * MAX_WIRE_TEXT


def test_the_wire_to_an_address_has_both_halves_of_http(
    session: Session, state: SelectionState, do: Do
) -> None:
    with McpHttp() as server:
        session.servers.add(
            "remote", server.config(headers={"Authorization": "Bearer t0ken-of-ada-1815"})
        )
        session.tools.call("remote:a")
        newest = do(state, "wire", server="remote", method="tools/call")["groups"][0]
        session.servers.remove("remote")
    request, response = newest["messages"]
    assert request["status"] == response["status"] == 200
    assert request["request"].startswith("POST http://127.0.0.1")
    assert "Authorization: Bearer **********" in request["request"]
    assert response["response"].startswith("HTTP 200")
    assert ("response" in request, "request" in response) == (False, False)
    assert "t0ken" not in json.dumps(newest)


def test_calls_are_listed_by_tool_and_shown_again(
    session: Session, state: SelectionState, do: Do
) -> None:
    made = do(state, "try_tool", name="math__add", filled={"a": "1", "b": "2"})
    session.tools.call("shop:stock", kind="tea")
    assert state.snapshot()["calls"] == {"math__add": 1, "shop__stock": 1}
    (row,) = do(state, "calls", name="math__add")
    assert (row["id"], row["tool"], row["status"]) == (made["id"], "math__add", "ok")
    assert json.loads(row["arguments"]) == {"a": 1, "b": 2}
    assert [each["tool"] for each in do(state, "calls")] == ["shop__stock", "math__add"]
    assert do(state, "call_html", id=row["id"]) == made["html"]
    with pytest.raises(UnknownNameError):
        do(state, "call_html", id="99")


def test_the_values_of_a_form_are_copied_as_python_that_makes_the_same_call(
    session: Session, state: SelectionState, do: Do
) -> None:
    code = do(
        state,
        "code_of",
        name="shop__stock",
        filled={"kind": '"tea"', "most": "3", "filters": '{"old": 1}'},
    )
    assert code == 'session.tools.call("shop:stock", kind="tea", most=3, filters={"old": 1})'
    call = eval(code, {"session": session})
    assert call.structured == {"kind": "tea", "most": 3, "filters": {"old": 1}}
    with pytest.raises(UsageError):
        do(state, "code_of", name="math__add", filled={"a": "one"})


def test_unused_tools_are_found_and_left_out(
    session: Session, state: SelectionState, do: Do
) -> None:
    assert do(state, "unused") == {}
    with pytest.raises(UsageError):
        do(state, "leave_unused", mode="off")
    answers = (call("units__list_units"), "Done.")
    session.chat("Which units?", model=scripted_model(*answers), echo="none")
    found = do(state, "unused")
    loaded = [tool.wire_name for tool in state.view.loaded]
    assert f"{len(loaded) - 1} tools" == found["tools"]
    assert found["tools"] in found["text"]
    assert "<table" in found["deferred"]
    assert not session.selection.tools_off
    assert do(state, "leave_unused", mode="off") is None
    assert [tool.wire_name for tool in state.view.loaded] == ["units__list_units"]
    assert do(state, "unused") == {}


def test_the_budget_has_whole_turns(session: Session, state: SelectionState, do: Do) -> None:
    do(state, "set_mode", server="shop", mode="deferred")
    budget = state.snapshot()["budget"]
    for kind in ("now", "before", "undeferred"):
        assert budget[kind]["first_request"] >= budget[kind]["total"]
        assert budget[kind]["first_request"] < budget[kind]["turn"] < budget[kind]["ten_turns"]
    assert budget["now"]["turn"] == session.tools.budget.now.turn
