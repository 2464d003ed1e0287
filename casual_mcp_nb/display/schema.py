"""JSON schemas in words. A schema comes from a server and can be anything at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from casual_mcp_nb.display.view import Cell, Name

_DEPTH = 3


def parameters(schema: Mapping[str, Any]) -> tuple[tuple[Cell, ...], ...]:
    """A row for each parameter of a tool: name, type, whether it is required, description."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return ()
    required = schema.get("required")
    needed = required if isinstance(required, list | tuple) else ()
    return tuple(
        (Name(str(name)), type_words(part), "required" if name in needed else "optional", _description(part))
        for name, part in properties.items()
    )


def type_words(schema: object, depth: int = _DEPTH) -> str:
    """The type that a schema asks for, such as `list of integer` or `'a' or 'b'`; `any` where it does not say."""
    if not isinstance(schema, Mapping) or depth == 0:
        return "any"
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return _either([type_words(part, depth - 1) for part in schema[key][:8]])
    if isinstance(schema.get("enum"), list):
        more = ["…"] if len(schema["enum"]) > 8 else []
        return _either([pretty(value, indent=None) for value in schema["enum"][:8]] + more)
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return _either([str(word) for word in kind[:8]])
    return f"list of {type_words(schema['items'], depth - 1)}" if kind == "array" and "items" in schema else str(kind)


def pretty(value: object, indent: int | None = 2) -> str:
    """A value as JSON for people to read."""
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    except (RecursionError, TypeError, ValueError):
        return "This cannot be shown as JSON."


def _either(options: list[str]) -> str:
    return " or ".join(dict.fromkeys(options)) or "any"


def _description(schema: object) -> str:
    text = schema.get("description") if isinstance(schema, Mapping) else None
    return text if isinstance(text, str) else ""
