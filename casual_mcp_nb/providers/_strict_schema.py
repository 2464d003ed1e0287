"""The strict form of a tool's schema, in which OpenAI has a model keep to it exactly.

Every property is required there, so the model gives null for an optional argument that it omits.
`without_nulls` removes these nulls from its arguments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from casual_mcp_nb.base.dialects import StrictLimits
from casual_mcp_nb.base.iterables import all_are
from casual_mcp_nb.base.mend import described, pattern_words
from casual_mcp_nb.base.schema import SchemaReader, is_of_type
from casual_mcp_nb.base.tool_door import takes_pattern
from casual_mcp_nb.providers._calls import changed_arguments

LIMITS = StrictLimits()

_LABELS = {
    "default": "Default",
    "minLength": "Characters at least",
    "maxLength": "Characters at most",
}
_ANNOTATIONS = {
    "title",
    "description",
    "examples",
    "example",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    *_LABELS,
}
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
    """Convert a schema to its strict form, or return None if there is none, as for an open map or
    an unsupported keyword.

    The result is cached and shared, so callers must not change it.
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
        _check_size(strict)
    except (_NotStrict, AttributeError, TypeError, LookupError, RecursionError):
        return None
    return strict


def _check_size(strict: Mapping[str, Any]) -> None:
    """Check the bounds that hold for a strict schema as a whole."""
    properties = choices = characters = 0
    waiting: list[Any] = [strict]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        if not isinstance(part, Mapping):
            continue
        for word in ("properties", *_DEFINITIONS):
            named = part.get(word, {})
            if word == "properties":
                properties += len(named)
            characters += sum(map(len, named))
            waiting += named.values()
        values = [*part.get("enum", ())]
        if "const" in part:
            values.append(part["const"])
        size = sum(len(value) for value in values if isinstance(value, str))
        if len(values) > LIMITS.many_choices and size > LIMITS.choice_characters:
            raise _NotStrict
        choices += len(values)
        characters += size
        waiting += [part[word] for word in ("items", "anyOf") if word in part]
    if properties > LIMITS.properties or choices > LIMITS.choices or characters > LIMITS.characters:
        raise _NotStrict


def _check_choices(strict: dict[str, Any], kinds: Sequence[str]) -> None:
    """Give each value of an enum once, and check that they are plain and of the schema's types."""
    choices = strict["enum"]
    different = {f"{type(choice).__name__}:{choice!r}": choice for choice in choices}
    plain = all_are(choices, str | int | float | bool | None)
    if not choices or not plain or not all(_is_one_of(choice, kinds) for choice in choices):
        raise _NotStrict
    strict["enum"] = list(different.values())


def _is_one_of(choice: Any, kinds: Sequence[str]) -> bool:
    return any(is_of_type(choice, kind) for kind in kinds)


def all_required(schema: Any) -> Any:
    """Make all of a schema's properties required, for an answer that needs every part."""
    if isinstance(schema, list):
        return list(map(all_required, schema))
    if not isinstance(schema, Mapping):
        return schema
    required: dict[str, Any] = {}
    for name, part in schema.items():
        holds_values = name in ("enum", "const", *_ANNOTATIONS)
        required[name] = part if holds_values else all_required(part)
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and "type" in schema:
        required["required"] = list(properties)
    return required


def without_nulls(arguments: str, schema: Mapping[str, Any]) -> str:
    """Remove the nulls that stand for omitted arguments. Text that is no object stays as it is.

    Args:
        arguments: A call's arguments in the strict form, as JSON.
        schema: The tool's own schema.
    """
    return changed_arguments(arguments, partial(_dropped, schema=schema, root=schema))


def _strict(schema: Any, depth: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or depth > LIMITS.depth:
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
    for name, value in schema.items():
        if name not in _ANNOTATIONS and name != "items":
            strict[name] = value
    if strict.get("format") not in _FORMATS:
        strict.pop("format", None)
    if "enum" in strict:
        _check_choices(strict, _kinds(schema))
    if "pattern" in strict and not takes_pattern("plain", str(strict["pattern"])):
        strict["description"] = described(
            strict.get("description"), pattern_words(str(strict.pop("pattern")))
        )
    if kind == "array":
        strict["items"] = _strict(schema.get("items"), depth)
    return strict


def _reference(schema: Mapping[str, Any]) -> dict[str, Any]:
    _only(schema, {"$ref"})
    target = schema["$ref"]
    if target != "#" and not str(target).startswith(("#/$defs/", "#/definitions/")):
        raise _NotStrict
    words = _described(schema)
    if not words:
        return {"$ref": target}
    # A reference may have no other keywords beside it.
    return {**words, "anyOf": [{"$ref": target}]}


def _object(schema: Mapping[str, Any], depth: int, *, root: bool = False) -> dict[str, Any]:
    allowed = {"type", *_OF_TYPE["object"]}
    if root:
        allowed |= {*_DEFINITIONS, "$schema", "$id"}
    _only(schema, allowed)
    properties = schema.get("properties") or {}
    required = schema.get("required", [])
    any_object = not (properties or root or "additionalProperties" in schema)
    takes_more = schema.get("additionalProperties", False) is not False
    if any_object or takes_more or not set(required) <= set(properties):
        raise _NotStrict
    parts: dict[str, Any] = {}
    for name, value in properties.items():
        part = _strict(value, depth + 1)
        parts[name] = part if name in required else _nullable(part)
    return _described(schema) | {
        "type": schema.get("type", "object"),
        "properties": parts,
        "required": list(properties),
        "additionalProperties": False,
    }


def _choice(choice: str, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    _only(schema, {choice})
    options = schema[choice]
    if choice == "allOf" and len(options) != 1:
        raise _NotStrict
    # The strict form has no oneOf; the server still checks that exactly one matches.
    return _described(schema) | {"anyOf": [_strict(option, depth) for option in options]}


def _split(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Split a schema with several types into a choice of single-type schemas."""
    types: list[dict[str, Any]] = []
    of_types = {"type"}
    for kind in _kinds(schema):
        own = {name: schema[name] for name in _OF_TYPE[kind] if name in schema}
        types.append({"type": kind, **own})
        of_types |= _OF_TYPE[kind]
    shared = {name: value for name, value in schema.items() if name not in of_types}
    return {**shared, "anyOf": types}


def _only(schema: Mapping[str, Any], allowed: set[str]) -> None:
    if schema.keys() - allowed - _ANNOTATIONS:
        raise _NotStrict


def _described(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Copy title and description, with the keywords that the strict form refuses described in
    words.
    """
    texts = {
        name: schema[name] for name in ("title", "description") if isinstance(schema.get(name), str)
    }
    limits = []
    for name, words in _LABELS.items():
        if schema.get(name) is not None:
            limits.append(f"{words}: {json.dumps(schema[name], ensure_ascii=False, default=str)}.")
    if limits:
        texts["description"] = described(texts.get("description"), *limits)
    return texts


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    kinds = schema.get("type", "object" if "properties" in schema else [])
    types = [kinds] if isinstance(kinds, str) else list(kinds)
    if not set(types) <= _OF_TYPE.keys():
        raise _NotStrict
    return types


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if _takes_null(schema):
        return schema
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "type" not in schema or "const" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    if "enum" in schema:
        schema = {**schema, "enum": [*schema["enum"], None]}
    return {**schema, "type": [*_kinds(schema), "null"]}


def _takes_null(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    for option in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if _takes_null(option):
            return True
    return "null" in _kinds(schema) and None in schema.get("enum", (None,))


def _dropped(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    """Drop the nulls in a value that its schema does not take. `root` has the definitions."""
    kinds = [kind.schema for kind in SchemaReader(schema, root).alternatives()]
    if isinstance(value, list):
        for kind in kinds:
            if isinstance(kind.get("items"), Mapping):
                return [_dropped(item, kind["items"], root) for item in value]
        return value
    if not isinstance(value, dict):
        return value
    for kind in kinds:
        # In the strict form, an object has all properties of the alternative that the model chose.
        properties = kind.get("properties") or {}
        if properties.keys() == value.keys():
            return _dropped_in(value, properties, kind.get("required", ()), root)
    return value


def _dropped_in(
    given: Mapping[str, Any],
    properties: Mapping[str, Any],
    required: Sequence[str],
    root: Mapping[str, Any],
) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, item in given.items():
        schema = properties[name]
        if item is None and name not in required and not _may_be_null(schema, root):
            continue
        kept[name] = _dropped(item, schema, root)
    return kept


def _may_be_null(schema: Any, root: Mapping[str, Any]) -> bool:
    kinds = SchemaReader(schema, root).alternatives()
    return any(_takes_null(kind.schema) for kind in kinds)
