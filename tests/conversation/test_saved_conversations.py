"""Saved conversations: small, repaired where they are not valid, and with nothing lost that a later
version wrote.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    ChatMessage,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)
from fastmcp import FastMCP
from kit.fuzz import broken, mutations
from kit.history import assert_valid

from casual_mcp_nb import Session
from casual_mcp_nb.base.tokens import TokenParts
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import (
    Event,
    Request,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.conversation.repair import repaired
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

TEXT = "lorem ipsum " * 70
TOOLS = tuple(
    {"name": f"t{i}", "description": TEXT, "parameters": {"type": "object"}} for i in range(5)
)
ADD = ToolName("math", "add")


def asking(*ids: str) -> AssistantMessage:
    calls = [
        AssistantToolCall(
            id=i, function=AssistantToolCallFunction(name="math__add", arguments="{}")
        )
        for i in ids
    ]
    return AssistantMessage(content=None, tool_calls=calls)


def result(call_id: str, text: str = "3") -> ToolResultMessage:
    return ToolResultMessage(name="math__add", tool_call_id=call_id, content=text)


def talk(turns: int) -> Conversation:
    """A conversation whose requests hold all that was said before, as real ones do."""
    history: list[ChatMessage] = []
    made = []
    for number in range(turns):
        question, answer = (
            UserMessage(content=f"{number} {TEXT}"),
            AssistantMessage(content=f"{number} {TEXT}"),
        )
        history.append(question)
        request = Request(
            (SystemMessage(content="Be kind."), *history), TOOLS, TokenParts(1, 2, 3, 4, 5)
        )
        events: list[Event] = [
            TurnStarted((question,), "m"),
            StepStarted(0, request, 0.1),
            StepFinished(0, answer, at=0.2),
            TurnFinished("done", at=0.3),
        ]
        history.append(answer)
        made.append(Turn(Trace(events)))
    return Conversation(made)


@pytest.mark.defect("B7", "B8")
def test_a_saved_conversation_grows_with_what_was_said_and_not_with_its_square() -> None:
    small, large = len(talk(20).to_json()), len(talk(200).to_json())
    assert large < 11 * small
    assert large < 2 * sum(len(message.content or "") for message in talk(200).messages)


@pytest.mark.defect("B8")
def test_requests_of_a_loaded_conversation_share_their_messages_and_tools() -> None:
    saved = talk(3)
    back = Conversation.from_json(saved.to_json())
    assert [list(turn.trace) for turn in back] == [list(turn.trace) for turn in saved]
    first, last = back[0].steps[0].request, back[2].steps[0].request
    assert last.messages[1] is first.messages[1]
    assert last.tools[0] is first.tools[0]


@pytest.mark.defect("B8")
@pytest.mark.fault(102)
@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(
            [asking("a", "a"), result("a", "1"), result("a", "2")], id="doubled ids in one answer"
        ),
        pytest.param(
            [asking("a"), result("a", "1"), asking("a"), result("a", "2")],
            id="doubled ids of two answers",
        ),
        pytest.param([asking("", ""), result("", "1"), result("", "2")], id="empty ids"),
        pytest.param(
            [asking("a"), UserMessage(content="And?"), result("a", "1")],
            id="a result behind another message",
        ),
        pytest.param([asking("a", "b"), result("b", "1")], id="a call without a result"),
        pytest.param(
            [result("x", "1"), asking("a"), result("a", "2")], id="a result without a call"
        ),
        pytest.param(
            [asking("call_2"), asking(""), result("", "1")], id="a new id that is taken already"
        ),
    ],
)
def test_messages_that_are_not_a_valid_history_are_repaired(messages: list[ChatMessage]) -> None:
    valid, notes = repaired(messages)
    assert_valid(valid)
    assert notes
    assert repaired(valid) == (valid, ())
    started = Trace([TurnStarted(tuple(messages), "m"), TurnFinished("done")])
    loaded = Conversation.from_json(started.to_json())
    assert loaded.messages == valid
    assert loaded.repairs == notes


@pytest.mark.defect("B8")
@pytest.mark.fault(102)
def test_calls_with_doubled_ids_keep_their_own_results_when_they_are_loaded() -> None:
    def turn(*results: str) -> Trace:
        events: list[Event] = [
            TurnStarted((UserMessage(content="x"),), "m"),
            StepStarted(0, Request((), (), TokenParts()), 0.1),
            StepFinished(0, asking(*["a"] * len(results)), at=0.2),
            *(ToolStarted(0, "a", "math__add", ADD, {}, 0.3) for _ in results),
            *(ToolFinished(0, "a", ADD, "ok", text, at=0.4) for text in results),
            TurnFinished("done", at=0.5),
        ]
        return Trace(events)

    broken = Conversation([Turn(turn("1", "2")), Turn(turn("3"))])
    back = Conversation.from_json(broken.to_json())
    assert_valid(back.messages)
    assert [m.content for m in back.messages if m.role == "tool"] == ["1", "2", "3"]
    assert [[call.result for call in turn.tool_calls] for turn in back] == [["1", "2"], ["3"]]
    assert len(back.repairs) == 1


@pytest.mark.defect("B8")
def test_what_a_later_version_adds_is_kept_and_written_again() -> None:
    document = json.loads(talk(1).to_json())
    document["origin"] = {"host": "elsewhere"}
    turn = document["turns"][0]
    turn["mood"] = "good"
    turn["events"].insert(1, {"event": "MindRead", "thought": "?"})
    turn["events"].append({"event": "Applause", "seconds": 3})
    turn["events"][0]["weather"] = "rain"
    document["messages"][0]["sent_by"] = "Ada"
    back = Conversation.from_json(json.dumps(document))
    assert back.messages[0].content == talk(1).messages[0].content
    assert json.loads(back.to_json()) == document


@pytest.mark.defect("A7")
def test_arguments_that_are_nested_very_deep_can_be_saved_and_loaded() -> None:
    deep: Any = "bottom"
    for _ in range(300):
        deep = {"a": [deep]}
    events: list[Event] = [
        TurnStarted((UserMessage(content="x"),), "m"),
        ToolStarted(0, "a", "math__add", ADD, deep, 0.3),
        TurnFinished("done"),
    ]
    back = Conversation.from_json(Conversation([Turn(Trace(events))]).to_json())
    call = back[0].trace.of(ToolStarted)[0]
    assert isinstance(call.arguments, dict)
    assert call.arguments["a"][0]["a"]


@pytest.mark.defect("B7")
def test_a_file_of_the_first_version_is_read() -> None:
    request = {
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "t"}],
        "tokens": {},
        "left_out": 0,
    }
    events = [
        {"event": "TurnStarted", "messages": [{"role": "user", "content": "hi"}], "model": "m"},
        {"event": "StepStarted", "step": 0, "request": request, "at": 0.1},
        {
            "event": "StepFinished",
            "step": 0,
            "message": {"role": "assistant", "content": "Hello."},
            "at": 0.2,
        },
    ]
    old = {"format": "casual-mcp-nb conversation", "version": 1, "turns": [{"events": events}]}
    turn = Conversation.from_json(json.dumps(old))[0]
    assert turn.messages == [UserMessage(content="hi"), AssistantMessage(content="Hello.")]
    assert turn.steps[0].request.tools == ({"name": "t"},)


def fuzzed() -> dict[str, Any]:
    """A document with a system prompt, calls that share a step, an unknown tool and a search."""
    server: FastMCP[Any] = FastMCP("harbour")
    server.tool(
        lambda ship: f"{ship}: berth 7", name="berth", description="Find the berth of a ship."
    )
    with Session({}, in_process={"harbour": server}, system="Be brief.", quiet=True) as session:
        berths = calls(call("harbour__berth", ship="Fram"), call("harbour__berth", ship="Maud"))
        session.chat("Where are they?", model=scripted_model(berths, "At berth 7."), echo="none")
        session.chat(
            "And now?", model=scripted_model(call("harbour__nothing"), "Still there."), echo="none"
        )
        document: dict[str, Any] = json.loads(session.conversations.current.to_json())
    return document


def check_document(text: str | bytes) -> None:
    """Load a document: it is refused in our own words, or repaired, and then it is valid, can be
    shown, and saved again.
    """
    with contextlib.suppress(UsageError):
        conversation = Conversation.from_json(text)
        assert_valid(conversation.messages)
        assert Conversation.from_json(conversation.to_json()).messages == conversation.messages
        assert str(conversation)
        assert conversation.stats.llm_calls >= 0


@pytest.mark.defect("F16")
def test_a_second_system_message_at_the_front_is_refused_in_our_own_words() -> None:
    document = fuzzed()
    document["messages"].insert(0, {"role": "system", "content": "Be kind."})
    with pytest.raises(UsageError):
        Conversation.from_json(json.dumps(document))


@pytest.mark.defect("F16")
@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_conversation_is_refused_or_repaired(seed: int) -> None:
    document = fuzzed()
    for mutation in mutations(document, seed, 150):
        check_document(json.dumps(mutation))
    for data in broken(json.dumps(document), seed, 25):
        check_document(data)
