"""A query is compared word by word, so the model is told what language to ask in, before and after."""

from __future__ import annotations

import pytest

from casual_mcp_nb.discovery import SearchToolsTool
from casual_mcp_nb.types.tokens import estimate_tokens
from casual_mcp_nb.types.tool import ToolSpec

pytestmark = pytest.mark.defect("E7")
CLOCK = ToolSpec("time", "current_time", "The time now in a city.", {"type": "object"}, wire_name="time__current_time")


async def test_the_search_tool_says_what_language_to_ask_in_at_a_small_price() -> None:
    description = SearchToolsTool([CLOCK]).definition["description"]
    rules = description.partition("<manifest>")[0]
    assert "language" in rules
    assert estimate_tokens(rules) < 70


@pytest.mark.parametrize("query", ["Wie spät ist es?", "¿Qué hora es?", "東京は何時ですか"])
async def test_an_empty_answer_says_that_the_language_can_be_why(query: str) -> None:
    answer = await SearchToolsTool([CLOCK]).execute({"query": query})
    assert answer.newly_loaded_tools == []
    assert "language" in answer.content
