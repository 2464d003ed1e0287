"""Streamed answers of loopback servers under the real SDKs."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

import openai._models as openai_models
import pytest
from casual_llm.messages import UserMessage
from kit.provider import PROVIDERS, answer
from kit.scripted_http import Reply
from kit.streams import KINDS, reply, streamed
from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall
from pydantic import BaseModel

from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.errors import (
    IncompleteStreamError,
    MalformedAnswerError,
    OverloadedError,
    ProviderError,
)
from casual_mcp_nb.providers.builtin.openai import Piece
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.limits import Retries, RetryScheduled

ASKED = [UserMessage(content="Where is it?")]
CALLS = (
    ("c1", "maps__find", '{"place": "Tromsø ☃", "n": 1}'),
    ("c2", "mail__send", '{"to": ["a", "b"]}'),
    ("c3", "noop", "{}"),
)
COUNTED = TokenUsage(30, 7, 12, 3)
USAGES = {
    **dict.fromkeys(PROVIDERS, COUNTED),
    "ollama": TokenUsage(30, 7),
    "openai-responses": replace(COUNTED, cache_write_tokens=0),
}
REASONS = {
    "openai": "tool_calls",
    "openai-responses": "completed",
    "anthropic": "tool_use",
    "gemini": "STOP",
    "ollama": "stop",
}
ERROR_LINES = {
    "openai": 'data: {"error": {"type": "server_error", "message": "It broke"}}\n\n',
    "openai-responses": (
        'event: error\ndata: {"type": "error", "code": "server_error", "message": "It broke"}\n\n'
    ),
    "anthropic": (
        'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "It'
        ' broke"}}\n\n'
    ),
    "gemini": 'data: {"error": {"code": 503, "message": "It broke", "status": "UNAVAILABLE"}}\n\n',
    "ollama": '{"error": "It broke"}\n',
}


@pytest.mark.parametrize("bytewise", [False, True])
async def test_a_streamed_answer_has_its_text_calls_usage_and_reason(
    provider: str, bytewise: bool, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    body = streamed(provider, ("Wa", "it ☃", "."), *CALLS)
    server = serving(reply(provider, body, bytewise=bytewise))
    said: list[Any] = []
    got = await model_of(server, provider).complete(ASKED, on_event=said.append)
    assert said == ["Wa", "it ☃", "."]
    assert got.message.content == "Wait ☃."
    made = [
        (call.function.name, json.loads(call.function.arguments))
        for call in got.message.tool_calls or ()
    ]
    assert made == [(name, json.loads(arguments)) for _, name, arguments in CALLS]
    assert len({call.id for call in got.message.tool_calls or ()}) == 3
    assert (got.usage, got.finish_reason) == (USAGES[provider], REASONS[provider])
    assert server.seen[0].streams
    assert server.seen[0].body.get("stream_options") == (
        {"include_usage": True} if provider == "openai" else None
    )


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
async def test_arguments_come_as_the_model_wrote_them_even_broken_ones(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(
        reply(provider, streamed(provider, (), ("c1", "maps__find", '{"place":  [1, ')))
    )
    got = await model_of(server, provider).complete(ASKED, on_event=lambda _: None)
    assert [call.function.arguments for call in got.message.tool_calls or ()] == ['{"place":  [1, ']


async def test_text_is_told_while_the_answer_still_runs(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    heard, in_time = threading.Event(), []
    body = streamed(provider, ("Wait", "."))
    middle = body.index(b"Wait") + len(b"Wait") + body[body.index(b"Wait") :].index(b"\n") + 1

    def pieces() -> Iterator[bytes]:
        yield body[:middle]
        in_time.append(heard.wait(5))
        yield body[middle:]

    server = serving(Reply(200, pieces(), {"content-type": KINDS[provider]}))
    await model_of(server, provider).complete(ASKED, on_event=lambda _: heard.set())
    assert in_time == [True]


@pytest.mark.parametrize(("on_event", "stream"), [(None, True), (lambda _: None, False)])
async def test_no_stream_is_asked_for_where_nobody_listens_or_it_is_not_wanted(
    provider: str,
    on_event: Any,
    stream: bool,
    serving: Callable[..., Any],
    model_of: Callable[..., ChatModel],
) -> None:
    server = serving(answer(provider, "Here."))
    got = await model_of(server, provider).complete(ASKED, on_event=on_event, stream=stream)
    assert got.message.content == "Here."
    assert not server.seen[0].streams


async def test_a_server_that_knows_no_streams_is_understood(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(answer(provider, "Here.", ("maps__find", {"place": "x"})))
    got = await model_of(server, provider).complete(ASKED, on_event=lambda _: None)
    assert got.message.content == "Here."
    assert [call.function.name for call in got.message.tool_calls or ()] == ["maps__find"]
    assert got.usage in (TokenUsage(30, 7), TokenUsage(30, 7, 0, 0, cache_write_tokens=0))


@pytest.mark.fault(67)
async def test_a_stream_without_usage_has_none(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(reply(provider, streamed(provider, ("Hi",), usage=False)))
    assert (await model_of(server, provider).complete(ASKED, on_event=lambda _: None)).usage is None


@pytest.mark.fault(64)
@pytest.mark.parametrize("how", ["cut", "no end mark", "error"])
async def test_a_stream_that_stops_early_is_incomplete_and_its_text_is_kept(
    provider: str, how: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    body = streamed(provider, ("Wa", "it"), end=False)
    if how == "error":
        body += ERROR_LINES[provider].encode()
    server = serving(
        reply(provider, body + b"\n" * 9, cut=len(body)) if how == "cut" else reply(provider, body)
    )
    said: list[Any] = []
    with pytest.raises(IncompleteStreamError, match="stopped in the middle") as caught:
        await model_of(server, provider).complete(ASKED, on_event=said.append)
    assert caught.value.partial == "Wait"
    assert said == ["Wa", "it"]
    assert len(server.seen) == 1
    assert ("It broke" in str(caught.value)) == (how == "error")


@pytest.mark.fault(64)
async def test_a_reason_for_the_end_is_not_yet_anthropics_end_mark(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    body = streamed("anthropic", ("Wait",)).partition(b"event: message_stop")[0]
    with pytest.raises(IncompleteStreamError, match="without its end mark"):
        await model_of(serving(reply("anthropic", body)), "anthropic").complete(
            ASKED, on_event=lambda _: None
        )


@pytest.mark.fault(64)
async def test_a_turn_keeps_the_text_of_a_broken_stream_and_is_failed(
    provider: str, serving: Callable[..., Any]
) -> None:
    broken = reply(provider, streamed(provider, ("Wa", "it"), end=False))
    server = serving(broken, reply(provider, streamed(provider, ("Fine.",))))
    async with McpToolChat.from_config(
        {**server.config(provider), "servers": {}}, in_process={}
    ) as chat:
        turn = await chat.run(ASKED)
        after = await chat.run([UserMessage(content="Go on")], history=turn.messages)
    assert turn.status == "failed"
    assert "stopped in the middle" in str(turn.error)
    assert [message.content for message in turn.messages] == ["Where is it?", "Wait"]
    with pytest.raises(IncompleteStreamError):
        turn.raise_for_status()
    assert (after.status, after.answer) == ("done", "Fine.")


# Ollama's error in a stream does not say whether it passes.
@pytest.mark.parametrize(
    ("provider", "how"),
    [
        (provider, how)
        for provider in PROVIDERS
        for how in ("cut", "no end mark", "error")
        if (provider, how) != ("ollama", "error")
    ],
)
async def test_a_stream_that_stops_before_any_text_is_asked_for_again(
    provider: str, how: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    body = streamed(provider, (), CALLS[1], end=False)
    if how == "error":
        body += ERROR_LINES[provider].encode()
    broken = (
        reply(provider, body + b"\n" * 9, cut=len(body)) if how == "cut" else reply(provider, body)
    )
    server = serving(broken, reply(provider, streamed(provider, ("Fine.",))))
    model = model_of(server, provider)
    model.retries = Retries(1, first_wait=0.01)
    events: list[Any] = []
    got = await model.complete(ASKED, on_event=events.append)
    assert got.message.content == "Fine."
    assert [type(event) for event in events] == [RetryScheduled, str]
    assert got.message.tool_calls is None


@pytest.mark.fault(63)
@pytest.mark.parametrize(
    "sent",
    ["<html><body>Log in here</body></html>", {"error": {"message": "no such plan"}}, {}, []],
)
async def test_a_stream_that_is_no_stream_is_one_clear_error(
    provider: str, sent: Any, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(sent)
    # A line of Ollama's stream that has an error is what its server says when it fails.
    failed = provider == "ollama" and "error" in sent
    with pytest.raises(ProviderError) as caught:
        await model_of(server, provider).complete(ASKED, on_event=lambda _: None)
    assert isinstance(caught.value, MalformedAnswerError) is not failed
    assert (caught.value.client, caught.value.model) == ("desk", "m-1")
    if sent and not isinstance(sent, list):
        assert ("Log in here" if isinstance(sent, str) else "no such plan") in str(caught.value)
    assert len(server.seen) == 1


async def test_an_error_instead_of_a_stream_is_read(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(Reply(503, {"error": {"message": "too busy"}}))
    with pytest.raises(OverloadedError, match="too busy"):
        await model_of(server, provider, max_retries=0).complete(ASKED, on_event=lambda _: None)


async def test_a_cancelled_stream_is_closed(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    gone = threading.Event()
    body = streamed(provider, ("Wait",), end=False)

    def pieces() -> Iterator[bytes]:
        try:
            yield body
            while not server.stopped.wait(0.02):
                yield b"\n" if provider != "ollama" else body
        finally:
            gone.set()

    # The second reply lets the server let go of the first one.
    server = serving(Reply(200, pieces(), {"content-type": KINDS[provider]}), "never sent")
    heard = asyncio.Event()
    task = asyncio.create_task(
        model_of(server, provider).complete(ASKED, on_event=lambda _: heard.set())
    )
    await asyncio.wait_for(heard.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(gone.wait, 5)


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
async def test_a_stream_leaves_no_generator_for_the_loop_to_close(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(reply(provider, streamed(provider, ("Wait",))))
    model = model_of(server, provider)
    left: list[Any] = []
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(finalizer=left.append)
    try:
        await model.complete(ASKED, on_event=lambda _: None)
    finally:
        sys.set_asyncgen_hooks(*hooks)
    assert left == []


@pytest.mark.parametrize("how", ["stays open", "cut"])
async def test_an_answer_is_complete_at_its_end_mark_however_its_connection_ends(
    how: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    body = streamed("openai", ("Wait",), CALLS[0])

    def pieces() -> Iterator[bytes]:
        yield body
        server.stopped.wait(20)

    whole = reply("openai", body + b"\n" * 9, cut=len(body))
    server = serving(
        whole if how == "cut" else Reply(200, pieces(), {"content-type": KINDS["openai"]}),
        "never sent",
    )
    got = await asyncio.wait_for(
        model_of(server, "openai").complete(ASKED, on_event=lambda _: None), 10
    )
    assert (got.message.content, got.finish_reason, len(got.message.tool_calls or ())) == (
        "Wait",
        "tool_calls",
        1,
    )
    assert len(server.seen) == 1


def openai_calls(*parts: dict[str, Any]) -> bytes:
    chunks = [
        {"index": 0, "delta": {"tool_calls": [part]}, "finish_reason": None} for part in parts
    ]
    chunks.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    lines = [
        {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [c]}
        for c in chunks
    ]
    return "".join(f"data: {json.dumps(line)}\n\n" for line in lines).encode()


@pytest.mark.parametrize(
    "parts",
    [
        [
            {"index": 0, "id": "a", "function": {"name": "x", "arguments": '{"n"'}},
            {"index": 0, "id": "a", "function": {"name": "x", "arguments": ": 1}"}},
            {"index": 0, "id": "b", "function": {"name": "y", "arguments": "{}"}},
        ],
        [
            {"index": 0, "id": "a", "function": {"name": "x", "arguments": '{"n": 1}'}},
            {"index": 0, "function": {"name": "y", "arguments": "{}"}},
        ],
        [
            {"index": 1, "id": "b", "function": {"name": "y", "arguments": "{}"}},
            {"index": 0, "id": "a", "function": {"name": "x"}},
            {"index": 0, "function": {"arguments": '{"n": 1}'}},
        ],
    ],
)
async def test_servers_that_number_calls_in_their_own_way_are_understood(
    parts: list[dict[str, Any]], serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(reply("openai", openai_calls(*parts)))
    got = await model_of(server, "openai").complete(ASKED, on_event=lambda _: None)
    made = {
        call.function.name: json.loads(call.function.arguments)
        for call in got.message.tool_calls or ()
    }
    assert made == {"x": {"n": 1}, "y": {}}


@pytest.mark.defect("L4")
async def test_no_model_of_the_sdk_is_built_for_a_chunk(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    async def calls_of_the_models(pieces: int) -> int:
        server = serving(reply("openai", streamed("openai", ("Wait",) * pieces)))
        model, calls = model_of(server, "openai"), 0

        def count(frame: FrameType, event: str, _: object) -> None:
            nonlocal calls
            calls += event == "call" and frame.f_code.co_filename == models

        sys.setprofile(count)
        try:
            await model.complete(ASKED, on_event=lambda _: None)
        finally:
            sys.setprofile(None)
        return calls

    models = openai_models.__file__
    await calls_of_the_models(1)
    assert await calls_of_the_models(100) == await calls_of_the_models(1)


@pytest.mark.defect("L4")
@pytest.mark.parametrize(
    ("name", "kind"), [("delta", ChoiceDelta), ("tool_calls", ChoiceDeltaToolCall)]
)
def test_the_fields_of_a_chunk_that_are_kept_are_those_that_the_sdk_does_not_have(
    name: str, kind: type[BaseModel]
) -> None:
    fields = dict.fromkeys(kind.model_fields, 1) | {"reasoning_content": "Hm"}
    piece = Piece({"choices": [{name: [fields] if name == "tool_calls" else fields}]})
    (choice,) = piece.choices
    part = choice.tool_calls[0] if name == "tool_calls" else choice.delta
    assert part.model_extra == {"reasoning_content": "Hm"}
    assert part.of_another_release is None
