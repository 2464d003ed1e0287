"""Messages that a person hands in are made valid before a model reads them."""

from __future__ import annotations

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    ToolResultMessage,
    UserMessage,
)
from kit.history import assert_valid

from casual_mcp_nb import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.providers.scripted import call, scripted_model

CONFIG = {"servers": {"math": {"bundled": "math", "transport": "in-process"}}}


def asking(call_id: str) -> AssistantMessage:
    function = AssistantToolCallFunction(name="math__add", arguments='{"a": 1, "b": 1}')
    return AssistantMessage(
        content=None, tool_calls=[AssistantToolCall(id=call_id, function=function)]
    )


@pytest.mark.defect("B8")
async def test_calls_without_results_and_doubled_ids_in_a_history_are_repaired_and_told() -> None:
    history = [
        UserMessage(content="Add."),
        asking("a"),
        ToolResultMessage(name="math__add", tool_call_id="a", content="2"),
        asking("a"),
        ToolResultMessage(name="math__add", tool_call_id="x", content="9"),
    ]
    async with McpToolChat.from_config(CONFIG) as chat:
        model = scripted_model(call("math__add", a=1, b=2), "Three.")
        turn = await chat.run(
            [UserMessage(content="And?")], TurnOptions(model=model), history=history
        )
    sent = turn.steps[-1].request.messages[1:]
    assert_valid(sent)
    assert next(m.content for m in sent if m.role == "tool") == "2"
    assert len(turn.notices) == 3
