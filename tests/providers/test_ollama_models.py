"""Ollama's models are asked to think in the way that each of them knows; a cut prompt and an error
in a stream are told.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from kit.option_rules import OptionsProvider, Rules
from kit.provider import Provider, answer
from kit.scripted_http import Reply

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import MalformedAnswerError, OverloadedError, ProviderError

QWEN = {"capabilities": ["completion", "tools", "thinking"], "details": {"family": "qwen3"}}
GPT_OSS = {"capabilities": ["completion", "tools", "thinking"], "details": {"family": "gptoss"}}
LLAMA = {"capabilities": ["completion", "tools"], "details": {"family": "llama"}}
# Servers since 0.40 list the values.
LISTED = {
    "thinking": {"values": ["low", "medium", "high"], "default": "medium"},
    "details": {"family": "gptoss"},
}
SWITCH = {"thinking": {"values": [True, False], "default": True}, "details": {"family": "qwen3"}}
NEVER = {"thinking": {"values": [False]}, "details": {"family": "llama"}}


@asynccontextmanager
async def chatting(
    server: OptionsProvider, model: dict[str, Any] | None = None, **client: Any
) -> AsyncIterator[McpToolChat]:
    async with AsyncExitStack() as stack:
        stack.enter_context(server)
        yield await stack.enter_async_context(
            McpToolChat.from_config(server.config_of(model, **client))
        )


async def say(chat: McpToolChat, text: str = "When?", **options: Any) -> Turn:
    return await chat.run([UserMessage(content=text)], TurnOptions(**options))


ASKED = [
    (QWEN, "high", True),
    (QWEN, "minimal", True),
    (QWEN, "none", False),
    (GPT_OSS, "high", "high"),
    (GPT_OSS, "xhigh", "high"),
    (GPT_OSS, "minimal", "low"),
    (GPT_OSS, "none", "low"),
    (LISTED, "medium", "medium"),
    (SWITCH, "low", True),
    (LLAMA, "high", None),
    (LLAMA, "none", None),
    (NEVER, "high", None),
    (None, "high", True),
    ({}, "none", False),
]


@pytest.mark.defect("D5")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("facts", "effort", "think"), ASKED)
async def test_a_model_is_told_to_think_in_the_way_that_it_knows(
    facts: Any, effort: str, think: Any, stream: bool
) -> None:
    server = OptionsProvider("ollama", Rules(facts=facts))
    async with chatting(server, {"reasoning_effort": effort}) as chat:
        first = await say(chat, stream=stream)
        await say(chat, stream=stream)
    assert first.status == "done"
    assert [body.get("think") for body in server.bodies] == [think, think]
    assert server.facts_asked == (1 if facts is not None else 2)
    told = [notice.text for notice in first.notices]
    assert len(told) == (1 if think is None and effort != "none" else 0)


@pytest.mark.defect("D5")
async def test_a_model_that_is_not_asked_to_think_is_not_asked_about() -> None:
    server = OptionsProvider("ollama", Rules(facts=QWEN))
    async with chatting(server) as chat:
        await say(chat)
    assert server.facts_asked == 0
    assert "think" not in server.bodies[0]


def counted(read: int) -> Any:
    return answer("ollama", "Noon.", usage=(read, 3))


@pytest.mark.defect("D5")
@pytest.mark.parametrize(
    ("words", "read", "window", "told"),
    [
        (20_000, 4_090, None, 1),
        (20_000, 19_000, None, 0),
        (20_000, 12, None, 0),
        (20_000, 4_090, 64_000, 0),
        (300, 400, None, 0),
    ],
)
async def test_a_prompt_that_the_server_cut_is_told(
    words: int, read: int, window: int | None, told: int
) -> None:
    server = OptionsProvider("ollama", None, counted(read))
    async with chatting(server, {"context_window": window}) as chat:
        turn = await say(chat, "word " * words)
    assert len([notice for notice in turn.notices if "context_window" in notice.text]) == told


@pytest.mark.defect("D5")
@pytest.mark.parametrize(("window", "found"), [(None, True), (32_000, False)])
def test_the_doctor_says_that_a_server_without_context_window_cuts_prompts(
    window: int | None, found: bool
) -> None:
    config = {
        "clients": {"desk": {"provider": "ollama"}},
        "models": {"small": {"client": "desk", "model": "m-1"}},
    }
    config["models"]["small"] |= {"context_window": window}  # type: ignore[dict-item]
    with Session.from_config(config) as session:
        advice = [
            finding.advice for finding in session.servers.doctor() if finding.part == "Models"
        ]
    assert any("context_window" in text for text in advice) is found


def broken(error: Any, *before: str) -> Reply:
    pieces = [
        {"model": "m-1", "message": {"role": "assistant", "content": text}, "done": False}
        for text in before
    ]
    lines = [
        *pieces,
        {"error": error} if not isinstance(error, dict) or "error" not in error else error,
    ]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return Reply(200, body, {"content-type": "application/x-ndjson"})


ERRORS = [
    ("llama runner process no longer running: -1", OverloadedError, True),
    ("model is loading, please try again", OverloadedError, True),
    ({"error": "too many requests", "status_code": 429}, ProviderError, True),
    (
        "model requires more system memory (9.1 GiB) than is available (4.2 GiB)",
        ProviderError,
        False,
    ),
    ({"message": "tool call cannot be parsed"}, ProviderError, False),
]


@pytest.mark.defect("D5")
@pytest.mark.parametrize(("error", "kind", "again"), ERRORS)
async def test_an_error_in_a_stream_is_the_providers_and_temporary_ones_are_retried(
    error: Any, kind: type[ProviderError], again: bool
) -> None:
    server = OptionsProvider("ollama", None, broken(error))
    async with chatting(server, max_retries=0) as chat:
        turn = await say(chat)
    assert isinstance(turn.exception, kind)
    assert turn.exception.retryable is again
    said = error if isinstance(error, str) else error.get("message") or error["error"]
    assert said[:30] in str(turn.exception)
    assert "base_url" not in str(turn.exception)


@pytest.mark.defect("D5")
async def test_a_stream_that_failed_for_a_moment_is_asked_again() -> None:
    server = OptionsProvider(
        "ollama", None, broken("server busy, please try again"), answer("ollama", "Noon.")
    )
    async with chatting(server, max_retries=1) as chat:
        turn = await say(chat)
    assert turn.answer == "Noon."
    assert len(turn.retries) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("calls", ["text", [{"id": "c"}], ["text"], [{"function": "text"}]])
def test_calls_that_cannot_be_read_are_an_error(calls: Any, *, stream: bool) -> None:
    sent = {"role": "assistant", "content": "", "tool_calls": calls}
    reply = Reply(200, json.dumps({"message": sent, "done": True, "done_reason": "stop"}))
    with Provider(reply) as desk, Session(desk.config("ollama"), quiet=True) as session:
        turn = session.chat("When?", stream=stream, echo="none")
        assert isinstance(turn.exception, MalformedAnswerError)


@pytest.mark.parametrize("stream", [False, True])
def test_a_reason_that_is_no_text_says_nothing(*, stream: bool) -> None:
    sent = {"role": "assistant", "content": "At nine."}
    reply = Reply(200, json.dumps({"message": sent, "done": True, "done_reason": 5}))
    with Provider(reply) as desk, Session(desk.config("ollama"), quiet=True) as session:
        turn = session.chat("When?", stream=stream, echo="none")
        assert (turn.status, turn.answer) == ("done", "At nine.")
