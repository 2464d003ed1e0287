"""The client of the offline planner, which a session uses in place of a model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.offline.conversation import MAX_REQUEST, PlannedCall, bridged_definitions, read_conversation
from casual_mcp_nb.offline.planner import Plan, plan
from casual_mcp_nb.types.event import CALL_TOOL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from casual_llm import ChatOptions, StreamChunk, Usage
    from casual_llm.messages import AssistantMessage, ChatMessage

    from casual_mcp_nb.types.model_response import ModelResponse


class OfflineClient:
    """A casual-llm client backed by the planner. Its answers are deterministic."""

    streams = True
    """Whether a reply is streamed."""
    loads_found_tools = True
    """Whether it takes what searches found apart from the tools that are always loaded, as with the delivery `native`."""

    async def answer(self, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelResponse:
        """Plan the next step of a conversation.

        Args:
            model: Ignored.
            messages: The conversation.
            options: Its `extra["tools"]` are the offered tools.

        Returns:
            Tool calls or a reply, without usage.
        """
        from casual_llm import AssistantMessage, AssistantToolCall, AssistantToolCallFunction

        from casual_mcp_nb.types.model_response import ModelResponse

        step, first = await asyncio.to_thread(_planned, messages, options.extra.get("tools", ()))
        calls = [
            AssistantToolCall(
                id=f"call_{number}",
                function=AssistantToolCallFunction(name=call.name, arguments=json.dumps(call.arguments, ensure_ascii=False)),
            )
            for number, call in enumerate(step.calls, start=first)
        ]
        message = AssistantMessage(content=step.reply, tool_calls=calls or None)
        return ModelResponse(message, finish_reason="tool_calls" if calls else "stop")

    async def _chat(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> tuple[AssistantMessage, Usage | None]:
        return (await self.answer(model, messages, options)).message, None

    async def _stream(self, model: str, messages: list[ChatMessage], options: ChatOptions) -> AsyncIterator[StreamChunk]:
        from casual_llm import StreamChunk

        answer = await self.answer(model, messages, options)
        yield StreamChunk(content=answer.message.content or "", finish_reason=answer.finish_reason)


def _planned(messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]]) -> tuple[Plan, int]:
    """Return the next step and the number of its first call. Called on another thread, because long messages are slow."""
    conversation = read_conversation(messages)
    offered = {str(tool["name"]) for tool in tools}
    if CALL_TOOL in offered:
        found = [tool for tool in bridged_definitions(messages) if tool["name"] not in offered]
        step = plan(conversation, [*(tool for tool in tools if tool["name"] != CALL_TOOL), *found])
        names = {tool["name"] for tool in found}
        step = replace(step, calls=tuple(_bridged(call) if call.name in names else call for call in step.calls))
    else:
        step = plan(conversation, tools)
    if conversation.cut and not step.calls:
        note = (
            f"(The offline planner reads the first {MAX_REQUEST:,} characters of a message; "
            f"{conversation.cut:,} were left out.)"
        )
        step = Plan(reply=f"{step.reply}\n\n{note}")
    return step, conversation.call_count + 1


def _bridged(call: PlannedCall) -> PlannedCall:
    return PlannedCall(CALL_TOOL, {"name": call.name, "arguments": call.arguments})
