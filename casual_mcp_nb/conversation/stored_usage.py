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
from casual_mcp_nb.conversation.usage import Offers, ToolUsage, UsageCounter, UsageRow

_FIELDS = {
    "TurnStarted": ("began", "model", "recorded"),
    "StepStarted": ("request.tools", "request.found"),
    "ToolsSearched": ("rows", "at"),
    "ToolStarted": ("at", "call_id", "tool", "wire_name"),
    "ToolFinished": ("at", "call_id", "status"),
    "ApprovalAsked": ("at", "call_id"),
    "ApprovalAnswered": ("at", "call_id"),
    "AppCalled": ("began", "tool", "status", "seconds"),
}


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


_EVENTS = query_of(_FIELDS)
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
        known: dict[str, UsageRow] = {}
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
    known: dict[str, UsageRow],
) -> Iterator[UsageRow]:
    """Read a turn's rows. `known` has those of earlier requests: many offer the same tools."""
    for _conversation, _turn, event, fields in rows:
        row = known.get(fields) if event == "StepStarted" else None
        if row is None:
            try:
                row = _row(event, from_json(fields), definitions)
            except _DAMAGE:
                continue
            if event == "StepStarted":
                known[fields] = row
        yield row


def _row(
    event: str, values: Sequence[Any], definitions: Sequence[tuple[str, int] | None]
) -> UsageRow:
    match event:
        case "TurnStarted":
            began, model, recorded = values
            return UsageRow(
                event, began=began and float(began), added=not model, recorded=int(recorded or 0)
            )
        case "StepStarted":
            tools, found = values
            offered = spread((*tools, *(found or ())), definitions)
            return UsageRow(event, offered=tuple(of_type(offered, tuple)))
        case "ToolsSearched":
            hits, _at = values
            return UsageRow(event, hits=tuple([_tool(hit["tool"]) for hit in hits]))
        case "ToolStarted":
            at, call_id, tool, name = values
            return UsageRow(event, float(at), None, str(call_id), _tool(tool), str(name or ""))
        case "ToolFinished":
            at, call_id, status = values
            return UsageRow(event, float(at), call_id=str(call_id), status=str(status))
        case "AppCalled":
            began, tool, status, seconds = values
            return UsageRow(
                event,
                began=float(began),
                tool=_tool(tool),
                status=str(status),
                seconds=float(seconds),
            )
    at, call_id = values
    return UsageRow(event, float(at), call_id=str(call_id))


def _tool(fields: Mapping[str, Any]) -> ToolName:
    return ToolName(str(fields["server"]), str(fields["tool"]))
