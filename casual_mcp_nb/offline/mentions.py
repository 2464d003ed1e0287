"""Find the values that a text mentions: numbers, dates, places, paths and so on."""

from __future__ import annotations

import ast
import json
import re
from calendar import day_name, month_name
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from casual_mcp_nb.base.time_zones import zones_by_name
from casual_mcp_nb.discovery.text import terms

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
MONTHS = tuple(month_name)[1:]
_MONTH = rf"(?:{'|'.join([*MONTHS, 'Sept', *(month[:3] for month in MONTHS)])})\b\.?"
_ORDINARY_WORDS = """
acre casey center central currie davis east easter eastern factory gb general local mountain nome north pacific reunion south
troll universal west western yukon z zulu
"""
_FUNCTION = (
    r"(?:sqrt|sin|cos|tan|log10|log2|log|exp|abs|factorial|round|floor|ceil|min|max|sum)(?=\s*\()"
)
_TOKEN = rf"(?:{NUMBER}(?![A-Za-z:])|{_FUNCTION}|pi\b|\*\*|//|[-+*/%(),\[\]])"
_CALCULATES = re.compile(r"[\di)]\s*[-+*/%]|\w\s*\(")
_PATTERNS = r"""
json: (?s)[{\[].*[}\]]
quoted: <QUOTED>
encoded: (?<![\w+/=])(?=[a-z+/]*[A-Z\d])(?:[A-Za-z\d+/]{4})+(?:[A-Za-z\d+/]{2}==|[A-Za-z\d+/]{3}=)(?![\w=])
url: \bhttps?://[^\s<>\"']*[^\s<>\"'.,;:!?)]
email: \b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b
sql: (?is)\bselect\s.{1,2000}?\sfrom\s<END>
sql: (?is)\b(?:select\s+(?=[\d'\"(*])|insert\s+into\s|update\s+\S+\s+set\s|delete\s+from\s)<END>
sql: (?is)\b(?:pragma\s+|create\s+table\s|with\s+\w+\s+as\s*\()<END>
date: (?i)\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:?\d\d)?)?(?!\d)
date: \b\d{1,2}\.\d{1,2}\.\d{4}\b
date: (?i)\b\d{1,2}(?:st|nd|rd|th)? (?:of )?<MONTH>(?:,? \d{4}\b)?
date: (?i)\b<MONTH> \d{1,2}(?:st|nd|rd|th)?\b(?:,? \d{4}\b)?
time: (?i)\b\d{1,2}(?=:\d\d|\s*[ap]\.?m\b)(?::\d\d)?(?!:)(?:\s*[ap]\.?m\b\.?)?
glob: (?i)(?<!\S)[\w./-]*\*[\w./*-]*\.\w+|(?<!\S)\*?\.[a-z]\w{0,4}(?!\w)
zone: (?<![\w/])(?:(?=[A-Z])|<AFTER>)(?i:<PLACE>)(?!\w|[./]\w)
path: (?<![\w/.])(?:~?/|\.{1,2}/)[\w./-]*[\w/-]
path: (?<![\w/.])(?!and/or\b|<UNIT>)[\w-][\w.-]{0,200}(?:/[\w.-]*[\w-])+/?
path: (?<![\w/.])[\w-][\w.-]{0,200}/(?!\S)
path: (?<![\w/.])[\w-][\w.-]{0,200}\.(?=[a-z0-9]{1,5}(?![\w/]))[a-z0-9]*[a-z][a-z0-9]*(?!\w)
expression: (?i)(?<![\w.])(?:<TOKEN>\s*){2,100}
month: (?<!^)\b(?:<MONTHS>)
weekday: \b(?:<WEEKDAYS>)(?=s?\b)
unit: (?i)(?:(?<=\d)|(?<=\d )|(?<=\bto ))(?:<UNIT>|<SHORT>)
unit: (?i)(?:(?<=\bin )|(?<=\binto )|(?<=\bconvert ))<UNIT>
unit: (?i)(?<=\bmany )<UNIT>(?= (?:are|is|in)\b(?! there| left))
number: (?i)(?<![\w.])-?<NUMBER>(?![\w:])(?=\s*(?:degrees?\s+)?(?P<unit><UNIT>|<SHORT>)|)
"""
"""The kinds of value, and what they look like; the order decides which kind a text is."""


class Mention(NamedTuple):
    """A value or a word in a request: its kind, its position, and a number's unit."""

    kind: str
    value: Any
    start: int
    end: int
    unit: str = ""

    @property
    def terms(self) -> list[str]:
        """What it is called in a search."""
        return terms(str(self.value))


def overlap(one: Mention, other: Mention) -> bool:
    """Check whether two places in a text have a part in common."""
    return one.start < other.end and other.start < one.end


def find_mentions(text: str) -> list[Mention]:
    """Find the values in a text, in order and without overlaps, at most `MAX_MENTIONS`."""
    mentions: list[Mention] = []
    for kind, pattern in _patterns():
        for match in pattern.finditer(text):
            unit = match.groupdict().get("unit") or ""
            found = Mention(kind, _value(kind, match[0]), *match.span(), unit)
            is_free = not any(overlap(found, other) for other in mentions)
            if found.value is not None and is_free and len(mentions) < MAX_MENTIONS:
                mentions.append(found)
    return sorted(mentions, key=attrgetter("start"))


def parsed(text: str) -> Any:
    """Parse a text as JSON, or return None."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def _calculation(text: str) -> str | None:
    """Parse a text as an expression, if it is one that calculates something."""
    plain = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text.lower()).strip(" ,")
    with suppress(SyntaxError, ValueError, MemoryError, RecursionError):
        if _CALCULATES.search(plain):
            return ast.unparse(ast.parse(plain, mode="eval"))
    return None


def _date(text: str) -> str | None:
    """Convert a date to ISO 8601. Without a year, it is the next such day."""
    from dateutil.parser import parse

    if text[:4].isdecimal():
        return text.replace(" ", "T")
    with suppress(ValueError):
        written = parse(text, dayfirst=True).date()
        today = date.today()
        if not re.search(r"\d{4}", text) and written < today:
            written = written.replace(year=today.year + 1)
        return written.isoformat()
    return None


def _time(text: str) -> str | None:
    from dateutil.parser import parse

    with suppress(ValueError):
        return parse(text).strftime("%H:%M")
    return None


def _value(kind: str, text: str) -> Any:
    """Read a value, or None if the text is none."""
    match kind:
        case "json":
            return parsed(text)
        case "date":
            return _date(text)
        case "time":
            return _time(text)
        case "number":
            return parsed(text.replace(",", ""))
        case "expression":
            return _calculation(text)
        case "zone":
            return zones_by_name()[text.casefold()]
        case "quoted":
            return text[1:-1]
        case "glob" if "*" not in text:
            return f"*{text}"
    return text


def patterns_in(
    table: str, parts: Mapping[str, str], flags: re.RegexFlag = re.NOFLAG
) -> list[tuple[str, re.Pattern[str]]]:
    """Read a table of patterns, one in a line after its name, with `parts` in place of their
    names.
    """
    patterns: list[tuple[str, re.Pattern[str]]] = []
    for name, pattern in re.findall("^(.*?): (.+)$", table, re.M):
        for part, meant in parts.items():
            pattern = pattern.replace(part, meant)
        patterns.append((name, re.compile(pattern, flags)))
    return patterns


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    places = zones_by_name().keys() - _ORDINARY_WORDS.split()
    parts = {
        "<END>": r".*[^\s?.!;]",
        "<AFTER>": r"(?<=\b(?:in|to|at|of) )|(?<=\b(?:for|and) )|(?<=\bfrom )",
        "<PLACE>": "|".join(map(re.escape, sorted(places, key=len, reverse=True))),
        "<MONTHS>": "|".join(MONTHS),
        "<MONTH>": _MONTH,
        "<WEEKDAYS>": "|".join(day_name),
        "<UNIT>": UNIT_WORDS,
        "<SHORT>": _SHORT_UNIT,
        "<NUMBER>": NUMBER,
        "<TOKEN>": _TOKEN,
        "<QUOTED>": QUOTED.pattern,
    }
    return patterns_in(_PATTERNS, parts)
