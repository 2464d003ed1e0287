"""A session that is interrupted at any moment of a call can be used further, and ends completely."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from kit.history import assert_valid
from kit.interrupts import at_each_line
from kit.processes import MARK, marked, new_mark, wait_gone
from kit.raw_server import raw_config
from kit.weather import weather
from pydantic import BaseModel

import casual_mcp_nb
from casual_mcp_nb import Session
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.providers.scripted import scripted_model

# Work that an interrupt kept from being handed over never ran.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")

PACKAGE = str(Path(casual_mcp_nb.__file__).parent)


def in_package(code: CodeType) -> bool:
    return code.co_filename.startswith(PACKAGE)


class City(BaseModel):
    name: str


def chat(session: Session) -> object:
    return session.chat("Go.", model=scripted_model("gone"))


def rerun(session: Session) -> object:
    return session.rerun(model=scripted_model("gone again"))


def call(session: Session) -> object:
    return session.tools.call("weather:forecast", city="Oslo")


def extract(session: Session) -> object:
    return session.extract("Which city?", City, model=scripted_model('{"name": "Oslo"}'))


def compare(session: Session) -> object:
    model = scripted_model("one", "two")
    return session.experiments.compare("Go.", models=model, discovery=[False, True], progress=False)


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Have garbage warn here, and not in another test."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session.from_config({}, in_process={"weather": weather()}) as session:
        yield session


def tasks(session: Session) -> set[asyncio.Task[Any]]:
    async def running() -> set[asyncio.Task[Any]]:
        # What was stopped ends.
        for _ in range(3):
            await asyncio.sleep(0)
        return asyncio.all_tasks() - {asyncio.current_task()}

    return session.parts.engine.run(running())


@pytest.mark.parametrize("run", [chat, rerun, call, extract, compare])
def test_it_can_be_used_further(session: Session, run: Callable[[Session], object]) -> None:
    session.conversations.new()
    session.chat("Hello.", model=scripted_model("Hello."))
    run(session)
    before = tasks(session)
    for where in at_each_line(lambda: run(session), in_package, every=3):
        assert not tasks(session) - before, where
        assert session.parts.engine.blocked == 0, where
        session.undo()
        answer = session.chat("And now?", model=scripted_model("fine")).answer
        assert answer == "fine", where
        assert_valid(session.messages)
        assert {turn.status for turn in session.turns} <= {"done", "stopped"}, where


def test_a_conversation_that_could_not_be_forked_stays_as_it_was(session: Session) -> None:
    def begin() -> list[Turn]:
        session.conversations.new()
        session.chat("Go.", model=scripted_model("gone"))
        session.chat("And back.", model=scripted_model("back"))
        return list(session.turns)

    def fork() -> None:
        session.conversations.fork_at(0, 0, text="gone far", model=scripted_model("gone"))

    turns = begin()
    for where in at_each_line(fork, in_package):
        if list(session.turns) != turns:
            assert len(session.turns) == 1, where
            turns = begin()


def test_an_evaluation_ends_with_an_interrupt(session: Session) -> None:
    cases = [ToolUseCase(f"Question {number}", ["weather:forecast"]) for number in range(2_000)]
    searched: list[str] = []
    free = threading.Event()
    caller = threading.main_thread().ident
    assert caller is not None

    def strategy(tools: Sequence[ToolSpec]) -> Callable[[str, int], list[ToolSpec]]:
        def search(query: str, most: int) -> list[ToolSpec]:
            searched.append(query)
            if len(searched) == 1:
                signal.pthread_kill(caller, signal.SIGINT)
                assert free.wait(30)
            return []

        return search

    with ThreadPoolExecutor(1) as executor:
        with pytest.raises(KeyboardInterrupt):
            session.experiments.evaluate(
                cases, {"strategy": strategy}, executor=executor, progress=False
            )
        free.set()
    assert len(searched) < len(cases)


def test_a_server_whose_start_was_interrupted_starts_and_leaves_no_process() -> None:
    mark = new_mark()
    server = {**raw_config(), "env": {MARK: mark}}
    with Session.from_config({"servers": {"raw": server}}, trust=True, quiet=True) as session:
        end = session.parts.chat.server_manager.disconnect
        session.parts.engine.run(end())
        for where in at_each_line(session.connect, in_package, every=40):
            session.connect()
            assert session.servers["raw"].state == "ready", where
            assert len(marked(mark)) == 1, where
            session.parts.engine.run(end())
            wait_gone(mark)


def test_closing_goes_on_after_an_interrupt() -> None:
    mark = new_mark()
    server = {**raw_config(), "env": {MARK: mark}}
    session = Session.from_config({"servers": {"raw": server}}, trust=True)
    session.connect(quiet=True)
    asked, free = threading.Event(), asyncio.Event()
    caller = threading.main_thread().ident
    assert caller is not None

    async def slow_to_stop(*_: object) -> str:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            signal.pthread_kill(caller, signal.SIGINT)
            await free.wait()
        return ""

    session.submit("Go.", model=scripted_model(slow_to_stop))
    assert asked.wait(30)
    with pytest.raises(KeyboardInterrupt):
        session.close()
    assert marked(mark)
    session.parts.engine.call_later(0, free.set)
    wait_gone(mark)
    session.close()
