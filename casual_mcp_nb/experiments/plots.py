"""Draw intervals: a matplotlib figure, or an SVG without matplotlib.

An SVG has no script, all its text is escaped, and it says in words what it shows.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from casual_mcp_nb.display import words
from casual_mcp_nb.display.figures import figure_of_size
from casual_mcp_nb.experiments.percentage_points import hundredths, points, span
from casual_mcp_nb.experiments.statistics import Interval, PairedDifference

# Each has a contrast of more than 4.5 to 1 against white.
BLUE = "#1f6fb4"
GREEN = "#1a7f37"
RED = "#cf222e"
GREY = "#59636e"
_GRID = "#d0d7de"
_Limits = tuple[float, float]
"""Both ends of the axis."""
_LEFT, _WIDTH, _RIGHT, _ROW = 230, 400, 60, 34
_LONGEST = 32
_MOST = 50
"""How many rows are drawn."""


@dataclass(frozen=True)
class Svg:
    """A drawing that Jupyter shows."""

    text: str

    def _repr_svg_(self) -> str:
        return self.text


@dataclass(frozen=True)
class Row:
    """An interval to draw. Unknown ends reach to the edge.

    Args:
        label: What it is about.
        value: The value.
        low: The interval's lower end.
        high: The upper end.
        colour: Its colour.
        text: What it says, for those who do not see it.
    """

    label: str
    value: float
    low: float
    high: float
    colour: str
    text: str


def arms_plot(arms: Sequence[tuple[str, Interval]]) -> Any:
    """Draw each arm's share of right runs with its interval.

    Args:
        arms: Names and shares.
    """
    rows = []
    for name, right in arms:
        interval = f"{words.percent(right.low)} to {words.percent(right.high)}"
        text = f"{words.percent(right.value)} ({interval})"
        rows.append(Row(name, right.value, right.low, right.high, BLUE, text))
    return _drawn(rows, (0.0, 1.0), "Share of right runs, 95% interval")


def difference_plot(first: str, differences: Sequence[tuple[str, PairedDifference]]) -> Any:
    """Draw paired differences with their intervals, beside a line at no difference.

    Green is clearly more often right, red clearly less often, grey neither. The rows may be arms,
    or one arm's cases by tag.

    Args:
        first: The arm to compare with.
        differences: Labels and differences.
    """
    rows = []
    for label, each in differences:
        colour = GREY
        if each.is_clear:
            colour = GREEN if each.mean > 0 else RED
        text = f"{points(each.mean)} ({span(each.low, each.high)}), p = {each.corrected_p:.2g}"
        rows.append(Row(label, each.mean, each.low, each.high, colour, text))
    farthest = 0.1
    for row in rows:
        for end in (row.low, row.value, row.high):
            if math.isfinite(end):
                farthest = max(farthest, abs(end))
    # To the next tenth, so that the line at 0 stays in the middle.
    reach = min(1.0, math.ceil(farthest * 10) / 10)
    levels = {f"{each.level * 100:.3g}%" for _, each in differences}
    level = levels.pop() if len(levels) == 1 else "corrected"
    title = (
        f"More or less often right than {words.one_line(first)[:_LONGEST]}, in points, {level}"
        " interval"
    )
    return _drawn(rows, (-reach, reach), title)


def _drawn(rows: Sequence[Row], limits: _Limits, title: str) -> Any:
    shown = rows[:_MOST]
    try:
        figure = figure_of_size(6.8, 1.2 + 0.5 * len(shown))
    except ImportError:
        return Svg(_svg(shown, limits, title))
    _draw(figure, shown, limits, title)
    return figure


def _draw(
    figure: Any,
    rows: Sequence[Row],
    limits: _Limits,
    title: str,
) -> None:
    axes = figure.subplots()
    axes.grid(axis="x", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    if limits[0] < 0:
        axes.axvline(0, color="black", linewidth=1)
    for number, row in enumerate(rows):
        low, high = _within(row, limits)
        errors = [[max(0.0, row.value - low)], [max(0.0, high - row.value)]]
        axes.errorbar(
            [row.value], [number], xerr=errors, fmt="o", capsize=4, color=row.colour, clip_on=False
        )
    # A dollar sign begins a formula.
    labels = [_label(row.label).replace("$", r"\$") for row in rows]
    axes.set_yticks(range(len(rows)), labels)
    ticks = _ticks(limits)
    axes.set_xticks(ticks, [_tick(tick, limits) for tick in ticks])
    axes.set(xlim=limits, ylim=(max(len(rows), 1) - 0.5, -0.5), xlabel=title.replace("$", r"\$"))


def _svg(rows: Sequence[Row], limits: _Limits, title: str) -> str:
    height = _ROW * len(rows) + 62
    width = _LEFT + _WIDTH + _RIGHT
    said = "; ".join(f"{_label(row.label)}: {row.text}" for row in rows)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" font-family="sans-serif" font-size="13" role="img"'
            f' aria-label="{_escaped(f"{title}. {said}")}">'
        ),
        f"<title>{_escaped(title)}</title>",
        f"<desc>{_escaped(said)}</desc>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]

    def place(value: float) -> float:
        return _LEFT + (value - limits[0]) / (limits[1] - limits[0]) * _WIDTH

    bottom = height - 50
    for tick in _ticks(limits):
        x = place(tick)
        colour = "black" if limits[0] < 0 and tick == 0 else _GRID
        parts.append(f'<path d="M{x:.1f} 4V{bottom}" stroke="{colour}"/>')
        text = _tick(tick, limits)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{text}</text>')
    for number, row in enumerate(rows):
        y = _ROW * number + 22
        low, high = map(place, _within(row, limits))
        parts.append(
            f'<text x="{_LEFT - 14}" y="{y + 4}"'
            f' text-anchor="end">{_escaped(_label(row.label))}</text>'
        )
        parts.append(
            f'<path d="M{low:.1f} {y}H{high:.1f}M{low:.1f} {y - 5}v10M{high:.1f} {y - 5}v10" '
        )
        parts.append(f'stroke="{row.colour}" stroke-width="2" fill="none"/>')
        parts.append(f'<circle cx="{place(row.value):.1f}" cy="{y}" r="5" fill="{row.colour}"/>')
    middle = _LEFT + _WIDTH / 2
    parts.append(
        f'<text x="{middle}" y="{height - 10}" text-anchor="middle">{_escaped(title)}</text>'
    )
    return "\n".join([*parts, "</svg>"])


def _within(row: Row, limits: _Limits) -> _Limits:
    return max(row.low, limits[0]), min(row.high, limits[1])


def _ticks(limits: _Limits) -> list[float]:
    """Divide the axis in four."""
    low, high = limits
    return [low + (high - low) * quarter / 4 for quarter in range(5)]


def _tick(value: float, limits: _Limits) -> str:
    if limits[0] >= 0:
        return words.percent(value)
    number = hundredths(value)
    return f"+{number}" if value > 0 else number


def _label(text: str) -> str:
    line = words.one_line(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _escaped(text: str) -> str:
    return html.escape(words.clean(text))
