"""A damaged row in the file of saved conversations costs itself, and no other conversation."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from kit.setups import OFFLINE

from casual_mcp_nb import Conversation, Session
from casual_mcp_nb.conversation.conversation import ConversationHead
from casual_mcp_nb.conversation.store import ConversationStore, SavedTurns
from casual_mcp_nb.errors import UsageError

pytestmark = pytest.mark.defect("N6")

ROWS: dict[str, list[Any]] = {
    "title": [b"\xff\xfe", 5, b""],
    "status": ["frozen", b"x", 5],
    "created": ["yesterday", b"\xff", 12, ""],
    "changed": ["yesterday", b"\xff", 12, "9999-99-99"],
    "changed_at": ["soon", b"x"],
    "head": [
        "{",
        "[]",
        "null",
        '{"model": []}',
        b"\xff\xff",
        '{"selection": 5}',
        "[" * 100_000,
        '{"forked_from": {"id": 5}}',
    ],
    "turns": ["many", b"x", 1.5],
    "tokens": ["many", b"x", 1.5],
    "estimated": ["maybe", b"x"],
    "cost": ["much", b"x"],
    "currency": [b"\xff", 5],
}
PARTS: dict[tuple[str, str], list[Any]] = {
    ("events", "json"): ["{", b"\xff", "5", '{"event": 5}', "[]"],
    ("events", "turn"): ["x", b"x"],
    ("events", "number"): ["x", b"x"],
    ("parts", "json"): ["{", b"\xff", "5", "null"],
    ("turns", "fields"): ["{", "5", b"\xff"],
}


@pytest.fixture(scope="module")
def conversation() -> Conversation:
    """A conversation of one turn."""
    with Session(OFFLINE, store=None, quiet=True) as session:
        session.chat("Hello", echo="none")
        return session.conversations.current


@pytest.fixture
def store(tmp_path: Path, conversation: Conversation) -> Iterator[ConversationStore]:
    """A file with two conversations."""
    with ConversationStore(tmp_path / "conversations.db") as store:
        for title in ("first", "second"):
            store.rename(store.add(conversation).id, title)
        yield store


def damage(store: ConversationStore, statement: str, *values: Any) -> None:
    """Run a statement on the file, in which FIRST is the id of the conversation called `first`."""
    store.flush()
    with closing(sqlite3.connect(store.path)) as connection:
        first = "(SELECT id FROM conversations WHERE title = 'first')"
        connection.execute(statement.replace("FIRST", first), values)
        connection.commit()


def id_of(store: ConversationStore, title: str) -> str:
    return next(each.id for each in store.find() if each.title == title)


@pytest.mark.parametrize(
    ("column", "value"), [(name, value) for name, values in ROWS.items() for value in values]
)
def test_a_damaged_summary_is_listed_continued_and_deleted(
    store: ConversationStore, conversation: Conversation, column: str, value: Any
) -> None:
    id = id_of(store, "first")
    damage(store, f"UPDATE conversations SET {column} = ? WHERE id = FIRST", value)
    listed = store.find()
    assert {each.id for each in listed} == {id, id_of(store, "second")}
    assert "second" in listed._repr_html_()
    (stored,) = [each for each in listed if each.id == id]
    assert set(stored.damaged) <= {column}
    saved = SavedTurns(store, ConversationHead)
    opened = store.open(id, saved)
    saved.save([*opened, *conversation])
    assert store.flush()
    assert saved.id == id
    assert (store.get(id).turns, store.get(id).head) == (2, ConversationHead())
    assert store.rename(id, "renamed").title == "renamed"
    assert store.restore(id).status == "active"
    store.delete(id)
    assert [each.title for each in store.find()] == ["second"]


def test_what_is_damaged_is_named(store: ConversationStore) -> None:
    damage(store, "UPDATE conversations SET head = '{', created = 'x' WHERE id = FIRST")
    listed = store.find()
    assert [each.damaged for each in listed] == [(), ("created", "head")]
    assert "damaged" in listed._repr_html_()


@pytest.mark.parametrize(
    ("place", "value"), [(place, value) for place, values in PARTS.items() for value in values]
)
def test_damaged_turns_are_refused_clearly_and_can_be_deleted(
    store: ConversationStore, place: tuple[str, str], value: Any
) -> None:
    table, column = place
    id = id_of(store, "first")
    damage(store, f"UPDATE OR REPLACE {table} SET {column} = ? WHERE conversation = FIRST", value)
    assert [each.title for each in store.find()] == ["second", "first"]
    with suppress(UsageError):
        assert len(store.load(id)) <= 1
    assert len(store.load(id_of(store, "second"))) == 1
    store.delete(id)
    assert [each.title for each in store.find()] == ["second"]


def test_the_error_for_damaged_turns_says_so(store: ConversationStore) -> None:
    damage(store, "UPDATE events SET json = '{' WHERE conversation = FIRST")
    with pytest.raises(UsageError, match="damaged"):
        store.load(id_of(store, "first"))


def test_an_id_of_another_type_is_listed_and_deleted(store: ConversationStore) -> None:
    columns = "'third', 'active', created, changed, changed_at, head, 0, 1, NULL, NULL, NULL, NULL"
    damage(
        store,
        f"INSERT INTO conversations SELECT CAST('abcdefgh' AS BLOB), {columns} FROM conversations"
        " WHERE id = FIRST",
    )
    assert len(store.find()) == 3
    store.delete("abcdefgh")
    assert len(store.find()) == 2


def test_text_that_is_no_utf_8_fails_no_list(store: ConversationStore) -> None:
    damage(store, "UPDATE conversations SET title = CAST(X'ff61' AS TEXT) WHERE id = FIRST")
    assert {each.title for each in store.find()} == {"\ufffda", "second"}
    assert len(store.find("second")) == 1


def test_a_session_continues_and_deletes_a_damaged_conversation(store: ConversationStore) -> None:
    id = id_of(store, "first")
    damage(
        store,
        "UPDATE conversations SET head = ? WHERE id = FIRST",
        '{"selection": {"servers": 5, "__class__": 5}}',
    )
    with Session(OFFLINE, store=store.path, quiet=True) as session:
        with pytest.warns(UserWarning, match="selection"):
            assert len(session.conversations.resume(id)) == 1
        session.conversations.delete(id)
        assert len(session.conversations) == 1
