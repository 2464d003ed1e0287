"""A conversation that continues from a step: the part before comes from the recording, and the rest
is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from casual_llm.messages import AssistantMessage
from fastmcp import FastMCP
from kit.history import assert_valid
from kit.setups import OFFLINE

from casual_mcp_nb import Session, Turn
from casual_mcp_nb.conversation.conversation import ForkedFrom, recorded_steps
from casual_mcp_nb.conversation.event import (
    Notice,
    StepStarted,
    TextEdited,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from casual_mcp_nb.conversation.messages import ProviderState, StatefulAssistantMessage
from casual_mcp_nb.conversation.turn import Trace
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.magics.commands import COMMANDS
from casual_mcp_nb.providers.scripted import call, calls, scripted_model


class Harbour:
    """A server that counts its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.server: FastMCP[Any] = FastMCP("harbour")
        self.server.tool(self.berth)
        self.server.tool(self.depth)

    def berth(self, ship: str) -> str:
        """Find the berth of a ship."""
        self.calls.append(f"berth {ship}")
        return f"{ship}: berth 7"

    def depth(self, place: str) -> str:
        """Measure the depth of a place."""
        self.calls.append(f"depth {place}")
        return "12 m"


@pytest.fixture
def harbour() -> Harbour:
    return Harbour()


@pytest.fixture
def session(tmp_path: Path, harbour: Harbour) -> Iterator[Session]:
    with Session(
        OFFLINE,
        in_process={"harbour": harbour.server},
        store=tmp_path / "conversations.db",
        quiet=True,
    ) as opened:
        yield opened


def asks(session: Session) -> Turn:
    """A turn of three steps: a berth, two depths at the same time, an answer."""
    depths = calls(call("harbour__depth", place="berth 7"), call("harbour__depth", place="berth 8"))
    model = scripted_model(call("harbour__berth", ship="Fram"), depths, "Fram lies in 12 m.")
    return session.chat("How deep is it at Fram's berth?", model=model, echo="none")


def requests(model: Any) -> Any:
    return model.client.requests


def test_a_step_is_asked_again_and_those_before_it_are_not(
    session: Session, harbour: Harbour
) -> None:
    session.chat("Hello", model=scripted_model("Hello."), echo="none")
    first = asks(session)
    origin, called = session.conversations.id, list(harbour.calls)
    model = scripted_model("I do not know.", name="other")
    turn = session.conversations.fork_at(1, model=model, echo="none")
    assert harbour.calls == called
    assert list(requests(model)[0].messages[1:]) == session.messages[:-1]
    assert (turn.answer, turn.status, turn.started.model) == ("I do not know.", "done", "other")
    assert [step.index for step in turn.steps] == [0, 1]
    assert turn.steps[0].tool_calls == first.steps[0].tool_calls
    assert turn.started.recorded == 1
    assert turn.trace.of(StepStarted)[1].at >= turn.trace.of(ToolStarted)[0].at
    assert_valid(session.messages)
    assert len(session.turns) == 2

    assert session.conversations.store is not None
    stored = session.conversations.store.get(session.conversations.id or "")
    assert stored.head.forked_from == ForkedFrom(origin or "", 1, 1)
    assert (
        session.conversations.store.load(stored.id).to_json()
        == session.conversations.current.to_json()
    )
    assert [turn.answer for turn in session.conversations.store.load(origin or "")] == [
        "Hello.",
        "Fram lies in 12 m.",
    ]
    assert origin in str(stored)

    # It is still known after it was continued elsewhere.
    session.conversations.new()
    session.conversations.resume(stored.id)
    session.chat("And now?", model=scripted_model("Still."), echo="none")
    assert session.conversations.store.get(stored.id).head.forked_from == ForkedFrom(
        origin or "", 1, 1
    )


def test_another_result_is_what_the_model_reads(session: Session, harbour: Harbour) -> None:
    first = asks(session)
    called = list(harbour.calls)
    model = scripted_model("It has no berth.")
    turn = session.conversations.fork_at(0, result="Fram: at sea", model=model, echo="none")
    assert harbour.calls == called
    assert requests(model)[0].messages[-1].content == "Fram: at sea"
    (made,) = turn.tool_calls
    assert (made.result, made.unedited) == ("Fram: at sea", first.tool_calls[0].result)
    assert [step.text for step in turn.steps] == ["", "It has no berth."]
    assert_valid(session.messages)
    # The first conversation has its own result.
    assert first.tool_calls[0].unedited is None


def test_one_of_several_results_is_replaced_and_the_model_can_call_on(
    session: Session, harbour: Harbour
) -> None:
    first = asks(session)
    second = first.steps[1].tool_calls[1]
    model = scripted_model(call("harbour__depth", place="berth 9"), "9 is deeper.")
    turn = session.conversations.fork_at(1, -1, result={second.id: "3 m"}, model=model, echo="none")
    assert [made.result for made in turn.steps[1].tool_calls] == ["12 m", "3 m"]
    assert harbour.calls[-1] == "depth berth 9"
    assert [step.index for step in turn.steps] == [0, 1, 2, 3]
    assert len({made.id for made in turn.tool_calls}) == 4
    assert_valid(session.messages)


def test_another_text_of_a_step_with_calls_keeps_them(session: Session, harbour: Harbour) -> None:
    asks(session)
    called = list(harbour.calls)
    model = scripted_model("Done.")
    turn = session.conversations.fork_at(
        0, text="I look for the berth first.", model=model, echo="none"
    )
    assert harbour.calls == called
    said = next(
        message for message in requests(model)[0].messages if isinstance(message, AssistantMessage)
    )
    assert (said.content, len(said.tool_calls or ())) == ("I look for the berth first.", 1)
    assert turn.steps[0].text == said.content
    assert turn.trace.of(Notice)


def test_another_answer_ends_the_turn_without_a_model(session: Session) -> None:
    asks(session)
    model = scripted_model()
    turn = session.conversations.fork_at(-1, text="It is 12 m deep.", model=model, echo="none")
    assert requests(model) == []
    assert (turn.answer, turn.status, len(turn.steps)) == ("It is 12 m deep.", "done", 3)
    assert session.conversations.current.stats.llm_calls == 3


def test_other_tools_apply_from_that_step_on(session: Session) -> None:
    asks(session)
    session.selection.tools_off = ["harbour:depth"]
    model = scripted_model("I cannot measure.")
    session.conversations.fork_at(1, model=model, echo="none")
    assert [tool["name"] for tool in requests(model)[0].tools] == ["harbour__berth"]


def test_what_searches_found_before_that_step_is_loaded(session: Session) -> None:
    session.selection.servers["harbour"] = "deferred"
    session.selection.discovery = True
    model = scripted_model(
        call("search_tools", query="berth of a ship"), call("harbour__berth", ship="Fram"), "At 7."
    )
    session.chat("Where?", model=model, echo="none")
    again = scripted_model(call("harbour__berth", ship="Maud"), "At 7 too.")
    turn = session.conversations.fork_at(1, model=again, echo="none")
    assert [call.status for call in turn.tool_calls] == ["ok", "ok"]
    with pytest.raises(UsageError):
        session.conversations.fork_at(0, result="nothing", model=again, echo="none")
    session.conversations.fork_at(0, model=scripted_model("No."), echo="none")
    assert session.tools.discovered == ()


@pytest.mark.parametrize(
    ("step", "options"),
    [
        (3, {}),
        (-4, {}),
        (0, {"turn": 1}),
        (2, {"result": "x"}),
        (1, {"result": "x"}),
        (1, {"result": {"harbour:depth": "x"}}),
        (0, {"result": {"harbour:tide": "x"}}),
        (0, {"result": {"harbour:berth": 7}}),
        (2, {"text": " "}),
        (0, {"model": "nobody"}),
        (0, {"tool_set": "none"}),
        (0, {"colour": "red"}),
    ],
)
def test_what_cannot_be_forked_changes_nothing(
    session: Session, step: int, options: dict[str, Any]
) -> None:
    asks(session)
    id, before = session.conversations.id, session.turns
    with pytest.raises(UsageError):
        session.conversations.fork_at(
            step, echo="none", **{"model": scripted_model("No."), **options}
        )
    assert session.turns == before
    assert session.conversations.id == id
    assert len(session.conversations) == 1


def test_a_fork_of_a_private_conversation_is_private(session: Session) -> None:
    session.conversations.new(private=True)
    asks(session)
    session.conversations.fork()
    session.conversations.fork_at(0, model=scripted_model("No."), echo="none")
    assert (len(session.conversations), session.conversations.id) == (0, None)


def test_a_turn_that_was_stopped_goes_on_where_it_was(session: Session, harbour: Harbour) -> None:
    whole = asks(session)
    # As a process leaves it that is killed while the last of its calls runs.
    last = whole.tool_calls[-1].id
    events = list(whole.trace)
    end = max(n for n, event in enumerate(events) if isinstance(event, ToolFinished))
    of_others = (
        each
        for each in events[: end + 1]
        if getattr(each, "call_id", "") != last or isinstance(each, ToolStarted)
    )
    stopped = Turn(Trace(of_others))
    kept = recorded_steps(stopped, 1, result={last: "3 m"})
    assert [made.status for made in kept.tool_calls] == ["ok", "ok", "stopped"]
    assert kept.messages[-1].content == "3 m"
    assert_valid(kept.messages)


def test_state_of_the_provider_is_left_out_with_the_text_it_belongs_to(session: Session) -> None:
    state = ProviderState(
        wire="anthropic",
        model="claude",
        parts=({"type": "thinking", "signature": "x"}, {"type": "call"}),
    )
    said = scripted_model(call("harbour__berth", ship="Fram")).client._as_answer(
        call("harbour__berth", ship="Fram")
    )  # type: ignore[attr-defined]
    message = StatefulAssistantMessage(**said.message.model_dump(), kept=state)
    turn = session.chat("Where?", model=scripted_model(message, "At 7."), echo="none")
    assert any(
        isinstance(each, StatefulAssistantMessage)
        for each in recorded_steps(turn, 0, result="x").messages
    )
    assert not any(
        isinstance(each, StatefulAssistantMessage)
        for each in recorded_steps(turn, 0, text="x").messages
    )


def test_events_of_what_was_edited_before_are_taken_over(session: Session) -> None:
    turn = asks(session)
    *events, end = turn.trace
    edited = TextEdited(0, None, "How deep?", turn.prompt)
    kept = recorded_steps(Turn(Trace([*events, edited, end])), 1)
    assert (kept.prompt, kept.edits) == ("How deep?", [])
    assert len(kept.trace.of(TurnStarted)) == 1


async def test_it_can_be_awaited(session: Session) -> None:
    await session.chat_async("Hello", model=scripted_model("Hello."), echo="none")
    turn = await session.conversations.fork_at_async(
        0, model=scripted_model("Good day."), echo="none"
    )
    assert turn.answer == "Good day."


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("1", ["Hello."]),
        ("", ["Hello.", "Fram lies in 12 m."]),
        ('2.3 --text "It is deep."', ["Hello.", "It is deep."]),
    ],
)
def test_the_magic_counts_from_one(session: Session, line: str, answers: list[str]) -> None:
    session.chat("Hello", model=scripted_model("Hello."), echo="none")
    asks(session)
    run: Callable[..., Any] | None = COMMANDS["fork"].run
    assert run is not None
    run(session, line)
    assert [turn.answer for turn in session.turns] == answers


@pytest.mark.parametrize(
    "line", ["0", "3", "x", "-1", "1.2", "--text x", "1 --text x", "1.1 --text", "1.1 --colour red"]
)
def test_a_fork_line_that_is_wrong_is_refused(session: Session, line: str) -> None:
    session.chat("Hello", model=scripted_model("Hello."), echo="none")
    run = COMMANDS["fork"].run
    assert run is not None
    with pytest.raises(UsageError):
        run(session, line)
