"""Marks for Anthropic's prompt cache, and what providers report as cached."""

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
from kit.scripted_http import Reply

from casual_mcp_nb.providers import ChatModel
from casual_mcp_nb.providers.base import RequestAdapted

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


async def test_the_ends_of_tools_system_conversation_and_of_the_request_before_are_marked(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel]
) -> None:
    server = loopback(answer("anthropic", "Hi."))
    body = await sent(server, model_of(server, "anthropic"), HISTORY)
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, MARK]
    assert [block.get("cache_control") for block in body["system"]] == [MARK]
    blocks = [block for message in body["messages"] for block in message["content"]]
    assert [block.get("cache_control") for block in blocks] == [MARK, *[None] * (len(blocks) - 2), MARK]
    assert json.dumps(body).count("cache_control") == 4


async def test_after_many_parallel_calls_the_cache_is_still_read(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel]
) -> None:
    """The cache looks back 20 blocks from a mark for what an earlier request wrote at its own marks."""
    server = loopback(answer("anthropic", "Hi."))
    model = model_of(server, "anthropic")
    history: list[Any] = list(HISTORY)
    written: set[int] = set()
    for number in range(4):
        body = await sent(server, model, history)
        marks = [index for index, block in enumerate(blocks_of(body)) if "cache_control" in block]
        assert not number or any(set(range(mark - 19, mark + 1)) & written for mark in marks)
        assert json.dumps(body).count("cache_control") <= 4
        written.update(marks)
        calls = [call(f"{number}_{index}") for index in range(24)]
        results = [ToolResultMessage(name=each.id, tool_call_id=each.id, content="1") for each in calls]
        history += [AssistantMessage(content="", tool_calls=calls), *results]


def blocks_of(body: Any) -> list[Any]:
    return [block for message in body["messages"] for block in message["content"]]


async def test_a_server_that_refuses_the_marks_is_asked_without(
    serving: Callable[..., Provider], model_of: Callable[..., ChatModel]
) -> None:
    refusal = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "cache_control: Extra inputs are not permitted"},
    }
    server = serving(Reply(400, refusal), answer("anthropic", "Hi."))
    model = model_of(server, "anthropic")
    notices: list[Any] = []
    assert (await model.complete(HISTORY, TOOLS, on_event=notices.append, stream=False)).message.content == "Hi."
    await model.complete(HISTORY, TOOLS)
    assert ["cache_control" in json.dumps(request.body) for request in server.seen] == [True, False, False]
    assert [type(notice) for notice in notices] == [RequestAdapted]


async def test_what_is_not_sent_is_not_marked(loopback: Callable[..., Provider], model_of: Callable[..., ChatModel]) -> None:
    server = loopback(answer("anthropic", "Hi."))
    body = await sent(server, model_of(server, "anthropic"), [UserMessage(content="Go.")], [])
    assert json.dumps(body).count("cache_control") == 1


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_nothing_is_marked_where_the_config_says_so_and_never_for_others(
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
    assert (usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens) == (1_230, 1_000, 200)


@pytest.mark.parametrize("provider", ["openai", "openai-responses"])
async def test_tokens_that_openai_writes_to_its_cache_are_counted(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel], provider: str
) -> None:
    body = answer(provider, "Hi.")
    details = "prompt_tokens_details" if provider == "openai" else "input_tokens_details"
    body["usage"][details] = {"cached_tokens": 10, "cache_write_tokens": 20}
    server = loopback(body)
    usage = (await model_of(server, provider).complete(HISTORY)).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens) == (30, 10, 20)
