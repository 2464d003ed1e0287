"""The sub-commands that go back in the conversation, stop it, and open its panel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import UsageError

if TYPE_CHECKING:
    from casual_mcp_nb.notebook.session import Session


def rerun(session: Session, rest: str) -> Any:
    """Ask a turn again: the last one unless a number stands first, with another text if there is one."""
    number, _, text = rest.strip().partition(" ")
    if not number.isdecimal():
        number, text = "", rest
    if number == "0":
        raise UsageError("There is no turn 0.", hint="Turns count from 1; %mcp history lists them.")
    turn = session.rerun(int(number) - 1 if number else -1, text.strip() or None)
    turn.raise_for_status()
    return turn


def undo(session: Session, rest: str) -> Any:
    """Take back the last turn."""
    if session.undo() is None:
        raise UsageError("There is no turn to take back.")
    return session.status


def stop(session: Session, rest: str) -> Any:
    """Stop the turn that a panel runs."""
    session.stop()
    return session.status


def panel(session: Session, rest: str) -> Any:
    """Open a panel."""
    return session.panel()
