"""Odd schemas of tools: the kinds that people report, and as many as you like of a seeded
generator.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]


def _tool(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


REPORTED: Mapping[str, Schema] = {
    "anyOf at the top": {
        "anyOf": [
            {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
            {"type": "object", "properties": {"slug": {"type": "string"}}, "required": ["slug"]},
        ]
    },
    "oneOf of requirements": {
        **_tool(title={"type": "string"}, text={"type": "string"}),
        "oneOf": [{"required": ["title"]}, {"required": ["text"]}],
    },
    "allOf at the top": {
        "allOf": [_tool(a={"type": "string"}), {**_tool(b={"type": "number"}), "required": ["b"]}]
    },
    "allOf with conditions": {
        **_tool(mode={"type": "string"}, size={"type": "integer"}),
        "allOf": [
            {"if": {"properties": {"mode": {"const": "big"}}}, "then": {"required": ["size"]}}
        ],
    },
    "a reference at the top": {
        "$ref": "#/$defs/Args",
        "$defs": {"Args": _tool(a={"type": "string"})},
    },
    "not at the top": {**_tool(a={"type": "string"}), "not": {"required": ["a", "b"]}},
    "brackets in a name": {
        **_tool(**{"filter[name]": {"type": "string"}}),
        "required": ["filter[name]"],
    },
    "a name of 70 characters": _tool(**{"settings__" + "x" * 60: {"type": "boolean"}}),
    "dollar and at": _tool(**{"$top": {"type": "integer"}, "@odata.type": {"type": "string"}}),
    "a name that nests": _tool(
        where={**_tool(**{"user name": {"type": "string"}}), "required": ["user name"]}
    ),
    "an array without items": _tool(tags={"type": "array"}),
    "an array in an array without items": _tool(rows={"type": "array", "items": {"type": "array"}}),
    "a tuple": _tool(
        point={
            "type": "array",
            "prefixItems": [{"type": "number"}, {"type": "number"}],
            "items": False,
        }
    ),
    "a tuple of draft 7": _tool(
        point={"type": "array", "items": [{"type": "number"}, {"type": "string"}]}
    ),
    "type int": _tool(n={"type": "int"}),
    "type any": _tool(n={"type": "any"}),
    "an empty type": _tool(n={"type": ""}),
    "type None at the top": {"type": "None"},
    "types in capitals": {"type": "OBJECT", "properties": {"n": {"type": "STRING"}}},
    "required in a property": _tool(n={"type": "string", "required": True}),
    "required in a property, not": _tool(n={"type": "string", "required": False}),
    "a boolean exclusiveMinimum": _tool(
        n={"type": "number", "minimum": 0, "exclusiveMinimum": True}
    ),
    "enum null": _tool(n={"type": "string", "enum": None}),
    "an empty enum": _tool(n={"type": "string", "enum": []}),
    "a doubled enum": _tool(n={"type": "string", "enum": ["a", "a", "b"]}),
    "an enum of numbers": _tool(n={"type": "integer", "enum": [1, 2, 3]}),
    "a constant number": _tool(n={"const": 4}),
    "properties as a list": {"type": "object", "properties": []},
    "required twice": {**_tool(a={"type": "string"}), "required": ["a", "a"]},
    "required null": {**_tool(a={"type": "string"}), "required": None},
    "required of nothing": {**_tool(a={"type": "string"}), "required": ["b"]},
    "a keyword among the properties": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "type": "object"},
    },
    "a property that is a text": _tool(name="string"),
    "a property that is null": _tool(name=None),
    "a broken pattern": _tool(n={"type": "string", "pattern": "[a-"}),
    "look-ahead": _tool(n={"type": "string", "pattern": "^(?!\\.)[a-z]+$"}),
    "a class of Unicode": _tool(n={"type": "string", "pattern": "^\\p{L}+$"}),
    "a back reference": _tool(n={"type": "string", "pattern": "^(a)\\1$"}),
    "a pattern without anchors": _tool(n={"type": "string", "pattern": "[0-9]+"}),
    "digits in a pattern": _tool(n={"type": "string", "pattern": "^\\d{3}$"}),
    "long texts": _tool(n={"type": "string", "maxLength": 10_000}),
    "long lists": _tool(n={"type": "array", "items": {"type": "string"}, "maxItems": 5_000}),
    "what nothing fits": _tool(n={"anyOf": [{"not": {}}, {"type": "string"}]}, m=False),
    "another draft": {
        **_tool(n={"type": "string"}),
        "$schema": "http://json-schema.org/draft-07/schema#",
    },
    "a title that is a number": _tool(n={"type": "string", "title": 5, "description": None}),
    "lengths as texts": _tool(n={"type": "string", "maxLength": "80", "minLength": -1}),
    "choices that are no list": _tool(n={"anyOf": {"type": "string"}}),
    "no choices": _tool(n={"type": "string", "anyOf": []}),
}
"""The kinds that people report of providers, by their name."""


def generated(count: int, seed: int = 20_261_127) -> Iterator[tuple[str, Schema]]:
    """Yield odd object schemas, the same ones each time."""
    draw = random.Random(seed)
    for number in range(count):
        schema: dict[str, Any] = {
            "type": draw.choice(["object", "object", "object", "Object", None, ["object"]])
        }
        names = draw.sample(_NAMES, draw.randint(0, 5))
        schema["properties"] = {name: _part(draw, 0) for name in names}
        if draw.random() < 0.5:
            schema["required"] = draw.choice(
                [names[:2], names[:1] * 2, None, "a", [1, *names[:1]], ["missing"]]
            )
        if draw.random() < 0.25:
            options = [
                {"properties": {name: _part(draw, 2)}, "required": [name]} for name in names[:3]
            ]
            schema[draw.choice(["anyOf", "oneOf", "allOf"])] = options
        if draw.random() < 0.1:
            schema["additionalProperties"] = draw.choice(
                [False, True, {}, None, "false", {"type": "str"}]
            )
        yield (
            f"generated{number}",
            {
                word: value
                for word, value in schema.items()
                if value is not None or draw.random() < 0.5
            },
        )


_NAMES = [
    "a",
    "b",
    "filter[x]",
    "@type",
    "with space",
    "type",
    "required",
    "x" * 70,
    "naïve",
    "items",
    "n.1",
    "$top",
]
_WORDS = [
    "string",
    "integer",
    "int",
    "float",
    "String",
    "any",
    "",
    "None",
    "list",
    "array",
    "object",
    "dict",
    "file",
    None,
    5,
]
_PATTERNS = [
    "^a$",
    "a+",
    "(",
    "^(?=a)b$",
    "\\p{L}",
    "^\\w+$",
    "(a)\\1",
    "^[a-z]{2,5000}$",
    "x" * 1_200,
]


def _part(draw: random.Random, depth: int) -> Any:
    if draw.random() < 0.06:
        return draw.choice([True, False, None, "string", "object", 5, [], "nonsense"])
    part: dict[str, Any] = {}
    if draw.random() < 0.85:
        part["type"] = draw.choice(
            [*_WORDS, ["string", "null"], ["int", "null"], [], ["string", "string"]]
        )
    for word, values in _VALUES.items():
        if draw.random() < 0.09:
            part[word] = draw.choice(values)
    if draw.random() < 0.1:
        part["pattern"] = draw.choice(_PATTERNS)
    if depth < 3:
        if draw.random() < 0.2:
            part["items"] = draw.choice(
                [_part(draw, depth + 1), [_part(draw, depth + 1)], [], True, False, None]
            )
        if draw.random() < 0.15:
            part["properties"] = draw.choice(
                [{name: _part(draw, depth + 1) for name in draw.sample(_NAMES, 2)}, [], None]
            )
        if draw.random() < 0.15:
            part[draw.choice(["anyOf", "oneOf", "allOf", "prefixItems"])] = draw.choice(
                [[_part(draw, depth + 1), _part(draw, depth + 1)], [], None, _part(draw, depth + 1)]
            )
    return part


_VALUES: Mapping[str, list[Any]] = {
    "enum": [None, [], ["a", "a"], ["a", 1, True, 1.0], {"a": 1}, "a", [[1], [1]]],
    "const": [1, "x", None],
    "required": [True, False, "true", [], ["a", "a"], None, {"a": 1}],
    "minimum": [0, "0", True, None, float("nan")],
    "exclusiveMinimum": [True, False, 1, "1"],
    "exclusiveMaximum": [True, 9],
    "multipleOf": [0, -1, 2, "2"],
    "maxLength": [10, -1, "80", 9_999, 1.5, True],
    "minItems": [0, 5_000, None],
    "uniqueItems": [True, "true", None],
    "default": [None, 5, "x", []],
    "description": ["Text.", None, 5, ["a"]],
    "title": ["T", 5],
    "format": ["email", None, 3],
    "examples": [["a"], "a", None],
    "additionalProperties": [False, {"type": "int"}, None, "true"],
    "$schema": ["http://json-schema.org/draft-04/schema#", 4],
    "$id": ["#here", "x"],
    "dependentRequired": [{"a": ["b", "b"]}, [], {"a": "b"}],
}
