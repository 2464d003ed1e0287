"""Fill a tool's arguments from a request, by the parameters in the tool's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.discovery.text import terms
from casual_mcp_nb.offline.needs import OPENS_WITH_VERB, Mention, content_words, number

Span = tuple[int, int]

_MAX_TEXT = 2_000
_NUMBERS = ("number", "integer")
_SOURCE = {
    "from",
    "source",
    "src",
    "start",
    "old",
    "origin",
    "min",
    "minimum",
    "low",
    "first",
    "begin",
    "since",
    "before",
}
_TARGET = {
    "to",
    "target",
    "dest",
    "destination",
    "end",
    "new",
    "max",
    "maximum",
    "high",
    "until",
    "into",
    "after",
}
# What a string parameter needs, by a word in its name; else, for meaningless names, by its
# description.
_BY_NAME = {
    "zone": "timezone tz zone timezones",
    "unit": "unit units",
    "expression": "expression formula equation expr",
    "url": "url uri link href website webpage",
    "email": "email mail recipient recipients",
    "glob": "glob pattern",
    "path": "path file filename filepath folder directory dir source destination root",
    "sql": "sql statement",
    "date": "date day datetime moment deadline birthday",
    "time": "time clock hour",
    "text": (
        "text content contents body message html markdown string input prompt note comment sentence"
        " thought value"
    ),
    "number": "number amount",
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
_BY_FORMAT = {
    "date": "date",
    "date-time": "date",
    "time": "time",
    "email": "email",
    "uri": "url",
    "url": "url",
}
# Kinds of mention that can fill each kind of parameter, best first; others only take their own
# kind.
_ACCEPTED = {
    "unit": ("quantity", "unit"),
    "path": ("path", "quoted"),
    "sql": ("sql", "quoted"),
    "date": ("date", "time"),
    "time": ("time", "date"),
    "text": ("quoted", "json", "encoded"),
    "number": ("quoted", "number"),
    **dict.fromkeys(("search", "filter", ""), ("quoted",)),
}
_SQL_START = re.compile(r"\s*(?:select|insert|update|delete|with|pragma)\b", re.I)
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_FROM_WORDS = ("from", "between", "of", "since")
_TO_WORDS = ("to", "into", "in", "as", "until", "and")
_REST_MARKER = re.compile(
    r":\s+|\b(?:of|in|that|saying|says|for|about|matching|containing)\s+", re.I
)
_NO = re.compile(r"\b(?:no|not|without|don't|never)\b\W+(?:\w+\W+)?$", re.I)
_PROPER_NAME = re.compile(
    r"(?:\b(?:in|for|of|at|about|called|named|near|from|by|to|with|on)|^\w+)\s+((?:[A-Z][\w'\u2019-]*\s?)+)"
)
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
            if "base" in self.name:
                return ("base",)
            return ("number",)
        if self.type == "object":
            return ("json",)
        return _ACCEPTED.get(self.kind, (self.kind,))

    def accepted(self, value: Any) -> Any:
        """Convert a value or its text to one that this parameter accepts, or return None."""
        if self.type == "boolean":
            return _BOOLEANS.get(str(value).casefold())
        if self.type in _NUMBERS:
            return self._number(value)
        if self.kind == "unit" and isinstance(value, str):
            value = re.sub(r"^degrees?\s+", "", value)
        if self.schema.choices:
            return self._chosen(str(value))
        if self.kind == "sql" and not (isinstance(value, str) and _SQL_START.match(value)):
            return None
        if self.type == "string":
            if isinstance(value, dict | list):
                return json.dumps(value)
            return str(value)
        return None if isinstance(value, str) else value

    def _chosen(self, word: str) -> str | None:
        """Find the choice that a word means: a choice's whole name, or the beginning of only one."""
        folded = word.casefold().lstrip("°")
        texts = [choice for choice in self.schema.choices if isinstance(choice, str)]
        for choice in texts:
            alike = terms(folded) and terms(folded) == terms(choice)
            if alike or folded == choice.casefold():
                return choice
        starts = [choice for choice in texts if choice.casefold().startswith(folded)]
        is_short = len(folded) <= 2 and not word[:1].isupper() and word[:1] != "°"
        if is_short or len(starts) != 1:
            return None
        return starts[0]

    def _number(self, value: Any) -> int | float | None:
        try:
            if isinstance(value, str):
                value = number(value)
        except (ValueError, OverflowError):
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if self.type == "integer" and value != int(value):
            return None
        least, most = self.schema.number("minimum"), self.schema.number("maximum")
        if least is not None and value < least:
            return None
        if most is not None and value > most:
            return None
        return value


def parameters_of(schema: Mapping[str, Any]) -> list[Parameter]:
    """Parse the parameters in a tool's schema, required ones first."""
    reader = SchemaReader(schema)
    parameters = [
        _parameter(name, part.without_null(), name in reader.required)
        for name, part in reader.properties.items()
    ]
    return sorted(parameters, key=lambda parameter: not parameter.required)


def _parameter(name: str, schema: SchemaReader, required: bool) -> Parameter:
    words = {word.casefold() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
    direction = "target" if words & _TARGET else ""
    if words & _SOURCE:
        direction = "source"
    type_ = _type(schema)
    kind = _kind(words, schema) if type_ in ("string", "array") else ""
    return Parameter(name, required, schema, type_, kind, direction)


def _type(schema: SchemaReader) -> str:
    kinds = (kind for one in (schema, *schema.alternatives()) for kind in one.types)
    return next((kind for kind in kinds if kind != "null"), "string")


def _kind(words: set[str], schema: SchemaReader) -> str:
    description = schema.description[:_MAX_TEXT]
    kinds = [kind for kind, names in _BY_NAME.items() if words & set(names.split())]
    for kind, pattern in _BY_DESCRIPTION.items():
        if re.search(pattern, description):
            kinds.append(kind)
            if kind == "sql":
                # SQL is written in capitals where it is meant; other parameters, such as `query`,
                # are known by their name first.
                kinds.insert(0, kind)
    by_format = _BY_FORMAT.get(schema.text("format"))
    return by_format or next(iter(kinds), "")


class Filling:
    """A tool's arguments, as far as a request contains them, or an earlier call, whose values are
    `known`.

    Attributes:
        missing: Required parameters that the request does not fill.
        chosen: Spans in the request that are a parameter's choices.
        loose: Spans in the request used as plain words, by parameter.
        typed: How many arguments match the parameter's kind, rather than plain words.
    """

    def __init__(
        self,
        text: str,
        mentions: Sequence[Mention],
        parameters: Sequence[Parameter],
        implied: Mapping[str, Any] | None = None,
    ) -> None:
        self.arguments: dict[str, Any] = {}
        self.missing: list[str] = []
        self.loose: dict[str, Span] = {}
        self._text = text
        self._free = list(mentions)
        self._spans: list[Span] = []
        self.chosen: list[Span] = []
        self._fill(parameters, self._named)
        self._pair(parameters)
        self._fill(parameters, self._values)
        names = [
            one for one in parameters if one.kind == "filter" or (one.required and one.kind == "")
        ]
        self._fill(names, self._proper_names)
        self.typed = len(self.arguments)
        self.arguments = {**(implied or {}), **self.arguments}
        # Plain words come last, and only if a call is impossible without them.
        for parameter in parameters:
            lacking = parameter.required and parameter.name not in self.arguments
            if lacking and not self._words(parameter):
                self.missing.append(parameter.name)

    def covers(self, start: int, end: int, *, loosely: bool = False) -> bool:
        """Check whether this span was used as a value, or `loosely` as plain words."""
        spans = [*self._spans, *self.loose.values()] if loosely else self._spans
        return any(start < stop and begin < end for begin, stop in spans)

    def drop(self, name: str) -> None:
        """Remove an argument that is plain words."""
        del self.loose[name], self.arguments[name]
        self.missing.append(name)

    def _fill(
        self,
        parameters: Sequence[Parameter],
        find: Callable[[Parameter], Iterator[tuple[Any, Span]]],
    ) -> None:
        for parameter in parameters:
            if parameter.name in self.arguments:
                continue
            for value, span in find(parameter):
                if self._put(parameter, value, span):
                    break

    def _put(self, parameter: Parameter, value: Any, span: Span) -> bool:
        """Use a span as an argument, if the parameter accepts the value."""
        value = parameter.accepted(value)
        if value is None:
            return False
        self.arguments[parameter.name] = value
        self._spans.append(span)
        if parameter.schema.choices:
            self.chosen.append(span)
        left: list[Mention] = []
        numbers: list[Mention] = []
        for mention in self._free:
            if mention.end <= span[0] or mention.start >= span[1]:
                left.append(mention)
            elif mention.kind == "quantity" and parameter.kind == "unit":
                # Another parameter still needs a unit's number.
                numbers.append(replace(mention, kind="number", unit=""))
        self._free = numbers + left
        return True

    def _named(self, parameter: Parameter) -> Iterator[tuple[Any, Span]]:
        """Yield a value given as `name=value` or `name: value`."""
        spoken = re.escape(parameter.name).replace("_", "[_ ]")
        match = re.search(
            rf"(?<!\w){spoken}\s*(?:=|:(?=\s))\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s,;]*[^\s,;?!]))",
            self._text,
        )
        if match:
            yield match[match.lastindex or 0], match.span()

    def _pair(self, parameters: Sequence[Parameter]) -> None:
        """Use two values for two parameters: from and to, start and end."""
        for source in parameters:
            if source.direction != "source" or source.kinds[0] == "quoted":
                continue
            targets = [
                one for one in parameters if one.direction == "target" and one.kinds == source.kinds
            ]
            if not targets or {source.name, targets[0].name} & self.arguments.keys():
                continue
            ends = self._ends([mention for mention in self._free if mention.kind in source.kinds])
            for parameter, mention in zip((source, targets[0]), ends, strict=True):
                if mention is not None:
                    self._put(parameter, *_value(mention, parameter))

    def _ends(self, mentions: Sequence[Mention]) -> tuple[Mention | None, Mention | None]:
        """Find the mention that is the source, and the one that is the target."""
        times = [mention for mention in self._free if mention.kind == "time"]
        zones = [one for one in mentions if one.kind == "zone"]
        first = next(
            (one for one in mentions if one.kind == "quantity" or one.marker in _FROM_WORDS), None
        )
        if first is None and times and zones:
            # A time's zone is the one beside it.
            first = min(zones, key=lambda zone: min(abs(zone.start - one.end) for one in times))
        others = [mention for mention in mentions if mention is not first]
        # A second quantity is another thing to convert, not the target.
        others = [mention for mention in others if mention.kind != "quantity"] or others
        second = next((mention for mention in others if mention.marker in _TO_WORDS), None)
        if first is None and len(others) > 1:
            first = next(mention for mention in others if mention is not second)
        return first, second or next((mention for mention in others if mention is not first), None)

    def _values(self, parameter: Parameter) -> Iterator[tuple[Any, Span]]:
        """Yield values with the parameter's type and the kind that its name suggests, best
        first.
        """
        if parameter.schema.choices:
            for match in re.finditer(r"[^\W\d_]\w*", self._text):
                if (parameter.required or terms(match[0])) and match.span() not in self.chosen:
                    yield match[0], match.span()
        elif parameter.type == "boolean":
            words_by_term = {word.terms[0]: word for word in content_words(self._text)}
            parts = terms(parameter.name)
            if parts and all(part in words_by_term for part in parts):
                first, last = words_by_term[parts[0]], words_by_term[parts[-1]]
                yield not _NO.search(self._text[: first.start]), (first.start, last.end)
        elif parameter.type == "array":
            yield from self._lists(parameter)
        else:
            kinds = [kind for kind in parameter.kinds if kind != "quoted" or parameter.required]
            for mention in sorted(self._free, key=partial(_place_in, kinds)):
                if parameter.type in _NUMBERS:
                    fits = self._counts(parameter, mention)
                else:
                    fits = mention.kind in kinds
                if fits:
                    yield _value(mention, parameter)
            if parameter.type == "string":
                yield from self._beside_its_name(parameter)

    def _counts(self, parameter: Parameter, mention: Mention) -> bool:
        """Check whether a mention is the number that a parameter needs."""
        if mention.kind == "quantity":
            if mention.unit.casefold() in parameter.name.casefold().split("_"):
                return True
            unit = set(terms(mention.unit))
            described = set(terms(parameter.schema.description[:_MAX_TEXT]))
            return bool(unit) and (unit <= set(terms(parameter.name)) or unit <= described)
        if mention.kind != "number":
            return False
        if parameter.required:
            return True
        if parameter.name in _AMOUNTS and mention.marker not in (*_FROM_WORDS, *_TO_WORDS):
            return True
        beside = self._text[max(0, mention.start - 30) : mention.end + 30]
        spoken = rf"\b{re.escape(parameter.name.replace('_', ' '))}\b"
        return re.search(spoken, beside, re.I) is not None

    def _lists(self, parameter: Parameter) -> Iterator[tuple[Any, Span]]:
        items, least = parameter.schema.items, parameter.schema.number("minItems") or 1
        kinds = parameter.kinds
        if items and _type(items.without_null()) in _NUMBERS:
            kinds = ("number",)
        for mention in self._free:
            value = mention.value
            if mention.kind == "json" and isinstance(value, list) and len(value) >= least:
                yield value, (mention.start, mention.end)
        mentions = [mention for mention in self._free if mention.kind in kinds]
        if parameter.required and len(mentions) >= least:
            yield [one.value for one in mentions], (mentions[0].start, mentions[-1].end)

    def _beside_its_name(self, parameter: Parameter) -> Iterator[tuple[Any, Span]]:
        """Yield the values next to the parameter's name: `the table orders`, `the orders table`,
        `folder notes`.
        """
        names = [parameter.name.replace("_", " ")]
        if parameter.kind == "path":
            names += ["folder", "directory", "file"]
        value = r"([\w][\w.@/-]{0,99})"
        for name in map(re.escape, names):
            for pattern in (
                rf"\b{name}\s+(?:named\s+|called\s+|is\s+)?{value}",
                rf"\b{value}\s{{1,9}}{name}\b",
            ):
                match = re.search(pattern, self._text, re.I)
                if match and (words := terms(match[1])) and words[0] not in _GENERIC:
                    yield match[1], match.span(1)

    def _proper_names(self, parameter: Parameter) -> Iterator[tuple[Any, Span]]:
        """Yield a name that follows a word such as `in`.

        For a filter, also the word before a choice: `the open orders`.
        """
        match = None
        if parameter.type == "string" and not parameter.schema.choices:
            match = _PROPER_NAME.search(self._text)
        if match and not self.covers(*match.span(1)):
            start, end = match.span(1)
            for one in self._free:
                if one.kind == "zone" and one.start == start:
                    end = one.end
                    break
            yield self._text[start:end].strip(), (start, end)
        for start, _ in self.chosen if parameter.kind == "filter" else ():
            if (match := _QUALIFIER.search(self._text[:start])) and content_words(match[1]):
                yield match[1], match.span(1)

    def _words(self, parameter: Parameter) -> bool:
        """Use plain words from the request for a free text. Return whether there are any."""
        orders = OPENS_WITH_VERB.match(self._text)
        if (
            parameter.type != "string"
            or parameter.schema.choices
            or parameter.kind not in ("text", "search")
        ):
            return False
        markers = list(re.finditer(_REST_MARKER if orders else r":\s+", self._text))
        match: re.Match[str] | None = None
        if markers:
            match = markers[-1 if parameter.kind == "search" else 0]
        elif orders:
            match = re.match(r"\W*\w+", self._text)
        if match is None:
            return False
        following = self._text[match.end() :].strip().rstrip(" ?.!")
        start = self._text.find(following, match.end())
        if not following or not content_words(following):
            return False
        if self.covers(start, start + len(following), loosely=True):
            return False
        self.arguments[parameter.name] = following
        self.loose[parameter.name] = (start, start + len(following))
        return True


def _place_in(kinds: Sequence[str], mention: Mention) -> int:
    if mention.kind in kinds:
        return kinds.index(mention.kind)
    return len(kinds)


def _value(mention: Mention, parameter: Parameter) -> tuple[Any, Span]:
    is_unit = mention.kind == "quantity" and parameter.kind == "unit"
    return mention.unit if is_unit else mention.value, (mention.start, mention.end)
