"""Saved conversations, in one file that several processes can use at the same time."""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import secrets
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar

from casual_mcp_nb.base.cutting import cut_at_word
from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.base.limits import encodable, read_json
from casual_mcp_nb.base.prices import Cost
from casual_mcp_nb.base.tool import ToolName, ToolSpec
from casual_mcp_nb.conversation.codec import EventWriter, document_of, load_value
from casual_mcp_nb.conversation.conversation import (
    Conversation,
    ConversationHead,
    ForkedFrom,
    StoredConversation,
    StoredConversations,
    StoredStatus,
)
from casual_mcp_nb.conversation.event import TurnFinished
from casual_mcp_nb.conversation.store_file import BUSY_SECONDS, connect
from casual_mcp_nb.conversation.stored_spending import carry_over, create_table
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.usage import ToolUsage
from casual_mcp_nb.errors import UnknownNameError, UsageError, shown

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.past_questions import PastQuestion, PastQuestionReader

logger = logging.getLogger(__name__)

MAX_TITLE = 80
MAX_LISTED = 200
UNTITLED = "Untitled"
FLUSH_SECONDS = 10.0
GATHER_SECONDS = 0.005
"""How long to gather events into one write.

A killed process can lose this much while calls in a step still run. Before a model is asked,
everything is written.
"""
AHEAD_SECONDS = 1.0
"""How long a model call waits for earlier events to be on file, since another process may be
writing.
"""
CHECKPOINT_SECONDS = 0.5
"""How long closing waits for other processes that read."""
_ID_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_ID_LENGTH = 8
_COLUMNS = "id, title, status, created, changed, head, turns, tokens, estimated, cost, currency"


def store_path() -> Path:
    """Find the file in which conversations are saved by default: in the user's data folder."""
    from platformdirs import user_data_path

    return user_data_path("casual_mcp_nb", appauthor=False) / "conversations.db"


def _new_id() -> str:
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))


@dataclass
class _WrittenTurn:
    """How far a turn is saved: how many events from its trace, and the next one's number."""

    turn: Turn
    count: int = 0
    next_number: int = 0


@dataclass(eq=False)
class SavedTurns:
    """Saves a conversation's turns while they run, event by event."""

    store: ConversationStore
    head: Callable[[], ConversationHead]
    forked_from: ForkedFrom | None = None
    id: str | None = None
    next_id: str = field(default_factory=_new_id)
    """Its id once it is saved."""
    _turns: Sequence[Turn] = ()
    _written: list[_WrittenTurn] = field(default_factory=list)
    _writer: EventWriter = field(default_factory=EventWriter)
    _writes: int | None = None
    _head: ConversationHead | None = None
    _stale: bool = False
    _deleted: bool = False

    def save(self, turns: Sequence[Turn]) -> None:
        """Have all turns saved as they are now, without waiting.

        Others that were saved are deleted.
        """
        self._turns = tuple(turns)
        if self._turns and self.id is None and not self._deleted:
            # Known before it is written, so that nobody has to wait for that.
            self.id = self.next_id
        self.store.request(self)

    def write(self, connection: sqlite3.Connection) -> int | None:
        """Write the unsaved part, in a connection's transaction.

        Returns the write count, for `written` after the commit, or None if there was nothing to
        write.
        """
        turns = self._turns
        if self._deleted or (self.id is None and not turns):
            return None
        self._find(connection, turns)
        if self._deleted:
            return None
        unchanged = 0
        while (
            unchanged < min(len(turns), len(self._written))
            and self._written[unchanged].turn is turns[unchanged]
        ):
            unchanged += 1
        summed = unchanged < len(self._written)
        if summed:
            for table, column in (("events", "turn"), ("turns", "number")):
                connection.execute(
                    f"DELETE FROM {table} WHERE conversation = ? AND {column} >= ?",
                    (self.id, unchanged),
                )
            del self._written[unchanged:]
        self._written += list(map(_WrittenTurn, turns[unchanged:]))
        for number, written in enumerate(self._written):
            if written.count < len(written.turn.trace):
                summed = self._write_turn(connection, number, written) or summed
        head = self.head()
        if head != self._head or summed:
            self._write_changed_head(connection, head)
        self._head = head
        ((writes,),) = connection.execute(
            "UPDATE conversations SET changed = ?, changed_at = ?, writes = writes + 1 WHERE id = ?"
            " RETURNING writes",
            (_now(), time.time(), self.id),
        ).fetchall()
        return int(writes)

    def written(self, writes: int | None) -> None:
        """Take note that the data `write` wrote is on file."""
        if writes is not None:
            self._writes = writes
        self._stale = False

    def rolled_back(self) -> None:
        """Write everything again with the next save, because the last one failed."""
        self._written, self._writer = [], EventWriter()
        self._stale, self._head = True, None

    def adopt(self, id: str, writes: int, written: list[_WrittenTurn], writer: EventWriter) -> None:
        """Continue a conversation that was loaded. See `ConversationStore.open`."""
        self.id, self._writes, self._writer = id, writes, writer
        self._written = written
        self._turns = tuple(each.turn for each in written)

    def _find(self, connection: sqlite3.Connection, turns: Sequence[Turn]) -> None:
        """Make sure that there is a row for this conversation that only we write."""
        if self.id is not None:
            row = connection.execute(
                "SELECT writes FROM conversations WHERE id = ?", (self.id,)
            ).fetchone()
            if row is None and self._writes is not None:
                # Deleted, here or in another process: it does not come back.
                self._deleted = True
                return
            if row is not None and row[0] == self._writes:
                if self._stale:
                    for table in ("parts", "events", "turns"):
                        connection.execute(
                            f"DELETE FROM {table} WHERE conversation = ?", (self.id,)
                        )
                return
            if row is not None:
                # Another process continues it: ours becomes a separate one.
                self._written, self._writer = [], EventWriter()
                former, self.id, self._head = self.id, _new_id(), None
                carry_over(connection, self.id, former)
        self.id = self.id or _new_id()
        now = _now()
        title = next(filter(None, (_title(turn.prompt) for turn in turns)), UNTITLED)
        ((equal,),) = connection.execute(
            "SELECT count(*) FROM conversations WHERE title = ? OR title LIKE ? ESCAPE '\\'",
            (title, _like(f"{title} (", before="")),
        ).fetchall()
        if equal:
            title = f"{title} ({equal + 1})"
        connection.execute(
            "INSERT INTO conversations (id, title, created, changed, changed_at, head) VALUES (?,"
            " ?, ?, ?, ?, '{}')",
            (self.id, title, now, now, time.time()),
        )

    def _write_turn(
        self, connection: sqlite3.Connection, number: int, written: _WrittenTurn
    ) -> bool:
        """Write a turn's new events.

        Return whether its sums were written too, as they are at its beginning and end.
        """
        events: list[tuple[str | None, int, int, str]] = []
        parts: list[tuple[str | None, str, int, str]] = []
        ended = False
        for event in written.turn.trace.since(written.count):
            text, messages, tools = self._writer.write(event)
            parts += [(self.id, "message", *row) for row in messages]
            parts += [(self.id, "tool", *row) for row in tools]
            events.append((self.id, number, written.next_number + len(events), text))
            ended = ended or isinstance(event, TurnFinished)
        connection.executemany("INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?)", parts)
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", events)
        begun = written.next_number == 0
        written.count += len(events)
        written.next_number += len(events)
        if not (begun or ended):
            return False
        sums: tuple[object, ...] = (None, None, None, None)
        # Nothing was sent in a turn that was only added.
        if ended and not written.turn.added:
            stats = written.turn.stats
            cost = stats.cost
            is_estimated = stats.parts.origin == "estimated"
            sums = (stats.sent_tokens, is_estimated, cost and cost.amount, cost and cost.currency)
        connection.execute(
            "INSERT OR REPLACE INTO turns (conversation, number, tokens, estimated, cost, currency)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (self.id, number, *sums),
        )
        return True

    def _write_changed_head(
        self, connection: sqlite3.Connection, current: ConversationHead
    ) -> None:
        parts = {"forked_from": self.forked_from, "session": current.session}
        fields = {name: value for name, value in vars(current).items() if name not in parts}
        fields |= {name: asdict(part) for name, part in parts.items() if part is not None}
        # What this version does not know stays in it.
        ((before,),) = connection.execute(
            "SELECT head FROM conversations WHERE id = ?", (self.id,)
        ).fetchall()
        head = encodable(
            json.dumps({**_object(before), **fields}, ensure_ascii=False, default=str), "replace"
        )
        connection.execute(
            "UPDATE conversations SET head = ?, status = 'active', (turns, tokens, estimated, cost,"
            " currency) = (SELECT count(*), sum(tokens), max(estimated), sum(cost), max(currency)"
            " FROM turns WHERE conversation = conversations.id) WHERE id = ?",
            (head, self.id),
        )


class ConversationStore(AbstractContextManager["ConversationStore"]):
    """Saved conversations in an SQLite file. A separate thread writes them.

    All else blocks briefly.

    Use it as a context manager, or call `close`. Later use opens it again. A session closes its
    store, and process exit any that are left.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        self._begin()
        _stores.add(self)

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._requests: SimpleQueue[SavedTurns | Callable[[], object]] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    @classmethod
    def at(cls, path: str | Path) -> ConversationStore:
        """Open a file's store, the same one for every session in this process."""
        file = Path(path).expanduser().absolute()
        with _opening:
            return _open.setdefault(file, cls(file))

    def close(self) -> None:
        """Write the remaining data, and close the file: it is then complete by itself, unless
        another process has it open.
        """
        self.flush()
        if self._pid != os.getpid():
            return
        with self._starting:
            if self._thread is not None:
                self._requests.put(_end)
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.execute(f"PRAGMA busy_timeout = {CHECKPOINT_SECONDS * 1_000:.0f}")
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._closing()

    def __exit__(self, *error: object) -> None:
        self.close()

    def request(self, saved: SavedTurns) -> None:
        """Have a conversation written soon."""
        self._check_process()
        with self._starting:
            self._requests.put(saved)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="casual-mcp-store", daemon=True
                )
                self._thread.start()

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until everything requested so far is written. Return whether it is."""
        done = threading.Event()
        if not self._after_writing(done.set):
            return True
        return done.wait(seconds) and not self.problem

    async def written(self) -> None:
        """Wait until everything requested so far is written, or cannot be for a second."""
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        if self._after_writing(partial(loop.call_soon_threadsafe, done.set)):
            with suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), AHEAD_SECONDS)

    def _after_writing(self, then: Callable[[], object]) -> bool:
        """Have a function called once everything requested so far is written. Return whether
        anything is: without a thread, nobody would call it.
        """
        if self._thread is None or self._pid != os.getpid():
            return False
        with self._starting:
            # It may have ended meanwhile.
            if self._thread is None:
                return False
            self._requests.put(then)
        return True

    def find(
        self, words: str = "", *, status: StoredStatus | None = "active", limit: int = MAX_LISTED
    ) -> StoredConversations:
        """Find saved conversations by words in the title, messages or results, the last changed
        ones first.
        """
        self.flush()
        if not self.path.exists():
            return StoredConversations((), str(self.path), self.problem)
        conditions = ["turns > 0"]
        values: list[str] = []
        if status is not None:
            # A damaged status hides nothing.
            comparison = "=" if status == "archived" else "<>"
            conditions.append(f"status {comparison} 'archived'")
        if words.strip():
            pattern = _like(words.strip())
            within = (
                "SELECT conversation FROM parts WHERE kind = 'message' AND json LIKE ? ESCAPE '\\'"
            )
            conditions.append(f"(title LIKE ? ESCAPE '\\' OR id IN ({within}))")
            values += [pattern, _like(json.dumps(words.strip(), ensure_ascii=False)[1:-1])]
        where = " AND ".join(conditions)
        with self._reading() as connection:
            # One scan for all, since that takes most of the time. Whole rows are read only for
            # those that are returned.
            query = f"SELECT rowid FROM conversations WHERE {where} ORDER BY changed_at DESC"
            ids = connection.execute(query, values).fetchall()
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM conversations WHERE rowid IN (SELECT value FROM"
                " json_each(?)) ORDER BY changed_at DESC",
                (json.dumps([id for (id,) in ids[:limit]]),),
            ).fetchall()
        return StoredConversations(
            tuple(map(_stored, rows)), str(self.path), self.problem, len(ids)
        )

    def last_of(self, notebook: str) -> StoredConversation | None:
        """Find the notebook's conversation that changed last and was not archived, or None."""
        self.flush()
        if not self.path.exists():
            return None
        # A damaged head is of no notebook.
        notebook_of = "CASE WHEN json_valid(head) THEN json_extract(head, '$.session.notebook') END"
        with self._reading() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM conversations WHERE turns > 0 AND status <> 'archived'"
                f" AND {notebook_of} = ? ORDER BY changed_at DESC LIMIT 1",
                (encodable(notebook, "replace"),),
            ).fetchall()
        return _stored(rows[0]) if rows else None

    def get(self, id: str) -> StoredConversation:
        """Look up a saved conversation's summary by its id, or how the id begins."""
        self.flush()
        with self._reading() as connection:
            # A damaged id may be of another type, with which LIKE does not compare.
            match = "CAST(id AS TEXT) LIKE ? ESCAPE '\\'"
            query = (
                f"SELECT {_COLUMNS} FROM conversations WHERE {match} ORDER BY changed_at DESC"
                " LIMIT 2"
            )
            rows = []
            if id:
                rows = connection.execute(query, (_like(id, before=""),)).fetchall()
            if len(rows) != 1:
                recent = connection.execute(
                    "SELECT id FROM conversations ORDER BY changed_at DESC LIMIT 20"
                ).fetchall()
                raise UnknownNameError("saved conversation", id, [str(each) for (each,) in recent])
        return _stored(rows[0])

    def load(self, id: str) -> Conversation:
        """Load a saved conversation, repaired where necessary. See `Conversation.from_json`."""
        return self._read(self.get(id).id)[0]

    def usage(
        self, id: str | None = None, names: Mapping[str, ToolName] | None = None
    ) -> ToolUsage:
        """Count how tools were used in all conversations, archived ones too, or in one.

        Args:
            id: The conversation's id, or how it begins, or None for all.
            names: Tools by their wire name, for those that were only offered.
        """
        from casual_mcp_nb.conversation.stored_usage import read_usage

        whole = None if id is None else self.get(id).id
        self.flush()
        if not self.path.exists():
            return ToolUsage()
        with self._reading() as connection:
            return read_usage(connection, whole, names or {})

    def past_questions(
        self,
        reader: PastQuestionReader,
        tool_of: Callable[[ToolName], ToolSpec | None] | None = None,
    ) -> tuple[PastQuestion, ...]:
        """Read the questions after which a call succeeded, the latest first.

        Args:
            reader: It has what was read before.
            tool_of: Finds a connected tool. If given, other agents' questions count from now on for
                the tools that it knows, as they are now.
        """
        from casual_mcp_nb.conversation.past_questions import keep_definitions

        self.flush()
        if not self.path.exists():
            return ()
        with self._reading() as connection:
            questions = reader.read(connection)
            rows = reader.first_used(connection, tool_of) if tool_of is not None else set()
        if rows:
            # While another kernel writes, or where nobody can: a later search does it.
            with suppress(UsageError), self._writing(busy_seconds=0) as connection:
                keep_definitions(connection, rows)
                questions = reader.read(connection)
        return questions

    def forget_question(self, text: str | None = None) -> None:
        """Have searches learn nothing from a question, or from all of them, as far as they were
        asked until now. The conversations stay.
        """
        from casual_mcp_nb.conversation.past_questions import forget

        self.flush()
        with self._writing() as connection:
            forget(connection, text)

    @contextmanager
    def counting(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that counts what requests to models take."""
        with self._writing() as connection:
            create_table(connection)
            yield connection

    def open(self, id: str, saved: SavedTurns) -> Conversation:
        """Load a saved conversation as `load` does, and have its next turns saved with it."""
        whole = self.get(id).id
        conversation, writes, written, writer = self._read(whole)
        saved.adopt(whole, writes, written, writer)
        return conversation

    def add(
        self, conversation: Conversation, head: ConversationHead | None = None
    ) -> StoredConversation:
        """Save a conversation, such as one loaded from a file, under a new id."""
        if not conversation:
            raise UsageError("This conversation has no turns.")
        if head is None:
            head = ConversationHead(conversation[-1].started.model or None)
        saved = SavedTurns(self, lambda: head)
        saved.save(conversation)
        if not self.flush() or saved.id is None:
            raise UsageError(
                f"It could not be saved: {self.problem or 'another process is writing'}."
            )
        return self.get(saved.id)

    def rename(self, id: str, title: str) -> StoredConversation:
        """Give a saved conversation another title."""
        if not (title := _title(title)):
            raise UsageError("A title cannot be empty.")
        return self._change(id, "title", title)

    def archive(self, id: str) -> StoredConversation:
        """Leave a conversation out of lists. `restore` ends it, and so does continuing it."""
        return self._change(id, "status", "archived")

    def restore(self, id: str) -> StoredConversation:
        """End `archive`."""
        return self._change(id, "status", "active")

    def delete(self, id: str) -> StoredConversation:
        """Delete a saved conversation, and return it.

        A session that has it open keeps its turns, and saves none.
        """
        stored = self.get(id)
        with self._writing() as connection:
            # The id may be of another type in the file than in the list.
            connection.execute("DELETE FROM conversations WHERE CAST(id AS TEXT) = ?", (stored.id,))
        return stored

    def _change(self, id: str, column: str, value: str) -> StoredConversation:
        whole = self.get(id).id
        with self._writing() as connection:
            connection.execute(
                f"UPDATE conversations SET {column} = ? WHERE id = ?", (value, whole)
            )
        return self.get(whole)

    def _read(self, id: str) -> tuple[Conversation, int, list[_WrittenTurn], EventWriter]:
        """Read a conversation with what saving its next turns needs."""
        with self._reading() as connection, _transaction(connection, "BEGIN"):
            (writes,) = connection.execute(
                "SELECT writes FROM conversations WHERE id = ?", (id,)
            ).fetchone()
            messages = _parts(connection, id, "message")
            tools = _parts(connection, id, "tool")
            events = connection.execute(
                "SELECT turn, number, json FROM events WHERE conversation = ? ORDER BY turn,"
                " number",
                (id,),
            ).fetchall()
            fields = dict(
                connection.execute(
                    "SELECT number, fields FROM turns WHERE conversation = ?", (id,)
                ).fetchall()
            )
        try:
            conversation, written = _assembled(messages, tools, events, fields)
            writer = EventWriter(map(json.loads, messages), map(json.loads, tools))
            return conversation, writes, written, writer
        except (UsageError, *_DAMAGE):
            hint = "It can still be deleted, and the others can be used."
            raise UsageError(f"The saved conversation {shown(id)} is damaged.", hint=hint) from None

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self._check_process()
        with self._lock:
            try:
                if self._connection is None:
                    connection = connect(self.path)
                    # Not `__del__`: among garbage, the connection's own could run first, and warn.
                    self._closing = weakref.finalize(self, _close, connection, self._pid)
                    # What is left at exit is written first: see `_close_all`.
                    self._closing.atexit = False
                    self._connection = connection
                yield self._connection
            except (sqlite3.Error, OSError) as error:
                reason = f"{shown(self.path)} cannot be used: {_reason(error)}."
                raise UsageError(
                    reason, hint="Give another path as store, or store=None to save nothing."
                ) from None

    @contextmanager
    def _writing(self, busy_seconds: float = BUSY_SECONDS) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection:
            _wait_at_most(connection, busy_seconds)
            try:
                with _transaction(connection, "BEGIN IMMEDIATE"):
                    yield connection
            finally:
                _wait_at_most(connection, BUSY_SECONDS)

    def _work(self) -> None:
        while True:
            requests = [self._requests.get()]
            deadline = time.monotonic() + GATHER_SECONDS
            with suppress(Empty):
                while isinstance(requests[-1], SavedTurns):
                    requests.append(self._requests.get(timeout=max(0, deadline - time.monotonic())))
            # Several requests for one conversation are one.
            self._write(list(dict.fromkeys(of_type(requests, SavedTurns))))
            last = requests[-1]
            if last is _end:
                with self._starting:
                    if self._requests.empty():
                        self._thread = None
                        return
            elif not isinstance(last, SavedTurns):
                with suppress(RuntimeError):
                    # The loop that waits for it may be closed by now.
                    last()

    def _write(self, conversations: list[SavedTurns]) -> None:
        for saved in conversations:
            try:
                with self._writing() as connection:
                    writes = saved.write(connection)
                saved.written(writes)
                self.problem = ""
            except Exception as error:
                # What is not saved now is saved with the next event.
                saved.rolled_back()
                if not self.problem:
                    logger.warning("A conversation is not saved: %s", error)
                self.problem = str(error)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            # A forked child: thread, lock and connection are the parent's.
            self._begin()


def _end() -> None:
    """End the thread that writes."""


def _close(connection: sqlite3.Connection, pid: int) -> None:
    """Close a store's connection, unless it is that of a forked child's parent, which that would
    harm.
    """
    if pid == os.getpid():
        connection.close()
    else:
        _inherited.append(connection)


_opening = threading.Lock()
_open: dict[Path, ConversationStore] = {}
_stores: weakref.WeakSet[ConversationStore] = weakref.WeakSet()
_inherited: list[sqlite3.Connection] = []


@atexit.register
def _close_all() -> None:
    for store in list(_stores):
        store.close()


def _assembled(
    messages: Sequence[str],
    tools: Sequence[str],
    events: Sequence[tuple[int, int, str]],
    fields: Mapping[int, str],
) -> tuple[Conversation, list[_WrittenTurn]]:
    """Build a conversation from its rows, and note how far its turns are saved.

    Damaged rows raise a ValueError or a TypeError.
    """
    turns: dict[int, list[str]] = {}
    last: dict[int, int] = {}
    for turn, number, text in events:
        turns.setdefault(turn, []).append(text)
        last[turn] = number
    rows = [(texts, fields.get(number, "{}")) for number, texts in turns.items()]
    conversation = Conversation.from_json(document_of(messages, tools, rows))
    # The trace lacks unknown events, and the file lacks the end that loading gives an unfinished
    # turn.
    written: list[_WrittenTurn] = []
    for number, turn_read in zip(turns, conversation, strict=True):
        unknown = sum(map(len, turn_read.trace.unread.events.values()))
        count = len(turns[number]) - unknown
        written.append(_WrittenTurn(turn_read, count, last[number] + 1))
    return conversation, written


T = TypeVar("T")
_DAMAGE = (ValueError, TypeError, OverflowError, OSError, RecursionError)


class _Row:
    """A row as the file has it, where another program or a failing disk may have written
    anything.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.damaged: list[str] = []

    def read(self, name: str, convert: Callable[[Any], T], neutral: T) -> T:
        """Convert a column, or note that it is damaged and return something neutral."""
        try:
            return convert(self._values[name])
        except _DAMAGE:
            self.damaged.append(name)
            return neutral

    def value(self, name: str, kind: type | UnionType, neutral: T) -> T:
        """Get a column as it is, or note that it is of another type and return something neutral."""
        value: T = self._values[name]
        if isinstance(value, kind):
            return value
        self.damaged.append(name)
        return neutral


def _stored(values: Sequence[Any]) -> StoredConversation:
    """Build a summary from a row. What is damaged in it costs only itself."""
    columns = dict(zip(_COLUMNS.split(", "), values, strict=True))
    row = _Row(columns)
    cost = row.value("cost", int | float | None, None)
    currency = row.value("currency", str | None, None)
    id = columns["id"]
    if isinstance(id, bytes):
        id = id.decode("utf-8", "replace")
    long_ago = datetime.fromtimestamp(0).astimezone()
    return StoredConversation(
        id=str(id),
        title=row.value("title", str, UNTITLED),
        status=row.read("status", _status, "active"),
        created=row.read("created", datetime.fromisoformat, long_ago),
        changed=row.read("changed", datetime.fromisoformat, long_ago),
        head=row.read("head", _head, ConversationHead()),
        turns=row.value("turns", int | None, None) or 0,
        tokens=row.value("tokens", int | None, None),
        origin="estimated" if columns["estimated"] else "reported",
        cost=None if cost is None or not currency else Cost(cost, currency),
        damaged=tuple(row.damaged),
    )


def _status(value: Any) -> StoredStatus:
    if value not in ("active", "archived"):
        raise ValueError("Unknown.")
    status: StoredStatus = value
    return status


def _head(value: Any) -> ConversationHead:
    return load_value(ConversationHead, json.loads(value))


def _object(text: Any) -> dict[str, Any]:
    """Read a JSON object, or nothing where it is damaged."""
    value = read_json(text)
    return value if isinstance(value, dict) else {}


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    """Run the body in a transaction, which is over afterwards in any case."""
    try:
        connection.execute(begin)
        yield
        connection.execute("COMMIT")
    except BaseException:
        # An interrupt can come as soon as it has begun or ended.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _wait_at_most(connection: sqlite3.Connection, seconds: float) -> None:
    """Set how long a statement waits for another process that writes."""
    connection.execute(f"PRAGMA busy_timeout = {round(1000 * seconds)}")


def _parts(connection: sqlite3.Connection, id: str, kind: str) -> list[str]:
    """Read a conversation's messages, or its tools, as JSON."""
    query = "SELECT json FROM parts WHERE conversation = ? AND kind = ? ORDER BY number"
    return [text for (text,) in connection.execute(query, (id, kind))]


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _title(text: str) -> str:
    line = " ".join(encodable(text, "replace").split())
    if len(line) > MAX_TITLE:
        line = f"{cut_at_word(line, MAX_TITLE - 1)}…"
    return line


def _like(text: str, before: str = "%") -> str:
    escaped = encodable(text, "replace")
    for special in ("\\", "%", "_"):
        escaped = escaped.replace(special, f"\\{special}")
    return f"{before}{escaped}%"


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).rstrip(".")
