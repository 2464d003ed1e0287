"""Mend what JSON Schema's own meta-schema refuses, where the author's meaning is clear.

Servers are written by hand, and a schema that validates nothing passes unnoticed until a provider
refuses a whole request for it: `"type": "int"`, `required: true` in a property, `properties: []`
from PHP, `exclusiveMinimum: true` from draft 4. See https://json-schema.org/draft/2020-12/schema.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

from casual_mcp_nb.base.iterables import kept, of_type
from casual_mcp_nb.base.schema import LIST_KEYWORDS, MAP_KEYWORDS, SCHEMA_KEYWORDS, Schema

MAX_CHANGES = 20
"""How many changes to one schema are described."""
MAX_PATTERN = 1_000
"""Longer patterns are described in words."""
_MAX_TEXT = 200
_DEEPEST = 150

_TEXTS = frozenset(
    {
        "title",
        "description",
        "$comment",
        "format",
        "pattern",
        "contentEncoding",
        "contentMediaType",
        "$schema",
        "$id",
        "$ref",
        "$anchor",
        "$dynamicRef",
        "$dynamicAnchor",
    }
)
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_COUNTS = frozenset(
    {
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minContains",
        "maxContains",
    }
)
_FLAGS = frozenset({"uniqueItems", "readOnly", "writeOnly", "deprecated"})
_OTHERS = frozenset({"type", "required", "enum", "const", "default", "examples"})
_KEYWORDS = (_TEXTS | _NUMBERS | _COUNTS | _FLAGS | _OTHERS).union(
    MAP_KEYWORDS, LIST_KEYWORDS, SCHEMA_KEYWORDS
)
_ANCHOR = re.compile(r"[A-Za-z_][-A-Za-z0-9._]*")
_IDENTIFIERS = {"$id": re.compile(r"[^#]*#?"), "$anchor": _ANCHOR, "$dynamicAnchor": _ANCHOR}
TYPES = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
_TYPE_WORDS = {
    **{name: name for name in TYPES},
    **dict.fromkeys(("int", "int32", "int64", "long", "short", "uint"), "integer"),
    **dict.fromkeys(("float", "double", "decimal", "numeric", "num"), "number"),
    **dict.fromkeys(
        ("str", "text", "char", "uuid", "url", "uri", "date", "datetime", "date-time", "email"),
        "string",
    ),
    **dict.fromkeys(("bool",), "boolean"),
    **dict.fromkeys(("list", "tuple", "set"), "array"),
    **dict.fromkeys(("dict", "map", "struct", "json"), "object"),
}
_NO_TYPE = frozenset({"", "any", "none", "unknown", "mixed", "undefined"})

_PLAIN_WORDS = frozenset({"type", "description", "title", "default"})
_PLAIN_TYPES = TYPES - {"array", "object"}


def is_plain(schema: Any) -> bool:
    """Check whether a schema has nothing but a plain type and texts, as most have, so that nothing
    has to be done.
    """
    return (
        type(schema) is dict
        and schema.keys() <= _PLAIN_WORDS
        and type(kind := schema.get("type")) is str
        and kind in _PLAIN_TYPES
        and type(schema.get("description", "")) is str
        and type(schema.get("title", "")) is str
    )


class _Place(NamedTuple):
    """A keyword's place.

    Args:
        word: The keyword.
        path: Where it is.
        schema: The schema that has it.
        depth: How deep that is.
        changed: Gets the schema's other keywords that have to change.
        lifted: Gets the names of properties that say that they are required.
    """

    word: str
    path: str
    schema: Schema
    depth: int
    changed: dict[str, Any]
    lifted: list[str]


class Mender:
    """Mends one schema. The result is the same object where nothing had to be changed.

    Attributes:
        changes: What was changed, in words.
    """

    def __init__(self) -> None:
        self.changes: list[str] = []

    def mend(self, schema: Schema) -> Schema:
        """Mend an object schema."""
        mended, _ = self._schema(schema, "", 0)
        return mended if isinstance(mended, Mapping) else {}

    def _note(self, path: str, text: str) -> None:
        if len(self.changes) < MAX_CHANGES:
            self.changes.append(f"{path}: {text}"[:_MAX_TEXT] if path else text[:_MAX_TEXT])

    def _drop(self, path: str, why: str) -> Any:
        self._note(path, f"{why}: left out")
        return _DROP

    def _wrong(self, value: Any, at: _Place, why: str) -> Any:
        """Leave out a keyword whose value is wrong."""
        return self._drop(at.path, f"{_start(value)} {why}")

    def _schema(self, schema: Any, path: str, depth: int) -> tuple[Any, bool]:
        """Mend a schema, and tell whether a property with it said that it is required."""
        if isinstance(schema, bool) or depth > _DEEPEST:
            return schema, False
        if not isinstance(schema, Mapping):
            return self._not_a_schema(schema, path), False
        changed: dict[str, Any] = {}
        dropped: set[str] = set()
        lifted: list[str] = []
        required = False
        for word, value in schema.items():
            if (
                word == "required"
                and isinstance(value, bool | str)
                and not isinstance(schema.get("properties"), Mapping)
            ):
                required = value is True or value == "true"
                self._note(path, f"required: {value!r} belongs to the object around it")
                dropped.add(word)
            elif word in _MENDED_BY:
                here = f"{path}.{word}" if path else word
                at = _Place(word, here, schema, depth, changed, lifted)
                new = _MENDED_BY[word](self, value, at)
                if new is _DROP:
                    dropped.add(word)
                elif new is not value:
                    changed[word] = new
        if lifted:
            listed = changed.get("required", schema.get("required"))
            given = listed if isinstance(listed, list) and "required" not in dropped else []
            dropped.discard("required")
            changed["required"] = list(dict.fromkeys([*given, *lifted]))
        if not changed and not dropped:
            return schema, required
        others = {word: value for word, value in schema.items() if word not in dropped}
        return others | changed, required

    def _not_a_schema(self, value: Any, path: str) -> Any:
        if isinstance(value, str) and (kind := _TYPE_WORDS.get(value.lower())):
            self._note(path, f"{value!r} is written as a type")
            return {"type": kind}
        self._note(path, "is not a schema, so any value is accepted")
        return {}

    def _map(self, value: Any, at: _Place) -> Any:
        """Mend the schemas in an object."""
        if not isinstance(value, Mapping):
            if value in ([], None, ""):
                self._note(at.path, f"{value!r} is written {{}}")
                return {}
            return self._drop(at.path, "is no object")
        parts: dict[str, Any] = {}
        for name, part in value.items():
            here = f"{at.path}.{name}"
            if is_plain(part):
                parts[name] = part
            elif at.word == "properties" and name in _KEYWORDS and _is_misplaced(part):
                # It is one level too deep.
                self._note(here, "is a keyword and not a property: left out")
                if name == "required" and isinstance(part, list):
                    at.lifted.extend(of_type(part, str))
            else:
                parts[name], required = self._schema(part, here, at.depth + 1)
                if required and at.word == "properties":
                    at.lifted.append(name)
        return kept(value, parts)

    def _part(self, value: Any, at: _Place) -> Any:
        if isinstance(value, list) and at.word == "items" and value:
            self._note(at.path, "a list is written prefixItems")
            at.changed["prefixItems"] = self._list(value, at)
            return _DROP
        if value is None or (isinstance(value, str) and value.lower() in ("true", "false")):
            return self._drop(at.path, f"{value!r} is not a schema")
        return self._schema(value, at.path, at.depth + 1)[0]

    def _list(self, value: Any, at: _Place) -> Any:
        if isinstance(value, Mapping):
            self._note(at.path, "is written as a list")
            value = [value]
        if not isinstance(value, list) or not value:
            return self._drop(at.path, "is not a list with schemas")
        parts = []
        for number, part in enumerate(value):
            parts.append(self._schema(part, f"{at.path}[{number}]", at.depth + 1)[0])
        return kept(value, parts)

    def _of_objects(self, value: Any, at: _Place) -> Any:
        """Mend the rarer keywords, which say what one property means for the others."""
        if not isinstance(value, Mapping):
            return self._unread(value, at)
        read: dict[str, Any] = {}
        for name, part in value.items():
            here = at._replace(path=f"{at.path}.{name}")
            if isinstance(part, list):
                read[name] = self._names(part, here)
            elif at.word == "dependencies" and isinstance(part, Mapping | bool):
                read[name] = self._schema(part, here.path, at.depth + 1)[0]
            else:
                self._drop(here.path, "is not a list of names")
        return kept(value, read)

    def _unread(self, value: Any, at: _Place) -> Any:
        return self._drop(at.path, "is not read by any provider")

    def _flag(self, value: Any, at: _Place) -> Any:
        if isinstance(value, bool):
            return value
        return self._wrong(value, at, "is neither true nor false")

    def _examples(self, value: Any, at: _Place) -> Any:
        return value if isinstance(value, list) else self._drop(at.path, "is not a list")

    def _type(self, value: Any, at: _Place) -> Any:
        if isinstance(value, str):
            kind = _TYPE_WORDS.get(value.lower())
            if kind is None:
                return self._wrong(value, at, "is no type")
            if kind == value:
                # This very text, so that nothing counts as changed.
                return value
            self._note(at.path, f"{_start(value)} is written {kind!r}")
            return kind
        if not isinstance(value, list | tuple):
            return self._wrong(value, at, "is no type")
        texts = of_type(value, str)
        known = filter(None, (_TYPE_WORDS.get(each.lower()) for each in texts))
        kinds = list(dict.fromkeys(known))
        if kinds == value and kinds:
            return value
        if not kinds or any(each.lower() in _NO_TYPE for each in texts):
            return self._wrong(value, at, "has no types")
        self._note(at.path, f"{_start(value)} is written {kinds}")
        return kinds

    def _required(self, value: Any, at: _Place) -> Any:
        properties = at.schema.get("properties")
        if isinstance(value, str) and isinstance(properties, Mapping) and value in properties:
            self._note(at.path, "is written as a list")
            return [value]
        return self._names(value, at)

    def _names(self, value: Any, at: _Place) -> Any:
        if not isinstance(value, list | tuple):
            return self._wrong(value, at, "is not a list of names")
        names = list(dict.fromkeys(of_type(value, str)))
        if names == value:
            return value
        self._note(at.path, "names each property once")
        return names

    def _enum(self, value: Any, at: _Place) -> Any:
        if not isinstance(value, list | tuple) or not value:
            return self._wrong(value, at, "is not a list of values")
        # By type too, because 1 and true are equal in Python.
        different: dict[str, Any] = {}
        for each in value:
            different.setdefault(f"{type(each).__name__}{each!r}", each)
        if len(different) == len(value):
            return value
        self._note(at.path, "has each value once")
        return list(different.values())

    def _text(self, value: Any, at: _Place) -> Any:
        if not isinstance(value, str):
            return self._wrong(value, at, "is no text")
        if at.word in _IDENTIFIERS and not _IDENTIFIERS[at.word].fullmatch(value):
            return self._wrong(value, at, "is no identifier")
        if at.word == "pattern" and not compiles(value):
            description = at.changed.get("description", at.schema.get("description"))
            at.changed["description"] = described(description, pattern_words(value))
            return self._wrong(value, at, "is no regular expression")
        return value

    def _number(self, value: Any, at: _Place) -> Any:
        if isinstance(value, bool):
            return self._exclusive(value, at)
        number = value
        if isinstance(value, str):
            with suppress(ValueError):
                number = float(value)
            if number == number and isinstance(number, float) and abs(number) < 2**53:
                number = int(number) if number.is_integer() else number
        if not isinstance(number, int | float) or number != number or abs(number) == float("inf"):
            return self._wrong(value, at, "is not a number")
        if at.word in _COUNTS and (number < 0 or number != int(number)):
            return self._wrong(value, at, "is not a number of characters or items")
        if at.word == "multipleOf" and number <= 0:
            return self._wrong(value, at, "is not greater than 0")
        if number is not value:
            self._note(at.path, f"{_start(value)} is written as a number")
        return number

    def _exclusive(self, value: bool, at: _Place) -> Any:
        """Rewrite draft 4's `exclusiveMinimum: true` beside a `minimum`."""
        bound = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}.get(at.word, "")
        limit = at.schema.get(bound)
        if value and isinstance(limit, int | float) and not isinstance(limit, bool):
            self._note(at.path, f"true is written {limit}, the {bound}")
            return limit
        return self._drop(at.path, f"{value} is not a number")


_DROP: Any = object()
_MENDED_BY: Mapping[str, Callable[[Mender, Any, _Place], Any]] = {
    **dict.fromkeys(MAP_KEYWORDS, Mender._map),
    **dict.fromkeys(SCHEMA_KEYWORDS, Mender._part),
    **dict.fromkeys(LIST_KEYWORDS, Mender._list),
    **dict.fromkeys(_TEXTS, Mender._text),
    **dict.fromkeys(_NUMBERS | _COUNTS, Mender._number),
    **dict.fromkeys(_FLAGS, Mender._flag),
    **dict.fromkeys(("dependentRequired", "dependencies"), Mender._of_objects),
    **dict.fromkeys(("$vocabulary", "$recursiveAnchor", "$recursiveRef"), Mender._unread),
    "type": Mender._type,
    "required": Mender._required,
    "enum": Mender._enum,
    "examples": Mender._examples,
}
"""What mends a keyword's value: it returns the same object, a new one, or `_DROP`."""


def _is_misplaced(value: Any) -> bool:
    """Check whether a value under a keyword's name in `properties` is the keyword's rather than a
    property's schema.
    """
    if isinstance(value, str):
        return value == "object" or value.lower() not in _TYPE_WORDS
    return not isinstance(value, Mapping | bool)


def _start(value: Any) -> str:
    text = repr(value[:80] if isinstance(value, str | list | tuple) else value)
    return text if len(text) <= 80 else f"{text[:80]}…"


@lru_cache(maxsize=4_096)
def compiles(pattern: str) -> bool:
    """Check whether a pattern is a regular expression of moderate length."""
    if len(pattern) > MAX_PATTERN:
        return False
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def pattern_words(pattern: str) -> str:
    """Say in words which pattern a text has to match."""
    shown = pattern if len(pattern) <= _MAX_TEXT else f"{pattern[:_MAX_TEXT]}…"
    return f"Pattern: {shown}"


def described(description: Any, *sentences: str) -> str:
    """Add sentences to a description that may be missing."""
    before = description.strip() if isinstance(description, str) else ""
    new = [sentence for sentence in sentences if sentence and sentence not in before]
    return " ".join(filter(None, [before, *new]))
