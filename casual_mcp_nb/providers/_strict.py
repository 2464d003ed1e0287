"""Convert JSON schemas to OpenAI's strict form: every property is required, and optional ones may be null."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from casual_mcp_nb.types.schema import SchemaReader

MAX_DEPTH = 10
"""OpenAI's limit on nesting in a strict schema."""
MAX_CHOICES = 250

_LABELS = {"default": "Default", "minLength": "Characters at least", "maxLength": "Characters at most"}
_ANNOTATIONS = {"title", "description", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment", *_LABELS}
_OF_TYPE = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"pattern", "format"},
    "number": {"multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "boolean": set(),
    "null": set(),
}
_OF_TYPE["integer"] = _OF_TYPE["number"]
_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
_DEFINITIONS = ("$defs", "definitions")


class _NotStrict(Exception):
    """A schema that the strict form cannot express."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Convert a schema to its strict form, or None if there is none: open maps, unsupported keywords.

    Args:
        schema: The schema of an object.

    Returns:
        A schema shared with other callers, which must not be modified.
    """
    return _strict_of(json.dumps(schema, default=str))


# Cached, because each request offers the same tools.
@lru_cache(maxsize=4_096)
def _strict_of(text: str) -> dict[str, Any] | None:
    schema = json.loads(text)
    try:
        strict = _object({**schema, "type": "object"}, 0, root=True)
        for key in _DEFINITIONS:
            if key in schema:
                strict[key] = {name: _strict(value, 0) for name, value in schema[key].items()}
    except (_NotStrict, AttributeError, TypeError, RecursionError):
        return None
    return strict


def all_required(schema: Any) -> Any:
    """Make all properties of a schema required, for an answer that needs every part."""
    if isinstance(schema, list):
        return [all_required(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    required = {name: part if name in ("enum", "const", *_ANNOTATIONS) else all_required(part) for name, part in schema.items()}
    properties = schema.get("properties")
    return required | {"required": list(properties)} if isinstance(properties, Mapping) and "type" in schema else required


def without_nulls(arguments: str, schema: Mapping[str, Any]) -> str:
    """Remove the nulls that represent omitted arguments from arguments in the strict form.

    Args:
        arguments: The model's arguments; anything but a JSON object is returned unchanged.
        schema: The original schema.
    """
    try:
        given = json.loads(arguments)
        dropped = _dropped(given, schema, schema)
    except (ValueError, RecursionError):
        return arguments
    return arguments if dropped == given else json.dumps(dropped, ensure_ascii=False)


def _strict(schema: Any, depth: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        raise _NotStrict
    if "$ref" in schema:
        return _reference(schema)
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return _choice(choice, schema, depth)
    kinds = [kind for kind in _kinds(schema) if kind != "null"]
    if len(kinds) > 1:
        return _choice("anyOf", _split(schema), depth)
    if not _kinds(schema):
        raise _NotStrict
    kind = kinds[0] if kinds else "null"
    if kind == "object":
        return _object(schema, depth)
    _only(schema, {"type", "enum", "const"} | _OF_TYPE[kind])
    strict = _described(schema)
    strict |= {name: value for name, value in schema.items() if name not in _ANNOTATIONS and name != "items"}
    if strict.get("format") not in _FORMATS:
        strict.pop("format", None)
    if len(strict.get("enum", ())) > MAX_CHOICES:
        raise _NotStrict
    if kind == "array":
        strict["items"] = _strict(schema.get("items"), depth)
    return strict


def _object(schema: Mapping[str, Any], depth: int, *, root: bool = False) -> dict[str, Any]:
    _only(schema, {"type", *_OF_TYPE["object"], *(_DEFINITIONS if root else ()), *(("$schema", "$id") if root else ())})
    properties = schema.get("properties") or {}
    required = schema.get("required", [])
    any_object = not (properties or root or "additionalProperties" in schema)
    if any_object or schema.get("additionalProperties", False) is not False or not set(required) <= set(properties):
        raise _NotStrict
    parts = {name: _strict(value, depth + 1) for name, value in properties.items()}
    return _described(schema) | {
        "type": schema["type"],
        "properties": {name: value if name in required else _nullable(value) for name, value in parts.items()},
        "required": list(properties),
        "additionalProperties": False,
    }


def _reference(schema: Mapping[str, Any]) -> dict[str, Any]:
    _only(schema, {"$ref"})
    if not str(schema["$ref"]).startswith(("#/$defs/", "#/definitions/")) and schema["$ref"] != "#":
        raise _NotStrict
    described = _described(schema)
    # A reference may have no other keywords beside it.
    return {**described, "anyOf": [{"$ref": schema["$ref"]}]} if described else {"$ref": schema["$ref"]}


def _choice(choice: str, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    _only(schema, {choice})
    options = schema[choice]
    if choice == "allOf" and len(options) != 1:
        raise _NotStrict
    # The strict form has no oneOf; the server still checks that exactly one matches.
    return _described(schema) | {"anyOf": [_strict(option, depth) for option in options]}


def _split(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Split a schema with several types into a choice of single-type schemas."""
    types = [{"type": kind, **{name: schema[name] for name in _OF_TYPE[kind] if name in schema}} for kind in _kinds(schema)]
    of_types = {"type", *(name for kind in _kinds(schema) for name in _OF_TYPE[kind])}
    return {**{name: value for name, value in schema.items() if name not in of_types}, "anyOf": types}


def _only(schema: Mapping[str, Any], allowed: set[str]) -> None:
    if schema.keys() - allowed - _ANNOTATIONS:
        raise _NotStrict


def _described(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Copy title and description, with the keywords that the strict form refuses described in words."""
    described = {name: schema[name] for name in ("title", "description") if isinstance(schema.get(name), str)}
    limits = [
        f"{words}: {json.dumps(schema[name], ensure_ascii=False, default=str)}."
        for name, words in _LABELS.items()
        if schema.get(name) is not None
    ]
    if limits:
        described["description"] = " ".join(filter(None, [described.get("description"), *limits]))
    return described


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kinds = schema.get("type", "object" if "properties" in schema else [])
    types = [kinds] if isinstance(kinds, str) else list(kinds)
    if not set(types) <= _OF_TYPE.keys():
        raise _NotStrict
    return types


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Make a strict schema allow null too."""
    if _takes_null(schema):
        return schema
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "type" not in schema or "const" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    more = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, **more, "type": [*_kinds(schema), "null"]}


def _takes_null(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    return any(_takes_null(option) for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ()))) or (
        "null" in _kinds(schema) and None in schema.get("enum", (None,))
    )


def _dropped(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    kinds = [kind.schema for kind in SchemaReader(schema, root).alternatives()]
    if isinstance(value, list):
        fitting = [kind["items"] for kind in kinds if isinstance(kind.get("items"), Mapping)]
        return [_dropped(item, fitting[0], root) for item in value] if fitting else value
    if not isinstance(value, dict):
        return value
    # In the strict form, an object has all properties of the alternative that the model chose.
    chosen = next((kind for kind in kinds if kind.get("properties", {}).keys() == value.keys()), None)
    if chosen is None:
        return value
    properties, required = chosen["properties"], chosen.get("required", ())
    return {
        name: _dropped(item, properties[name], root)
        for name, item in value.items()
        if item is not None or name in required or _may_be_null(properties[name], root)
    }


def _may_be_null(schema: Any, root: Mapping[str, Any]) -> bool:
    return any(_takes_null(kind.schema) for kind in SchemaReader(schema, root).alternatives())
