"""Token counts say where they come from, and stats add up."""

from __future__ import annotations

from random import Random

import pytest

from casual_mcp_nb.base.tokens import _ASCII_PIECE, _PIECE, TokenParts, TokenUsage, estimate_tokens
from casual_mcp_nb.conversation.stats import (
    ChatStats,
    DiscoveryStats,
    TokenUsageStats,
    ToolCallStats,
)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("", 0, 0),
        ("hello world", 2, 3),
        ("internationalization", 2, 4),
        ('{"a":1,"b":[1,2]}', 8, 14),
        ("天气预报", 3, 5),
    ],
)
def test_an_estimate_is_near_what_a_vocabulary_gives(text: str, low: int, high: int) -> None:
    assert low <= estimate_tokens(text) <= high


def test_ascii_text_is_split_as_any_other_text() -> None:
    random = Random(0)
    letters = [*map(chr, range(128)), *'ab_ 01{":,}' * 10]
    for _ in range(5_000):
        text = "".join(random.choices(letters, k=random.randrange(60)))
        assert _ASCII_PIECE.findall(text) == _PIECE.findall(text)


def test_parts_scaled_to_the_report_add_up_to_it() -> None:
    parts = TokenParts(system=10, manifest=20, tools=301, history=7, results=0)
    scaled = parts.scaled_to(1000)
    assert scaled.total == 1000
    assert scaled.origin == "reported"
    assert scaled.results == 0
    assert TokenParts().scaled_to(50).total == 0


def test_what_is_not_known_is_none_and_never_zero() -> None:
    assert TokenUsage().total_tokens is None
    unknown = TokenUsageStats(unknown_calls=1)
    assert (unknown + unknown).total_tokens is None
    assert (unknown + TokenUsageStats(5, 2)).total_tokens == 7


def test_stats_of_two_turns_add_up() -> None:
    one = ChatStats(
        TokenUsageStats(1, 2), ToolCallStats({"a": 1}, {"s": 1}), 1, DiscoveryStats(1, 3)
    )
    two = ChatStats(TokenUsageStats(3, 4), ToolCallStats({"a": 2, "b": 1}, {"s": 3}), 2)
    both = one + two
    assert both.tokens.total_tokens == 10
    assert both.tool_calls.by_tool == {"a": 3, "b": 1}
    assert both.tool_calls.total == 4
    assert both.llm_calls == 3
    assert both.discovery == DiscoveryStats(1, 3)
