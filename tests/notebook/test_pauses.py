"""Step mode from code: the loop over a turn's pauses, the edits in it, and every way to leave
it.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.weather import desk, weather

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.repair import repaired
from casual_mcp_nb.errors import ProviderError, UnknownNameError, UsageError
from casual_mcp_nb.providers.scripted import call, scripted_model

NOTE = call("desk__note", text="x")


@pytest.fixture
def session() -> Iterator[Session]:
    servers: dict[str, FastMCP[Any]] = {"weather": weather(), "desk": desk()}
    with Session.from_config({}, in_process=servers) as session:
        yield session


def assert_free_and_valid(session: Session, status: str, turns: int = 1) -> None:
    """The session has this many turns, the last one ended so, its history is valid, and another
    turn can begin.
    """
    after = session.chat("And now?", model=scripted_model("fine"))
    assert after.answer == "fine"
    assert len(session.turns) == turns + 1
    assert session.turns[-2].status == status
    assert repaired(session.messages) == (session.messages, ())


def test_each_model_call_is_a_pause_and_going_on_sends_it(session: Session) -> None:
    model = scripted_model(NOTE, "done")
    pauses = session.pauses("Go", model=model, system="Be brief.")
    seen = []
    for pause in pauses:
        assert len(model.client.requests) == pause.step  # type: ignore[attr-defined]
        assert session.turns[-1] is pauses.turn
        seen.append((pause.step, pause.system, sorted(pause.tools), list(pause.texts.values())))
        assert pause.tokens == pause.request.tokens.total > 0
    tools = ["desk:note", "weather:forecast", "weather:history"]
    assert seen == [(0, "Be brief.", tools, ["Go"]), (1, "Be brief.", tools, ["Noted x"])]
    assert (pauses.turn.status, pauses.turn.answer) == ("done", "done")
    assert session.turns == [pauses.turn]
    assert_free_and_valid(session, "done")


async def test_a_loop_that_has_ended_stays_ended(session: Session) -> None:
    loop = iter(session.pauses("Go", model=scripted_model("done")))
    assert len(list(loop)) == 1
    assert list(loop) == []
    ended = aiter(session.pauses("Go", model=scripted_model("done")))
    assert len([pause async for pause in ended]) == 1
    assert [pause async for pause in ended] == []
    assert_free_and_valid(session, "done", turns=2)


def test_steps_have_an_index_from_0_and_are_numbered_from_1_where_they_are_shown(
    session: Session,
) -> None:
    pauses = session.pauses("Go", model=scripted_model(NOTE, "done"))
    for index, pause in enumerate(pauses):
        assert pause.step == index
        assert f"step {index + 1}," in repr(pause)
    for index, step in enumerate(pauses.turn.steps):
        assert step.index == index
        assert f"Step {index + 1}" in str(step)
    assert [step.step for step in pauses.turn.stats.steps] == [0, 1]
    assert list(pauses.turn.stats.to_frame()["step"]) == [1, 2]


def test_a_pause_shows_the_newest_message_first_and_a_sent_request_the_oldest(
    session: Session,
) -> None:
    *_, pause = session.pauses("Go", model=scripted_model(NOTE, "done"), system="Be brief.")
    for kind in ("text/plain", "text/markdown", "text/html"):
        text = pause._repr_mimebundle_()[kind]
        assert text.index("Noted x") < text.index("Be brief.") < text.index("Breakdown")
        assert "newest first" in text
        sent = pause.request._repr_mimebundle_()[kind]
        assert sent.index("Breakdown") < sent.index("Be brief.") < sent.index("Noted x")


def test_texts_system_prompt_and_tools_can_be_changed(session: Session) -> None:
    model = scripted_model(NOTE, NOTE, "done")
    pauses = session.pauses("Go", model=model, system="Be brief.")
    for pause in pauses:
        if pause.step == 0:
            pause.texts[""] = "Go slowly"
            pause.system += " Be kind."
            pause.tools.remove("weather:history")
        elif pause.step == 1:
            (name,) = pause.texts
            pause.texts[name] = "Noted y"
    first, second, third = (step.request for step in pauses.turn.steps)
    assert first.messages[0].content == second.messages[0].content == "Be brief. Be kind."
    assert [message.content for message in first.messages[1:]] == ["Go slowly"]
    assert [tool["name"] for tool in third.tools] == ["weather__forecast", "desk__note"]
    assert second.messages[-1].content == "Noted y"
    assert [call.result for call in pauses.turn.tool_calls] == ["Noted y", "Noted x"]
    assert pauses.turn.prompt == "Go slowly"
    # Only for this turn.
    after = session.chat("Again", model=scripted_model("done"))
    assert len(after.steps[0].request.tools) == 3
    assert session.selection.tools_off == set()


def test_a_tool_that_was_removed_cannot_be_called_and_a_deferred_one_can_be_loaded(
    session: Session,
) -> None:
    session.selection.servers["weather"] = "deferred"
    session.selection.discovery = True
    answers = [call("weather__forecast", city="Oslo"), NOTE, "done"]
    pauses = session.pauses("Go", model=scripted_model(*answers))
    for pause in pauses:
        if pause.step == 0:
            assert pause.tools == ["desk:note"]
            pause.tools = ["weather:forecast"]
    forecast, note = pauses.turn.tool_calls
    assert (forecast.status, forecast.result) == ("ok", "Sunny in Oslo")
    assert note.status == "error"
    assert {"weather__forecast", "search_tools"} == {
        tool["name"] for tool in pauses.turn.steps[0].request.tools
    }


def test_a_tool_can_be_added_again(session: Session) -> None:
    pauses = session.pauses("Go", model=scripted_model(NOTE, NOTE, "done"))
    for pause in pauses:
        pause.tools = ["weather:history", *(["desk:note"] if pause.step else [])]
    assert [call.status for call in pauses.turn.tool_calls] == ["error", "ok"]


def test_a_tool_that_the_selection_excludes_cannot_be_added(session: Session) -> None:
    session.selection.servers["weather"] = "off"
    pauses = session.pauses("Go", model=scripted_model("never"))
    for pause in pauses:
        pause.tools.append("weather:history")
    assert pauses.turn.status == "failed"
    assert isinstance(pauses.turn.exception, UnknownNameError)


@pytest.mark.parametrize("leave", ["break", "error", "stop", "collected", "closed"])
def test_a_loop_that_is_left_early_stops_the_turn(session: Session, leave: str) -> None:
    model = scripted_model(NOTE, "never")
    pauses = session.pauses("Go", model=model)

    def loop() -> None:
        for pause in pauses:
            if pause.step == 0:
                continue
            if leave == "break":
                break
            if leave == "error":
                raise LookupError
            pause.stop()

    if leave == "error":
        with pytest.raises(LookupError):
            loop()
    elif leave in ("break", "stop"):
        loop()
    else:
        iterator = iter(pauses)
        next(iterator)
        next(iterator)
        if leave == "collected":
            del iterator
            gc.collect()
        else:
            session.stop()
            with pytest.raises(StopIteration):
                next(iterator)
    assert pauses.turn.status == "stopped"
    assert [message.role for message in pauses.turn.messages] == ["user", "assistant", "tool"]
    assert len(model.client.requests) == 1  # type: ignore[attr-defined]
    assert_free_and_valid(session, "stopped")


def test_a_loop_that_is_left_at_the_first_pause_sends_nothing(session: Session) -> None:
    model = scripted_model("never")
    for _ in session.pauses("Go", model=model):
        break
    assert model.client.requests == []  # type: ignore[attr-defined]
    assert_free_and_valid(session, "stopped")


def test_run_makes_it_the_last_pause(session: Session) -> None:
    pauses = session.pauses("Go", model=scripted_model(NOTE, NOTE, "done"))
    count = 0
    for pause in pauses:
        count += 1
        pause.texts[""] = "Go on"
        pause.run()
    assert (count, pauses.turn.status, pauses.turn.prompt) == (1, "done", "Go on")


@pytest.mark.parametrize("change", ["tool", "text", "kind", "system"])
def test_what_cannot_be_sent_is_an_error_and_stops_the_turn(session: Session, change: str) -> None:
    pauses = session.pauses("Go", model=scripted_model("never"))

    def loop() -> None:
        for pause in pauses:
            if change == "tool":
                pause.tools.append("weather:forcast")
            elif change == "text":
                pause.texts["no such call"] = "x"
            elif change == "kind":
                pause.texts[""] = 3  # type: ignore[assignment]
            else:
                pause.system = None  # type: ignore[assignment]

    with pytest.raises(UsageError) as caught:
        loop()
    if change == "tool":
        assert isinstance(caught.value, UnknownNameError)
        assert caught.value.matches
    assert pauses.turn.status == "stopped"
    assert_free_and_valid(session, "stopped")


def test_a_wrong_option_is_an_error_before_anything_begins(session: Session) -> None:
    with pytest.raises(UnknownNameError):
        session.pauses("Go", modle="x")  # type: ignore[call-arg]
    pauses = session.pauses("Go", delivery="brige")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError):
        list(pauses)
    assert (session.turns, session.parts.runner.busy) == ([], False)
    done = session.pauses("Go", model=scripted_model("done"))
    assert len(list(done)) == 1
    with pytest.raises(UsageError):
        list(done)


def test_a_failing_model_ends_the_loop(session: Session) -> None:
    pauses = session.pauses("Go", model=scripted_model(ProviderError("No.")))
    assert len(list(pauses)) == 1
    assert pauses.turn.status == "failed"
    with pytest.raises(ProviderError):
        pauses.turn.raise_for_status()


def test_functions_of_the_notebook_run_on_the_thread_of_the_loop(session: Session) -> None:
    threads = []

    @session.tool
    def here() -> str:
        """Say where."""
        threads.append(threading.current_thread())
        return "here"

    assert (
        len(list(session.pauses("Go", model=scripted_model(call("notebook__here"), "done")))) == 2
    )
    assert threads == [threading.current_thread()]


async def test_async_for_does_the_same(session: Session) -> None:
    pauses = session.pauses("Go", model=scripted_model(NOTE, "done"))
    steps = []
    async for pause in pauses:
        steps.append(pause.step)
        pause.system = f"Step {pause.step}"
    assert steps == [0, 1]
    assert [step.request.messages[0].content for step in pauses.turn.steps] == ["Step 0", "Step 1"]
    async for _ in session.pauses("Go", model=scripted_model("never")):
        break
    after = await session.chat_async("And now?", model=scripted_model("fine"))
    assert after.answer == "fine"
    assert [turn.status for turn in session.turns] == ["done", "stopped", "done"]


async def test_an_async_loop_that_is_cancelled_stops_the_turn(session: Session) -> None:
    waiting = threading.Event()

    @session.tool
    async def wait() -> str:
        """Wait."""
        waiting.set()
        await asyncio.Event().wait()
        return ""

    pauses = session.pauses("Go", model=scripted_model(call("notebook__wait"), "never"))

    async def loop() -> None:
        async for _ in pauses:
            pass

    task = asyncio.create_task(loop())
    await asyncio.to_thread(waiting.wait, 30)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    after = await session.chat_async("And now?", model=scripted_model("fine"))
    assert (pauses.turn.status, after.answer) == ("stopped", "fine")
