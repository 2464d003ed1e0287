"""The sessions of other agents, as a view."""

from __future__ import annotations

from casual_mcp_nb.conversation.foreign.listing import ForeignSession, ForeignSessions
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import (
    Cell,
    DisplayLimits,
    Name,
    Table,
    TextBlock,
    View,
    columns,
)

_COLUMNS = columns(
    "Changed", "Agent", "Title", "Turns #", "Calls #", "Tokens #", "Not understood #", "File"
)


def foreign_sessions_view(sessions: ForeignSessions, limits: DisplayLimits) -> View:
    """Show the sessions, the newest first."""
    rows = tuple(map(_row, sessions.sessions[: limits.rows]))
    total = max(len(sessions), sessions.total)
    block: Table | TextBlock = TextBlock("None in ~/.claude/projects and ~/.codex/sessions.")
    if rows:
        block = Table(_COLUMNS, rows, total - len(rows))
    note = words.count(total, "session")
    return View("foreign-sessions", "Sessions of other agents", (block,), note=note)


def _row(session: ForeignSession) -> tuple[Cell, ...]:
    return (
        session.changed.strftime("%Y-%m-%d %H:%M"),
        session.agent,
        session.title,
        _number(session.turns, session),
        _number(session.calls, session),
        _number(session.tokens, session),
        _number(session.unread, session) if session.unread else "",
        Name(str(session.path)),
    )


def _number(number: int, session: ForeignSession) -> str:
    """Format a number. Of a file that was read in part, it is the least."""
    return words.number(number) if session.whole else f"≥ {words.number(number)}"
