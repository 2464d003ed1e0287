"""Differences between shares in words: in percentage points."""

from __future__ import annotations

import math


def points(share: float) -> str:
    """Write a difference of shares in percentage points."""
    if math.isinf(share):
        return "any number of points"
    return f"{hundredths(share)} points"


def span(low: float, high: float) -> str:
    """Write an interval of differences of shares in percentage points."""
    if math.isinf(low) or math.isinf(high):
        return "any number of points"
    return f"{hundredths(low)} to {hundredths(high)} points"


def hundredths(share: float) -> str:
    """Write a share in hundredths."""
    value = f"{share * 100:.1f}".removesuffix(".0")
    return "0" if value == "-0" else value
