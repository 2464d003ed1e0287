"""An interrupt at any moment of handing work over to the engine leaves none of it running.

A loop that is woken can run the work before the thread that wakes it goes on. Here the interrupt
comes at each line in turn. Where the thread waits, the work itself interrupts it, and another
interrupt can come while that one is handled.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from kit.interrupts import at_each_line
from kit.weather import weather

from casual_mcp_nb import Session
from casual_mcp_nb.base.handover import Handover
from casual_mcp_nb.notebook.caller import CALLER, Caller, NotebookRunner
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.pauses import Pause
from casual_mcp_nb.providers.scripted import scripted_model

Work = Coroutine[Any, Any, None]


def hands_over(code: CodeType) -> bool:
    return Path(code.co_filename).name in ("loop.py", "handover.py", "caller.py", "pauses.py")


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    engine = EngineThread()
    yield engine
    engine.stop()


async def endless() -> None:
    await asyncio.Event().wait()


async def interrupting(last: bool) -> None:
    """Interrupt the thread or the task that waits for this, and go on.

    Args:
        last: Let no other interrupt come after this one.
    """
    caller = CALLER.get()
    assert caller is not None

    def interrupt() -> None:
        if last:
            sys.settrace(None)
        if caller.loop is None:
            raise KeyboardInterrupt
        for task in asyncio.all_tasks(caller.loop):
            task.cancel()

    if caller.loop is None:
        await caller.run(interrupt)
    else:
        caller.loop.call_soon_threadsafe(interrupt)
    await endless()


def _run(waiting: Coroutine[Any, Any, object]) -> None:
    try:
        asyncio.run(waiting)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def blocking(engine: EngineThread, work: Work) -> None:
    engine.run(work)


def awaited(engine: EngineThread, work: Work) -> None:
    _run(engine.wait(work))


def _prepared(engine: EngineThread, work: Work) -> Callable[[], Any]:
    return lambda: Handover(work, engine._loop)


def nested_blocking(engine: EngineThread, work: Work) -> None:
    context = contextvars.copy_context()
    context.run(CALLER.set, Caller(None, blocking=True))
    NotebookRunner().wait(_prepared(engine, work), context)


def nested_awaited(engine: EngineThread, work: Work) -> None:
    context = contextvars.copy_context()
    _run(NotebookRunner().wait_async(_prepared(engine, work), context))


def assert_ended(engine: EngineThread, work: Work, where: str = "") -> None:
    # The loop begins whatever was handed over, and cancels what it has begun.
    for _ in range(4):
        engine.run(asyncio.sleep(0))
    assert inspect.getcoroutinestate(work) in (inspect.CORO_CLOSED, inspect.CORO_CREATED), where


@pytest.mark.fault(4)
@pytest.mark.parametrize(
    ("hand_over", "last"),
    [(blocking, False), (awaited, False), (nested_blocking, True), (nested_awaited, True)],
)
def test_no_work_goes_on(
    engine: EngineThread, hand_over: Callable[[EngineThread, Work], None], last: bool
) -> None:
    works: list[Work] = []

    def run() -> None:
        works.append(interrupting(last))
        hand_over(engine, works[-1])

    for where in at_each_line(run, hands_over):
        assert_ended(engine, works[-1], where)
        assert engine.blocked == 0, where
        works[-1].close()
    assert len(works) > 20


async def test_a_cancelled_await_ends_the_work_though_no_thread_is_free(
    engine: EngineThread,
) -> None:
    began, ended, free = threading.Event(), threading.Event(), threading.Event()

    async def work() -> None:
        began.set()
        try:
            await endless()
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        waiting = asyncio.create_task(engine.wait(work()))
        await asyncio.to_thread(began.wait, 30)
        threads.submit(free.wait)
        waiting.cancel()
        await asyncio.sleep(0)
        try:
            # Not on a thread: there is none.
            assert ended.wait(30)
        finally:
            free.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_an_await_that_is_dropped_ends_the_work(engine: EngineThread) -> None:
    work = endless()
    waiting = engine.wait(work)
    waiting.send(None)
    waiting.close()
    assert_ended(engine, work)


def test_a_closed_loop_gets_no_work() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    work = endless()
    with pytest.raises(RuntimeError), Handover(work, loop) as handover:
        handover.start()
    assert handover.ended.is_set()
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


def test_no_turn_goes_on_that_pauses() -> None:
    with Session.from_config({}, in_process={"weather": weather()}) as session:
        session.connect(quiet=True)

        # Kept until the turn is over: nobody hears of an interrupt in `__del__`.
        loops: list[Iterator[Pause]] = []

        def begin() -> None:
            loops[:] = [iter(session.pauses("Go", model=scripted_model("done")))]

        def run() -> None:
            for pause in loops[0]:
                pause.run()

        begin()
        places = []
        for where in at_each_line(run, hands_over):
            loops.clear()
            answer = session.chat("And now?", model=scripted_model("fine")).answer
            assert answer == "fine", where
            places.append(where)
            begin()
        assert len(places) > 20
