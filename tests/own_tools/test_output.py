"""Results of functions as a model reads them, and as the person gets them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from casual_mcp_nb import ToolOutput
from casual_mcp_nb.own_tools.parameters import (
    MAX_CELL,
    MAX_CELLS,
    MAX_PICTURE,
    MAX_ROWS,
    PREVIEW_ROWS,
    result_of,
)
from casual_mcp_nb.own_tools.parameters import PREVIEW_COLUMNS as MAX_COLUMNS


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
    assert result.rows is not None
    assert (len(json.loads(result.rows.json)), result.rows.what) == (
        1_000,
        "table of 1,000 rows, 1 columns",
    )


def test_the_rows_of_a_table_can_be_asked_about_where_the_text_has_not_all() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    days = pandas.DataFrame(
        {"day": pandas.date_range("2026-01-01", periods=30), "what": [Opaque()] * 30}
    )
    by_city = pandas.DataFrame(
        {"n": range(30)}, index=pandas.Index([f"city {n}" for n in range(30)], name="city")
    )
    same_names = pandas.DataFrame([[1, 2]] * 30, columns=["a", "a"])
    first = [
        json.loads(rows.json)[0] for rows in (result_of(days).rows, result_of(by_city).rows) if rows
    ]
    assert first == [
        {"day": "2026-01-01T00:00:00.000", "what": "<Opaque>"},
        {"city": "city 0", "n": 0},
    ]
    huge = pandas.DataFrame({"n": range(MAX_CELLS + 1)})
    assert [result_of(table).rows for table in (same_names, huge, days.head(MAX_ROWS))] == [
        None
    ] * 3
    assert result_of(ToolOutput(days, payload="mine")).rows is not None
    assert result_of(ToolOutput("text", payload=days)).rows is None


def test_a_figure_is_a_png_for_the_model_and_itself_for_the_person() -> None:
    figure = pytest.importorskip(
        "matplotlib.figure", reason="matplotlib is not installed: pip install matplotlib"
    ).Figure()
    result = result_of(["A plot:", figure])
    assert [part.kind for part in result.content] == ["text", "image"]
    assert (result.content[1].data or b"").startswith(b"\x89PNG")
    assert result.payload == [figure]


def test_an_output_names_both_forms() -> None:
    payload = Opaque()
    result = result_of(ToolOutput("short", payload))
    assert result.content[0].text == "short"
    assert result.payload is payload


def test_a_table_is_shown_as_rows() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    table = pandas.DataFrame({f"column {n}": ["<b>" * 100] * 1_200 for n in range(20)})
    (preview,) = result_of(ToolOutput("short", table)).previews
    assert (len(preview.columns), len(preview.rows), preview.more_rows) == (
        MAX_COLUMNS,
        PREVIEW_ROWS,
        1_200 - PREVIEW_ROWS,
    )
    assert all(len(cell) <= MAX_CELL + 1 for row in preview.rows for cell in row)
    assert "1,200 rows" in preview.what
    assert len(result_of(table).content[0].text) < 60_000


def test_a_table_with_an_index_or_columns_of_one_name_is_shown() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    table = pandas.DataFrame(
        [[1, 2]], columns=["a", "a"], index=pandas.Index(["Oslo"], name="city")
    )
    (preview,) = result_of(table).previews
    assert (preview.columns, preview.rows) == (("city", "a", "a"), (("Oslo", "1", "2"),))


def test_a_figure_is_shown_once_and_small_enough() -> None:
    figure = pytest.importorskip(
        "matplotlib.figure", reason="matplotlib is not installed: pip install matplotlib"
    ).Figure()
    figure.set_size_inches(20, 10)
    figure.subplots().plot(range(50), [n**3 % 97 for n in range(50)])
    (apart,) = result_of(ToolOutput("A plot.", figure)).previews
    assert (apart.picture or b"").startswith(b"\x89PNG")
    assert len(apart.picture or b"") <= MAX_PICTURE
    figure.set_size_inches(3, 2)
    small = result_of(figure)
    assert [preview.picture for preview in small.previews] == [part.data for part in small.content]


def test_other_payloads_are_the_beginning_of_their_repr() -> None:
    (preview,) = result_of(ToolOutput("short", list(range(10**6)))).previews
    assert preview.what == "list, 1,000,000 items"
    assert 0 < len(preview.text) < 600


def test_a_payload_that_cannot_be_looked_at_costs_nothing() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    (preview,) = result_of(ToolOutput("short", Broken())).previews
    assert "Broken" in preview.what
