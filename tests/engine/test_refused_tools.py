"""Turns in which a provider refuses a tool: loaded, found by a search, or forced; with every
delivery.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from fastmcp import FastMCP
from fastmcp.tools import Tool, ToolResult
from kit.provider import PROVIDERS
from kit.schema_rules import SchemaStrict, definitions_in
from mcp.types import TextContent

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.conversation.event import Notice
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.servers.server_manager import ServerManager

pytestmark = pytest.mark.defect("M3")


class Raw(Tool):
    """A tool that returns its arguments as they came."""

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        return ToolResult(content=[TextContent(type="text", text=json.dumps(arguments))])


def tools_server() -> FastMCP[Any]:
    """A server with odd tools and plain ones."""
    server: FastMCP[Any] = FastMCP("desk")
    schemas: Mapping[str, Any] = {
        "sharpen": {"type": "object", "properties": {"knife": {"type": "string"}}},
        "filter": {
            "type": "object",
            "properties": {"filter[name]": {"type": "string"}},
            "required": ["filter[name]"],
        },
        "choose": {
            "type": "object",
            "anyOf": [
                {"properties": {"a": {"type": "string"}}},
                {"properties": {"b": {"type": "int"}}},
            ],
        },
        "hopeless": {"type": "object", "properties": {"z": {"type": "string"}}},
    }
    for name, schema in schemas.items():
        server.add_tool(Raw(name=name, description=f"How to {name} things.", parameters=schema))
    return server


@pytest.fixture
async def chat_with() -> AsyncIterator[Callable[..., McpToolChat]]:
    chats = []

    def make(server: SchemaStrict, **selection: Any) -> McpToolChat:
        chosen = Selection.model_validate({"servers": {"desk": "loaded"}, **selection})
        manager = ServerManager({}, in_process={"desk": tools_server()})
        chats.append(
            McpToolChat(
                manager,
                ModelFactory(Config.model_validate(server.config)),
                ChatSetup(selection=chosen),
            )
        )
        return chats[-1]

    yield make
    for chat in chats:
        await chat.close()


@pytest.fixture
def server_of() -> Iterator[Callable[..., SchemaStrict]]:
    with ExitStack() as stack:
        yield lambda *given, **more: stack.enter_context(SchemaStrict(*given, **more))


async def ask(chat: McpToolChat, **options: Any) -> Turn:
    return await chat.run([UserMessage(content="Do it")], TurnOptions(**options))


def hopeless(name: str, schema: Mapping[str, Any]) -> str | None:
    return "an unknown rule" if name == "desk__hopeless" else None


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_goes_on_without_the_tool_and_says_so_once(
    server_of: Any, chat_with: Any, provider: str, stream: bool
) -> None:
    server = server_of(provider, hopeless, calls=[("desk__sharpen", {"knife": "bread"})])
    chat = chat_with(server)
    turn = await ask(chat, stream=stream)
    assert turn.status == "done"
    assert [call.status for call in turn.tool_calls] == ["ok"]
    assert ["desk__hopeless" in notice.text for notice in turn.trace.of(Notice)] == [True]
    refused = len(server.refused)
    again = await ask(chat, stream=stream)
    assert again.status == "done"
    assert len(server.refused) == refused
    sent = [name for name, _, _ in definitions_in(provider, server.answered[-1])]
    assert sent == ["desk__sharpen", "desk__filter", "desk__choose"]
    # The tool itself keeps its schema, which displays show.
    (tool,) = [each for each in chat.tools.catalog if each.name == "filter"]
    assert list(tool.input_schema["properties"]) == ["filter[name]"]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("delivery", ["definitions", "bridge"])
async def test_a_found_tool_that_is_refused_ends_no_turn(
    server_of: Any, chat_with: Any, provider: str, delivery: str
) -> None:
    server = server_of(
        provider,
        hopeless,
        calls=[("search_tools", {"tool_names": ["desk:hopeless", "desk:sharpen"]})],
    )
    chat = chat_with(server, servers={"desk": "deferred"}, discovery=True, delivery=delivery)
    turn = await ask(chat)
    assert turn.status == "done"
    sent = [name for name, _, _ in definitions_in(provider, server.answered[-1])]
    if delivery == "definitions":
        assert sent == ["search_tools", "desk__sharpen"]
        assert ["desk__hopeless" in notice.text for notice in turn.trace.of(Notice)] == [True]
    else:
        assert "desk__hopeless" not in sent
        assert server.refused == []


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_renamed_argument_reaches_the_server_under_its_own_name(
    server_of: Any, chat_with: Any, provider: str
) -> None:
    renames = provider in ("openai", "anthropic")
    name = "filter_name" if renames else "filter[name]"
    server = server_of(provider, calls=[("desk__filter", {name: "a"})])
    turn = await ask(chat_with(server))
    (made,) = turn.tool_calls
    assert made.arguments == {"filter[name]": "a"}
    assert json.loads(made.result) == {"filter[name]": "a"}


async def test_so_does_one_in_a_call_that_was_written_as_text(
    server_of: Any, chat_with: Any
) -> None:
    server = server_of("openai", text='{"name": "desk__filter", "arguments": {"filter_name": "a"}}')
    turn = await ask(chat_with(server), repair_calls=True)
    assert turn.tool_calls[0].arguments == {"filter[name]": "a"}


async def test_what_was_sent_stays_the_beginning_of_what_is_sent_next(
    server_of: Any, chat_with: Any
) -> None:
    server = server_of("anthropic", calls=[("desk__filter", {"filter_name": "a"})])
    chat = chat_with(server)
    await ask(chat)
    first, second = [definitions_in("anthropic", body) for body in server.answered]
    assert first == second
