"""Fields that only one provider knows: each is sent back to the model that gave it, and to no
other.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from fastmcp import FastMCP
from kit.message_rules import (
    OPENAI,
    Rule,
    deepseek_reasoning,
    gemini_signatures,
    openrouter_details,
    refused_field,
)
from kit.provider import answer
from kit.scripted_http import Reply
from kit.streams import reply, streamed

from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.providers.chat_model import ChatModel

pytestmark = pytest.mark.defect("D1")

ASKED = [UserMessage(content="Say hello.")]
CALL = {
    "id": "call_a",
    "type": "function",
    "function": {"name": "desk__echo", "arguments": '{"text": "hello"}'},
}
DETAILS = [
    {
        "type": "reasoning.text",
        "text": "I look around.",
        "signature": "c2ln",
        "format": "anthropic-claude-v1",
        "index": 0,
    },
    {
        "type": "reasoning.encrypted",
        "data": "ZW5j",
        "id": "rs_1",
        "format": "openai-responses-v1",
        "index": 1,
    },
]
SIGNED = {"extra_content": {"google": {"thought_signature": "CgYKBGFiYw=="}}}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], Rule]] = {
    "deepseek": ({"reasoning_content": "Let me see."}, {}, deepseek_reasoning),
    "deepseek without a thought": ({"reasoning_content": ""}, {}, deepseek_reasoning),
    "gemini": ({}, SIGNED, gemini_signatures),
    "openrouter": (
        {"reasoning": "I look around.", "reasoning_details": DETAILS},
        {},
        openrouter_details(DETAILS),
    ),
    "one that nobody has heard of": (
        {"opaque": {"of": ["any", {"kind": 1}]}},
        {},
        lambda body: None,
    ),
}
WAYS = [False, True]


def called(fields: dict[str, Any], of_call: dict[str, Any], text: str = "") -> dict[str, Any]:
    """An answer with a call, and with a provider's own fields."""
    body = answer("openai", text)
    message = {"role": "assistant", "content": text, "tool_calls": [{**CALL, **of_call}], **fields}
    body["choices"][0] |= {"message": message, "finish_reason": "tool_calls"}
    return dict(body)


def pieces(fields: dict[str, Any], of_call: dict[str, Any], text: str = "") -> bytes:
    """The same as a stream, texts letter by letter, each part of a list in pieces with its
    index.
    """
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    for name, value in fields.items():
        if isinstance(value, str):
            deltas += [{name: letter} for letter in value] or [{name: ""}]
        elif isinstance(value, list):
            for part in value:
                whole = {
                    key: item for key, item in part.items() if key not in ("text", "signature")
                }
                deltas += [{name: [{**whole, "text": letter}]} for letter in part.get("text", "")]
                rest = {key: part[key] for key in ("signature",) if key in part}
                deltas.append({name: [{**whole, **rest}]})
        else:
            deltas.append({name: value})
    deltas += [{"content": letter} for letter in text]
    deltas.append(
        {
            "tool_calls": [
                {"index": 0, **CALL, **of_call, "function": {"name": "desk__echo", "arguments": ""}}
            ]
        }
    )
    deltas += [
        {"tool_calls": [{"index": 0, "function": {"arguments": letter}}]}
        for letter in '{"text": "hello"}'
    ]
    chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    chunks.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    lines = [
        {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m-1", "choices": [c]}
        for c in chunks
    ]
    return (
        "".join(f"data: {json.dumps(line)}\n\n" for line in [*lines]).encode() + b"data: [DONE]\n\n"
    )


def script(stream: bool, fields: dict[str, Any], of_call: dict[str, Any]) -> list[Reply]:
    first: Any = (
        reply("openai", pieces(fields, of_call)) if stream else Reply(200, called(fields, of_call))
    )
    last: Any = (
        reply("openai", streamed("openai", ("Hello.",)))
        if stream
        else Reply(200, answer("openai", "Hello."))
    )
    return [first, last]


def answered(request: Any) -> Any:
    """The model's first answer in a request."""
    return next(message for message in request.body["messages"] if message["role"] == "assistant")


@pytest.mark.parametrize("stream", WAYS)
@pytest.mark.parametrize("case", CASES)
async def test_what_a_model_gave_with_a_call_goes_back_with_it(
    case: str, stream: bool, strict: Callable[..., Any], desk: FastMCP
) -> None:
    fields, of_call, rule = CASES[case]
    server = strict((*OPENAI, rule), *script(stream, fields, of_call))
    async with McpToolChat.from_config(server.config("openai"), in_process={"desk": desk}) as chat:
        turn = await chat.run(ASKED, TurnOptions(stream=stream))
        loaded = Conversation.from_json(Conversation([turn]).to_json()).messages
        again = await chat.run(
            [UserMessage(content="Again?")], TurnOptions(stream=stream), history=loaded
        )
    assert [turn.status, again.status] == ["done", "done"], (turn.error, again.error)
    assert server.refusals == []
    assert loaded == turn.messages
    for request in server.seen[1:]:
        said = answered(request)
        assert {name: said.get(name) for name in fields} == fields
        assert {name: said["tool_calls"][0].get(name) for name in of_call} == of_call
        assert "index" not in said["tool_calls"][0]


@pytest.mark.parametrize("stream", WAYS)
async def test_another_model_is_sent_none_of_it(
    stream: bool, strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = strict(OPENAI, *script(stream, {"opaque": 1}, SIGNED))
    model = model_of(server, "openai")
    got = await model.complete(ASKED, on_event=lambda _: None, stream=stream)
    model.model = "m-2"
    await model.complete(
        [*ASKED, got.message, _result("call_a")], on_event=lambda _: None, stream=stream
    )
    said = answered(server.seen[1])
    assert said == {"role": "assistant", "content": "", "tool_calls": [CALL]}


@pytest.mark.parametrize("stream", WAYS)
async def test_ollamas_thinking_goes_back_where_it_was(
    stream: bool, strict: Callable[..., Any], desk: FastMCP
) -> None:
    call = {"function": {"name": "desk__echo", "arguments": {"text": "hello"}}}
    ends = {
        "model": "m-1",
        "created_at": "2026-01-01T00:00:00Z",
        "done": True,
        "done_reason": "stop",
    }
    if stream:
        parts: list[dict[str, Any]] = [
            {"thinking": "I "},
            {"thinking": "see."},
            {"tool_calls": [call]},
        ]
        lines = [
            {**ends, "done": False, "message": {"role": "assistant", "content": "", **part}}
            for part in parts
        ]
        lines.append({**ends, "message": {"role": "assistant", "content": ""}})
        first: Any = reply("ollama", "".join(json.dumps(line) + "\n" for line in lines).encode())
    else:
        message = {"role": "assistant", "content": "", "thinking": "I see.", "tool_calls": [call]}
        first = Reply(200, {**ends, "message": message})
    server = strict((), first, answer("ollama", "Hello."))
    async with McpToolChat.from_config(server.config("ollama"), in_process={"desk": desk}) as chat:
        turn = await chat.run(ASKED, TurnOptions(stream=stream))
    assert turn.answer == "Hello."
    assert answered(server.seen[1])["thinking"] == "I see."


@pytest.mark.parametrize("stream", WAYS)
@pytest.mark.defect("D9")
async def test_an_answer_in_parts_is_read_as_its_text_and_goes_back_in_parts(
    stream: bool, strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "A greeting."}]}
    parts = [thought, {"type": "text", "text": "Hello."}]
    if stream:
        deltas: list[Any] = [
            [{"type": "thinking", "thinking": [{"type": "text", "text": t}]}]
            for t in ("A gree", "ting.")
        ]
        deltas += [[{"type": "text", "text": "Hel"}], "lo."]
        chunks = [
            {"index": 0, "delta": {"content": delta}, "finish_reason": None} for delta in deltas
        ]
        chunks.append({"index": 0, "delta": {}, "finish_reason": "stop"})
        lines = [
            {
                "id": "1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m",
                "choices": [c],
            }
            for c in chunks
        ]
        first: Any = reply(
            "openai", "".join(f"data: {json.dumps(line)}\n\n" for line in lines).encode()
        )
    else:
        first = answer("openai", "")
        first["choices"][0]["message"]["content"] = parts
    server = strict(OPENAI, first, answer("openai", "Bye."))
    model = model_of(server, "openai")
    said: list[Any] = []
    got = await model.complete(ASKED, on_event=said.append, stream=stream)
    assert got.message.content == "Hello."
    assert "".join(said) == ("Hello." if stream else "")
    await model.complete([*ASKED, got.message, UserMessage(content="Bye.")])
    assert answered(server.seen[1])["content"] == parts


async def test_a_field_that_a_model_does_not_take_back_is_left_out_and_that_is_remembered(
    strict: Callable[..., Any], desk: FastMCP
) -> None:
    server = strict(
        (*OPENAI, refused_field("reasoning_content")),
        *script(False, {"reasoning_content": "Hm."}, {}),
    )
    async with McpToolChat.from_config(server.config("openai"), in_process={"desk": desk}) as chat:
        turn = await chat.run(ASKED, TurnOptions(stream=False))
        await chat.run(
            [UserMessage(content="Again?")], TurnOptions(stream=False), history=turn.messages
        )
    assert turn.status == "done"
    assert len(server.refusals) == len(turn.notices) == 1
    assert len(server.seen) == 4


@pytest.mark.parametrize("rule", [deepseek_reasoning, gemini_signatures])
async def test_calls_of_another_model_are_sent_with_a_stand_in_where_one_is_missed(
    rule: Rule, strict: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = strict((*OPENAI, rule), answer("openai", "Hello."))
    made = ModelResponse(await _foreign_call())
    model = model_of(server, "openai")
    events: list[Any] = []
    for _ in range(2):
        await model.complete(
            [*ASKED, made.message, _result("toolu_1")], on_event=events.append, stream=False
        )
    assert len(server.refusals) == 1
    assert len(events) == 1


async def _foreign_call() -> Any:
    from casual_llm.messages import AssistantMessage, AssistantToolCall, AssistantToolCallFunction

    function = AssistantToolCallFunction(name="desk__echo", arguments='{"text": "hello"}')
    return AssistantMessage(
        content="", tool_calls=[AssistantToolCall(id="toolu_1", function=function)]
    )


def _result(call_id: str) -> Any:
    from casual_llm.messages import ToolResultMessage

    return ToolResultMessage(name="desk__echo", tool_call_id=call_id, content="echo: hello")
