"""Following a session from outside: its events and its changes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastmcp import FastMCP

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.event import ToolFinished, TurnFinished, TurnStarted
from casual_mcp_nb.providers.scripted import call, scripted_model


@pytest.fixture
def session() -> Iterator[Session]:
    box: FastMCP[Any] = FastMCP("box")

    @box.tool
    def put(thing: str) -> str:
        return f"took {thing}"

    config = {
        "clients": {"c": {"provider": "offline"}},
        "models": {
            "one": {"client": "c", "model": "planner"},
            "two": {"client": "c", "model": "planner"},
        },
    }
    with Session.from_config(config, in_process={"box": box}) as session:
        yield session


def test_an_observer_hears_every_event_of_every_turn_on_the_engine_thread(session: Session) -> None:
    heard: list[tuple[Any, Any]] = []
    threads: set[str] = set()

    def listen(turn: Any, event: Any) -> None:
        heard.append((turn, event))
        threads.add(threading.current_thread().name)

    session.observe(listen)
    first = session.chat("x", model=scripted_model(call("box__put", thing="hat"), "done"))
    second = session.chat("y", model=scripted_model("ok"))
    assert [event for turn, event in heard if turn is first] == list(first.trace)
    assert [event for turn, event in heard if turn is second] == list(second.trace)
    assert threads == {"casual-mcp-engine"}


def test_an_observer_that_was_cancelled_hears_nothing_more(session: Session) -> None:
    heard: list[Any] = []
    cancel = session.observe(lambda turn, event: heard.append(event))
    session.chat("x", model=scripted_model("ok"))
    count = len(heard)
    cancel()
    cancel()
    session.chat("x", model=scripted_model("ok"))
    assert len(heard) == count > 0


def test_an_observer_that_raises_harms_neither_the_turn_nor_the_others(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Any] = []

    def fail(*_: Any) -> None:
        raise ValueError("no")

    session.observe(fail)
    session.observe(changes=fail)
    session.observe(lambda turn, event: heard.append(event))
    turn = session.chat("x", model=scripted_model(call("box__put", thing="hat"), "done"))
    assert turn.status == "done"
    assert {TurnStarted, ToolFinished, TurnFinished} <= {type(event) for event in heard}
    assert "casual_mcp_nb.base.selection" in {record.name for record in caplog.records}


def test_a_change_of_the_model_of_the_turns_and_of_a_server_is_told(session: Session) -> None:
    seen: list[tuple[str | None, int, str]] = []
    session.observe(
        changes=lambda: seen.append(
            (session.model, len(session.turns), session.servers["box"].state)
        )
    )
    session.model = "two"
    assert seen[-1] == ("two", 0, "ready")
    session.chat("x", model=scripted_model("ok"))
    assert seen[-1] == ("two", 1, "ready")
    session.conversations.new()
    assert seen[-1] == ("two", 0, "ready")
    seen.clear()
    session.servers.reconnect("box")
    assert "starting" in {state for _, _, state in seen}


def test_a_change_listener_that_was_cancelled_hears_nothing_more(session: Session) -> None:
    heard: list[int] = []
    cancel = session.observe(changes=lambda: heard.append(1))
    session.model = "two"
    cancel()
    session.model = "one"
    assert heard == [1]
