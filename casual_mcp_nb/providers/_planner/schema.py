"""What a parameter wants, as far as its schema, its name and its description tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from casual_mcp_nb.providers._planner.words import content_words, words_of

Direction = Literal["source", "target", ""]

# A schema comes from a server: its nesting, its unions and its texts are followed only so far.
_DEPTH, _MEMBERS, _OPTIONS, _TEXT = 4, 6, 200, 2_000
_SOURCE = frozenset(words_of("from source src start old origin min minimum low first begin since"))
_TARGET = frozenset(words_of("to target dest destination end new max maximum high until into"))
# What a text parameter wants, by a word of its name; then, for names that say nothing, by its description.
_BY_NAME = (
    ("zone", "timezone tz zone timezones"),
    ("unit", "unit units"),
    ("expression", "expression formula equation expr"),
    ("url", "url uri link href website webpage"),
    ("email", "email mail recipient recipients"),
    ("glob", "glob pattern"),
    ("path", "path file filename filepath folder directory dir source destination root"),
    ("sql", "sql statement"),
    ("date", "date day datetime moment deadline birthday"),
    ("time", "time clock hour"),
    (
        "text",
        "text content contents body message html markdown string input prompt note comment sentence thought value",
    ),
    ("number", "number amount"),
    ("search", "query search keyword keywords term terms question topic q"),
)
_BY_DESCRIPTION = (
    ("sql", r"\bSQL\b|\bSELECT\b"),
    ("zone", r"time ?zone|IANA"),
    ("url", r"\bURL\b|web address"),
    ("email", r"e-?mail address"),
    ("date", r"\bdates?\b|ISO 8601"),
    ("path", r"\b(?:path|file ?name)\b"),
)
_BY_FORMAT = {"date": "date", "date-time": "date", "time": "time", "email": "email", "uri": "url", "url": "url"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a tool.

    Args:
        name: Its name.
        type: Its JSON type; `string` where the schema does not say.
        kind: What a text is meant to be: a kind of mention, `text`, `search`, or empty where nothing tells.
        required: Whether a call needs it.
        direction: Whether it is where something comes from or goes to.
        options: The values that it may have; empty for any.
        item_type: The type of an array's items.
        stems: The stems of the words in its description.
        least: How many items an array has at least.
        lowest: The smallest number that it may be; None for any.
        highest: The largest number that it may be; None for any.
    """

    name: str
    type: str
    kind: str
    required: bool
    direction: Direction
    options: tuple[Any, ...] = ()
    item_type: str = ""
    stems: tuple[str, ...] = ()
    least: int = 1
    lowest: float | None = None
    highest: float | None = None

    def allows(self, value: float) -> bool:
        """Whether a number is within the limits."""
        return (self.lowest is None or value >= self.lowest) and (self.highest is None or value <= self.highest)


def parameters_of(schema: Mapping[str, Any]) -> list[Parameter]:
    """The parameters of a tool's schema, those that are required first."""
    properties = schema.get("properties")
    required = schema.get("required")
    names = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    if not isinstance(properties, Mapping):
        return []
    found = [_parameter(str(name), value, name in names, schema) for name, value in properties.items()]
    return sorted(found, key=lambda parameter: not parameter.required)


def _parameter(name: str, value: Any, required: bool, root: Mapping[str, Any]) -> Parameter:
    schema = _resolved(value, root)
    options = schema.get("enum") or ([schema["const"]] if "const" in schema else [])
    items = _resolved(schema.get("items"), root)
    kind = _type(schema)
    least = schema.get("minItems", 1)
    return Parameter(
        name=name,
        type=kind,
        kind=_kind(name, schema) if kind == "string" or kind == "array" else "",
        required=required,
        direction=_direction(name),
        options=tuple(options[:_OPTIONS]) if isinstance(options, list) else (),
        item_type=_type(items) if kind == "array" else "",
        stems=tuple(word.stem for word in content_words(_description(schema))),
        least=least if isinstance(least, int) else 1,
        lowest=_limit(schema.get("minimum")),
        highest=_limit(schema.get("maximum")),
    )


def _description(schema: Mapping[str, Any]) -> str:
    return str(schema.get("description") or "")[:_TEXT]


def _limit(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None


def _resolved(value: Any, root: Mapping[str, Any], depth: int = 0) -> Mapping[str, Any]:
    """The schema behind references, and the first member of a union that is not null."""
    if not isinstance(value, Mapping) or depth > _DEPTH:
        return {}
    pointer = value.get("$ref")
    if isinstance(pointer, str) and pointer.startswith("#/"):
        target: Any = root
        for part in pointer[2:].split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        return {**_resolved(target, root, depth + 1), **{key: item for key, item in value.items() if key != "$ref"}}
    for union in ("anyOf", "oneOf", "allOf"):
        members = value.get(union)
        for member in members[:_MEMBERS] if isinstance(members, list) else ():
            found = _resolved(member, root, depth + 1)
            if found and found.get("type") != "null":
                return {**found, **{key: item for key, item in value.items() if key != union}}
    return value


def _type(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), None)
    return kind if isinstance(kind, str) else "string"


def _kind(name: str, schema: Mapping[str, Any]) -> str:
    description = _description(schema)
    by_format = _BY_FORMAT.get(str(schema.get("format")))
    if by_format:
        return by_format
    words = {part.casefold() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}
    if re.search(_BY_DESCRIPTION[0][1], description):
        return "sql"
    for kind, names in _BY_NAME:
        if words & set(names.split()):
            return "zone" if kind == "time" and "zone" in words else kind
    return next((kind for kind, pattern in _BY_DESCRIPTION if re.search(pattern, description, re.I)), "")


def _direction(name: str) -> Direction:
    words = [part.casefold() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)]
    if _SOURCE.intersection(words):
        return "source"
    return "target" if _TARGET.intersection(words) else ""
