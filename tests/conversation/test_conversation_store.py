"""Saved conversations: event by event, in one file, by several sessions and processes."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.interrupts import at_each_line
from kit.lean import lean
from kit.scripts import run_script
from kit.waiting import wait_until

from casual_mcp_nb import Conversation, Session
from casual_mcp_nb.base.prices import Price
from casual_mcp_nb.conversation.conversation import ConversationHead
from casual_mcp_nb.conversation.store import ConversationStore, SavedTurns
from casual_mcp_nb.errors import ConfigError, UnknownNameError, UsageError
from casual_mcp_nb.providers.scripted import call, scripted_model

CONFIG: dict[str, Any] = {
    "clients": {"offline": {"provider": "offline"}},
    "models": {
        "planner": {"client": "offline", "model": "planner"},
        "other": {"client": "offline", "model": "planner"},
    },
}
SHIP = "the “Fram” sails\nat 100% \\ noon"


def harbour() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("harbour")
    server.tool(
        lambda ship: f"{ship}: berth 7", name="berth", description="Find the berth of a ship."
    )
    return server


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "conversations.db"


@pytest.fixture
def opened(file: Path) -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def open_session(**options: Any) -> Session:
        options = {"store": file, "quiet": True, "name": str(len(sessions)), **options}
        sessions.append(Session(CONFIG, in_process={"harbour": harbour()}, **options))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.close()


def asks(session: Session, ship: str = "Fram", **options: Any) -> Any:
    model = scripted_model(call("harbour__berth", ship=ship), f"{ship} is at berth 7.")
    return session.chat(f"Where is {ship}?", model=model, echo="none", **options)


def test_a_conversation_is_saved_while_it_runs_and_resumed_as_it_was(
    opened: Callable[..., Session], file: Path
) -> None:
    session = opened()
    session.system = "Be brief."
    session.model = "other"
    session.selection.discovery = True
    asks(session, SHIP)
    asks(session)
    (stored,) = session.conversations
    assert (stored.title, stored.turns, stored.status) == (
        " ".join(f"Where is {SHIP}?".split()),
        2,
        "active",
    )
    assert stored.tokens == session.stats.sent_tokens
    assert stored.created.utcoffset() is not None
    assert stored.created <= stored.changed
    assert file.stat().st_mode & 0o077 == 0
    assert session.conversations.id == stored.id

    again = opened()
    conversation = again.conversations.resume(stored.id[:5])
    assert conversation.to_json() == session.conversations.current.to_json()
    assert [turn.answer for turn in again.turns] == [turn.answer for turn in session.turns]
    assert (again.model, again.system, again.selection.discovery) == ("other", "Be brief.", True)
    asks(again, "Gjøa")
    assert again.conversations.store is not None
    assert (
        again.conversations.store.load(stored.id).to_json() == again.conversations.current.to_json()
    )
    assert [each.id for each in again.conversations] == [stored.id]
    began = [turn.started.began for turn in again.conversations.store.load(stored.id)]
    assert began == [turn.started.began for turn in again.turns]
    assert sorted(began) == began


def test_undo_rerun_and_fork_are_saved_too(opened: Callable[..., Session]) -> None:
    session = opened()
    asks(session)
    asks(session, "Gjøa")
    first = session.conversations.id
    session.undo()
    assert session.conversations.store is not None
    assert len(session.conversations.store.load(first or "")) == 1
    session.rerun(model=scripted_model("It left."), echo="none")
    assert [turn.answer for turn in session.conversations.store.load(first or "")] == ["It left."]
    asks(session, "Maud")
    assert len(session.conversations.fork(0)) == 1
    asks(session, "Belgica")
    second = session.conversations.id
    assert second != first
    assert [turn.answer for turn in session.conversations.store.load(second or "")] == [
        "It left.",
        "Belgica is at berth 7.",
    ]
    assert [turn.answer for turn in session.conversations.store.load(first or "")] == [
        "It left.",
        "Maud is at berth 7.",
    ]


def test_a_private_conversation_is_nowhere(opened: Callable[..., Session]) -> None:
    session = opened()
    session.conversations.new(private=True)
    asks(session)
    assert (len(session.conversations), session.conversations.id) == (0, None)
    session.conversations.new()
    asks(session, "Gjøa")
    assert [stored.title for stored in session.conversations] == ["Where is Gjøa?"]
    assert "not saved" not in str(session.status)


def test_they_are_found_renamed_archived_and_deleted(opened: Callable[..., Session]) -> None:
    session = opened()
    for ship in ("Fram", SHIP, "100 guns"):
        session.conversations.new()
        asks(session, ship)
    store = session.conversations.store
    assert store is not None
    assert [
        len(store.find(words))
        for words in ("berth 7", "100%", "“Fram”", "\\ noon", "sails\nat", "_", "walrus")
    ] == [
        3,
        1,
        1,
        1,
        1,
        3,
        0,
    ]
    newest = session.conversations[0]
    assert store.rename(newest.id, "  Old\nships ").title == "Old ships"
    assert [each.id for each in store.find("old ships")] == [newest.id]
    assert store.archive(newest.id).status == "archived"
    assert newest.id not in [each.id for each in session.conversations]
    assert [each.id for each in store.find(status="archived")] == [newest.id]
    assert store.restore(newest.id).status == "active"
    assert newest.id in str(session.conversations)
    with pytest.raises(UsageError):
        store.rename(newest.id, " ")

    # Whoever deletes it in the store: the session that has it open goes on, and it does not come
    # back.
    store.delete(newest.id)
    asks(session, "Fram")
    assert len(session.turns) == 2
    assert len(session.conversations) == 2
    with pytest.raises(UnknownNameError):
        session.conversations.resume(newest.id)
    with pytest.raises(UnknownNameError):
        session.conversations.resume("")


def test_a_session_keeps_its_saved_conversations_in_order(
    opened: Callable[..., Session],
) -> None:
    session, changes = opened(), list[None]()
    asks(session, "Fram")
    id = session.conversations.id
    assert id is not None
    with session.observe(changes=lambda: changes.append(None)):
        assert session.conversations.rename(id, "Old ships").title == "Old ships"
        assert session.conversations.archive(id).status == "archived"
        assert [each.id for each in session.conversations.find(status="archived")] == [id]
        assert session.conversations.restore(id).status == "active"
        assert len(changes) == 3
        copy = session.conversations.save(session.conversations.current)
        assert (len(session.conversations.find("Fram")), copy.id != id, len(session.turns)) == (
            2,
            True,
            1,
        )
        session.conversations.delete(copy.id)
        assert (session.conversations.id, len(session.turns)) == (id, 1)
        session.conversations.delete(id)
    assert (session.conversations.id, session.turns, len(session.conversations)) == (None, [], 0)
    nowhere = opened(store=None)
    assert (len(nowhere.conversations), nowhere.conversations.store) == (0, None)
    with pytest.raises(UsageError):
        nowhere.conversations.find("Fram")


def test_two_that_go_on_with_one_conversation_lose_nothing(opened: Callable[..., Session]) -> None:
    one = opened()
    asks(one)
    two = opened()
    two.conversations.resume(one.conversations.id or "")
    asks(one, "Gjøa")
    assert one.conversations.id is not None
    asks(two, "Maud")
    assert two.conversations.store is not None
    # That somebody else continued it is noticed when it is written.
    two.conversations.store.flush()
    assert two.conversations.id != one.conversations.id
    answers = {
        tuple(turn.answer[:4] for turn in one.conversations.store.load(each.id))
        for each in one.conversations
    }
    assert answers == {("Fram", "Gjøa"), ("Fram", "Maud")}


def test_one_from_a_file_is_added(opened: Callable[..., Session], tmp_path: Path) -> None:
    session = opened()
    asks(session)
    session.export(tmp_path / "ship.json")
    store = session.conversations.store
    assert store is not None
    first = session.conversations.id or ""
    session.conversations.new()
    session.export(tmp_path / "same.json", first[:6])
    assert (tmp_path / "same.json").read_text() == (tmp_path / "ship.json").read_text()
    with pytest.raises(UnknownNameError):
        session.export(tmp_path / "none.json", "zzzz")
    session.conversations.resume(first)
    added = store.add(Conversation.load(tmp_path / "ship.json"))
    assert store.load(added.id).to_json() == session.conversations.current.to_json()
    assert len(session.conversations) == 2
    session.system = "Be brief."
    with pytest.warns(UserWarning, match="scripted"):
        session.conversations.resume(added.id)
    assert session.system == "Be brief."
    with pytest.raises(UsageError):
        store.add(Conversation())


def test_costs_are_listed(opened: Callable[..., Session]) -> None:
    session = opened(
        prices={"planner": Price(input=1_000, output=1_000).model_dump(exclude_none=True)}
    )
    session.chat("Where is Fram?", echo="none")
    (stored,) = session.conversations
    assert stored.cost == session.stats.cost


def test_what_is_not_there_any_more_is_told(opened: Callable[..., Session], file: Path) -> None:
    session = opened()
    session.model = "other"
    session.selection.servers["harbour"] = "deferred"
    session.selection.max_search_results = 3
    asks(session)
    with (
        Session({}, store=file, quiet=True) as bare,
        pytest.warns(UserWarning, match="other|harbour") as warned,
    ):
        bare.conversations.resume(session.conversations.id or "")
    assert [
        word in str(warning.message)
        for word, warning in zip(("other", "harbour"), warned, strict=True)
    ] == [True, True]
    assert (len(bare.turns), bare.selection.max_search_results) == (1, 3)


def test_where_it_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def path_of(**options: Any) -> Path | None:
        with Session({**CONFIG, **options.pop("config", {})}, quiet=True, **options) as session:
            assert ("saved in" in str(session.status)) == (session.conversations.store is not None)
            return session.conversations.store.path if session.conversations.store else None

    assert path_of() is None
    assert path_of(store=tmp_path / "a.db") == tmp_path / "a.db"
    monkeypatch.setenv("MCP_STORE", str(tmp_path / "b.db"))
    assert path_of() == tmp_path / "b.db"
    assert path_of(store=None) is None
    monkeypatch.delenv("MCP_STORE")
    # A script saves nothing of its own accord.
    assert path_of() is None
    monkeypatch.chdir(tmp_path)
    assert path_of(config={"store": "c.db"}) == tmp_path / "c.db"
    assert path_of(config={"store": False}) is None
    file = tmp_path / "mine" / "config.json"
    file.parent.mkdir()
    for place, expected in (
        ("d.db", file.parent / "d.db"),
        ("../e.db", None),
        (str(tmp_path / "f.db"), None),
    ):
        file.write_text(json.dumps({**CONFIG, "store": place}))
        if expected is None:
            with pytest.raises(ConfigError):
                Session(file, quiet=True)
        else:
            with Session(file, quiet=True) as session:
                assert session.conversations.store is not None
                assert session.conversations.store.path == expected
    with Session(CONFIG, quiet=True) as session:
        assert len(session.conversations) == 0
        assert "no conversations" in str(session.conversations)
        with pytest.raises(UsageError):
            session.conversations.resume("x")


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + bytes(84), None])
def test_a_file_that_cannot_be_used_is_left_as_it_is_and_costs_no_turn(
    opened: Callable[..., Session], file: Path, content: bytes | None
) -> None:
    file.parent.mkdir()
    if content is None:
        other = sqlite3.connect(file)
        other.execute("CREATE TABLE photos (id)")
        other.commit()
        other.close()
        content = file.read_bytes()
    else:
        file.write_bytes(content)
    session = opened()
    assert asks(session).status == "done"
    with pytest.raises(UsageError) as caught:
        len(session.conversations)
    assert str(caught.value).split()[0] in str(session.conversations)
    assert "cannot be saved" in str(session.status)
    assert file.read_bytes() == content


def test_a_later_version_is_not_touched(opened: Callable[..., Session], file: Path) -> None:
    asks(opened())
    ConversationStore.at(file).flush()
    later = file.with_name("later.db")
    connection = sqlite3.connect(file)
    connection.execute("VACUUM INTO ?", (str(later),))
    connection.close()
    connection = sqlite3.connect(later)
    connection.execute("PRAGMA user_version = 99")
    connection.commit()
    connection.close()
    with pytest.raises(UsageError, match="99"):
        ConversationStore(later).find()


def test_what_could_not_be_written_is_written_with_the_next_event(
    opened: Callable[..., Session], file: Path
) -> None:
    session = opened()
    asks(session)
    assert session.conversations.store is not None
    assert session.conversations.store.flush()
    blocker = sqlite3.connect(file)
    blocker.execute(
        "CREATE TRIGGER full BEFORE INSERT ON events BEGIN SELECT RAISE(FAIL, 'the disk is"
        " full'); END"
    )
    blocker.commit()
    asks(session, "Gjøa")
    assert not session.conversations.store.flush()
    assert "full" in session.conversations.store.problem
    blocker.execute("DROP TRIGGER full")
    blocker.commit()
    blocker.close()
    asks(session, "Maud")
    assert session.conversations.store.flush()
    (stored,) = session.conversations
    assert (
        session.conversations.store.load(stored.id).to_json()
        == session.conversations.current.to_json()
    )


def test_what_this_version_does_not_know_survives(
    opened: Callable[..., Session], file: Path
) -> None:
    session = opened()
    asks(session)
    id = session.conversations.id
    assert session.conversations.store is not None
    session.conversations.store.flush()
    connection = sqlite3.connect(file)
    connection.execute(
        'INSERT INTO events SELECT conversation, turn, max(number) + 1, \'{"event": "Applause",'
        ' "loud": true}\' FROM events'
    )
    connection.execute('UPDATE turns SET fields = \'{"mood": "calm"}\'')
    connection.commit()
    connection.close()
    again = opened()
    assert again.conversations.resume(id or "").repairs == ()
    asks(again, "Gjøa")
    assert again.conversations.store is not None
    text = again.conversations.store.load(id or "").to_json()
    assert ("Applause" in text, "calm" in text) == (True, True)


KILLED = """
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
from fastmcp import FastMCP

server = FastMCP("harbour")

@server.tool
def berth(ship: str) -> str:
    return ship

with Session({{}}, in_process={{"harbour": server}}, store={file!r}, quiet=True) as session:
    calls = [call("harbour__berth", ship=f"ship {{number}}") for number in range(1_000)]
    session.conversations.find()
    print("ready", flush=True)
    for number in range(1_000):
        turn = session.chat(f"Ship {{number}}?", model=scripted_model(calls[number], "ok"), echo="none")
        session.conversations.store.flush()
        print(number, flush=True)
"""


def started(code: str) -> subprocess.Popen[str]:
    """A process that runs code, and finds none of the SDKs of providers."""
    command = [sys.executable, "-c", code]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **lean()}
    )


@pytest.mark.slow
@pytest.mark.parametrize("turns", [0, 1, 5])
def test_a_killed_process_loses_at_most_what_was_running(file: Path, turns: int) -> None:
    code = KILLED.format(file=str(file))
    process = started(code)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for number in range(turns):
        assert process.stdout.readline() == f"{number}\n"
    process.kill()
    told = turns + len(process.communicate()[0].splitlines())
    store = ConversationStore(file)
    saved = store.find(status=None)
    conversation = store.load(saved[0].id) if saved else Conversation()
    assert len(conversation) in (told, told + 1)
    assert conversation.repairs == ()
    asked = [
        call.id
        for message in conversation.messages
        for call in getattr(message, "tool_calls", None) or ()
    ]
    answered = [message.tool_call_id for message in conversation.messages if message.role == "tool"]
    assert asked == answered
    assert [turn.status for turn in conversation[:told]] == ["done"] * told


@pytest.mark.slow
def test_two_processes_write_one_file(file: Path) -> None:
    code = f"""
        from casual_mcp_nb import Session
        from casual_mcp_nb.providers.scripted import scripted_model
        with Session({{}}, store={str(file)!r}, quiet=True, name="both") as session:
            for number in range(20):
                if number % 5 == 0:
                    session.conversations.new()
                session.chat(f"Message {{number}}", model=scripted_model("ok"), echo="none")
            print(session.conversations.store.flush())
    """
    other = started(textwrap.dedent(code))
    done = run_script(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    assert other.communicate(timeout=100)[0] == "True\n"
    stored = ConversationStore(file).find()
    assert [each.turns for each in stored] == [5] * 8


@pytest.mark.defect("F15")
def test_the_file_is_whole_and_closed_once_its_sessions_are(file: Path) -> None:
    def asked(session: Session, text: str) -> None:
        session.chat(text, model=scripted_model("ok"), echo="none")

    first, second = (Session({}, store=file, quiet=True, name=name) for name in ("first", "second"))
    store = first.conversations.store
    assert store is second.conversations.store is not None
    asked(first, "One")
    asked(second, "Two")
    first.close()
    # The other one opens it again.
    asked(second, "Three")
    second.close()
    assert not list(file.parent.glob(f"{file.name}-*"))
    wait_until(
        lambda: not any(thread.name == "casual-mcp-store" for thread in threading.enumerate()),
        "the thread's end",
    )
    copy = file.with_name("copy.db")
    shutil.copy(file, copy)
    with ConversationStore(copy) as copied:
        assert sorted(each.turns for each in copied.find()) == [1, 2]
        assert len(copied.find("Three")) == 1
    # Closed twice, used again, and dropped without a word.
    store.close()
    assert len(store.find()) == 2
    store.close()
    dropped = ConversationStore(copy)
    assert len(dropped.find()) == 2
    # Among garbage, the connection could be finalized before the store. Python 3.13 would warn.
    dropped.itself = dropped  # type: ignore[attr-defined]
    del dropped
    gc.collect()


@pytest.mark.defect("F15")
def test_an_open_reader_elsewhere_does_not_keep_anything_out_of_the_file(file: Path) -> None:
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as reader:
        with Session({}, store=file, quiet=True) as session:
            session.chat("One", model=scripted_model("ok"), echo="none")
        assert reader.execute("SELECT count(*) FROM conversations").fetchone() == (1,)
        copy = file.with_name("copy.db")
        shutil.copy(file, copy)
    with ConversationStore(copy) as copied:
        assert [each.turns for each in copied.find()] == [1]


def test_what_has_not_changed_is_not_written_with_each_step(opened: Callable[..., Session]) -> None:
    session = opened()
    model = scripted_model(
        *(call("harbour__berth", ship=f"{SHIP} {number}") for number in range(6)), "Berth 7."
    )
    assert session.conversations.store is not None
    statements: list[str] = []
    with session.conversations.store._reading() as connection:
        connection.set_trace_callback(statements.append)
    turn = session.chat("Where?", model=model)
    session.conversations.store.flush()
    connection.set_trace_callback(None)
    commits = statements.count("COMMIT")
    assert commits > len(turn.steps)
    heads = [text for text in statements if text.startswith("UPDATE conversations SET head")]
    # When it begins and when it ends; and where the model that it was asked for is set up.
    assert 2 <= len(heads) <= 3 < commits
    assert sum(text.startswith("INSERT OR REPLACE INTO turns") for text in statements) == 2
    (listed,) = session.conversations
    assert (listed.turns, listed.tokens) == (1, turn.stats.sent_tokens)


def test_a_flush_while_the_writing_thread_ends_waits_for_nobody(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ConversationStore(file)
    before = set(threading.enumerate())
    SavedTurns(store, ConversationHead).save(())
    (writer,) = set(threading.enumerate()) - before
    event = threading.Event

    def event_after_the_end() -> threading.Event:
        monkeypatch.setattr(threading, "Event", event)
        store.close()
        writer.join(30)
        assert not writer.is_alive()
        return event()

    monkeypatch.setattr(threading, "Event", event_after_the_end)
    assert store.flush(5)


def test_equal_titles_are_numbered_and_a_list_without_costs_has_no_column_for_them(
    opened: Callable[..., Session],
) -> None:
    session = opened()
    for _ in range(3):
        session.conversations.new()
        session.chat("Hello?", model=scripted_model("Hello."), echo="none")
    titles = [each.title for each in session.conversations]
    assert titles == ["Hello? (3)", "Hello? (2)", "Hello?"]
    assert "Cost" not in str(session.conversations)
    # Where they are saved is told before the first turn only.
    assert "saved in" not in str(session.status)
    session.conversations.new()
    assert "saved in" in str(session.status)


@pytest.mark.parametrize("read", [True, False])
def test_an_interrupt_leaves_no_transaction_open(
    opened: Callable[..., Session], file: Path, read: bool
) -> None:
    session = opened()
    asks(session)
    (stored,) = session.conversations
    store = session.conversations.store
    assert store is not None

    def run() -> None:
        if read:
            store.load(stored.id)
        else:
            store.rename(stored.id, "Interrupted")

    ours = ConversationStore.load.__code__.co_filename
    with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as other:
        for where in at_each_line(run, lambda code: code.co_filename == ours):
            # It would wait for a transaction that writes.
            other.execute("BEGIN IMMEDIATE")
            other.execute("ROLLBACK")
            assert store.rename(stored.id, "Renamed").title == "Renamed", where
