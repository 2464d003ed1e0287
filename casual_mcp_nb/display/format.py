"""Numbers as words: counts, tokens, seconds, shares and savings. The same in every form of every display."""

from __future__ import annotations

import math

from casual_mcp_nb.types.tokens import Origin

UNKNOWN = "unknown"


def number(value: float | None) -> str:
    """Format a number: `1,234`, `0.25`, or `unknown` for None and for what is not finite."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def count(value: int, noun: str) -> str:
    """Format a count: `1 tool`, `2 tools`, `3 searches`."""
    ending = "es" if noun.endswith(("ch", "s")) else "s"
    return f"{value:,} {noun}{'' if value == 1 else ending}"


def tokens(value: int | None, origin: Origin) -> str:
    """Format tokens: `1,234 tokens (estimated)`, always with the origin of the number, unless it is unknown."""
    return UNKNOWN if value is None else f"{count(value, 'token')} ({origin})"


def seconds(value: float | None) -> str:
    """Format a duration: `12 ms`, `0.82 s`, `3.4 s`, `2 min 5 s`, or `unknown`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value < 0.1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.2f} s" if value < 1 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes:,} min {rest} s"


def score(value: float | None) -> str:
    """Format a search score with three decimals; `named` for a tool that was named and not ranked."""
    return "named" if value is None else f"{value:.3f}"


def percent(part: float) -> str:
    """Format a share: `25%` for 0.25."""
    return f"{part * 100:.0f}%"


def change(value: int) -> str:
    """Format a change: `+1,234`, `-5`, `0`."""
    return f"{value:+,}" if value else "0"


def size(value: int) -> str:
    """Format a size: `2,048 bytes`."""
    return count(value, "byte")


def saving(price: int, without: int) -> str:
    """Return what deferring saves, in words: `63% less`, or that it costs more here."""
    if without <= 0 or price == without:
        return "no difference"
    share = percent(abs(without - price) / without)
    return f"{share} less" if price < without else f"{share} more: deferral costs more here than it saves"
