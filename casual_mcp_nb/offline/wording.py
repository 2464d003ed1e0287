"""Reword a request in the terms of tools: `the square root of 2` as `sqrt(2)`."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count

from casual_mcp_nb.offline.mentions import NUMBER, QUOTED

_FIRST_STAND_IN = 0xE000
_STAND_IN = r"([\ue000-\uf8ff])"
# Not `one`, which is usually not a number: `which one`.
_NUMBER_WORDS = """
two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty thirty forty fifty sixty seventy eighty ninety hundred
"""
_NUMBERS = dict(zip(_NUMBER_WORDS.split(), map(str, [*range(2, 20), *range(20, 101, 10)]), strict=True))
_N = rf"(-?{NUMBER})"
_T = r"(?:\d{1,9}(?:\.\d{1,9})?)?"
_SQUARE = rf"(?<![\w.])(-?{_T})\s*\*?\s*x\s*(?:\^|\*\*)\s*2"
_QUADRATIC = rf"{_SQUARE}(?:\s*([+-]\s*{_T})\s*\*?\s*x)?(?:\s*([+-]\s*\d{{1,9}}(?:\.\d{{1,9}})?))?\s*=\s*0(?![\w.])"
_BEFORE, _AFTER = r"(?<=[\d)])\s*", r"\s*(?=\S*\d)"
_TIMES = r"(seconds|minutes|hours|days|weeks|months|years)"
_COMPUTER = "cores?|is|are|do|does|have|has|there|free|available|used|left|in|on|this|the|my|i|we|it|computer|machine"
_OF_COMPUTER = rf"(?:\s(?:{_COMPUTER})\b){{0,8}}"


def _quadratic(match: re.Match[str]) -> str:
    signed = ["0" if group is None else group.replace(" ", "").lstrip("+") for group in match.groups()]
    a, b, c = (f"{text}1" if text in ("", "-") else text for text in signed)
    return f"the quadratic equation with a={a}, b={b}, c={c}"


_PHRASES: dict[str, str | Callable[[re.Match[str]], str]] = {
    rf"\b(?:{'|'.join(_NUMBERS)})\b": lambda match: _NUMBERS[match[0].casefold()],
    _QUADRATIC: _quadratic,
    # Calculations.
    rf"\b(?:the )?square root of {_N}": r"sqrt(\1)",
    rf"\b(?:the )?cube root of {_N}": r"(\1) ** (1 / 3)",
    rf"\b(?:the )?factorial of {_N}|(?<![\w.])(\d+)(?: factorial\b|!(?=\W|$))": r"factorial(\1\2)",
    rf"{_N} squared\b": r"\1 ** 2",
    rf"{_N} cubed\b": r"\1 ** 3",
    rf"\bsubtract {_N} from {_N}": r"\2 - \1",
    rf"\b(?:add|sum of) {_N} (?:and|to) {_N}(?!\s*(?:,|and)\s*\d)": r"\1 + \2",
    rf"\b(?:multiply|product of) {_N} (?:by|with|and) {_N}": r"\1 * \2",
    rf"\bdivide {_N} by {_N}": r"\1 / \2",
    rf"\bround {_N} to (\d) (?:decimal|digit|place)\w*(?: places)?": r"round(\1, \2)",
    rf"{_BEFORE}plus{_AFTER}": " + ",
    rf"{_BEFORE}minus{_AFTER}": " - ",
    rf"{_BEFORE}(?:times|multiplied by|\u00d7){_AFTER}": " * ",
    rf"{_BEFORE}(?:divided by|\u00f7){_AFTER}": " / ",
    rf"{_BEFORE}(?:to the power of|\^){_AFTER}": " ** ",
    rf"{_BEFORE}modulo{_AFTER}": " % ",
    rf"{_BEFORE}(?:%|percent) of{_AFTER}": " / 100 * ",
    r"\b(?:largest|biggest|greatest|highest) (?:number|integer) (?:that|which) (?:evenly )?divides(?: both)?\b": "gcd of",
    r"\b(?:smallest|least|lowest) number (?:(?:that|which) is )?(?:divisible by|a multiple of)(?: both)?\b": "lcm of",
    r"\b(?:by )?how many percent\b": "percentage change",
    # Dates and times.
    r"\bchristmas eve\b": "24 December",
    r"\bchristmas(?: day)?\b": "25 December",
    r"\bnew year['\u2019]?s eve\b": "31 December",
    r"\bnew year(?:['\u2019]?s(?: day)?)?\b": "1 January",
    rf"\b(?:how many|number of) {_TIMES} (?:are (?:there |left )?)?(?:until|till|to)\b": r"difference in \1, start=today, end",
    rf"\b(?:how many|number of) {_TIMES} (?:have passed |is it |are there )?since\b": r"difference in \1, end=today, start",
    r"\bhow old (?:am|is|are)\b.{0,40}?\bborn on\b": "difference in years, end=today, start",
    rf"\bwhat (?:date|day) (?:is it|(?:will it|it will) be) in (\d+ {_TIMES})": r"add duration time=today, \1",
    rf"\bwhat (?:date|day) (?:is |will it be )?(?:it )?(\d+ {_TIMES}) from (?:now|today)": r"add duration time=today, \1",
    r"\bweekday\b": "day of week",
    r"\b(?:which|what) week (?:number )?(?:of the year )?is (?:it|this)\b(?: today| now)?": "week number of a date, text=today",
    r"\b(?:which|what) week (?:number )?(?:of the year )?is (\w[\w-]*)": r"week number of a date, text=\1",
    # Files, texts and tables.
    rf"\breplace {_STAND_IN} (?:with|by) {_STAND_IN} in {_STAND_IN}": r"find_replace find=\1, replace=\2, text=\3",
    r"\bfor the (?:word|words|phrase|text|string)\s+": "for ",
    r"\bwhere (?:is|does|do) (?:the (?:word|text) )?(\w+) (?:appear|mentioned|occur|used)\b": r"search files for \1",
    r"\b(?:do|does|which|what) (?:any )?files? (?:mention|contain|have)s?\b": "search text of files for",
    r"\bwhat(?:['\u2019]s| is) in (?:this|the|my) (folder|directory)\b": r"list \1",
    r"\bhow (?:big|large) is\b": "what is the size of",
    r"\b(?:which|what) columns (?:do|does|has|are in)\b": "describe the columns of",
    # The computer.
    r"\bprocessors?\b": "cpu",
    rf"\bhow much (?:free |main )?(?:memory|ram)\b{_OF_COMPUTER}": "show memory info",
    rf"\bhow many (?:cpus?|cores)\b{_OF_COMPUTER}": "show cpu info",
    r"\b(?:am i|are we) (?:running|using)\b": "",
    r"\bhow (?:\w+) (?:is|are)(?= \d)": "how much is",
    rf"\b(convert) ({NUMBER} \w+) and ({NUMBER} \w+) (?:in)?to (\w+)": r"\1 \2 to \4 and \1 \3 to \4",
}
_COMPILED = [(re.compile(pattern, re.I), instead) for pattern, instead in _PHRASES.items()]


def reword(text: str) -> str:
    """Rewrite a request's phrases in the terms of tools; quotations stay as they are."""
    text = re.sub(_STAND_IN, " ", text)
    quotations, stand_ins = [match[0] for match in QUOTED.finditer(text)], map(chr, count(_FIRST_STAND_IN))
    text = QUOTED.sub(lambda _: next(stand_ins), text)
    for pattern, instead in _COMPILED:
        text = pattern.sub(instead, text)
    return re.sub(_STAND_IN, lambda match: quotations[ord(match[0]) - _FIRST_STAND_IN], text)
