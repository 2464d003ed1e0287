"""Faults 51 and 52: odd arguments of a search, and tools that were found in an earlier turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    UserMessage,
)
from kit.history import assert_valid
from kit.raw_server import OK
from kit.turns import ask

from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.providers.scripted import call, scripted_model

Raw = Callable[..., dict[str, Any]]

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [
    {"name": "forecast", "description": "Forecast the weather of a city.", "inputSchema": SCHEMA},
    {
        "name": "odd",
        "description": "\u0000<b>\u202e\u200b" * 50,
        "inputSchema": {"type": "object", "properties": {"": True}},
    },
    {
        "name": "empty",
        "description": "",
        "inputSchema": {"type": "object", "properties": {"x": {"type": 7, "enum": "no"}}},
    },
    {
        "name": "*" * 300,
        "description": "*" * 5_000,
        "inputSchema": {"type": "object", "properties": {"x": True}},
    },
]

ODD_ARGUMENTS: dict[str, tuple[str, str]] = {
    "number as query": ('{"query": 42}', ""),
    "number as query that is in words": ('{"query": 4.5, "server_name": "weather"}', ""),
    "list as query": ('{"query": ["weather", "city"]}', "forecast"),
    "object as query": ('{"query": {"text": "weather"}}', ""),
    "text for the list of names": ('{"tool_names": "forecast"}', "forecast"),
    "JSON in a text for the names": ('{"tool_names": "[\\"forecast\\"]"}', "forecast"),
    "numbers for names": ('{"tool_names": [1, null, {}]}', ""),
    "null": ("null", "query"),
    "nothing": ("", "query"),
    "all null": ('{"query": null, "server_name": null, "tool_names": null}', "query"),
    "broken JSON": ('{"query": "weather', "not a JSON object"),
    "a list": ('["weather"]', "not a JSON object"),
    "200 kB of query": (json.dumps({"query": "weather city " * 15_000}), "forecast"),
    "200 kB of one word": (json.dumps({"query": "w" * 200_000}), "No tools found"),
    "200 kB of names": (json.dumps({"tool_names": ["x" * 20] * 10_000}), "Unknown tool"),
    "unknown server": ('{"server_name": "wether"}', "weather"),
    "unknown field": ('{"q": "weather"}', "query"),
    "lone surrogate": ('{"query": "\\ud800 weather"}', "forecast"),
    "nested deeply": ('{"query": ' + "[" * 5_000 + "]" * 5_000 + "}", ""),
}


@pytest.mark.fault(51)
@pytest.mark.parametrize(("arguments", "said"), ODD_ARGUMENTS.values(), ids=ODD_ARGUMENTS.keys())
async def test_odd_arguments_of_a_search_are_answered_with_a_short_text(
    raw: Raw, arguments: str, said: str
) -> None:
    servers = {"weather": raw({"defer_loading": True}, tools=TOOLS)}
    function = AssistantToolCallFunction(name="search_tools", arguments=arguments)
    odd = AssistantMessage(content="", tool_calls=[AssistantToolCall(id="1", function=function)])
    async with McpToolChat.from_config(
        {"servers": servers, "tool_discovery": {"enabled": True}}
    ) as chat:
        assert len(await chat.server_manager.list_tools()) == len(TOOLS)
        turn = await ask(
            chat, odd, call("search_tools", query="weather"), call("weather__forecast"), "done"
        )
    assert turn.status == "done"
    assert said in turn.tool_calls[0].result
    assert 0 < len(turn.tool_calls[0].result) <= 12_000
    assert turn.tool_calls[2].result == "ok"
    assert_valid(turn.messages)


@pytest.mark.fault(52)
async def test_a_tool_found_in_one_chat_is_callable_in_the_next_of_that_conversation(
    raw: Raw,
) -> None:
    servers = {"weather": raw({"defer_loading": True}, tools=TOOLS, calls={"forecast": OK})}
    async with McpToolChat.from_config(
        {"servers": servers, "tool_discovery": {"enabled": True}}
    ) as chat:
        conversation: list[Any] = [UserMessage(content="Find it")]
        found = scripted_model(call("search_tools", query="weather of a city"), "found")
        conversation += await chat.chat(conversation, model=found)
        conversation.append(UserMessage(content="Call it"))
        model = scripted_model(call("weather__forecast", city="Oslo"), "sunny")
        conversation += await chat.chat(conversation, model=model)
        fresh = await ask(chat, call("weather__forecast"), "no")
    assert conversation[-2].content == "ok"
    assert "weather__forecast" in [tool["name"] for tool in model.client.requests[0].tools]
    assert "not yet loaded" in fresh.tool_calls[0].result
    assert_valid(conversation)
