"""Turns of a chat with a model that plays a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from casual_llm.messages import UserMessage

from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.scripted import scripted_model


async def ask(
    chat: McpToolChat,
    *answers: Any,
    history: Sequence[Any] = (),
    model: ChatModel | None = None,
    **options: Any,
) -> Turn:
    """Run one turn in which the model gives these answers, as `scripted_model` takes them.

    Args:
        chat: The chat.
        answers: The model's answers, one for each step.
        history: The conversation so far.
        model: A model of the test's own in the place of the answers.
        options: Fields of `TurnOptions`.
    """
    model = model or scripted_model(*answers)
    return await chat.run(
        [UserMessage(content="Do it")], TurnOptions(model=model, **options), history=history
    )
