"""What each provider is sent and what its answers mean.

casual-llm builds the requests. The answers are read here, because its own `_chat` drops the reason for the end and cached
tokens, and cannot take an answer without usage (Ollama) or without choices; its own `_stream` drops calls of tools.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.providers import _anthropic, _litellm, _ollama, _openai, _responses, _responses_request
from casual_mcp_nb.providers._answers import Definitions, OnText
from casual_mcp_nb.providers.base import ModelResponse
from casual_mcp_nb.types.tokens import TokenUsage

if TYPE_CHECKING:
    from casual_llm import ChatMessage, ChatOptions


@dataclass(frozen=True)
class ProviderAdapter:
    """How to talk to one kind of client.

    Args:
        offer: Tool definitions to extra arguments of the request.
        ask: One request: client, model, messages and options to an answer.
        stream: The same, with the text told as it arrives; None where that cannot be had with calls of tools.
        name: The format, as what is kept for a provider has it; empty where a client makes its own requests.
    """

    offer: Callable[[Definitions], dict[str, Any]]
    ask: Callable[[Any, str, list[ChatMessage], ChatOptions], Awaitable[ModelResponse]]
    stream: Callable[[Any, str, list[ChatMessage], ChatOptions, OnText], Awaitable[ModelResponse]] | None = None
    name: str = ""


def wire_of(client: Any) -> ProviderAdapter:
    """How to talk to this client; one that is not known gets OpenAI's shape through casual-llm's protocol."""
    return _wire_of_kind(client.__class__)


@lru_cache(maxsize=64)
def _wire_of_kind(own: type[Any]) -> ProviderAdapter:
    import casual_llm

    if hasattr(own, "answer"):
        return ProviderAdapter(_offer_plain, _ask_own, _stream_own if getattr(own, "streams", False) else None)
    for kind, wire in (
        (casual_llm.OpenAIClient, ProviderAdapter(_openai.offer, _openai.ask, _openai.stream, _openai.WIRE)),
        (casual_llm.AnthropicClient, ProviderAdapter(_anthropic.offer, _anthropic.ask, _anthropic.stream, _anthropic.WIRE)),
        (casual_llm.OllamaClient, ProviderAdapter(_ollama.offer, _ollama.ask, _ollama.stream, _ollama.WIRE)),
        (
            _responses.ResponsesClient,
            ProviderAdapter(_responses.offer, _responses.ask, _responses.stream, _responses_request.WIRE),
        ),
        (_litellm.LiteLLMClient, ProviderAdapter(_openai.offer, _litellm.ask, _litellm.stream, _litellm.WIRE)),
    ):
        # A class is None where its SDK is missing. A subclass with a `_chat` of its own wants to be asked through it.
        if kind is not None and issubclass(own, kind):
            return wire if own._chat is kind._chat else ProviderAdapter(wire.offer, _ask_protocol)
    return ProviderAdapter(_openai.offer, _ask_protocol)


def _offer_plain(tools: Definitions) -> dict[str, Any]:
    return {"tools": [dict(tool) for tool in tools]}


async def _ask_own(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelResponse:
    answer: ModelResponse = await client.answer(model, messages, options)
    return answer


async def _stream_own(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions, say: OnText) -> ModelResponse:
    answer = await _ask_own(client, model, messages, options)
    for piece in re.findall(r"\s*(?:\S+\s*){1,3}", answer.message.content or ""):
        say(piece)
        await asyncio.sleep(0)
    return answer


async def _ask_protocol(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelResponse:
    message, usage = await client._chat(model=model, messages=messages, options=options)
    return ModelResponse(message, TokenUsage(usage.prompt_tokens, usage.completion_tokens) if usage else None)
