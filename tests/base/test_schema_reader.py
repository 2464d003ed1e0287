"""A schema of a server is read the same way by everybody, whatever stands in it."""

from __future__ import annotations

from typing import Any

import pytest

from casual_mcp_nb.base.schema import SchemaReader

POINT = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}


def test_properties_keep_their_order_and_know_what_is_required() -> None:
    reader = SchemaReader(
        {"properties": {"b": {"description": "B."}, "a": {}}, "required": ["a", 7, "gone"]}
    )
    assert list(reader.properties) == ["b", "a"]
    assert reader.properties["b"].description == "B."
    assert reader.required == ("a", "gone")


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        [],
        "object",
        {"properties": [], "required": "a", "type": 3, "enum": {}, "anyOf": 1},
    ],
)
def test_what_has_the_wrong_type_reads_as_absent(schema: Any) -> None:
    reader = SchemaReader(schema)
    assert (reader.properties, reader.required, reader.types, reader.choices) == ({}, (), (), ())
    assert (reader.options, reader.items, reader.reference, reader.description) == (
        (),
        None,
        None,
        "",
    )
    assert reader.number("minimum") is None


@pytest.mark.parametrize(
    ("schema", "types", "choices"),
    [
        ({"type": "string"}, ("string",), ()),
        ({"type": ["string", "null"]}, ("string",), ()),
        ({"type": ["string", "integer", "null"]}, ("string", "integer"), ()),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, ("integer",), ()),
        ({"oneOf": [{"type": "null"}, {"enum": ["a", "b"]}]}, (), ("a", "b")),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, (), ()),
        ({"anyOf": [{"$ref": "#/$defs/Color"}, {"type": "null"}]}, ("string",), ("red",)),
        ({"$ref": "#/$defs/Color"}, ("string",), ("red",)),
        ({"const": 3}, (), (3,)),
        ({"type": "null"}, ("null",), ()),
    ],
)
def test_null_beside_one_other_choice_is_left_out_and_references_are_followed(
    schema: dict[str, Any], types: tuple[str, ...], choices: tuple[Any, ...]
) -> None:
    root = {"properties": {"p": schema}, "$defs": {"Color": {"type": "string", "enum": ["red"]}}}
    part = SchemaReader(root).properties["p"].without_null()
    assert (part.types, part.choices) == (types, choices)


def test_keywords_beside_a_reference_count() -> None:
    root = {
        "$defs": {"Point": POINT},
        "properties": {"p": {"$ref": "#/$defs/Point", "description": "Where."}},
    }
    part = SchemaReader(root).properties["p"].resolved()
    assert (part.description, part.required, list(part.properties)) == ("Where.", ("x",), ["x"])


def test_circles_of_references_end() -> None:
    root = {
        "$defs": {
            "a": {"$ref": "#/$defs/b"},
            "b": {"$ref": "#/$defs/a"},
            "c": {"anyOf": [{"$ref": "#/$defs/c"}, {"type": "null"}]},
        },
        "properties": {"a": {"$ref": "#/$defs/a"}, "c": {"$ref": "#/$defs/c"}},
    }
    parts = SchemaReader(root).properties
    assert parts["a"].resolved().types == ()
    assert parts["c"].without_null().types == ()
    assert [part.types for part in parts["c"].alternatives()] == [("null",)]


def test_alternatives_are_those_behind_references_and_choices_each_once() -> None:
    root = {
        "$defs": {"Point": POINT},
        "anyOf": [
            {"$ref": "#/$defs/Point"},
            {"oneOf": [{"type": "string"}]},
            {"$ref": "#/$defs/Point"},
        ],
    }
    assert [part.types for part in SchemaReader(root).alternatives()] == [("object",), ("string",)]
