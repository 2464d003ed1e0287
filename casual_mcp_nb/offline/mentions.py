"""Find the values in a request: numbers, quantities, dates, times, places, paths, URLs, quotations, expressions, SQL."""

from __future__ import annotations

import json
import re
from calendar import month_name
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import islice
from typing import Any

from casual_mcp_nb.offline.expressions import NUMBER, find_expressions, number
from casual_mcp_nb.offline.places import zones_by_name
from casual_mcp_nb.offline.wording import QUOTED

Finder = Callable[[str], Iterator[tuple[int, int, Any]]]

MAX_MENTIONS = 200


@dataclass(frozen=True)
class Mention:
    """A value in a request.

    Args:
        kind: Its kind: a key of the table of finders below.
        value: The value; for a quantity, the number.
        start: Where it begins.
        end: Where it ends.
        marker: The word before it, such as `from` or `to`.
        unit: The unit of a quantity.
    """

    kind: str
    value: Any
    start: int
    end: int
    marker: str = ""
    unit: str = ""


_UNIT_WORDS = (
    r"(?:square |cubic |fluid |nautical |light |imperial |degrees? )?(?:"
    r"(?:kilo|centi|milli|deci|micro|nano)?met(?:er|re)s?(?: per second)?|(?:kilo|milli|micro)?grams?|kilos?|tonnes?|tons?"
    r"|(?:milli|centi|deci)?lit(?:er|re)s?|miles?(?: per hour)?|kilomet(?:er|re)s? per hour|inch(?:es)?|foot|feet|yards?|acres?"
    r"|hectares?|pounds?|ounces?|stones?|gallons?|pints?|quarts?|cups?|tablespoons?|teaspoons?|knots?|celsius|fahrenheit|kelvin"
    r"|(?:kilo|mega|giga|tera|peta|kibi|mebi|gibi)?(?:bytes?|bits?)|(?:kilo|mega)?joules?|(?:kilo)?calories|watt hours?"
    r"|(?:hecto|kilo)?pascals?|bars?|atmospheres?|years?|months?|weeks?|days?|hours?|minutes?|seconds?|milliseconds?"
    r"|km/h|kmh|kph|mph|m/s|ft/s|km2?|cm2?|mm|dm|nm|mi2?|yd|ft2?|in2|kg|mg|lbs?|oz|ml|cl|dl|gal|kcal|cal|kWh|kJ|hPa|kPa|psi|atm"
    r"|[KMGT]i?B|kB|[MG]bit|°[CF]|hrs?|min|sec|ms|ha)(?![\w/])"
)
_SHORT_UNIT = r"(?:[mglshCFKt]|in(?=\s+(?:to|in|into|as)\b))(?![\w/'\u2019])"
_QUANTITY = re.compile(rf"(?<![\w.])(-?{NUMBER}|an?|one)\s*(?:degrees?\s+)?({_UNIT_WORDS}|(?<=\d)\s*{_SHORT_UNIT})", re.I)
_UNIT = re.compile(rf"(?<![\w.])(?:{_UNIT_WORDS}|(?<=\bto ){_SHORT_UNIT})", re.I)
_IS_UNIT = re.compile(_UNIT_WORDS, re.I)
_NUMBER = re.compile(rf"(?<![\w.])-?{NUMBER}(?![\w:])")
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
_MONTH = rf"(?:{'|'.join(month[:3] for month in _MONTHS)})[a-z]*\.?"
_WHOLE_MONTH = re.compile(rf"\b(?:{'|'.join(_MONTHS)})\b")
_DATE = re.compile(
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)?(?!\d)|\b\d{1,2}\.\d{1,2}\.\d{4}\b"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH},? \d{{4}}\b|\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}\b",
    re.I,
)
_TIME = re.compile(r"\b(\d{1,2}):(\d\d)(:\d\d)?\s*([ap]\.?m\b\.?)?|\b(\d{1,2})\s*([ap]\.?m)\b\.?|\b(noon|midnight)\b", re.I)
_GLOB = re.compile(r"(?<!\S)[\w./-]*\*[\w./*-]*\.\w+|(?<!\S)\*?\.[a-z]\w{0,4}(?!\w)", re.I)
_PATH = re.compile(
    r"(?<![\w/.])(?:~?/|\.{1,2}/)[\w./-]*[\w/-]|(?<![\w/.])[\w-][\w.-]{0,200}(?:/[\w.-]*[\w-])+/?"
    r"|(?<![\w/.])[\w-][\w.-]{0,200}/(?!\S)"
    r"|(?<![\w/.])[\w-][\w.-]{0,200}\.(?=[a-z0-9]{1,5}(?![\w/]))[a-z0-9]*[a-z][a-z0-9]*(?!\w)"
)
_MARKER = re.compile(r"([^\W\d_]+)\s+(?:the\s+)?[\"'“(]?$")
_NEAR = 40
"""How many characters before a value are searched for the word before it."""


def find_mentions(text: str) -> list[Mention]:
    """Return the values in a text, in order and without overlaps, at most `MAX_MENTIONS`."""
    mentions: list[Mention] = []
    taken = bytearray(len(text))
    for kind, find in _FINDERS.items():
        for start, end, value in find(text):
            if len(mentions) < MAX_MENTIONS and not any(taken[start:end]):
                taken[start:end] = b"\1" * (end - start)
                before = _MARKER.search(text[max(0, start - _NEAR) : start])
                value, unit = value if kind == "quantity" else (value, "")
                mentions.append(Mention(kind, value, start, end, before[1].casefold() if before else "", unit))
    if not _is_conversion(text, [mention.kind for mention in mentions]):
        mentions = [mention for mention in mentions if mention.kind != "unit"]
    return sorted(mentions, key=lambda mention: mention.start)


def _is_conversion(text: str, kinds: list[str]) -> bool:
    units = kinds.count("unit")
    return "date" not in kinds and (units > 1 or (units == 1 and ("quantity" in kinds or "convert" in text.casefold())))


def _matches(pattern: re.Pattern[str], read: Callable[[re.Match[str]], Any] = lambda match: match[0]) -> Finder:
    """Return a finder for a pattern's matches, except those for which `read` returns None."""

    def find(text: str) -> Iterator[tuple[int, int, Any]]:
        for match in pattern.finditer(text):
            value = read(match)
            if value is not None:
                yield match.start(), match.end(), value

    return find


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
    text = match[0]
    if re.match(r"\d{4}-", text):
        return text.replace(" ", "T")
    plain = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b|\bof\b|[,]", " ", text.casefold())
    plain = " ".join(re.sub(r"([a-z]{3})[a-z]*\.?", r"\1", plain).split())
    for form in ("%d.%m.%Y", "%d %b %Y", "%b %d %Y"):
        try:
            return datetime.strptime(plain, form).date().isoformat()
        except ValueError:
            continue
    return None


def _time(match: re.Match[str]) -> str | None:
    hour, minute, second, half, bare_hour, bare_half, word = match.groups()
    if word:
        return "12:00" if word.casefold() == "noon" else "00:00"
    value = int(hour or bare_hour)
    letter = (half or bare_half or "").casefold()[:1]
    if letter:
        value = value % 12 + 12 * (letter == "p")
    return f"{value:02}:{minute or '00'}{second or ''}" if value < 24 else None


def _quantities(text: str) -> Iterator[tuple[int, int, Any]]:
    yield from _matches(_QUANTITY, _quantity)(text)
    yield from _matches(_WHOLE_MONTH, lambda match: (_MONTHS.index(match[0]) + 1, "month"))(text)


def _quantity(match: re.Match[str]) -> tuple[int | float, str]:
    return (1 if match[1].casefold() in ("a", "an", "one") else number(match[1])), match[2].strip()


def _path(match: re.Match[str]) -> str | None:
    other = _IS_UNIT.fullmatch(match[0]) or match[0].casefold() == "and/or" or match[0].casefold() in zones_by_name()
    return None if other else match[0]


@cache
def _zone() -> re.Pattern[str]:
    """Return the pattern of places: in capitals, or after a word such as `in`."""
    names = "|".join(map(re.escape, sorted(zones_by_name(), key=len, reverse=True)))
    after = "".join(rf"|(?<=\b{word} )" for word in ("in", "from", "to", "for", "at", "and", "of"))
    return re.compile(rf"(?<![\w/])(?:(?=[A-Z]){after})(?i:{names})(?!\w)")


def _zones(text: str) -> Iterator[tuple[int, int, Any]]:
    return _matches(_zone(), lambda match: zones_by_name()[match[0].casefold()])(text)


# The order decides which kind a span of text gets.
_FINDERS: dict[str, Finder] = {
    "json": _json,
    "quoted": _matches(QUOTED, lambda match: next(group for group in match.groups() if group is not None)),
    "encoded": _matches(_BASE64),
    "url": _matches(_URL),
    "email": _matches(_EMAIL),
    "sql": _matches(_SQL, lambda match: match[0].rstrip(" ?.!;")),
    "date": _matches(_DATE, _iso_date),
    "time": _matches(_TIME, _time),
    "glob": _matches(_GLOB, lambda match: match[0] if "*" in match[0] else f"*{match[0]}"),
    "path": _matches(_PATH, _path),
    "zone": _zones,
    "expression": find_expressions,
    "quantity": _quantities,
    "unit": _matches(_UNIT),
    "base": _matches(_BASE, lambda match: _BASES[match[0].casefold()]),
    "number": _matches(_NUMBER, lambda match: number(match[0])),
}
