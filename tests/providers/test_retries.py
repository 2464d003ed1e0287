"""Requests that are made again: when, how often, after how long, and how it is reported."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from kit.provider import answer
from kit.scripted_http import Reply
from kit.streams import reply, streamed

from casual_mcp_nb.conversation.event import ModelRetry
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.errors import (
    BadRequestError,
    OverloadedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
)
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.limits import Retries, RetryScheduled
from casual_mcp_nb.views import turn_bundle

ASKED = [UserMessage(content="Where is it?")]
KEY = "sk-planted-secret-0123456789"
BUSY = {"error": {"message": "too busy"}}
QUICK = Retries(2, first_wait=0.05)


def refusal(status: int = 429, **headers: str) -> Reply:
    return Reply(status, BUSY, {name.replace("_", "-"): value for name, value in headers.items()})


def fine(provider: str) -> Reply:
    return reply(provider, streamed(provider, ("Fine.",)))


async def told(model: ChatModel, *, stream: bool = True) -> list[RetryScheduled]:
    events: list[Any] = []
    got = await model.complete(ASKED, on_event=events.append, stream=stream)
    assert got.message.content == "Fine."
    return [event for event in events if isinstance(event, RetryScheduled)]


@pytest.mark.fault(58)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "headers", [{"retry_after": "0.2"}, {"retry_after_ms": "200", "retry_after": "9"}]
)
async def test_a_short_wait_that_the_provider_asks_for_is_kept_and_told(
    provider: str,
    headers: dict[str, str],
    stream: bool,
    serving: Callable[..., Any],
    model_of: Callable[..., ChatModel],
    clock: Any,
) -> None:
    server = serving(
        refusal(**headers),
        refusal(**headers),
        fine(provider) if stream else answer(provider, "Fine."),
    )
    retries = await told(model_of(server, provider), stream=stream)
    assert [(event.attempt, event.seconds) for event in retries] == [(1, 0.2), (2, 0.2)]
    assert "too busy" in retries[0].reason
    assert len(server.seen) == 3
    assert clock.slept == [0.2, 0.2]


@pytest.mark.fault(58)
async def test_a_wait_can_be_given_as_a_date(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel], clock: Any
) -> None:
    server = serving(refusal(retry_after=formatdate(time.time() + 50, usegmt=True)), fine(provider))
    (event,) = await told(model_of(server, provider))
    assert 10 < event.seconds <= 50
    assert clock.slept == [event.seconds]


async def test_a_wait_that_makes_no_sense_is_not_kept(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel], clock: Any
) -> None:
    server = serving(fine("openai"))
    model = model_of(server, "openai")
    model.retries = QUICK
    for asked in (
        "0",
        "-5",
        "nan",
        "inf",
        "soon",
        "Thu, 99 Nov 2026 99:00:00 GMT",
        "Wed, 21 Oct 2015 07:28:00 GMT",
    ):
        server.replies[:] = [refusal(retry_after=asked), fine("openai")]
        (event,) = await told(model)
        assert 0.05 <= event.seconds <= 0.1, asked
        assert clock.slept.pop() == event.seconds


@pytest.mark.fault(59)
@pytest.mark.parametrize("asked", ["3600", "date"])
async def test_a_long_wait_is_an_error_at_once_that_says_how_long(
    provider: str,
    asked: str,
    serving: Callable[..., Any],
    model_of: Callable[..., ChatModel],
    clock: Any,
) -> None:
    value = formatdate(time.time() + 3600, usegmt=True) if asked == "date" else asked
    server = serving(refusal(retry_after=value))
    events: list[Any] = []
    with pytest.raises(RateLimitError, match="Retry after 60 minutes") as caught:
        await model_of(server, provider).complete(ASKED, on_event=events.append)
    assert caught.value.retry_after == pytest.approx(3600, abs=25)
    assert (len(server.seen), events, clock.slept) == (1, [], [])


async def test_a_single_wait_of_more_than_a_minute_is_not_made(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel], clock: Any
) -> None:
    server = serving(refusal(retry_after="61"))
    with pytest.raises(RateLimitError, match="Retry after 61 s") as caught:
        await model_of(server, "openai").complete(ASKED)
    assert (caught.value.retry_after, clock.slept) == (61, [])


async def test_all_waits_together_are_limited(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel], clock: Any
) -> None:
    server = serving(refusal(retry_after="20"))
    model = model_of(server, "openai")
    model.retries = Retries(10, max_total_wait=50)
    with pytest.raises(RateLimitError, match="Gave up after 3 attempts"):
        await model.complete(ASKED)
    assert (len(server.seen), clock.slept) == (3, [20, 20])


@pytest.mark.parametrize("most", [0, 3])
async def test_the_number_of_requests_is_as_the_config_says(
    most: int, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(refusal(500))
    model = model_of(server, "openai", max_retries=most)
    model.retries = replace(model.retries, first_wait=0.01)
    with pytest.raises(OverloadedError, match="too busy"):
        await model.complete(ASKED)
    assert len(server.seen) == most + 1


async def test_what_can_pass_is_tried_again(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(fine(provider))
    model = model_of(server, provider)
    model.retries = Retries(1, first_wait=0.01)
    for status in (408, 409, 429, 500, 502, 503, 504, 529):
        server.replies[:] = [refusal(status), fine(provider)]
        assert len(await told(model)) == 1, status


async def test_what_stays_wrong_is_asked_once(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(*map(refusal, (400, 404, 422)))
    model = model_of(server, provider)
    for number in (1, 2, 3):
        with pytest.raises(BadRequestError):
            await model.complete(ASKED)
        assert len(server.seen) == number


async def test_an_account_without_credit_is_asked_once(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(
        Reply(429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}})
    )
    with pytest.raises(RateLimitError, match="billing"):
        await model_of(server, "openai").complete(ASKED)
    assert len(server.seen) == 1


@pytest.mark.fault(62)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_broken_connection_is_tried_again_with_growing_random_gaps(
    provider: str,
    stream: bool,
    serving: Callable[..., Any],
    model_of: Callable[..., ChatModel],
    clock: Any,
) -> None:
    whole = streamed(provider, ("Fine.",)) if stream else answer(provider, "Fine.")
    half = reply(provider, whole, cut=20) if stream else Reply(200, whole, cut=20)
    waits = []
    for _ in range(2):
        server = serving(Reply(reset=True), half, reply(provider, whole) if stream else whole)
        model = model_of(server, provider)
        model.retries = Retries(2, first_wait=0.1)
        clock.slept.clear()
        first, second = (event.seconds for event in await told(model, stream=stream))
        assert 0.1 <= first <= 0.15
        assert 0.2 <= second <= 0.25
        assert clock.slept == [first, second]
        waits.append((first, second))
    assert waits[0] != waits[1]


@pytest.mark.fault(62)
async def test_half_a_body_that_ends_like_a_whole_one_is_tried_again(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    half = Reply(200, b'{"id": "1", "model": "m", "cho', {"content-type": "application/json"})
    server = serving(half, answer(provider, "Fine."))
    model = model_of(server, provider)
    model.retries = QUICK
    assert len(await told(model, stream=False)) == 1


@pytest.mark.fault(61)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_silent_provider_is_given_up_at_the_limit_and_not_at_three_times_it(
    provider: str, stream: bool, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(Reply(silent=True))
    with pytest.raises(ProviderTimeoutError, match=r"\(limit 1 s\)"):
        await model_of(server, provider, timeout=1, max_retries=2).complete(
            ASKED, on_event=lambda _: None, stream=stream
        )
    assert len(server.seen) == 1


@pytest.mark.fault(61)
async def test_slow_failures_share_one_limit(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(Reply(503, BUSY, delay=0.7))
    model = model_of(server, provider, timeout=1.2)
    model.retries = Retries(10, first_wait=0.01)
    with pytest.raises(ProviderTimeoutError):
        await model.complete(ASKED)
    assert len(server.seen) == 2


@pytest.mark.fault(61)
async def test_a_body_that_drips_for_ever_is_given_up_at_the_limit(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    def drops() -> Iterator[bytes]:
        while not server.stopped.wait(0.02):
            yield b" "

    server = serving(Reply(200, drops(), {"content-type": "application/json"}))
    with pytest.raises(ProviderTimeoutError):
        await model_of(server, provider, timeout=0.4).complete(ASKED)


async def test_a_stream_may_take_longer_than_the_limit_once_it_began(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    lines = streamed(provider, tuple("Fine.")).splitlines(keepends=True)

    def slowly() -> Iterator[bytes]:
        for line in lines:
            yield line
            server.stopped.wait(1.2 / len(lines))

    server = serving(Reply(200, slowly(), reply(provider, b"").headers))
    assert await told(model_of(server, provider, timeout=1)) == []


@pytest.mark.timeout(30)
async def test_a_wait_can_be_interrupted(
    provider: str, serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(refusal(retry_after="60"))
    waiting = asyncio.Event()
    task = asyncio.create_task(
        model_of(server, provider).complete(ASKED, on_event=lambda _: waiting.set())
    )
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(server.seen) == 1


@pytest.mark.fault(58)
async def test_each_wait_stands_on_the_trace_and_in_the_display(
    provider: str, serving: Callable[..., Any]
) -> None:
    server = serving(
        refusal(retry_after="0.1"),
        Reply(503, f"busy {KEY}", {"retry-after": "0.1"}),
        fine(provider),
    )
    async with McpToolChat.from_config(server.config(provider, KEY), in_process={}) as chat:
        turn = await chat.run(ASKED)
    assert (turn.status, turn.answer) == ("done", "Fine.")
    assert [(event.step, event.attempt, event.seconds) for event in turn.trace.of(ModelRetry)] == [
        (0, 1, 0.1),
        (0, 2, 0.1),
    ]
    shown = turn_bundle(turn, "output")["text/plain"]
    assert re.search(r"\bRequest 1 failed: .*\b429\b", shown)
    assert "Retry after 0.10 s." in shown
    assert KEY not in shown + turn.trace.to_json()


async def test_a_model_of_the_persons_own_is_asked_once(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(refusal())
    own = ChatModel(model_of(server, "openai").client, "m-1")
    with pytest.raises(ProviderError):
        await own.complete(ASKED)
    assert len(server.seen) == 1
