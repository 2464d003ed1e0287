"""What a model reads of what a function returned, and what the person has of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from casual_mcp_nb import ToolOutput
from casual_mcp_nb.toolbox.output import MAX_ROWS, result_of


@dataclass
class Point:
    x: int


class Opaque:
    def __repr__(self) -> str:
        return "<Opaque>"


@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        ("hello", "hello", None),
        (3, "3", None),
        (True, "True", None),
        ([1, 2], "[\n  1,\n  2\n]", None),
        ({"a": 1}, '{\n  "a": 1\n}', {"a": 1}),
        (Point(1), '{\n  "x": 1\n}', {"x": 1}),
    ],
)
def test_plain_values_become_text_and_json(value: Any, text: str, structured: Any) -> None:
    result = result_of(value)
    assert [part.text for part in result.content] == [text]
    assert result.structured == structured
    assert result.payload is None


def test_nothing_is_an_empty_result() -> None:
    assert result_of(None).content == ()


def test_a_value_without_json_is_its_repr_and_the_payload() -> None:
    value = Opaque()
    result = result_of(value)
    assert result.content[0].text == "<Opaque>"
    assert result.payload is value


def test_a_table_is_its_first_rows_with_its_shape() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    table = pandas.DataFrame({"number": range(1_000)})
    result = result_of(table)
    lines = result.content[0].text.splitlines()
    assert "1,000 rows and 1 columns" in lines[0]
    assert len(lines) == 2 + MAX_ROWS
    assert result.payload is table


def test_a_figure_is_a_png_for_the_model_and_itself_for_the_person() -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed: pip install matplotlib").Figure()
    result = result_of(["A plot:", figure])
    assert [part.kind for part in result.content] == ["text", "image"]
    assert (result.content[1].data or b"").startswith(b"\x89PNG")
    assert result.payload == [figure]


def test_an_output_names_both_forms() -> None:
    payload = Opaque()
    result = result_of(ToolOutput("short", payload))
    assert result.content[0].text == "short"
    assert result.payload is payload
