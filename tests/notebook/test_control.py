"""Steering a session from outside of a cell: start, stop, go back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import casual_llm  # noqa: F401 - its import takes longer than the bounds of these tests
import pytest
from fastmcp import FastMCP
from kit.history import assert_valid
from kit.waiting import wait_until

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.scripted import call, scripted_model


@pytest.fixture
def hanging() -> threading.Event:
    return threading.Event()


@pytest.fixture
def session(hanging: threading.Event) -> Iterator[Session]:
    box: FastMCP[Any] = FastMCP("box")

    @box.tool
    async def hang() -> str:
        hanging.set()
        await asyncio.Event().wait()
        return "never"

    @box.tool
    def weigh(thing: str) -> str:
        return f"{thing} weighs 3 kg"

    config = {
        "servers": {"time": {"bundled": "time", "transport": "in-process", "defer_loading": True}},
        "tool_discovery": {"enabled": True},
    }
    with Session.from_config(config, in_process={"box": box}) as session:
        yield session


def started(session: Session, hanging: threading.Event) -> Future[Turn]:
    future = session.submit("x", model=scripted_model(call("box__hang"), "never"))
    assert hanging.wait(10)
    return future


def test_a_submitted_turn_runs_without_anybody_waiting_and_becomes_the_turn(
    session: Session,
) -> None:
    future = session.submit("x", model=scripted_model(call("box__weigh", thing="hat"), "3 kg"))
    turn = future.result(10)
    assert turn.answer == "3 kg"
    assert session.turns == [turn]


def test_stop_ends_a_submitted_turn_and_keeps_what_it_has(
    session: Session, hanging: threading.Event
) -> None:
    future = started(session, hanging)
    assert session.parts.runner.busy
    session.stop()
    turn = future.result(30)
    assert (turn.status, turn.tool_calls[0].status) == ("stopped", "stopped")
    assert session.turns == [turn]
    assert not session.parts.runner.busy
    assert_valid(session.messages)
    assert session.chat("y", model=scripted_model("fine")).answer == "fine"


def test_stop_lets_a_blocked_chat_return_its_turn(
    session: Session, hanging: threading.Event
) -> None:
    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(session.chat, "x", model=scripted_model(call("box__hang"), "never"))
        assert hanging.wait(10)
        session.stop()
        assert blocked.result(30).status == "stopped"


async def test_stop_can_be_awaited_on_the_loop_that_awaits_the_turn(
    session: Session, hanging: threading.Event
) -> None:
    await session.stop_async()
    task = asyncio.create_task(
        session.chat_async("x", model=scripted_model(call("box__hang"), "never"))
    )
    assert await asyncio.to_thread(hanging.wait, 10)
    await session.stop_async()
    assert not session.parts.runner.busy
    assert session.turns[-1].status == "stopped"
    assert (await task).status == "stopped"


async def test_stop_lets_an_awaited_chat_return_its_turn(
    session: Session, hanging: threading.Event
) -> None:
    task = asyncio.create_task(
        session.chat_async("x", model=scripted_model(call("box__hang"), "never"))
    )
    assert await asyncio.to_thread(hanging.wait, 10)
    await asyncio.to_thread(session.stop)
    assert (await asyncio.wait_for(task, 30)).status == "stopped"


def test_stop_is_harmless_when_nothing_runs_and_on_the_engine_thread(
    session: Session, hanging: threading.Event
) -> None:
    session.stop()

    async def stop() -> None:
        session.stop()

    future = started(session, hanging)
    session.parts.engine.run(stop())
    assert future.result(30).status == "stopped"


def test_a_second_turn_is_refused_while_one_runs_and_so_is_going_back(
    session: Session, hanging: threading.Event
) -> None:
    session.chat("first", model=scripted_model("ok"))
    started(session, hanging)
    with pytest.raises(UsageError, match="still running"):
        session.submit("y", model=scripted_model("ok")).result(30)
    with pytest.raises(UsageError, match="still running"):
        session.undo()
    with pytest.raises(UsageError, match="still running"):
        session.rerun(model=scripted_model("ok"))
    assert len(session.turns) == 2


def test_undo_takes_back_the_last_turn_and_what_it_discovered(session: Session) -> None:
    first = session.chat("x", model=scripted_model("hello"))
    session.chat(
        "y", model=scripted_model(call("search_tools", tool_names=["time__convert_time"]), "loaded")
    )
    model = scripted_model("ok")
    session.chat("z", model=model)
    assert "time__convert_time" in {tool["name"] for tool in model.client.requests[0].tools}
    session.undo()
    undone = session.undo()
    assert undone is not None
    assert undone.prompt == "y"
    assert session.turns == [first]
    model = scripted_model("ok")
    session.chat("z", model=model)
    assert "time__convert_time" not in {tool["name"] for tool in model.client.requests[0].tools}
    assert [m.content for m in model.client.requests[0].messages if m.role != "system"] == [
        "x",
        "hello",
        "z",
    ]


def test_undo_of_nothing_is_nothing(session: Session) -> None:
    assert session.undo() is None


def test_rerun_asks_the_same_again_in_the_place_of_the_turn_and_those_after_it(
    session: Session,
) -> None:
    first = session.chat("one", model=scripted_model("1"))
    session.chat("two", model=scripted_model("2"))
    session.chat("three", model=scripted_model("3"))
    model = scripted_model("again")
    turn = session.rerun(1, model=model)
    assert (turn.prompt, turn.answer) == ("two", "again")
    assert session.turns == [first, turn]
    assert [m.content for m in model.client.requests[0].messages if m.role != "system"] == [
        "one",
        "1",
        "two",
    ]


def test_rerun_takes_another_text_and_the_last_turn_unless_told_otherwise(session: Session) -> None:
    session.chat("one", model=scripted_model("1"))
    turn = session.rerun(prompt="another", model=scripted_model("2"))
    assert [t.prompt for t in session.turns] == ["another"]
    assert turn.answer == "2"


def test_a_rerun_with_another_text_keeps_the_images(session: Session) -> None:
    pixel = bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d4944415478da63fcffff3f0300060005fea72d6b"
        "5d0000000049454e44ae426082"
    )
    session.chat("What is this?", images=pixel, model=scripted_model("a pixel"))
    turn = session.rerun(prompt="Which colour?", model=scripted_model("none"))
    assert turn.prompt == "Which colour?"
    assert [part.type for part in turn.messages[0].content] == ["text", "image"]


async def test_the_awaited_rerun_does_the_same(session: Session) -> None:
    await session.chat_async("one", model=scripted_model("1"))
    turn = await session.rerun_async(model=scripted_model("2"))
    assert session.turns == [turn]


def test_a_rerun_that_does_not_begin_leaves_the_conversation_as_it_was(session: Session) -> None:
    first = session.chat("one", model=scripted_model("1"))
    with pytest.raises(UsageError):
        session.rerun(model="no such model")
    with pytest.raises(UsageError, match=r"no turns\[3\]"):
        session.rerun(3)
    assert session.turns == [first]


def test_whoever_holds_the_turns_keeps_them_over_undo_and_rerun(session: Session) -> None:
    session.chat("one", model=scripted_model("1"))
    session.chat("two", model=scripted_model("2"))
    held = session.turns
    session.rerun(0, model=scripted_model("3"))
    assert [turn.prompt for turn in held] == ["one", "two"]


def test_a_turn_that_is_stopped_while_its_servers_start_was_not_begun() -> None:
    import sys

    config = {
        "servers": {
            "slow": {"command": sys.executable, "args": ["-c", "import time; time.sleep(60)"]}
        }
    }
    session = Session.from_config(config)
    try:
        future = session.submit("x", model=scripted_model("never"))
        wait_until(
            lambda: session.parts.runner.busy and session.servers["slow"].state == "starting",
            "the server starts",
        )
        session.stop()
        with pytest.raises(UsageError, match="stopped before it began"):
            future.result(30)
        assert session.turns == []
    finally:
        session.close()
