"""A form from a JSON schema, and arguments from what was filled in. A schema comes from a server and can be anything at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from casual_mcp_nb.display.schema import parameters, pretty
from casual_mcp_nb.display.text import clean, cut
from casual_mcp_nb.errors import UsageError, shown
from casual_mcp_nb.types.tool import ToolSpec

MAX_FIELDS = 100
MAX_CHOICES = 200
MAX_TEXT = 4_000

_KINDS = ("string", "integer", "number", "boolean")


def fields_of(tool: ToolSpec) -> list[dict[str, Any]]:
    """A field for each parameter of a tool.

    Returns:
        For each `name`, `type` in words, `required`, `description`, and `kind`: `string`, `integer`, `number`, `boolean`,
        `choice` (with `choices`) or `json`; `default` as text where the schema has one.
    """
    found = []
    rows = parameters(tool.input_schema)[:MAX_FIELDS]
    for (name, schema), row in zip(_properties(tool), rows, strict=False):
        words = [str(getattr(cell, "text", cell)) for cell in row]
        form = _form(schema)
        found.append(
            {
                "name": name,
                "type": cut(clean(words[1]), 200),
                "required": words[2] == "required",
                "description": cut(clean(words[3]), MAX_TEXT),
                **form,
                **_default(schema, form["kind"]),
            }
        )
    return found


def arguments_of(tool: ToolSpec, filled: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a call, from the text in each field; a field that is left empty is left out.

    Raises:
        UsageError: A text is not what its field takes, or a required field is empty; all such fields are named.
    """
    arguments: dict[str, Any] = {}
    problems = []
    for field in fields_of(tool):
        text = filled.get(field["name"], "")
        try:
            if text or (field["kind"] == "string" and field["required"] and field["name"] in filled):
                arguments[field["name"]] = _value(field, text)
            elif field["required"]:
                problems.append(f"{shown(field['name'])} is required")
        except ValueError:
            problems.append(f"{shown(field['name'])} is no {_WORDS[field['kind']]}: {shown(text)}")
    if problems:
        raise UsageError(f"{'; '.join(problems)}.")
    return arguments


_WORDS = {"integer": "whole number", "number": "number", "boolean": "true or false", "choice": "choice", "json": "JSON"}


def _properties(tool: ToolSpec) -> list[tuple[str, Any]]:
    properties = tool.input_schema.get("properties")
    return [(str(name), part) for name, part in properties.items()] if isinstance(properties, Mapping) else []


def _form(schema: object) -> dict[str, Any]:
    part = _without_null(schema)
    choices = part.get("enum")
    if isinstance(choices, list) and 0 < len(choices) <= MAX_CHOICES:
        return {"kind": "choice", "choices": [cut(clean(pretty(choice, indent=None)), 200) for choice in choices]}
    kind = part.get("type")
    return {"kind": kind if isinstance(kind, str) and kind in _KINDS else "json"}


def _without_null(schema: object) -> Mapping[str, Any]:
    """The schema; of one that also allows null, what it allows beside it."""
    if not isinstance(schema, Mapping):
        return {}
    for key in ("anyOf", "oneOf"):
        parts = schema.get(key)
        if isinstance(parts, list):
            others = [part for part in parts if isinstance(part, Mapping) and part.get("type") != "null"]
            return others[0] if len(others) == 1 else {}
    kinds = schema.get("type")
    if isinstance(kinds, list):
        others_of = [kind for kind in kinds if kind != "null"]
        return {**schema, "type": others_of[0] if len(others_of) == 1 else None}
    return schema


def _default(schema: object, kind: str) -> dict[str, str]:
    value = schema.get("default") if isinstance(schema, Mapping) else None
    if value is None:
        return {}
    text = value if kind == "string" and isinstance(value, str) else pretty(value, indent=None)
    return {"default": cut(clean(text), 200)}


def _value(field: Mapping[str, Any], text: str) -> Any:
    match field["kind"]:
        case "string":
            return text
        case "integer":
            return int(text.strip())
        case "number":
            number = json.loads(text.strip())
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise ValueError
            return number
        case "boolean":
            return {"true": True, "false": False}[text] if text in ("true", "false") else _refused()
        case _:
            try:
                return json.loads(text)
            except RecursionError:
                raise ValueError from None


def _refused() -> Any:
    raise ValueError
