"""Fill a tool's arguments from a request, by the parameters in the tool's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from casual_mcp_nb.base.schema import SchemaReader, is_of_type
from casual_mcp_nb.discovery.text import terms
from casual_mcp_nb.offline.mentions import Mention, number, overlap
from casual_mcp_nb.offline.needs import ORDER, Need, content_words

_MAX_TEXT = 2_000
_NEAR = 40
_CLOSED = ("quoted", "json", "sql", "expression")
"""Kinds of mention that are one value, so that no single word in them is another."""
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
    "array": ("json",),
    "object": ("json",),
    "boolean": (),
}
"""Kinds of mention that can fill each kind of parameter, best first; others take their own kind."""
_LIMITS = "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minItems"
_SQL_START = re.compile(r"\s*(?:select|insert|update|delete|with|pragma)\b", re.I)
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_REST_MARKER = re.compile(
    r":\s+|\b(?:of|in|that|saying|says?|for|about|matching|containing)\s+", re.I
)
_TOPIC = re.compile(r":\s+|\b(?:about|mention|containing)\s+", re.I)
_NO = re.compile(r"\b(?:no|not|without|don't|never)\b\W+(?:\w+\W+)?$", re.I)
_TIME_IN = re.compile(r"(?:\d|[ap]\.?m\.?) in $", re.I)
_MARKER = re.compile(r"([^\W\d_]+\s|\d\s*)\s*(?:the\s+)?(?:degrees?\s+)?[\"'“(]?$")
_WORD = re.compile(r"\w[\w.@/-]{0,99}(?<![.,])")
_PROPER = r"[A-Z](?:[\w-]|\u2019(?!s\b))*"
_NAME = re.compile(rf"(?<=\w[ ,])(?!I\b){_PROPER}(?:\s{_PROPER})*(?:, [A-Z]{{2}}\b)?")
# A word before a noun, but no superlative: the cheapest products are not those with that word.
_QUALIFIER = re.compile(r"(?<!\bmost )(?<!\bleast )\b(?!\w+est\b)([^\W\d_][\w-]*)\s$")
_AMOUNTS = ("count", "limit", "n", "k", "top", "max_results", "max_count")
_GENERIC = "available called current describe different every list name named new read same working"
_DENIED = re.compile(
    r"(?:\b(?:not|except|excluding|without|other than|besides)|n't)\W+(?:\w+\W+){0,2}$", re.I
)
"""What turns the value after it into its opposite."""


class Parameter(NamedTuple):
    """A tool parameter: its JSON type, what it takes, the kinds of mention that can fill it, best
    first, and the words before a value that can only be meant for it.
    """

    name: str
    required: bool
    schema: SchemaReader
    type: str
    kind: str
    kinds: tuple[str, ...]
    markers: tuple[str, ...]

    def accepted(self, value: Any) -> Any:
        """Convert a value or its text to one of this parameter's type, or return None."""
        if self.type == "boolean":
            return _BOOLEANS.get(str(value).casefold())
        if self.schema.choices:
            return self._chosen(str(value))
        if self.kind == "sql" and not _SQL_START.match(str(value)):
            return None
        if self.type == "string":
            return value if isinstance(value, str) else json.dumps(value)
        if isinstance(value, str):
            with suppress(ValueError, OverflowError):
                value = number(value)
        return value if is_of_type(value, self.type) and self._allows(value) else None

    def _chosen(self, said: str) -> Any:
        """Find the choice that is said."""
        for choice in self.schema.choices:
            name = str(choice)
            if said.casefold() == name.casefold() or terms(said) == terms(name) != []:
                return choice
        return None

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
    for name, part in reader.properties.items():
        part = part.without_null()
        required = name in reader.required
        words = {word.casefold() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
        kind = _meant(_BY_NAME, {*words, *part.text("format").split("-")})
        described = _BY_DESCRIPTION.search(part.description[:_MAX_TEXT])
        type_ = _type(part)
        if type_ != "string" and kind != "month":
            kind = type_
        elif kind is None:
            kind = described.lastgroup if described else ""
        kinds = _ACCEPTED.get(kind, (kind, "word"))
        if part.choices:
            kinds = (*kinds, "quoted")
        markers = _meant(_MARKERS, words) or ()
        parameters.append(Parameter(name, required, part, type_, kind, kinds, markers))
    return sorted(parameters, key=attrgetter("required"), reverse=True)


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
        self,
        need: Need,
        parameters: Sequence[Parameter],
        known: Mapping[str, Any] | None = None,
    ) -> None:
        self.arguments: dict[str, Any] = {}
        self.chosen: list[Mention] = []
        self.guess = ""
        self._need, self._text = need, need.text
        self._spans: list[Mention] = []
        self._parameters = parameters
        # What is said most clearly comes first.
        for find in (self._named, self._mentioned, self._listed, self._said):
            for parameter, value, place in list(find()):
                self._put(parameter, value, place)
        self.typed = len(self.arguments)
        self.arguments = {**(known or {}), **self.arguments}
        # Plain words come last, and only if a call is impossible without them, and possible with
        # them.
        lacking = [one for one in self._open() if one.required]
        if len(lacking) == 1 and lacking[0].kind in ("text", "search"):
            self._take_words(lacking[0])
        self.missing = [one.name for one in self._open() if one.required]
        names = [one.name for one in parameters if one.name in self.arguments]
        self.arguments = {name: self.arguments[name] for name in names}
        self.left = [one for one in need.words if not self.covers(one)]

    def covers(self, one: Mention) -> bool:
        """Check whether a part of this was used as a value."""
        return any(overlap(one, span) for span in self._spans)

    @property
    def is_partial(self) -> bool:
        """Whether the call would answer only a part of the request, or its opposite: `not in the
        office`, `in the kitchen or the garden`.
        """
        if any(_DENIED.search(self._text[: span.start]) for span in self._spans):
            return True
        for parameter in self._parameters:
            is_chosen = parameter.schema.choices and parameter.name in self.arguments
            if is_chosen and any(parameter.accepted(word.value) is not None for word in self.left):
                return True
        return False

    def _open(self) -> list[Parameter]:
        return [one for one in self._parameters if one.name not in self.arguments]

    def _put(self, parameter: Parameter, value: Any, place: Mention) -> None:
        """Use a part of the text as an argument, if it is free and the parameter accepts the
        value.
        """
        value = parameter.accepted(value)
        if value is None or parameter.name in self.arguments or self.covers(place):
            return
        self.arguments[parameter.name] = value
        self._spans.append(place)
        if parameter.schema.choices:
            self.chosen.append(place)

    def _named(self) -> Found:
        """Yield values given as `name=value`, or as `name: value` up to the next comma."""
        quoted = r"\"[^\"]*\"|'[^']*'"
        for parameter in self._parameters:
            spoken = re.escape(parameter.name).replace("_", "[_ ]")
            value = rf"=\s*({quoted}|[^\s,;]*[^\s,;?!])|:\s+({quoted}|[^,;?!]*[^\s,;.?!])"
            match = re.search(rf"(?<!\w){spoken}\s*(?:{value})", self._text)
            if match:
                place = Mention("words", match[0], *match.span())
                yield parameter, (match[1] or match[2]).strip("\"'"), place

    def _mentioned(self) -> Found:
        """Yield each parameter with the value that suits it, the best pairs first."""
        pairs = []
        for parameter in self._parameters:
            for value in (*self._need.mentions, *_plain(self._need)):
                pairs.append((self._suits(parameter, value), parameter, value))
        for score, parameter, value in sorted(pairs, key=itemgetter(0), reverse=True):
            if not score:
                break
            given = value.value
            if parameter.type == "string" and value.kind == "month":
                given = self._text[value.start : value.end]
            yield parameter, given, value

    def _suits(self, parameter: Parameter, value: Mention) -> int:
        """Compute how well a value suits a parameter, or 0 if it does not."""
        if value.kind not in parameter.kinds:
            return 0
        before, after = self._text[: value.start], self._text[value.end :]
        named = _is_beside(parameter, before, after)
        if value.kind == "word":
            meant = terms(value.value)
            if parameter.schema.choices:
                return 16 if parameter.required or meant else 0
            is_value = meant and value.value.casefold() not in _GENERIC.split()
            return 4 if named and is_value else 0
        if value.unit:
            # An amount is a number of this unit, or goes with a parameter for the unit.
            named = _is_measured_in(parameter, value.unit)
            if not named and all(one.kind != "unit" for one in self._parameters):
                return 0
        found = _MARKER.search(before[-_NEAR:])
        marker = found[1].strip().casefold() if found else ""
        if marker.isdigit() or (value.kind == "zone" and _TIME_IN.search(before)):
            # An amount's unit, or where a time is.
            marker = "from"
        end = marker in parameter.markers
        is_meant = named or end or parameter.required
        if value.kind == "number":
            # It may limit the results.
            is_meant = is_meant or (parameter.name in _AMOUNTS and marker not in (*_FROM, *_TO))
        elif value.kind == "name":
            is_meant = is_meant or parameter.kind == "filter"
        if value.kind in ("number", "quoted", "name") and not is_meant:
            return 0
        return 15 - parameter.kinds.index(value.kind) + 10 * end + 5 * named

    def _listed(self) -> Found:
        """Yield all values that are items of a required list."""
        for parameter in self._open():
            items = parameter.schema.items
            if parameter.type == "array" and parameter.required and items is not None:
                kinds = _ACCEPTED.get(_type(items.without_null()), ("quoted",))
                found = [one for one in self._need.mentions if one.kind in kinds]
                if found:
                    place = Mention("list", "", found[0].start, found[-1].end)
                    yield parameter, [one.value for one in found], place

    def _said(self) -> Found:
        """Yield booleans whose name is said or denied, and for a filter, the word before a choice:
        `the open orders`.
        """
        words = {word.terms[0]: word for word in self._need.words}
        for parameter in self._open():
            parts = terms(parameter.name)
            if parameter.type == "boolean" and parts and words.keys() >= set(parts):
                place = Mention("words", "", words[parts[0]].start, words[parts[-1]].end)
                yield parameter, _NO.search(self._text[: place.start]) is None, place
            elif parameter.kind == "filter":
                for chosen in self.chosen:
                    word = _QUALIFIER.search(self._text[: chosen.start])
                    if word and content_words(word[1]):
                        yield parameter, word[1], Mention("words", word[1], *word.span(1))

    def _take_words(self, parameter: Parameter) -> None:
        """Use plain words from the request for a free text."""
        order = ORDER.match(self._text)
        mark = (_REST_MARKER if order else _TOPIC).search(self._text) or order
        if mark is None:
            return
        begin = mark.end()
        following = self._text[begin:].rstrip(" ?.!")
        if content_words(following):
            self.guess = following.strip()
            place = Mention("words", following, begin, begin + len(following))
            self._put(parameter, self.guess, place)


def _is_measured_in(parameter: Parameter, unit: str) -> bool:
    """Check whether a number's name or description says that it has this unit."""
    words = terms(f"{parameter.name} {parameter.schema.description[:_MAX_TEXT]}")
    words += parameter.name.casefold().split("_")
    return not {unit.casefold(), *terms(unit)}.isdisjoint(words)


def _is_beside(parameter: Parameter, before: str, after: str) -> bool:
    """Check whether a value has the parameter's name beside it: `table orders`, `the orders table`,
    `hive number 8`.
    """
    names = re.escape(parameter.name.removesuffix("_id")).replace("_", " ")
    if parameter.kind == "path":
        names += "|folder|directory|file"
    if re.search(rf"\b(?:{names})\W+(?:(?:named|called|is|number|to)\W+)?$", before, re.I):
        return True
    return re.match(rf"\s+(?:{names})\b", after, re.I) is not None


def _plain(need: Need) -> Iterator[Mention]:
    """Yield the names and words that are no part of a longer value, such as a quotation."""
    closed = [one for one in need.mentions if one.kind in _CLOSED]
    for kind, pattern in (("name", _NAME), ("word", _WORD)):
        for match in pattern.finditer(need.text):
            word = Mention(kind, match[0], *match.span())
            if not any(overlap(word, one) for one in closed):
                yield word
