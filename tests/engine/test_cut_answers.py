"""An answer that was cut at a limit of tokens is never passed off as a whole one: over each
provider's real SDK.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from casual_llm.messages import AssistantMessage, UserMessage
from fastmcp import FastMCP
from kit.option_rules import OptionsProvider
from kit.provider import PROVIDERS, answer

from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import AnswerCutError
from casual_mcp_nb.providers.scripted import call, scripted_model

TOOL = "notes__write"


def cut(
    provider: str, text: str, *calls: tuple[str, Mapping[str, Any]], arguments: str | None = None
) -> Any:
    """Build an answer that the provider cut; `arguments` is the part of its last call's arguments
    that arrived.
    """
    body = answer(provider, text, *calls)
    if provider == "openai":
        body["choices"][0]["finish_reason"] = "length"
        if arguments is not None:
            body["choices"][0]["message"]["tool_calls"][-1]["function"]["arguments"] = arguments
    elif provider == "openai-responses":
        body |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        if arguments is not None:
            body["output"][-1]["arguments"] = arguments
    elif provider == "anthropic":
        # Here the provider closes what the model did not: the arguments are valid, and not all of
        # them.
        body["stop_reason"] = "max_tokens"
    elif provider == "gemini":
        body["candidates"][0]["finishReason"] = "MAX_TOKENS"
    else:
        body["done_reason"] = "length"
    return body


class Notes(FastMCP[Any]):
    """A server that records each written note."""

    def __init__(self) -> None:
        super().__init__("notes")
        self.written: list[str] = []

        @self.tool
        def write(text: str = "") -> str:
            """Write a note."""
            self.written.append(text)
            return "written"


@asynccontextmanager
async def chatting(
    server: OptionsProvider, notes: Notes, **model: Any
) -> AsyncIterator[McpToolChat]:
    async with AsyncExitStack() as stack:
        stack.enter_context(server)
        config = server.config_of(model)
        yield await stack.enter_async_context(
            McpToolChat.from_config(config, in_process={"notes": notes})
        )


@pytest.mark.defect("C1")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_answer_that_was_cut_says_so_everywhere(provider: str) -> None:
    server = OptionsProvider(provider, None, cut(provider, "It is half past"))
    async with chatting(server, Notes(), max_tokens=64) as chat:
        turn = await chat.run([UserMessage(content="When?")])
    assert turn.status == "done"
    assert turn.truncated
    assert turn.steps[0].truncated
    (notice,) = turn.notices
    assert "max_tokens = 64" in notice.text
    shown = turn._repr_mimebundle_()
    assert "✂" in shown["text/html"]
    assert "✂" in shown["text/markdown"]
    assert "cut" in repr(turn)
    loaded = Conversation.from_json(Conversation([turn]).to_json())[0]
    assert loaded.truncated


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_whole_answer_has_no_such_mark(provider: str) -> None:
    async with chatting(OptionsProvider(provider), Notes()) as chat:
        turn = await chat.run([UserMessage(content="When?")])
    assert not turn.truncated
    assert turn.notices == []
    assert "✂" not in turn._repr_mimebundle_()["text/html"]


@pytest.mark.defect("C1")
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_call_that_was_cut_is_not_run_and_the_model_is_told_why(provider: str) -> None:
    calls = [(TOOL, {"text": "whole"}), (TOOL, {"text": "half of"})]
    first = cut(provider, "", *calls, arguments='{"text": "half of')
    notes = Notes()
    server = OptionsProvider(provider, None, first, answer(provider, "I will be short."))
    async with chatting(server, notes, max_tokens=64) as chat:
        turn = await chat.run([UserMessage(content="Write.")])
    assert notes.written == ["whole"]
    whole, half = turn.tool_calls
    assert (whole.status, half.status) == ("ok", "error")
    assert "max_tokens = 64" in half.result
    assert "max_tokens = 64" in json.dumps(server.bodies[1], ensure_ascii=False)
    assert turn.answer == "I will be short."


@pytest.mark.defect("C1")
async def test_a_model_whose_calls_are_cut_again_and_again_ends_the_turn_with_advice() -> None:
    notes = Notes()
    server = OptionsProvider(
        "openai", None, cut("openai", "", (TOOL, {}), arguments='{"text": "aaa')
    )
    async with chatting(server, notes, max_tokens=64) as chat:
        turn = await chat.run([UserMessage(content="Write.")])
    assert isinstance(turn.exception, AnswerCutError)
    assert "max_tokens" in str(turn.exception)
    assert len(server.seen) == 3
    assert notes.written == []
    assert len(turn.notices) == 1
    results = [message.tool_call_id for message in turn.messages if message.role == "tool"]
    assert results == [
        made.id for message in turn.messages for made in getattr(message, "tool_calls", None) or ()
    ]


@pytest.mark.defect("C1")
async def test_a_whole_answer_between_them_begins_the_count_anew() -> None:
    broken = call(TOOL, text="x")
    whole = call(TOOL, text="y")
    script: list[Any] = []
    for made in (broken, broken, whole, broken, broken):
        scripted = scripted_model(made)
        got = await scripted.complete([UserMessage(content="x")])
        script.append(got if made is whole else ModelResponse(got.message, finish_reason="length"))
    script.append("Done.")
    notes = Notes()
    async with McpToolChat.from_config({}, in_process={"notes": notes}) as chat:
        turn: Turn = await chat.run(
            [UserMessage(content="x")], TurnOptions(model=scripted_model(*script))
        )
    assert turn.answer == "Done."
    assert notes.written == ["y"]


REASONS = [
    ("length", True),
    ("max_tokens", True),
    ("MAX_TOKENS", True),
    ("max_output_tokens", True),
    ("incomplete", True),
    ("model_context_window_exceeded", True),
    ("model_length", True),
    ("stop", False),
    ("end_turn", False),
    (None, False),
]


@pytest.mark.defect("C1")
@pytest.mark.parametrize(("reason", "truncated"), REASONS)
def test_the_words_of_all_providers_for_a_cut_are_known(
    reason: str | None, truncated: bool
) -> None:
    assert ModelResponse(AssistantMessage(content="x"), finish_reason=reason).truncated is truncated
