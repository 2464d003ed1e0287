"""Reword a request in the terms of tools: `the square root of 2` as `sqrt(2)`."""

from __future__ import annotations

import re
from collections.abc import Callable

from casual_mcp_nb.offline.expressions import NUMBER

QUOTED = re.compile(
    r"\"([^\"]{1,2000})\"|“([^”]{1,2000})”|`([^`]{1,2000})`|(?<![\w])['\u2018]((?:[^'\u2019\n]|['\u2019](?=\w)){1,500})['\u2019](?!\w)"
)
_FIRST_STAND_IN = 0xE000
_STAND_IN = r"[\ue000-\uf8ff]"
# Not `one`, which is usually not a number: `which one`.
_NUMBER_WORDS = """
two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty thirty forty fifty sixty seventy eighty ninety hundred
"""
_NUMBERS = dict(zip(_NUMBER_WORDS.split(), map(str, [*range(2, 20), *range(20, 101, 10)]), strict=True))
_OPERATORS = {
    "plus": "+",
    "minus": "-",
    "times|multiplied by|\u00d7": "*",
    "divided by|\u00f7": "/",
    "to the power of|\\^": "**",
    "modulo": "%",
    "(?:%|percent) of": "/ 100 *",
}
_MULTIPLE = r"(?:a multiple of|divisible by|divided by)"
_COMPUTER = "cores?|is|are|do|does|have|has|there|free|available|used|left|in|on|this|the|my|i|we|it|computer|machine"
_OF_COMPUTER = rf"(?:\s(?:{_COMPUTER})\b){{0,8}}"
_T = r"(?:\d{1,9}(?:\.\d{1,9})?)?"
_QUADRATIC = (
    rf"(?<![\w.])(-?{_T})\s*\*?\s*x\s*(?:\^|\*\*)\s*2(?:\s*([+-]\s*{_T})\s*\*?\s*x)?(?:\s*([+-]\s*\d{{1,9}}(?:\.\d{{1,9}})?))?"
    r"\s*=\s*0(?![\w.])"
)


def _quadratic(match: re.Match[str]) -> str:
    signed = ["0" if group is None else group.replace(" ", "").lstrip("+") for group in match.groups()]
    a, b, c = (f"{text}1" if text in ("", "-") else text for text in signed)
    return f"the quadratic equation with a={a}, b={b}, c={c}"


_PHRASES: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (rf"\b(?:{'|'.join(_NUMBERS)})\b", lambda match: _NUMBERS[match[0].casefold()]),
    (_QUADRATIC, _quadratic),
    (rf"\b(?:the )?square root of ({NUMBER})", r"sqrt(\1)"),
    (rf"\b(?:the )?cube root of ({NUMBER})", r"(\1) ** (1 / 3)"),
    (rf"\b(?:the )?factorial of ({NUMBER})|(?<![\w.])(\d+)(?: factorial\b|!(?=\W|$))", r"factorial(\1\2)"),
    (rf"({NUMBER}) squared\b", r"\1 ** 2"),
    (rf"({NUMBER}) cubed\b", r"\1 ** 3"),
    (rf"\bsubtract (-?{NUMBER}) from (-?{NUMBER})", r"\2 - \1"),
    (rf"\b(?:add|sum of) (-?{NUMBER}) (?:and|to) (-?{NUMBER})(?!\s*(?:,|and)\s*\d)", r"\1 + \2"),
    (rf"\b(?:multiply|product of) (-?{NUMBER}) (?:by|with|and) (-?{NUMBER})", r"\1 * \2"),
    (rf"\bdivide (-?{NUMBER}) by (-?{NUMBER})", r"\1 / \2"),
    (rf"\bround (-?{NUMBER}) to (\d) (?:decimal|digit|place)\w*(?: places)?", r"round(\1, \2)"),
    *((rf"(?<=[\d)])\s*(?:{spoken})\s*(?=\S*\d)", f" {sign} ") for spoken, sign in _OPERATORS.items()),
    (
        r"\b(?:largest|biggest|greatest|highest) (?:common )?(?:number|integer|divisor|factor) (?:that|which) (?:evenly )?"
        r"divides(?: both)?\b",
        "gcd of",
    ),
    (rf"\b(?:smallest|least|lowest) number (?:(?:that|which) (?:is|can be) )?{_MULTIPLE}(?: both)?\b", "lcm of"),
    (r"\b(?:how many|number of) days (?:are (?:there |left )?)?(?:until|till|to)\b", "difference in days, start=today, end"),
    (rf"\breplace ({_STAND_IN}) (?:with|by) ({_STAND_IN}) in ({_STAND_IN})", r"find_replace find=\1, replace=\2, text=\3"),
    (r"\bfor the (?:word|words|phrase|text|string)\s+", "for "),
    (
        r"\bwhere (?:is|does|do) (?:the (?:word|text) )?(\w+) (?:appear|mentioned|occur|used)\b",
        r"search files for \1",
    ),
    (
        r"\b(?:which|what) week (?:number )?(?:of the year )?is (?:it|this)\b(?: today| now)?",
        "week number of a date, text=today",
    ),
    (r"\b(?:which|what) week (?:number )?(?:of the year )?is (\w[\w-]*)", r"week number of a date, text=\1"),
    (r"\bhow (?:big|large) is\b", "what is the size of"),
    (rf"\bhow much (?:free |main )?(?:memory|ram)\b{_OF_COMPUTER}", "show memory info"),
    (rf"\bhow many (?:cpus?|cores|processors?)\b{_OF_COMPUTER}", "show cpu info"),
    (r"\bhow (?:\w+) (?:is|are)(?= \d)", "how much is"),
]
_COMPILED = [(re.compile(pattern, re.I), instead) for pattern, instead in _PHRASES]


def reword(text: str) -> str:
    """Return a request with its phrases in the terms of tools; quotations stay as they are."""
    quotations: list[str] = []

    def stand_in(match: re.Match[str]) -> str:
        quotations.append(match[0])
        return chr(_FIRST_STAND_IN + len(quotations) - 1)

    text = QUOTED.sub(stand_in, re.sub(_STAND_IN, " ", text))
    for pattern, instead in _COMPILED:
        text = pattern.sub(instead, text)
    return re.sub(_STAND_IN, lambda match: quotations[ord(match[0]) - _FIRST_STAND_IN], text)
