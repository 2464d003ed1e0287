"""Estimated cost of turns before they run."""

from __future__ import annotations

from dataclasses import dataclass

from casual_mcp_nb.types.displayable import Displayable


@dataclass(frozen=True)
class TurnCosts:
    """Estimated input tokens.

    Args:
        first_request: System prompt, definitions and manifest, before the first message.
        turn: A turn with one call, preceded by a search if tools are deferred; all its requests together.
        ten_turns: Ten such turns of one conversation.
    """

    first_request: int
    turn: int
    ten_turns: int


@dataclass(frozen=True)
class Budget(Displayable):
    """Cost of turns with the current selection, and if every tool were loaded.

    Args:
        now: With the current selection.
        undeferred: If every tool were loaded.
        instructions: What the servers' instructions take of each request.
    """

    now: TurnCosts
    undeferred: TurnCosts
    instructions: int = 0

    @property
    def saved(self) -> float | None:
        """The share of a turn's input that deferring saves, below 0 where it costs more; None if nothing is deferred."""
        if self.now == self.undeferred or not self.undeferred.turn:
            return None
        return 1 - self.now.turn / self.undeferred.turn
