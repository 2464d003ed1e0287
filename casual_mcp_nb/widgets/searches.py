"""The model's searches as they happen: what it looked for, and what it found with which scores."""

from __future__ import annotations

from typing import Any

from casual_mcp_nb.conversation.event import Event, Searches, ToolsSearched
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.view_calls import search_words, why_found
from casual_mcp_nb.display.words import clean, first
from casual_mcp_nb.widgets._rows import MAX_NAME
from casual_mcp_nb.widgets.base import HasParts, Layout, SessionWidget, State

MAX_SEARCHES = 50
"""How many searches are shown, the last ones."""
MAX_FOUND = 20
"""How many tools of a search are shown, the best ones."""
MAX_QUERY = 300


class SearchesState(State):
    """The searches of the conversation's turns, the running one included. In Python:
    `turn.searches`.
    """

    def __init__(self, session: HasParts) -> None:
        super().__init__(session)
        self.follow(session.parts.observers.events.add(self._on_event))
        self.follow(session.parts.observers.changes.add(self.changed))

    @property
    def searches(self) -> Searches:
        """The searches, oldest first."""
        searches: list[ToolsSearched] = []
        for turn in self.parts.runner.turns:
            searches += turn.searches
        return Searches(tuple(searches))

    def snapshot(self) -> dict[str, Any]:
        """Collect the last searches by number, from 1, and how many came before them."""
        rows: dict[str, Any] = {}
        number = 0
        for place, turn in enumerate(self.parts.runner.turns, 1):
            for search in turn.searches:
                number += 1
                rows[str(number)] = _row(search, place)
        return {
            "rows": dict(list(rows.items())[-MAX_SEARCHES:]),
            "earlier": max(0, len(rows) - MAX_SEARCHES),
        }

    def _on_event(self, _turn: Turn, event: Event) -> None:
        if isinstance(event, ToolsSearched):
            self.changed()


def _row(search: ToolsSearched, turn: int) -> dict[str, Any]:
    found = []
    for row in search.rows[:MAX_FOUND]:
        score = None if row.score is None else round(row.score, 3)
        found.append([first(str(row.tool), MAX_NAME), score, clean(why_found(row))])
    return {
        "turn": turn,
        "step": search.step + 1,
        "query": first(search.query, MAX_QUERY),
        "words": clean(search_words(search)),
        "found": found,
        "more": max(0, len(search.rows) - MAX_FOUND),
    }


class ModelSearches(SessionWidget):
    """Shows each search of the model while a turn runs, with what it found and its scores.

    Turns from cells, the panel and code show here. In Python: `turn.searches`.
    """

    bundle = "model_searches"

    def __init__(self, session: HasParts, layout: Layout | None = None) -> None:
        self.searches = SearchesState(session)
        super().__init__(session, layout, searches=self.searches)

    def static(self) -> Searches:
        """Get the searches so far."""
        return self.searches.searches
