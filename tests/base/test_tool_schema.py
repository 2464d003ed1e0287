"""Schemas of tools: complete in themselves, and of a bounded size."""

from __future__ import annotations

from typing import Any

import pytest

from casual_mcp_nb.base.schema import (
    MAX_PROPERTIES,
    brief_schema,
    limited_parameters,
    unusable_part,
)
from casual_mcp_nb.base.tokens import definition_tokens
from casual_mcp_nb.base.tool import MAX_DESCRIPTION, ToolChange, ToolSpec


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.fault(39)
@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#", True),
        ("#/$defs/a", True),
        ("#/$defs/a/anyOf/1", True),
        ("#/$defs/a/anyOf/2", False),
        ("#/$defs/a/anyOf/x", False),
        ("#/$defs/c~1d", True),
        ("#/$defs/e%20f", True),
        ("#here", True),
        ("#there", False),
        ("https://schemas.example/b", True),
        ("https://schemas.example/other", False),
        ("other.json", False),
        ("", False),
    ],
)
def test_a_reference_leads_to_something_in_the_schema_or_is_named(
    reference: str, found: bool
) -> None:
    definitions = {
        "a": {"anyOf": [{}, {}]},
        "b": {"$id": "https://schemas.example/b", "$anchor": "here"},
        "c/d": {},
        "e f": {},
    }
    problem = unusable_part({"properties": {"x": {"$ref": reference}}, "$defs": definitions})
    if found:
        assert problem is None
    else:
        assert repr(reference) in (problem or "")


@pytest.mark.fault(39)
def test_recursion_ends_and_depth_has_a_limit() -> None:
    loop = {
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "properties": {"x": {"$ref": "#/$defs/a"}},
    }
    assert unusable_part(loop) is None
    assert unusable_part(nested(90)) is None
    assert "levels deep" in str(unusable_part(nested(100_000)))


@pytest.mark.fault(42)
@pytest.mark.timeout(30)
def test_a_wide_schema_is_checked_in_linear_time_and_keeps_required_parameters() -> None:
    wide = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string"} for n in range(100_000)},
        "required": ["p9000"],
    }
    assert unusable_part(wide) is None
    parameters, cuts = limited_parameters(wide)
    assert list(parameters["properties"])[:2] == ["p9000", "p0"]
    assert len(parameters["properties"]) == MAX_PROPERTIES
    assert cuts == ["its parameters to 500 of 100,000"]


def test_a_schema_within_the_bounds_is_given_as_it_is() -> None:
    schema = {
        "properties": {"a": {"type": "string", "description": "A."}},
        "additionalProperties": False,
        "required": ["a"],
    }
    assert limited_parameters(schema) == ({"type": "object", **schema}, [])
    assert ToolSpec("s", "t", "x" * MAX_DESCRIPTION).cuts == ()
    assert (
        len(ToolSpec("s", "t", "x" * MAX_DESCRIPTION).definition["description"]) == MAX_DESCRIPTION
    )


@pytest.mark.fault(42)
def test_parameters_too_long_for_a_model_are_left_out_and_not_counted() -> None:
    schema = {"properties": {"a": {"enum": ["x" * 100_000] * 2}}}
    tool = ToolSpec("s", "t", "Read a record.", schema)
    assert tool.definition["parameters"] == {"type": "object", "properties": {}}
    assert len(tool.cuts) == 1
    assert "characters, to none" in tool.cuts[0]
    assert tool.tokens == ToolSpec("s", "t", "Read a record.").tokens
    short = ToolSpec(
        "s", "t", "Read a record.", {"properties": {"a": {"enum": ["x" * 99_000] * 2}}}
    )
    assert short.cuts == ()
    assert short.tokens == definition_tokens(short.definition) > 20_000


@pytest.mark.fault(50)
def test_a_change_shows_what_was_said_before_and_now() -> None:
    change = ToolChange(ToolSpec("s", "t", "One."), ToolSpec("s", "t", "Two."))
    assert str(change.tool) == "s:t"
    assert [line for line in change.diff.splitlines() if line[0] in "+-"][2:] == [
        '-  "description": "One.",',
        '+  "description": "Two.",',
    ]


NOISY = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "searchArguments",
    "type": "object",
    "properties": {
        "max_hits": {
            "anyOf": [{"type": "integer"}, {"type": "null"}],
            "default": None,
            "title": "Max Hits",
        },
        "size": {
            "type": "integer",
            "minimum": -(2**53) + 1,
            "maximum": 2**53 - 1,
            "exclusiveMinimum": 0,
        },
        "title": {"type": "string", "title": "The heading", "default": "null"},
        "empty": {"type": "object", "properties": {}, "additionalProperties": False},
        "filter": {"$ref": "#/$defs/Filter"},
        "either": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
        "value": {"enum": [{"title": "value", "default": None}]},
    },
    "required": ["title"],
    "additionalProperties": False,
    "$defs": {
        "Filter": {
            "title": "Filter",
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "additionalProperties": False,
        }
    },
}


def test_a_brief_schema_says_the_same_in_fewer_words() -> None:
    assert brief_schema(NOISY) == {
        "type": "object",
        "properties": {
            "max_hits": {"type": ["integer", "null"]},
            "size": {"type": "integer", "exclusiveMinimum": 0},
            "title": {"type": "string", "title": "The heading", "default": "null"},
            "empty": {"type": "object", "properties": {}, "additionalProperties": False},
            "filter": {"$ref": "#/$defs/Filter"},
            "either": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
            "value": {"enum": [{"title": "value", "default": None}]},
        },
        "required": ["title"],
        "$defs": {"Filter": {"type": "object", "properties": {"a": {"type": "string"}}}},
    }
    assert brief_schema(brief_schema(NOISY)) == brief_schema(NOISY)


REFERRING = {
    "properties": {
        "a": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "A"},
        "b": {"$ref": "#/properties/a/anyOf/0"},
    }
}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": []},
        {"anyOf": {}},
        {"anyOf": [1]},
        {"title": 1, "default": None},
        {"items": True},
        nested(200),
        REFERRING,
    ],
)
def test_a_schema_that_cannot_be_shortened_stays_as_it_is(schema: Any) -> None:
    assert brief_schema(schema) == schema
