"""Read JSON schemas that come from servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import unquote

MAX_CHOICES = 1_000
MAX_NESTED_CHOICES = 10
_OBJECTS = (dict, Mapping)
"""Checking for dict first is faster, and nearly all are."""
_CHOICE_KEYWORDS = ("anyOf", "oneOf", "allOf")


class SchemaReader:
    """Reads a JSON schema. A server can send anything, so keywords with a value of the wrong type count as absent.

    Reading is shallow and lazy. Keywords: JSON Schema 2020-12,
    https://json-schema.org/draft/2020-12.

    Args:
        schema: The schema, or a part of one.
        root: The whole schema, in which references are resolved; `schema` itself by default.
    """

    def __init__(self, schema: object, root: object = None) -> None:
        self.schema: Mapping[str, Any] = schema if isinstance(schema, _OBJECTS) else {}
        self._root = self.schema if root is None else root

    @cached_property
    def properties(self) -> dict[str, SchemaReader]:
        """The properties of an object, in the schema's order."""
        properties = self.schema.get("properties")
        if not isinstance(properties, Mapping):
            return {}
        return {str(name): SchemaReader(part, self._root) for name, part in properties.items()}

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The names of the required properties, in order."""
        return tuple(dict.fromkeys(name for name in self._list("required") if isinstance(name, str)))

    @property
    def description(self) -> str:
        """The description, or an empty string."""
        return self.text("description")

    @property
    def types(self) -> tuple[str, ...]:
        """The allowed JSON types, such as `("string", "null")`; empty if unspecified."""
        kind = self.schema.get("type")
        return (kind,) if isinstance(kind, str) else tuple(word for word in self._list("type") if isinstance(word, str))

    @property
    def choices(self) -> tuple[Any, ...]:
        """The allowed values from `enum` or `const`; empty for any."""
        if "const" in self.schema:
            return (self.schema["const"],)
        return tuple(self._list("enum")[:MAX_CHOICES])

    @property
    def items(self) -> SchemaReader | None:
        """The schema of an array's items, if specified."""
        items = self.schema.get("items")
        return SchemaReader(items, self._root) if isinstance(items, Mapping) else None

    @property
    def options(self) -> tuple[SchemaReader, ...]:
        """The schemas of `anyOf` or `oneOf`."""
        return tuple(SchemaReader(part, self._root) for part in self._list("anyOf") or self._list("oneOf"))

    @property
    def reference(self) -> str | None:
        """The value of `$ref`."""
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
        """Read the string value of a keyword such as `format`, or an empty string."""
        value = self.schema.get(keyword)
        return value if isinstance(value, str) else ""

    def number(self, keyword: str) -> int | float | None:
        """Read the number of a keyword such as `minimum`, or None."""
        value = self.schema.get(keyword)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def resolved(self) -> SchemaReader:
        """Resolve the reference, if there is one, and merge it with the keywords beside it."""
        schema, seen = self.schema, set()
        while isinstance(reference := schema.get("$ref"), str) and reference not in seen:
            seen.add(reference)
            target = lookup(reference, self._root)
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**target, **beside} if isinstance(target, Mapping) else beside
        return SchemaReader(schema, self._root)

    def without_null(self) -> SchemaReader:
        """Select the schema of the values other than null, with references resolved.

        Returns:
            For `anyOf` and `oneOf`, the only option that is not null, merged with the keywords beside it; the unchanged schema
            if there are several. For a list of types, those that are not null.
        """
        part = self.resolved()
        for _ in range(MAX_NESTED_CHOICES):
            others = [option for option in map(SchemaReader.resolved, part.options) if not option.is_null]
            if len(others) != 1:
                break
            beside = {key: value for key, value in part.schema.items() if key not in ("anyOf", "oneOf")}
            part = SchemaReader({**others[0].schema, **beside}, self._root)
        if len(part.types) > 1 and "null" in part.types:
            return SchemaReader({**part.schema, "type": [kind for kind in part.types if kind != "null"]}, self._root)
        return part

    def alternatives(self) -> Iterator[SchemaReader]:
        """Yield the schema itself, or the targets of its reference and choices, each once: references can be circular."""
        waiting: list[Any] = [self.schema]
        seen: set[int] = set()
        while waiting:
            schema = waiting.pop()
            if not isinstance(schema, Mapping) or id(schema) in seen:
                continue
            seen.add(id(schema))
            part = SchemaReader(schema, self._root)
            options = [option for keyword in _CHOICE_KEYWORDS for option in part._list(keyword)]
            waiting += reversed(options)
            if part.reference is not None:
                waiting.append(lookup(part.reference, self._root))
            elif not options:
                yield part

    def _list(self, keyword: str) -> list[Any]:
        value = self.schema.get(keyword)
        return value if isinstance(value, list) else list(value) if isinstance(value, tuple) else []


def lookup(reference: str, root: object) -> Any:
    """Resolve a reference within a schema.

    Args:
        reference: A JSON pointer after a `#` (RFC 6901), such as `#/$defs/Point`; nothing is ever fetched.
        root: The whole schema.

    Returns:
        The part of the schema, or None if the reference cannot be resolved.
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
