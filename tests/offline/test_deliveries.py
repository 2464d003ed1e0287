"""The offline planner with each delivery of found tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.step import calls_of_model
from casual_mcp_nb.conversation.turn import Turn

CONFIG: dict[str, Any] = {
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {
        name: {"bundled": name, "transport": "in-process", "defer_loading": True} for name in ("math", "text", "time", "units")
    },
    "tool_discovery": {"enabled": True, "max_active_tools": 1},
}


@pytest.fixture(params=["search", "browse"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    with Session.from_config(CONFIG) as session:
        session.selection.strategy = request.param
        yield session


def used(turn: Turn) -> list[str]:
    return [call.tool.tool for call in calls_of_model(turn.tool_calls) if call.tool.server != "_synthetic"]


@pytest.mark.parametrize(
    ("delivery", "ways"), [("auto", {"definitions"}), ("native", {"native"}), ("bridge", {"bridge"}), ("code", {"code"})]
)
def test_what_was_found_is_used_and_used_again(session: Session, delivery: Any, ways: set[str]) -> None:
    if delivery == "code":
        pytest.importorskip("pydantic_monty", reason="an extra brings it")
    session.selection.delivery = delivery
    first = session.chat("How much is 5 miles in km?", echo="none")
    second = session.chat("And 7 miles in km?", echo="none")
    assert (used(first), used(second)) == (["convert_units"], ["convert_units"])
    assert "8.04672 km" in first.answer
    assert {step.request.delivery for step in first.steps} == ways
    assert len(second.steps) == 2
    assert "84" in session.chat("What is 12 * 7?", echo="none").answer


def test_a_conversation_changes_its_way(session: Session) -> None:
    pytest.importorskip("pydantic_monty", reason="an extra brings it")
    for delivery in ("definitions", "native", "bridge", "code", "native", "code", "definitions"):
        session.selection.delivery = delivery  # type: ignore[assignment]
        turn = session.chat("How much is 5 miles in km?", echo="none")
        assert used(turn) == ["convert_units"]
        assert "8.04672 km" in turn.answer
