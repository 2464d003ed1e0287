"""Determine what a tool's parameters need from their schema, name and description, and which values they accept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal

from casual_mcp_nb.discovery.text import terms
from casual_mcp_nb.offline.expressions import number
from casual_mcp_nb.offline.mentions import Mention
from casual_mcp_nb.types.schema.reader import SchemaReader

Direction = Literal["source", "target", ""]

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
_SQL_START = re.compile(r"\s*(?:select|insert|update|delete|with|pragma)\b", re.I)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a tool.

    Args:
        name: Its name.
        type: Its JSON type; `string` if unspecified.
        kind: The meaning of a string: a kind of mention, `text`, `search`, or empty if unknown.
        required: Whether it is required.
        direction: Whether it is a source or a destination.
        options: The allowed values; empty for any.
        item_type: The type of an array's items.
        described: The terms of its description.
        min_items: Minimum number of items of an array.
        minimum: The smallest allowed number; None for any.
        maximum: The largest allowed number; None for any.
    """

    name: str
    type: str
    kind: str
    required: bool
    direction: Direction
    options: tuple[Any, ...] = ()
    item_type: str = ""
    described: frozenset[str] = frozenset()
    min_items: int = 1
    minimum: float | None = None
    maximum: float | None = None

    def value_of(self, mention: Mention) -> Any:
        """Convert a mention to a value of this parameter, or None if that is impossible."""
        if self.type in ("number", "integer"):
            return self.allowed(mention.value)
        value = mention.unit if mention.kind == "quantity" else mention.value
        if self.kind == "unit" and isinstance(value, str):
            value = re.sub(r"^degrees?\s+", "", value)
        if self.options:
            return matching_option(str(value), self.options)
        if self.kind == "sql" and mention.kind == "quoted" and not _SQL_START.match(value):
            return None
        if self.type != "string":
            return value
        return json.dumps(value) if isinstance(value, dict | list) else str(value)

    def allowed(self, value: Any) -> int | float | None:
        """Return a number if this parameter allows it; None for any other value."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if (self.type == "integer" and value != int(value)) or (self.minimum is not None and value < self.minimum):
            return None
        return None if self.maximum is not None and value > self.maximum else value

    def cast(self, text: str) -> Any:
        """Convert a text given for this parameter by name to its type; None if that is impossible."""
        text = text.rstrip("?!") if len(text) > 1 else text
        if self.type == "boolean":
            return {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.get(text.casefold())
        if self.type in ("number", "integer"):
            try:
                return self.allowed(number(text))
            except (ValueError, OverflowError):
                return None
        if self.options:
            return matching_option(text, self.options)
        return text if self.type == "string" else None


def matching_option(word: str, options: Iterable[Any]) -> Any:
    """Return the option that a word means: the same word, its plural, or a clear prefix; None if there is none."""
    folded = word.casefold().lstrip("°")
    texts = [option for option in options if isinstance(option, str)]
    for option in texts:
        if folded == option.casefold() or (terms(folded) and terms(folded) == terms(option)):
            return option
    starts = [option for option in texts if option.casefold().startswith(folded)]
    return starts[0] if len(starts) == 1 and (len(folded) > 2 or word[:1].isupper() or word[:1] == "°") else None


def parameters_of(schema: Mapping[str, Any]) -> list[Parameter]:
    """Return the parameters in a tool's schema, required ones first."""
    reader = SchemaReader(schema)
    parameters = [_parameter(name, part.without_null(), name in reader.required) for name, part in reader.properties.items()]
    return sorted(parameters, key=lambda parameter: not parameter.required)


def _parameter(name: str, part: SchemaReader, required: bool) -> Parameter:
    kind = _type(part)
    words = {word.casefold() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
    items = part.items
    return Parameter(
        name=name,
        type=kind,
        kind=_kind(words, part) if kind in ("string", "array") else "",
        required=required,
        direction="source" if words & _SOURCE else "target" if words & _TARGET else "",
        options=part.choices,
        item_type=_type(items.without_null()) if items else "",
        described=frozenset(terms(part.description[:_MAX_TEXT])),
        min_items=int(part.number("minItems") or 1),
        minimum=part.number("minimum"),
        maximum=part.number("maximum"),
    )


def _type(part: SchemaReader) -> str:
    kinds = (kind for one in (part, *part.alternatives()) for kind in one.types)
    return next((kind for kind in kinds if kind != "null"), "string")


def _kind(words: Set[str], part: SchemaReader) -> str:
    description = part.description[:_MAX_TEXT]
    if part.text("format") in _BY_FORMAT:
        return _BY_FORMAT[part.text("format")]
    if re.search(_BY_DESCRIPTION["sql"], description):
        return "sql"
    by_name = (kind for kind, names in _BY_NAME.items() if words & set(names.split()))
    by_description = (kind for kind, pattern in _BY_DESCRIPTION.items() if re.search(pattern, description, re.I))
    return next(by_name, next(by_description, ""))
