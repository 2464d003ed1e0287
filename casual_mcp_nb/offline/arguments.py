"""Fill a tool's arguments from a request, by the parameters in the tool's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from casual_mcp_nb.base.schema import SchemaReader, is_of_type
from casual_mcp_nb.discovery.text import terms
from casual_mcp_nb.offline.mentions import Mention, number
from casual_mcp_nb.offline.needs import ORDER, content_words

Span = tuple[int, int]

_MAX_TEXT = 2_000
_NUMBERS = ("number", "integer")
_SOURCE = "from source src start old origin min minimum low first begin since before"
_TARGET = "to target dest destination end new max maximum high until into after replace"
_FROM_WORDS = ("from", "between", "of", "since")
_TO_WORDS = ("to", "into", "in", "as", "until", "and", "by", "with")
# What a string parameter needs, by a word in its name; else, for meaningless names, by its
# description or format.
_BY_NAME = {
    "zone": "timezone tz zone timezones",
    "unit": "unit units",
    "expression": "expression formula equation expr",
    "url": "url uri link href website webpage",
    "email": "email mail recipient recipients",
    "glob": "glob pattern",
    "path": "path file filename filepath folder directory dir source destination root",
    "sql": "sql statement",
    "month": "month",
    "date": "date day weekday datetime moment deadline birthday",
    "time": "time clock hour",
    "text": (
        "text content contents body message html markdown string input prompt note notes comment"
        " sentence thought value"
    ),
    "number": "number amount id code",
    "filter": "filter containing",
    "search": "query search keyword keywords term terms question topic q",
}
_BY_DESCRIPTION = {
    "sql": r"\bSQL\b|\bSELECT\b",
    "zone": r"(?i)time ?zone|IANA",
    "url": r"(?i)\bURL\b|web address",
    "email": r"(?i)e-?mail address",
    "date": r"(?i)\bdates?\b|ISO 8601",
    "path": r"(?i)\b(?:path|file ?name)\b",
}
_BY_FORMAT = {"date": "date", "date-time": "date", "time": "time", "email": "email", "uri": "url"}
# Kinds of mention that can fill each kind of parameter, best first; others only take their own
# kind.
_ACCEPTED = {
    "path": ("path", "quoted"),
    "sql": ("sql", "quoted"),
    "date": ("date", "time", "weekday"),
    "time": ("time", "date"),
    "text": ("quoted", "json", "encoded"),
    "number": ("quoted", "number"),
    "search": ("quoted",),
    "filter": ("quoted", "name", "word"),
    "": ("quoted", "name", "word"),
}
_SQL_START = re.compile(r"\s*(?:select|insert|update|delete|with|pragma)\b", re.I)
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_REST_MARKER = re.compile(
    r":\s+|\b(?:of|in|that|saying|says?|for|about|matching|containing)\s+", re.I
)
_TOPIC = re.compile(r":\s+|\b(?:about|mention|containing)\s+", re.I)
_NO = re.compile(r"\b(?:no|not|without|don't|never)\b\W+(?:\w+\W+)?$", re.I)
_TIME_IN = re.compile(r"(?:\d|[ap]\.?m\.?|noon|midnight) in $", re.I)
_WORD = re.compile(r"\w[\w.@/-]{0,99}(?<![.,])")
_NAME = re.compile(r"(?<=\w[ ,])(?!I\b)[A-Z][\w\u2019-]*(?:\s[A-Z][\w\u2019-]*)*")
# A word before a noun, but no superlative: the cheapest products are not those with that word.
_QUALIFIER = re.compile(r"(?<!\bmost )(?<!\bleast )\b(?!\w+est\b)([^\W\d_][\w-]*)\s$")
_AMOUNTS = ("count", "limit", "n", "k", "top", "max_results", "max_count")
_GENERIC = frozenset(
    terms("available content current describe different every list name new read same working")
)


class Parameter(NamedTuple):
    """A tool parameter: its type, the kind of mention for a string (or empty), `source` or `target`
    or neither.
    """

    name: str
    required: bool
    schema: SchemaReader
    type: str
    kind: str
    direction: str

    @property
    def kinds(self) -> tuple[str, ...]:
        """Which kinds of mention can fill it, best first."""
        if self.type in _NUMBERS:
            return (next((kind for kind in ("base", "month") if kind in self.name), "number"),)
        if self.type == "object":
            return ("json",)
        kinds = _ACCEPTED.get(self.kind, (self.kind,))
        return kinds if "word" in kinds or self.type != "string" else (*kinds, "word")

    def accepted(self, value: Any) -> Any:
        """Convert a value or its text to one that this parameter accepts, or return None."""
        if self.type == "boolean":
            return _BOOLEANS.get(str(value).casefold())
        if self.type in _NUMBERS:
            return self._number(value)
        if self.schema.choices:
            return self._chosen(str(value))
        if self.kind == "sql" and not _SQL_START.match(str(value)):
            return None
        if self.type == "string":
            return json.dumps(value) if isinstance(value, dict | list) else str(value)
        return None if isinstance(value, str) else value

    def _chosen(self, word: str) -> str | None:
        """Find the choice that a word means: a choice's whole name, or the beginning of only one."""
        word = re.sub(r"^degrees? |^°", "", word)
        folded, meant = word.casefold(), terms(word)
        texts = [choice for choice in self.schema.choices if isinstance(choice, str)]
        alike = [each for each in texts if folded == each.casefold() or meant == terms(each) != []]
        if not alike and (len(word) > 2 or word[:1].isupper()):
            alike = [choice for choice in texts if choice.casefold().startswith(folded)]
        return alike[0] if len(alike) == 1 else None

    def _number(self, value: Any) -> int | float | None:
        with suppress(ValueError, OverflowError, TypeError):
            value = number(value) if isinstance(value, str) else value
            least, most = self.schema.number("minimum"), self.schema.number("maximum")
            is_within = (least is None or value >= least) and (most is None or value <= most)
            if is_of_type(value, self.type) and is_within:
                return value if value in (self.schema.choices or (value,)) else None
        return None


def parameters_of(schema: Mapping[str, Any]) -> list[Parameter]:
    """Parse the parameters in a tool's schema, required ones first."""
    reader = SchemaReader(schema)
    parameters: list[Parameter] = []
    for name, part in reader.properties.items():
        part = part.without_null()
        words = {word.casefold() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
        direction = "target" if words.intersection(_TARGET.split()) else ""
        type_ = _type(part)
        kind = _kind(words, part) if type_ in ("string", "array") else ""
        direction = "source" if words.intersection(_SOURCE.split()) else direction
        parameters.append(Parameter(name, name in reader.required, part, type_, kind, direction))
    return sorted(parameters, key=lambda parameter: not parameter.required)


def _type(schema: SchemaReader) -> str:
    kinds = (kind for one in (schema, *schema.alternatives()) for kind in one.types)
    return next((kind for kind in kinds if kind != "null"), "string")


def _kind(words: set[str], schema: SchemaReader) -> str:
    description = schema.description[:_MAX_TEXT]
    kinds = [kind for kind, names in _BY_NAME.items() if words & set(names.split())]
    described = [kind for kind, text in _BY_DESCRIPTION.items() if re.search(text, description)]
    # SQL is written in capitals where it is meant; other parameters, such as `query`, are known by
    # their name first.
    first = ["sql"] if "sql" in described else []
    kinds = [*first, *kinds, *described]
    return _BY_FORMAT.get(schema.text("format")) or next(iter(kinds), "")


Found = Iterator[tuple[Parameter, Any, Span]]
"""Values that a parameter may take, and where they are."""


class Filling:
    """A tool's arguments, as far as a request contains them, or an earlier call, whose values are
    `known`.

    Attributes:
        missing: Required parameters that the request does not fill.
        chosen: Spans in the request that are a parameter's choices.
        typed: How many arguments match the parameter's kind, rather than plain words.
        guessed: Whether plain words were taken, which may not be meant as a value.
    """

    def __init__(
        self,
        text: str,
        mentions: Sequence[Mention],
        parameters: Sequence[Parameter],
        known: Mapping[str, Any] | None = None,
        own_terms: Collection[str] = (),
    ) -> None:
        self.arguments: dict[str, Any] = {}
        self.chosen: list[Span] = []
        self._text = text
        self._free = list(mentions)
        self._spans: list[Span] = []
        self._parameters = parameters
        # What is said most clearly comes first.
        for find in (self._named, self._mentioned, self._listed, self._said):
            for parameter, value, span in list(find()):
                self._put(parameter, value, span)
        self.typed = len(self.arguments)
        self.arguments = {**(known or {}), **self.arguments}
        # Plain words come last, and only if a call is impossible without them, and possible with
        # them.
        lacking = [one for one in self._open() if one.required]
        if len(lacking) == 1 and lacking[0].kind in ("text", "search"):
            self._take_words(lacking[0], own_terms)
        self.guessed = len(self._spans) > self.typed
        names = [one.name for one in parameters if one.name in self.arguments]
        self.arguments = {name: self.arguments[name] for name in names}
        self.missing = [one.name for one in self._open() if one.required]

    def covers(self, start: int, end: int) -> bool:
        """Check whether a part of this span was used as a value."""
        return any(start < stop and begin < end for begin, stop in self._spans)

    def _open(self) -> list[Parameter]:
        return [one for one in self._parameters if one.name not in self.arguments]

    def _put(self, parameter: Parameter, value: Any, span: Span) -> None:
        """Use a span as an argument, if it is free and the parameter accepts the value."""
        value = parameter.accepted(value)
        if value is None or parameter.name in self.arguments or self.covers(*span):
            return
        self.arguments[parameter.name] = value
        self._spans.append(span)
        if parameter.schema.choices:
            self.chosen.append(span)
        self._free = [one for one in self._free if one.end <= span[0] or one.start >= span[1]]

    def _named(self) -> Found:
        """Yield values given as `name=value`, or as `name: value` up to the next comma."""
        quoted = r"\"([^\"]*)\"|'([^']*)'"
        for parameter in self._parameters:
            spoken = re.escape(parameter.name).replace("_", "[_ ]")
            value = rf"=\s*(?:{quoted}|([^\s,;]*[^\s,;?!]))|:\s+(?:{quoted}|([^,;?!]*[^\s,;.?!]))"
            match = re.search(rf"(?<!\w){spoken}\s*(?:{value})", self._text)
            if match:
                yield parameter, match[match.lastindex or 0], match.span()

    def _mentioned(self) -> Found:
        """Yield each parameter with the value that suits it, the best pairs first."""
        values = [*self._free]
        for match in _NAME.finditer(self._text):
            name = re.sub(r"['\u2019]s$", "", match[0])
            values.append(Mention("name", name, match.start(), match.start() + len(name)))
        for match in _WORD.finditer(self._text):
            values.append(Mention("word", match[0], match.start(), match.end()))
        pairs = []
        for place, parameter in enumerate(self._open()):
            for value in values:
                score = self._suits(parameter, value)
                if score:
                    pairs.append((-score, place, value.start, parameter, value))
        for *_, parameter, value in sorted(pairs, key=lambda pair: pair[:3]):
            given = value.value
            if parameter.type == "string" and value.kind == "month":
                given = self._text[value.start : value.end]
            yield parameter, given, (value.start, value.end)

    def _suits(self, parameter: Parameter, value: Mention) -> int:
        """Compute how well a value suits a parameter, or 0 if it does not."""
        if value.kind not in parameter.kinds or parameter.type in ("array", "boolean"):
            return 0
        before, after = self._text[: value.start], self._text[value.end :]
        if value.kind == "word":
            return self._suits_as_word(parameter, value.value, before, after)
        name = re.escape(parameter.name.removesuffix("_id").replace("_", " "))
        # The name beside the value, or with one word between: `limit it to 5`, `hive number 8`.
        is_named = (
            re.search(rf"\b{name}s?\W+(?:\w+\W+)?$", before, re.I) is not None
            or re.match(rf"\W+(?:\w+\W+)?{name}s?\b", after, re.I) is not None
        )
        if value.unit:
            # An amount is a number of this unit, or goes with a parameter for the unit.
            described = terms(f"{parameter.name} {parameter.schema.description[:_MAX_TEXT]}")
            words = {*parameter.name.casefold().split("_"), *described}
            is_named = not words.isdisjoint([value.unit.casefold(), *terms(value.unit)])
            converts = any(one.kind == "unit" for one in self._parameters)
            if parameter.type not in _NUMBERS or not (is_named or converts):
                return 0
        at_a_time = value.kind == "zone" and _TIME_IN.search(before) is not None
        is_source = value.marker in _FROM_WORDS or value.marker.isdigit() or at_a_time
        is_target = value.marker in _TO_WORDS and not is_source
        is_end = {"source": is_source, "target": is_target}.get(parameter.direction, False)
        is_end = is_end or (parameter.kind == "text" and value.marker == "in")
        counts = parameter.name in _AMOUNTS and not (is_source or is_target)
        names = [one for one in self._parameters if "name" in one.kinds and not one.schema.choices]
        is_only = value.kind == "name" and (len(names) == 1 or parameter.kind == "filter")
        is_meant = parameter.required or is_named or is_end or counts or is_only
        if value.kind in ("number", "quoted", "name") and not is_meant:
            return 0
        return 15 - parameter.kinds.index(value.kind) + 10 * is_end + 5 * is_named

    def _suits_as_word(self, parameter: Parameter, word: str, before: str, after: str) -> int:
        """Compute how well a plain word suits: as a choice, or next to the parameter's name, as in
        `the table orders`, `the orders table`, `folder notes`.
        """
        if parameter.schema.choices:
            return 16 if parameter.required or terms(word) else 0
        if not terms(word) or terms(word)[0] in _GENERIC:
            return 0
        names = parameter.name.replace("_", " ")
        if parameter.kind == "path":
            names += "|folder|directory|file"
        if re.search(rf"\b(?:{names})\s+(?:named\s+|called\s+|is\s+)?$", before, re.I):
            return 4
        return 3 if re.match(rf"\s{{1,9}}(?:{names})\b", after, re.I) else 0

    def _listed(self) -> Found:
        """Yield lists: one as JSON, or all values of the items' kind."""
        for parameter in self._open():
            if parameter.type != "array":
                continue
            items, least = parameter.schema.items, parameter.schema.number("minItems") or 1
            kinds = parameter.kinds
            if items and _type(items.without_null()) in _NUMBERS:
                kinds = ("number",)
            for one in self._free:
                is_list = one.kind == "json" and isinstance(one.value, list)
                if is_list and len(one.value) >= least:
                    yield parameter, one.value, (one.start, one.end)
            found = [one for one in self._free if one.kind in kinds]
            if parameter.required and len(found) >= least:
                yield parameter, [one.value for one in found], (found[0].start, found[-1].end)

    def _said(self) -> Found:
        """Yield booleans whose name is said or denied, and for a filter, the word before a choice:
        `the open orders`.
        """
        words = {word.terms[0]: word for word in content_words(self._text)}
        for parameter in self._open():
            # `available_only` is said as `available`.
            parts = [part for part in terms(parameter.name) if part != "only"]
            if parameter.type == "boolean" and parts and words.keys() >= set(parts):
                first, last = words[parts[0]], words[parts[-1]]
                denied = _NO.search(self._text[: first.start]) is not None
                yield parameter, not denied, (first.start, last.end)
            for start, _ in self.chosen if parameter.kind == "filter" else ():
                word = _QUALIFIER.search(self._text[:start])
                if word and content_words(word[1]):
                    yield parameter, word[1], word.span(1)

    def _take_words(self, parameter: Parameter, own_terms: Collection[str]) -> None:
        """Use plain words from the request for a free text, unless they only say what the tool
        does: `Sort the lines`.
        """
        order = ORDER.match(self._text)
        starts = list((_REST_MARKER if order else _TOPIC).finditer(self._text))
        if order and not starts:
            starts = [order]
        if not starts:
            return
        start = starts[-1 if parameter.kind == "search" else 0]
        following = self._text[start.end() :].strip().rstrip(" ?.!")
        begin = self._text.find(following, start.end())
        words = {term for word in content_words(following) for term in word.terms}
        if words and (self._free or not words.issubset(own_terms)):
            self._put(parameter, following, (begin, begin + len(following)))
