"""Numbers as words: counts, tokens, seconds, shares and savings. The same in every form of every display."""

from __future__ import annotations

import math
from collections.abc import Iterable

from casual_mcp_nb.types.counts import count as count
from casual_mcp_nb.types.tokens import Origin

_ANSWERED = (None, "stop", "STOP", "end_turn", "completed")
_CALLED = ("tool_calls", "tool_use", "function_call")
UNKNOWN = "\N{EN DASH}"
"""What a table shows for a number that is not known; elsewhere it is left out."""

SUMMARY = 80
"""Characters of a description in a table."""


def number(value: float | None) -> str:
    """Format a number: `1,234`, `0.25`, or a dash for None, infinity and NaN."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def about(value: int | None, origin: Origin) -> str:
    """Format a number that was counted or estimated: `1,234` or `≈ 1,234`."""
    return f"≈ {number(value)}" if value is not None and origin == "estimated" else number(value)


def tokens(value: int | None, origin: Origin) -> str:
    """Format tokens: `1,234 tokens` where the provider counted, `≈ 1,234 tokens` where they are estimated."""
    return UNKNOWN if value is None else f"{about(value, origin)} {'token' if value == 1 else 'tokens'}"


def seconds(value: float | None) -> str:
    """Format a duration: `12 ms`, `0.82 s`, `3.4 s`, `2 min 5 s`, or a dash."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value < 0.1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.2f} s" if value < 1 else f"{value:.1f} s"
    minutes, seconds_left = divmod(round(value), 60)
    return f"{minutes:,} min {seconds_left} s"


def score(value: float | None) -> str:
    """Format a search score with one decimal; `named` for a tool that was named and not ranked."""
    return "named" if value is None else f"{value:.1f}"


def percent(part: float) -> str:
    """Format a share: `25%` for 0.25."""
    return f"{part * 100:.0f}%"


def change(value: int) -> str:
    """Format a change: `+1,234`, `-5`, `0`."""
    return f"{value:+,}" if value else "0"


def size(value: int) -> str:
    """Format a size: `2,048 bytes`."""
    return count(value, "byte")


def difference(price: int, without: int) -> str:
    """Format how two prices differ: `63% less`, `94% more`; empty where they do not."""
    if without <= 0 or price == without:
        return ""
    return f"{percent(abs(without - price) / without)} {'less' if price < without else 'more'}"


def ending(reason: str | None) -> str:
    """Describe why a model stopped; empty where it had answered or nothing is known."""
    if reason in _ANSWERED:
        return ""
    return "stopped to call tools" if reason in _CALLED else f"ended with {reason}"


def listed(items: Iterable[str], most: int) -> str:
    """Join the first items with commas, and count the others."""
    items = list(items)
    return ", ".join(items if len(items) <= most else [*items[:most], f"{len(items) - most:,} more"])


def quoted(text: str) -> str:
    """Put a text in quotation marks."""
    return f"“{text}”"
