"""The real SDKs against a loopback server that speaks each provider's format: requests and parsed
answers.
"""

from __future__ import annotations

import json
import socket
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from casual_llm import AssistantToolCall, AssistantToolCallFunction
from casual_llm.messages import (
    AssistantMessage,
    ChatMessage,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)
from kit.provider import gemini_call, own_variable, response, response_call, response_text

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.secret import MaskedError
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.errors import MalformedAnswerError, ProviderError
from casual_mcp_nb.providers.factory import ModelFactory

KEY = "sk-planted-secret-0123456789"
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "place": {"$ref": "#/$defs/Place"},
        "exact": {"type": ["boolean", "string"], "default": False},
        "limit": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        "anything": True,
    },
    "required": ["place"],
    "additionalProperties": False,
    "$defs": {"Place": {"type": "object", "properties": {"near": {"$ref": "#/$defs/Place"}}}},
}
TOOL = {"name": "maps__find", "description": "Find a place.", "parameters": PARAMETERS}
# True means the same as {}, which every provider takes.
SENT = {**PARAMETERS, "properties": {**PARAMETERS["properties"], "anything": {}}}
ASKED: list[ChatMessage] = [SystemMessage(content="Be brief."), UserMessage(content="Where is it?")]

_OPENAI_CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "maps__find", "arguments": '{"place": {}}'},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "openai": {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": "Wait.", "tool_calls": [_OPENAI_CALL]},
            }
        ],
        "usage": {
            "prompt_tokens": 30,
            "completion_tokens": 7,
            "total_tokens": 37,
            "prompt_tokens_details": {"cached_tokens": 12},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
    },
    "openai-responses": response(
        response_text("Wait."),
        response_call("c1", "maps__find", '{"place": {}}'),
        usage={
            "input_tokens": 30,
            "input_tokens_details": {"cached_tokens": 12, "cache_write_tokens": 0},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 37,
        },
    ),
    "anthropic": {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "content": [
            {"type": "text", "text": "Wait."},
            {"type": "tool_use", "id": "c1", "name": "maps__find", "input": {"place": {}}},
        ],
        "usage": {"input_tokens": 18, "output_tokens": 7, "cache_read_input_tokens": 12},
    },
    "gemini": {
        "candidates": [
            {
                "content": {
                    "role": "model",
                    "parts": [{"text": "Wait."}, gemini_call("c1", "maps__find", {"place": {}})],
                },
                "finishReason": "STOP",
                "index": 0,
            }
        ],
        "usageMetadata": {
            "promptTokenCount": 30,
            "cachedContentTokenCount": 12,
            "candidatesTokenCount": 4,
            "thoughtsTokenCount": 3,
            "totalTokenCount": 37,
        },
    },
    "ollama": {
        "model": "m",
        "created_at": "2026-01-01T00:00:00Z",
        "done": True,
        "done_reason": "stop",
        "message": {
            "role": "assistant",
            "content": "Wait.",
            "tool_calls": [{"function": {"name": "maps__find", "arguments": {"place": {}}}}],
        },
        "prompt_eval_count": 30,
        "eval_count": 7,
    },
}
USAGES = {
    "openai": TokenUsage(30, 7, 12, 3),
    "openai-responses": TokenUsage(30, 7, 12, 3, cache_write_tokens=0),
    "anthropic": TokenUsage(30, 7, 12),
    "gemini": TokenUsage(30, 7, 12, 3),
    "ollama": TokenUsage(30, 7),
}
PATHS = {
    "openai": "/v1/chat/completions",
    "openai-responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1/models/m-1:generateContent",
    "ollama": "/api/chat",
}
REASONS = {
    "openai": "tool_calls",
    "openai-responses": "completed",
    "anthropic": "tool_use",
    "gemini": "STOP",
    "ollama": "stop",
}
MAX_TOKENS = {
    "openai-responses": "max_output_tokens",
    "gemini": "maxOutputTokens",
    "ollama": "num_predict",
}
OPTIONS = {"gemini": "generationConfig", "ollama": "options"}


def config_for(provider: str, url: str, **client: Any) -> Config:
    # Anthropic's SDK 2 takes no temperature.
    options = {} if provider == "anthropic" else {"temperature": 0.5}
    base = f"{url}/v1" if provider.startswith("openai") else url
    return Config.model_validate(
        {
            "clients": {
                "desk": {
                    "provider": provider,
                    "base_url": base,
                    "api_key": KEY,
                    "timeout": 5,
                    **client,
                }
            },
            "models": {"small": {"client": "desk", "model": "m-1", "max_tokens": 99, **options}},
        }
    )


async def test_a_definition_reaches_the_provider_exactly_as_it_is(
    provider: str, loopback: Callable[..., Any], factory_for: Callable[..., ModelFactory]
) -> None:
    server = loopback(ANSWERS[provider])
    await factory_for(config_for(provider, server.url)).chat_model("small").complete(ASKED, [TOOL])
    body = server.seen[0].body
    if provider == "anthropic":
        (tool,) = body["tools"]
        assert tool.pop("cache_control") == {"type": "ephemeral"}
        assert tool == {"name": "maps__find", "description": "Find a place.", "input_schema": SENT}
        assert body["tool_choice"] == {"type": "auto"}
    elif provider == "openai-responses":
        # This one takes a value of any kind, so that it has no strict form.
        assert body["tools"] == [{"type": "function", **TOOL, "parameters": SENT, "strict": False}]
        assert body["tool_choice"] == "auto"
    elif provider == "gemini":
        declared = {
            "name": "maps__find",
            "description": "Find a place.",
            "parameters_json_schema": SENT,
        }
        assert body["tools"] == [{"functionDeclarations": [declared]}]
        assert "toolConfig" not in body
    else:
        assert body["tools"] == [{"type": "function", "function": {**TOOL, "parameters": SENT}}]
        assert body.get("tool_choice") == ("auto" if provider == "openai" else None)


async def test_a_request_without_tools_mentions_none(
    provider: str, loopback: Callable[..., Any], factory_for: Callable[..., ModelFactory]
) -> None:
    server = loopback(ANSWERS[provider])
    await factory_for(config_for(provider, server.url)).chat_model().complete(ASKED)
    assert not {"tools", "tool_choice", "toolConfig"} & set(server.seen[0].body)


async def test_only_the_base_url_is_asked_with_the_model_its_options_and_the_key(
    provider: str, loopback: Callable[..., Any], factory_for: Callable[..., ModelFactory]
) -> None:
    server = loopback(ANSWERS[provider])
    await factory_for(config_for(provider, server.url)).chat_model().complete(ASKED, [TOOL])
    (seen,) = server.seen
    assert seen.path.partition("?")[0] == PATHS[provider]
    assert "m-1" in (seen.body.get("model", seen.path))
    options = seen.body[OPTIONS[provider]] if provider in OPTIONS else seen.body
    assert options.get("temperature") == (None if provider == "anthropic" else 0.5)
    assert options.get(MAX_TOKENS.get(provider, "max_tokens")) == 99
    assert KEY in "".join(
        seen.headers.get(name, "") for name in ("authorization", "x-api-key", "x-goog-api-key")
    )


async def test_text_calls_usage_and_the_reason_for_the_end_come_back(
    provider: str, loopback: Callable[..., Any], factory_for: Callable[..., ModelFactory]
) -> None:
    server = loopback(ANSWERS[provider])
    answer = (
        await factory_for(config_for(provider, server.url)).chat_model().complete(ASKED, [TOOL])
    )
    (call,) = answer.message.tool_calls or []
    assert answer.message.content == "Wait."
    assert call.id == ("call_1" if provider == "ollama" else "c1")
    assert call.function.name == "maps__find"
    assert json.loads(call.function.arguments) == {"place": {}}
    assert answer.usage == USAGES[provider]
    assert answer.finish_reason == REASONS[provider]


@pytest.mark.fault(67)
async def test_an_answer_without_usage_has_none_and_not_that_of_the_answer_before(
    provider: str, loopback: Callable[..., Any], factory_for: Callable[..., ModelFactory]
) -> None:
    server = loopback(ANSWERS[provider])
    model = factory_for(config_for(provider, server.url)).chat_model()
    assert (await model.complete(ASKED)).usage is not None
    uncounted = ("usage", "usageMetadata", "prompt_eval_count", "eval_count")
    server.answer = {key: value for key, value in ANSWERS[provider].items() if key not in uncounted}
    assert (await model.complete(ASKED)).usage is None


async def test_a_history_with_broken_arguments_can_still_be_sent(
    provider: str, loopback: Callable[..., Any], factory_for: Callable[..., ModelFactory]
) -> None:
    server = loopback(ANSWERS[provider])
    broken = AssistantToolCall(
        id="c0", function=AssistantToolCallFunction(name="maps__find", arguments='{"place":')
    )
    history = [
        *ASKED,
        AssistantMessage(content="", tool_calls=[broken]),
        ToolResultMessage(name="maps__find", tool_call_id="c0", content="Error: no JSON"),
    ]
    await factory_for(config_for(provider, server.url)).chat_model().complete(history, [TOOL])
    assert "Error: no JSON" in json.dumps(server.seen[0].body)


async def test_two_clients_of_one_provider_ask_their_own_addresses(
    loopback: Callable[..., Any], factory_for: Callable[..., ModelFactory]
) -> None:
    servers = {name: loopback(ANSWERS["openai"]) for name in ("one", "two")}
    clients = {
        name: {"provider": "openai", "base_url": f"{server.url}/v1"}
        for name, server in servers.items()
    }
    models = {name: {"client": name, "model": f"of-{name}"} for name in servers}
    factory = factory_for(Config.model_validate({"clients": clients, "models": models}))
    for name, server in servers.items():
        await factory.chat_model(name).complete(ASKED)
        assert [seen.body["model"] for seen in server.seen] == [f"of-{name}"]


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.fault(60)
@pytest.mark.fault(83)
async def test_a_refused_key_is_named_by_client_and_place_and_never_shown(
    provider: str,
    status: int,
    loopback: Callable[..., Any],
    factory_for: Callable[..., ModelFactory],
) -> None:
    server = loopback(
        {"error": {"type": "authentication_error", "message": f"Incorrect API key: {KEY}"}}, status
    )
    with pytest.raises(ProviderError) as caught:
        await factory_for(config_for(provider, server.url)).chat_model().complete(ASKED)
    said = str(caught.value)
    assert len(server.seen) == 1
    assert "Client 'desk'" in said
    assert ("credentials were not accepted" in said) is (status == 401)
    assert f"DESK_API_KEY, then {own_variable(provider)}" in said
    assert KEY not in "".join(traceback.format_exception(caught.value))
    # Not the SDK's error, which has the key in its text.
    assert isinstance(caught.value.__cause__, MaskedError)
    assert caught.value.__context__ is caught.value.__cause__


@pytest.mark.fault(83)
async def test_not_even_half_a_key_is_left_where_a_long_answer_is_cut(
    provider: str, loopback: Callable[..., Any], factory_for: Callable[..., ModelFactory]
) -> None:
    server = loopback("", 500)
    model = factory_for(config_for(provider, server.url, max_retries=0)).chat_model()
    for padding in range(270, 300, 4):
        server.answer = f"{'x' * padding} {KEY}"
        with pytest.raises(ProviderError) as caught:
            await model.complete(ASKED)
        assert KEY[:8] not in str(caught.value)


@pytest.mark.parametrize("status", [429, 500, 529])
async def test_the_sdks_do_not_retry_by_themselves(
    provider: str,
    status: int,
    loopback: Callable[..., Any],
    factory_for: Callable[..., ModelFactory],
) -> None:
    server = loopback({"error": {"message": "too busy"}}, status)
    with pytest.raises(ProviderError, match="too busy") as caught:
        await (
            factory_for(config_for(provider, server.url, max_retries=0))
            .chat_model()
            .complete(ASKED)
        )
    assert len(server.seen) == 1
    assert caught.value.retryable
    assert caught.value.__context__ is not None
    assert "".join(traceback.format_exception(caught.value, chain=False)).count("too busy") == 1


@pytest.mark.fault(63)
@pytest.mark.parametrize(
    "answer",
    ["<html><body>Log in here</body></html>", {"error": {"message": "no such plan"}}, {}, []],
)
async def test_a_success_that_is_no_answer_is_one_clear_error(
    provider: str,
    answer: Any,
    loopback: Callable[..., Any],
    factory_for: Callable[..., ModelFactory],
) -> None:
    server = loopback(answer)
    with pytest.raises(MalformedAnswerError) as caught:
        await factory_for(config_for(provider, server.url)).chat_model().complete(ASKED)
    assert (caught.value.client, caught.value.model) == ("desk", "m-1")
    if isinstance(answer, str):
        assert "Log in here" in str(caught.value)
    if isinstance(answer, dict) and answer:
        assert "no such plan" in str(caught.value)


async def test_a_refused_connection_names_the_address(
    provider: str, factory_for: Callable[..., ModelFactory]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(ProviderError, match="cannot be reached") as caught:
        await factory_for(config_for(provider, address, max_retries=0)).chat_model().complete(ASKED)
    assert address in str(caught.value)
    assert caught.value.retryable


async def test_a_silent_provider_is_given_up_at_the_clients_timeout(
    provider: str, factory_for: Callable[..., ModelFactory]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = config_for(provider, f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2)
        with pytest.raises(ProviderError, match="no answer in time") as caught:
            await factory_for(config).chat_model().complete(ASKED)
    assert caught.value.retryable


async def test_a_missing_model_says_where_to_look(
    provider: str, loopback: Callable[..., Any], factory_for: Callable[..., ModelFactory]
) -> None:
    server = loopback({"error": {"message": "model m-1 not found"}}, 404)
    with pytest.raises(ProviderError, match="Check the model's name"):
        await factory_for(config_for(provider, server.url)).chat_model().complete(ASKED)
