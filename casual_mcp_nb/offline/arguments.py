"""Fill a tool's arguments from a request, by the parameters in the tool's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from operator import itemgetter
from typing import Any

from casual_mcp_nb.base.schema import SchemaReader, is_of_type
from casual_mcp_nb.discovery.text import terms
from casual_mcp_nb.offline.mentions import MONTHS, Mention, overlap, parsed
from casual_mcp_nb.offline.needs import Need

_MAX_TEXT = 2_000
_NEAR = 40
_FROM = ("from", "between", "of", "since")
_TO = ("to", "into", "in", "as", "until", "and", "by", "with")
_MARKERS = {
    _FROM: "from source src start old origin min minimum low first begin since before",
    _TO: "to target dest destination end new max maximum high until into after replace",
    ("in",): "text content contents",
}
"""The words before a value that can only be meant for a parameter, by a word in its name."""
_BY_NAME = {
    "zone": "timezone tz zone timezones",
    "unit": "unit units",
    "expression": "expression formula equation expr",
    "url": "url uri link href website webpage",
    "email": "email mail recipient recipients",
    "glob": "glob pattern",
    "path": "path file filename filepath folder directory dir root",
    "sql": "sql statement",
    "month": "month",
    "date": "date day weekday datetime moment deadline birthday",
    "time": "time clock hour",
    "text": (
        "text content contents body message html markdown string input prompt note notes comment"
        " sentence thought value"
    ),
    "code": "number amount id code",
    "filter": "filter containing",
    "search": "query search keyword keywords term terms question topic q",
    "limit": "count limit n k top results",
}
"""What a parameter takes, by a word in its name or its format."""
_BY_DESCRIPTION = re.compile(
    r"(?P<date>\bdates?\b|ISO 8601)|(?P<zone>time ?zone|IANA)|(?P<url>\bURL\b|web address)"
    r"|(?P<sql>\bSQL\b)|(?P<path>\b(?:path|file ?name)\b)",
    re.I,
)
"""What a parameter takes whose name tells nothing."""
_ACCEPTED = {
    "path": ("path", "quoted", "word"),
    "sql": ("sql", "quoted", "word"),
    "date": ("date", "time", "weekday", "word"),
    "time": ("time", "date", "word"),
    "text": ("quoted", "json", "encoded", "word"),
    "code": ("quoted", "number", "word"),
    "search": ("quoted", "word"),
    "filter": ("quoted", "name", "word"),
    "": ("quoted", "path", "name", "word"),
    "integer": ("number",),
    "number": ("number",),
    "limit": ("number", "quoted", "word"),
    "array": ("json",),
    "object": ("json",),
    "boolean": (),
}
"""Kinds of mention that can fill each kind of parameter, best first; others take their own kind."""
_LIMITS = "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minItems"
_SQL_START = re.compile(r"\s*(?:select|insert|update|delete|with|pragma)\b", re.I)
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_REST_MARKER = re.compile(r":\s+|\b(?:saying|for|about|mention|matching|containing)\s+", re.I)
_NO = r"\b(?:no|not|without|don't|never)\b\W+(?:\w+\W+)?"
_MARKER = re.compile(
    r"(?:(?:\d|[ap]\.?m\.?) in\s|([^\W\d_]+)\s|\d\s*)\s*(?:the\s+)?(?:degrees?\s+)?[\"'“(]?$", re.I
)
"""The word before a value, unless that is an amount's unit, or where a time is."""
# A word before a noun, but no superlative: the cheapest products are not those with that word.
_QUALIFIER = re.compile(r"(?<!\bmost )(?<!\bleast )\b(?!\w+est\b)([^\W\d_][\w-]*)\s$")
_GAP = "\0"
"""What stands in the place of a value."""
_GENERIC = "available called current describe different every list name named new read same working"
_GIVEN = (
    r"\s*(?:=\s*(\"[^\"]*\"|'[^']*'|[^\s,;]*[^\s,;?!])|:\s+(\"[^\"]*\"|'[^']*'|[^,;?!]*[^\s,;.?!]))"
)
"""A value after the name of its parameter: `=value`, or `: value` up to the next comma."""


class Parameter:
    """A tool parameter.

    Attributes:
        spoken: A pattern of its name in a sentence.
        words: The words in its name.
        type: Its JSON type.
        kind: What it takes.
        kinds: The kinds of mention that can fill it, best first, and for a list, its items.
        choices: Its choices, by the terms of their names.
        markers: The words before a value that can only be meant for it.
        beside: Finds its name before or after a value, which is left out.
    """

    def __init__(self, name: str, schema: SchemaReader, required: bool) -> None:
        self.name, self.schema, self.required = name, schema, required
        self.spoken = re.escape(name).replace("_", "[_ ]")
        self.words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
        words = set(map(str.casefold, self.words))
        self.type = _type(schema)
        self.kind = self._kind(words)
        self.kinds = _ACCEPTED.get(self.kind, (self.kind, "word"))
        items = schema.items
        self.items: tuple[str, ...] = ()
        if items is not None:
            self.items = _ACCEPTED.get(_type(items.without_null()), ("quoted",))
        self.markers = _meant(_MARKERS, words) or ()
        self.choices: dict[str, Any] = {}
        for choice in reversed(schema.choices):
            self.choices[_key(str(choice))] = choice
        if self.choices:
            self.kinds += ("quoted",)
        names = self.spoken.removesuffix("[_ ]id")
        if self.kind == "path":
            names += "|folder|directory|file"
        called = r"(?:named|called|is|number|to)\W+"
        self.beside = re.compile(
            rf"\b(?:{names})\W+(?:{called})?{_GAP}|{_GAP}\s+(?:{names})\b", re.I
        )

    def _kind(self, words: Set[str]) -> str:
        kind = _meant(_BY_NAME, {*words, *self.schema.text("format").split("-")})
        if self.type != "string" and kind not in ("month", "limit"):
            return self.type
        described = _BY_DESCRIPTION.search(self.schema.description[:_MAX_TEXT])
        if described and not kind:
            kind = described.lastgroup
        return str(kind or "")

    def accepted(self, value: Any) -> Any:
        """Convert a value or its text to one of this parameter's type, or return None."""
        said = str(value)
        if self.type == "boolean":
            return _BOOLEANS.get(said.casefold())
        if self.choices:
            return self.choices.get(_key(said))
        if self.kind == "sql" and not _SQL_START.match(said):
            return None
        if self.type == "string":
            return value if isinstance(value, str) else json.dumps(value)
        if value in MONTHS:
            value = MONTHS.index(value) + 1
        if isinstance(value, str):
            value = parsed(value)
        if not is_of_type(value, self.type) or not self._allows(value):
            return None
        return value

    def is_measured_in(self, unit: str) -> bool:
        """Check whether its name or description says that it has this unit."""
        about = f"{self.name} {self.schema.description[:_MAX_TEXT]}".replace("_", " ")
        pattern = rf"(?<![a-z]){re.escape(unit.removesuffix('s'))}s?(?![a-z])"
        return re.search(pattern, about, re.I) is not None

    def _allows(self, value: Any) -> bool:
        from jsonschema import Draft202012Validator

        rules = self.schema.schema
        limits = {word: rules[word] for word in _LIMITS.split() if word in rules}
        with suppress(TypeError):
            return bool(Draft202012Validator(limits).is_valid(value))
        return False


def parameters_of(schema: Mapping[str, Any]) -> list[Parameter]:
    """Parse the parameters in a tool's schema, required ones first."""
    reader = SchemaReader(schema)
    parameters: list[Parameter] = []
    for name in reader.required_first:
        part = reader.properties[name].without_null()
        parameters.append(Parameter(name, part, name in reader.required))
    return parameters


def _type(schema: SchemaReader) -> str:
    for one in schema.alternatives():
        for kind in one.types:
            if kind != "null":
                return kind
    return "string"


def _meant(table: Mapping[Any, str], words: Set[str]) -> Any:
    """Find the first entry of a table for which one of the words stands."""
    for meant, names in table.items():
        if not words.isdisjoint(names.split()):
            return meant
    return None


def _key(name: str) -> str:
    return " ".join(terms(name)) or name.casefold()


Found = Iterator[tuple[Parameter, Any, Mention]]
"""Values that a parameter may take, and where they are."""


class Filling:
    """A tool's arguments, as far as a request contains them, or an earlier call, whose values are
    `known`.

    Attributes:
        missing: Required parameters that the request does not fill.
        chosen: Spans in the request that are a parameter's choices.
        typed: How many arguments match the parameter's kind, rather than plain words.
        guess: Plain words that were taken, which may not be meant as a value.
        left: The request's words that are not used as a value.
    """

    def __init__(
        self, need: Need, parameters: Sequence[Parameter], known: Mapping[str, Any] | None = None
    ) -> None:
        self.chosen: list[Mention] = []
        self.guess = ""
        self._need, self._text, self._parameters = need, need.text, parameters
        self._known = dict(known or {})
        self._found: dict[str, Any] = {}
        self._spans: list[Mention] = []
        # What is said most clearly comes first.
        for find in (self._named, self._mentioned, self._listed, self._said, self._qualified):
            for parameter, value, place in find():
                self._put(parameter, value, place)
        self.typed = len(self._found)
        for parameter, value, place in self._remaining():
            self._put(parameter, value, place)
            self.guess = value
        self.missing = [one.name for one in self._lacking()]
        values = self._known | self._found
        self.arguments = {one.name: values[one.name] for one in parameters if one.name in values}
        self.left = [one for one in need.words if not self.covers(one)]

    def covers(self, one: Mention) -> bool:
        """Check whether a part of this was used as a value."""
        return any(overlap(one, span) for span in self._spans)

    def is_choice(self, word: Mention) -> bool:
        """Check whether a word is a choice of a parameter that has another value: `in the kitchen
        or the garden`.
        """
        given = [one for one in self._parameters if one.choices and one.name in self.arguments]
        return any(one.accepted(word.value) is not None for one in given)

    def _lacking(self) -> list[Parameter]:
        filled = self._known | self._found
        return [one for one in self._parameters if one.required and one.name not in filled]

    def _put(self, parameter: Parameter, value: Any, place: Mention) -> None:
        """Use a part of the text as an argument, if it is free and the parameter accepts the
        value.
        """
        value = parameter.accepted(value)
        if value is None or parameter.name in self._found or self.covers(place):
            return
        self._found[parameter.name] = value
        self._spans.append(place)
        if parameter.choices:
            self.chosen.append(place)

    def _named(self) -> Found:
        """Yield values given with the parameter's name."""
        for parameter in self._parameters:
            match = re.search(rf"(?<!\w){parameter.spoken}{_GIVEN}", self._text)
            if match:
                place = Mention("words", "", *match.span())
                yield parameter, (match[1] or match[2]).strip("\"'"), place

    def _mentioned(self) -> Found:
        """Yield each parameter with the value that suits it, the best pairs first."""
        pairs: list[tuple[int, Parameter, Mention]] = []
        for value in self._need.readings:
            for parameter in self._parameters:
                if value.kind in parameter.kinds:
                    pairs.append((self._suits(parameter, value), parameter, value))
        for score, parameter, value in sorted(pairs, key=itemgetter(0), reverse=True):
            if score:
                yield parameter, value.value, value

    def _suits(self, parameter: Parameter, value: Mention) -> int:
        """Compute how well a value suits a parameter, or 0 if it does not."""
        start, end = value.start, value.end
        near = max(0, start - _NEAR)
        around = f"{self._text[near:start]}{_GAP}{self._text[end : end + _NEAR]}"
        named = parameter.beside.search(around) is not None
        if value.kind == "word":
            if parameter.choices and value.terms:
                return 16
            if named and value.terms and value.value.casefold() not in _GENERIC.split():
                return 4
            return 0
        if value.unit:
            # An amount is a number of this unit, or goes with a parameter for the unit.
            named = parameter.is_measured_in(value.unit)
            if not named and all(one.kind != "unit" for one in self._parameters):
                return 0
        marker = _MARKER.search(self._text, near, start)
        marked = marker is not None and (marker[1] or "from").casefold() in parameter.markers
        is_wanted = parameter.required or parameter.kind in ("filter", "limit")
        if value.kind in ("number", "quoted", "name") and not (named or marked or is_wanted):
            return 0
        return 15 - parameter.kinds.index(value.kind) + 10 * marked + 5 * named

    def _listed(self) -> Found:
        """Yield all values that are items of a required list."""
        for parameter in self._parameters:
            found = [one for one in self._need.mentions if one.kind in parameter.items]
            if found and parameter.required:
                place = Mention("list", "", found[0].start, found[-1].end)
                yield parameter, [one.value for one in found], place

    def _said(self) -> Found:
        """Yield booleans whose name is said, or denied: `do not ignore case`."""
        for parameter in self._parameters:
            words = "[_ ]".join(filter(terms, parameter.words))
            said = re.search(rf"({_NO})?\b{words}", self._text, re.I)
            if said and words and parameter.type == "boolean":
                yield parameter, said[1] is None, Mention("words", "", *said.span())

    def _qualified(self) -> Found:
        """Yield for a filter the word before a choice: `the open orders`."""
        for parameter in self._parameters:
            for chosen in self.chosen:
                word = _QUALIFIER.search(self._text, 0, chosen.start)
                if parameter.kind == "filter" and word and terms(word[1]):
                    yield parameter, word[1], Mention("words", "", *word.span(1))

    def _remaining(self) -> Found:
        """Yield plain words for a free text, if a call is only possible with them."""
        lacking = self._lacking()
        if len(lacking) != 1 or lacking[0].kind not in ("text", "search"):
            return
        mark = _REST_MARKER.search(self._text)
        if mark:
            words = self._text[mark.end() :].strip(" ?.!")
            yield lacking[0], words, Mention("words", "", mark.end(), len(self._text))
