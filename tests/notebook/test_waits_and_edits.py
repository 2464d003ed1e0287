"""The person's actions in a turn: no time includes them, and edits are marked and shown as the
model read them.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.asked import asked
from kit.raw_server import raw_config
from kit.travel import travel_server
from kit.waiting import wait_until
from kit.weather import desk, weather

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import (
    ApprovalAnswered,
    ApprovalAsked,
    QuestionAnswered,
    QuestionAsked,
    RequestEdited,
    StepStarted,
    ToolFinished,
)
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.conversation.views import turn_mark
from casual_mcp_nb.conversation.waits import PersonWaits
from casual_mcp_nb.notebook.questions import ApprovalQuestion, Question
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.views import document, live_bundle, mimebundle, transcript_html, turn_bundle
from casual_mcp_nb.widgets._slides import slides_of
from casual_mcp_nb.widgets._transcript import Transcript
from casual_mcp_nb.widgets.player import TIERS

WAIT = 60.0
LINK = {
    "mode": "url",
    "message": "Log in.",
    "url": "https://login.example/?a=1",
    "elicitationId": "1",
}
MESSAGE = {"role": "user", "content": {"type": "text", "text": "How many?"}}
ASKERS: dict[str, Any] = {
    "form": None,
    "link": {"ask": "elicitation/create", "ask_params": LINK, "answer": "asked"},
    "sampling": {
        "ask": "sampling/createMessage",
        "ask_params": {"messages": [MESSAGE], "maxTokens": 9},
        "answer": "asked",
    },
}


def slow(turn: Turn) -> Turn:
    """The same turn where each answer of the person came after a minute, and everything else took a
    hundredth of a second.
    """
    at, events = 0.0, []
    for event in turn.trace:
        at += WAIT if isinstance(event, ApprovalAnswered | QuestionAnswered) else 0.01
        events.append(dataclasses.replace(event, at=at))
    return Turn(Trace(events))


def assert_shows_short_times(turn: Turn) -> None:
    for shown in (turn_bundle(turn, "all")["text/plain"], transcript_html(turn)):
        assert re.search(r"\d s\b|\d ms\b", shown)
        assert not re.search(r"\d min\b", shown)


def answers(turn: Turn) -> int:
    return len(turn.trace.of(ApprovalAnswered)) + len(turn.trace.of(QuestionAnswered))


def assert_no_time_includes_the_person(turn: Turn, waits: int) -> None:
    assert answers(turn) == waits
    late = slow(turn)
    assert late.waited == pytest.approx(WAIT * waits)
    assert late.seconds < 2
    assert late.trace.last_at == pytest.approx(late.seconds + late.waited)
    assert_shows_short_times(late)
    for step in late.steps:
        assert (step.seconds or 0) < 2
        assert all((call.seconds or 0) < 2 for call in step.tool_calls)


@pytest.fixture
def session() -> Iterator[Session]:
    servers: dict[str, FastMCP[Any]] = {"weather": weather(), "desk": desk()}
    with Session.from_config({}, in_process=servers, approval={"desk": "always"}) as session:
        yield session


def assert_says_whom_it_waits_for(turn: Turn) -> None:
    note = Transcript(lambda: None)
    for event in turn.trace:
        note.note(turn, event, 1)
    assert turn.person_waits.open_questions
    for shown in (
        live_bundle(turn, "output", 9.0)["text/html"],
        transcript_html(turn, 9.0),
        str(turn),
        note.doing,
    ):
        assert "aiting for you" in shown
        assert "Waiting for the model" not in shown
    assert turn_mark(turn).text == "… waiting for you"


@pytest.mark.defect("F12")
def test_approvals_and_pauses_are_nobodys_time_and_are_named_while_they_last(
    session: Session,
) -> None:
    answers = [call("desk__note", text="x"), call("desk__note", text="y"), "done"]
    future = session.submit("Go", model=scripted_model(*answers), step=True)
    answered: list[Question] = []
    for kind in ("step", "approval", "step", "approval", "step"):
        wait_until(
            lambda: any(each not in answered for each in session.questions), "the session asks"
        )
        question = next(each for each in session.questions if each not in answered)
        assert question.kind == kind
        event_kind = ApprovalAsked if kind == "approval" else QuestionAsked

        def is_recorded(event_kind: type = event_kind) -> bool:
            waiting = session.turns[-1].person_waits.open_questions
            return isinstance(next(iter(waiting), None), event_kind)

        wait_until(is_recorded, "it is recorded")
        assert_says_whom_it_waits_for(session.turns[-1])
        question.approve() if isinstance(question, ApprovalQuestion) else question.next()  # type: ignore[attr-defined]
        answered.append(question)
    turn = future.result(30)
    assert turn.person_waits.open_questions == ()
    assert_no_time_includes_the_person(turn, 5)


@pytest.mark.defect("F12")
def test_the_pauses_of_a_loop_are_nobodys_time(session: Session) -> None:
    pauses = session.pauses(
        "Go", model=scripted_model(call("weather__forecast", city="Oslo"), "done")
    )
    for _ in pauses:
        wait_until(lambda: pauses.turn.person_waits.open_questions, "the trace has the pause")
        assert "Waiting for you, before" in live_bundle(pauses.turn, "output", 9.0)["text/html"]
    assert_no_time_includes_the_person(pauses.turn, 2)


@pytest.mark.defect("F12")
@pytest.mark.parametrize("kind", ASKERS)
def test_what_a_server_asks_is_nobodys_time(kind: str) -> None:
    plan = ASKERS[kind]
    planner = {
        "clients": {"o": {"provider": "offline"}},
        "models": {"planner": {"client": "o", "model": "planner"}},
    }
    server = (
        raw_config(calls={"a": plan}, version="2025-11-25", config={"sampling": True})
        if plan
        else None
    )
    config = {**planner, "servers": {"asker": server} if server else {}}
    in_process = None if plan else {"asker": travel_server()}
    with Session.from_config(config, in_process=in_process) as session:
        session.questions.panel_opened()
        name = "asker__a" if plan else "asker__book"
        future = session.submit("Go", model=scripted_model(call(name), "done"))
        question = asked(session, Question)  # type: ignore[type-abstract]
        turn = session.turns[-1]
        (event,) = turn.person_waits.open_questions
        assert (event.kind, event.server) == (kind, "asker")  # type: ignore[union-attr]
        assert_says_whom_it_waits_for(turn)
        assert turn.tool_calls[0].waiting
        assert not turn.tool_calls[0].needs_approval
        answer: Callable[[], None] = getattr(
            question, {"form": "decline", "link": "accept", "sampling": "approve"}[kind]
        )
        answer()
        assert_no_time_includes_the_person(future.result(30), 1)


@pytest.mark.defect("F12")
def test_a_call_that_runs_while_another_waits_keeps_its_time() -> None:
    with Session.from_config(
        {}, in_process={"desk": desk(), "weather": weather()}, approval={"desk": "always"}
    ) as session:
        both = calls(call("desk__note", text="x"), call("weather__forecast", city="Oslo"))
        future = session.submit("Go", model=scripted_model(both, "done"))
        question = asked(session, ApprovalQuestion)
        wait_until(
            lambda: session.turns[-1].tool_calls[1].status == "ok", "the other call has ended"
        )
        question.approve()
        turn = future.result(30)
    other = turn.tool_calls[1].id
    ended = next(
        index
        for index, each in enumerate(turn.trace)
        if isinstance(each, ToolFinished) and each.call_id == other
    )
    events = [
        dataclasses.replace(event, at=event.at + (0 if index < ended else 7.0))
        for index, event in enumerate(slow(turn).trace)
    ]
    late = Turn(Trace(events))
    assert 7 < late.seconds < 9, "the tool ran for seven seconds of the wait"
    assert late.tool_calls[0].seconds == pytest.approx(0, abs=1)
    assert late.waited == pytest.approx(WAIT, abs=1)


@pytest.mark.defect("F12")
def test_a_step_ends_before_the_edits_that_follow_it_also_in_older_files(session: Session) -> None:
    pauses = session.pauses(
        "Go", model=scripted_model(call("weather__forecast", city="Oslo"), "done")
    )
    for pause in pauses:
        if pause.step:
            pause.texts = dict.fromkeys(pause.texts, "Rain")
    older = [
        event
        for event in slow(pauses.turn).trace
        if type(event).__name__ not in ("QuestionAsked", "QuestionAnswered")
    ]
    sections = mimebundle(Turn(Trace(older)))["text/plain"].splitlines()
    assert not [
        line for line in sections if line.lstrip().startswith("1 ") and f"{WAIT:.0f}" in line
    ]


def test_a_turn_that_waited_for_nobody_is_not_searched_for_waits(session: Session) -> None:
    turn = session.chat("Go", model=scripted_model("done"))
    assert turn.person_waits == PersonWaits()
    assert turn.waited == 0


def edited(session: Session) -> Turn:
    """A turn in which everything that can be edited was edited: the message, the system prompt, the
    tools, a result.
    """
    pauses = session.pauses(
        "What is the weather?",
        model=scripted_model(call("weather__forecast", city="Oslo"), "Rain."),
        system="Be brief.",
    )
    for pause in pauses:
        if pause.step == 0:
            pause.texts[""] = "How is the weather?"
            pause.system = "Be kind."
            pause.tools.remove("weather:history")
        else:
            (name,) = pause.texts
            pause.texts[name] = "Rain in Oslo"
    return pauses.turn


def player(turn: Turn) -> str:
    return json.dumps(slides_of(Conversation([turn]), TIERS[0]), ensure_ascii=False)


@pytest.mark.defect("F11")
def test_everything_that_was_edited_is_marked_and_shown_as_the_model_read_it(
    session: Session,
) -> None:
    turn = edited(session)
    (called,) = turn.tool_calls
    assert (called.edited, called.result, called.unedited) == (
        True,
        "Rain in Oslo",
        "Sunny in Oslo",
    )
    assert [
        (each.step, each.system, [*map(str, each.off)]) for each in turn.trace.of(RequestEdited)
    ] == [
        (0, "Be kind.", []),
        (0, None, ["weather:history"]),
    ]
    conversation = Conversation([turn])
    forms = {
        **{f"card {name}": text for name, text in turn_bundle(turn, "output").items()},
        **{f"whole {name}": text for name, text in turn_bundle(turn, "all").items()},
        "panel": transcript_html(turn),
        "player": player(turn),
        "html": document(conversation, "html", "x"),
        "markdown": document(conversation, "markdown", "x"),
        "saved": document(Conversation.from_json(conversation.to_json()), "html", "x"),
    }
    assert "edited by hand" in str(conversation)
    for name, shown in forms.items():
        assert "✓ ok · edited" in shown, name
        assert "Be kind." in shown, name
        assert "weather:history" in shown, name
        assert "How is the weather?" in shown, name
        assert "→ Sunny in Oslo" not in shown, name
        assert shown.count("Rain in Oslo") >= 1, name


@pytest.mark.defect("F11")
def test_a_running_turn_shows_the_edited_result(session: Session) -> None:
    turn = edited(session)
    until = turn.trace.of(StepStarted)[1]
    running = Turn(Trace(event for event in turn.trace if event.at <= until.at))
    assert running.running
    shown = live_bundle(running, "output", 1.0)["text/html"]
    assert "Rain in Oslo" in shown
    assert "✓ ok · edited" in shown


@pytest.mark.defect("F11")
@pytest.mark.parametrize("structured", [True, False])
def test_the_line_of_an_edited_call_has_the_edited_result(structured: bool) -> None:
    from casual_mcp_nb.conversation.view_calls import call_spans

    box: FastMCP[Any] = FastMCP("box")

    def weigh() -> Any:
        return {"grams": 391} if structured else "391 grams"

    box.tool(weigh)
    with Session.from_config({}, in_process={"box": box}) as session:
        pauses = session.pauses("Go", model=scripted_model(call("box__weigh"), "392"))
        for pause in pauses:
            if pause.step:
                pause.texts = dict.fromkeys(pause.texts, "392 grams")
    (called,) = pauses.turn.tool_calls
    assert call_spans(called)[-1].text == "→ 392 grams"
    assert "391" in mimebundle(called)["text/html"], "what came unfolds below it"
