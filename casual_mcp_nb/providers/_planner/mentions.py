"""The values in a request: numbers, quantities, dates, times, places, paths, addresses, quotations, expressions, SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from casual_mcp_nb.providers._planner.expressions import NUMBER, find_expressions, number
from casual_mcp_nb.providers._planner.places import zones_by_name
from casual_mcp_nb.providers._planner.words import words_of

Found = tuple[int, int, Any]

MAX_MENTIONS = 200


@dataclass(frozen=True)
class Mention:
    """A value in a request.

    Args:
        kind: What it is: a key of the table of finders below.
        value: The value; of a quantity the number.
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
_QUANTITY = re.compile(rf"(?<![\w.])(-?(?:{NUMBER})|an?|one)\s*(?:degrees?\s+)?({_UNIT_WORDS}|(?<=\d)\s*{_SHORT_UNIT})", re.I)
_UNIT = re.compile(rf"(?<![\w.])(?:{_UNIT_WORDS}|(?<=\bto ){_SHORT_UNIT})", re.I)
_SMALL = words_of(
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
)
_TENS = words_of("twenty thirty forty fifty sixty seventy eighty ninety hundred")
# Not `one`, which mostly is no number: `which one`.
_NUMBER_WORDS = {word: value for value, word in enumerate(_SMALL, 2)} | {
    word: value * 10 for value, word in enumerate(_TENS, 2)
}
_NUMBER = re.compile(rf"(?<![\w.])(-?(?:{NUMBER}))(?![\w:])|\b({'|'.join(_NUMBER_WORDS)})\b", re.I)
_BASES = {"binary": 2, "octal": 8, "decimal": 10, "hexadecimal": 16, "hex": 16}
_BASE = re.compile(rf"\b(?:to|into|in|from)\s+({'|'.join(_BASES)})\b", re.I)
_QUOTED = re.compile(
    r"\"([^\"]{1,2000})\"|“([^”]{1,2000})”|`([^`]{1,2000})`|(?<![\w])['\u2018]((?:[^'\u2019\n]|['\u2019](?=\w)){1,500})['\u2019](?!\w)"
)
_URL = re.compile(r"\bhttps?://[^\s<>\"']*[^\s<>\"'.,;:!?)]")
_EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_SQL = re.compile(
    r"\b(?:select\s.{1,2000}?\sfrom\s.+|select\s+[\d'\"(*].*|insert\s+into\s.+|update\s+\S+\s+set\s.+|delete\s+from\s.+|pragma\s+\w.*"
    r"|create\s+table\s.+|with\s+\w+\s+as\s*\(.+)",
    re.I | re.S,
)
_MONTHS = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = re.compile(
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)?(?!\d)|\b\d{1,2}\.\d{1,2}\.\d{4}\b"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTHS},? \d{{4}}\b|\b{_MONTHS} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}\b",
    re.I,
)
_TIME = re.compile(r"\b(\d{1,2}):(\d\d)(:\d\d)?\s*([ap]\.?m\b\.?)?|\b(\d{1,2})\s*([ap]\.?m)\b\.?|\b(noon|midnight)\b", re.I)
_GLOB = re.compile(r"(?<!\S)[\w./-]*\*[\w./*-]*\.\w+|(?<!\S)\*\.\w+")
_PATH = re.compile(
    r"(?<![\w/.])(?:~?/|\.{1,2}/)[\w./-]*[\w/-]|(?<![\w/.])[\w-][\w.-]{0,200}(?:/[\w.-]*[\w-])+/?"
    r"|(?<![\w/.])[\w-][\w.-]{0,200}/(?!\S)"
    r"|(?<![\w/.])[\w-][\w.-]{0,200}\.(?=[a-z0-9]{1,5}(?![\w/]))[a-z0-9]*[a-z][a-z0-9]*(?!\w)"
)
_PLACE = re.compile(r"[^\W\d_][\w'\u2019./+-]*(?:\s[^\W\d_][\w'\u2019-]*){0,2}")
_NEAR = 40
"""How many characters before a value are looked at for the word before it."""
_IS_UNIT = re.compile(_UNIT_WORDS, re.I)
_PLACE_MARKERS = ("in", "from", "to", "for", "at", "and", "of")


def find_mentions(text: str) -> list[Mention]:
    """Return the values in a text, in order, none inside another, and no more than `MAX_MENTIONS`."""
    found: list[Mention] = []
    taken = bytearray(len(text))
    for kind, find in _FINDERS.items():
        for start, end, value in find(text):
            if len(found) < MAX_MENTIONS and not any(taken[start:end]):
                taken[start:end] = b"\1" * (end - start)
                found.append(_mention(text, kind, start, end, value))
    if not _is_conversion(text, found):
        found = [mention for mention in found if mention.kind != "unit"]
    return sorted(found, key=lambda mention: mention.start)


def _mention(text: str, kind: str, start: int, end: int, value: Any) -> Mention:
    before = re.search(r"([^\W\d_]+)\s+(?:the\s+)?[\"'“(]?$", text[max(0, start - _NEAR) : start])
    marker = before[1].casefold() if before else ""
    if kind == "quantity":
        return Mention(kind, value[0], start, end, marker, value[1])
    return Mention(kind, value, start, end, marker)


def _is_conversion(text: str, found: list[Mention]) -> bool:
    units = sum(mention.kind == "unit" for mention in found)
    quantities = sum(mention.kind == "quantity" for mention in found)
    dated = any(mention.kind == "date" for mention in found)
    return not dated and (units > 1 or (units == 1 and (quantities > 0 or "convert" in text.casefold())))


def _json(text: str) -> Iterator[Found]:
    for match in islice(re.finditer(r"[{\[]", text), 50):
        try:
            value, end = json.JSONDecoder().raw_decode(text, match.start())
        except ValueError:
            continue
        except RecursionError:
            return
        if isinstance(value, dict) or value:
            yield match.start(), end, value


def _quoted(text: str) -> Iterator[Found]:
    for match in _QUOTED.finditer(text):
        yield match.start(), match.end(), next(group for group in match.groups() if group is not None)


def _sql(text: str) -> Iterator[Found]:
    for match in _SQL.finditer(text):
        yield match.start(), match.end(), match[0].rstrip(" ?.!;")


def _dates(text: str) -> Iterator[Found]:
    for match in _DATE.finditer(text):
        value = _iso_date(match[0])
        if value:
            yield match.start(), match.end(), value


def _iso_date(text: str) -> str | None:
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


def _times(text: str) -> Iterator[Found]:
    for match in _TIME.finditer(text):
        hour, minute, second, half, bare_hour, bare_half, word = match.groups()
        if word:
            yield match.start(), match.end(), "12:00" if word.casefold() == "noon" else "00:00"
            continue
        value = int(hour or bare_hour)
        letter = (half or bare_half or "").casefold()[:1]
        if letter:
            value = value % 12 + 12 * (letter == "p")
        if value < 24:
            yield match.start(), match.end(), f"{value:02}:{minute or '00'}{second or ''}"


def _quantities(text: str) -> Iterator[Found]:
    for match in _QUANTITY.finditer(text):
        amount = match[1].casefold()
        yield match.start(), match.end(), (1 if amount in ("a", "an", "one") else number(match[1]), match[2].strip())


def _units(text: str) -> Iterator[Found]:
    for match in _UNIT.finditer(text):
        yield match.start(), match.end(), match[0]


def _zones(text: str) -> Iterator[Found]:
    for match in re.finditer(r"(?<![\w/])[^\W\d_]", text):
        words = _PLACE.match(text, match.start())
        for phrase in _shorter(words[0] if words else ""):
            zone = zones_by_name().get(phrase.casefold())
            before = re.search(r"(\w+)\s+$", text[max(0, match.start() - _NEAR) : match.start()])
            named = phrase[0].isupper() or (before is not None and before[1].casefold() in _PLACE_MARKERS)
            if zone and named and not _IS_UNIT.fullmatch(phrase):
                yield match.start(), match.start() + len(phrase), zone
                break


def _shorter(phrase: str) -> Iterator[str]:
    while phrase:
        yield phrase.rstrip(".'\u2019-")
        phrase = phrase.rpartition(" ")[0]


def _numbers(text: str) -> Iterator[Found]:
    for match in _NUMBER.finditer(text):
        yield match.start(), match.end(), number(match[1]) if match[1] else _NUMBER_WORDS[match[2].casefold()]


def _bases(text: str) -> Iterator[Found]:
    for match in _BASE.finditer(text):
        yield match.start(1), match.end(1), _BASES[match[1].casefold()]


def _plain(pattern: re.Pattern[str]) -> Callable[[str], Iterator[Found]]:
    return lambda text: ((match.start(), match.end(), match[0]) for match in pattern.finditer(text))


def _paths(text: str) -> Iterator[Found]:
    for match in _PATH.finditer(text):
        is_unit = _IS_UNIT.fullmatch(match[0]) or match[0].casefold() == "and/or"
        if not is_unit and match[0].casefold() not in zones_by_name():
            yield match.start(), match.end(), match[0]


# The order decides what a stretch of text is taken for.
_FINDERS: dict[str, Callable[[str], Iterator[Found]]] = {
    "json": _json,
    "quoted": _quoted,
    "url": _plain(_URL),
    "email": _plain(_EMAIL),
    "sql": _sql,
    "date": _dates,
    "time": _times,
    "glob": _plain(_GLOB),
    "path": _paths,
    "zone": _zones,
    "expression": find_expressions,
    "quantity": _quantities,
    "unit": _units,
    "base": _bases,
    "number": _numbers,
}
