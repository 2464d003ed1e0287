"""Numbers as words."""

from __future__ import annotations

import pytest

from casual_mcp_nb.display import words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, words.UNKNOWN),
        (float("nan"), words.UNKNOWN),
        (0, "0"),
        (1234, "1,234"),
        (0.25, "0.25"),
        (1e6, "1,000,000"),
    ],
)
def test_a_number_is_readable_or_unknown(value: float | None, text: str) -> None:
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, words.UNKNOWN),
        (0.012, "12 ms"),
        (0.8, "0.80 s"),
        (3.41, "3.4 s"),
        (59.99, "60.0 s"),
        (125, "2 min 5 s"),
        (119.7, "2 min 0 s"),
    ],
)
def test_seconds_have_the_unit_that_fits(value: float | None, text: str) -> None:
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(1, "tool", "1 tool"), (2, "search", "2 searches"), (0, "byte", "0 bytes")],
)
def test_a_count_agrees_with_its_unit(value: int, unit: str, text: str) -> None:
    assert words.count(value, unit) == text


def test_tokens_name_their_origin_unless_they_are_unknown() -> None:
    assert words.tokens(1_234, "estimated") == "≈ 1,234 tokens"
    assert words.tokens(1, "reported") == "1 token"
    assert words.tokens(None, "reported") == words.UNKNOWN


@pytest.mark.parametrize(
    ("price", "without", "text"),
    [
        (25, 100, "75% less"),
        (100, 100, ""),
        (5, 0, ""),
        (120, 100, "20% more"),
    ],
)
def test_a_difference_is_said_in_words(price: int, without: int, text: str) -> None:
    assert words.difference(price, without) == text


def test_a_list_says_how_many_it_leaves_out() -> None:
    assert words.listed(["a", "b"], 2) == "a, b"
    assert words.listed(["a", "b", "c"], 1) == "a, 2 more"
