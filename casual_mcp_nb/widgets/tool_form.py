"""The form for a tool call: fields from the tool's schema, and arguments from what is filled in.

Other than a server's form (`notebook/forms.py`), it takes any schema: what has no plain field is
written as JSON, and the server judges the values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from casual_mcp_nb.base.schema import SchemaReader
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.display.view import pretty, type_words
from casual_mcp_nb.display.words import clean, cut
from casual_mcp_nb.errors import UsageError, shown

MAX_FIELDS = 100
MAX_CHOICES = 200
MAX_FIELD_TEXT = 4_000

_KINDS = ("string", "integer", "number", "boolean")


def fields_of(tool: ToolSpec) -> list[dict[str, Any]]:
    """Build a field for each tool parameter.

    Returns:
        For each `name`, `type` in words, `required`, `description`, and `kind`: `string`,
        `integer`, `number`, `boolean`, `choice` (with `choices`) or `json`; `default` as text if
        the schema has one.
    """
    schema = SchemaReader(tool.input_schema)
    fields = []
    for name, part in islice(schema.properties.items(), MAX_FIELDS):
        fields.append(_field(name, part, name in schema.required))
    return fields


def arguments_of(tool: ToolSpec, filled: Mapping[str, str]) -> dict[str, Any]:
    """Parse a call's arguments from the text in each field. Empty fields are left out.

    Raises:
        UsageError: A text is not valid for its field, or a required field is empty. All such fields
            are named.
    """
    arguments: dict[str, Any] = {}
    problems = []
    for field in fields_of(tool):
        name, kind, required = field["name"], field["kind"], field["required"]
        text = filled.get(name, "")
        # An empty text is a value only where one is required.
        is_value = text != "" or (kind == "string" and required and name in filled)
        if not is_value:
            if required:
                problems.append(f"{shown(name)} is required")
            continue
        try:
            arguments[name] = _value(field, text)
        except ValueError:
            problems.append(f"{shown(name)} is not {_WORDS[kind]}: {shown(text)}")
    if problems:
        raise UsageError(f"{'; '.join(problems)}.")
    return arguments


_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "choice": "a choice",
    "json": "JSON",
}


def _field(name: str, part: SchemaReader, required: bool) -> dict[str, Any]:
    form = _form(part.without_null())
    return {
        "name": name,
        "type": cut(clean(type_words(part)), 200),
        "required": required,
        "description": cut(clean(part.description), MAX_FIELD_TEXT),
        **form,
        **_default(part.schema.get("default"), form["kind"]),
    }


def _form(part: SchemaReader) -> dict[str, Any]:
    if 0 < len(part.choices) <= MAX_CHOICES:
        choices = [cut(clean(pretty(choice, indent=None)), 200) for choice in part.choices]
        return {"kind": "choice", "choices": choices}
    if len(part.types) == 1 and part.types[0] in _KINDS:
        return {"kind": part.types[0]}
    return {"kind": "json"}


def _default(value: object, kind: str) -> dict[str, str]:
    if value is None:
        return {}
    if kind == "string" and isinstance(value, str):
        text = value
    else:
        text = pretty(value, indent=None)
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
            if text not in ("true", "false"):
                raise ValueError
            return text == "true"
        case _:
            try:
                return json.loads(text)
            except RecursionError:
                raise ValueError from None
