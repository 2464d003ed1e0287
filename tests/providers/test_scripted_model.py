"""The scripted model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import casual_llm
import pytest
from casual_llm.messages import AssistantMessage, ChatMessage, UserMessage

from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.errors import LimitError, ProviderError, UsageError
from casual_mcp_nb.providers.scripted import ScriptedClient, call, calls, scripted_model

ASKED: list[ChatMessage] = [UserMessage(content="Hi")]
TOOL = {"name": "math__add", "description": "Add.", "parameters": {"type": "object"}}


async def test_texts_messages_and_calls_are_played_in_order() -> None:
    both = calls(call("math__add", a=1, b=2), call("time__now"))
    model = scripted_model(
        call("math__add", a=3, b=4), both, AssistantMessage(content="nearly"), "done"
    )
    answers = [(await model.complete(ASKED, [TOOL])).message for _ in range(4)]
    made = [
        (one.id, one.function.name, json.loads(one.function.arguments))
        for m in answers[:2]
        for one in m.tool_calls or ()
    ]
    assert made == [
        ("call_1", "math__add", {"a": 3, "b": 4}),
        ("call_2", "math__add", {"a": 1, "b": 2}),
        ("call_3", "time__now", {}),
    ]
    assert [answer.content for answer in answers[2:]] == ["nearly", "done"]


async def test_every_request_is_kept_with_its_messages_and_definitions() -> None:
    model = scripted_model("one", "two")
    await model.complete(ASKED, [TOOL])
    await model.complete([*ASKED, *ASKED])
    first, second = model.client.requests  # type: ignore[attr-defined]
    assert (list(first.messages), list(first.tools)) == (ASKED, [TOOL])
    assert (len(second.messages), second.tools) == (2, ())


async def test_usage_is_what_the_answer_has_or_nothing() -> None:
    model = scripted_model(
        ModelResponse(AssistantMessage(content="a"), TokenUsage(5, 1), "length"), "b"
    )
    first, second = await model.complete(ASKED), await model.complete(ASKED)
    assert (first.usage, first.finish_reason) == (TokenUsage(5, 1), "length")
    assert (second.usage, second.finish_reason) == (None, "stop")


async def test_an_error_of_ours_is_raised_as_it_is_and_any_other_as_a_provider_error() -> None:
    model = scripted_model(LimitError("enough"), RuntimeError("the line is dead"))
    with pytest.raises(LimitError, match="enough"):
        await model.complete(ASKED)
    with pytest.raises(ProviderError, match="the line is dead") as caught:
        await model.complete(ASKED)
    assert isinstance(caught.value.__cause__, RuntimeError)


async def test_a_function_sees_the_request_and_answers() -> None:
    async def late(messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]]) -> str:
        return f"{len(messages)} messages, {tools[0]['name']}"

    model = scripted_model(late, lambda messages, tools: call("math__add", a=len(tools)))
    assert (await model.complete(ASKED, [TOOL])).message.content == "1 messages, math__add"
    (made,) = (await model.complete(ASKED, [TOOL])).message.tool_calls or []
    assert made.function.arguments == '{"a": 1}'


async def test_a_script_that_is_over_says_so() -> None:
    model = scripted_model("only one")
    await model.complete(ASKED)
    with pytest.raises(UsageError, match="no answer for request 2"):
        await model.complete(ASKED)


async def test_it_is_a_client_for_a_model_of_casual_llm_too() -> None:
    usage = ModelResponse(AssistantMessage(content="a"), TokenUsage(5, 1))
    model = casual_llm.Model(ScriptedClient(["hello", usage]), "m")  # type: ignore[arg-type]
    assert (await model.chat(ASKED)).content == "hello"
    assert model.get_usage() is None
    await model.chat(ASKED)
    assert model.get_usage() == casual_llm.Usage(prompt_tokens=5, completion_tokens=1)
