"""Find the values in a request: numbers, quantities, dates, times, places, paths, URLs, quotations, expressions, SQL."""

from __future__ import annotations

import ast
import json
import re
from calendar import month_name
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import islice
from typing import Any

from casual_mcp_nb.types.time_zones import zones_by_name

MAX_MENTIONS = 200
NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d{1,200}(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)"
QUOTED = re.compile(
    r"\"([^\"]{1,2000})\"|“([^”]{1,2000})”|`([^`]{1,2000})`|(?<![\w])['\u2018]((?:[^'\u2019\n]|['\u2019](?=\w)){1,500})['\u2019](?!\w)"
)
_NUMBER = re.compile(rf"(?<![\w.])-?{NUMBER}(?![\w:])")
_UNIT_WORDS = (
    r"(?:square |cubic |fluid |nautical |light |imperial |degrees? )?(?:"
    r"(?:nano|micro|milli|centi|deci|hecto|kilo|mega|giga|tera|peta|kibi|mebi|gibi)?"
    r"(?:met(?:er|re)|gram|lit(?:er|re)|byte|bit|joule|calorie|pascal|second)s?(?: per (?:second|hour))?|kilos?|tonnes?|tons?"
    r"|miles?(?: per hour)?|inch(?:es)?|foot|feet|yards?|acres?|hectares?|pounds?|ounces?|stones?|gallons?|pints?|quarts?|cups?"
    r"|tablespoons?|teaspoons?|knots?|celsius|fahrenheit|kelvin|watt hours?|bars?|atmospheres?|years?|months?|weeks?|days?"
    r"|hours?|minutes?"
    r"|km/h|kmh|kph|mph|m/s|ft/s|km2?|cm2?|mm|dm|nm|mi2?|yd|ft2?|in2|kg|mg|lbs?|oz|ml|cl|dl|gal|kcal|cal|kWh|kJ|hPa|kPa|psi|atm"
    r"|[KMGT]i?B|kB|[MG]bit|°[CF]|hrs?|min|sec|ms|ha)(?![\w/])"
)
_SHORT_UNIT = r"(?:[mglshCFKt]|in(?=\s+(?:to|in|into|as)\b))(?![\w/'\u2019])"
_QUANTITY = re.compile(rf"(?<![\w.])(-?{NUMBER}|an?|one)\s*(?:degrees?\s+)?({_UNIT_WORDS}|(?<=\d)\s*{_SHORT_UNIT})", re.I)
_UNIT = re.compile(rf"(?<![\w.])(?:{_UNIT_WORDS}|(?<=\bto ){_SHORT_UNIT})", re.I)
_BASES = {"binary": 2, "octal": 8, "decimal": 10, "hexadecimal": 16, "hex": 16}
_BASE = re.compile(rf"(?:(?<=\bto )|(?<=\binto )|(?<=\bin )|(?<=\bfrom ))(?:{'|'.join(_BASES)})\b", re.I)
_URL = re.compile(r"\bhttps?://[^\s<>\"']*[^\s<>\"'.,;:!?)]")
_EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_SQL = re.compile(
    r"\b(?:select\s.{1,2000}?\sfrom\s.+|select\s+[\d'\"(*].*|insert\s+into\s.+|update\s+\S+\s+set\s.+|delete\s+from\s.+|pragma\s+\w.*"
    r"|create\s+table\s.+|with\s+\w+\s+as\s*\(.+)",
    re.I | re.S,
)
_BASE64 = re.compile(r"(?<![\w+/=])(?=[a-z+/]*[A-Z\d])(?:[A-Za-z\d+/]{4})+(?:[A-Za-z\d+/]{2}==|[A-Za-z\d+/]{3}=)(?![\w=])")
_MONTHS = tuple(month_name)[1:]
_WHOLE_MONTH = re.compile(rf"\b(?:{'|'.join(_MONTHS)})\b")
_MONTH = rf"(?:{'|'.join([*_MONTHS, 'Sept', *(month[:3] for month in _MONTHS)])})\b\.?"
_DATE = re.compile(
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)?(?!\d)|\b\d{1,2}\.\d{1,2}\.\d{4}\b"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH}(?:,? \d{{4}}\b)?|\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?\b(?:,? \d{{4}}\b)?",
    re.I,
)
_TIME = re.compile(r"\b(\d{1,2})(?=:\d\d|\s*[ap]\.?m\b)(?::(\d\d))?(:\d\d)?(?:\s*([ap])\.?m\b\.?)?|\b(noon|midnight)\b", re.I)
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
_FUNCTION = r"(?:sqrt|sin|cos|tan|log10|log2|log|exp|abs|factorial|round|floor|ceil|min|max|sum)(?=\s*\()"
_TOKEN = rf"(?:{NUMBER}(?![A-Za-z:])|{_FUNCTION}|pi\b|\*\*|//|[-+*/%(),\[\]])"
_TOKENS = re.compile(_TOKEN, re.I)
_RUN = re.compile(rf"(?<![\w.])(?:{_TOKEN}\s*){{2,100}}", re.I)
_MAX_TRIES = 300
_MARKER = re.compile(r"([^\W\d_]+)\s+(?:the\s+)?[\"'“(]?$")
_NEAR = 40


@dataclass(frozen=True)
class Mention:
    """A value in a request: its kind (a key of the table of finders below), where it is, the word before it, and its unit."""

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
            if value is not None and len(mentions) < MAX_MENTIONS and not any(taken[start:end]):
                taken[start:end] = b"\1" * (end - start)
                before = _MARKER.search(text[max(0, start - _NEAR) : start])
                value, unit = value if kind == "quantity" else (value, "")
                mentions.append(Mention(kind, value, start, end, before[1].casefold() if before else "", unit))
    kinds = [mention.kind for mention in mentions]
    converts = kinds.count("unit") > 1 or "quantity" in kinds or "convert" in text.casefold()
    wanted = (mention for mention in mentions if mention.kind != "unit" or (converts and "date" not in kinds))
    return sorted(wanted, key=lambda mention: mention.start)


def find_expressions(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the calculations in a text, such as `17 * 23 + 4`: start, end and the expression."""
    for run in _RUN.finditer(text):
        tokens = [token.span() for token in _TOKENS.finditer(text, run.start(), run.end())]
        # The longest part that can be evaluated, then what follows it.
        parts = ((first[0], last[1]) for number, first in enumerate(tokens) for last in reversed(tokens[number + 1 :]))
        taken = 0
        for start, end in islice(parts, _MAX_TRIES):
            if start >= taken and (expression := _calculation(text[start:end])):
                yield start, end, expression
                taken = end


def number(text: str) -> int | float:
    """Parse a number in digits, with or without thousands separators; raise ValueError for any other text."""
    plain = text.replace(",", "")
    return int(plain) if plain.lstrip("+-").isdecimal() else float(plain)


def _calculation(text: str) -> str | None:
    """Parse a text as an expression, if it is one that calculates something."""
    try:
        tree = ast.parse(re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.lower()), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return ast.unparse(tree) if isinstance(tree.body, ast.BinOp | ast.Call) else None


def _matches(
    pattern: re.Pattern[str], read: Callable[[re.Match[str]], Any] = lambda match: match[0]
) -> Callable[[str], Iterator[tuple[int, int, Any]]]:
    return lambda text: ((match.start(), match.end(), read(match)) for match in pattern.finditer(text))


def _json(text: str) -> Iterator[tuple[int, int, Any]]:
    for match in islice(re.finditer(r"[{\[]", text), 50):
        try:
            value, end = json.JSONDecoder().raw_decode(text, match.start())
        except ValueError:
            continue
        except RecursionError:
            return
        if isinstance(value, dict) or value:
            yield match.start(), end, value


def _iso_date(match: re.Match[str]) -> str | None:
    """Convert a date to ISO 8601; without a year, it is the next such day."""
    if re.match(r"\d{4}-", match[0]):
        return match[0].replace(" ", "T")
    day, month, *year = re.findall(r"\d+|[A-Za-z]{3,}", match[0])
    if day.isalpha():
        day, month = month, day
    names, today = [name[:3] for name in _MONTHS], date.today()
    try:
        number_of_month = names.index(month[:3].title()) + 1 if month.isalpha() else int(month)
        written = date(int(year[0]) if year else today.year, number_of_month, int(day))
        return (written if year or written >= today else written.replace(year=today.year + 1)).isoformat()
    except ValueError:
        return None


def _time(match: re.Match[str]) -> str | None:
    hour, minute, second, half, word = match.groups()
    if word:
        return "12:00" if word.casefold() == "noon" else "00:00"
    value = int(hour) % 12 + 12 * (half in "pP") if half else int(hour)
    return f"{value:02}:{minute or '00'}{second or ''}" if value < 24 else None


def _quantities(text: str) -> Iterator[tuple[int, int, Any]]:
    """Yield quantities, and the names of months as their numbers."""
    for match in _QUANTITY.finditer(text):
        amount = 1 if match[1].casefold() in ("a", "an", "one") else number(match[1])
        yield match.start(), match.end(), (amount, match[2].strip())
    yield from _matches(_WHOLE_MONTH, lambda match: (_MONTHS.index(match[0]) + 1, "month"))(text)


def _path(match: re.Match[str]) -> str | None:
    is_unit = re.fullmatch(_UNIT_WORDS, match[0], re.I)
    return None if is_unit or match[0].casefold() in {"and/or", *zones_by_name()} else match[0]


@cache
def _place_pattern() -> re.Pattern[str]:
    """Compile the pattern of places: in capitals, or after a word such as `in`."""
    places = zones_by_name().keys() - _ORDINARY_WORDS.split()
    names = "|".join(map(re.escape, sorted(places, key=len, reverse=True)))
    after = "".join(rf"|(?<=\b{word} )" for word in ("in", "from", "to", "for", "at", "and", "of"))
    return re.compile(rf"(?<![\w/])(?:(?=[A-Z]){after})(?i:{names})(?!\w)")


# The order decides which kind a span of text gets.
_FINDERS: dict[str, Callable[[str], Iterator[tuple[int, int, Any]]]] = {
    "json": _json,
    "quoted": _matches(QUOTED, lambda match: match[match.lastindex or 0]),
    "encoded": _matches(_BASE64),
    "url": _matches(_URL),
    "email": _matches(_EMAIL),
    "sql": _matches(_SQL, lambda match: match[0].rstrip(" ?.!;")),
    "date": _matches(_DATE, _iso_date),
    "time": _matches(_TIME, _time),
    "glob": _matches(_GLOB, lambda match: match[0] if "*" in match[0] else f"*{match[0]}"),
    "path": _matches(_PATH, _path),
    "zone": lambda text: _matches(_place_pattern(), lambda match: zones_by_name()[match[0].casefold()])(text),
    "expression": find_expressions,
    "quantity": _quantities,
    "unit": _matches(_UNIT),
    "base": _matches(_BASE, lambda match: _BASES[match[0].casefold()]),
    "number": _matches(_NUMBER, lambda match: number(match[0])),
}
