"""Phrases that say in other words what tools say in theirs, put into these."""

from __future__ import annotations

import re

_NUMBER = r"(?:number|integer|divisor|factor)"
_MULTIPLE = r"(?:a multiple of|divisible by|divided by)"
_QUOTED = r"(?:\"[^\"]{1,2000}\"|'[^'\n]{1,2000}')"
_PHRASES = tuple(
    (re.compile(pattern, re.IGNORECASE), instead)
    for pattern, instead in (
        (
            rf"\b(?:largest|biggest|greatest|highest) (?:common )?{_NUMBER} (?:that|which) (?:evenly )?divides(?: both)?\b",
            "gcd of",
        ),
        (
            rf"\b(?:smallest|least|lowest) number (?:(?:that|which) (?:is|can be) )?{_MULTIPLE}(?: both)?\b",
            "lcm of",
        ),
        (
            r"\b(?:how many|number of) days (?:are (?:there |left )?)?(?:until|till|to)\b",
            "difference in days, start=today, end",
        ),
        (rf"\breplace ({_QUOTED}) (?:with|by) ({_QUOTED}) in ({_QUOTED})", r"find_replace find=\1, replace=\2, text=\3"),
        (r"\bfor the (?:word|words|phrase|text|string)\s+", "for "),
    )
)
_TERM = r"(?:\d{1,9}(?:\.\d{1,9})?)?"
_QUADRATIC = re.compile(
    rf"(?<![\w.])(-?{_TERM})\s*\*?\s*x\s*(?:\^|\*\*)\s*2(?:\s*([+-])\s*({_TERM})\s*\*?\s*x)?(?:\s*([+-])\s*(\d{{1,9}}(?:\.\d{{1,9}})?))?"
    r"\s*=\s*0(?![\w.])",
    re.IGNORECASE,
)


def in_terms_of_tools(text: str) -> str:
    """Return a request with phrases such as `the largest number that divides` in the terms of tools, and `x^2 - 5x + 6 = 0` as
    its coefficients."""
    for pattern, instead in _PHRASES:
        text = pattern.sub(instead, text)
    return _QUADRATIC.sub(_coefficients, text)


def _coefficients(match: re.Match[str]) -> str:
    first = {"": "1", "-": "-1"}.get(match[1], match[1])
    second = f"{_sign(match[2])}{match[3] or '1'}" if match[2] else "0"
    third = f"{_sign(match[4])}{match[5]}" if match[4] else "0"
    return f"the quadratic equation with a={first}, b={second}, c={third}"


def _sign(text: str) -> str:
    return "-" if text == "-" else ""
