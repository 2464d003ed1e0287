"""Forms from whatever a server calls a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.widgets._rows import tool_detail
from casual_mcp_nb.widgets.tool_form import MAX_FIELDS, arguments_of, fields_of


def tool(properties: Any, required: Any = ()) -> ToolSpec:
    return ToolSpec(
        "s", "t", input_schema={"type": "object", "properties": properties, "required": required}
    )


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, "string"),
        ({"type": "integer"}, "integer"),
        ({"type": "number"}, "number"),
        ({"type": "boolean"}, "boolean"),
        ({"type": ["integer", "null"]}, "integer"),
        ({"type": ["boolean", "string"]}, "json"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "json"),
        ({"oneOf": [{"enum": [1, 2]}, {"type": "null"}]}, "choice"),
        ({"enum": ["a", "b"]}, "choice"),
        ({"enum": []}, "json"),
        ({"type": "array", "items": {}}, "json"),
        ({"type": "object"}, "json"),
        ({"$ref": "#/$defs/Thing"}, "json"),
        (True, "json"),
        (None, "json"),
        ("string", "json"),
        ({"type": 3}, "json"),
    ],
)
def test_the_kind_of_a_field_follows_its_schema(schema: Any, kind: str) -> None:
    (field,) = fields_of(tool({"x": schema}))
    assert field["kind"] == kind
    json.dumps(field)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, " as it is ", " as it is "),
        ({"type": "integer"}, " 9007199254740993 ", 9007199254740993),
        ({"type": "number"}, "2.50", 2.5),
        ({"type": "number"}, "3", 3),
        ({"type": "boolean"}, "false", False),
        ({"enum": ["a", 1, None]}, "null", None),
        ({"enum": ["a", 1]}, '"a"', "a"),
        ({"type": "array"}, '[1, {"a": null}]', [1, {"a": None}]),
    ],
)
def test_what_is_filled_in_becomes_an_argument(schema: Any, text: str, value: object) -> None:
    arguments = arguments_of(tool({"x": schema}), {"x": text})
    assert arguments == {"x": value}
    assert type(arguments["x"]) is type(value)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer"}, "2.5"),
        ({"type": "integer"}, "two"),
        ({"type": "number"}, "true"),
        ({"type": "number"}, "1,5"),
        ({"type": "boolean"}, "yes"),
        ({"type": "object"}, "{"),
        ({"type": "object"}, "[" * 100_000),
    ],
)
def test_what_does_not_fit_is_refused_by_the_name_of_its_field(schema: Any, text: str) -> None:
    with pytest.raises(UsageError, match="'x' is no"):
        arguments_of(tool({"x": schema}), {"x": text})


def test_an_empty_field_is_left_out_and_a_required_one_is_asked_for() -> None:
    spec = tool(
        {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "string"}}, ["a", "b"]
    )
    assert arguments_of(spec, {"a": "1", "b": "", "c": ""}) == {"a": 1, "b": ""}
    with pytest.raises(UsageError, match=r"'a' is .*; 'b' is "):
        arguments_of(spec, {})


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": []},
        {"properties": {"x": {}}, "required": "x"},
        {"properties": {f"p{n}": {} for n in range(5_000)}},
    ],
)
def test_a_schema_of_any_kind_has_a_card(schema: dict[str, Any]) -> None:
    card = tool_detail(ToolSpec("s", "t", "d" * 100_000, schema), None)
    assert len(card["fields"]) <= MAX_FIELDS
    assert len(json.dumps(card)) < 100_000
