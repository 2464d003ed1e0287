"""The panel's list of conversations and of discovered tools, without a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.conversation import Conversation, added_turns
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb.widgets.conversations import MAX_SHOWN, ConversationsState

EVIL = "<img src=x onerror=alert(1)>\u202e"

Do = Callable[..., Any]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    harbour: FastMCP[Any] = FastMCP("harbour")
    harbour.tool(
        lambda ship: f"{ship}: berth 7", name="berth", description="Find the berth of a ship."
    )
    with Session(
        {}, in_process={"harbour": harbour}, store=tmp_path / "conversations.db", quiet=True
    ) as session:
        yield session


@pytest.fixture
def state(session: Session) -> Iterator[ConversationsState]:
    state = ConversationsState(session)
    yield state
    state.close()


def ask(session: Session, text: str) -> str:
    session.conversations.new()
    session.chat(text, model=scripted_model("ok"), echo="none")
    return session.conversations.id or ""


def titles(do: Do, state: ConversationsState, **arguments: Any) -> list[str]:
    return [row["title"] for row in do(state, "found", **arguments)["rows"]]


def test_they_are_found_opened_and_kept_in_order(
    session: Session, state: ConversationsState, do: Do
) -> None:
    first, second = ask(session, f"Tides {EVIL}"), ask(session, "Harbours")
    list_ = do(state, "found")
    assert (list_["total"], list_["current"]) == (2, second)
    assert [row["id"] for row in list_["rows"]] == [second, first]
    assert "\u202e" not in list_["rows"][1]["title"]
    assert titles(do, state, query="harbours") == ["Harbours"]

    version = state.snapshot()["version"]
    assert do(state, "open", id=first) == []
    assert [turn.prompt for turn in session.turns] == [f"Tides {EVIL}"]
    assert do(state, "found")["current"] == first
    assert state.snapshot()["version"] > version

    do(state, "rename", id=first, title="Tides of Bergen")
    do(state, "archive", id=second)
    assert titles(do, state) == ["Tides of Bergen"]
    assert titles(do, state, archived=True) == ["Harbours"]
    do(state, "restore", id=second)
    assert titles(do, state) == ["Harbours", "Tides of Bergen"]

    do(state, "fork", id=second)
    forked = do(state, "found")["current"]
    assert forked not in (first, second)
    abouts = {row["id"]: row["about"] for row in do(state, "found")["rows"]}
    assert abouts[forked] == f"fork, {abouts[second]}", "a fork does not look like its origin"
    assert session.conversations.store is not None
    assert session.conversations.store.get(forked).head.forked_from is not None
    do(state, "fork", id=forked)
    assert len(titles(do, state)) == 4

    # The one that is open is deleted: another begins.
    do(state, "delete", id=do(state, "found")["current"])
    assert session.turns == []
    do(state, "delete", id=first)
    assert sorted(titles(do, state)) == ["Harbours", "Harbours (2)"]
    with pytest.raises(UnknownNameError):
        do(state, "open", id=first)
    with pytest.raises(UsageError):
        do(state, "rename", id=second, title=" ")


def test_what_is_not_available_any_more_is_told(
    session: Session, state: ConversationsState, do: Do
) -> None:
    id = ask(session, "Where?")
    session.conversations.new()
    session.servers.remove("harbour")
    (problem,) = do(state, "open", id=id)
    assert "harbour" in problem


def test_the_list_is_short_and_says_how_many_there_are(
    session: Session, state: ConversationsState, do: Do
) -> None:
    from casual_llm.messages import UserMessage

    assert session.conversations.store is not None
    for number in range(MAX_SHOWN + 3):
        session.conversations.store.add(
            Conversation(added_turns([UserMessage(content=f"Ship {number}")]))
        )
    list_ = do(state, "found")
    assert (len(list_["rows"]), list_["total"]) == (MAX_SHOWN, MAX_SHOWN + 3)
    assert titles(do, state, query="Ship 0") == ["Ship 0"]
    assert len(session.conversations.store.find(limit=2)) == 2
    assert "53" in str(session.conversations.store.find(limit=2))


def test_nothing_is_opened_or_deleted_under_a_running_turn(
    session: Session, state: ConversationsState, do: Do
) -> None:
    other, id = ask(session, "Other"), ask(session, "Where?")
    began, go_on = asyncio.Event(), asyncio.Event()

    async def answer(*_: Any) -> str:
        began.set()
        await go_on.wait()
        return "ok"

    running = session.submit("And now?", model=scripted_model(answer))
    session.parts.engine.run(began.wait())
    for command, target in (("open", other), ("fork", id), ("delete", id)):
        with pytest.raises(UsageError):
            do(state, command, id=target)
    do(state, "archive", id=other)
    session.parts.engine.submit(_set(go_on))
    assert running.result(20).answer == "ok"
    assert len(session.turns) == 2


async def _set(event: asyncio.Event) -> None:
    event.set()


def test_where_they_are_saved_is_told(session: Session, state: ConversationsState) -> None:
    assert session.conversations.store is not None
    shown = state.snapshot()
    assert (shown["saves"], shown["saved"]) == (True, True)
    assert session.conversations.store.path.name in shown["note"]
    session.conversations.new(private=True)
    assert (state.snapshot()["saves"], state.snapshot()["saved"]) == (True, False)


def test_a_session_that_saves_nothing_has_no_list(do: Do) -> None:
    with Session({}, store=None, quiet=True, name="unsaved") as session:
        state = ConversationsState(session)
        assert (state.snapshot()["saves"], state.snapshot()["note"]) == (False, None)
        with pytest.raises(UsageError):
            do(state, "found")
        state.close()


def test_discovered_tools_are_listed_and_unloaded(
    session: Session, state: ConversationsState, do: Do
) -> None:
    session.selection.servers["harbour"] = "deferred"
    session.selection.discovery = True
    assert (state.snapshot()["discovered"], state.snapshot()["tools"]) == (0, [])
    session.chat(
        "Where?",
        model=scripted_model(call("search_tools", query="berth of a ship"), "Found."),
        echo="none",
    )
    assert (state.snapshot()["discovered"], state.snapshot()["tools"]) == (1, ["harbour:berth"])
    do(state, "unload", tool="harbour:berth")
    assert state.snapshot()["discovered"] == 0
    with pytest.raises(UsageError):
        do(state, "unload", tool="harbour:berth")


def test_what_a_cassette_does_is_told(
    session: Session, state: ConversationsState, tmp_path: Path
) -> None:
    assert state.snapshot()["cassette"] is None
    version = state.snapshot()["version"]
    with session.cassettes.use(tmp_path / "lesson.json"):
        assert state.snapshot()["cassette"] == "recording lesson.json"
        assert state.snapshot()["version"] > version
        session.chat("Where?", model=scripted_model("ok"), echo="none")
    with session.cassettes.use(tmp_path / "lesson.json"):
        assert state.snapshot()["cassette"] == "replaying lesson.json"
    assert state.snapshot()["cassette"] is None
