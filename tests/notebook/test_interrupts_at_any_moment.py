"""An interrupt at any moment of handing work over to the engine leaves none of it running.

A loop that is woken can run the work before the thread that wakes it goes on. Here the interrupt
comes at each line in turn, from the first to the one at which the thread waits.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import linecache
import sys
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import Any

import pytest
from kit.weather import weather

from casual_mcp_nb import Session
from casual_mcp_nb.base.handover import Handover
from casual_mcp_nb.notebook.caller import CALLER, Caller, NotebookRunner
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.providers.scripted import scripted_model

HAND_OVER = {"loop.py", "handover.py", "caller.py", "pauses.py"}

Work = Coroutine[Any, Any, None]


class Interrupt:
    """Interrupts this thread at the line with a number, of those that hand work over."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.waited = False
        self._lines: set[tuple[FrameType, int]] = set()

    def __enter__(self) -> None:
        sys.settrace(self._on_call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        wakes = frame.f_code.co_name == "call_soon_threadsafe"
        if _hands_over(frame) or (wakes and _hands_over(frame.f_back)):
            return self._on_line
        return None

    def _on_line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event != "line":
            return self._on_line
        line = (frame, frame.f_lineno)
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        waits = ("self._jobs.get()", "await asyncio.wrap_future(")
        # `wait` goes round and round.
        self.waited = line in self._lines or any(each in text for each in waits)
        self._lines.add(line)
        if self.waited or not self.left:
            sys.settrace(None)
            raise KeyboardInterrupt
        self.left -= 1
        return self._on_line


def _hands_over(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.rsplit("/", 1)[-1] in HAND_OVER


def at_each_line(run: Callable[[], object]) -> Iterator[int]:
    """Run something again and again, each time interrupted at the next line."""
    number = 0
    while True:
        interrupt = Interrupt(number)
        with pytest.raises(KeyboardInterrupt), interrupt:
            run()
        yield number
        if interrupt.waited:
            return
        number += 1


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    engine = EngineThread()
    yield engine
    engine.stop()


async def endless() -> None:
    await asyncio.Event().wait()


def blocking(engine: EngineThread, work: Work) -> None:
    engine.run(work)


def awaited(engine: EngineThread, work: Work) -> None:
    asyncio.run(engine.wait(work))


def _prepared(engine: EngineThread, work: Work) -> Callable[[], Any]:
    return lambda: Handover(work, engine._loop)


def nested_blocking(engine: EngineThread, work: Work) -> None:
    context = contextvars.copy_context()
    context.run(CALLER.set, Caller(None, blocking=True))
    NotebookRunner().wait(_prepared(engine, work), context)


def nested_awaited(engine: EngineThread, work: Work) -> None:
    context = contextvars.copy_context()
    asyncio.run(NotebookRunner().wait_async(_prepared(engine, work), context))


@pytest.mark.fault(4)
@pytest.mark.parametrize("hand_over", [blocking, awaited, nested_blocking, nested_awaited])
def test_no_work_goes_on(
    engine: EngineThread, hand_over: Callable[[EngineThread, Work], None]
) -> None:
    works: list[Work] = []

    def run() -> None:
        works.append(endless())
        hand_over(engine, works[-1])

    for number in at_each_line(run):
        # The loop has begun whatever was handed over, and cancelled what it had begun.
        for _ in range(4):
            engine.run(asyncio.sleep(0))
        assert inspect.getcoroutinestate(works[-1]) in (
            inspect.CORO_CLOSED,
            inspect.CORO_CREATED,
        ), f"line {number} of {hand_over.__name__}"
        works[-1].close()
    assert number > 5
    assert engine.blocked == 0


# Work that an interrupt kept from being handed over never ran.
@pytest.mark.filterwarnings("ignore:.*coroutine 'TurnService.run_turn'")
def test_no_turn_goes_on_that_pauses() -> None:
    with Session.from_config({}, in_process={"weather": weather()}) as session:
        session.connect(quiet=True)

        def run() -> None:
            next(iter(session.pauses("Go", model=scripted_model("done"))))

        for number in at_each_line(run):
            answer = session.chat("And now?", model=scripted_model("fine")).answer
            assert answer == "fine", f"line {number}"
        assert number > 5
    # What warns does it here.
    gc.collect()
