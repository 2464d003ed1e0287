"""Tokens that nobody counted are unknown in every view, and nowhere 0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from casual_llm import AssistantMessage
from fastmcp import FastMCP
from kit.weather import weather

from casual_mcp_nb import Session
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.cli.transcript import plain_end
from casual_mcp_nb.conversation.stats import TokenUsageStats
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.providers.scripted import scripted_model
from casual_mcp_nb.views import mimebundle, turn_bundle
from casual_mcp_nb.widgets.base import merge_patch, without_none
from casual_mcp_nb.widgets.tokens import TokensState

USAGES = {"none": None, "only input": TokenUsage(12), "empty": TokenUsage()}


@pytest.fixture
def session() -> Iterator[Session]:
    servers: dict[str, FastMCP[Any]] = {"weather": weather()}
    with Session.from_config({}, in_process=servers) as session:
        yield session


def nulls(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [each for key, item in value.items() for each in nulls(item, f"{path}.{key}")]
    if isinstance(value, list):
        return [
            each for number, item in enumerate(value) for each in nulls(item, f"{path}[{number}]")
        ]
    return [path] if value is None else []


def widgets(session: Session) -> list[Any]:
    return [session.panel(), session.explore()]


@pytest.mark.defect("F18")
@pytest.mark.parametrize("usage", USAGES.values(), ids=USAGES)
def test_a_front_end_is_never_sent_an_unknown_value(
    session: Session, usage: TokenUsage | None
) -> None:
    session.chat("Go", model=scripted_model(ModelResponse(AssistantMessage(content="ok"), usage)))
    state = TokensState(session)
    assert state.snapshot()["all"]["answer"] is None
    for shown in (state.snapshot(), *(widget.shown for widget in widgets(session))):
        assert nulls(json.loads(json.dumps(without_none(shown)))) == []
    for widget in widgets(session):
        assert nulls(widget.get_state()["state"]) == []
    new = {"rows": {"1.1": {"answer": None, "parts": [1, 2]}}, "list": [{"answer": None}]}
    assert nulls(merge_patch({}, new)) == []


@pytest.mark.defect("F18")
@pytest.mark.parametrize("usage", USAGES.values(), ids=USAGES)
def test_no_display_shows_an_unknown_output_as_nothing(
    session: Session, usage: TokenUsage | None
) -> None:
    turn = session.chat(
        "Go", model=scripted_model(ModelResponse(AssistantMessage(content="ok"), usage))
    )
    assert turn.stats.tokens.completion_tokens is turn.stats.tokens.total_tokens is None
    forms = [
        *turn_bundle(turn, "all").values(),
        *mimebundle(turn.stats).values(),
        *mimebundle(session.conversations.current).values(),
    ]
    for shown in forms:
        assert " 0 out" not in shown
        assert "0 tokens out" not in shown
    assert plain_end(turn)["stats"]["tokens"]["completion_tokens"] is None
    assert plain_end(turn)["stats"]["tokens"]["total_tokens"] is None


@pytest.mark.defect("F18")
def test_a_total_is_unknown_where_a_part_of_it_is() -> None:
    assert TokenUsageStats(5).total_tokens is None
    assert TokenUsageStats(None, 5).total_tokens is None
    assert TokenUsageStats(5, 0).total_tokens == 5
