"""The model's searches as a widget, without a browser."""

from __future__ import annotations

from typing import Any

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.event import ToolsSearched
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb.views import mimebundle
from casual_mcp_nb.widgets import ModelSearches
from casual_mcp_nb.widgets.searches import MAX_SEARCHES, SearchesState


def searching(query: str, answer: str = "Done.") -> Any:
    return scripted_model(call("search_tools", query=query), answer)


def test_a_search_shows_as_soon_as_it_is_made(session: Session) -> None:
    state = SearchesState(session)
    seen: list[tuple[int, bool]] = []

    def look() -> None:
        seen.append((len(state.snapshot()["rows"]), session.parts.runner.busy))

    state.watch(look)
    assert state.snapshot() == {"rows": {}, "earlier": 0}
    session.chat("Convert it.", model=searching("convert a temperature"), echo="none")
    assert (1, True) in seen
    (row,) = state.snapshot()["rows"].values()
    assert (row["turn"], row["step"], row["query"]) == (1, 1, "convert a temperature")
    (search,) = session.turns[0].searches
    assert [found[0] for found in row["found"]] == [str(hit.tool) for hit in search.rows]
    scores = [found[1] for found in row["found"] if found[1] is not None]
    assert scores == sorted(scores, reverse=True)
    state.close()


def test_searches_go_with_their_turn(session: Session) -> None:
    state = SearchesState(session)
    for query in ("convert a temperature", "power of a number"):
        session.chat("Convert it.", model=searching(query), echo="none")
    assert [row["turn"] for row in state.snapshot()["rows"].values()] == [1, 2]
    session.undo()
    assert [row["query"] for row in state.snapshot()["rows"].values()] == ["convert a temperature"]
    session.conversations.new()
    assert state.snapshot() == {"rows": {}, "earlier": 0}
    state.close()


def test_the_last_searches_are_shown_and_the_others_counted(session: Session) -> None:
    calls = [call("search_tools", query=f"query {number}") for number in range(MAX_SEARCHES + 2)]
    model = scripted_model(*calls, "Done.")
    session.chat("Look around.", model=model, echo="none", max_steps=MAX_SEARCHES + 5)
    state = SearchesState(session)
    snapshot = state.snapshot()
    made = len(session.turns[0].trace.of(ToolsSearched))
    assert made > MAX_SEARCHES
    assert snapshot["earlier"] == made - MAX_SEARCHES
    assert list(snapshot["rows"])[-1] == str(made)
    state.close()


def test_what_a_model_searched_for_is_text(session: Session) -> None:
    hostile = "<img src=x onerror=alert(1)>\x1b[2J" + "x" * 10_000
    session.chat("Look.", model=searching(hostile), echo="none")
    widget = ModelSearches(session)
    (row,) = widget.searches.snapshot()["rows"].values()
    assert len(row["query"]) < 1_000
    assert "\x1b" not in row["query"]
    html = mimebundle(widget.static())["text/html"]
    assert "<img" not in html
    assert "&lt;img" in html
    widget.close()
