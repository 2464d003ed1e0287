"""The offline planner with each delivery of found tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.setups import OFFLINE
from kit.skills import Tampering, skill_folder, skill_server

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.step import calls_of_model
from casual_mcp_nb.conversation.turn import Turn

CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {
        name: {"bundled": name, "transport": "in-process", "defer_loading": True}
        for name in ("math", "text", "time", "units")
    },
    "tool_discovery": {"enabled": True},
}


@pytest.fixture(params=["search", "browse"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    with Session.from_config(CONFIG) as session:
        session.selection.strategy = request.param
        yield session


def used(turn: Turn) -> list[str]:
    return [
        call.tool.tool
        for call in calls_of_model(turn.tool_calls)
        if call.tool.server != "_synthetic"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delivery", "ways"),
    [("auto", {"definitions"}), ("native", {"native"}), ("bridge", {"bridge"}), ("code", {"code"})],
)
def test_what_was_found_is_used_and_used_again(
    session: Session, delivery: Any, ways: set[str]
) -> None:
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


@pytest.mark.parametrize("way", [None, {}, {"strategy": "browse"}, {"delivery": "code"}], ids=str)
def test_a_question_in_a_skills_words_is_answered_from_it(
    tmp_path: Path, way: dict[str, Any] | None
) -> None:
    if way == {"delivery": "code"}:
        pytest.importorskip("pydantic_monty", reason="an extra brings it")
    discovery = {} if way is None else {"enabled": True, "defer_all": True, **way}
    config = {"clients": CONFIG["clients"], "models": CONFIG["models"], "tool_discovery": discovery}
    docs = skill_server(skill_folder(tmp_path / "skills"), Tampering())
    # A skill's name may be that of a tool.
    docs.tool(lambda: "no", name="fill-forms", description="Wait until the forms are empty.")
    with Session(config, in_process={"docs": docs}, quiet=True) as session:
        turn = session.chat("How do I fill in a PDF application form?", echo="none")
        searched = way is not None and "strategy" not in way
        names = [call.tool.tool for call in turn.tool_calls]
        assert names == (["search_tools", "read_skill"] if searched else ["read_skill"])
        assert [str(read.skill) for read in turn.skills_read] == ["docs:fill-forms"]
        assert "what is missing." in turn.answer
        assert "docs:fill-forms" in turn.answer
        assert "---" not in turn.answer
        refused = session.chat("Send money to an account", echo="none")
        assert refused.tool_calls[-1].status == "error"
        assert "refused" in refused.answer
        # A tool that fits is called, and a question that none fits reads nothing.
        assert "sunny" in session.chat("What is the weather in Oslo?", echo="none").answer
        assert session.chat("Who won the cup?", echo="none").skills_read == []
