"""The strict form of a tool's schema, and the arguments that come back for it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from casual_llm.messages import UserMessage
from kit.schema_rules import SchemaStrict, strict_openai

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.providers._strict_schema import (
    all_required,
    strict_schema,
    without_nulls,
)

STEP = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "next": {"$ref": "#/$defs/Step"},
        "minutes": {"type": "integer", "minimum": 1},
    },
    "required": ["title"],
}
SCHEMA = {
    "type": "object",
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 80, "description": "Its name."},
        "limit": {"type": "integer", "default": 5, "minimum": 1},
        "order": {"type": "string", "enum": ["up", "down"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "kind": {"const": "recipe", "type": "string"},
        "value": {"type": ["string", "number"]},
        "first": {"$ref": "#/$defs/Step", "description": "Where it begins."},
        "steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}, "maxItems": 9},
    },
    "required": ["name"],
    "$defs": {"Step": STEP},
}
FULL = {
    "name": "tea",
    "limit": None,
    "order": None,
    "note": None,
    "kind": None,
    "value": None,
    "first": {"title": "boil", "next": None, "minutes": 3},
    "steps": [
        {
            "title": "pour",
            "next": {"title": "drink", "next": None, "minutes": None},
            "minutes": None,
        }
    ],
}
LEAN = {
    "name": "tea",
    "note": None,
    "first": {"title": "boil", "minutes": 3},
    "steps": [{"title": "pour", "next": {"title": "drink"}}],
}


def objects_in(schema: Any) -> list[dict[str, Any]]:
    parts = (
        schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else []
    )
    own = (
        [schema] if isinstance(schema, dict) and isinstance(schema.get("properties"), dict) else []
    )
    return [*own, *(found for part in parts for found in objects_in(part))]


def test_every_object_is_closed_and_all_its_properties_are_required() -> None:
    strict = strict_schema(SCHEMA)
    found = objects_in(strict)
    assert len(found) == 2
    for each in found:
        assert each["required"] == list(each["properties"])
        assert each["additionalProperties"] is False


def test_only_what_was_optional_and_took_no_null_takes_null_now() -> None:
    properties = (strict_schema(SCHEMA) or {})["properties"]
    assert properties["name"]["type"] == "string"
    assert properties["limit"]["type"] == ["integer", "null"]
    assert properties["order"] == {"type": ["string", "null"], "enum": ["up", "down", None]}
    assert properties["note"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert properties["kind"]["anyOf"] == [{"type": "string", "const": "recipe"}, {"type": "null"}]
    assert properties["value"]["anyOf"] == [
        {"type": "string"},
        {"type": "number"},
        {"type": "null"},
    ]
    assert properties["first"]["anyOf"] == [{"$ref": "#/$defs/Step"}, {"type": "null"}]
    assert properties["steps"]["type"] == ["array", "null"]


def test_defaults_and_lengths_which_the_strict_form_refuses_are_told_in_words() -> None:
    properties = (strict_schema(SCHEMA) or {})["properties"]
    assert (
        properties["name"]["description"]
        == "Its name. Characters at least: 1. Characters at most: 80."
    )
    assert properties["limit"]["description"] == "Default: 5."
    assert not {"default", "minLength", "maxLength"} & set(
        str(properties).replace("'", " ").split()
    )


def test_arguments_for_the_strict_form_become_arguments_for_the_tool() -> None:
    jsonschema.validate(FULL, strict_schema(SCHEMA))
    back = json.loads(without_nulls(json.dumps(FULL), SCHEMA))
    assert back == LEAN
    jsonschema.validate(back, SCHEMA)


@pytest.mark.parametrize(
    "arguments",
    [
        '{"name":  "tea"}',
        '{"name": "tea", "other": null}',
        '{"name":',
        "[null]",
        "null",
        "[" * 100_000,
    ],
)
def test_other_arguments_stay_as_the_model_wrote_them(arguments: str) -> None:
    assert without_nulls(arguments, SCHEMA) == arguments


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": True},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"properties": {"x": {"type": "object"}}},
        {"properties": {"x": {"type": "object", "properties": {"y": {}}}}},
        {"properties": {"x": True}},
        {"properties": {"x": {"type": "array"}}},
        {"properties": {"x": {"type": "array", "items": [{"type": "string"}]}}},
        {"properties": {"x": {"type": "string", "not": {"const": "y"}}}},
        {"properties": {"x": {"type": "text"}}},
        {"properties": {"x": {"allOf": [{"type": "string"}, {"type": "number"}]}}},
        {"properties": {"x": {"$ref": "https://example.com/schema"}}},
        {"properties": {"x": {"type": "string", "enum": [str(n) for n in range(1_001)]}}},
        {"properties": {}, "required": ["x"]},
        {"properties": {}, "patternProperties": {"^x": {"type": "string"}}},
        {"properties": ["x"]},
        {"properties": {"x": {"type": "string"}}, "$defs": {"y": {"if": {}}}},
    ],
)
def test_a_schema_that_has_no_strict_form_is_known(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None


def test_a_schema_nested_deeper_than_openai_takes_has_no_strict_form() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "string"}}}
    for _ in range(10):
        assert strict_schema(schema) is not None
        schema = {"type": "object", "properties": {"x": schema}}
    assert strict_schema({"type": "object", "properties": {"x": schema}}) is None


def test_a_tool_without_parameters_has_a_strict_form() -> None:
    empty = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert strict_schema({"type": "object"}) == empty


@pytest.mark.parametrize(
    "empty",
    [
        {"type": "object", "additionalProperties": False},
        {"type": "object", "properties": None, "additionalProperties": False},
        {"anyOf": [{"type": "null"}, {"type": "object", "additionalProperties": False}]},
    ],
)
def test_an_empty_object_stays_beside_an_omitted_argument(empty: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"x": empty, "y": {"type": "string"}}}
    assert strict_schema(schema) is not None
    assert without_nulls('{"x": {}, "y": null}', schema) == '{"x": {}}'


@pytest.mark.parametrize("choice", ["anyOf", "oneOf"])
def test_of_several_objects_the_one_that_the_model_took_is_cleaned(choice: str) -> None:
    one = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "required": ["a"],
    }
    two = {
        "type": "object",
        "properties": {"c": {"type": "string"}, "d": {"type": ["string", "null"]}},
    }
    schema = {"type": "object", "properties": {"x": {choice: [one, two]}}, "required": ["x"]}
    assert without_nulls('{"x": {"c": null, "d": null}}', schema) == '{"x": {"d": null}}'
    assert without_nulls('{"x": {"a": "1", "b": null}}', schema) == '{"x": {"a": "1"}}'


def test_an_answer_of_which_every_part_is_wanted_leaves_nothing_out() -> None:
    made = all_required(SCHEMA)
    assert made["required"] == list(SCHEMA["properties"])
    assert made["$defs"]["Step"]["required"] == ["title", "next", "minutes"]
    assert (strict_schema(made) or {})["properties"]["limit"]["type"] == "integer"


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _text(**words: Any) -> dict[str, Any]:
    return _object(n={"type": "string", **words})


DECIMAL = r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"
LOOKS_STRICT = {
    "look-ahead": _text(pattern="^(?=a)b$"),
    "look-behind": _text(pattern="(?<!a)b"),
    "a Decimal of pydantic": {
        "type": "object",
        "properties": {
            "n": {"anyOf": [{"type": "number"}, {"type": "string", "pattern": DECIMAL}]}
        },
    },
    "a back reference": _text(pattern=r"^(a)\1$"),
    "a named back reference": _text(pattern="^(?P<x>a)(?P=x)$"),
    "a class of Unicode": _text(pattern=r"^\p{L}+$"),
    "an invalid pattern": _text(pattern="(a"),
    "an empty enum": _text(enum=[]),
    "a doubled enum": _text(enum=["a", "b", "a"]),
    "an enum that is no list": _text(enum=None),
    "an enum of another type": _text(enum=["a", 1]),
    "an enum on an array": {
        "type": "object",
        "properties": {"n": {"type": "array", "items": {"type": "string"}, "enum": [["a"]]}},
    },
    "1,001 choices": _text(enum=[f"v{number}" for number in range(1_001)]),
    "1,001 choices in two": {
        "type": "object",
        "properties": {
            name: {"type": "string", "enum": [f"{name}{n}" for n in range(501)]} for name in "ab"
        },
    },
    "300 long choices": _text(enum=["x" * 60 + str(number) for number in range(300)]),
    "5,001 properties": _object(**{f"p{number}": {"type": "string"} for number in range(5_001)}),
    "long names": _object(
        **{f"{number}".rjust(60, "p"): {"type": "string"} for number in range(2_500)}
    ),
    "an object without its type": _object(n={"properties": {"a": {"type": "string"}}}),
}
IN_WORDS = [name for name in LOOKS_STRICT if "look" in name or "back" in name or "pattern" in name]
IN_WORDS += ["a Decimal of pydantic", "a class of Unicode"]


@pytest.mark.defect("M5")
@pytest.mark.parametrize("name", LOOKS_STRICT)
def test_what_openai_refuses_to_enforce_is_not_sent_as_strict(name: str) -> None:
    schema = LOOKS_STRICT[name]
    strict = strict_schema(schema)
    assert strict is None or strict_openai("t", strict) is None
    if name in IN_WORDS:
        assert strict is not None
        assert "Pattern: " in json.dumps(strict)
    if name in ("a doubled enum", "an object without its type"):
        assert strict is not None


@pytest.mark.defect("M5")
def test_a_pattern_that_openai_takes_stays() -> None:
    for pattern in ("^[a-z]+$", r"^\d{4}-\d\d$", "^(?:a|b)$", r"\(\?=a", "[(?=]a"):
        strict = strict_schema(_text(pattern=pattern))
        assert strict is not None
        assert strict["properties"]["n"]["pattern"] == pattern


@pytest.mark.defect("M5")
async def test_openai_refuses_no_request_for_a_schema_that_it_would_enforce(
    factory_for: Any,
) -> None:
    tools = [
        {"name": f"t{number}", "description": "Do it.", "parameters": each}
        for number, each in enumerate(LOOKS_STRICT.values())
    ]
    with SchemaStrict("openai-responses") as server:
        model = factory_for(Config.model_validate(server.config)).chat_model()
        answer = await model.complete([UserMessage(content="Do it")], tools, stream=False)
    assert answer.message.content == "done"
    assert server.refused == []
