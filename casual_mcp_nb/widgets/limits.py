"""What is used of each spend limit, for the panel and the explorer."""

from __future__ import annotations

import asyncio
from typing import Any

from casual_mcp_nb.base.config import Period
from casual_mcp_nb.base.status import amount
from casual_mcp_nb.conversation.event import Event, StepFinished, StepStarted
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.limits import SessionLimits
from casual_mcp_nb.widgets.base import HasParts, State

_PERIODS: dict[Period, str] = {
    "turn": "in this turn",
    "conversation": "in this conversation",
    "day": "today",
}


class LimitsState(State):
    """Each spend limit with what is used of it. In Python: `session.limits`."""

    def __init__(self, session: HasParts) -> None:
        super().__init__(session)
        self._used: list[str] = []
        self._waits_to_read = False
        self._reading = asyncio.Lock()
        self.follow(session.parts.observers.events.add(self._on_event))
        self.follow(session.parts.observers.changes.add(self._read))
        self._read()

    def snapshot(self) -> dict[str, Any]:
        """Collect the limits in words, such as `$0.42 of $1.00 today`."""
        return {"used": self._used}

    def _on_event(self, turn: Turn, event: Event) -> None:
        if isinstance(event, StepStarted | StepFinished):
            self._read()

    def _read(self) -> None:
        given = self.parts.chat.models.spending.limits.given
        if (given or self._used) and not self._waits_to_read:
            self._waits_to_read = True
            self.parts.engine.submit(self._limits_read())

    async def _limits_read(self) -> None:
        async with self._reading:
            self._waits_to_read = False
            # Another process may have locked the file.
            used = await asyncio.to_thread(_in_words, self.parts.limits)
            if used != self._used:
                self._used = used
                self.changed()


def _in_words(limits: SessionLimits) -> list[str]:
    """Describe each limit, and what is used of it. Blocks briefly."""
    try:
        rows = limits.now.rows
    except UsageError:
        return []
    used: list[str] = []
    for row in rows:
        if row.max_cost is not None:
            used.append(f"{amount('max_cost', row.cost, row.max_cost)} {_PERIODS[row.period]}")
        if row.max_total_tokens is not None:
            tokens = amount("max_total_tokens", row.tokens, row.max_total_tokens)
            used.append(f"{tokens} {_PERIODS[row.period]}")
    return used
