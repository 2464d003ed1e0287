"""What turns cost, as far as that can be estimated before they are run."""

from __future__ import annotations

from dataclasses import dataclass

from casual_mcp_nb.types.displayable import Displayable


@dataclass(frozen=True)
class TurnCosts:
    """Estimated tokens that are sent.

    Args:
        first_request: System prompt, definitions and manifest, before anything is asked.
        turn: A turn with one call, and one search before it where tools are deferred; all its requests together.
        ten_turns: Ten such turns of one conversation.
    """

    first_request: int
    turn: int
    ten_turns: int


@dataclass(frozen=True)
class Budget(Displayable):
    """What turns cost as the selection is now, and if every tool were loaded.

    Args:
        now: As it is now.
        undeferred: If every tool were loaded.
    """

    now: TurnCosts
    undeferred: TurnCosts
