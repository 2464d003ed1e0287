"""Messages that a person adds without asking a model: checked, kept as turns, read by the next
model, saved and shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)
from fastmcp import FastMCP
from kit.history import assert_valid

from casual_mcp_nb import Conversation, Session
from casual_mcp_nb.conversation.step import EMPTY_RESULT
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.scripted import call, scripted_model

HOSTILE = "<script>alert(1)</script>"


def called(
    id: str = "call_1", name: str = "harbour__berth", arguments: str = '{"ship": "Fram"}'
) -> AssistantMessage:
    function = AssistantToolCallFunction(name=name, arguments=arguments)
    return AssistantMessage(content="", tool_calls=[AssistantToolCall(id=id, function=function)])


def result(id: str = "call_1", text: str = "berth 7") -> ToolResultMessage:
    return ToolResultMessage(name="harbour__berth", tool_call_id=id, content=text)


HISTORY = [
    UserMessage(content=f"Where is Fram? {HOSTILE}"),
    called(),
    result(),
    AssistantMessage(content="Fram is at berth 7."),
    UserMessage(content="And Gjøa?"),
    AssistantMessage(content="I do not know."),
]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    harbour: FastMCP[Any] = FastMCP("harbour")
    harbour.tool(lambda ship: f"{ship}: berth 8", name="berth")
    with Session(
        {}, in_process={"harbour": harbour}, store=tmp_path / "conversations.db", quiet=True
    ) as opened:
        yield opened


def test_they_are_turns_that_the_next_model_reads(session: Session) -> None:
    added = session.conversations.add(HISTORY)
    assert [turn.answer for turn in added] == ["Fram is at berth 7.", "I do not know."]
    assert [(turn.added, turn.status, len(turn.steps)) for turn in session.turns] == [
        (True, "done", 0)
    ] * 2
    assert session.messages == HISTORY
    assert session.stats.llm_calls == 0

    # The scripted model's first call has the id that is taken.
    model: Any = scripted_model(call("harbour__berth", ship="Maud"), "Berth 8.")
    turn = session.chat("And Maud?", model=model, echo="none")
    assert list(model.client.requests[0].messages[1:-1]) == HISTORY
    assert (turn.answer, turn.added) == ("Berth 8.", False)
    assert_valid(session.messages)

    session.conversations.add([UserMessage(content="Again"), called(), result()])
    assert_valid(session.messages)
    session.undo()
    assert len(session.turns) == 3


def test_they_are_saved_shown_and_exported(session: Session, tmp_path: Path) -> None:
    session.conversations.add(HISTORY)
    id = session.conversations.id or ""
    assert session.conversations.store is not None
    stored = session.conversations.store.get(id)
    assert (stored.turns, stored.tokens) == (2, None)
    loaded = session.conversations.store.load(id)
    assert loaded.messages == HISTORY
    assert loaded.repairs == ()
    session.export(tmp_path / "all.json")
    assert Conversation.load(tmp_path / "all.json").messages == HISTORY
    for form in ("html", "md"):
        text = session.export(tmp_path / f"all.{form}").read_text()
        assert all(word in text for word in ("berth 7", "harbour__berth", "I do not know."))
        assert (HOSTILE in text) == (form == "md")
    for value in (session.conversations.current, session.turns[0], session.stats, session.status):
        for text in value._repr_mimebundle_().values():
            assert text
    assert "berth 7" in session.turns[0]._repr_html_()
    session.conversations.resume(id)
    assert session.conversations.store.get(id).head.model is None


def test_only_the_persons_messages_are_asked_again(session: Session) -> None:
    session.conversations.add(HISTORY)
    model: Any = scripted_model("At sea.")
    turn = session.rerun(0, model=model, echo="none")
    assert [message.role for message in model.client.requests[0].messages] == ["system", "user"]
    assert (turn.answer, len(session.turns)) == ("At sea.", 1)
    session.conversations.add([AssistantMessage(content="By the way …")])
    with pytest.raises(UsageError):
        session.rerun(-1, model=scripted_model("No."), echo="none")
    with pytest.raises(UsageError):
        session.conversations.fork_at(0, model=scripted_model("No."), echo="none")
    assert len(session.conversations.fork(-1)) == 2
    assert session.conversations.store is not None
    assert session.conversations.store.add(Conversation(session.turns[1:])).title == "Untitled"


@pytest.mark.parametrize(
    "messages",
    [
        [],
        ["Hello"],
        [SystemMessage(content="Be brief.")],
        [UserMessage(content="")],
        [AssistantMessage(content="")],
        [called()],
        [called(), UserMessage(content="And?"), result()],
        [result()],
        [called(), result(), result()],
        [called(), result("call_2")],
        [called(""), result("")],
        [called(name="berth of a ship"), result()],
        [called(arguments="ship"), result()],
        [called(arguments='["Fram"]'), result()],
    ],
)
def test_what_no_provider_would_accept_is_refused_whole(
    session: Session, messages: list[Any]
) -> None:
    with pytest.raises(UsageError):
        session.conversations.add([*HISTORY[:1], *messages] if messages else [])
    assert session.turns == []


def test_an_empty_result_says_that_it_is_empty(session: Session) -> None:
    session.conversations.add([UserMessage(content="Where?"), called(), result(text="")])
    assert session.messages[-1].content == EMPTY_RESULT
