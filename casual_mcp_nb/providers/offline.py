"""The model that needs no key and no network: a deterministic planner, not a language model.

It reads the same messages and tools that a model would, and does what a careful model does with them: it searches for tools
that are not loaded, calls those that fit, with arguments from the request, reports the results, and asks for what is missing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from casual_mcp_nb.providers._planner.history import read_history
from casual_mcp_nb.providers._planner.plan import plan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from casual_llm import ChatOptions, StreamChunk, Usage
    from casual_llm.messages import AssistantMessage, ChatMessage

    from casual_mcp_nb.providers.base import ModelAnswer


class OfflineClient:
    """A casual-llm client over the planner. The same conversation and tools get the same answer, always."""

    async def answer(self, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelAnswer:
        """Plan the next step of a conversation.

        Args:
            model: Not looked at.
            messages: The conversation.
            options: Its `extra["tools"]` are the tools that are offered.

        Returns:
            Calls of tools or a reply; never a usage, as nothing was used.
        """
        from casual_llm import AssistantMessage, AssistantToolCall, AssistantToolCallFunction

        from casual_mcp_nb.providers.base import ModelAnswer

        step = plan(messages, options.extra.get("tools", ()))
        first = read_history(messages).calls + 1
        made = [
            AssistantToolCall(
                id=f"call_{number}",
                function=AssistantToolCallFunction(name=call.name, arguments=json.dumps(call.arguments, ensure_ascii=False)),
            )
            for number, call in enumerate(step.calls, start=first)
        ]
        message = AssistantMessage(content=step.reply, tool_calls=made or None)
        return ModelAnswer(message, finish_reason="tool_calls" if made else "stop")

    async def _chat(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> tuple[AssistantMessage, Usage | None]:
        return (await self.answer(model, messages, options)).message, None

    async def _stream(self, model: str, messages: list[ChatMessage], options: ChatOptions) -> AsyncIterator[StreamChunk]:
        from casual_llm import StreamChunk

        answer = await self.answer(model, messages, options)
        yield StreamChunk(content=answer.message.content or "", finish_reason=answer.finish_reason)
