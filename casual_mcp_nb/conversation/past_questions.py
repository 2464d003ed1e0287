"""The person's questions and a model's searches after which a call of a tool succeeded, read from
the file of saved conversations.

No arguments and no results are read. What a search learns from is always what the file says now: a
conversation that is deleted, or was never saved, teaches nothing.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

from casual_mcp_nb.base.displayable import DisplayableList
from casual_mcp_nb.base.tool import SYNTHETIC, ToolName, ToolSpec, hash_of
from casual_mcp_nb.conversation.codec import read_message
from casual_mcp_nb.conversation.foreign.added import own_words
from casual_mcp_nb.conversation.foreign.draft import MAX_TEXT, OWN_TOOLS
from casual_mcp_nb.conversation.step import text_of
from casual_mcp_nb.conversation.stored_usage import query_of
from casual_mcp_nb.errors import shown

MAX_QUESTIONS = 1_000
"""How many questions count, the latest ones."""
MAX_CONVERSATIONS = 500
"""How many conversations are read, those that changed last."""
MAX_QUESTION = 300
"""How many characters of a question count."""
_SHOWN = 60


def local_time(when: float | None) -> datetime | None:
    """Convert seconds since 1970. None if that is no time: a file can say anything."""
    if when is None:
        return None
    try:
        return datetime.fromtimestamp(when)
    except (ValueError, OverflowError, OSError):
        return None


@dataclass(frozen=True)
class PastQuestion:
    """A question or a search query, and a tool that was then called with success.

    Args:
        text: The beginning of the question.
        tool: The tool.
        definition: The hash of the tool's definition at that time. With another one, the question
            does not count any more. Empty if another agent called the tool, and no search has used
            the question yet.
        when: When its turn began, in seconds since 1970, or None if the file does not say.
        conversation: The id of its conversation.
        agent: The other agent that was asked, or empty.
    """

    text: str
    tool: ToolName
    definition: str = field(repr=False)
    when: float | None
    conversation: str
    agent: str = ""

    @property
    def day(self) -> str:
        """The day, such as `3 November 2026`, or empty if it is not known."""
        moment = local_time(self.when)
        if moment is None:
            return ""
        return f"{moment.day} {moment:%B %Y}"

    @property
    def occasion(self) -> str:
        """What a search learned from it, in words: `called after "…" on 3 November 2026`."""
        words = f"called after {shown(self.text, _SHOWN)}"
        if self.agent:
            words += " in another agent's session"
        return f"{words} on {self.day}" if self.day else words


@dataclass(frozen=True)
class PastQuestions(DisplayableList[PastQuestion], items="questions"):
    """The questions that searches learn from, the latest first.

    Attributes:
        questions: A question counts once for each tool.
        note: Why searches do not use them, or empty.
    """

    questions: tuple[PastQuestion, ...] = field(default=(), repr=False)
    note: str = ""


_FIELDS = {
    "TurnStarted": ("began", "messages", "agent"),
    "ToolsSearched": ("query", "rows"),
    "ToolFinished": ("status", "tool", "permission.by", "permission.definition"),
    "TurnFinished": ("status", "at"),
}
_EVENTS = f"{query_of(_FIELDS)} AND conversation = ? ORDER BY turn, number"
_LATEST = "SELECT id, writes FROM conversations ORDER BY changed_at DESC LIMIT ?"
_MESSAGES = (
    "SELECT json FROM parts WHERE conversation = ? AND kind = 'message' AND number >= ? AND number"
    " < ? ORDER BY number DESC"
)
_FORGOTTEN = (
    "CREATE TABLE IF NOT EXISTS forgotten (question TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT"
    " ROWID"
)
_WHEN_FORGOTTEN = "SELECT question, at FROM forgotten WHERE typeof(at) = 'real'"
_ALL = ""
"""The row for all questions."""
_DEFINITIONS = (
    "CREATE TABLE IF NOT EXISTS definitions (conversation TEXT NOT NULL REFERENCES conversations ON"
    " DELETE CASCADE, server TEXT NOT NULL, tool TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY"
    " (conversation, server, tool)) WITHOUT ROWID"
)
"""The tools of other agents' conversations, whose files do not have the definitions: as they were
when a search first used the conversation.
"""
_OFFERED = (
    "SELECT json FROM parts WHERE conversation = ? AND kind = 'tool' AND json_valid(json)"
    " ORDER BY number DESC"
)
"""The definitions that a conversation's requests have, the last one first."""
_DEFINED = "SELECT conversation, server, tool, digest FROM definitions"
_DAMAGE = (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError)
_NO_SERVERS = frozenset({SYNTHETIC, *OWN_TOOLS.values()})
"""The servers under which another agent's searches and its built-in tools are listed."""
_BY_NAME = "select:"
"""How Claude Code's searches begin that name tools."""


class PastQuestionReader:
    """Reads past questions. Conversations are read again only after they have changed."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[int, Sequence[PastQuestion]]] = {}
        self._last: tuple[PastQuestion, ...] = ()
        self._definitions: Mapping[tuple[str, ToolName], str] = {}
        # Conversations whose requests have another definition of a tool, with its hash.
        self._changed: set[tuple[str, str]] = set()

    def read(self, connection: sqlite3.Connection) -> tuple[PastQuestion, ...]:
        """Read the latest questions, the last one first. The same tuple if nothing has changed."""
        before, self._read = self._read, {}
        for id, writes in connection.execute(_LATEST, (MAX_CONVERSATIONS,)).fetchall():
            read = before.get(id)
            if read is None or read[0] != writes:
                read = writes, tuple(_questions_in(connection, id))
            self._read[id] = read
        forgotten = dict(_rows(connection, _WHEN_FORGOTTEN))
        self._definitions = {
            (id, ToolName(server, tool)): digest
            for id, server, tool, digest in _rows(connection, _DEFINED)
        }
        distinct: dict[tuple[str, ToolName, str], PastQuestion] = {}
        for question in sorted(self._questions(), key=_age):
            if question.agent:
                digest = self._definitions.get((question.conversation, question.tool), "")
                question = replace(question, definition=digest)
            if not _is_forgotten(question, forgotten):
                distinct.setdefault((question.text, question.tool, question.definition), question)
        questions = tuple(islice(distinct.values(), MAX_QUESTIONS))
        if questions != self._last:
            self._last = questions
        return self._last

    def _questions(self) -> Iterator[PastQuestion]:
        for _writes, questions in self._read.values():
            yield from questions

    def first_used(
        self, connection: sqlite3.Connection, tool_of: Callable[[ToolName], ToolSpec | None]
    ) -> set[tuple[str, str, str, str]]:
        """Find the tools that other agents called, in any of the conversations that were read, and
        that are connected for the first time, as rows for `keep_definitions`.

        A tool that differs from what the conversation has of its definition is left out.
        """
        places = set()
        for question in self._questions():
            if question.agent:
                places.add((question.conversation, question.tool))
        rows: set[tuple[str, str, str, str]] = set()
        for id, name in places - self._definitions.keys():
            tool = tool_of(name)
            if tool is None or (id, tool.digest) in self._changed:
                continue
            if _is_as_recorded(connection, id, tool):
                rows.add((id, name.server, name.tool, tool.digest))
            else:
                self._changed.add((id, tool.digest))
        return rows


def keep_definitions(
    connection: sqlite3.Connection, rows: Iterable[tuple[str, str, str, str]]
) -> None:
    """Remember the hashes of definitions that `first_used` found."""
    connection.execute(_DEFINITIONS)
    connection.executemany("INSERT OR IGNORE INTO definitions VALUES (?, ?, ?, ?)", rows)


def _is_as_recorded(connection: sqlite3.Connection, id: str, tool: ToolSpec) -> bool:
    """Check whether a tool is as in the last request of a conversation that has its definition.

    If none has more of it than its name, it is.
    """
    names = {*tool.aliases, tool.wire_name, f"mcp__{tool.tool_name.joined}"}
    for (text,) in connection.execute(_OFFERED, (id,)):
        with suppress(*_DAMAGE):
            offered = json.loads(text)
            if offered["name"] in names:
                return _meaning(offered) in (_meaning(tool.definition), _ONLY_A_NAME)
    return True


_ONLY_A_NAME: tuple[list[str], list[str]] = ([], [])


def _meaning(definition: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    return definition["description"].split(), sorted(definition["parameters"].get("properties", ()))


def _rows(connection: sqlite3.Connection, query: str) -> list[Any]:
    try:
        return connection.execute(query).fetchall()
    except sqlite3.OperationalError:
        # The table is created when it is first needed.
        return []


def forget(connection: sqlite3.Connection, text: str | None = None) -> None:
    """Forget a question, or all of them, as far as they were asked until now.

    The file keeps only its hash.
    """
    connection.execute(_FORGOTTEN)
    key = _ALL if text is None else hash_of(text)
    connection.execute("INSERT OR REPLACE INTO forgotten VALUES (?, ?)", (key, time.time()))


def _is_forgotten(question: PastQuestion, forgotten: Mapping[str, float]) -> bool:
    if not forgotten:
        return False
    until = max(forgotten.get(_ALL, 0.0), forgotten.get(hash_of(question.text), 0.0))
    return (question.when or 0.0) < until


def _age(question: PastQuestion) -> float:
    return -(question.when or 0.0)


def _questions_in(connection: sqlite3.Connection, id: str) -> Iterator[PastQuestion]:
    """Read a conversation's questions. Damaged rows are skipped."""
    for _number, rows in groupby(connection.execute(_EVENTS, (id,)).fetchall(), itemgetter(1)):
        turn = _PastTurn()
        for _id, _number, event, fields in rows:
            with suppress(*_DAMAGE):
                turn.add(event, json.loads(fields))
        yield from turn.questions(connection, id)


@dataclass
class _PastTurn:
    """What a turn teaches."""

    began: float | None = None
    agent: str = ""
    messages: Sequence[Sequence[int]] = ()
    searches: list[tuple[str, set[ToolName]]] = field(default_factory=list)
    taught: dict[tuple[str, ToolName, str], None] = field(default_factory=dict)
    ended: bool = False

    def add(self, event: str, values: Sequence[Any]) -> None:
        """Read an event. Raises one of `_DAMAGE` if it is damaged."""
        match event, values:
            case "TurnStarted", [began, messages, agent]:
                self.messages = messages
                self.agent = str(agent or "")[:_SHOWN]
                self.began = None if began is None else float(began)
            case "ToolsSearched", [query, rows]:
                # The others were requested by name. Of another agent's search, no score is known.
                ranked = {
                    _tool(row["tool"])
                    for row in rows
                    if row["score"] is not None or (self.agent and not query.startswith(_BY_NAME))
                }
                self.searches.append((str(query), ranked))
            case "TurnFinished", _:
                self.ended = True
            case "ToolFinished", ["ok", tool, _, _] if self.agent:
                if tool["server"] not in _NO_SERVERS:
                    self._succeeded(_tool(tool), "")
            case "ToolFinished", ["ok", tool, authority, str(definition)] if definition:
                # A stub's answer says nothing about the tool.
                if authority != "mock":
                    self._succeeded(_tool(tool), definition)

    def _succeeded(self, tool: ToolName, definition: str) -> None:
        self.taught[_PROMPT, tool, definition] = None
        for query, found in self.searches:
            if tool in found:
                self.taught[query, tool, definition] = None

    def questions(self, connection: sqlite3.Connection, id: str) -> Iterator[PastQuestion]:
        """Yield what it teaches, each question once for each tool."""
        if not self.ended:
            # A running turn learns nothing from itself.
            return
        prompt = ""
        if self.taught:
            with suppress(*_DAMAGE):
                prompt = _prompt(connection, id, self.messages)
        if self.agent:
            prompt = own_words(prompt[:MAX_TEXT])
        for text, tool, definition in self.taught:
            text = " ".join((text or prompt)[: 2 * MAX_QUESTION].split())[:MAX_QUESTION]
            if text:
                yield PastQuestion(text, tool, definition, self.began, id, self.agent)


_PROMPT = ""
"""Stands for the person's message, which is read last."""


def _prompt(connection: sqlite3.Connection, id: str, spans: Sequence[Sequence[int]]) -> str:
    """Read the text of a turn's last user message."""
    for start, end in reversed(spans):
        for (text,) in connection.execute(_MESSAGES, (id, start, end)).fetchall():
            message = read_message(json.loads(text))
            if message.role == "user":
                return text_of(message.content)
    return ""


def _tool(fields: Mapping[str, Any]) -> ToolName:
    return ToolName(str(fields["server"]), str(fields["tool"]))
