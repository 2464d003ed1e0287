"""Counts in words, for displays and the reprs of values."""

from __future__ import annotations


def count(value: int, singular: str) -> str:
    """Format a count: `1 tool`, `2 tools`, `3 searches`."""
    ending = "es" if singular.endswith(("ch", "s")) else "s"
    return f"{value:,} {singular}{'' if value == 1 else ending}"
