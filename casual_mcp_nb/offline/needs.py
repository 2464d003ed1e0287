"""Split a request into needs, worded as tools would, with the values that it mentions."""

from __future__ import annotations

import ast
import json
import re
from calendar import day_name, month_name
from collections.abc import Callable, Iterator
from datetime import date
from functools import cache
from itertools import islice, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from casual_mcp_nb.base.time_zones import zones_by_name
from casual_mcp_nb.discovery.text import terms

MAX_MENTIONS = 200
NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d{1,200}(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)"
QUOTED = re.compile(
    r"(\"[^\"]{1,2000}\"|“[^”]{1,2000}”|`[^`]{1,2000}`|(?<![\w])['\u2018](?:[^'\u2019\n]|['\u2019](?=\w)){1,500}['\u2019](?!\w))"
)
_NUMBER = re.compile(rf"(?<![\w.])-?{NUMBER}(?![\w:])")
_UNIT_WORDS = (
    r"(?:square |cubic |fluid |nautical |light |imperial |degrees? )?(?:"
    r"(?:nano|micro|milli|centi|deci|hecto|kilo|mega|giga|tera|peta|kibi|mebi|gibi)?"
    r"(?:met(?:er|re)|gram|lit(?:er|re)|byte|bit|joule|calorie|pascal|second)s?(?: per"
    r" (?:second|hour))?|kilos?|tonnes?|tons?"
    r"|miles?(?: per"
    r" hour)?|inch(?:es)?|foot|feet|yards?|acres?|hectares?|pounds?|ounces?|stones?|gallons?|pints?|quarts?|cups?"
    r"|tablespoons?|teaspoons?|knots?|celsius|fahrenheit|kelvin|watt"
    r" hours?|bars?|atmospheres?|years?|months?|weeks?|days?"
    r"|hours?|minutes?"
    r"|km/h|kmh|kph|mph|m/s|ft/s|km2?|cm2?|mm|dm|nm|mi2?|yd|ft2?|in2|kg|mg|lbs?|oz|ml|cl|dl|gal|kcal|cal|kWh|kJ|hPa|kPa|psi|atm"
    r"|[KMGT]i?B|kB|[MG]bit|°[CF]|hrs?|min|sec|ms|ha)(?![\w/])"
)
_SHORT_UNIT = r"(?:[mglshCFKt]|in(?=\s+(?:to|in|into|as)\b))(?![\w/'\u2019])"
_UNIT = re.compile(
    rf"(?:(?<![\w.])|(?<=\d)){_UNIT_WORDS}|(?:(?<=\d)|(?<=\d )|(?<=\bto )){_SHORT_UNIT}", re.I
)
_UNIT_AFTER = re.compile(rf"\s*(?:degrees?\s+)?({_UNIT_WORDS}|{_SHORT_UNIT})", re.I)
_BASES = {"binary": 2, "octal": 8, "decimal": 10, "hexadecimal": 16, "hex": 16}
_BASE = re.compile(
    rf"(?:(?<=\bto )|(?<=\binto )|(?<=\bin )|(?<=\bfrom ))(?:{'|'.join(_BASES)})\b", re.I
)
_URL = re.compile(r"\bhttps?://[^\s<>\"']*[^\s<>\"'.,;:!?)]")
_EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_SQL = re.compile(
    r"\b(?:select\s.{1,2000}?\sfrom\s.+|select\s+[\d'\"(*].*|insert\s+into\s.+|update\s+\S+\s+set\s.+|delete\s+from\s.+|pragma\s+\w.*"
    r"|create\s+table\s.+|with\s+\w+\s+as\s*\(.+)",
    re.I | re.S,
)
_BASE64 = re.compile(
    r"(?<![\w+/=])(?=[a-z+/]*[A-Z\d])(?:[A-Za-z\d+/]{4})+(?:[A-Za-z\d+/]{2}==|[A-Za-z\d+/]{3}=)(?![\w=])"
)
_MONTHS = tuple(month_name)[1:]
_MONTH_ALONE = re.compile(rf"(?<!^)\b(?:{'|'.join(_MONTHS)})\b")
_WEEKDAY = re.compile(rf"\b(?:{'|'.join(day_name)})(?=s?\b)")
_MONTH = rf"(?:{'|'.join([*_MONTHS, 'Sept', *(month[:3] for month in _MONTHS)])})\b\.?"
_DATE = re.compile(
    r"\b\d{4}-\d\d-\d\d(?:[T"
    r" ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)?(?!\d)|\b\d{1,2}\.\d{1,2}\.\d{4}\b"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH}(?:,? \d{{4}}\b)?|\b{_MONTH}"
    r" \d{1,2}(?:st|nd|rd|th)?\b(?:,? \d{4}\b)?",
    re.I,
)
_TIME = re.compile(
    r"\b\d{1,2}(?=:\d\d|\s*[ap]\.?m\b)(?::\d\d){0,2}(?:\s*[ap]\.?m\b\.?)?|\b(?:noon|midnight)\b",
    re.I,
)
_GLOB = re.compile(r"(?<!\S)[\w./-]*\*[\w./*-]*\.\w+|(?<!\S)\*?\.[a-z]\w{0,4}(?!\w)", re.I)
_PATH = re.compile(
    r"(?<![\w/.])(?:~?/|\.{1,2}/)[\w./-]*[\w/-]|(?<![\w/.])[\w-][\w.-]{0,200}(?:/[\w.-]*[\w-])+/?"
    r"|(?<![\w/.])[\w-][\w.-]{0,200}/(?!\S)"
    r"|(?<![\w/.])[\w-][\w.-]{0,200}\.(?=[a-z0-9]{1,5}(?![\w/]))[a-z0-9]*[a-z][a-z0-9]*(?!\w)"
)
_ORDINARY_WORDS = """
acre casey center central currie davis east easter eastern factory gb general local mountain nome north pacific reunion south
troll universal west western yukon z zulu
"""
_FUNCTION = (
    r"(?:sqrt|sin|cos|tan|log10|log2|log|exp|abs|factorial|round|floor|ceil|min|max|sum)(?=\s*\()"
)
_TOKEN = rf"(?:{NUMBER}(?![A-Za-z:])|{_FUNCTION}|pi\b|\*\*|//|[-+*/%(),\[\]])"
_TOKENS = re.compile(_TOKEN, re.I)
_RUN = re.compile(rf"(?<![\w.])(?:{_TOKEN}\s*){{2,100}}", re.I)
_MAX_TRIES = 300
_MARKER = re.compile(r"([^\W\d_]+\s|\d\s*)\s*(?:the\s+)?(?:degrees?\s+)?[\"'“(]?$")
_NEAR = 40


class Mention(NamedTuple):
    """A value in a request: its kind (a key in the table of finders below), its position, the word
    before it (or the digit, for a unit), and a number's unit.
    """

    kind: str
    value: Any
    start: int
    end: int
    marker: str = ""
    unit: str = ""


def find_mentions(text: str) -> list[Mention]:
    """Find the values in a text, in order and without overlaps, at most `MAX_MENTIONS`."""
    mentions: list[Mention] = []
    taken = bytearray(len(text))
    for kind, find in _FINDERS.items():
        for start, end, value in find(text):
            if value is None or len(mentions) == MAX_MENTIONS or any(taken[start:end]):
                continue
            taken[start:end] = b"\1" * (end - start)
            before = _MARKER.search(text[max(0, start - _NEAR) : start])
            marker = before[1].strip().casefold() if before else ""
            after = _UNIT_AFTER.match(text, end) if kind == "number" else None
            mentions.append(Mention(kind, value, start, end, marker, after[1] if after else ""))
    units = [one for one in mentions if one.kind == "unit"]
    converts = any(one.marker.isdigit() for one in units) or "convert" in text.casefold()
    is_dated = any(one.kind == "date" for one in mentions)
    if is_dated or not (converts or len(units) > 1):
        left = [] if is_dated else [one for one in units if one.marker == "in"]
        mentions = [one for one in mentions if one.kind != "unit" or one in left]
    return sorted(mentions, key=attrgetter("start"))


def find_expressions(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the calculations in a text, such as `17 * 23 + 4`: start, end and the expression."""
    for run in _RUN.finditer(text):
        tokens = [token.span() for token in _TOKENS.finditer(text, run.start(), run.end())]
        # The longest part that can be evaluated, then what follows it.
        parts: list[tuple[int, int]] = []
        for number, first in enumerate(tokens):
            parts += [(first[0], last[1]) for last in reversed(tokens[number + 1 :])]
            if len(parts) >= _MAX_TRIES:
                break
        taken = 0
        for start, end in parts[:_MAX_TRIES]:
            if start >= taken and (expression := _calculation(text[start:end])):
                yield start, end, expression
                taken = end


def number(text: str) -> int | float:
    """Parse a number in digits, with or without thousands separators.

    Raise ValueError for any other text.
    """
    plain = text.replace(",", "")
    if plain.lstrip("+-").isdecimal():
        return int(plain)
    return float(plain)


def _calculation(text: str) -> str | None:
    """Parse a text as an expression, if it is one that calculates something."""
    try:
        tree = ast.parse(re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.lower()), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    if isinstance(tree.body, ast.BinOp | ast.Call):
        return ast.unparse(tree)
    return None


Found = Iterator[tuple[int, int, Any]]
"""Values in a text: start, end and the value, or None for none."""


def _matches(pattern: re.Pattern[str], read: Callable[[str], Any] = str) -> Callable[[str], Found]:
    """Find a pattern's matches, and `read` the last group of each, or the whole."""

    def find(text: str) -> Found:
        for match in pattern.finditer(text):
            yield match.start(), match.end(), read(match[match.lastindex or 0])

    return find


def _json(text: str) -> Found:
    for match in islice(re.finditer(r"[{\[]", text), 50):
        try:
            value, end = json.JSONDecoder().raw_decode(text, match.start())
        except ValueError:
            continue
        except RecursionError:
            return
        if isinstance(value, dict) or value:
            yield match.start(), end, value


def _iso_date(text: str) -> str | None:
    """Convert a date to ISO 8601. Without a year, it is the next such day."""
    from dateutil.parser import parse

    if re.match(r"\d{4}-", text):
        return text.replace(" ", "T")
    today = date.today()
    try:
        written = parse(text.replace(" of ", " "), dayfirst=True).date()
        if not re.search(r"\d{4}", text) and written < today:
            written = written.replace(year=today.year + 1)
    except ValueError:
        return None
    return written.isoformat()


def _time(text: str) -> str | None:
    from dateutil.parser import parse

    words = {"noon": "12:00", "midnight": "00:00"}
    try:
        moment = parse(words.get(text.casefold(), text))
    except ValueError:
        return None
    return f"{moment:%H:%M:%S}".removesuffix(":00") if text.count(":") < 2 else f"{moment:%H:%M:%S}"


def _month(name: str) -> int:
    return _MONTHS.index(name) + 1


def _path(text: str) -> str | None:
    if text.casefold() in {"and/or", *zones_by_name()} or re.fullmatch(_UNIT_WORDS, text, re.I):
        return None
    return text


@cache
def _place_pattern() -> re.Pattern[str]:
    """Compile the pattern for places: in capitals, or after a word such as `in`."""
    places = zones_by_name().keys() - _ORDINARY_WORDS.split()
    names = "|".join(map(re.escape, sorted(places, key=len, reverse=True)))
    after = "".join(rf"|(?<=\b{word} )" for word in ("in", "from", "to", "for", "at", "and", "of"))
    return re.compile(rf"(?<![\w/])(?:(?=[A-Z]){after})(?i:{names})(?!\w)")


def _inside(quotation: str) -> str:
    return quotation[1:-1]


def _sql(text: str) -> str:
    return text.rstrip(" ?.!;")


def _glob(text: str) -> str:
    return text if "*" in text else f"*{text}"


def _zones(text: str) -> Found:
    for match in _place_pattern().finditer(text):
        yield match.start(), match.end(), zones_by_name()[match[0].casefold()]


def _base(name: str) -> int:
    return _BASES[name.casefold()]


# The order decides which kind a span gets.
_FINDERS: dict[str, Callable[[str], Found]] = {
    "json": _json,
    "quoted": _matches(QUOTED, _inside),
    "encoded": _matches(_BASE64),
    "url": _matches(_URL),
    "email": _matches(_EMAIL),
    "sql": _matches(_SQL, _sql),
    "date": _matches(_DATE, _iso_date),
    "time": _matches(_TIME, _time),
    "glob": _matches(_GLOB, _glob),
    "path": _matches(_PATH, _path),
    "zone": _zones,
    "expression": find_expressions,
    "month": _matches(_MONTH_ALONE, _month),
    "weekday": _matches(_WEEKDAY),
    "unit": _matches(_UNIT),
    "base": _matches(_BASE, _base),
    "number": _matches(_NUMBER, number),
}


# Not `one`, which is usually not a number: `which one`.
_NUMBER_WORDS = """
two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty thirty forty fifty sixty seventy eighty ninety hundred
"""
_NUMBERS = dict(
    zip(_NUMBER_WORDS.split(), map(str, [*range(2, 20), *range(20, 101, 10)]), strict=True)
)
_N = rf"(-?{NUMBER})"
_T = r"(?:\d{1,9}(?:\.\d{1,9})?)?"
_SQUARE = rf"(?<![\w.])(-?{_T})\s*\*?\s*x\s*(?:\^|\*\*)\s*2"
_QUADRATIC = rf"{_SQUARE}(?:\s*([+-]\s*{_T})\s*\*?\s*x)?(?:\s*([+-]\s*\d{{1,9}}(?:\.\d{{1,9}})?))?\s*=\s*0(?![\w.])"
_SIGNS = {
    "+": "plus",
    "-": "minus",
    "*": "times|multiplied by|\u00d7",
    "/": "divided by|\u00f7",
    "**": r"to the power of|\^",
}
_SIGNS |= {"%": "modulo", "/ 100 *": "(?:%|percent) of"}
_BEFORE, _AFTER = r"(?<=[\d)])\s*", r"\s*(?=\S*\d)"
_TIMES = r"(seconds|minutes|hours|days|weeks|months|years)"
_COMPUTER = "cores?|is|are|do|does|have|has|there|free|available|used|left|in|on|this|the|my|i|we|it|computer|machine"
_OF_COMPUTER = rf"(?:\s(?:{_COMPUTER})\b){{0,8}}"


def _quadratic(match: re.Match[str]) -> str:
    coefficients: list[str] = []
    for group in match.groups():
        text = "0" if group is None else group.replace(" ", "").lstrip("+")
        coefficients.append(f"{text}1" if text in ("", "-") else text)
    a, b, c = coefficients
    return f"the quadratic equation with a={a}, b={b}, c={c}"


def _in_digits(match: re.Match[str]) -> str:
    return _NUMBERS[match[0].casefold()]


def _week(match: re.Match[str]) -> str:
    return f"week number of a date, text={match[1] or 'today'}"


_PHRASES: dict[str, str | Callable[[re.Match[str]], str]] = {
    rf"\b(?:{'|'.join(_NUMBERS)})\b": _in_digits,
    rf"\b(in|is|of|convert) (?:an?|one)(?= {_UNIT_WORDS})": r"\1 1",
    _QUADRATIC: _quadratic,
    # Calculations.
    rf"\b(?:the )?square root of {_N}": r"sqrt(\1)",
    rf"\b(?:the )?cube root of {_N}": r"(\1) ** (1 / 3)",
    rf"\b(?:the )?factorial of {_N}|(?<![\w.])(\d+)(?: factorial\b|!(?=\W|$))": r"factorial(\1\2)",
    rf"{_N} squared\b": r"\1 ** 2",
    rf"{_N} cubed\b": r"\1 ** 3",
    rf"\b(?:subtract|take) {_N} (?:away )?from {_N}": r"\2 - \1",
    rf"\b(?:add|sum(?: of)?) {_N} (?:and|to) {_N}(?!\s*(?:,|and)\s*\d)": r"\1 + \2",
    rf"\b(?:multiply|product of) {_N} (?:by|with|and) {_N}": r"\1 * \2",
    rf"\bdivide {_N} by {_N}": r"\1 / \2",
    rf"\bround {_N} to (\d) (?:decimal|digit|place)\w*(?: places)?": r"round(\1, \2)",
    **{rf"{_BEFORE}(?:{words}){_AFTER}": f" {sign} " for sign, words in _SIGNS.items()},
    r"\b(?:largest|biggest|greatest|highest) (?:number|integer) (?:that|which) (?:evenly )?divides(?: both)?\b": (
        "gcd of"
    ),
    r"\b(?:smallest|least|lowest) number (?:(?:that|which) is )?(?:divisible by|a multiple of)(?: both)?\b": (
        "lcm of"
    ),
    r"\b(?:by )?how many percent\b": "percentage change",
    # Dates and times.
    r"\bchristmas eve\b": "24 December",
    r"\bchristmas(?: day)?\b": "25 December",
    r"\bnew year['\u2019]?s eve\b": "31 December",
    r"\bnew year(?:['\u2019]?s(?: day)?)?\b": "1 January",
    rf"\b(?:how many|number of) {_TIMES} (?:are (?:there |left )?)?(?:until|till|to)\b": (
        r"difference in \1, start=today, end"
    ),
    rf"\b(?:how many|number of) {_TIMES} (?:have passed |is it |are there )?since\b": (
        r"difference in \1, end=today, start"
    ),
    r"\bhow old (?:am|is|are)\b.{0,40}?\bborn on\b": "difference in years, end=today, start",
    rf"\bwhat (?:date|day) (?:is it|(?:will it|it will) be) in (\d+ {_TIMES})": (
        r"add duration time=today, \1"
    ),
    rf"\bwhat (?:date|day) (?:is |will it be )?(?:it )?(\d+ {_TIMES}) from (?:now|today)": (
        r"add duration time=today, \1"
    ),
    r"\bweekday\b|\ba (?:mon|tues|wednes|thurs|fri|satur|sun)day\b": "day of week",
    r"\b(?:which|what) week (?:number )?(?:of the year )?is (?:(?:it|this)\b(?: today| now)?|(\w[\w-]*))": (
        _week
    ),
    # Files, texts and tables.
    r"\bfor the (?:word|words|phrase|text|string)\s+": "for ",
    r"\bwhere (?:is|does|do) (?:the (?:word|text) )?(\w+) (?:appear|mentioned|occur|used)\b": (
        r"search files for \1"
    ),
    r"\b(?:do|does|which|what) (?:any )?files? (?:mention|contain|have)s?\b": (
        "search text of files for"
    ),
    r"\bwhat(?:['\u2019]s| is) in (?:this|the|my) (folder|directory)\b": (
        r"which files are in the \1"
    ),
    r"\bhow (?:big|large) is\b": "what is the size of",
    r"\bhow long is (?:the|this) (?:text|word|sentence)\b": "count the characters in",
    r"\b(?:which|what) columns (?:do|does|has|are in)\b": "describe the columns of",
    # The computer.
    r"\bprocessors?\b": "cpu",
    rf"\bhow much (?:free |main )?(?:memory|ram)\b{_OF_COMPUTER}": "show memory info",
    rf"\bhow many (?:cpus?|cores)\b{_OF_COMPUTER}": "show cpu info",
    r"\b(?:am i|are we) (?:running|using)\b": "",
    r"\bhow (?:\w+) (?:is|are)(?= \d)": "how much is",
    rf"\b(convert) ({NUMBER} \w+) and ({NUMBER} \w+) (?:in)?to (\w+)": (
        r"\1 \2 to \4 and \1 \3 to \4"
    ),
}
_COMPILED = [(re.compile(pattern, re.I), instead) for pattern, instead in _PHRASES.items()]


_REPLACE = re.compile(
    rf"\breplace {QUOTED.pattern} (?:with|by) {QUOTED.pattern} in {QUOTED.pattern}", re.I
)


def reword(text: str) -> str:
    """Rewrite a request's phrases as tools word them. Quotations stay as they are."""
    parts = QUOTED.split(_REPLACE.sub(r"find_replace find=\1, replace=\2, text=\3", text))
    for place in range(0, len(parts), 2):
        for pattern, instead in _COMPILED:
            parts[place] = pattern.sub(instead, parts[place])
    return "".join(parts)


MAX_NEEDS = 6
_VERBS = (
    "add|append|calculate|call|check|compare|compute|convert|copy|count|create|delete|describe|divide|draw|echo|evaluate|explain|"
    "extract|fetch|find|format|generate|get|give|join|list|look|make|move|multiply|open|parse|query|read|remove|rename|replace|run|"
    "save|search|send|show|solve|sort|split|subtract|sum|summarise|summarize|tell|translate|use|write"
)
_QUESTIONS = (
    "what|what's|which|who|whose|when|where|why|how|is|are|does|do|can|could|will|would|please"
)
_AND = r"\s*(?:(?:and|then|also|now|next|finally|please)[\s,]+)*"
_FOLLOWS = re.compile(r"\s*(?:and|what about|how about|now|also|then|same)\b", re.I)
_ASKS = re.compile(rf"{_AND}(?:{_VERBS}|{_QUESTIONS})\b|{_FOLLOWS.pattern}", re.I)
ORDER = re.compile(rf"{_AND}(?:{_VERBS})\b", re.I)
_JOINT = r",?\s{1,9}(?:and\s+then|and\s+also|and|then)"
_CUT = re.compile(rf"(?<=[.?!;])\s+|\n+|{_JOINT}\s+(?=(?:{_VERBS}|{_QUESTIONS})\b)", re.I)
_TRAILING = re.compile(rf"{_JOINT}$", re.I)
_IMPLIED = {
    "count": re.compile(r"\bhow many\b", re.I),
    "list": re.compile(
        r"\b(?:which|what|show(?: me| all| my| the)*)\s+(?:(?!\w+est\b)\w+\s+)?\w{3,}(?<!s)s\b",
        re.I,
    ),
    "current": re.compile(
        r"^(?!.*\b(?:when|noon|midnight)\b)\D*\bwhat(?:'s| is)?(?: the| today's| the current)?"
        r" (?:time|date)\b\D*$",
        re.I,
    ),
    "write": re.compile(r"\b(?:create|make)\s+(?:a|an|the)\s+(?:new |text )*file\b", re.I),
}
_WORD = re.compile(r"[^\W\d_]\w*(?:['\u2019][a-z]+)?")
# Words that say nothing about a tool, in addition to the search's stop words.
_EMPTY_WORDS = (
    "contents does each enough every exactly hey kind left made much now one say says sort still"
    " thanks value"
)
_EMPTY = frozenset(_EMPTY_WORDS.split())


_REMARK = re.compile(
    r"\W*(?:i(?! (?:want|need|would like|have to|must|am looking)\b)|i['\u2019]m(?!"
    r" looking)|i['\u2019]ve|you(?:['\u2019]re)?"
    r"|we|(?:it|that)(?:['\u2019]s)?|this|my \w+ (?:is|was)|what"
    r" an?|good|great|nice|lovely|happy|welcome|sorry|congratulations"
    r"|see you|have an?|let['\u2019]s)(?!['\u2019]d)\b",
    re.I,
)
_YOU = re.compile(r"\b(?:you|your|yours|yourself)\b", re.I)
_POLITE = re.compile(
    r"\b(?:can|could|would|will) you\b|\bdo you (?:have|know)\b|\b(?:thank|if) you\b", re.I
)
_TOOL_NAME = re.compile(r"(?<![\w:/.-])[A-Za-z][\w-]*(?::|__)[A-Za-z]\w*")


_HINTS = {
    "expression": "calculate expression",
    "unit": "convert units",
    "sql": "query sql",
    "date": "date",
    "path": "file",
    "glob": "file",
}
"""Words for a search that the kinds of the values suggest."""


class Word(NamedTuple):
    """A meaningful word in a request, with its terms and position."""

    text: str
    terms: tuple[str, ...]
    start: int
    end: int


def content_words(text: str) -> list[Word]:
    """Extract a text's meaningful words, in order."""
    words: list[Word] = []
    for match in _WORD.finditer(text):
        word = Word(match[0].casefold(), tuple(terms(match[0])), match.start(), match.end())
        if word.terms and word.text not in _EMPTY:
            words.append(word)
    return words


class Need:
    """One thing that the person wants, in their words: the values in it, and the words that can
    identify a tool.

    Attributes:
        implied: Words that the question implies: `how many` means count, `which files` means list.
        is_talk: Whether it requests nothing: a greeting, thanks.
        is_chat: Whether it is a remark, or a question about the one who answers: `I had a long
            day`, `Do you like music?`
        asks: Whether it is said to us, rather than a value.
        follows: Whether it continues the previous request.
        query: The search query: the words, and the type of tool that the values suggest.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.mentions = find_mentions(text)
        spans = [(one.start, one.end) for one in self.mentions]
        self.words = [
            word
            for word in content_words(text)
            if not any(a < word.end and word.start < b for a, b in spans)
        ]
        self.terms = {term for word in self.words for term in word.terms}
        self.implied = [
            word for word, pattern in _IMPLIED.items() if self.words and pattern.search(text)
        ]
        self.is_talk = not self.words and not self.mentions
        self.is_chat = _REMARK.match(text) is not None or (
            _YOU.search(text) is not None and _POLITE.search(text) is None
        )
        self.asks = self.is_talk or self.is_chat or "?" in text or _ASKS.match(text) is not None
        self.follows = _FOLLOWS.match(text) is not None or not self.words
        words = [
            *_TOOL_NAME.findall(text),
            *self.implied,
            *self._hints(),
            *(word.text for word in self.words),
        ]
        self.query = " ".join(dict.fromkeys(words)) or text.strip()[:200]

    def _hints(self) -> list[str]:
        kinds = [mention.kind for mention in self.mentions]
        hints = [_HINTS[kind] for kind in dict.fromkeys(kinds) if kind in _HINTS]
        if "zone" in kinds and ("time" in kinds or kinds.count("zone") > 1):
            hints.append("convert time zone")
        if "date" in kinds and any(mention.unit for mention in self.mentions):
            hints.append("add duration")
        if kinds.count("number") > 2:
            hints.append("numbers")
        if "path" in kinds and not self.words:
            hints.append("read")
        return " ".join(hints).split()


_OPERATIONS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "**": "power"}
_OPERATION = re.compile(rf"(-?{NUMBER}) (\*\*|[-+*/]) (-?{NUMBER})|(\w+)\((-?{NUMBER})\)")


def spelled(need: Need) -> Need | None:
    """Spell a need's only calculation as an operation and its numbers, for tools that do one each:
    `add 2, 3`.
    """
    expressions = [one for one in need.mentions if one.kind == "expression"]
    match = _OPERATION.fullmatch(expressions[0].value) if len(expressions) == 1 else None
    if match is None:
        return None
    first, sign, second, function, only = match.groups()
    text = f"{_OPERATIONS[sign]} {first}, {second}" if sign else f"{function} {only}"
    text = text.replace("sqrt", "square root")
    return Need(f"{text} {need.text[: expressions[0].start]}{need.text[expressions[0].end :]}")


def needs_of(text: str) -> list[Need]:
    """Split a request into its needs, in order and at most `MAX_NEEDS`.

    It is reworded, then split at sentences, and at `and` or `then` before a verb or a question, but
    not inside a value. A sentence that requests nothing belongs to the need before it, or at the
    beginning, after it.
    """
    text = reword(text)
    mentions = find_mentions(text)
    cuts = (match.end() for match in _CUT.finditer(text))
    cuts = (cut for cut in cuts if not any(one.start < cut < one.end for one in mentions))
    pieces: list[str] = []
    for start, end in pairwise([0, *cuts, len(text)]):
        piece = text[start:end]
        if pieces and (not _ASKS.match(piece) or (len(pieces) == 1 and not _ASKS.match(pieces[0]))):
            pieces[-1] += piece
        elif piece.strip():
            pieces.append(piece)
    return [Need(_TRAILING.sub("", piece.strip())) for piece in pieces[:MAX_NEEDS]]
