"""The engine thread, for callers that block and for callers that await."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.loop import EngineThread


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineThread]:
    engine = EngineThread()
    yield engine
    engine.stop()


async def where() -> str:
    return threading.current_thread().name


async def fail() -> None:
    raise KeyError("what went wrong")


def test_work_runs_on_the_engine_thread_and_its_result_comes_back(engine: EngineThread) -> None:
    assert engine.run(where()) == "casual-mcp-engine"


def test_an_error_of_the_work_is_raised_where_it_is_waited_for(engine: EngineThread) -> None:
    with pytest.raises(KeyError, match="what went wrong"):
        engine.run(fail())


@pytest.mark.fault(71)
async def test_a_blocking_call_works_inside_a_running_loop_without_patching_asyncio(
    engine: EngineThread,
) -> None:
    assert engine.run(where()) == "casual-mcp-engine"
    assert not hasattr(asyncio, "_nest_patched")


async def test_awaiting_from_another_loop_works_and_raises_what_the_work_raises(
    engine: EngineThread,
) -> None:
    assert await engine.wait(where()) == "casual-mcp-engine"
    with pytest.raises(KeyError):
        await engine.wait(fail())


async def test_a_cancelled_await_cancels_the_work_and_waits_for_its_clean_up(
    engine: EngineThread,
) -> None:
    started, cleaned = threading.Event(), threading.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    task = asyncio.create_task(engine.wait(work()))
    await asyncio.to_thread(started.wait, 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as interrupted:
        await task
    assert cleaned.is_set()
    assert len(interrupted.value._render_traceback_()) == 1  # type: ignore[attr-defined]


def test_a_blocking_call_from_the_engine_thread_itself_is_refused_at_once(
    engine: EngineThread,
) -> None:
    async def from_inside() -> None:
        engine.run(where())

    with pytest.raises(UsageError, match="_async"):
        engine.run(from_inside())


@pytest.mark.fault(72)
def test_many_threads_can_use_the_engine_at_once(engine: EngineThread) -> None:
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda: results.append(engine.run(where()))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == ["casual-mcp-engine"] * 8


@pytest.mark.defect("P10")
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_work_that_raises_an_interrupt_ends_alone(kind: type[BaseException]) -> None:
    engine = EngineThread()

    async def raising() -> None:
        raise kind("from a client")

    async def waiting(free: asyncio.Event) -> str:
        await free.wait()
        return "done"

    free = asyncio.Event()
    other, _ = engine.submit(waiting(free))
    future, _ = engine.submit(raising())
    with pytest.raises(kind):
        future.result(10)
    engine.call_later(0, free.set)
    assert other.result(10) == "done"
    engine.stop()
