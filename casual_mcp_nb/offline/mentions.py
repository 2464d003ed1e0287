"""Find the values that a text mentions: numbers, dates, places, paths and so on."""

from __future__ import annotations

import ast
import json
import re
from calendar import day_name, month_name
from collections.abc import Callable, Iterator
from datetime import date
from functools import cache
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from casual_mcp_nb.base.time_zones import zones_by_name

MAX_MENTIONS = 200
NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d{1,200}(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)"
QUOTED = re.compile(
    r"(\"[^\"]{1,2000}\"|“[^”]{1,2000}”|`[^`]{1,2000}`|(?<![\w])['\u2018](?:[^'\u2019\n]|['\u2019](?=\w)){1,500}['\u2019](?!\w))"
)
UNIT_WORDS = (
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
_UNIT_AFTER = re.compile(rf"\s*(?:degrees?\s+)?({UNIT_WORDS}|{_SHORT_UNIT})", re.I)
_BASES = {"binary": 2, "octal": 8, "decimal": 10, "hexadecimal": 16, "hex": 16}
_MONTHS = tuple(month_name)[1:]
_MONTH = rf"(?:{'|'.join([*_MONTHS, 'Sept', *(month[:3] for month in _MONTHS)])})\b\.?"
_ORDINARY_WORDS = """
acre casey center central currie davis east easter eastern factory gb general local mountain nome north pacific reunion south
troll universal west western yukon z zulu
"""
_FUNCTION = (
    r"(?:sqrt|sin|cos|tan|log10|log2|log|exp|abs|factorial|round|floor|ceil|min|max|sum)(?=\s*\()"
)
_TOKEN = rf"(?:{NUMBER}(?![A-Za-z:])|{_FUNCTION}|pi\b|\*\*|//|[-+*/%(),\[\]])"
_RUN = re.compile(rf"(?<![\w.])(?:{_TOKEN}\s*){{2,100}}", re.I)
_MARKER = re.compile(r"([^\W\d_]+\s|\d\s*)\s*(?:the\s+)?(?:degrees?\s+)?[\"'“(]?$")
_NEAR = 40
Found = Iterator[tuple[int, int, Any]]
"""Values in a text: start, end and the value, or None for none."""


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
    return sorted(mentions, key=attrgetter("start"))


def find_expressions(text: str) -> Found:
    """Yield the calculations in a text, such as `17 * 23 + 4`: start, end and the expression."""
    for run in _RUN.finditer(text):
        start = run.start()
        # A comma separates arguments or calculations.
        for part in [run[0]] if _calculation(run[0].strip(" ,")) else run[0].split(","):
            expression = _calculation(part.strip(" ,"))
            if expression:
                yield start, start + len(part.rstrip(" ,")), expression
            start += len(part) + 1


def number(text: str) -> int | float:
    """Parse a number in digits, with or without thousands separators.

    Raise ValueError for any other text.
    """
    plain = text.replace(",", "")
    return int(plain) if plain.lstrip("+-").isdecimal() else float(plain)


def _calculation(text: str) -> str | None:
    """Parse a text as an expression, if it is one that calculates something."""
    try:
        tree = ast.parse(re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.lower()), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return ast.unparse(tree) if isinstance(tree.body, ast.BinOp | ast.Call) else None


def _matching(pattern: str, read: Callable[[str], Any] = str) -> Callable[[str], Found]:
    """Find a pattern's matches, read as values."""
    compiled = re.compile(pattern)

    def find(text: str) -> Found:
        for match in compiled.finditer(text):
            yield match.start(), match.end(), read(match[0])

    return find


def _json(text: str) -> Found:
    for match in islice(re.finditer(r"[{\[]", text), 50):
        try:
            value, end = json.JSONDecoder().raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) or value:
            yield match.start(), end, value


def _date(text: str) -> str | None:
    """Convert a date to ISO 8601. Without a year, it is the next such day."""
    from dateutil.parser import parse

    if text[:4].isdecimal():
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

    try:
        moment = parse({"noon": "12:00", "midnight": "00:00"}.get(text.casefold(), text))
    except ValueError:
        return None
    return moment.strftime("%H:%M:%S" if text.count(":") == 2 else "%H:%M")


@cache
def _place_pattern() -> re.Pattern[str]:
    """Compile the pattern for places: in capitals, or after a word such as `in`."""
    places = zones_by_name().keys() - _ORDINARY_WORDS.split()
    names = "|".join(map(re.escape, sorted(places, key=len, reverse=True)))
    after = "".join(rf"|(?<=\b{word} )" for word in ("in", "from", "to", "for", "at", "and", "of"))
    return re.compile(rf"(?<![\w/])(?:(?=[A-Z]){after})(?i:{names})(?!\w)")


def _zones(text: str) -> Found:
    for match in _place_pattern().finditer(text):
        yield match.start(), match.end(), zones_by_name()[match[0].casefold()]


def _path(text: str) -> str | None:
    is_other = text.casefold() in {"and/or", *zones_by_name()} or re.fullmatch(UNIT_WORDS, text)
    return None if is_other else text


def _inside(quotation: str) -> str:
    return quotation[1:-1]


def _sql(text: str) -> str:
    return text.rstrip(" ?.!;")


def _glob(text: str) -> str:
    return text if "*" in text else f"*{text}"


def _month(name: str) -> int:
    return _MONTHS.index(name) + 1


def _base(name: str) -> int:
    return _BASES[name.casefold()]


# The order decides which kind a span gets.
_FINDERS: dict[str, Callable[[str], Found]] = {
    "json": _json,
    "quoted": _matching(QUOTED.pattern, _inside),
    "encoded": _matching(
        r"(?<![\w+/=])(?=[a-z+/]*[A-Z\d])(?:[A-Za-z\d+/]{4})+(?:[A-Za-z\d+/]{2}==|[A-Za-z\d+/]{3}=)"
        r"(?![\w=])"
    ),
    "url": _matching(r"\bhttps?://[^\s<>\"']*[^\s<>\"'.,;:!?)]"),
    "email": _matching(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"),
    "sql": _matching(
        r"(?is)\b(?:select\s.{1,2000}?\sfrom\s.+|select\s+[\d'\"(*].*|insert\s+into\s.+"
        r"|update\s+\S+\s+set\s.+|delete\s+from\s.+|pragma\s+\w.*|create\s+table\s.+"
        r"|with\s+\w+\s+as\s*\(.+)",
        _sql,
    ),
    "date": _matching(
        r"(?i)\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)?(?!\d)"
        r"|\b\d{1,2}\.\d{1,2}\.\d{4}\b"
        rf"|\b\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH}(?:,? \d{{4}}\b)?"
        rf"|\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?\b(?:,? \d{{4}}\b)?",
        _date,
    ),
    "time": _matching(
        r"(?i)\b\d{1,2}(?=:\d\d|\s*[ap]\.?m\b)(?::\d\d){0,2}(?:\s*[ap]\.?m\b\.?)?|\b(?:noon|midnight)\b",
        _time,
    ),
    "glob": _matching(r"(?i)(?<!\S)[\w./-]*\*[\w./*-]*\.\w+|(?<!\S)\*?\.[a-z]\w{0,4}(?!\w)", _glob),
    "path": _matching(
        r"(?<![\w/.])(?:~?/|\.{1,2}/)[\w./-]*[\w/-]|(?<![\w/.])[\w-][\w.-]{0,200}(?:/[\w.-]*[\w-])+/?"
        r"|(?<![\w/.])[\w-][\w.-]{0,200}/(?!\S)"
        r"|(?<![\w/.])[\w-][\w.-]{0,200}\.(?=[a-z0-9]{1,5}(?![\w/]))[a-z0-9]*[a-z][a-z0-9]*(?!\w)",
        _path,
    ),
    "zone": _zones,
    "expression": find_expressions,
    "month": _matching(rf"(?<!^)\b(?:{'|'.join(_MONTHS)})\b", _month),
    "weekday": _matching(rf"\b(?:{'|'.join(day_name)})(?=s?\b)"),
    # After a number, or where something is converted to it.
    "unit": _matching(
        rf"(?i)(?:(?<=\d)|(?<=\d )|(?<=\bto ))(?:{UNIT_WORDS}|{_SHORT_UNIT})"
        rf"|(?:(?<=\bin )|(?<=\binto )|(?<=\bconvert )){UNIT_WORDS}"
        rf"|(?<=\bmany ){UNIT_WORDS}(?= (?:are|is|in)\b(?! there| left))"
    ),
    "base": _matching(
        rf"(?i)(?:(?<=\bto )|(?<=\binto )|(?<=\bin )|(?<=\bfrom ))(?:{'|'.join(_BASES)})\b", _base
    ),
    "number": _matching(rf"(?<![\w.])-?{NUMBER}(?![\w:])", number),
}
