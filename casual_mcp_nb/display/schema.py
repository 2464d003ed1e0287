"""JSON schemas in words. A schema comes from a server and can be anything at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from casual_mcp_nb.display.view import Cell, Name
from casual_mcp_nb.types.schema import SchemaReader

_DEPTH = 3
_MAX_OPTIONS = 8


def parameters(schema: Mapping[str, Any]) -> tuple[tuple[Cell, ...], ...]:
    """List a row for each parameter of a tool: name, type, whether it is required, description."""
    whole = SchemaReader(schema)
    return tuple(
        (Name(name), type_words(part), "required" if name in whole.required else "optional", part.description)
        for name, part in whole.properties.items()
    )


def type_words(part: SchemaReader | None, depth: int = _DEPTH) -> str:
    """Describe the type that a schema requires, such as `list of integer` or `'a' or 'b'`; `any` if it is not declared."""
    if part is None or depth == 0:
        return "any"
    if part.options:
        return _either([type_words(option, depth - 1) for option in part.options[:_MAX_OPTIONS]])
    if part.choices:
        more = ["…"] if len(part.choices) > _MAX_OPTIONS else []
        return _either([pretty(value, indent=None) for value in part.choices[:_MAX_OPTIONS]] + more)
    if part.reference:
        return part.reference.rsplit("/", 1)[-1]
    if part.types == ("array",) and part.items is not None:
        return f"list of {type_words(part.items, depth - 1)}"
    return _either(list(part.types[:_MAX_OPTIONS]))


def pretty(value: object, indent: int | None = 2) -> str:
    """Format a value as JSON for people to read."""
    try:
        return json.dumps(value, indent=indent, ensure_ascii=False, default=str)
    except (RecursionError, TypeError, ValueError):
        return "This cannot be shown as JSON."


def _either(options: list[str]) -> str:
    return " or ".join(dict.fromkeys(options)) or "any"
