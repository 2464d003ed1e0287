"""Provider for the offline planner, which needs no key, network or SDK."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.config_base import OPTION_NAMES
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.providers._calls import call_of, next_number
from casual_mcp_nb.providers._clients import AnsweringClient
from casual_mcp_nb.providers.registry import ProviderSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from casual_llm import ChatOptions, StreamChunk
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.base.config import ClientConfig
    from casual_mcp_nb.offline.deliveries import NextCall


class OfflineClient(AnsweringClient):
    """A casual-llm client backed by the planner. Its answers are deterministic."""

    streams = True
    """Whether a reply is streamed."""
    loads_found_tools = True
    """Whether it receives search results separately from the loaded tools, as with the delivery
    `native`.
    """

    async def answer(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> ModelResponse:
        """Plan a conversation's next step: tool calls or a reply, without usage."""
        from casual_llm import AssistantMessage

        # On another thread, because long messages are slow.
        planned, reply = await asyncio.to_thread(_plan, messages, options.extra.get("tools", ()))
        calls = [
            call_of(f"call_{number}", call.name, call.arguments)
            for number, call in enumerate(planned, next_number(messages))
        ]
        message = AssistantMessage(content=reply, tool_calls=calls or None)
        return ModelResponse(message, finish_reason="tool_calls" if calls else "stop")

    async def _stream(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> AsyncIterator[StreamChunk]:
        from casual_llm import StreamChunk

        answer = await self.answer(model, messages, options)
        yield StreamChunk(content=answer.message.content or "", finish_reason=answer.finish_reason)


def _plan(
    messages: list[ChatMessage], tools: Sequence[Mapping[str, Any]]
) -> tuple[list[NextCall], str]:
    # Reads as much as the rest of the package.
    from casual_mcp_nb.offline.planner import plan

    return plan(messages, tools)


def _build(name: str, config: ClientConfig) -> Any:
    return OfflineClient()


SPEC = ProviderSpec(
    name="offline",
    about="the demo planner that ships with the package (not an LLM)",
    position=60,
    build=_build,
    api="The offline planner",
    needs_key=False,
    is_language_model=False,
    lacking=OPTION_NAMES,
)
