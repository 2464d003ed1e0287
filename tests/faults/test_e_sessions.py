"""One session in many hands: threads, loops, two chats at once, a close in the middle, a cancel."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.history import assert_valid
from kit.processes import new_mark, wait_gone
from kit.raw_server import raw_config, text_result
from kit.waiting import wait_for_text, wait_until

from casual_mcp_nb import Session
from casual_mcp_nb.errors import ClosedError, UsageError
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

MARK = new_mark()


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "record"


@pytest.fixture
def session(record: Path) -> Iterator[Session]:
    plan: dict[str, Any] = {"quick": {"result": text_result("quick")}, "hang": {}}
    with Session.from_config(
        {"servers": {"raw": raw_config(MARK, calls=plan, record=str(record))}}
    ) as session:
        yield session
    wait_gone(MARK)


def hanging() -> Any:
    """A model that has a quick call made, and then one that never ends."""
    return scripted_model(call("raw__quick"), call("raw__hang"), "never said")


def assert_stopped_and_usable(session: Session, record: Path) -> None:
    turn = session.turns[-1]
    assert turn.status == "stopped"
    assert [each.status for each in turn.tool_calls] == ["ok", "stopped"]
    assert_valid(session.messages)
    wait_for_text(record, "notifications/cancelled")
    assert session.chat("go on", model=scripted_model("fine")).answer == "fine"
    assert_valid(session.messages)


@pytest.mark.fault(69)
async def test_a_cancelled_turn_keeps_what_it_had_and_the_next_one_works(
    session: Session, record: Path
) -> None:
    task = asyncio.create_task(session.chat_async("go", model=hanging()))
    await asyncio.to_thread(wait_for_text, record, '"hang"')
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert_stopped_and_usable(session, record)


@pytest.mark.fault(69)
async def test_a_time_limit_around_an_awaited_chat_is_a_time_out(
    session: Session, record: Path
) -> None:
    async def limited() -> None:
        async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as tasks:
            tasks.create_task(_end_when_the_second_call_hangs(limit, session, record))
            await session.chat_async(
                "go", model=scripted_model(calls(call("raw__quick"), call("raw__hang")))
            )

    with pytest.raises(TimeoutError):
        await limited()
    assert_stopped_and_usable(session, record)


async def _end_when_the_second_call_hangs(
    limit: asyncio.Timeout, session: Session, record: Path
) -> None:
    await asyncio.to_thread(wait_for_text, record, '"hang"')
    await asyncio.to_thread(
        wait_until,
        lambda: session.turns[-1].tool_calls[0].status == "ok",
        "the first call is answered",
    )
    limit.reschedule(asyncio.get_running_loop().time())


@pytest.mark.fault(72)
def test_threads_and_loops_can_use_one_session_in_turn(session: Session) -> None:
    def blocking() -> str:
        return session.tools.call("raw__quick").result

    def awaited() -> str:
        async def main() -> str:
            return (await session.tools.call_async("raw__quick")).result

        return asyncio.run(main())

    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert {
            future.result(10) for future in [pool.submit(way) for way in (blocking, awaited) * 8]
        } == {"quick"}
    for _ in range(2):
        turn = asyncio.run(
            session.chat_async("go", model=scripted_model(call("raw__quick"), "done"))
        )
        assert turn.answer == "done"
        assert session.chat("go", model=scripted_model("again")).answer == "again"
    assert_valid(session.messages)


@pytest.mark.fault(72)
def test_a_second_chat_on_a_session_is_refused_while_one_runs(
    session: Session, record: Path
) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(session.chat, "go", model=hanging())
        wait_for_text(record, '"hang"')
        with pytest.raises(UsageError, match="still running"):
            session.chat("me too", model=scripted_model("never"))
        assert session.tools.call("raw__quick").result == "quick"
        session.close()
        assert first.result(30).status == "stopped"
    assert len(session.turns) == 1


@pytest.mark.fault(72)
def test_chats_of_many_threads_leave_one_valid_history(session: Session) -> None:
    refused = threading.Semaphore(0)

    def chat(number: int) -> None:
        try:
            session.chat(str(number), model=scripted_model(call("raw__quick"), "done"))
        except UsageError:
            refused.release()

    threads = [threading.Thread(target=chat, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert_valid(session.messages)
    assert 1 <= len(session.turns) <= 8
    assert {turn.status for turn in session.turns} == {"done"}


@pytest.mark.fault(75)
@pytest.mark.parametrize("way", ["blocking", "awaited"])
def test_a_close_while_a_chat_runs_ends_the_chat_as_a_stop(
    session: Session, record: Path, way: str
) -> None:
    def chat() -> Any:
        if way == "blocking":
            return session.chat("go", model=hanging())
        return asyncio.run(session.chat_async("go", model=hanging()))

    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(chat)
        wait_for_text(record, '"hang"')
        session.close()
        turn = running.result(30)
    assert turn is session.turns[-1]
    assert turn.status == "stopped"
    assert [each.status for each in turn.tool_calls] == ["ok", "stopped"]
    assert_valid(session.messages)
    with pytest.raises(ClosedError, match="is closed"):
        session.chat("go on", model=scripted_model("never"))


@pytest.mark.fault(75)
def test_a_close_while_a_chat_connects_is_a_clear_error_for_the_chat(tmp_path: Path) -> None:
    record = tmp_path / "record"
    config = {
        "servers": {
            "raw": raw_config(handshake="silent", record=str(record), config={"init_timeout": 60})
        }
    }
    session = Session.from_config(config)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(session.chat, "go", model=scripted_model("never"))
        wait_for_text(record, "jsonrpc")
        session.close()
        with pytest.raises(ClosedError):
            running.result(30)
    assert session.turns == []


@pytest.mark.fault(75)
def test_closing_from_many_threads_at_once_is_harmless(session: Session) -> None:
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for future in [pool.submit(session.close) for _ in range(4)]:
            future.result(10)
    assert session.status.closed
