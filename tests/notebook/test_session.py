"""Session, as a script uses it: blocking and awaited, with in-process and bundled servers."""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from fastmcp import FastMCP
from kit.history import assert_valid
from kit.raw_server import raw_config
from kit.setups import MATH, OFFLINE

from casual_mcp_nb import Session
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.step import text_of
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.errors import (
    ClosedError,
    ConfigError,
    ProviderError,
    UnknownNameError,
    UsageError,
)
from casual_mcp_nb.experiments.cases import Case
from casual_mcp_nb.providers.scripted import call, scripted_model

CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {
        "math": MATH,
        "time": {"bundled": "time", "transport": "in-process", "defer_loading": True},
    },
    "tool_sets": {"numbers": {"description": "Numbers only", "servers": {"math": True}}},
    "tool_discovery": {"enabled": True},
}


@pytest.fixture
def session() -> Iterator[Session]:
    with Session.from_config(CONFIG) as session:
        yield session


def test_a_question_searches_loads_and_calls_and_a_follow_up_needs_no_search(
    session: Session,
) -> None:
    first = session.chat("What time is it in Tokyo when it is 14:30 in Oslo?")
    assert [c.name for c in first.tool_calls] == ["search_tools", "time__convert_time"]
    assert "22:30" in first.answer
    second = session.chat("And when it is 9:00 in New York?")
    assert [c.name for c in second.tool_calls] == ["time__convert_time"]
    assert session.turns == [first, second]
    assert session.stats.tool_calls.total == 3


async def test_the_awaited_twin_does_the_same(session: Session) -> None:
    turn = await session.chat_async("What is 17 * 23 + 4?")
    assert "395" in turn.answer
    assert (await session.search_async("convert a time"))[0].tool.name == "convert_time"
    assert (await session.tools.call_async("math__add", a=1, b=2)).structured == {"result": 3}


async def test_blocking_methods_work_inside_a_running_loop(session: Session) -> None:
    assert session.tools.call("add", a=1, b=2).result == "3"


def test_a_session_that_is_not_connected_says_how_to_connect_it() -> None:
    session = Session.quick(servers=["time"])
    try:
        assert "session.connect()" in str(session.status)
        session.connect()
        assert "session.connect()" not in str(session.status)
    finally:
        session.close()


def test_the_selection_holds_from_the_next_turn_on(session: Session) -> None:
    assert session.tools.manifest.tools == len(session.tools.now.catalog.by_server["time"])
    session.selection.servers["time"] = "loaded"
    assert str(session.tools.manifest) == ""
    session.selection.tool_set = "numbers"
    model = scripted_model("ok")
    session.chat("x", model=model)
    assert {tool["name"].split("__")[0] for tool in model.client.requests[0].tools} == {"math"}


def test_a_list_of_turns_says_what_was_asked(session: Session) -> None:
    questions = ["Where is Oslo?", "And Tokyo\x1b[2J?", "x" * 500]
    for question in questions:
        session.chat(question, model=scripted_model("Far away."), echo="none")
    listed = repr(session.turns[-3:])
    assert "'Where is Oslo?'" in listed
    assert "And Tokyo" in listed
    assert "\x1b" not in listed
    assert len(listed) < 500
    assert repr(Turn(Trace([])))


def test_the_manifest_is_exactly_what_the_model_reads(session: Session) -> None:
    model = scripted_model("ok")
    session.chat("x", model=model)
    search = next(tool for tool in model.client.requests[0].tools if tool["name"] == "search_tools")
    assert f"<manifest>\n{session.tools.manifest}\n</manifest>" in search["description"]


def test_discovery_can_be_turned_off_for_one_turn(session: Session) -> None:
    model = scripted_model("ok", "ok")
    session.chat("x", model=model, discovery=False)
    session.chat("x", model=model)
    offered = [[tool["name"] for tool in request.tools] for request in model.client.requests]
    assert "search_tools" not in offered[0]
    assert "search_tools" in offered[1]


def test_a_search_explains_its_hits_and_what_it_did_not_find(session: Session) -> None:
    results = session.search("convert a time zone", k=2)
    assert results[0].tool.wire_name == "time__convert_time"
    assert results[0].explain().score == pytest.approx(results[0].score)
    assert (
        results.why_not("time__current_time").rank is None
        or results.why_not("time__current_time").rank > 1
    )
    loaded = results.why_not("math__add")
    assert loaded.rank is None
    assert loaded.skipped
    assert loaded.verdict == loaded.skipped
    assert session.search("convert a time zone", all_tools=True).why_not("math__add").skipped == ""


def test_cases_are_evaluated_on_the_tools_that_the_selection_lets_through(session: Session) -> None:
    case = Case("convert a time between zones", (frozenset([ToolName("time", "convert_time")]),))
    assert session.experiments.evaluate([case], progress=False)["search"].recall_any == 1
    nothing = {"nothing": lambda tools: lambda query, count: []}
    assert session.experiments.evaluate([case], nothing, k=1, progress=False)["nothing"].recall == 0
    session.selection.servers["time"] = "off"
    assert not session.experiments.evaluate([case], progress=False)["search"].misses[0].known


async def test_a_lint_looks_at_the_tools_that_the_selection_lets_through(session: Session) -> None:
    found = await session.experiments.lint_async()
    assert found.tools == len(session.tools)
    session.selection.servers["time"] = "off"
    assert (await session.experiments.lint_async()).tools < found.tools


def test_names_that_do_not_exist_are_errors_and_nothing_is_sent(session: Session) -> None:
    model = scripted_model("never")
    with pytest.raises(UnknownNameError, match="numbers"):
        session.chat("x", model=model, tool_set="number")
    with pytest.raises(UnknownNameError, match="planner"):
        session.chat("x", model="plannner")
    with pytest.raises(UnknownNameError, match="time"):
        session.selection.servers["tme"] = "off"
    assert model.client.requests == []
    assert session.turns == []


def test_a_new_conversation_has_discovered_nothing_and_keeps_the_selection(
    session: Session,
) -> None:
    session.chat("What time is it in Tokyo when it is 14:30 in Oslo?")
    session.selection.max_search_results = 2
    session.conversations.new()
    turn = session.chat("What time is it in Tokyo when it is 14:30 in Oslo?")
    assert turn.tool_calls[0].name == "search_tools"
    assert session.selection.max_search_results == 2


def test_a_failed_turn_is_kept_and_the_conversation_goes_on(session: Session) -> None:
    failed = session.chat(
        "x", model=scripted_model(call("math__add", a=1, b=2), RuntimeError("model down"))
    )
    assert failed.status == "failed"
    assert "model down" in (failed.error or "")
    with pytest.raises(ProviderError):
        failed.raise_for_status()
    assert session.chat("go on", model=scripted_model("fine")).answer == "fine"
    assert [message.role for message in session.messages] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]


def test_messages_can_be_given_instead_of_a_text(session: Session) -> None:
    model = scripted_model("ok")
    session.chat([UserMessage(content="one"), UserMessage(content="two")], model=model)
    assert [m.content for m in model.client.requests[0].messages if m.role == "user"] == [
        "one",
        "two",
    ]


def test_messages_can_be_mappings_as_providers_take_them(session: Session) -> None:
    called = {"id": "c1", "type": "function", "function": {"name": "math__add", "arguments": "{}"}}
    given = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "name": "math__add", "content": "2"},
    ]
    session.conversations.add(given)
    model = scripted_model("ok")
    session.chat([{"role": "user", "content": [{"type": "text", "text": "two"}]}], model=model)
    read = model.client.requests[0].messages
    assert [message.role for message in read] == ["system", "user", "assistant", "tool", "user"]
    assert text_of(read[-1].content) == "two"


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (None, "cannot be None"),
        (b"hello", "cannot be b'hello'"),
        ({"role": "user", "content": "one"}, "cannot be {'role'"),
        (["one"], "Message 1 cannot be 'one'"),
        (
            [{"role": "user", "content": "one"}, {"role": "developer", "content": "two"}],
            "Message 2 is not valid",
        ),
        ([{"content": "one"}], "role"),
        ([{"role": "tool", "content": "one"}], "name"),
    ],
)
def test_what_is_no_message_is_refused_before_anything_is_sent(
    session: Session, prompt: Any, words: str
) -> None:
    model = scripted_model("ok")
    for ask in (session.chat, session.plan, session.conversations.add):
        with pytest.raises(UsageError, match=re.escape(words)):
            ask(prompt, **({} if ask == session.conversations.add else {"model": model}))
    assert not model.client.requests
    assert not session.messages


def test_a_server_of_this_process_joins_those_of_the_config() -> None:
    desk: FastMCP[Any] = FastMCP("desk")

    @desk.tool
    def note(text: str) -> str:
        """Write a note."""
        return f"noted {text}"

    with Session.from_config({}, in_process={"desk": desk}) as session:
        assert session.tools.call("desk:note", text="this").result == "noted this"
        assert session.servers["desk"].state == "ready"


@pytest.mark.fault(75)
def test_closing_twice_is_harmless_and_use_afterwards_is_a_clear_error(session: Session) -> None:
    turn = session.chat("What is 1 + 1?")
    session.close()
    session.close()
    with pytest.raises(ClosedError, match="closed"):
        session.chat("x")
    with pytest.raises(ClosedError):
        session.connect()
    assert session.turns == [turn]


class ClosingModels:
    """Says when the chat has closed its models, which is the last thing that it does."""

    def __init__(self, closed: threading.Event) -> None:
        self._closed = closed

    async def close(self) -> None:
        self._closed.set()


def test_a_session_that_is_forgotten_closes_its_servers() -> None:
    session = Session.from_config(CONFIG)
    session.connect()
    closed = threading.Event()
    chat = session.parts.chat
    assert {status.state for status in chat.server_manager.statuses.values()} == {"ready"}
    chat.models = ClosingModels(closed)  # type: ignore[assignment]
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None
    assert closed.wait(30)
    assert {status.state for status in chat.server_manager.statuses.values()} == {"closed"}


def test_a_wrong_config_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match="servers"):
        Session.from_config({"servers": {"x": {"comand": "python"}}})


@pytest.mark.fault(69)
async def test_a_turn_that_takes_long_to_stop_is_waited_for_by_the_next_one(
    session: Session,
) -> None:
    started, over = threading.Event(), threading.Event()

    async def long_goodbye(messages: Any, tools: Any) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.8)
            over.set()
        return "never"

    task = asyncio.create_task(session.chat_async("go", model=scripted_model(long_goodbye)))
    await asyncio.to_thread(started.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not over.is_set()
    assert [turn.status for turn in session.turns] == ["running"]
    assert (await session.chat_async("go on", model=scripted_model("fine"))).answer == "fine"
    assert over.is_set()
    assert [turn.status for turn in session.turns] == ["stopped", "done"]
    assert_valid(session.messages)


async def test_a_turn_that_runs_stands_in_the_conversation_and_can_be_read(
    session: Session,
) -> None:
    seen: list[Any] = []

    async def look(messages: Any, tools: Any) -> str:
        seen.extend(
            [
                len(session.turns),
                session.turns[-1].running,
                [message.role for message in session.messages],
            ]
        )
        return "fine"

    await session.chat_async("go", model=scripted_model(look))
    assert seen == [1, True, ["user"]]


def test_an_error_of_a_closed_session_says_why_and_what_to_do(session: Session) -> None:
    session.close()
    with pytest.raises(ClosedError) as caught:
        session.chat("x")
    assert "Session.demo()" in caught.value.hint
    assert "Session.from_config" in caught.value.hint
    assert session.status.closed
    text = session.status._repr_mimebundle_()["text/plain"]
    assert "closed" in text.splitlines()[0]
    assert "≈ 0 tokens" not in text


def test_a_pinned_tool_that_changed_is_offered_again_when_the_person_accepts_it() -> None:
    def pay(description: str) -> dict[str, Any]:
        return {"name": "pay", "description": description, "inputSchema": {"type": "object"}}

    turn_it = {"name": "turn", "inputSchema": {"type": "object"}}
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    done = {"content": [{"type": "text", "text": "ok"}]}
    shop = raw_config(
        config={"pin_tools": True},
        tools=[pay("Pay."), turn_it],
        calls={
            "turn": {
                "notify": changed,
                "plan": {"tools": [pay("Pay twice."), turn_it]},
                "result": done,
            }
        },
    )
    with Session.from_config({"servers": {"shop": shop}}) as session:
        model = scripted_model(call("shop__turn"), "turned", "blocked", "offered")
        for prompt in ("turn it", "now"):
            session.chat(prompt, model=model)
        (change,) = session.tools.changed.values()
        assert (change.before.description, change.after.description) == ("Pay.", "Pay twice.")
        session.consent.accept("shop:pay")
        session.chat("and now", model=model)
    offered = [{tool["name"] for tool in request.tools} for request in model.client.requests]
    assert "shop__pay" not in offered[2]
    assert "shop__pay" in offered[3]


def test_the_help_of_a_session_begins_with_an_example_that_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = inspect.getdoc(Session) or ""
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert text.index("```python") < 200
    assert not re.search(r"\b(?:starter|resource_service|turn_service|engine):", text)
    exec(code, {"Session": Session})
    assert "395" in capsys.readouterr().out


def test_the_demo_has_a_resource_and_a_prompt() -> None:
    with Session.demo() as session:
        session.connect()
        assert [(each.server, each.uri) for each in session.resources.list()] == [
            ("sqlite", "sqlite://schema")
        ]
        assert "CREATE TABLE customers" in str(session.resources.read("sqlite://schema"))
        assert [(each.server, each.name) for each in session.prompts.list()] == [
            ("sqlite", "explore")
        ]
        assert "orders" in str(session.prompts.get("sqlite:explore", table="orders"))
