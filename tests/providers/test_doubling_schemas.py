"""References that double at each level: requests and answers with them are still read in a
moment.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from casual_mcp_nb.providers._strict_schema import strict_schema, without_nulls

ARGUMENTS = json.dumps({"x": {"a": None, "b": None}, "y": None})


def doubling(word: str, levels: int = 40) -> dict[str, Any]:
    parts: dict[str, Any] = {
        f"d{level}": {word: [{"$ref": f"#/$defs/d{level + 1}"}, {"$ref": f"#/$defs/d{level + 1}"}]}
        for level in range(levels)
    }
    leaf = {"type": "object", "properties": {"a": {"type": "string"}}}
    properties = {"x": {"$ref": "#/$defs/d0"}, "y": {"type": "string"}}
    return {"type": "object", "properties": properties, "$defs": {**parts, f"d{levels}": leaf}}


@pytest.mark.defect("A2")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("word", ["anyOf", "oneOf", "allOf"])
def test_arguments_for_a_schema_that_doubles_are_read(word: str) -> None:
    strict_schema(doubling(word))
    assert json.loads(without_nulls(ARGUMENTS, doubling(word))) == {"x": {"a": None, "b": None}}


@pytest.mark.timeout(20)
def test_a_reference_to_itself_ends() -> None:
    schema = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 2}},
    }
    assert json.loads(without_nulls('{"x": {"b": null}}', schema)) == {"x": {"b": None}}
