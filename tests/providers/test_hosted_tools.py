"""Tools that a provider runs itself: requests for them, the parts kept and sent back, and the
record of their calls.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from kit.message_rules import RULES, StrictProvider
from kit.provider import Provider, answer, response, response_text
from kit.scripted_http import Reply
from kit.streams import reply

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.providers.factory import ModelFactory

PAGE = {"title": "Tides", "url": "https://tide.example/a"}
SEARCHED = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "tide"},
}
RESULTS = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "encrypted_content": "b3BhcXVl", **PAGE}],
}
CITED = {
    "type": "web_search_result_location",
    "cited_text": "Low.",
    "encrypted_index": "aW5kZXg=",
    **PAGE,
}
SAID = {"type": "text", "text": "Low tide.", "citations": [CITED]}
CALL = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "tide"},
}
NOTE = {"type": "url_citation", "start_index": 0, "end_index": 3, **PAGE}


def anthropic(*blocks: dict[str, Any], reason: str = "end_turn") -> dict[str, Any]:
    return {**answer("anthropic", ""), "content": list(blocks), "stop_reason": reason}


def anthropic_stream(*blocks: dict[str, Any], reason: str = "end_turn") -> Reply:
    """The reply that streams these blocks: the input of a search and the text in pieces, citations
    one by one.
    """
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**anthropic(), "stop_reason": None}}
    ]
    for index, block in enumerate(blocks):
        deltas: list[dict[str, Any]] = []
        if block["type"] == "text":
            deltas += [{"type": "text_delta", "text": letter} for letter in block["text"]]
            deltas += [
                {"type": "citations_delta", "citation": cited}
                for cited in block.get("citations", ())
            ]
            block = {"type": "text", "text": ""}
        elif block["type"] == "server_tool_use":
            deltas += [
                {"type": "input_json_delta", "partial_json": letter}
                for letter in json.dumps(block["input"])
            ]
            block = {**block, "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    usage = {"output_tokens": 7}
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": usage,
        }
    )
    events.append({"type": "message_stop"})
    return reply(
        "anthropic",
        "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode(),
    )


def responses() -> dict[str, Any]:
    text = response_text(
        "Low tide.", content=[{"type": "output_text", "text": "Low tide.", "annotations": [NOTE]}]
    )
    return response(CALL, text)


def responses_stream() -> Reply:
    whole = responses()
    events = [
        ("response.output_item.done", {"output_index": i, "item": item})
        for i, item in enumerate(whole["output"])
    ]
    events.append(("response.completed", {"response": whole}))
    lines = [
        f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': 0, **body})}\n\n"
        for kind, body in events
    ]
    return reply("openai-responses", "".join(lines).encode())


def config_of(server: Provider, provider: str, hosted: Any) -> dict[str, Any]:
    config = server.config(provider)
    config["models"]["small"]["hosted_tools"] = hosted
    config["prices"] = {"small": {"input": 1, "output": 1, "hosted_tools": {"web_search": 10}}}
    config["servers"] = {"math": {"bundled": "math", "transport": "in-process"}}
    return config


async def talk(config: dict[str, Any], stream: bool) -> Conversation:
    """Two turns, saved and loaded in between."""
    turns: list[Any] = []
    for text in ("How is the tide?", "And now?"):
        saved = Conversation.from_json(Conversation(turns).to_json())
        async with McpToolChat.from_config(config) as chat:
            turns.append(
                await chat.run(
                    [UserMessage(content=text)], TurnOptions(stream=stream), history=saved.messages
                )
            )
    return Conversation.from_json(Conversation(turns).to_json())


@pytest.mark.parametrize("stream", [False, True])
async def test_a_search_of_anthropics_is_sent_back_whole_and_told_as_the_providers(
    strict: Callable[..., StrictProvider], stream: bool
) -> None:
    made: Callable[..., Any] = anthropic_stream if stream else anthropic
    server = strict(
        RULES["anthropic"],
        made(SEARCHED, RESULTS, SAID),
        made({"type": "text", "text": "Still low."}),
    )
    saved = await talk(config_of(server, "anthropic", ["web_search"]), stream)
    assert server.refusals == []
    first, second = (request.body for request in server.seen)
    (hosted,) = [tool for tool in first["tools"] if "type" in tool]
    hosted.pop("cache_control", None)
    assert hosted == {"type": "web_search_20250305", "name": "web_search"}
    assert second["messages"][1]["content"] == [SEARCHED, RESULTS, SAID]
    (call,) = saved[0].steps[0].hosted_calls
    assert (call.name, json.loads(call.arguments), call.result) == (
        "web_search",
        {"query": "tide"},
        "Tides: https://tide.example/a",
    )
    assert "b3BhcXVl" not in call.result
    assert not call.failed
    assert saved[0].stats.tool_calls.hosted == {"web_search": 1}
    assert saved[0].stats.tool_calls.total == 0
    cost = saved[0].stats.cost
    assert cost is not None
    assert (cost.hosted, cost.unknown_hosted) == (0.01, 0)
    assert cost.amount == pytest.approx(0.01 + (30 + 7) / 1_000_000)
    assert "web_search" in await asyncio.to_thread(saved[0]._repr_html_)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_search_of_openais_is_sent_back_whole_and_told_with_what_the_answer_cites(
    strict: Callable[..., StrictProvider], stream: bool
) -> None:
    server = strict(RULES["openai-responses"], responses_stream() if stream else responses())
    saved = await talk(
        config_of(server, "openai-responses", {"web_search": {"search_context_size": "low"}}),
        stream,
    )
    assert server.refusals == []
    first, second = (request.body for request in server.seen)
    assert first["tools"][-1] == {"type": "web_search", "search_context_size": "low"}
    assert CALL in second["input"]
    (call,) = saved[0].steps[0].hosted_calls
    assert (call.name, json.loads(call.arguments)["query"], call.result) == (
        "web_search",
        "tide",
        "Tides: https://tide.example/a",
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_the_provider_pauses_goes_on(
    strict: Callable[..., StrictProvider], stream: bool
) -> None:
    made: Callable[..., Any] = anthropic_stream if stream else anthropic
    server = strict(RULES["anthropic"], made(SEARCHED, RESULTS, reason="pause_turn"), made(SAID))
    async with McpToolChat.from_config(config_of(server, "anthropic", ["web_search"])) as chat:
        turn = await chat.run([UserMessage(content="How is the tide?")], TurnOptions(stream=stream))
    assert (turn.status, turn.answer, len(turn.steps)) == ("done", "Low tide.", 1)
    assert server.seen[1].body["messages"][-1] == {
        "role": "assistant",
        "content": [SEARCHED, RESULTS],
    }
    usage = turn.steps[0].usage
    assert usage is not None
    assert usage.prompt_tokens == 60
    assert len(turn.steps[0].hosted_calls) == 1


async def test_a_failed_call_is_told_as_failed(loopback: Callable[..., Provider]) -> None:
    error = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    server = loopback(
        anthropic(SEARCHED, {**RESULTS, "content": error}, {"type": "text", "text": "No."})
    )
    async with McpToolChat.from_config(config_of(server, "anthropic", ["web_search"])) as chat:
        turn = await chat.run([UserMessage(content="How is the tide?")], TurnOptions(stream=False))
    (call,) = turn.steps[0].hosted_calls
    assert call.failed
    assert "max_uses_exceeded" in call.result


async def test_what_is_told_is_cut_and_escaped(loopback: Callable[..., Provider]) -> None:
    pages = [
        {
            "type": "web_search_result",
            "encrypted_content": "x",
            "title": "<b>" * 5_000,
            "url": "https://x",
        }
    ] * 90
    server = loopback(
        anthropic(SEARCHED, {**RESULTS, "content": pages}, {"type": "text", "text": "No."})
    )
    async with McpToolChat.from_config(config_of(server, "anthropic", ["web_search"])) as chat:
        turn = await chat.run([UserMessage(content="How is the tide?")], TurnOptions(stream=False))
    assert len(turn.steps[0].hosted_calls[0].result) <= 2_001
    assert "<b><b>" not in await asyncio.to_thread(turn._repr_html_)


def made_of(provider: str, hosted: Any) -> ModelFactory:
    client = {"provider": provider, "api_key": "sk-none"}
    model = {"client": "desk", "model": "m-1", "hosted_tools": hosted}
    return ModelFactory(
        Config.model_validate({"clients": {"desk": client}, "models": {"small": model}})
    )


def test_a_version_can_be_named() -> None:
    model = made_of("anthropic", {"web_search_20260209": {"max_uses": 2}}).chat_model()
    assert model.hosted_tools == (
        {"type": "web_search_20260209", "name": "web_search", "max_uses": 2},
    )
    assert (
        made_of("openai-responses", ["web_search_2025_08_26"]).chat_model().hosted_tools[0]["type"]
        == "web_search_2025_08_26"
    )


@pytest.mark.parametrize(
    ("provider", "hosted", "kind"),
    [("anthropic", ["web_serch"], UnknownNameError), ("openai", ["web_search"], UsageError)],
)
def test_a_tool_that_the_provider_does_not_have_is_said_before_a_request(
    provider: str, hosted: Any, kind: type[UsageError]
) -> None:
    with pytest.raises(kind):
        made_of(provider, hosted).chat_model()
