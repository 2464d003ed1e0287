"""The search box without a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.shops import shelves

from casual_mcp_nb import Session
from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.views import mimebundle
from casual_mcp_nb.widgets.explorer import BEHIND_THE_CUT, SearchState

Do = Callable[..., Any]


@pytest.fixture
def state(session: Session) -> Iterator[SearchState]:
    state = SearchState(session)
    yield state
    state.close()


def test_hits_are_those_of_the_sessions_search_followed_by_results_over_the_limit(
    session: Session, state: SearchState, do: Do
) -> None:
    session.selection.max_search_results = 2
    answer = do(state, "search", query="numbers", whole=True)
    assert (answer["query"], answer["cut"], answer["searched"]) == (
        "numbers",
        2,
        len(session.tools),
    )
    assert [hit["wire_name"] for hit in answer["hits"][:2]] == [
        hit.tool.wire_name for hit in session.search("numbers")
    ]
    assert [hit["rank"] for hit in answer["hits"]] == list(range(1, 2 + BEHIND_THE_CUT + 1))
    assert answer["hits"][0]["share"] == 1.0
    scores = [hit["score"] for hit in answer["hits"]]
    assert scores == sorted(scores, reverse=True)


def test_only_deferred_tools_are_searched_as_the_model_does(state: SearchState, do: Do) -> None:
    assert {hit["server"] for hit in do(state, "search", query="convert temperature")["hits"]} == {
        "math"
    }
    assert (
        do(state, "search", query="convert temperature", whole=True)["hits"][0]["name"]
        == "convert_temperature"
    )
    assert state.snapshot() == {"deferred": 13, "all": 19, "cut": 5}


def test_where_nothing_is_deferred_all_tools_are_searched(
    session: Session, state: SearchState, do: Do
) -> None:
    session.selection.discovery = False
    assert (
        do(state, "search", query="convert temperature")["hits"][0]["name"] == "convert_temperature"
    )


def test_words_that_count_come_by_themselves(state: SearchState, do: Do) -> None:
    answer = do(state, "terms", query="add two numbers")
    assert answer["query"] == "add two numbers"
    assert "add" in answer["terms"]["math__add"]
    assert "numbers" in answer["terms"]["math__add"], "the whole word, not its stem"


def test_an_explanation_is_the_one_of_the_session_drawn(
    session: Session, state: SearchState, do: Do
) -> None:
    answer = do(state, "explain", query="add two numbers", name="math:add")
    explanation = session.search("add two numbers").why_not("math:add")
    assert (answer["tool"], answer["verdict"]) == ("math__add", explanation.verdict)
    assert answer["html"] == mimebundle(explanation)["text/html"]


def test_it_is_said_why_a_tool_is_not_found(session: Session, state: SearchState, do: Do) -> None:
    loaded = do(state, "explain", query="units", name="units__list_units")
    assert loaded["verdict"] == session.search("units").why_not("units__list_units").verdict
    session.selection.servers["units"] = "off"
    outside = do(state, "explain", query="units", name="units__list_units", whole=True)
    assert outside["verdict"] != loaded["verdict"]
    assert do(state, "explain", query="weather", name="math__add")["verdict"] not in (
        loaded["verdict"],
        outside["verdict"],
    )
    with pytest.raises(UnknownNameError, match="math:add"):
        do(state, "explain", query="weather", name="math__ad")


@pytest.mark.parametrize("query", ["", "   ", "\x00", "x" * 100_000, "(((", "'; DROP TABLE tools"])
def test_any_text_is_a_query(state: SearchState, do: Do, query: str) -> None:
    assert do(state, "search", query=query)["hits"] == []
    assert do(state, "terms", query=query)["terms"] == {}


def test_the_last_results_are_a_noun(state: SearchState, do: Do) -> None:
    assert len(state.results) == 0
    assert state.results._repr_html_()
    do(state, "search", query="add two numbers")
    assert state.results.query == "add two numbers"
    assert state.results[0].tool.name == "add"


@pytest.mark.slow
def test_each_key_is_answered_quickly_over_ten_thousand_tools() -> None:
    config = {"tool_discovery": {"enabled": True, "defer_all": True}}
    with Session.from_config(config, in_process=shelves(10, 10_000)) as session:
        state = SearchState(session)
        session.parts.engine.run(state.call("search", {"query": "ticket"}))
        for query in ("s", "se", "search t", "search ticket 81"):
            answer = session.parts.engine.run(state.call("search", {"query": query}))
            assert answer["query"] == query
        assert answer["hits"][0]["name"].startswith("search_")
