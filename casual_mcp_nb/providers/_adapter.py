"""What each provider is sent and what its answers mean.

casual-llm builds the requests. The answers are read here, because its own `_chat` drops the reason for the end and cached
tokens, and cannot take an answer without usage (Ollama) or without choices; its own `_stream` drops calls of tools.
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.providers.builtin import openai
from casual_mcp_nb.providers.registry import specs
from casual_mcp_nb.providers.spec import OnText, ProviderAdapter, offer_plain
from casual_mcp_nb.types.model_response import ModelResponse
from casual_mcp_nb.types.tokens import TokenUsage

if TYPE_CHECKING:
    from casual_llm import ChatMessage, ChatOptions, LLMClient


def wire_of(client: Any) -> ProviderAdapter:
    """How to talk to this client; one that is not known gets OpenAI's shape through casual-llm's protocol."""
    return _wire_of_kind(client.__class__)


@lru_cache(maxsize=64)
def _wire_of_kind(own: type[Any]) -> ProviderAdapter:
    if hasattr(own, "answer"):
        return ProviderAdapter(offer_plain, _ask_own, _stream_own if getattr(own, "streams", False) else None)
    for spec in specs().values():
        kind, adapter = spec.client(), spec.adapter
        # A class is None where its SDK is missing. A subclass with a `_chat` of its own wants to be asked through it.
        if kind is not None and adapter is not None and issubclass(own, kind):
            return adapter if own._chat is kind._chat else ProviderAdapter(adapter.offer, _ask_protocol)
    return ProviderAdapter(openai.offer, _ask_protocol)


async def _ask_own(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelResponse:
    answer: ModelResponse = await client.answer(model, messages, options)
    return answer


async def _stream_own(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions, say: OnText) -> ModelResponse:
    answer = await _ask_own(client, model, messages, options)
    for piece in re.findall(r"\s*(?:\S+\s*){1,3}", answer.message.content or ""):
        say(piece)
        await asyncio.sleep(0)
    return answer


async def _ask_protocol(client: LLMClient, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelResponse:
    message, usage = await client._chat(model=model, messages=messages, options=options)
    return ModelResponse(message, TokenUsage(usage.prompt_tokens, usage.completion_tokens) if usage else None)
