"""Counts are words that a person would write."""

from __future__ import annotations

import pytest

from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.base.tool import Catalog
from casual_mcp_nb.conversation.conversation import Conversation


@pytest.mark.parametrize(
    ("value", "noun", "text"),
    [
        (0, "tool", "0 tools"),
        (1, "step", "1 step"),
        (2, "search", "2 searches"),
        (1_200, "tool call", "1,200 tool calls"),
    ],
)
def test_a_count_has_the_plural_that_it_needs(value: int, noun: str, text: str) -> None:
    assert count(value, noun) == text


def test_reprs_count_in_words() -> None:
    assert repr(Conversation([])) == "<Conversation: 0 turns>"
    assert repr(Catalog([])) == "<Catalog: 0 tools of 0 servers>"
