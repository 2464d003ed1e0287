"""JSON Schema: reading schemas, limiting them for a model, and quick validation."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from pydantic_core import to_json

from casual_mcp_nb.base.iterables import of_type

Schema = Mapping[str, Any]
"""A JSON schema, or a part of one."""

MAX_CHOICES = 1_000
MAX_NESTED_CHOICES = 10
_OBJECTS = (dict, Mapping)
"""Checking for dict first is faster, and nearly all are."""
CHOICE_KEYWORDS = ("anyOf", "oneOf", "allOf")
"""The keywords that hold a list of schemas to choose from or to combine."""
LIST_KEYWORDS = (*CHOICE_KEYWORDS, "prefixItems")
"""The keywords that hold a list of schemas."""
MAP_KEYWORDS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""The keywords that hold schemas by name."""
SCHEMA_KEYWORDS = (
    "items",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
)
"""The keywords that hold one schema."""


_HEADER = "x-mcp-header"
_HEADER_DEPTH = 8
_MAX_HEADERS = 50


def header_parameters(schema: Schema) -> dict[str, str]:
    """Find the parameters whose values a client repeats in HTTP headers, with the headers' names.

    See https://modelcontextprotocol.io/specification/2026-07-28/basic/transports. A nested
    parameter's name has dots.
    """
    headers: dict[str, str] = {}

    def walk(part: Any, path: str, depth: int) -> None:
        properties = part.get("properties") if isinstance(part, Mapping) else None
        if not isinstance(properties, Mapping) or depth == 0:
            return
        for name, value in properties.items():
            header = value.get(_HEADER) if isinstance(value, Mapping) else None
            if isinstance(header, str) and len(headers) < _MAX_HEADERS:
                headers[f"{path}{name}"] = f"Mcp-Param-{header[:100]}"
            walk(value, f"{path}{name}.", depth - 1)

    walk(schema, "", _HEADER_DEPTH)
    return headers


class SchemaReader:
    """Reads a JSON schema.

    A server can send anything, so keywords with the wrong type count as absent.

    Reading is shallow and lazy. References are resolved in `root`. Keywords: JSON Schema 2020-12,
    https://json-schema.org/draft/2020-12.
    """

    def __init__(self, schema: object, root: object = None) -> None:
        self.schema: Schema = schema if isinstance(schema, _OBJECTS) else {}
        self.root = self.schema if root is None else root

    @cached_property
    def properties(self) -> dict[str, SchemaReader]:
        """An object's properties, in the schema's order."""
        properties = self.schema.get("properties")
        if not isinstance(properties, Mapping):
            return {}
        return {str(name): SchemaReader(part, self.root) for name, part in properties.items()}

    @cached_property
    def required(self) -> tuple[str, ...]:
        """Required property names, in order."""
        return tuple(dict.fromkeys(of_type(self._list("required"), str)))

    @property
    def description(self) -> str:
        """The description, or an empty string."""
        return self.text("description")

    @property
    def types(self) -> tuple[str, ...]:
        """The allowed JSON types, such as `("string", "null")`, or empty if unspecified."""
        kind = self.schema.get("type")
        if isinstance(kind, str):
            return (kind,)
        return tuple(of_type(self._list("type"), str))

    @property
    def choices(self) -> tuple[Any, ...]:
        """The allowed values from `enum` or `const`, or empty for any."""
        if "const" in self.schema:
            return (self.schema["const"],)
        return tuple(self._list("enum")[:MAX_CHOICES])

    @property
    def required_first(self) -> list[str]:
        """The names of the properties: the required ones, then the others, each in order."""
        required = [name for name in self.properties if name in self.required]
        return list(dict.fromkeys((*required, *self.properties)))

    @property
    def items(self) -> SchemaReader | None:
        """The schema for an array's items, if specified."""
        items = self.schema.get("items")
        return SchemaReader(items, self.root) if isinstance(items, Mapping) else None

    @property
    def options(self) -> tuple[SchemaReader, ...]:
        """The schemas in `anyOf` or `oneOf`."""
        parts = self._list("anyOf") or self._list("oneOf")
        return tuple(SchemaReader(part, self.root) for part in parts)

    @property
    def reference(self) -> str | None:
        """The `$ref`."""
        return self.text("$ref") or None

    @property
    def is_leaf(self) -> bool:
        """Whether it has neither properties nor items."""
        return "properties" not in self.schema and "items" not in self.schema

    @property
    def is_null(self) -> bool:
        """Whether nothing but null is allowed."""
        return self.types == ("null",)

    def text(self, keyword: str) -> str:
        """Read a keyword such as `format`, or return an empty string."""
        value = self.schema.get(keyword)
        return value if isinstance(value, str) else ""

    def number(self, keyword: str) -> int | float | None:
        """Read a number such as `minimum`, or return None."""
        value = self.schema.get(keyword)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def resolved(self) -> SchemaReader:
        """Resolve the reference, if there is one, and merge it with the keywords beside it."""
        schema, seen = self.schema, set()
        while isinstance(reference := schema.get("$ref"), str) and reference not in seen:
            seen.add(reference)
            target = lookup(reference, self.root)
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**target, **beside} if isinstance(target, Mapping) else beside
        return SchemaReader(schema, self.root)

    def without_null(self) -> SchemaReader:
        """Select the schema for values other than null, with references resolved.

        From `anyOf` and `oneOf`, that is the only option that is not null, merged with the keywords
        beside it, or the unchanged schema if there are several. From a list of types, those that
        are not null.
        """
        part = self.resolved()
        for _ in range(MAX_NESTED_CHOICES):
            options = map(SchemaReader.resolved, part.options)
            others = [option for option in options if not option.is_null]
            if len(others) != 1:
                break
            beside = dict(part.schema)
            beside.pop("anyOf", None)
            beside.pop("oneOf", None)
            part = SchemaReader({**others[0].schema, **beside}, self.root)
        if len(part.types) > 1 and "null" in part.types:
            types = [kind for kind in part.types if kind != "null"]
            return SchemaReader({**part.schema, "type": types}, self.root)
        return part

    def alternatives(self) -> Iterator[SchemaReader]:
        """Yield the schema, or whatever its reference and choices lead to, each once: references
        can be circular.
        """
        waiting: list[Any] = [self.schema]
        seen: set[int] = set()
        while waiting:
            schema = waiting.pop()
            if not isinstance(schema, Mapping) or id(schema) in seen:
                continue
            seen.add(id(schema))
            part = SchemaReader(schema, self.root)
            options: list[Any] = []
            for keyword in CHOICE_KEYWORDS:
                options += part._list(keyword)
            waiting += reversed(options)
            if part.reference is not None:
                waiting.append(lookup(part.reference, self.root))
            elif not options:
                yield part

    def _list(self, keyword: str) -> list[Any]:
        value = self.schema.get(keyword)
        if isinstance(value, list):
            return value
        return list(value) if isinstance(value, tuple) else []


def lookup(reference: str, root: object) -> Any:
    """Resolve a reference such as `#/$defs/Point` (RFC 6901) within a schema, or return None.

    Nothing is fetched.
    """
    if reference != "#" and not reference.startswith("#/"):
        return None
    part = root
    for step in reference[1:].split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(part, list) and key.isdecimal() and int(key) < len(part):
            part = part[int(key)]
        elif isinstance(part, Mapping) and key in part:
            part = part[key]
        else:
            return None
    return part


MAX_PROPERTIES = 500
MAX_PROPERTY_DESCRIPTION = 4_000
MAX_PARAMETERS = 200_000
MAX_DEPTH = 100

_NAMES = frozenset({"$id", "$anchor"})
_DATA = frozenset({"enum", "const", "default", "examples", "example"})


def unusable_part(schema: Schema) -> str | None:
    """Explain why a schema cannot be sent to a model, or return None.

    References are never fetched.
    """
    # Most have no reference and cannot be too deep, and writing them is faster than a walk in
    # Python.
    with contextlib.suppress(ValueError):
        written = to_json(schema)
        if b'"$ref"' not in written and written.count(b"{") + written.count(b"[") <= MAX_DEPTH:
            return None
    names: set[str] = set()
    references: list[str] = []
    waiting: list[tuple[Any, int]] = [(schema, 0)]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, list):
            waiting += [(part, depth + 1) for part in node]
        elif isinstance(node, _OBJECTS):
            if depth > MAX_DEPTH:
                return f"its input schema is nested over {MAX_DEPTH} levels deep"
            for key, value in node.items():
                if not isinstance(value, str):
                    if key not in _DATA:
                        waiting.append((value, depth + 1))
                elif key == "$ref":
                    references.append(value)
                elif key in _NAMES:
                    names.add(value)
    for reference in references:
        if not names & {reference, reference[1:]} and lookup(reference, schema) is None:
            return f"its input schema refers to {reference[:200]!r}, which is not in it"
    return None


def limited_parameters(schema: Schema) -> tuple[dict[str, Any], list[str]]:
    """Limit a tool's schema to the form sent to a model, an object with properties, and describe
    the cuts.

    If there are too many properties, required ones take precedence. `too_long` tells whether the
    rest is too long for a model.
    """
    parameters = {"type": "object", "properties": {}, **schema}
    properties = parameters["properties"]
    if not isinstance(properties, Mapping):
        return parameters, []
    cuts = []
    if len(properties) > MAX_PROPERTIES:
        cuts.append(f"its parameters to {MAX_PROPERTIES:,} of {len(properties):,}")
        first = [name for name in SchemaReader(schema).required if name in properties]
        names = list(dict.fromkeys([*first, *properties]))[:MAX_PROPERTIES]
        properties = {name: properties[name] for name in names}
        if first:
            parameters["required"] = first[:MAX_PROPERTIES]
    parameters["properties"] = {name: _limited(value) for name, value in properties.items()}
    return parameters, cuts


def too_long(parameters: Schema) -> str:
    """Explain how a tool's parameters exceed the length that is sent to a model, or return an empty
    string.
    """
    size = len(json.dumps(parameters, ensure_ascii=False, default=str))
    if size <= MAX_PARAMETERS:
        return ""
    return f"its parameters, {size:,} characters, to none"


def _limited(value: Any) -> Any:
    if isinstance(value, _OBJECTS):
        description = value.get("description")
        if isinstance(description, str) and len(description) > MAX_PROPERTY_DESCRIPTION:
            return {**value, "description": f"{description[:MAX_PROPERTY_DESCRIPTION]} [...]"}
    elif isinstance(value, bool):
        # The equivalent that every provider accepts.
        return {} if value else {"not": {}}
    return value


_LARGEST_INTEGER = 2**53 - 1
_NOT_A_LETTER = re.compile(r"[\W_]+")


def brief_schema(schema: Schema) -> Schema:
    """Shorten a schema without changing its meaning.

    Left out are `$schema`, titles that repeat a name, bounds that only mean "a whole number", a
    null default where null is allowed, and the ban on other properties. A choice between plain
    types becomes a list.
    """
    brief: Schema = _brief(schema)
    # A reference can lead into a choice.
    return schema if "/anyOf/" in json.dumps(brief, default=str) else brief


def _brief(schema: Any, name: str = "", depth: int = 0) -> Any:
    if not isinstance(schema, Mapping) or depth > MAX_FIT_DEPTH:
        return schema
    brief: dict[str, Any] = {}
    if types := _choice_of_types(schema):
        schema = {
            "type": types,
            **{word: value for word, value in schema.items() if word != "anyOf"},
        }
    for word, value in schema.items():
        if word in MAP_KEYWORDS and isinstance(value, Mapping):
            value = {each: _brief(part, each, depth + 1) for each, part in value.items()}
        elif word in LIST_KEYWORDS and isinstance(value, list):
            value = [_brief(part, name, depth + 1) for part in value]
        elif word in SCHEMA_KEYWORDS:
            value = _brief(value, "", depth + 1)
        if not _says_nothing(word, value, schema, name, depth):
            brief[word] = value
    return brief


def _choice_of_types(schema: Schema) -> list[str]:
    """List the types in a choice between plain types."""
    options = schema.get("anyOf")
    if "type" in schema or not isinstance(options, list) or not options:
        return []
    types: list[str] = []
    for each in options:
        if not isinstance(each, Mapping) or each.keys() != {"type"}:
            return []
        if not isinstance(each["type"], str):
            return []
        types.append(each["type"])
    return types


def _says_nothing(word: str, value: Any, schema: Schema, name: str, depth: int) -> bool:
    match word, value:
        case "title", str():
            repeats = (
                _NOT_A_LETTER.sub("", value).casefold() == _NOT_A_LETTER.sub("", name).casefold()
            )
            return not depth or repeats or bool(schema.get("description"))
        case "additionalProperties", False:
            # Without properties, it says that the object is empty.
            return bool(schema.get("properties"))
        case "default", None:
            reader = SchemaReader(schema)
            return "null" in reader.types or any(each.is_null for each in reader.options)
        case "minimum" | "maximum", int():
            return abs(value) == _LARGEST_INTEGER
    return word == "$schema"


MAX_STEPS = 2_000
"""How many parts a value checked here may have. Larger values go to the worker process."""
MAX_FIT_DEPTH = 20

_TYPES: Mapping[str, tuple[type[Any], ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
"""The exact types of the values: `True` is not an integer."""


def is_of_type(value: Any, kind: str) -> bool:
    """Check whether a value has a JSON type, such as `"integer"`."""
    return type(value) in _TYPES.get(kind, ())


_SAYS_NOTHING = frozenset(
    {"$schema", "title", "description", "default", "examples", "format", "x-fastmcp-wrap-result"}
)
"""Keywords that do not affect validation. The library does not check formats by default either."""


def fits_plainly(schema: Any, value: Any) -> bool:
    """Check whether a small value is known to match a schema that has only types, properties, items
    and choices.

    False is inconclusive: most keywords are left to the library in the worker process.
    """
    return _fits(schema, value, [MAX_STEPS], 0)


def _fits(schema: Any, value: Any, steps: list[int], depth: int) -> bool:
    steps[0] -= 1
    if (
        steps[0] < 0
        or depth > MAX_FIT_DEPTH
        or not isinstance(schema, dict)
        or len(schema) > MAX_FIT_DEPTH
    ):
        return False
    for word in schema:
        if word not in _SAYS_NOTHING and not _follows(word, schema, value, steps, depth + 1):
            return False
    return True


def _follows(word: str, schema: dict[str, Any], value: Any, steps: list[int], depth: int) -> bool:
    rule = schema[word]
    if isinstance(rule, dict | list):
        if len(rule) >= steps[0]:
            return False
        steps[0] -= len(rule)
    match word, rule, value:
        case "type", str(), _:
            return is_of_type(value, rule)
        case "properties", dict(), dict():
            given = [name for name in rule if name in value]
            return all(_fits(rule[name], value[name], steps, depth) for name in given)
        case "required", list(), dict():
            return not [name for name in rule if not isinstance(name, str) or name not in value]
        case "items", _, list() if len(value) < steps[0]:
            return all(_fits(rule, item, steps, depth) for item in value)
        case "anyOf", list(), _:
            return any(_fits(part, value, steps, depth) for part in rule)
        case "enum", list(), str():
            return value in rule
        case "additionalProperties", bool(), _:
            # A schema or False would require knowing the properties.
            properties = schema.get("properties", {})
            knows = isinstance(value, dict) and isinstance(properties, dict)
            return rule or (knows and value.keys() <= properties.keys())
    return False
