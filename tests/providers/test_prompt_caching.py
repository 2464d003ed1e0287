"""Marks for Anthropic's prompt cache, and what it reports as cached."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)
from kit.provider import PROVIDERS, Provider, answer

from casual_mcp_nb.providers import ChatModel

MARK = {"type": "ephemeral"}
TOOLS = [{"name": name, "description": "x", "parameters": {"type": "object"}} for name in ("a", "b")]


def call(name: str) -> AssistantToolCall:
    return AssistantToolCall(id=name, function=AssistantToolCallFunction(name=name, arguments="{}"))


HISTORY = [
    SystemMessage(content="Be kind."),
    UserMessage(content="Go."),
    AssistantMessage(content="", tool_calls=[call("a"), call("b")]),
    ToolResultMessage(name="a", tool_call_id="a", content="1"),
    ToolResultMessage(name="b", tool_call_id="b", content="2"),
]


async def sent(server: Provider, model: ChatModel, messages: list[Any], tools: list[Any] = TOOLS) -> Any:
    await model.complete(messages, tools)
    return server.seen[-1].body


async def test_the_ends_of_tools_system_and_conversation_are_marked(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel]
) -> None:
    server = loopback(answer("anthropic", "Hi."))
    body = await sent(server, model_of(server, "anthropic", prompt_caching=True), HISTORY)
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, MARK]
    assert [block.get("cache_control") for block in body["system"]] == [MARK]
    blocks = [block for message in body["messages"] for block in message["content"]]
    assert [block.get("cache_control") for block in blocks] == [None] * (len(blocks) - 1) + [MARK]
    assert json.dumps(body).count("cache_control") == 3


async def test_what_is_not_sent_is_not_marked(loopback: Callable[..., Provider], model_of: Callable[..., ChatModel]) -> None:
    server = loopback(answer("anthropic", "Hi."))
    body = await sent(server, model_of(server, "anthropic", prompt_caching=True), [UserMessage(content="Go.")], [])
    assert json.dumps(body).count("cache_control") == 1


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_nothing_is_marked_unless_the_config_says_so_and_never_for_others(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel], provider: str
) -> None:
    server = loopback(answer(provider, "Hi."))
    body = await sent(server, model_of(server, provider, prompt_caching=provider != "anthropic"), HISTORY)
    assert "cache_control" not in json.dumps(body)


async def test_tokens_from_the_cache_are_a_part_of_the_request(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel]
) -> None:
    body = answer("anthropic", "Hi.")
    body["usage"] |= {"cache_read_input_tokens": 1_000, "cache_creation_input_tokens": 200}
    server = loopback(body)
    usage = (await model_of(server, "anthropic").complete(HISTORY)).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.cached_tokens) == (1_230, 1_000)
