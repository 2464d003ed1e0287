"""Fill a tool's arguments from a request, by what the tool's schema says about its parameters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from casual_mcp_nb.discovery.text import terms
from casual_mcp_nb.offline.expressions import number
from casual_mcp_nb.offline.mentions import Mention
from casual_mcp_nb.offline.needs import OPENS_WITH_VERB, content_words
from casual_mcp_nb.types.schema.reader import SchemaReader

_MAX_TEXT = 2_000
_SOURCE = {"from", "source", "src", "start", "old", "origin", "min", "minimum", "low", "first", "begin", "since", "before"}
_TARGET = {"to", "target", "dest", "destination", "end", "new", "max", "maximum", "high", "until", "into", "after"}
# What a string parameter needs, by a word in its name; else, for meaningless names, by its description.
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
    "text": "text content contents body message html markdown string input prompt note comment sentence thought value",
    "number": "number amount",
    "filter": "filter",
    "search": "query search keyword keywords term terms question topic q",
}
_BY_DESCRIPTION = {
    "sql": r"\bSQL\b|\bSELECT\b",
    "zone": r"time ?zone|IANA",
    "url": r"\bURL\b|web address",
    "email": r"e-?mail address",
    "date": r"\bdates?\b|ISO 8601",
    "path": r"\b(?:path|file ?name)\b",
}
_BY_FORMAT = {"date": "date", "date-time": "date", "time": "time", "email": "email", "uri": "url", "url": "url"}
# Kinds of mention that can fill each kind of parameter, best first; others only take one of their own kind.
_ACCEPTED = {
    "unit": ("quantity", "unit"),
    "path": ("path", "quoted"),
    "sql": ("sql", "quoted"),
    "date": ("date", "time"),
    "time": ("time", "date"),
    "text": ("quoted", "json", "encoded"),
    "search": ("quoted",),
    "filter": ("quoted",),
    "number": ("quoted", "number"),
    "": ("quoted",),
}
_SQL_START = re.compile(r"\s*(?:select|insert|update|delete|with|pragma)\b", re.I)
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_FROM_WORDS = ("from", "between", "of", "since")
_TO_WORDS = ("to", "into", "in", "as", "until", "and")
_REST_MARKER = re.compile(r":\s+|\b(?:of|in|that|saying|says|for|about|matching|containing)\s+", re.I)
_COLON = re.compile(r":\s+")
_NO = re.compile(r"\b(?:no|not|without|don't|never)\b\W+(?:\w+\W+)?$", re.I)
_PROPER_NAME = re.compile(r"\b(?:in|for|of|at|about|called|named)\s+((?:[A-Z][\w'\u2019-]*\s?)+)")
_AMOUNTS = ("count", "limit", "n", "k", "top", "max_results", "max_count")
_GENERIC = frozenset(terms("available content current describe different every list name new read same working"))


class Parameter(NamedTuple):
    """A parameter of a tool.

    Args:
        name: Its name.
        required: Whether it is required.
        schema: Its schema, without null.
        type: Its JSON type; `string` if unspecified.
        kind: The meaning of a string: a kind of mention, `text`, `search`, or empty if unknown.
        direction: Whether it is a `source` or a `target`; else empty.
    """

    name: str
    required: bool
    schema: SchemaReader
    type: str
    kind: str
    direction: str

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of mention that can fill it, best first."""
        if self.type in ("number", "integer"):
            return ("base",) if "base" in self.name else ("number",)
        return _ACCEPTED.get(self.kind, (self.kind,))

    def accepted(self, value: Any) -> Any:
        """Return a value, or the text of one, as this parameter takes it; None if that is impossible."""
        if self.type == "boolean":
            return _BOOLEANS.get(str(value).casefold())
        if self.type in ("number", "integer"):
            return self._number(value)
        if self.kind == "unit" and isinstance(value, str):
            value = re.sub(r"^degrees?\s+", "", value)
        if self.schema.choices:
            return matching_option(str(value), self.schema.choices)
        if self.kind == "sql" and not (isinstance(value, str) and _SQL_START.match(value)):
            return None
        if self.type == "string":
            return json.dumps(value) if isinstance(value, dict | list) else str(value)
        return None if isinstance(value, str) else value

    def _number(self, value: Any) -> int | float | None:
        try:
            value = number(value) if isinstance(value, str) else value
        except (ValueError, OverflowError):
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or (self.type == "integer" and value != int(value)):
            return None
        least, most = self.schema.number("minimum"), self.schema.number("maximum")
        return None if (least is not None and value < least) or (most is not None and value > most) else value


def parameters_of(schema: Mapping[str, Any]) -> list[Parameter]:
    """Return the parameters in a tool's schema, required ones first."""
    reader = SchemaReader(schema)
    parameters = [_parameter(name, part.without_null(), name in reader.required) for name, part in reader.properties.items()]
    return sorted(parameters, key=lambda parameter: not parameter.required)


def _parameter(name: str, schema: SchemaReader, required: bool) -> Parameter:
    words = {word.casefold() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
    kind, direction = _type(schema), "source" if words & _SOURCE else "target" if words & _TARGET else ""
    return Parameter(name, required, schema, kind, _kind(words, schema) if kind in ("string", "array") else "", direction)


def _type(schema: SchemaReader) -> str:
    kinds = (kind for one in (schema, *schema.alternatives()) for kind in one.types)
    return next((kind for kind in kinds if kind != "null"), "string")


def _kind(words: set[str], schema: SchemaReader) -> str:
    description = schema.description[:_MAX_TEXT]
    by_name = [kind for kind, names in _BY_NAME.items() if words & set(names.split())]
    by_description = [kind for kind, pattern in _BY_DESCRIPTION.items() if re.search(pattern, description, re.I)]
    is_sql = ["sql"] if re.search(_BY_DESCRIPTION["sql"], description) else []
    by_format = [_BY_FORMAT[schema.text("format")]] if schema.text("format") in _BY_FORMAT else []
    return next(iter([*by_format, *is_sql, *by_name, *by_description]), "")


def matching_option(word: str, options: Iterable[Any]) -> Any:
    """Return the option that a word means: the same word, its plural, or a clear prefix; None if there is none."""
    folded = word.casefold().lstrip("°")
    texts = [option for option in options if isinstance(option, str)]
    for option in texts:
        if folded == option.casefold() or (terms(folded) and terms(folded) == terms(option)):
            return option
    starts = [option for option in texts if option.casefold().startswith(folded)]
    return starts[0] if len(starts) == 1 and (len(folded) > 2 or word[:1].isupper() or word[:1] == "°") else None


class Filling:
    """A tool's arguments as far as a request contains them; created by `fill`.

    Attributes:
        arguments: The arguments.
        missing: Required parameters that the request does not fill.
        loose: Spans of the request used as plain words, by parameter.
        typed: How many arguments are values of the parameter's kind, not plain words.
    """

    def __init__(self, text: str, mentions: Sequence[Mention]) -> None:
        self.arguments: dict[str, Any] = {}
        self.missing: list[str] = []
        self.loose: dict[str, tuple[int, int]] = {}
        self.typed = 0
        self._text = text
        self._free = list(mentions)
        self._spans: list[tuple[int, int]] = []

    def covers(self, start: int, end: int, *, loosely: bool = False) -> bool:
        """Return whether this span of the request was used as a value, or `loosely` as plain words."""
        return any(start < stop and begin < end for begin, stop in [*self._spans, *(self.loose.values() if loosely else ())])

    def drop(self, name: str) -> None:
        """Remove an argument of plain words."""
        del self.loose[name], self.arguments[name]
        self.missing.append(name)

    def _put(self, parameter: Parameter, value: Any, span: tuple[int, int]) -> bool:
        """Use a span of the request as an argument, if there is a value."""
        if value is None:
            return False
        self.arguments[parameter.name] = value
        self._spans.append(span)
        self.typed += 1
        self._free = [mention for mention in self._free if mention.end <= span[0] or mention.start >= span[1]]
        return True

    def _take(self, parameter: Parameter, mention: Mention) -> bool:
        is_unit = mention.kind == "quantity" and parameter.kind == "unit"
        value = parameter.accepted(mention.unit if is_unit else mention.value)
        taken = self._put(parameter, value, (mention.start, mention.end))
        if taken and is_unit:
            # Another parameter still needs its number.
            self._free.insert(0, replace(mention, kind="number", unit=""))
        return taken

    def by_name(self, parameter: Parameter) -> None:
        """Use a value given as `name=value` or `name: value`."""
        spoken = re.escape(parameter.name).replace("_", "[_ ]")
        match = re.search(rf"(?<!\w){spoken}\s*(?:=|:(?=\s))\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s,;]*[^\s,;?!]))", self._text)
        if match:
            self._put(parameter, parameter.accepted(match[match.lastindex or 0]), match.span())

    def pair(self, source: Parameter, target: Parameter) -> None:
        """Use two values: from and to, start and end."""
        mentions = [mention for mention in self._free if mention.kind in source.kinds]
        times = [mention for mention in self._free if mention.kind == "time"]
        zones = [(abs(one.start - time.end), one) for one in mentions if one.kind == "zone" for time in times]
        first = next((one for one in mentions if one.kind == "quantity" or one.marker in _FROM_WORDS), None)
        # The zone of a time is the one beside it.
        first = first or min(zones, key=lambda zone: zone[0], default=(0, None))[1]
        others = [mention for mention in mentions if mention is not first]
        # A second quantity is another thing to convert, not the target.
        others = [mention for mention in others if mention.kind != "quantity"] or others
        second = next((mention for mention in others if mention.marker in _TO_WORDS), None)
        if first is None and len(others) > 1:
            first = next(mention for mention in others if mention is not second)
        second = second or next((mention for mention in others if mention is not first), None)
        for parameter, mention in ((source, first), (target, second)):
            if mention is not None:
                self._take(parameter, mention)

    def by_kind(self, parameter: Parameter) -> None:
        """Use a value of the parameter's type, and of the kind that its name suggests."""
        if parameter.schema.choices:
            self._option(parameter)
        elif parameter.type == "boolean":
            self._boolean(parameter)
        elif parameter.type in ("number", "integer"):
            self._number(parameter)
        elif parameter.type == "array":
            self._array(parameter)
        elif parameter.type == "object":
            self._first(parameter, ("json",))
        elif not (parameter.required or parameter.kind) or not self._first(parameter, parameter.kinds):
            self._beside_its_name(parameter)

    def _first(self, parameter: Parameter, kinds: Sequence[str]) -> bool:
        kinds = [kind for kind in kinds if kind != "quoted" or parameter.required]
        return any(mention.kind == kind and self._take(parameter, mention) for kind in kinds for mention in self._free)

    def _option(self, parameter: Parameter) -> None:
        for match in re.finditer(r"[^\W\d_]\w*", self._text):
            option = matching_option(match[0], parameter.schema.choices) if parameter.required or terms(match[0]) else None
            if self._put(parameter, option, match.span()):
                return

    def _boolean(self, parameter: Parameter) -> None:
        words = {word.terms[0]: word for word in content_words(self._text)}
        parts = terms(parameter.name)
        if parts and all(part in words for part in parts):
            first, last = words[parts[0]], words[parts[-1]]
            self._put(parameter, _NO.search(self._text[: first.start]) is None, (first.start, last.end))

    def _number(self, parameter: Parameter) -> None:
        spoken = re.compile(rf"\b{re.escape(parameter.name.replace('_', ' '))}\b", re.I)
        for mention in self._free:
            unit = set(terms(mention.unit))
            wanted = unit and (
                unit <= set(terms(parameter.name)) or unit <= set(terms(parameter.schema.description[:_MAX_TEXT]))
            )
            if mention.kind == "number":
                amount = parameter.name in _AMOUNTS and mention.marker not in (*_FROM_WORDS, *_TO_WORDS)
                beside = self._text[max(0, mention.start - 30) : mention.end + 30]
                wanted = amount or parameter.required or spoken.search(beside) is not None
            if wanted and self._take(parameter, mention):
                return

    def _array(self, parameter: Parameter) -> None:
        items = parameter.schema.items
        kinds = ("number",) if items and _type(items.without_null()) in ("number", "integer") else parameter.kinds
        mentions = [mention for mention in self._free if mention.kind in kinds] if parameter.required else []
        lists = [one for one in self._free if one.kind == "json" and isinstance(one.value, list)]
        values = lists[0].value if lists else [one.value for one in mentions]
        if values and len(values) >= int(parameter.schema.number("minItems") or 1):
            for mention in lists[:1] or mentions:
                self._put(parameter, values, (mention.start, mention.end))

    def _beside_its_name(self, parameter: Parameter) -> None:
        """Use a value next to the parameter's name: `the table orders`, `the orders table`, `folder notes`."""
        names = [parameter.name.replace("_", " ")] + (["folder", "directory", "file"] if parameter.kind == "path" else [])
        value = r"([\w][\w.@/-]{0,99})"
        for name in map(re.escape, names):
            for pattern in (rf"\b{name}\s+(?:named\s+|called\s+|is\s+)?{value}", rf"\b{value}\s{{1,9}}{name}\b"):
                match = re.search(pattern, self._text, re.I)
                if match and (words := terms(match[1])) and words[0] not in _GENERIC:
                    self._put(parameter, match[1], match.span(1))
                    return

    def words(self, parameter: Parameter) -> bool:
        """Use plain words of the request for a free text; return whether there are any."""
        if parameter.type != "string" or parameter.schema.choices or parameter.kind not in ("text", "search", ""):
            return False
        if parameter.kind == "":
            return self.proper_name(parameter)
        orders = OPENS_WITH_VERB.match(self._text)
        markers = list((_REST_MARKER if orders else _COLON).finditer(self._text))
        if not markers and not orders:
            return False
        first_word = re.match(r"\W*\w+", self._text)
        match = markers[-1 if parameter.kind == "search" else 0] if markers else first_word
        following = self._text[match.end() :].strip().rstrip(" ?.!") if match else ""
        start = self._text.find(following, match.end()) if match else 0
        if not following or self.covers(start, start + len(following), loosely=True) or not content_words(following):
            return False
        self.arguments[parameter.name] = following
        self.loose[parameter.name] = (start, start + len(following))
        return True

    def proper_name(self, parameter: Parameter) -> bool:
        """Use a name that follows a word such as `in`; return whether there is one."""
        match = _PROPER_NAME.search(self._text)
        if match is None or self.covers(*match.span(1)):
            return False
        end = next((one.end for one in self._free if one.kind == "zone" and one.start == match.start(1)), match.end(1))
        return self._put(parameter, self._text[match.start(1) : end].strip(), (match.start(1), end))


def fill(
    text: str, mentions: Sequence[Mention], parameters: Sequence[Parameter], known: Mapping[str, Any] | None = None
) -> Filling:
    """Fill a tool's arguments; optional ones only if the request mentions them.

    Args:
        text: The request.
        mentions: The values in it.
        parameters: The tool's parameters, required ones first.
        known: Arguments of an earlier call, for those missing from the request.
    """
    filling = Filling(text, mentions)
    for parameter in parameters:
        filling.by_name(parameter)
    for source in _open(parameters, filling):
        ends = (one for one in _open(parameters, filling) if one.direction == "target" and one.kinds == source.kinds)
        if source.direction == "source" and source.kinds[0] != "quoted" and (target := next(ends, None)):
            filling.pair(source, target)
    for parameter in _open(parameters, filling):
        filling.by_kind(parameter)
    filling.arguments = {**(known or {}), **filling.arguments}
    for parameter in _open(parameters, filling):
        # Plain words come last, and only if a call is impossible without them.
        if parameter.required and not filling.words(parameter):
            filling.missing.append(parameter.name)
        elif parameter.kind == "filter":
            filling.proper_name(parameter)
    return filling


def _open(parameters: Sequence[Parameter], filling: Filling) -> list[Parameter]:
    return [parameter for parameter in parameters if parameter.name not in filling.arguments]
