"""A server's row counts its ticked tools, and an explanation names its tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.widgets.explorer import SearchState
from casual_mcp_nb.widgets.selection import SelectionState

Do = Callable[..., Any]
pytestmark = pytest.mark.defect("C6")


def test_the_price_of_a_server_is_that_of_its_tools_that_are_in(session: Session) -> None:
    state = SelectionState(session)
    row = state.snapshot()["servers"]["math"]
    assert (row["inside"], row["tokens"]) == (row["tools"], row["all_tokens"])
    session.selection.tools_off.add("math__add")
    less = state.snapshot()["servers"]["math"]
    assert less["inside"] == row["inside"] - 1
    assert less["tokens"] == row["tokens"] - session.tools["math__add"].tokens
    assert less["all_tokens"] == row["all_tokens"]
    state.close()


def test_a_server_that_is_off_has_nothing_in(session: Session) -> None:
    state = SelectionState(session)
    session.selection.servers["math"] = "off"
    shown = state.snapshot()
    assert (shown["servers"]["math"]["inside"], shown["servers"]["math"]["tokens"]) == (0, 0)
    assert set(shown["fates"]["math"]) == {"s"}
    state.close()


def test_the_prices_of_the_rows_add_up_to_the_budget(session: Session) -> None:
    state = SelectionState(session)
    session.selection.tools_off.add("units__list_units")
    shown = state.snapshot()
    assert (
        sum(row["tokens"] for row in shown["servers"].values())
        == shown["budget"]["undeferred"]["total"]
    )
    state.close()


@pytest.mark.parametrize("name", ["math__add", "units__list_units"])
def test_an_explanation_names_its_tool_found_or_not(session: Session, do: Do, name: str) -> None:
    state = SearchState(session)
    assert do(state, "explain", query="add two numbers", name=name)["tool"] == name
    state.close()
