"""Views of saved conversations."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.view import DisplayLimits, Name, Table, TextBlock, View, columns
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.types.stored import StoredConversation, StoredConversations


def stored_view(stored: StoredConversations, limits: DisplayLimits) -> View:
    """Show saved conversations, the last changed one first."""
    try:
        stored = stored.read()
    except UsageError as error:
        stored = StoredConversations(problem=str(error))
    visible = stored.conversations[: limits.rows]
    rows = tuple(
        (
            Name(each.id),
            each.title if each.status == "active" else f"{each.title} (archived)",
            _when(each.changed),
            words.number(each.turns),
            words.about(each.tokens, each.origin),
            str(each.cost or ""),
        )
        for each in visible
    )
    table = Table(
        columns("Id", "Title", "Changed", "Turns #", "Tokens #", "Cost #"), rows, max(len(stored), stored.total) - len(rows)
    )
    problem = (TextBlock(stored.problem),) if stored.problem else ()
    note = words.count(max(len(stored), stored.total), "conversation")
    return View("stored-conversations", "Saved conversations", (*problem, table if rows else TextBlock("None.")), note=note)


def stored_conversation_view(stored: StoredConversation, limits: DisplayLimits) -> View:
    """Show the known details of one saved conversation."""
    view, origin = stored_view(StoredConversations((stored,)), limits), stored.head.forked_from
    if origin is None:
        return view
    position = f"turn {origin.turn + 1:,}" if origin.step is None else f"step {origin.step + 1:,} of turn {origin.turn + 1:,}"
    return replace(view, blocks=(*view.blocks, TextBlock(f"Forked from {origin.id}, {position}.")))


def _when(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M")
