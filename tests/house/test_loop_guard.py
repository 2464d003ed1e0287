"""The guard over the event loops sees calls that hold one, names them, and is not alarmed by a busy
machine.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.loop_guard import PACKAGE, Held, LoopGuard

from casual_mcp_nb.notebook.loop import EngineThread

LIMIT = 0.25
COMPUTE = "end = time.thread_time() + {seconds}\n    while time.thread_time() < end: pass"


@pytest.fixture
def guard() -> Iterator[LoopGuard]:
    guard = LoopGuard(LIMIT)
    guard.start()
    yield guard
    guard.stop()


def code(body: str, path: str = PACKAGE + "culprit.py", **names: Any) -> Callable[[], object]:
    """A function with this body, whose code lies in the package, as the guard sees it."""
    space: dict[str, Any] = {"time": time, **names}
    exec(compile(f"def function():\n    {body}\n", path, "exec"), space)
    function: Callable[[], object] = space["function"]
    return function


def held(guard: LoopGuard, function: Callable[[], object]) -> list[Held]:
    """Run a function on an engine thread, and collect the guard's reports."""
    engine = EngineThread()
    try:
        engine.submit(asyncio.to_thread(int))[0].result()
        called = threading.Event()
        engine.call_later(0, function)
        engine.call_later(0, called.set)
        assert called.wait(30)
    finally:
        engine.stop()
    return guard.take()


@pytest.mark.holds_the_loop("that is what is tested")
@pytest.mark.parametrize(
    "body",
    [COMPUTE.format(seconds=0.4), "wait(0.5)", "sum(range(60_000_000))"],
    ids=["computing", "waiting", "keeping the interpreter"],
)
def test_a_callback_that_holds_its_loop_is_named_with_file_and_line(
    guard: LoopGuard, body: str
) -> None:
    # On a busy machine a wait may not be told from a thread that is given no processor.
    tries = (held(guard, code(body, wait=threading.Event().wait)) for _ in range(20))
    [found, *_] = next(filter(None, tries))
    assert found.thread.startswith("casual-mcp-engine")
    assert found.seconds > LIMIT
    assert "casual_mcp_nb/culprit.py:" in found.place


@pytest.mark.holds_the_loop("that is what is tested")
def test_a_first_import_on_an_engines_loop_is_reported_and_a_later_one_is_not(
    guard: LoopGuard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_somebody_else.py").write_text("import fractions, of_another\n")
    (tmp_path / "of_another.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert held(guard, code("find('of_somebody_else')", find=importlib.util.find_spec)) == []
    [found] = held(guard, code("import json, of_somebody_else"))
    assert found.thread == "casual-mcp-engine (imported of_somebody_else)"
    assert found.place.startswith("casual_mcp_nb/culprit.py:2")
    assert held(guard, code("import of_somebody_else")) == []


@pytest.mark.holds_the_loop("that is what is tested")
def test_a_thread_that_keeps_the_interpreter_holds_all_loops() -> None:
    # On a busy machine the thread has a processor for a small part of the time only, and keeps the
    # interpreter all the same.
    guard = LoopGuard(LIMIT / 2, share=0)
    guard.start()
    try:
        places: list[str] = []
        for _ in range(20):
            # The watcher looks again while the thread is still there.
            worker = threading.Thread(
                target=code("sum(range(60_000_000)); wait(1)", wait=threading.Event().wait)
            )
            worker.start()
            worker.join()
            places += [each.place for each in guard.take()]
            if any("casual_mcp_nb/culprit.py:" in place for place in places):
                break
        else:
            pytest.fail(f"the guard saw only {places}")
    finally:
        guard.stop()


def test_the_collector_of_garbage_holds_nothing(guard: LoopGuard) -> None:
    """A thread's collections are not taken for those of a later one, which the system gives the
    same number.
    """

    class Node:
        pass

    # The watcher sees the thread in the middle of its collection: after the search, before the end.
    body = """node = Node()
    node.itself = node
    watch = ref(node, lambda _: wait(0.2))
    del node
    wait(0.1)
    collect()"""
    names = {
        "Node": Node,
        "ref": weakref.ref,
        "wait": threading.Event().wait,
        "collect": gc.collect,
    }
    gc.disable()
    try:
        alive = [[None] for _ in range(5_000_000)]
        for _ in range(2):
            worker = threading.Thread(target=code(body, **names))
            worker.start()
            worker.join()
        del alive
    finally:
        gc.enable()
    assert guard.take() == []


def test_short_callbacks_that_share_the_processor_with_busy_threads_are_not_counted(
    guard: LoopGuard,
) -> None:
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert held(guard, code(COMPUTE.format(seconds=0.1))) == []
    finally:
        stop.set()
        for thread in threads:
            thread.join()


async def test_awaiting_is_not_holding(guard: LoopGuard) -> None:
    await asyncio.sleep(0.4)
    await asyncio.to_thread(threading.Event().wait, 0.4)
    assert guard.take() == []


def test_what_another_greenlet_computes_is_not_the_callbacks(guard: LoopGuard) -> None:
    """As in a test with Playwright, whose loop stays within a callback while the test goes on."""
    greenlet = pytest.importorskip("greenlet")
    test = greenlet.getcurrent()

    async def switch() -> None:
        test.switch()

    loop = greenlet.greenlet(lambda: asyncio.run(switch()))
    loop.switch()
    code(COMPUTE.format(seconds=0.4))()
    loop.switch()
    assert loop.dead
    assert guard.take() == []


def test_the_notebooks_own_loop_may_wait_for_the_engine(guard: LoopGuard) -> None:
    engine = EngineThread()

    async def cell() -> None:
        engine.run(asyncio.sleep(0.5))

    try:
        asyncio.run(cell())
    finally:
        engine.stop()
    assert guard.take() == []


def test_the_package_is_where_the_guard_looks_for_it() -> None:
    assert (Path(PACKAGE) / "notebook" / "loop.py").exists()
