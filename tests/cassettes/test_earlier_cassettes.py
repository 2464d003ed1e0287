"""Cassettes of earlier releases play: this package's own texts and rankings are read from them, and
never compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cassettes.earlier.record import TURNS

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.event import PACKAGE_TOOLS
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import CassetteMismatchError

FILES = sorted((Path(__file__).parent / "earlier").glob("*.json"))


def replay(file: Path) -> tuple[list[Turn], int]:
    """The turns of a cassette that is played, and how many of its requests were not made."""
    with Session.quick(cassette=file, quiet=True, store=None) as session:
        turns = list(session.cassettes.replay())
        assert session.cassettes.state is not None
        return turns, session.cassettes.state.unplayed


def calls_of(turns: list[Turn]) -> list[tuple[str, str, str]]:
    return [(call.name, call.status, call.result) for turn in turns for call in turn.tool_calls]


@pytest.mark.defect("N5")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_cassette_of_an_earlier_release_plays(file: Path) -> None:
    turns, unplayed = replay(file)
    assert [turn.answer for turn in turns] == [script[-1] for script in TURNS.values()]
    assert unplayed == 0
    # What the model read is what it read then.
    recorded = [
        message["content"]
        for row in json.loads(file.read_text())["interactions"]
        if row["kind"] == "model"
        for message in row["request"]["messages"]
        if message["role"] == "tool"
    ]
    assert [result for _, _, result in calls_of(turns)] == recorded


@pytest.fixture
def document() -> dict[str, Any]:
    return json.loads(FILES[-1].read_text())


@pytest.mark.defect("N5")
@pytest.mark.parametrize("change", ["wording", "ranking", "error", "own definitions"])
def test_our_own_texts_and_rankings_may_have_been_others(
    tmp_path: Path, document: dict[str, Any], change: str
) -> None:
    """The file is as if a release with other words or another ranking had written it."""
    if change == "ranking":
        # A search finds one tool now, and found several then.
        document["session"].setdefault("selection", {})["max_search_results"] = 1
    if change == "own definitions":
        document["definitions"]["search_tools"] = {
            "description": "Search.",
            "parameters": {"type": "object"},
        }
    text = json.dumps(document)
    if change == "wording":
        text = text.replace("Find a customer by name.", "Look for people.")
    if change == "error":
        text = text.replace("is not available", "does not exist, I fear")
        assert "I fear" in text
    file = tmp_path / "other.json"
    file.write_text(text)
    turns, unplayed = replay(file)
    assert [turn.answer for turn in turns] == [script[-1] for script in TURNS.values()]
    assert unplayed == 0
    before, _ = replay(FILES[-1])
    names = [
        [{tool["name"] for tool in step.request.tools} - PACKAGE_TOOLS for step in turn.steps]
        for turn in turns
    ]
    assert names == [
        [{tool["name"] for tool in step.request.tools} - PACKAGE_TOOLS for step in turn.steps]
        for turn in before
    ]
    if change == "error":
        assert "I fear" in calls_of(turns)[-1][2]


@pytest.mark.defect("N5")
@pytest.mark.parametrize("changed", ["question", "definition"])
def test_what_is_not_ours_is_compared(
    tmp_path: Path, document: dict[str, Any], changed: str
) -> None:
    if changed == "definition":
        document["definitions"]["shop__create_chart"]["description"] = "Draw."
    file = tmp_path / "other.json"
    file.write_text(json.dumps(document))
    with Session.quick(cassette=file, quiet=True, store=None) as session:
        prompt = next(iter(TURNS)) if changed == "definition" else "Make two charts."
        turn = session.chat(prompt, echo="none")
    assert isinstance(turn.exception, CassetteMismatchError)
