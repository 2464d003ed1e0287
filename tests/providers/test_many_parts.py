"""A conversation of thousands of parts and calls becomes a request without holding the event
loop.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    ChatMessage,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from kit.provider import PROVIDERS, Provider, answer

from casual_mcp_nb import McpToolChat, UsageError
from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.limits import MAX_PARTS
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.scripted import scripted_model


def conversation(parts: int, calls: int) -> list[ChatMessage]:
    function = AssistantToolCallFunction(name="add", arguments="{}")
    return [
        UserMessage(content=[TextContent(text=f"part {number}") for number in range(parts)]),
        AssistantMessage(
            content="",
            tool_calls=[AssistantToolCall(id=f"c{n}", function=function) for n in range(calls)],
        ),
        *(
            ToolResultMessage(name="add", tool_call_id=f"c{number}", content="3")
            for number in range(calls)
        ),
        UserMessage(content="And now?"),
    ]


@pytest.mark.defect("G1")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_the_loop_is_free_while_a_request_of_many_parts_is_built(
    provider: str, loopback: Callable[..., Provider]
) -> None:
    server = loopback(answer(provider, "Yes."))
    model = ModelFactory(Config.model_validate(server.config(provider, timeout=60))).chat_model(
        "small"
    )
    # The watch over all loops, see `kit.loop_guard`, fails the test if one is held.
    response = await model.complete(conversation(parts=4_000, calls=1_500))
    assert response.message.content == "Yes."
    sent = str(server.seen[-1].body)
    assert "part 3999" in sent
    assert "And now?" in sent


@pytest.mark.defect("G1")
@pytest.mark.parametrize(
    "messages",
    [conversation(MAX_PARTS + 1, 1), conversation(1, MAX_PARTS + 1)],
    ids=["parts", "calls"],
)
async def test_a_message_of_too_many_parts_is_refused(messages: list[ChatMessage]) -> None:
    async with McpToolChat.from_config({"models": {}}) as chat:
        with pytest.raises(UsageError) as raised:
            await chat.chat(messages, model=scripted_model("Yes."))
        assert f"{MAX_PARTS:,}" in str(raised.value)
        with pytest.raises(UsageError):
            _ = [event async for event in chat.stream(messages, model=scripted_model("Yes."))]
