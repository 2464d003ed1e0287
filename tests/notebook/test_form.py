"""Forms of servers: their fields, and valid answers."""

from __future__ import annotations

from typing import Any

import pytest

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.forms import MAX_CHOICES, MAX_FIELDS, checked, fields_of

WRONG = {
    "email": [
        "ada",
        "ada@",
        "@example.com",
        "ada@exam ple.com",
        "ada@example.com, eve@evil.example",
        "a\r\nBcc: b@c",
        "ä@ö.de",
    ],
    "uri": ["example.com", "https://", "https://a b", "//example.com", "http://[::1", "x:<y>"],
    "date": ["28.7.2026", "2026-02-30", "20260728", "2026-W31-2", "2026-07-28T00:00"],
    "date-time": ["2026-07-28", "2026-07-28T14:30:00", "2026-07-28 14:30Z", "noon"],
}
"""What is not in the format that a field wants."""


COMMAS = {
    "type": "array",
    "items": {
        "anyOf": [
            {"const": "tx", "title": "Paris"},
            {"const": "fr", "title": "Paris, France"},
            {"const": "no", "title": "Oslo, Norway"},
        ]
    },
}
"""Choices whose labels have commas, one of them the beginning of another."""


def field(part: Any, required: bool = False) -> Any:
    (made,) = fields_of(
        {"type": "object", "properties": {"x": part}, "required": ["x"] if required else []}
    )
    return made


@pytest.mark.parametrize(
    ("part", "kind", "choices"),
    [
        ({"type": "string"}, "text", ()),
        ({"type": "integer"}, "integer", ()),
        ({"type": "number"}, "number", ()),
        ({"type": "boolean"}, "boolean", ()),
        ({"type": "string", "enum": ["a", "b"]}, "choice", (("a", "a"), ("b", "b"))),
        (
            {"enum": ["a", "b"], "enumNames": ["An a", "A b"]},
            "choice",
            (("a", "An a"), ("b", "A b")),
        ),
        (
            {"type": "string", "oneOf": [{"const": "a", "title": "An a"}, {"const": "b"}]},
            "choice",
            (("a", "An a"), ("b", "b")),
        ),
        ({"type": "array", "items": {"enum": ["a"]}}, "choices", (("a", "a"),)),
        (
            {"type": "array", "items": {"anyOf": [{"const": "a", "title": "An a"}]}},
            "choices",
            (("a", "An a"),),
        ),
        ({"type": "object", "properties": {"deep": {}}}, "text", ()),
        ({"type": "array", "items": 3}, "text", ()),
        ({"enum": "abc"}, "text", ()),
        ("nonsense", "text", ()),
        ({}, "text", ()),
    ],
)
def test_a_property_becomes_a_field(
    part: Any, kind: str, choices: tuple[tuple[str, str], ...]
) -> None:
    assert (field(part).kind, field(part).choices) == (kind, choices)


@pytest.mark.parametrize(
    "schema", [{}, {"properties": None}, {"properties": [1]}, {"properties": {}, "required": 3}]
)
def test_a_schema_without_properties_is_a_form_without_fields(schema: dict[str, Any]) -> None:
    assert fields_of(schema) == ()
    assert checked((), {}) == {}


def test_what_a_server_writes_is_cleaned_and_bounded() -> None:
    made = field(
        {
            "title": "a\u202eb" + "x" * 500,
            "description": "\x1b[31mred",
            "enum": ["y"] * 5000,
            "default": {"no": 1},
        }
    )
    assert "\u202e" not in made.title
    assert len(made.title) < 200
    assert "\x1b" not in made.description
    assert len(made.choices) == MAX_CHOICES
    assert made.default is None
    assert len(fields_of({"properties": {str(number): {} for number in range(500)}})) == MAX_FIELDS


@pytest.mark.parametrize(
    ("part", "given", "taken"),
    [
        ({"type": "string"}, "  a ", "  a "),
        ({"type": "string"}, 3, "3"),
        ({"type": "integer"}, "3", 3),
        ({"type": "integer"}, 3.0, 3),
        ({"type": "integer"}, 10**30, 10**30),
        ({"type": "integer"}, "9007199254740993", 9007199254740993),
        ({"type": "integer"}, " -123456789012345678 ", -123456789012345678),
        ({"type": "integer"}, "9007199254740993.0", 9007199254740993),
        ({"type": "integer"}, "1e30", 10**30),
        ({"type": "integer", "maximum": 2**53 + 1}, str(2**53 + 1), 2**53 + 1),
        ({"type": "number"}, "9007199254740993", 9007199254740993),
        ({"type": "number"}, " 2.5 ", 2.5),
        ({"type": "boolean"}, "no", False),
        ({"type": "boolean"}, True, True),
        ({"enum": ["a"], "enumNames": ["An a"]}, "An a", "a"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, ["b", "a"], ["b", "a"]),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "a", ["a"]),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "b ,a", ["b", "a"]),
        (COMMAS, "Paris, France, Paris, Oslo, Norway", ["fr", "tx", "no"]),
        (COMMAS, "no,Paris", ["no", "tx"]),
        ({"type": "string", "format": "email"}, " ada@example.com ", "ada@example.com"),
        (
            {"type": "string", "format": "uri"},
            "https://example.com/a?b=c#d",
            "https://example.com/a?b=c#d",
        ),
        ({"type": "string", "format": "uri"}, "urn:isbn:0451450523", "urn:isbn:0451450523"),
        ({"type": "string", "format": "date"}, "2028-02-29", "2028-02-29"),
        (
            {"type": "string", "format": "date-time"},
            "2026-07-28T14:30:00.5Z",
            "2026-07-28T14:30:00.5Z",
        ),
        (
            {"type": "string", "format": "date-time"},
            "2026-07-28t14:30:00+02:00",
            "2026-07-28t14:30:00+02:00",
        ),
        ({"type": "string", "format": "hostname"}, " any text ", " any text "),
    ],
)
def test_an_answer_comes_in_the_type_that_the_field_wants(
    part: Any, given: Any, taken: Any
) -> None:
    value = checked((field(part),), {"x": given})["x"]
    assert value == taken
    assert type(value) is type(taken)


@pytest.mark.parametrize("empty", [None, "", []])
def test_what_is_left_empty_is_left_out_unless_it_is_required(empty: Any) -> None:
    part = {"type": "array", "items": {"enum": ["a"]}}
    assert checked((field(part),), {"x": empty}) == {}
    with pytest.raises(UsageError, match="must be filled in"):
        checked((field(part, required=True),), {"x": empty})


@pytest.mark.defect("J6")
@pytest.mark.parametrize(
    ("part", "given", "words"),
    [
        ({"type": "integer"}, "1.5", "whole number"),
        ({"type": "integer"}, "9007199254740992.5", "whole number"),
        ({"type": "integer"}, "1e999999999", "whole number"),
        ({"type": "integer"}, "1" * 5_000, "whole number"),
        ({"type": "number"}, "1e99999999999999999999", "takes a number"),
        ({"type": "integer"}, True, "takes a number"),
        ({"type": "integer", "maximum": 2**53}, str(2**53 + 1), f"at most {2**53}"),
        ({"type": "integer", "minimum": 10**400}, 1, "at least 1000"),
        ({"type": "number"}, "nan", "a number"),
        ({"type": "number"}, "much", "takes a number"),
        ({"type": "number", "minimum": 1}, 0, "at least 1"),
        ({"type": "number", "maximum": 1}, 2, "at most 1"),
        ({"type": "string", "minLength": 3}, "ab", "at least 3 characters"),
        ({"type": "string", "maxLength": 1}, "ab", "at most 1 characters"),
        ({"type": "boolean"}, "perhaps", "yes or no"),
        ({"enum": ["a", "b"]}, "c", "one of: a, b"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, ["a", "c"], "one of: a, b"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "a, c", "one of: a, b"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "a b", "one of: a, b"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "a,,b", "one of: a, b"),
        *(
            ({"type": "string", "format": name}, wrong, "such as")
            for name, wrongs in WRONG.items()
            for wrong in wrongs
        ),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_in_words(part: Any, given: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        checked((field(part),), {"x": given})
