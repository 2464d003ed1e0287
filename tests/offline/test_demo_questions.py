"""Questions to the demo in a person's own words, with the tool, the arguments and the answer that
are right.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.search_tools import ToolSearchIndex

QUESTIONS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("demo_questions.json").read_text()
)
EVERYDAY: dict[str, Any] = json.loads(
    Path(__file__).with_name("everyday.json").read_text(encoding="utf-8")
)
"""Questions as people ask them, each with its needs: patterns of the tools that meet them."""
PARAPHRASES: dict[str, Any] = json.loads(
    Path(__file__).with_name("paraphrases.json").read_text(encoding="utf-8")
)
NOT_YET = {
    "Which customer spent the most?",
    "What's the most expensive product?",
    "How much does the desk lamp cost?",
    "List the five cheapest products",
}
"""What the planner cannot answer yet; it must not answer these with something else."""


@pytest.mark.parametrize("question", QUESTIONS, ids=[question["ask"] for question in QUESTIONS])
async def test_a_question_about_the_demo_is_answered(
    bundled_room: Any, question: dict[str, Any]
) -> None:
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


async def test_a_search_in_a_persons_own_words_has_the_right_tool_among_its_first_five(
    bundled_room: Any,
) -> None:
    index = ToolSearchIndex(list(bundled_room.catalog))

    def is_found(question: dict[str, Any]) -> bool:
        return any(
            re.fullmatch(question["tool"], f"{hit.tool.server}__{hit.tool.name}")
            for hit in index.search(question["ask"], 5)
        )

    assert sum(map(is_found, QUESTIONS)) / len(QUESTIONS) > 0.95


def share_met(tools: list[ToolSpec], questions: list[dict[str, Any]]) -> float:
    """Compute the mean share of a question's needs that a search meets with its first five
    tools.
    """
    index = ToolSearchIndex(tools)
    shares = []
    for question in questions:
        found = [hit.tool.tool_name.joined for hit in index.search(question["ask"], 5)]
        met = [any(re.fullmatch(need, name) for name in found) for need in question["needs"]]
        shares.append(sum(met) / len(met))
    return sum(shares) / len(shares)


@pytest.mark.parametrize(("half", "least"), [(0, 0.8), (1, 0.65)], ids=["seen", "unseen"])
async def test_most_everyday_questions_find_the_right_tool(
    bundled_room: Any, half: int, least: float
) -> None:
    """The ranking is improved with every second question only; the others are unseen."""
    own = [
        ToolSpec(server, **tool)
        for server, tools in PARAPHRASES["servers"].items()
        for tool in tools
    ]
    for tools, questions in (
        (list(bundled_room.catalog), EVERYDAY["demo"]),
        (own, EVERYDAY["servers"]),
    ):
        figure = share_met(tools, questions[half::2])
        print(f"{figure:.3f}")
        assert figure >= least


async def test_a_date_without_a_year_is_the_next_one(bundled_room: Any) -> None:
    said = await bundled_room.ask("How many days until Christmas?")
    assert int(re.search(r": ([\d,]+) days?", said.text)[1]) in range(366)  # type: ignore[index]
