"""Text that fits the lines of a terminal: no word and no number breaks."""

from __future__ import annotations

import pytest

from casual_mcp_nb.display.render import TextLayout, to_text
from casual_mcp_nb.display.view import Column, KeyValues, Line, Section, Table, TextBlock, View

TABLE = Table(
    (Column("Part"), Column("Now", numeric=True), Column("Every tool loaded", numeric=True)),
    (
        ("First request: system prompt and tool definitions", "≈ 861", "≈ 5,947"),
        ("At worst: each of the ten searches for other tools", "≈ 222,850", "≈ 165,240"),
    ),
)
VIEW = View(
    "session",
    "Session",
    (
        TABLE,
        KeyValues((("Model", "Offline demo planner, which is not a language model at all"),)),
        TextBlock("    The tide is high at 14:30 in the harbour, and low again at 20:45 there."),
        Line(None, ("done", "3 steps", "2 searches", "≈ 6,886 tokens in, 44% less than before")),
        Section(
            "Steps", (TABLE, Line(None, ("Called weather:forecast_of_the_week",))), fold="closed"
        ),
    ),
)


@pytest.mark.parametrize("width", [120, 80, 60, 40])
def test_lines_fit_and_every_word_is_whole(width: int) -> None:
    whole, fitted = to_text(VIEW), to_text(VIEW, TextLayout(width))
    assert max(map(len, whole.splitlines())) > 80
    assert max(map(len, fitted.splitlines())) <= width
    words = set(whole.replace("-", " ").split()) - {"│"}
    assert words <= set(fitted.replace("-", " ").split()) | {"Part"}
    for number in ("≈ 222,850", "≈ 165,240", "≈ 861"):
        assert number in fitted


def test_without_a_width_nothing_is_changed() -> None:
    assert to_text(VIEW, TextLayout(10_000)) == to_text(VIEW)


def test_columns_of_text_share_what_the_numbers_leave() -> None:
    lines = to_text(View("table", "", (TABLE,)), TextLayout(60)).splitlines()
    assert lines[0].split() == ["Part", "Now", "Every", "tool", "loaded"]
    assert [line.split("  ")[0] for line in lines[2:4]] == [
        "First request: system prompt",
        "and tool definitions",
    ]
    assert {len(line) for line in lines if "≈" in line} == {60}


def test_a_table_that_is_too_wide_becomes_lists() -> None:
    lines = to_text(View("table", "", (TABLE,)), TextLayout(32)).splitlines()
    assert lines == [
        "First request: system prompt and",
        "  tool definitions",
        "  Now                ≈ 861",
        "  Every tool loaded  ≈ 5,947",
        "At worst: each of the ten",
        "  searches for other tools",
        "  Now                ≈ 222,850",
        "  Every tool loaded  ≈ 165,240",
    ]


def test_lines_of_a_text_keep_their_indentation_and_their_bar() -> None:
    view = View("text", "", (TextBlock("    one two three four five six seven"),))
    lines = to_text(view, TextLayout(24)).splitlines()
    assert len(lines) > 1
    assert all(line.startswith("│     ") for line in lines)


def test_a_word_longer_than_the_line_is_left_whole() -> None:
    address = "https://example.com/" + "a" * 100
    assert address in to_text(
        View("text", "", (TextBlock(f"See {address} there."),)), TextLayout(40)
    )


@pytest.mark.parametrize("text", [" " * 200, "x" * 200, "\t" * 90 + "end", ""])
def test_odd_texts_are_drawn(text: str) -> None:
    table = Table((Column("A"), Column("B", numeric=True)), ((text, text),))
    view = View("odd", text, (TextBlock(text), KeyValues(((text, text),)), table))
    for width in (20, 80):
        assert to_text(view, TextLayout(width))


def test_folded_sections_are_only_named() -> None:
    folded = to_text(VIEW, TextLayout(80, folded=True))
    assert "Steps" in folded
    assert "weather:forecast_of_the_week" not in folded
