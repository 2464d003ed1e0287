"""Tokens per step and turn: their state, and the token meter."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from casual_mcp_nb.conversation.event import Event, StepFinished, StepStarted
from casual_mcp_nb.conversation.stats import ChatStats, StepStats
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.view_requests import PARTS
from casual_mcp_nb.widgets.base import HasParts, Layout, SessionWidget, State

MAX_STEPS = 200


class TokensState(State):
    """Tokens per step and turn, with each number's origin. In Python: `session.stats`."""

    def __init__(self, session: HasParts) -> None:
        super().__init__(session)
        self._cache: WeakKeyDictionary[Turn, tuple[int, ChatStats]] = WeakKeyDictionary()
        self.follow(session.parts.observers.events.add(self._on_event))
        self.follow(session.parts.observers.changes.add(self.changed))

    def snapshot(self) -> dict[str, Any]:
        """Collect rows by turn and step, from 1, the sums, and the names of request parts."""
        stats = list(map(self._stats, self.parts.runner.turns))
        rows, turns = {}, {}
        for number, turn in enumerate(stats, 1):
            for step in turn.steps:
                rows[f"{number}.{step.step + 1}"] = _row_of(step, number)
            if turn.steps:
                turns[str(number)] = _sum(turn)
        return {
            "parts": list(PARTS.values()),
            "rows": dict(list(rows.items())[-MAX_STEPS:]),
            "earlier": max(0, len(rows) - MAX_STEPS),
            "turns": turns,
            "all": _sum(sum(stats, ChatStats())),
        }

    def _stats(self, turn: Turn) -> ChatStats:
        size = len(turn.trace)
        cached = self._cache.get(turn)
        if cached is None or cached[0] != size:
            cached = self._cache[turn] = (size, turn.stats)
        return cached[1]

    def _on_event(self, turn: Turn, event: Event) -> None:
        if isinstance(event, StepStarted | StepFinished):
            self.changed()


def _row_of(step: StepStats, turn: int) -> dict[str, Any]:
    return {
        "turn": turn,
        "step": step.step + 1,
        "parts": list(step.parts.as_dict().values()),
        "sent": step.parts.total,
        "reused": step.reused,
        "origin": step.parts.origin,
        "answer": step.completion_tokens,
        "answer_origin": step.answer_origin,
    }


def _sum(stats: ChatStats) -> dict[str, Any]:
    reuse_is_known = any(step.reused is not None for step in stats.steps)
    return {
        "sent": stats.sent_tokens,
        "origin": stats.parts.origin,
        "steps": len(stats.steps),
        "reused": stats.reused_tokens if reuse_is_known else None,
        "parts": list(stats.parts.as_dict().values()),
        "answer": stats.tokens.completion_tokens,
        "answer_origin": stats.tokens.origin,
    }


class TokenMeter(SessionWidget):
    """Tokens per step and turn, as bars. In Python: `session.stats`."""

    bundle = "token_meter"

    def __init__(self, session: HasParts, layout: Layout | None = None) -> None:
        self.tokens = TokensState(session)
        super().__init__(session, layout, tokens=self.tokens)

    def static(self) -> ChatStats:
        """Get the counts as they are now."""
        return self.session.parts.runner.stats
