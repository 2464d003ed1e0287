"""A conversation as JSON: everything in it is restored, and other files are refused with a
sentence.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, get_args

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    SystemMessage,
    UserMessage,
)

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.prices import Price
from casual_mcp_nb.base.tokens import CacheMiss, TokenParts, TokenUsage
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import (
    AppCalled,
    ApprovalAnswered,
    ApprovalAsked,
    ContextTrimmed,
    Event,
    ModelRetry,
    ModelWait,
    Notice,
    PrefixChanged,
    QuestionAnswered,
    QuestionAsked,
    Request,
    RequestEdited,
    SearchRow,
    ServerLog,
    SkillRead,
    StepFinished,
    StepStarted,
    TaskChanged,
    TaskEnded,
    TaskReported,
    TaskStarted,
    TextDelta,
    TextEdited,
    ToolFinished,
    ToolProgress,
    ToolsSearched,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.errors import UsageError

ADD = ToolName("math", "add")
ASKING = AssistantMessage(
    content="I add.",
    tool_calls=[
        AssistantToolCall(
            id="a", function=AssistantToolCallFunction(name="math__add", arguments="{}")
        )
    ],
)
PRICE = Price(input=2, output=8)
EVENTS: list[Event] = [
    TurnStarted(
        (UserMessage(content="Add <1> & 2, naïve 😀"),),
        "m",
        "numbers",
        True,
        1,
        2,
        300,
        0.0,
        "openai",
        PRICE,
    ),
    ContextTrimmed(0, 4, 2, 8192, 0.05),
    TextEdited(0, None, "Add 1 & 2", "Add <1> & 2", 0.0),
    RequestEdited(0, "Be brief.", (ADD,), (ADD,), 0.01),
    QuestionAsked("question-1", "step", None, 0.02),
    QuestionAnswered("question-1", 0.03),
    PrefixChanged(0, "found", 12, 300, ("math__add",), 0.08),
    StepStarted(
        0,
        Request(
            (SystemMessage(content="Be kind."), UserMessage(content="x")),
            ({"name": "a"},),
            TokenParts(1, 2, 3, 4, 5),
            reused=5,
        ),
        0.1,
    ),
    ModelRetry(0, 1, 0.5, "the request failed (status 503)", 0.15),
    ModelWait(0, 3.0, "the limit of client 'desk': 5 requests a minute", 0.16),
    TextDelta(0, "I ", 0.2),
    StepFinished(
        0,
        ASKING,
        TokenUsage(10, 2, 3, None, "reported", 4, CacheMiss("tools_changed", 5)),
        "tool_calls",
        0.3,
    ),
    ToolStarted(0, "a", "math__add", ADD, {"a": 1, "b": [None, {"c": 2.5}]}, 0.4),
    ToolStarted(0, "b", "math__add", ADD, "{not json", 0.4),
    ApprovalAsked("a", 0.41),
    ApprovalAnswered("a", 0.44),
    ToolProgress("a", 0.5, None, "half", 0.45),
    ToolsSearched(0, "s", "sum", (SearchRow(ADD, 1.5, True), SearchRow(ADD, None, False)), 3, 0.5),
    ServerLog("math", "info", "hello", 0.5),
    TaskStarted(0, "a", 1, ADD, "task-1", 1_700_000_000.0, 0.42),
    TaskChanged("a", 1, "input_required", "half", True, 0.43),
    TaskEnded(
        "a",
        1,
        "completed",
        "3",
        ToolResult((ContentPart("text", "3"),), {"result": 3}),
        1_700_000_001.0,
        False,
        0.5,
    ),
    TaskReported(1, 1, "[Task 1]", "a", 0.5),
    AppCalled(
        "a",
        ADD,
        {"a": 1},
        "ok",
        "1",
        ToolResult((ContentPart("text", "1"),), {"result": 1}),
        1_700_000_000.0,
        0.1,
        at=0.5,
    ),
    SkillRead(0, "a", ADD, "SKILL.md", 120, "ab" * 32, False, 0.55),
    ToolFinished(
        0,
        "a",
        ADD,
        "ok",
        "3",
        ToolResult(
            (ContentPart("image", mime_type="image/png", data=b"\xff\x00?>"),), {"result": 3}
        ),
        0.6,
    ),
    Notice("Something.", "math", 0.7),
    TurnFinished("failed", "It broke.", 0.8),
]


def test_every_kind_of_event_comes_back_as_it_was() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))
    assert list(Trace.from_json(Trace(EVENTS).to_json())) == EVENTS


def test_a_conversation_that_was_saved_before_approvals_were_events_is_read() -> None:
    events = [event for event in EVENTS if not isinstance(event, ApprovalAsked | ApprovalAnswered)]
    call, _ = Turn(Trace.from_json(Trace(events).to_json())).tool_calls
    assert call.seconds == pytest.approx(0.2)
    assert call.waited == 0.0


def test_a_conversation_comes_back_with_its_turns(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    path.write_text(
        Conversation([Turn(Trace(EVENTS)), Turn(Trace(EVENTS[:1]))]).to_json(), encoding="utf-8"
    )
    back = Conversation.load(path)
    ended, running = back
    assert list(ended.trace) == EVENTS
    assert list(running.trace)[:-1] == EVENTS[:1]
    assert running.status == "stopped"
    assert back[0].status == "failed"
    assert back.messages[0].content == "Add 1 & 2"
    assert back.stats.llm_calls == 1
    assert len(back[:1]) == 1


@pytest.mark.parametrize("indent", [None, 2])
def test_a_file_that_another_program_has_written_again_is_read(
    tmp_path: Path, indent: int | None
) -> None:
    document = json.loads(Conversation([Turn(Trace(EVENTS))]).to_json())
    fields = dict(reversed(document.items()))
    path = tmp_path / "conversation.json"
    path.write_text(json.dumps(fields, indent=indent), encoding="utf-8")
    assert len(Conversation.load(path)) == 1


def test_what_json_cannot_hold_becomes_text_and_the_file_is_strict_json() -> None:
    events: list[Event] = [EVENTS[0], ToolProgress("a", math.inf), Notice("half \ud83d only")]
    text = Trace(events).to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    text.encode()
    _, progress, notice = Trace.from_json(text)
    assert isinstance(progress, ToolProgress)
    assert progress.progress == math.inf
    assert notice == Notice("half ? only")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 3}, "version '3'.*update"),
        ({"version": None}, "version 'None'"),
        ({"format": "other"}, "not a saved conversation"),
        ({"turns": [{"events": [{"event": "Exploded"}]}]}, "damaged"),
        ({"turns": [{"events": [{"event": "Notice"}]}]}, "damaged"),
        ({"turns": [{"events": []}]}, "damaged"),
        ({"turns": [3]}, "damaged"),
        ({"turns": None}, "damaged"),
    ],
)
def test_another_version_and_damage_are_told_in_words(change: dict[str, Any], words: str) -> None:
    document = json.loads(Trace(EVENTS).to_json())
    with pytest.raises(UsageError, match=words):
        Conversation.from_json(json.dumps(document | change))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", b"\xff", "[" * 100_000])
def test_what_is_no_saved_conversation_is_refused(text: str | bytes) -> None:
    with pytest.raises(UsageError):
        Conversation.from_json(text)


def test_a_missing_file_is_told_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.json"):
        Conversation.load(tmp_path / "gone.json")


def test_a_trace_is_one_turn() -> None:
    with pytest.raises(UsageError, match="2 turns"):
        Trace.from_json(Conversation([Turn(Trace(EVENTS)), Turn(Trace(EVENTS))]).to_json())
