"""Pictures of intervals: shares of arms, and paired differences with a line at 0."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.experiments import plots
from casual_mcp_nb.experiments.arms import Arm
from casual_mcp_nb.experiments.results import RunResults
from casual_mcp_nb.experiments.run_record import RunRecord
from casual_mcp_nb.experiments.statistics import (
    SHARES,
    Interval,
    PairedDifference,
    paired_difference,
)

HOSTILE = '<script>alert("1")</script>\u202e & $x$ ' + "y" * 300


def difference_of(values: list[float]) -> PairedDifference:
    found = paired_difference(
        dict.fromkeys(range(len(values)), 0.0), dict(enumerate(values)), bounds=SHARES
    )
    assert found is not None
    return found


ROWS = [
    ("clearer", difference_of([1.0] * 9 + [0.0] * 6)),
    (HOSTILE, difference_of([-1.0] * 8)),
    ("few", difference_of([1.0])),
]


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("colour", [plots.BLUE, plots.GREEN, plots.RED, plots.GREY])
def test_colours_stand_out_from_white(colour: str) -> None:
    assert 1.05 / (luminance(colour) + 0.05) >= 4.5


def test_an_svg_is_escaped_has_no_script_and_says_what_it_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for drawing in (
        plots.difference_plot("<b>", ROWS),
        plots.arms_plot([(HOSTILE, Interval(0.5, 0.25, 0.75, 4, 4))]),
    ):
        text = drawing._repr_svg_()
        root = ElementTree.fromstring(text)
        names = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert names <= {"svg", "title", "desc", "rect", "path", "text", "circle"}
        assert "\u202e" not in text
        assert root.attrib["role"] == "img"
        said = root.attrib["aria-label"]
        assert re.search(r"60 points|50%", said)
        assert all(
            len(element.text or "") < 120
            for element in root.iter()
            if element.tag.endswith("}text")
        )
    difference = plots.difference_plot("A", ROWS)._repr_svg_()
    assert [
        difference.count(f'fill="{colour}"') for colour in (plots.GREEN, plots.RED, plots.GREY)
    ] == [1, 1, 1]
    assert 'stroke="black"' in difference
    # Nothing is drawn outside of the axis, whatever is unknown.
    assert "inf" not in difference


def test_matplotlib_draws_the_same_rows() -> None:
    pytest.importorskip("matplotlib")
    (axes,) = plots.difference_plot("A", ROWS).axes
    assert len(axes.get_yticklabels()) == 3
    assert axes.get_xlim() == (-1, 1)
    figure = plots.difference_plot("$\\frac", [("$\\frac", ROWS[0][1])])
    figure.canvas.draw()
    assert plots.difference_plot("A", []) is not None


@pytest.mark.parametrize("by", [None, "tag"])
def test_an_arm_that_is_drawn_alone_has_the_figures_that_it_has_among_all(
    by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    cases = "01234567"
    right = {"a": "", "b": "012345", "c": "01", "d": cases}
    records: list[RunRecord] = []
    for case in cases:
        for arm, its in right.items():
            key = f"{case}{arm}"
            records.append(RunRecord(key, case, arm, 0, case, tags=("t",), right=case in its))
    results = RunResults(tuple(records), tuple(map(Arm, right)), tuple(cases))
    b = results.comparisons()[0].right
    # Not clear among three candidates, though it would be alone.
    assert b.p < 0.05 < b.corrected_p
    for first in ("a", "b"):
        among_all = _figures(results.plot_difference(first, by=by))
        others = [arm for arm in right if arm != first]
        assert len(among_all) == len(others)
        alone = [_figures(results.plot_difference(first, each, by=by)) for each in others]
        assert alone == [[each] for each in among_all]


def _figures(drawing: Any) -> list[str]:
    """What a drawing says of each arm, without the arm's name."""
    svg = ElementTree.fromstring(drawing._repr_svg_())
    said = svg.findtext("{http://www.w3.org/2000/svg}desc") or ""
    return [each.rpartition(": ")[2] for each in said.split("; ")]


def test_results_draw_the_difference_of_two_arms_or_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    cases = [str(number) for number in range(8)]
    records = [
        RunRecord(f"{case}{arm}", case, arm, 0, case, right=arm != "a")
        for case in cases
        for arm in ("a", "b", "c")
    ]
    results = RunResults(tuple(records), (Arm("a"), Arm("b"), Arm("c")), tuple(cases))
    assert results.plot_difference()._repr_svg_().count("<circle") == 2
    one = results.plot_difference("b", "a")._repr_svg_()
    assert one.count("<circle") == 1
    assert "-100 points" in one
    with pytest.raises(UnknownNameError):
        results.plot_difference("b", "nobody")
    with pytest.raises(UsageError):
        results.plot_difference("a", "a")
    tagged = [
        replace(record, tags=("dates", "all") if record.case in "012" else ("all",))
        for record in records
    ]
    slices = (
        replace(results, records=tuple(tagged)).plot_difference("a", "b", by="tag")._repr_svg_()
    )
    assert slices.count("<circle") == 2
    assert slices.count(f'fill="{plots.GREEN}"') == 1
    assert slices.index(">all</text>") < slices.index(">dates</text>")


def test_a_figure_shows_itself_without_pyplot() -> None:
    pytest.importorskip("matplotlib")
    figure = plots.difference_plot("A", ROWS)
    assert figure._repr_png_().startswith(b"\x89PNG")
