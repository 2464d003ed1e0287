"""A call's deadline ends it alone, whatever limits and cancellations are around it."""

from __future__ import annotations

import asyncio

import pytest

from casual_mcp_nb.servers.deadlines import CallDeadline, CallDeadlines, CallLimits, CallTimeout

SHORT = CallLimits(call=0.01)
LONG = CallLimits(call=1_000.0, total=2_000.0)


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_call_that_takes_too_long_is_ended_and_the_task_goes_on() -> None:
    running = CallDeadlines()
    with pytest.raises(CallTimeout) as caught:
        async with CallDeadline(SHORT, running):
            await forever()
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    assert (caught.value.field, len(running)) == ("call_timeout", 0)


async def test_progress_does_not_extend_the_limit_for_the_whole_call() -> None:
    async def call() -> None:
        async with CallDeadline(CallLimits(call=1_000.0, total=0.01), CallDeadlines()) as deadline:
            deadline.reset()
            await forever()

    with pytest.raises(CallTimeout) as caught:
        await call()
    assert caught.value.field == "total_timeout"


async def test_the_inner_or_the_outer_deadline_ends_a_call_within_another() -> None:
    running = CallDeadlines()
    async with CallDeadline(LONG, running):
        with pytest.raises(CallTimeout):
            async with CallDeadline(SHORT, running):
                await forever()
    with pytest.raises(CallTimeout):
        async with CallDeadline(SHORT, running), CallDeadline(LONG, running):
            await forever()
    assert not running


async def test_a_cancellation_from_outside_is_not_a_time_limit() -> None:
    async def body() -> None:
        async with CallDeadline(LONG, CallDeadlines()):
            await forever()

    task = asyncio.create_task(body())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_call_whose_server_asks_a_person_is_not_ended() -> None:
    running = CallDeadlines()
    async with CallDeadline(SHORT, running):
        with running.waiting_for_a_person(), pytest.raises(CallTimeout):
            # A call to another server is the clock of this test.
            async with CallDeadline(SHORT, CallDeadlines()):
                await forever()


async def test_progress_and_questions_after_the_end_change_nothing() -> None:
    running = CallDeadlines()
    async with CallDeadline(LONG, running) as deadline:
        pass
    deadline.reset()
    deadline.pause()
    deadline.resume()
    assert not running
