"""A stop while cases are still loaded, or servers started, ends an experiment before its first
run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kit.setups import MATH, OFFLINE

from casual_mcp_nb import Session
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.scripted import scripted_model

pytestmark = pytest.mark.defect("N8")

CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {"math": MATH},
}


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(CONFIG, store=None, quiet=True) as session:
        yield session


def cases(session: Session, count: int = 30) -> Iterator[dict[str, Any]]:
    """Cases, while whose loading the person stops."""
    for number in range(count):
        if number == 1:
            session.stop()
        yield {"id": str(number), "message": f"1 + {number}", "calls": [{"tool": "math:add"}]}


DOORS: dict[str, Callable[[Session], Any]] = {
    "run": lambda session: session.experiments.run(cases(session), progress=False),
    "worth": lambda session: session.experiments.worth(cases(session), progress=False),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_stop_while_cases_are_loaded_ends_the_experiment(session: Session, door: str) -> None:
    DOORS[door](session)
    results = session.experiments.results
    assert results is not None
    assert results.status == "stopped"
    assert not [record for record in results.records if record.made]


def test_a_stop_while_servers_are_started_ends_it(session: Session) -> None:
    stopped: list[str] = []

    def on_status(*_: Any) -> None:
        if not stopped:
            stopped.append("once")
            session.stop()

    session.parts.observers.changes.add(on_status)
    session.experiments.run(tuple(cases_without_a_stop()), progress=False)
    results = session.experiments.results
    assert results is not None
    assert stopped
    assert results.status == "stopped"


def cases_without_a_stop() -> Iterator[dict[str, Any]]:
    for number in range(30):
        yield {"id": str(number), "message": f"1 + {number}", "calls": [{"tool": "math:add"}]}


def test_a_stop_before_it_is_asked_for_is_harmless(session: Session) -> None:
    session.stop()
    results = session.experiments.run(tuple(cases_without_a_stop())[:2], progress=False)
    assert results.status == "done"
    assert len(results.records) == 2


async def test_a_stop_while_a_model_is_asked_for_texts_is_an_error_in_words(
    session: Session,
) -> None:
    started, loop = asyncio.Event(), asyncio.get_running_loop()

    async def answer(messages: Any, tools: Any) -> Any:
        loop.call_soon_threadsafe(started.set)
        await asyncio.Event().wait()

    async def allow(request: Any) -> bool:
        return True

    session.parts.chat.consent.approver, session.parts.chat.consent.can_ask = allow, lambda: True
    workshop = await session.experiments.workshop_async("math:add")
    asking = asyncio.create_task(workshop.propose_async(model=scripted_model(answer)))
    await started.wait()
    await session.stop_async()
    with pytest.raises(UsageError, match="stopped"):
        await asking
