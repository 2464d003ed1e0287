"""Which tools were really used, read from the file of saved conversations without its texts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import Any

from pydantic_core import from_json

from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.codec import spread
from casual_mcp_nb.conversation.usage import (
    FIELDS,
    Offers,
    ToolUsage,
    UsageCounter,
    UsageRow,
    row_of,
)


def query_of(fields: Mapping[str, Sequence[str]]) -> str:
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
    counter, offers = UsageCounter(), Offers()
    query, values = f"{_EVENTS}{_ORDER}", []
    if id is not None:
        query, values = f"{_EVENTS} AND conversation = ?{_ORDER}", [id]
    for conversation, events in groupby(connection.execute(query, values), itemgetter(0)):
        definitions: list[tuple[str, int] | None] = []
        known: dict[tuple[str, str], UsageRow] = {}
        for (text,) in connection.execute(_DEFINITIONS, (conversation,)):
            with suppress(*_DAMAGE):
                definitions.append(offers.read_text(text))
        counter.add_conversation()
        for _turn, rows in groupby(events, itemgetter(1)):
            counter.add_turn(_rows(rows, definitions, known))
    return counter.usage(names)


def _rows(
    rows: Iterable[tuple[str, int, str, str]],
    definitions: Sequence[tuple[str, int] | None],
    known: dict[tuple[str, str], UsageRow],
) -> Iterator[UsageRow]:
    """Read a turn's rows. `known` has those of earlier requests: many offer the same tools."""
    for _conversation, _turn, event, fields in rows:
        row = known.get((event, fields))
        if row is None:
            offered: Sequence[Any] = ()
            try:
                values = from_json(fields)
                if event == "StepStarted":
                    tools, found = values
                    offered = of_type(spread((*tools, *(found or ())), definitions), tuple)
                row = row_of(event, values, tuple(offered))
            except _DAMAGE:
                continue
            if event == "StepStarted":
                known[event, fields] = row
        yield row
