"""A server that streams nothing is asked once more for an answer in one piece. After two such
requests in a row, that is remembered.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from kit.provider import PROVIDERS, answer
from kit.scripted_http import Reply
from kit.streams import KINDS, reply, streamed

from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.errors import OverloadedError, ProviderError
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.limits import RequestAdapted, Retries, RetryScheduled

pytestmark = pytest.mark.defect("D8")

ASKED = [UserMessage(content="Hello?")]
_CHUNK = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
_FIRST = {"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}
ROLE = f"data: {json.dumps({**_CHUNK, 'choices': [_FIRST]})}\n\n".encode()


def empty(provider: str) -> Reply:
    return reply(provider, b"")


def broken_off(provider: str) -> Reply:
    """Build the reply of a server that fails after its headers: a chunked body without its last
    chunk.
    """
    body: Iterator[bytes] = iter(())
    return Reply(200, body, {"content-type": KINDS[provider], "transfer-encoding": "chunked"})


WAYS: dict[str, Callable[[str], Reply]] = {
    "empty": empty,
    "broken off": broken_off,
    "end mark only": lambda provider: reply(
        provider, b"data: [DONE]\n\n" if provider.startswith("openai") else b""
    ),
}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_after_two_empty_streams_every_answer_is_requested_in_one_piece(
    provider: str, how: str, serving: Callable[..., Any]
) -> None:
    nothing, hello = WAYS[how], answer(provider, "Hello.")
    server = serving(nothing(provider), hello, nothing(provider), hello, hello)
    async with McpToolChat.from_config(
        {**server.config(provider), "servers": {}}, in_process={}
    ) as chat:
        turns = [await chat.run(ASKED) for _ in range(3)]
    assert [turn.answer for turn in turns] == ["Hello."] * 3
    assert [request.streams for request in server.seen] == [True, False, True, False, False]
    assert [len(turn.notices) for turn in turns] == [0, 1, 0]
    assert [turn.retries for turn in turns] == [[]] * 3


@pytest.mark.parametrize("how", WAYS)
async def test_streams_that_work_in_between_are_kept(
    how: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    rounds: list[Reply] = []
    for _ in range(3):
        works = reply("openai", streamed("openai", ("Hi.",)))
        rounds += (WAYS[how]("openai"), answer("openai", "Hello."), works)
    server = serving(*rounds)
    model = model_of(server, "openai")
    events: list[Any] = []
    for _ in range(6):
        await model.complete(ASKED, on_event=events.append)
    assert [request.streams for request in server.seen] == [True, False, True] * 3
    assert events == ["Hi."] * 3


async def test_requests_that_break_off_together_count_once(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    both_are_there = threading.Barrier(2)

    def breaks_off() -> Iterator[bytes]:
        both_are_there.wait(60)
        yield from ()

    headers = {"content-type": KINDS["openai"], "transfer-encoding": "chunked"}
    broken = [Reply(200, breaks_off(), headers) for _ in range(2)]
    hello = answer("openai", "Hello.")
    server = serving(*broken, hello, hello, reply("openai", streamed("openai", ("Hi.",))))
    model = model_of(server, "openai")
    events: list[Any] = []
    requests = [model.complete(ASKED, on_event=events.append) for _ in range(2)]
    await asyncio.gather(*requests)
    await model.complete(ASKED, on_event=events.append)
    assert [request.streams for request in server.seen] == [True, True, False, False, True]
    assert events == ["Hi."]


async def test_a_stream_with_only_a_role_is_empty_too(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(*[reply("openai", ROLE), answer("openai", "Hello.")] * 2)
    model = model_of(server, "openai")
    events: list[Any] = []
    for _ in range(2):
        got = await model.complete(ASKED, on_event=events.append)
        assert got.message.content == "Hello."
    assert [type(event) for event in events] == [RequestAdapted]


async def test_another_model_of_the_client_is_still_asked_for_streams(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    streams = reply("openai", streamed("openai", ("Hello.",)))
    server = serving(*[empty("openai"), answer("openai", "Hello.")] * 2, streams)
    model = model_of(server, "openai")
    for _ in range(2):
        await model.complete(ASKED, on_event=lambda _: None)
    model.model = "m-2"
    await model.complete(ASKED, on_event=lambda _: None)
    assert [request.streams for request in server.seen] == [True, False, True, False, True]


async def test_nothing_is_remembered_where_one_piece_does_not_help(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(
        empty("openai"),
        Reply(503, {"error": {"message": "too busy"}}),
        reply("openai", streamed("openai", ("Hi.",))),
    )
    model = model_of(server, "openai", max_retries=0)
    events: list[Any] = []
    with pytest.raises(OverloadedError):
        await model.complete(ASKED, on_event=events.append)
    assert (await model.complete(ASKED, on_event=events.append)).message.content == "Hi."
    assert [event for event in events if isinstance(event, RequestAdapted)] == []


async def test_a_stream_that_began_is_not_taken_for_an_empty_one(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    broken = reply("openai", streamed("openai", (), ("c1", "maps__find", "{}"), end=False))
    server = serving(broken, reply("openai", streamed("openai", ("Hi.",))))
    model = model_of(server, "openai")
    model.retries = Retries(1, first_wait=0.01)
    events: list[Any] = []
    await model.complete(ASKED, on_event=events.append)
    assert [type(event) for event in events] == [RetryScheduled, str]
    assert all(request.streams for request in server.seen)


async def test_a_server_that_gives_nothing_in_any_form_is_asked_twice(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(empty("openai"), Reply(200, {}))
    with pytest.raises(ProviderError):
        await model_of(server, "openai", max_retries=0).complete(ASKED, on_event=lambda _: None)
    assert len(server.seen) == 2


async def test_a_connection_that_is_closed_after_an_empty_stream_is_made_again(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    # As uvicorn does after an exception in a stream: seen with llama-cpp-python's server.
    server = serving(
        empty("openai"), Reply(reset=True), answer("openai", "Hello."), Reply(reset=True)
    )
    model = model_of(server, "openai", max_retries=0)
    got = await model.complete(ASKED, on_event=lambda _: None)
    assert got.message.content == "Hello."
    assert [request.streams for request in server.seen] == [True, False, False]
    with pytest.raises(ProviderError):
        await model.complete(ASKED, on_event=lambda _: None)
    assert len(server.seen) == 4
