"""What each provider is sent and what its answers mean.

casual-llm builds the requests. The answers are read here, because its own `_chat` drops the reason for the end and cached
tokens, and cannot take an answer without usage (Ollama) or without choices.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.base import ModelAnswer
from casual_mcp_nb.types.tokens import TokenUsage

if TYPE_CHECKING:
    from casual_llm import AssistantToolCall, ChatMessage, ChatOptions

Definitions = Sequence[Mapping[str, Any]]


class UnusableAnswer(Exception):
    """The provider said that all is well and sent something that is no answer; the text is what it sent."""


@dataclass(frozen=True)
class Wire:
    """How to talk to one kind of client.

    Args:
        offer: Tool definitions to extra arguments of the request.
        ask: One request: client, model, messages and options to an answer.
    """

    offer: Callable[[Definitions], dict[str, Any]]
    ask: Callable[[Any, str, list[ChatMessage], ChatOptions], Awaitable[ModelAnswer]]


def wire_of(client: Any) -> Wire:
    """How to talk to this client; one that is not known gets OpenAI's shape through casual-llm's protocol."""
    import casual_llm

    if hasattr(client, "answer"):
        return Wire(_offer_plain, _ask_own)
    for kind, wire in (
        (casual_llm.OpenAIClient, Wire(_offer_openai, _ask_openai)),
        (casual_llm.AnthropicClient, Wire(_offer_anthropic, _ask_anthropic)),
        (casual_llm.OllamaClient, Wire(_offer_ollama, _ask_ollama)),
    ):
        # A class is None where its SDK is missing. A subclass with a `_chat` of its own wants to be asked through it.
        if kind is not None and isinstance(client, kind):
            return wire if type(client)._chat is kind._chat else Wire(wire.offer, _ask_protocol)
    return Wire(_offer_openai, _ask_protocol)


def _offer_plain(tools: Definitions) -> dict[str, Any]:
    return {"tools": [dict(tool) for tool in tools]}


def _offer_openai(tools: Definitions) -> dict[str, Any]:
    return {**_offer_ollama(tools), "tool_choice": "auto"} if tools else {}


def _offer_ollama(tools: Definitions) -> dict[str, Any]:
    return {"tools": [{"type": "function", "function": dict(tool)} for tool in tools]} if tools else {}


def _offer_anthropic(tools: Definitions) -> dict[str, Any]:
    offered = [{"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in tools]
    return {"tools": offered, "tool_choice": {"type": "auto"}} if offered else {}


async def _ask_own(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelAnswer:
    answer: ModelAnswer = await client.answer(model, messages, options)
    return answer


async def _ask_protocol(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelAnswer:
    message, usage = await client._chat(model=model, messages=messages, options=options)
    return ModelAnswer(message, TokenUsage(usage.prompt_tokens, usage.completion_tokens) if usage else None)


async def _ask_openai(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelAnswer:
    create = client.client.chat.completions.create
    response = await create(**_taken_by(create, client._build_request_kwargs(model, messages, options)))
    if not getattr(response, "choices", None):
        raise UnusableAnswer(_as_sent(response))
    choice = response.choices[0]
    calls = [_call(call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()]
    return ModelAnswer(_message(choice.message.content, calls), _openai_usage(response.usage), choice.finish_reason)


def _openai_usage(usage: Any) -> TokenUsage | None:
    prompt_details = getattr(usage, "prompt_tokens_details", None)
    completion_details = getattr(usage, "completion_tokens_details", None)
    return _usage(
        getattr(usage, "prompt_tokens", None),
        getattr(usage, "completion_tokens", None),
        getattr(prompt_details, "cached_tokens", None),
        getattr(completion_details, "reasoning_tokens", None),
    )


async def _ask_anthropic(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelAnswer:
    request = client._build_request_kwargs(model, _with_object_arguments(messages), options)
    create = client.client.messages.create
    response = await create(**_taken_by(create, request))
    if not isinstance(getattr(response, "content", None), list):
        raise UnusableAnswer(_as_sent(response))
    text = "".join(block.text for block in response.content if block.type == "text")
    calls = [_call(block.id, block.name, block.input) for block in response.content if block.type == "tool_use"]
    return ModelAnswer(_message(text, calls), _anthropic_usage(response.usage), response.stop_reason)


def _anthropic_usage(usage: Any) -> TokenUsage | None:
    fresh = getattr(usage, "input_tokens", None)
    read = getattr(usage, "cache_read_input_tokens", None)
    written = getattr(usage, "cache_creation_input_tokens", None)
    # Anthropic counts what was read from and written to the cache apart from the rest of the request.
    prompt = None if fresh is None else fresh + (read or 0) + (written or 0)
    return _usage(prompt, getattr(usage, "output_tokens", None), read)


async def _ask_ollama(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelAnswer:
    from ollama import ChatResponse

    request = await client._build_request_kwargs(model, _with_object_arguments(messages), options)
    # The SDK's `chat` reads the tools into a class of its own, which drops what it does not know: $ref, anyOf, limits.
    response = await client.client._request(ChatResponse, "POST", "/api/chat", json=request)
    calls = [
        _call(getattr(call, "id", None) or f"call_{number}", call.function.name, call.function.arguments)
        for number, call in enumerate(response.message.tool_calls or (), start=sum(map(_calls_in, messages)) + 1)
    ]
    usage = _usage(response.prompt_eval_count, response.eval_count)
    return ModelAnswer(_message(response.message.content, calls), usage, response.done_reason)


def _taken_by(create: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The request, when the SDK takes all of it: Anthropic's SDK 2 has no sampling options such as temperature any more."""
    strange = [name for name in request if name not in inspect.signature(create).parameters]
    if strange:
        raise UsageError(
            f"The installed SDK takes no {' and no '.join(strange)} in a request.", hint="Leave it out of the model's options."
        )
    return request


def _calls_in(message: ChatMessage) -> int:
    return len(getattr(message, "tool_calls", None) or ())


def _usage(
    prompt: int | None, completion: int | None, cached: int | None = None, reasoning: int | None = None
) -> TokenUsage | None:
    return None if prompt is None and completion is None else TokenUsage(prompt, completion, cached, reasoning)


def _message(text: str | None, calls: list[AssistantToolCall]) -> Any:
    from casual_llm import AssistantMessage

    return AssistantMessage(content=text or "", tool_calls=calls or None)


def _call(call_id: str | None, name: str, arguments: Any) -> AssistantToolCall:
    from casual_llm import AssistantToolCall, AssistantToolCallFunction

    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return AssistantToolCall(id=call_id or "", function=AssistantToolCallFunction(name=name, arguments=text or "{}"))


def _with_object_arguments(messages: list[ChatMessage]) -> list[ChatMessage]:
    """The messages with `{}` for arguments that are no JSON object, which these two providers cannot be sent at all."""
    return [
        message.model_copy(update={"tool_calls": [_with_object(call) for call in message.tool_calls]})
        if message.role == "assistant" and message.tool_calls
        else message
        for message in messages
    ]


def _with_object(call: AssistantToolCall) -> AssistantToolCall:
    try:
        valid = isinstance(json.loads(call.function.arguments), dict)
    except ValueError:
        valid = False
    return call if valid else _call(call.id, call.function.name, {})


def _as_sent(response: Any) -> str:
    dump = getattr(response, "to_json", None)
    return str(dump(indent=None)) if dump is not None else str(response)
