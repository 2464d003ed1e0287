"""The offline planner's analysis of a request: its needs, the values in it, and the arguments of a
tool.
"""

from __future__ import annotations

from typing import Any

import pytest

from casual_mcp_nb.offline.arguments import Filling, parameters_of
from casual_mcp_nb.offline.mentions import find_mentions
from casual_mcp_nb.offline.needs import Need, needs_of
from casual_mcp_nb.offline.phrases import reword

TEXT = {"type": "string"}
NUMBER = {"type": "number"}


def filled(
    text: str, properties: dict[str, Any], required: list[str] | None = None, **more: Any
) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
    }
    return Filling(Need(text), parameters_of({**schema, **more})).arguments


@pytest.mark.parametrize(
    ("request_text", "needs"),
    [
        ("What is 2 + 2?", ["What is 2 + 2?"]),
        ("What is 2 + 2 and which tables are there?", ["What is 2 + 2", "which tables are there?"]),
        ("Read a.txt, then count the words in it.", ["Read a.txt", "count the words in it."]),
        (
            "What time is it? How much disk space is free?",
            ["What time is it?", "How much disk space is free?"],
        ),
        ("What is the mean of 3, 5 and 8?", ["What is the mean of 3, 5 and 8?"]),
        (
            "Convert 5 miles to feet and convert 3 km to feet",
            ["Convert 5 miles to feet", "convert 3 km to feet"],
        ),
        (
            "How many words are in 'read this and then list that'?",
            ["How many words are in 'read this and then list that'?"],
        ),
        (
            "Count the words in: It rains. The sun shines.",
            ["Count the words in: It rains. The sun shines."],
        ),
    ],
)
def test_a_request_is_split_into_its_needs_but_never_inside_a_value(
    request_text: str, needs: list[str]
) -> None:
    assert [need.text for need in needs_of(request_text)] == needs


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("What is 12 * (3 + 4)?", "expression", "12 * (3 + 4)"),
        ("5 plus 7 times 2", "expression", "5 + 7 * 2"),
        ("What is 2^10?", "expression", "2 ** 10"),
        ("What is 15% of 80?", "expression", "15 / 100 * 80"),
        ("the square root of 144", "expression", "sqrt(144)"),
        ("subtract 5 from 12", "expression", "12 - 5"),
        ("It costs 1,234,567.5 in all", "number", 1234567.5),
        ("Draw twelve of them", "number", 12),
        ("at 3pm", "time", "15:00"),
        ("at 9:05 am", "time", "09:05"),
        ("at noon", "time", "12:00"),
        ("on 2026-11-20", "date", "2026-11-20"),
        ("on 1 March 2026", "date", "2026-03-01"),
        ("on March 1st, 2026", "date", "2026-03-01"),
        ("on 01.03.2026", "date", "2026-03-01"),
        ("in New York", "zone", "America/New_York"),
        ("in UTC", "zone", "UTC"),
        ("in America/Sao_Paulo", "zone", "America/Sao_Paulo"),
        ("read notes/todo.txt", "path", "notes/todo.txt"),
        ("read /etc/hosts", "path", "/etc/hosts"),
        ("find *.csv", "glob", "*.csv"),
        ("write to ann@example.org", "email", "ann@example.org"),
        ("see https://example.org/a?b=1.", "url", "https://example.org/a?b=1"),
        ("say “hello there”", "quoted", "hello there"),
        ("echo 'it's fine'", "quoted", "it's fine"),
        ("SELECT * FROM orders WHERE id > 3?", "sql", "SELECT * FROM orders WHERE id > 3"),
        ('call it with {"a": 1}', "json", {"a": 1}),
    ],
)
def test_a_value_is_recognised_for_what_it_is(text: str, kind: str, value: Any) -> None:
    assert (kind, value) in [
        (mention.kind, mention.value) for mention in find_mentions(reword(text))
    ]


@pytest.mark.parametrize(
    "text", ["Draw a map of the east", "Is it central?", "Show the second one"]
)
def test_ordinary_words_are_no_places_and_no_numbers(text: str) -> None:
    assert find_mentions(reword(text)) == []


def test_from_and_to_decide_which_of_two_values_is_meant() -> None:
    zones = {"from_timezone": TEXT, "to_timezone": TEXT}
    wanted = {"from_timezone": "Europe/Oslo", "to_timezone": "Asia/Tokyo"}
    assert filled("from Oslo to Tokyo", zones) == wanted
    assert filled("to Tokyo from Oslo", zones) == wanted
    assert filled("What time is it in Tokyo when it is 3pm in Oslo?", zones) == wanted
    assert filled("Copy a.txt to b.txt", {"source": TEXT, "destination": TEXT}) == {
        "source": "a.txt",
        "destination": "b.txt",
    }


def test_a_quantity_gives_its_number_and_its_unit() -> None:
    units = {"value": NUMBER, "from_unit": TEXT, "to_unit": TEXT}
    wanted = {"value": 3, "from_unit": "miles", "to_unit": "feet"}
    assert filled("How many feet are in 3 miles?", units) == wanted
    assert filled("3 miles to feet", units) == wanted


def test_an_amount_is_no_text_and_no_number_of_something_else() -> None:
    assert filled("How much are 26.2 miles?", {"number": TEXT}) == {}
    assert filled("Keep it for 3 days", {"count": NUMBER}) == {}
    assert filled("Keep it for 3 days", {"days": NUMBER}) == {"days": 3}


def test_an_enum_takes_the_word_or_its_plural() -> None:
    scale = {"enum": ["celsius", "fahrenheit", "kelvin"]}
    kinds = {"kind": {"type": "string", "enum": ["file", "folder"]}}
    assert filled(
        "Convert 100 fahrenheit to Celsius", {"value": NUMBER, "from_unit": scale, "to_unit": scale}
    ) == {
        "value": 100,
        "from_unit": "fahrenheit",
        "to_unit": "celsius",
    }
    assert filled("List all folders", kinds) == {"kind": "folder"}


def test_numbers_fill_arrays_and_integers_only_within_their_limits() -> None:
    assert filled("The mean of 3, 5 and 8.5", {"numbers": {"type": "array", "items": NUMBER}}) == {
        "numbers": [3, 5, 8.5]
    }
    assert filled("Of 3.5", {"n": {"type": "integer"}}) == {}
    assert filled("In base 99", {"base": {"type": "integer", "minimum": 2, "maximum": 36}}) == {}


def test_optional_parameters_are_filled_only_when_they_are_said() -> None:
    optional = {"text": TEXT, "ignore_case": {"type": "boolean"}, "limit": {"type": "integer"}}
    assert filled("Find 'abc'", optional, ["text"]) == {"text": "abc"}
    assert filled("Find 'abc', ignore case, limit 5", optional, ["text"]) == {
        "text": "abc",
        "ignore_case": True,
        "limit": 5,
    }
    assert filled("Find 'abc' but do not ignore case", optional, ["text"]) == {
        "text": "abc",
        "ignore_case": False,
    }


def test_an_argument_that_is_given_by_name_is_taken_as_it_is() -> None:
    assert filled("Call it with a=2 and b=3.5", {"b": NUMBER, "a": NUMBER}) == {"a": 2, "b": 3.5}
    assert filled('city: "Rio de Janeiro"', {"city": TEXT}) == {"city": "Rio de Janeiro"}


def test_a_name_beside_its_noun_is_found() -> None:
    assert filled("Describe the orders table", {"table": TEXT}) == {"table": "orders"}
    assert filled("Describe table orders", {"table": TEXT}) == {"table": "orders"}
    assert filled("Describe the table", {"table": TEXT}) == {}


def test_mere_words_fill_a_text_only_after_a_word_that_introduces_it() -> None:
    assert filled("Echo: good morning", {"message": TEXT}) == {"message": "good morning"}
    assert filled("Count the words in: red blue", {"text": TEXT}) == {"text": "red blue"}
    assert filled("Search the notes for bread", {"query": TEXT}) == {"query": "bread"}
    assert filled("Echo good morning", {"message": TEXT}) == {}
    assert filled("How many lamps are there?", {"text": TEXT}) == {}


def test_references_unions_and_lists_of_types_are_understood() -> None:
    properties = {
        "zone": {"$ref": "#/$defs/Zone"},
        "count": {"anyOf": [{"type": "null"}, {"type": "integer"}]},
        "flag": {"type": ["boolean", "string"]},
        "any": True,
    }
    text = "In Oslo, count 3"
    assert filled(
        text,
        properties,
        ["zone", "count"],
        **{"$defs": {"Zone": {"type": "string", "description": "IANA time zone"}}},
    ) == {
        "zone": "Europe/Oslo",
        "count": 3,
    }


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": []},
        {"properties": {"a": {"anyOf": 5, "enum": {}}}, "required": [["a"], None]},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"properties": {"a": {"$ref": "#"}}, "anyOf": [{"$ref": "#"}] * 100},
    ],
)
@pytest.mark.timeout(5)
def test_a_broken_or_endless_schema_does_no_harm(schema: dict[str, Any]) -> None:
    assert isinstance(parameters_of(schema), list)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "(" * 3000,
        "[" * 3000,
        "1+" * 3000,
        "'" * 3000,
        "a/" * 3000,
        "select " * 1000,
        "9" * 5000,
        "1e999",
    ],
)
@pytest.mark.timeout(10)
def test_a_hostile_request_is_read_in_reasonable_time(text: str) -> None:
    assert len(find_mentions(text)) < 3000
    assert needs_of(text)
