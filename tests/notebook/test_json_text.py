from __future__ import annotations

from typing import Any

import pytest
from kit.growth import PART, assert_growth

from casual_mcp_nb.notebook.extract import json_from_text, json_values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Here you are:\n```json\n{"a": [1, 2]}\n```\nAnything else?', {"a": [1, 2]}),
        ("```\n[1, 2]\n```", [1, 2]),
        ('The answer is {"a": "x } y"} as you can see.', {"a": "x } y"}),
        ('First {"a": 1}, then {"b": 2}.', {"a": 1}),
        ('{"a": {"b": 1,}, "c": [1, 2, ],\n}', {"a": {"b": 1}, "c": [1, 2]}),
        ('{"a": "one,]two,}", }', {"a": "one,]two,}"}),
        ('[note] {not json} {"a": 1}', {"a": 1}),
        ("42", 42),
        ("```json\n42\n```\nsee [1]", [1]),
        ('{"a": "\\"quoted\\", }"}', {"a": '"quoted", }'}),
    ],
)
def test_json_is_extracted_from_a_models_text(text: str, value: Any) -> None:
    assert json_from_text(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "  ", "no JSON here", "{'a': 1}", '{"a": ', "__import__('os')", "{" * 5_000, '"' * 4_999],
)
def test_a_text_without_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|empty"):
        json_from_text(text)


def test_all_values_are_there_in_their_order() -> None:
    assert list(json_values('{"a": 1} and [2, 3,] and {"c": 4}')) == [{"a": 1}, [2, 3], {"c": 4}]


@pytest.mark.defect("F20")
@pytest.mark.parametrize("piece", ['"\\', '", ', "[,", "{,  }", "[" * 50])
def test_a_long_hostile_text_takes_linear_time(piece: str) -> None:
    def read(length: int) -> None:
        list(json_values(piece * (length // len(piece))))

    assert_growth(lambda: read(400_000 // PART), lambda: read(400_000))
