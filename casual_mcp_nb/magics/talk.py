"""The sub-commands that go back in the conversation, stop it, and open its panel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import UsageError

if TYPE_CHECKING:
    from casual_mcp_nb.session import Session


def rerun(session: Session, rest: str) -> Any:
    """Ask a turn again: the last one unless a number stands first, with another text if there is one."""
    number, _, text = rest.strip().partition(" ")
    if not re.fullmatch(r"-?[0-9]{1,9}", number):
        number, text = "-1", rest
    count = len(session.turns)
    index = int(number) - (int(number) > 0)
    if number.lstrip("-0") == "" or not -count <= index < count:
        hint = f"There are turns 1 to {count}; -1 is the last one." if count else "There are no turns yet."
        raise UsageError(f"There is no turn {int(number)}.", hint=hint)
    turn = session.rerun(index, text.strip() or None)
    turn.raise_for_status()
    return turn


def undo(session: Session, rest: str) -> Any:
    """Take back the last turn."""
    if session.undo() is None:
        raise UsageError("There is no turn to undo.")
    return session.status


def stop(session: Session, rest: str) -> Any:
    """Stop the turn that a panel runs."""
    session.stop()
    return session.status


def panel(session: Session, rest: str) -> Any:
    """Open a panel."""
    return session.panel()
