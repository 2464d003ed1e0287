"""Structured content is checked against the schema that its server declared, and no schema can hold
the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from kit.loop_guard import LoopGuard
from kit.waiting import wait_until

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.schema import fits_plainly
from casual_mcp_nb.servers.connection import Connection

Raw = Callable[..., ServerConfig]
Opened = Callable[..., Any]


def doubling(levels: int) -> dict[str, Any]:
    """A schema whose check takes 2 to the power of `levels` steps, without any pattern."""
    parts: dict[str, Any] = {
        f"d{level}": {
            "allOf": [{"$ref": f"#/$defs/d{level + 1}"}, {"$ref": f"#/$defs/d{level + 1}"}]
        }
        for level in range(levels)
    }
    return {"type": "object", "$ref": "#/$defs/d0", "$defs": {**parts, f"d{levels}": {}}}


def nested_one_of(levels: int) -> dict[str, Any]:
    """A schema without a reference that doubles the work at each level: `oneOf` looks at its parts
    twice.
    """
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"oneOf": [schema, {"not": schema}]}
    return schema


ENDLESS = {
    "a pattern": ({"properties": {"x": {"pattern": "^(a+)+$"}}}, {"x": "a" * 32 + "!"}),
    "a pattern for names": ({"patternProperties": {"^(a+)+$": {}}}, {"a" * 32 + "!": 1}),
    "references that double": (doubling(26), {}),
    "alternatives that double": ({"properties": {"x": nested_one_of(14)}}, {"x": 1}),
    "unique items": (
        {"properties": {"x": {"uniqueItems": True}}},
        {"x": [{"n": n} for n in range(6000)]},
    ),
}


def serving(raw: Raw, schema: dict[str, Any], value: Any) -> ServerConfig:
    result = {"content": [{"type": "text", "text": "words"}], "structuredContent": value}
    odd = {"name": "odd", "inputSchema": {"type": "object"}, "outputSchema": schema}
    plain = {"name": "plain", "inputSchema": {"type": "object"}}
    # Some schemas are so large that a busy machine takes long to read them.
    patient = {"init_timeout": 60.0}
    return raw(
        config=patient,
        tools=[odd, plain],
        calls={"odd": {"result": result}, "plain": {"result": {"content": []}}},
    )


@pytest_asyncio.fixture
async def connected(opened: Opened, raw: Raw, tmp_path: Any) -> AsyncIterator[Callable[..., Any]]:
    async def connect(schema: dict[str, Any], value: Any) -> Connection:
        config = serving(partial(raw, folder=tmp_path), {"type": "object", **schema}, value)
        connection: Connection = opened(Connection("odd", config))
        await connection.connect()
        return connection

    yield connect


@pytest.mark.slow
@pytest.mark.defect("A2")
@pytest.mark.parametrize(("schema", "value"), ENDLESS.values(), ids=ENDLESS.keys())
async def test_a_result_whose_check_never_ends_is_passed_on_as_unchecked(
    connected: Callable[..., Any], schema: dict[str, Any], value: Any
) -> None:
    connection = await connected(schema, value)
    guard = LoopGuard()
    guard.start()
    try:
        async with asyncio.timeout(30):
            first, other = await asyncio.gather(
                connection.call("odd", {}), connection.call("plain", {})
            )
            again = await connection.call("odd", {})
    finally:
        guard.stop()
    assert not guard.take()
    for result in (first, again):
        assert not result.is_error
        assert result.structured == value
        assert [part.text for part in result.content[:1]] == ["words"]
        assert "not checked" in result.content[-1].text
    assert not other.is_error


@pytest.mark.defect("A2")
async def test_a_schema_that_took_too_long_once_is_not_tried_at_each_call(
    connected: Callable[..., Any],
) -> None:
    connection = await connected(*ENDLESS["a pattern"])
    await connection.call("odd", {})
    async with asyncio.timeout(1.5):
        results = await asyncio.gather(*(connection.call("odd", {}) for _ in range(20)))
    assert all("not checked" in result.content[-1].text for result in results)


BREACHES = {
    "plain": ({"properties": {"a": {"type": "integer"}}}, {"a": "x"}, "$.a"),
    "pattern": ({"properties": {"a": {"pattern": "^b"}}}, {"a": "x"}, "$.a"),
    "reference": (
        {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "null"}}},
        {"a": 1},
        "$.a",
    ),
    "missing": ({"required": ["a"]}, {}, "required"),
    "further": ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1}, "'b'"),
    "reference to nowhere": ({"$ref": "#/$defs/none"}, {}, "not valid"),
    "pattern that is none": ({"properties": {"a": {"pattern": "("}}}, {"a": "x"}, "not valid"),
}


@pytest.mark.fault(28)
@pytest.mark.parametrize(("schema", "value", "fragment"), BREACHES.values(), ids=BREACHES.keys())
async def test_a_schema_violation_names_the_location_and_keeps_the_tools_text(
    connected: Callable[..., Any], schema: dict[str, Any], value: Any, fragment: str
) -> None:
    connection = await connected(schema, value)
    result: ToolResult = await connection.call("odd", {})
    assert result.is_error
    assert result.structured == value
    assert result.content[0].text == "words"
    assert fragment in result.content[-1].text


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        (
            {
                "type": "object",
                "properties": {"result": {"type": "integer"}},
                "required": ["result"],
            },
            {"result": 1},
            True,
        ),
        (
            {"type": "object", "properties": {"result": {"type": "integer"}}},
            {"result": True},
            False,
        ),
        ({"type": "array", "items": {"type": "string"}}, ["a", "b"], True),
        ({"type": "array", "items": {"type": "string"}}, ["a", 1], False),
        ({"anyOf": [{"type": "null"}, {"type": "number"}]}, 1.5, True),
        ({"enum": ["a", "b"]}, "c", False),
        ({"additionalProperties": False, "properties": {"a": {}}}, {"a": 1}, True),
        ({"additionalProperties": {"type": "string"}}, {"a": "b"}, False),
        ({"minimum": 1}, 2, False),
        ({"type": "array", "items": {}}, [0] * 100_000, False),
        (True, 1, False),
    ],
)
def test_only_obviously_valid_values_skip_the_library(schema: Any, value: Any, fits: bool) -> None:
    assert fits_plainly(schema, value) is fits


async def test_the_process_of_the_checks_ends_with_the_connection(
    connected: Callable[..., Any],
) -> None:
    connection = await connected({"minProperties": 0}, {})
    await connection.call("odd", {})
    worker = connection._own_worker
    assert worker is not None
    assert worker.pid is not None
    await connection.close()
    wait_until(lambda: worker.pid is None, "the end of the process")
