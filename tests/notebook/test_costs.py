"""The cost of a session's turns, from the price table to the display."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kit.provider import PROVIDERS, Provider, answer

from casual_mcp_nb import Session
from casual_mcp_nb.base.prices import Cost
from casual_mcp_nb.errors import ConfigError
from casual_mcp_nb.views import mimebundle

PRICES = {"m-1": {"input": 1_000, "output": 10_000, "currency": "EUR"}}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_turns_and_the_session_have_their_cost_with_every_provider(provider: str) -> None:
    with Provider(answer(provider, "Hi.")) as server:
        with Session(server.config(provider), in_process={}, prices=PRICES) as session:
            turn = session.chat("Hello", stream=False)
            session.chat("Again", stream=False)
        assert turn.cost == turn.steps[0].cost == turn.stats.cost == Cost(0.03 + 0.07, "EUR")
        assert session.stats.cost == session.conversations.current.stats.cost == Cost(0.2, "EUR")
    assert "0.1000 EUR (estimate)" in mimebundle(turn)["text/html"]
    assert "0.2000 EUR (estimate)" in mimebundle(session.stats)["text/html"]


def test_what_is_handed_in_takes_the_place_of_the_file_beside_the_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "prices.json").write_text(json.dumps(PRICES))
    (tmp_path / "mine.json").write_text('{"m-2": {"input": 1, "output": 1}}')
    assert list(Session(tmp_path / "config.json", in_process={}).config.prices) == ["m-1"]
    assert list(
        Session(
            tmp_path / "config.json", in_process={}, prices=tmp_path / "mine.json"
        ).config.prices
    ) == ["m-2"]
    assert list(Session(tmp_path / "config.json", in_process={}, prices={}).config.prices) == []
    with pytest.raises(ConfigError, match="per million tokens"):
        Session({}, in_process={}, prices={"m": {}})


def test_a_model_that_the_table_does_not_have_is_a_finding_of_the_doctor() -> None:
    models = {
        "a": {"client": "desk", "model": "m-1"},
        "b": {"client": "desk", "model": "m-2"},
        "c": {"client": "off", "model": "c"},
    }
    clients = {"desk": {"provider": "ollama"}, "off": {"provider": "offline"}}
    with Session(
        {"clients": clients, "models": models, "prices": PRICES}, in_process={}
    ) as session:
        found = [
            finding for finding in session.servers.doctor().findings if finding.part == "Prices"
        ]
    assert [(finding.name, finding.verdict) for finding in found] == [("a", "ok"), ("b", "warn")]
    assert "price table" in found[0].advice
