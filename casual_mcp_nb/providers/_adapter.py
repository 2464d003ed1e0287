"""Choose the adapter between casual-llm and a provider's client.

casual-llm builds the requests. Responses are parsed here, because its own `_chat` drops the finish reason and cached tokens,
and fails on a response without usage (Ollama) or without choices; its own `_stream` drops tool calls.
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.providers.builtin import openai
from casual_mcp_nb.providers.registry import specs
from casual_mcp_nb.providers.spec import Definitions, OnText, ProviderAdapter, plain_tools_param
from casual_mcp_nb.types.model_response import ModelResponse
from casual_mcp_nb.types.tokens import TokenUsage

if TYPE_CHECKING:
    from casual_llm import ChatMessage, ChatOptions, LLMClient


def adapter_of(client: Any) -> ProviderAdapter:
    """Find the adapter of a client; an unknown one is called through casual-llm's protocol, in OpenAI's format."""
    return _wire_of_kind(client.__class__)


@lru_cache(maxsize=64)
def _wire_of_kind(own: type[Any]) -> ProviderAdapter:
    if hasattr(own, "answer"):
        stream = _stream_own if getattr(own, "streams", False) else None
        offer_found = _offer_all if getattr(own, "loads_found_tools", False) else None
        return ProviderAdapter(plain_tools_param, _complete_own, stream, offer_found=offer_found)
    for spec in specs().values():
        kind, adapter = spec.client(), spec.adapter
        # A class is None if its SDK is missing. A subclass that overrides `_chat` is called through it.
        if kind is not None and adapter is not None and issubclass(own, kind):
            return adapter if own._chat is kind._chat else ProviderAdapter(adapter.offer, _ask_protocol)
    return ProviderAdapter(openai.offer, _ask_protocol)


def _offer_all(tools: Definitions, found_tools: Definitions) -> dict[str, Any]:
    return plain_tools_param([*tools, *found_tools])


async def _complete_own(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelResponse:
    answer: ModelResponse = await client.answer(model, messages, options)
    return answer


async def _stream_own(
    client: Any, model: str, messages: list[ChatMessage], options: ChatOptions, on_text: OnText
) -> ModelResponse:
    answer = await _complete_own(client, model, messages, options)
    for piece in re.findall(r"\s*(?:\S+\s*){1,3}", answer.message.content or ""):
        on_text(piece)
        await asyncio.sleep(0)
    return answer


async def _ask_protocol(client: LLMClient, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelResponse:
    message, usage = await client._chat(model=model, messages=messages, options=options)
    return ModelResponse(message, TokenUsage(usage.prompt_tokens, usage.completion_tokens) if usage else None)
