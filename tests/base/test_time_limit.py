"""A time limit ends slow work as asyncio's does, and all limits of a loop share one timer."""

from __future__ import annotations

import asyncio

import pytest

from casual_mcp_nb.base.limits import TimeLimit

pytestmark = pytest.mark.defect("G10")


def soon() -> float:
    return asyncio.get_running_loop().time() + 0.01


def late() -> float:
    return asyncio.get_running_loop().time() + 1_000


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_what_takes_too_long_is_cancelled_and_the_task_goes_on() -> None:
    limit = TimeLimit(soon())
    with pytest.raises(TimeoutError), limit:
        await forever()
    task = asyncio.current_task()
    assert limit.expired
    assert task is not None
    assert not task.cancelling()


async def test_the_inner_or_the_outer_limit_ends_what_is_in_both() -> None:
    with TimeLimit(late()) as outer, pytest.raises(TimeoutError), TimeLimit(soon()):
        await forever()
    assert not outer.expired
    inner = TimeLimit(late())
    with pytest.raises(TimeoutError), TimeLimit(soon()), inner:
        await forever()
    assert not inner.expired


async def test_a_cancellation_from_outside_is_not_a_time_limit() -> None:
    async def body() -> None:
        with TimeLimit(late()):
            await forever()

    task = asyncio.create_task(body())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_deadline_can_be_moved_both_ways_and_taken_away() -> None:
    async def moved() -> None:
        with TimeLimit(late()) as limit:
            limit.move(None)
            limit.move(late())
            limit.move(soon())
            await forever()

    with pytest.raises(TimeoutError):
        await moved()
    with TimeLimit(soon()) as limit:
        limit.move(None)
        with pytest.raises(TimeoutError), TimeLimit(soon()):
            await forever()
    assert not limit.expired


async def test_limits_that_are_not_reached_need_no_timers_of_their_own() -> None:
    loop = asyncio.get_running_loop()
    with TimeLimit(late()):
        pass
    timers: list[float] = []
    call_at = loop.call_at
    loop.call_at = lambda when, *rest, **more: timers.append(when) or call_at(when, *rest, **more)  # type: ignore[method-assign, assignment, func-returns-value]
    try:
        for _ in range(100):
            with TimeLimit(late() + 1):
                await asyncio.sleep(0)
    finally:
        loop.call_at = call_at  # type: ignore[method-assign]
    assert not timers


async def test_each_of_many_limits_ends_at_its_own_time() -> None:
    ended: list[int] = []

    async def body(number: int) -> None:
        with (
            pytest.raises(TimeoutError),
            TimeLimit(asyncio.get_running_loop().time() + number / 100),
        ):
            await forever()
        ended.append(number)

    await asyncio.gather(*map(body, (5, 1, 3, 2, 4)))
    assert ended == [1, 2, 3, 4, 5]


async def test_limits_that_have_all_passed_end_in_their_order() -> None:
    ended: list[int] = []
    past = asyncio.get_running_loop().time() - 100

    async def body(number: int) -> None:
        with pytest.raises(TimeoutError), TimeLimit(past + number):
            await forever()
        ended.append(number)

    # All start before the timer rings, so that it finds all of them.
    await asyncio.gather(*map(body, range(20, 0, -1)))
    assert ended == list(range(1, 21))
