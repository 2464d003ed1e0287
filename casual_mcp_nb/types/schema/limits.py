"""Limits on tools' JSON schemas: whether one is self-contained, and how much of it is sent to a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from casual_mcp_nb.types.schema.reader import SchemaReader, lookup

MAX_PROPERTIES = 500
MAX_PROPERTY_DESCRIPTION = 4_000
MAX_PARAMETERS = 200_000
MAX_DEPTH = 100

_PLAIN = frozenset({str, int, float, bool, type(None)})
_NAMES = frozenset({"$id", "$anchor"})
_DATA = frozenset({"enum", "const", "default", "examples", "example"})


def unusable_part(schema: Mapping[str, Any]) -> str | None:
    """Find the reason why a schema cannot be sent to a model, or None. References are never fetched.

    Args:
        schema: A JSON schema.
    """
    names: set[str] = set()
    references: list[str] = []
    waiting: list[tuple[Any, int]] = [(schema, 0)]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, Mapping):
            if depth > MAX_DEPTH:
                return f"its input schema is nested over {MAX_DEPTH} levels deep"
            for key, value in node.items():
                # Most values are plain, and a catalog of thousands of tools has hundreds of thousands.
                if type(value) in _PLAIN:
                    if key == "$ref" and isinstance(value, str):
                        references.append(value)
                    elif key in _NAMES and isinstance(value, str):
                        names.add(value)
                elif key not in _DATA and isinstance(value, (dict, list, Mapping)):
                    waiting.append((value, depth + 1))
        else:
            waiting += [(value, depth + 1) for value in node if isinstance(value, (dict, list, Mapping))]
    for reference in references:
        if not names & {reference, reference[1:]} and lookup(reference, schema) is None:
            return f"its input schema refers to {reference[:200]!r}, which is not in it"
    return None


def limited_parameters(schema: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Limit a tool's schema to the form sent to a model: an object with properties, of limited size.

    Args:
        schema: The server's schema.

    Returns:
        The schema, and a description of what was cut. If there are too many properties, required ones take precedence.
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
    size = len(json.dumps(parameters, ensure_ascii=False, default=str))
    if size > MAX_PARAMETERS:
        return {"type": "object", "properties": {}}, [f"its parameters, {size:,} characters, to none"]
    return parameters, cuts


def _limited(value: Any) -> Any:
    if isinstance(value, bool):
        # The equivalent that every provider accepts.
        return {} if value else {"not": {}}
    if isinstance(value, Mapping):
        description = value.get("description")
        if isinstance(description, str) and len(description) > MAX_PROPERTY_DESCRIPTION:
            return {**value, "description": f"{description[:MAX_PROPERTY_DESCRIPTION]} [...]"}
    return value
