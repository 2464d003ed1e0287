"""Exercises: an answer is right, wrong with a hint, or not there yet."""

from __future__ import annotations

from typing import Any

import pytest

from casual_mcp_nb import check_exercise, exercise
from casual_mcp_nb.errors import UnknownNameError


@exercise("t.1")
def sums(total: Any, parts: list[int]) -> str | None:
    assert len(parts) > 1, "Give more than one part."
    return None if total == sum(parts) else "Add them again."


@pytest.mark.parametrize(
    ("variables", "is_right", "said"),
    [
        ({"total": 3, "parts": [1, 2]}, True, "✓ t.1: right."),
        ({"total": 4, "parts": [1, 2]}, False, "Add them again."),
        ({"total": 1, "parts": [1]}, False, "more than one"),
        ({"total": ..., "parts": [1, 2]}, None, "dots of total"),
        ({"total": 3}, None, "no variable parts"),
        ({"total": 3, "parts": 7}, False, "TypeError"),
    ],
)
def test_an_answer_is_right_or_gets_a_hint(
    variables: dict[str, Any], is_right: bool | None, said: str
) -> None:
    checked = check_exercise("t.1", variables)
    assert checked.is_right is is_right
    assert said in str(checked)


def test_an_unknown_exercise_names_the_closest() -> None:
    with pytest.raises(UnknownNameError, match=r"t\.1"):
        check_exercise("t.l", {})
