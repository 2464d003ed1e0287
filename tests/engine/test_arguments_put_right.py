"""Arguments that can only have been meant in one way are put right before a call; those of tool
objects are checked.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.tools import Tool, ToolResult
from kit.turns import ask
from mcp.types import TextContent

from casual_mcp_nb import Session, SyntheticToolResult
from casual_mcp_nb.base.arguments_by_schema import put_right
from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.conversation.event import Notice
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.errors import ToolCallError
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.servers.server_manager import ServerManager

POINT = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "label": {"type": "string"}},
    "required": ["x"],
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"type": ["integer", "null"]},
        "any": {},
        "choice": {"enum": ["a", None]},
        "point": {"$ref": "#/$defs/Point"},
        "points": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
        "maybe": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]},
        "mixed": {"anyOf": [{"type": "object"}, {"type": "string"}]},
        "shapes": {"anyOf": [{"type": "object", "properties": {"r": {"type": "number"}}}, POINT]},
        "openapi": {"type": "string", "nullable": True},
    },
    "required": ["city"],
    "$defs": {"Point": POINT},
}
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "null for an optional integer": ({"city": "Oslo", "days": None}, {"city": "Oslo"}),
    "null that is meant": ({"note": None, "either": None}, {"note": None, "either": None}),
    "null where anything may be": ({"any": None, "choice": None}, {"any": None, "choice": None}),
    "null of OpenAPI": ({"openapi": None}, {"openapi": None}),
    "null for what is required": ({"city": None}, {"city": None}),
    "null within an object": ({"point": {"x": 1, "label": None}}, {"point": {"x": 1}}),
    "null within a list": (
        {"points": [{"x": 1, "label": None}, {"x": 2}]},
        {"points": [{"x": 1}, {"x": 2}]},
    ),
    "an object as text": ({"point": '{"x": 1}'}, {"point": {"x": 1}}),
    "an object as text of a text": ({"point": '"{\\"x\\": 1}"'}, {"point": {"x": 1}}),
    "a list as text": ({"points": '[{"x": 1, "label": null}]'}, {"points": [{"x": 1}]}),
    "an item as text": ({"points": ['{"x": 1}']}, {"points": [{"x": 1}]}),
    "an object or null as text": ({"maybe": '{"x": 1}'}, {"maybe": {"x": 1}}),
    "a text that may be one": ({"mixed": '{"x": 1}'}, {"mixed": '{"x": 1}'}),
    "a text for a text": ({"city": '{"x": 1}'}, {"city": '{"x": 1}'}),
    "a list where an object is wanted": ({"point": "[1]"}, {"point": "[1]"}),
    "broken JSON": ({"point": '{"x": 1'}, {"point": '{"x": 1'}),
    "one of two objects": ({"shapes": {"r": None}}, {"shapes": {"r": None}}),
    "unknown arguments": ({"other": None, "more": "{}"}, {"other": None, "more": "{}"}),
    "very deep text": ({"point": "[" * 5_000}, {"point": "[" * 5_000}),
}


@pytest.mark.defect("M7")
@pytest.mark.parametrize("name", ROWS)
def test_the_schema_says_what_is_meant(name: str) -> None:
    given, meant = ROWS[name]
    before = json.dumps(given)
    right, changes = put_right(SCHEMA, given)
    assert right == meant
    assert json.dumps(given) == before
    assert bool(changes) == (given != meant)
    assert (right is given) == (given == meant)


class Raw(Tool):
    """A tool that returns the arguments as they came."""

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        return ToolResult(content=[TextContent(type="text", text=json.dumps(arguments))])


@pytest.fixture
async def chat() -> AsyncIterator[McpToolChat]:
    server: FastMCP[Any] = FastMCP("desk")
    server.add_tool(Raw(name="raw", description="Return them.", parameters=SCHEMA))
    async with McpToolChat(
        ServerManager({}, in_process={"desk": server}),
        ModelFactory(Config()),
        ChatSetup(
            selection=Selection(),
        ),
    ) as chat:
        yield chat


@pytest.mark.defect("M7")
async def test_the_server_gets_what_was_meant_and_the_trace_says_what_was_changed(
    chat: McpToolChat,
) -> None:
    turn = await ask(chat, call("desk__raw", city="Oslo", days=None, point='{"x": 1}'), "done")
    (made,) = turn.tool_calls
    assert json.loads(made.result) == {"city": "Oslo", "point": {"x": 1}}
    # The arguments as the model wrote them.
    assert made.arguments == {"city": "Oslo", "days": None, "point": '{"x": 1}'}
    (notice,) = turn.trace.of(Notice)
    assert notice.server == "desk"
    assert all(word in notice.text for word in ("raw", "days", "point"))


@pytest.mark.defect("M7")
async def test_what_fits_is_sent_as_it_is(chat: McpToolChat) -> None:
    turn = await ask(chat, call("desk__raw", city="[1, 2]", note=None, points=[{"x": 1}]), "done")
    assert json.loads(turn.tool_calls[0].result) == {
        "city": "[1, 2]",
        "note": None,
        "points": [{"x": 1}],
    }
    assert not turn.trace.of(Notice)


class Counter:
    """A tool as an object."""

    name = "count_to"
    description = "Count."

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.input_schema = schema
        self.ran: list[Mapping[str, Any]] = []

    async def execute(self, arguments: Mapping[str, Any]) -> Any:
        self.ran.append(arguments)
        return "counted"


class Finder(Counter):
    """A synthetic tool."""

    name = "my_finder"

    @property
    def definition(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "parameters": self.input_schema}

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        self.ran.append(args)
        return SyntheticToolResult("found", [])


NUMBER = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}},
    "required": ["n"],
}
WRONG: list[tuple[Mapping[str, Any], dict[str, Any]]] = [
    (NUMBER, {}),
    (NUMBER, {"n": "seven"}),
    (NUMBER, {"n": 0}),
    ({**NUMBER, "additionalProperties": False}, {"n": 1, "m": 2}),
    # Not even valid: an author's slip does not turn the check off.
    ({"type": "object", "properties": {"n": {"type": "int"}}}, {"n": "seven"}),
]


@pytest.fixture
def session() -> Iterator[Session]:
    with Session.from_config({}) as session:
        yield session


@pytest.mark.slow
@pytest.mark.defect("N10")
@pytest.mark.parametrize("synthetic", [False, True])
@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_tool_object_gets_no_arguments_that_its_schema_refuses(
    session: Session, synthetic: bool, number: int
) -> None:
    schema, arguments = WRONG[number]
    tool = Finder(schema) if synthetic else Counter(schema)
    if synthetic:
        session.tools.add_synthetic(tool)
    else:
        session.tools.add(tool)
    name = tool.name if synthetic else f"notebook__{tool.name}"
    turn = session.chat(
        "Go",
        model=scripted_model(calls(call(name, **arguments)), calls(call(name, n=1)), "done"),
        echo="none",
    )
    assert [one.status for one in turn.tool_calls] == ["error", "ok"]
    assert "n" in turn.tool_calls[0].result
    assert tool.ran == [{"n": 1}]


@pytest.mark.defect("N10")
def test_a_person_s_own_call_of_a_tool_object_is_checked_too(session: Session) -> None:
    tool = Counter(NUMBER)
    session.tools.add(tool)
    with pytest.raises(ToolCallError):
        session.tools.call("notebook:count_to", n="seven")
    assert session.tools.call("notebook:count_to", n=7).status == "ok"
    assert tool.ran == [{"n": 7}]
