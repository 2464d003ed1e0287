"""Which tools were really used, read from the file of saved conversations without its texts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json

from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.codec import spread
from casual_mcp_nb.conversation.usage import (
    FIELDS,
    Offer,
    ToolUsage,
    UsageCounter,
    UsedEvent,
    name_and_tokens,
)


def query_of(fields: Mapping[str, Iterable[str]]) -> str:
    """Write a query for the events that have some fields: conversation, turn, event, and the
    values as a JSON list. Damaged events are left out.

    Args:
        fields: For each kind of event the fields to read, at least two.
    """
    values = []
    for event, names in fields.items():
        paths = ", ".join(f"'$.{name}'" for name in names)
        values.append(f"WHEN '{event}' THEN json_extract(json, {paths})")
    return f"""
SELECT conversation, turn, event, CASE event {" ".join(values)} END AS fields
FROM (
    SELECT conversation, turn, number, json,
        CASE WHEN json_valid(json) THEN json_extract(json, '$.event') END AS event
    FROM events
)
WHERE fields IS NOT NULL
"""


_EVENTS = query_of(FIELDS)
_ORDER = " ORDER BY conversation, turn, number"
_DEFINITIONS = "SELECT json FROM parts WHERE conversation = ? AND kind = 'tool' ORDER BY number"
_MESSAGES = (
    "SELECT json FROM parts WHERE conversation = ? AND kind = 'message' AND number >= ? AND number"
    " < ? ORDER BY number"
)
_DAMAGE = (ValueError, TypeError, KeyError, AttributeError)


def read_usage(
    connection: sqlite3.Connection, id: str | None, names: Mapping[str, ToolName]
) -> ToolUsage:
    """Count the uses of tools in a saved conversation, or in all. Damaged rows are skipped.

    Args:
        connection: The file.
        id: The conversation, or None for all.
        names: Tools by their wire name, see `UsageCounter.usage`.
    """
    counter, definition_in = UsageCounter(), cache(_definition_in)
    query, values = f"{_EVENTS}{_ORDER}", []
    if id is not None:
        query, values = f"{_EVENTS} AND conversation = ?{_ORDER}", [id]
    for conversation, events in groupby(connection.execute(query, values), itemgetter(0)):
        # Many requests offer the same tools.
        known: dict[str, Offer] = {}
        texts = connection.execute(_DEFINITIONS, (conversation,))
        definitions = [definition_in(text) for (text,) in texts]
        counter.add_conversation()
        for _turn, rows in groupby(events, itemgetter(1)):
            counter.add_turn(_events(connection, rows, definitions, known))
    return counter.usage(names)


def _definition_in(text: str) -> tuple[str, int] | None:
    with suppress(*_DAMAGE):
        return name_and_tokens(from_json(text))
    return None


def _events(
    connection: sqlite3.Connection,
    rows: Iterable[tuple[str, int, str, str]],
    definitions: Sequence[tuple[str, int] | None],
    known: dict[str, Offer],
) -> Iterator[UsedEvent]:
    """Read a turn's rows. `known` has the offers of earlier requests."""
    for conversation, _turn, event, fields in rows:
        with suppress(*_DAMAGE):
            if event == "StepStarted":
                if fields not in known:
                    tools, found = _reader(event).validate_json(fields)
                    offered = spread((*tools, *(found or ())), definitions)
                    known[fields] = tuple(of_type(offered, tuple))
                yield event, [known[fields]]
                continue
            values = _reader(event).validate_json(fields)
            if event == "TurnStarted":
                *others, agent, spans = values
                # This package's own turns are told apart by their time.
                asked = _messages(connection, conversation, spans) if agent else ()
                values = *others, agent, asked
            yield event, values


def _messages(
    connection: sqlite3.Connection, conversation: str, spans: Sequence[Any] | None
) -> tuple[Any, ...]:
    """Read messages as the file has them, as far as they are not damaged."""
    rows: list[Any] = []
    with suppress(*_DAMAGE, OverflowError, sqlite3.Error):
        for start, end in spans or ():
            rows += connection.execute(_MESSAGES, (conversation, start, end)).fetchall()
    return tuple(rows)


@cache
def _reader(event: str) -> TypeAdapter[Any]:
    of_types: Any = tuple
    return TypeAdapter(of_types[*FIELDS[event].values()])
