"""Questions to the demo in a person's own words, with the tool, the arguments and the answer that are right."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb.discovery.index import ToolSearchIndex

QUESTIONS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("demo_questions.json").read_text())
NOT_YET = {
    "Which customer spent the most?",
    "What's the most expensive product?",
    "How much does the desk lamp cost?",
    "List the five cheapest products",
}
"""What the planner cannot answer yet; it must not answer these with something else."""


@pytest.mark.parametrize("question", QUESTIONS, ids=[question["ask"] for question in QUESTIONS])
async def test_a_question_about_the_demo_is_answered(bundled_room: Any, question: dict[str, Any]) -> None:
    said = await bundled_room.ask(question["ask"])
    if question["ask"] in NOT_YET:
        assert said.tools == []
        return
    ((tool, arguments),) = said.tools
    assert re.fullmatch(question["tool"], tool)
    for name, pattern in question.get("arguments", {}).items():
        assert re.fullmatch(pattern, str(arguments[name]))
    assert question.get("answer", "") in said.text
    assert "failed:" not in said.text


async def test_a_search_in_a_persons_own_words_has_the_right_tool_among_its_first_five(bundled_room: Any) -> None:
    index = ToolSearchIndex(list(bundled_room.catalog))

    def is_found(question: dict[str, Any]) -> bool:
        return any(
            re.fullmatch(question["tool"], f"{hit.tool.server}__{hit.tool.name}") for hit in index.search(question["ask"], 5)
        )

    assert sum(map(is_found, QUESTIONS)) / len(QUESTIONS) > 0.95


async def test_a_date_without_a_year_is_the_next_one(bundled_room: Any) -> None:
    said = await bundled_room.ask("How many days until Christmas?")
    assert int(re.search(r": ([\d,]+) days?", said.text)[1]) in range(366)  # type: ignore[index]
