"""The limits of a client: kept over all its models and chats, said while they are waited for, and
left at once.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from kit.provider import Provider, answer
from kit.scripted_http import Reply

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.conversation.event import ModelWait
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.errors import RateLimitError
from casual_mcp_nb.providers import limits
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.limits import ClientLimits, RateLimitWait, RetryScheduled

ASKED = [UserMessage(content="Hello")]
MINUTE = 60.0


def most_in_a_minute(times: list[float]) -> int:
    return max(sum(start <= time < start + MINUTE for time in times) for start in times)


def two_models(server: Provider, provider: str = "openai", **client: Any) -> Config:
    config = server.config(provider, **client)
    config["models"]["large"] = {"client": "desk", "model": "m-2"}
    return Config.model_validate(config)


@pytest.mark.fault(68)
async def test_twenty_chats_of_several_models_and_sessions_keep_one_limit(
    serving: Callable[..., Any], factory_for: Callable[..., ModelFactory], clock: Any
) -> None:
    server = serving(answer("openai", "Hi."))
    config = two_models(server, requests_per_minute=5)
    models = [factory_for(config).chat_model(name) for name in ("small", "large") for _ in range(2)]
    began = clock.now
    await asyncio.gather(*(models[number % 4].complete(ASKED) for number in range(20)))
    assert len(server.seen) == 20
    assert 3 * MINUTE <= clock.now - began < 4 * MINUTE


@pytest.mark.fault(68)
async def test_a_limit_holds_in_every_minute_wherever_it_begins(clock: Any) -> None:
    desk = ClientLimits("desk", requests=5)
    times: list[float] = []
    for pause in (0, 0, 50, 0, 0, 0, 0, 5, 40, *[0] * 10):
        clock.now += pause
        await desk.turn(0, lambda waiting: None)
        times.append(clock.now)
    assert most_in_a_minute(times) == 5


@pytest.mark.fault(68)
async def test_tokens_are_charged_by_estimate_and_corrected_by_what_is_reported(clock: Any) -> None:
    desk = ClientLimits("desk", tokens=1_000)
    charge = await desk.turn(900, pytest.fail)
    desk.settle(charge, 100)
    charge = await desk.turn(900, pytest.fail)
    assert clock.slept == []
    desk.settle(charge, 1_500)
    said: list[RateLimitWait] = []
    await desk.turn(10, said.append)
    assert sum(clock.slept) == pytest.approx(MINUTE, abs=0.1)
    assert re.search(r"\blimit .*'desk': 1,000 tokens\b", said[0].reason)


async def test_a_report_of_endless_tokens_closes_the_client_for_one_minute_and_no_more(
    clock: Any,
) -> None:
    desk = ClientLimits("desk", tokens=1_000)
    desk.settle(await desk.turn(10, pytest.fail), 10**15)
    await desk.turn(10, lambda waiting: None)
    assert sum(clock.slept) == pytest.approx(MINUTE, abs=0.1)


@pytest.mark.fault(68)
async def test_the_size_of_requests_counts_against_the_tokens_of_a_minute(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel], clock: Any
) -> None:
    server = serving(answer("openai", "Hi.", usage=(480, 20)))
    model = model_of(server, "openai", tokens_per_minute=1_000)
    times: list[float] = []
    for _ in range(4):
        await model.complete([UserMessage(content="word " * 500)])
        times.append(clock.now)
    assert most_in_a_minute(times) <= 2


async def test_a_request_that_is_larger_than_the_limit_goes_when_all_else_has_passed(
    clock: Any,
) -> None:
    desk = ClientLimits("desk", tokens=100)
    await desk.turn(10, pytest.fail)
    await desk.turn(5_000, lambda waiting: None)
    assert sum(clock.slept) == pytest.approx(MINUTE, abs=0.1)


async def test_a_limit_of_many_tokens_takes_little_memory() -> None:
    desk = ClientLimits("desk", tokens=50_000_000)
    charge = await desk.turn(40_000_000, pytest.fail)
    assert desk._tokens is not None
    assert len(desk._tokens._bucket.items) <= 10_000
    desk.settle(charge, 1_000_000)
    await desk.turn(45_000_000, pytest.fail)


@pytest.mark.fault(68)
@pytest.mark.timeout(30)
async def test_a_wait_is_an_event_with_a_reason_and_ends_when_the_turn_is_stopped(
    serving: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PERIOD", 600.0)
    server = serving(answer("openai", "Hi."))
    async with McpToolChat.from_config(two_models(server, requests_per_minute=1)) as chat:
        await chat.run(ASKED)
        turn, waiting = Turn(Trace()), asyncio.Event()
        task = asyncio.create_task(
            chat.run(
                ASKED,
                turn=turn,
                on_event=lambda event: waiting.set() if isinstance(event, ModelWait) else None,
            )
        )
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    (wait,) = turn.waits
    assert re.search(r"\blimit .*'desk': 1 request\b", wait.reason)
    assert 500 < wait.seconds <= 600
    assert turn.status == "stopped"
    assert f"for {wait.reason}" in str(turn)
    assert len(server.seen) == 1


@pytest.mark.fault(68)
async def test_who_stops_waiting_costs_the_others_nothing(clock: Any) -> None:
    desk = ClientLimits("desk", requests=1)
    await desk.turn(0, pytest.fail)
    gone = [asyncio.create_task(desk.turn(0, lambda waiting: None)) for _ in range(5)]
    last = asyncio.create_task(desk.turn(0, lambda waiting: None))
    await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    began = clock.now
    await last
    assert clock.now - began == pytest.approx(MINUTE, abs=1)


async def test_requests_go_in_the_order_in_which_they_came(clock: Any) -> None:
    desk = ClientLimits("desk", requests=2)
    order: list[int] = []

    async def ask(number: int) -> None:
        await desk.turn(0, lambda waiting: None)
        order.append(number)

    await asyncio.gather(*map(ask, range(8)))
    assert order == list(range(8))


@pytest.mark.fault(68)
async def test_a_pause_that_the_provider_asks_for_holds_for_all_chats_of_the_client(
    serving: Callable[..., Any], factory_for: Callable[..., ModelFactory], clock: Any
) -> None:
    busy = Reply(429, {"error": {"message": "slow down"}}, {"retry-after": "20"})
    server = serving(busy, answer("openai", "Hi."))
    factory = factory_for(two_models(server))
    events: asyncio.Queue[Any] = asyncio.Queue()
    clock.goes_on.clear()

    def ask(name: str) -> asyncio.Task[Any]:
        return asyncio.create_task(
            factory.chat_model(name).complete(ASKED, on_event=events.put_nowait, stream=False)
        )

    tasks = [ask("small")]
    told = [await events.get()]
    tasks += [ask("large") for _ in range(3)]
    told += [await events.get() for _ in range(3)]
    assert [(type(event), event.seconds) for event in told] == [
        (RetryScheduled, 20),
        *[(RateLimitWait, 20)] * 3,
    ]
    assert re.search(r"\bprovider .*'desk', .*\bpause\b", told[1].reason)
    assert len(server.seen) == 1
    clock.goes_on.set()
    await asyncio.gather(*tasks)
    assert len(server.seen) == 5
    assert clock.slept == [20] * 4


async def test_a_pause_that_is_too_long_is_nobodys(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel], clock: Any
) -> None:
    server = serving(
        Reply(429, {"error": {"message": "slow down"}}, {"retry-after": "3600"}),
        answer("openai", "Hi."),
    )
    model = model_of(server, "openai")
    with pytest.raises(RateLimitError):
        await model.complete(ASKED)
    assert (await model.complete(ASKED)).message.content == "Hi."
    assert clock.slept == []


async def test_waiting_for_a_limit_is_no_part_of_the_time_that_the_provider_has(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    model = model_of(serving(answer("openai", "Hi.")), "openai", timeout=1.5)
    await model.complete(ASKED)
    assert model.limits is not None
    model.limits.pause(2)
    events: list[Any] = []
    await model.complete(ASKED, on_event=events.append, stream=False)
    assert events[0].seconds > 1.5


def test_clients_that_differ_have_limits_of_their_own(loopback: Callable[..., Provider]) -> None:
    one = loopback()
    first, again = (ModelFactory(two_models(one, requests_per_minute=5)) for _ in range(2))
    other = ModelFactory(two_models(one, requests_per_minute=6))
    assert (
        first.chat_model().limits is first.chat_model("large").limits is again.chat_model().limits
    )
    assert other.chat_model().limits is not first.chat_model().limits


def test_no_limit_loads_no_limiter() -> None:
    code = (
        "import sys; from casual_mcp_nb.providers.limits import ClientLimits\n"
        "ClientLimits('x'); print('pyrate_limiter' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_limiter_is_imported_on_another_thread_than_the_loops() -> None:
    code = (
        "import asyncio, sys, threading\nclass Finder:\n    def find_spec(self, name, path,"
        " target=None):\n        if name == 'pyrate_limiter': print(threading.current_thread() is"
        " threading.main_thread())\nfrom casual_mcp_nb.providers.limits import"
        " ClientLimits\nsys.meta_path.insert(0, Finder())\nasyncio.run(ClientLimits('x',"
        " requests=5).turn(0, print))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"
