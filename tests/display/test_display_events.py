"""Every event in all forms: short, readable, bounded, and whatever was sent in it stays text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
from markdown_it import MarkdownIt

from casual_mcp_nb import Session
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.event import (
    AppCalled,
    ApprovalAnswered,
    ApprovalAsked,
    ContextTrimmed,
    Event,
    ModelRetry,
    ModelWait,
    PrefixChanged,
    QuestionAnswered,
    QuestionAsked,
    RequestEdited,
    SearchRow,
    SkillRead,
    TaskChanged,
    TaskEnded,
    TaskReported,
    TaskStarted,
    TextEdited,
    ToolsSearched,
)
from casual_mcp_nb.views import MAX_BYTES, mimebundle
from tests.display.conftest import turn_events
from tests.display.test_display_hostile import HOSTILE, all_tokens

pytestmark = pytest.mark.defect("H10")

Say = Callable[[str], str]
EVENTS = {kind.__name__: kind for kind in get_args(Event)}


def event_of(name: str, say: Say = str) -> Event:
    """Make an event of a class, each of its texts passed through `say`."""
    tool = ToolName(say("mail"), say("send"))
    events: list[Event] = [
        *turn_events(say),
        TextEdited(0, None, say("new"), say("old")),
        RequestEdited(0, say("Be brief."), (tool,), (tool,)),
        ContextTrimmed(0, 4, 2, 8_192),
        PrefixChanged(1, "found", 900, 100, (say("mail__send"),)),
        ModelRetry(0, 1, 2.0, say("It is overloaded.")),
        ModelWait(0, 1.5, say("a limit of 60 requests a minute")),
        SkillRead(0, "a", tool, say("SKILL.md"), 120, say("sha256:0")),
        ApprovalAsked(say("call_1")),
        ApprovalAnswered(say("call_1")),
        QuestionAsked(say("q1"), "form", say("mail")),
        QuestionAnswered(say("q1")),
        TaskStarted(0, say("call_1"), 3, tool, say("task-id"), 1.0),
        TaskChanged(say("call_1"), 3, "working", say("half")),
        TaskEnded(say("call_1"), 3, "completed", say("Done.")),
        TaskReported(1, 3, say("Task 3 is done."), say("call_1")),
        AppCalled(say("call_1"), tool, {say("to"): say("Ada")}, "ok", say("Sent.")),
    ]
    return next(event for event in events if type(event).__name__ == name)


def drawn(event: Event) -> dict[str, str]:
    bundle = mimebundle(event)
    assert 'class="cmn cmn-bare' not in bundle["text/html"], "it was shown as its repr"
    return bundle


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_has_all_forms_and_prints_as_its_text(name: str) -> None:
    event = event_of(name)
    bundle = drawn(event)
    assert list(bundle) == ["text/plain", "text/markdown", "text/html"]
    assert str(event) == bundle["text/plain"]
    assert str(event) != repr(event)
    assert len(str(event)) < 600
    assert event._repr_html_() == bundle["text/html"]


@pytest.mark.parametrize("name", EVENTS)
def test_hostile_text_in_an_event_stays_text(name: str, parse: Any) -> None:
    for hostile in HOSTILE.values():
        bundle = drawn(event_of(name, lambda said, more=hostile: f"{said} {more}"))  # type: ignore[misc]
        assert "script" not in parse(bundle["text/html"]).tags
        assert "\x1b" not in "".join(bundle.values())
    text = drawn(event_of(name, lambda said: f"{said} {HOSTILE['links']} {HOSTILE['script']}"))[
        "text/markdown"
    ]
    tokens = [token.type for token in all_tokens(MarkdownIt("commonmark").parse(text))]
    assert not [kind for kind in tokens if kind.startswith(("link", "image", "html"))]


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_of_any_size_is_bounded_in_each_form(name: str) -> None:
    for form in drawn(event_of(name, lambda said: f"{said} {'<long>' * 40_000}")).values():
        assert len(form.encode()) <= MAX_BYTES


def test_a_search_of_a_turn_prints_its_query_and_its_hits() -> None:
    with Session.demo() as session:
        turn = session.chat("How many kilometres are 26.2 miles?")
    lines = str(turn.searches[0]).splitlines()
    assert "convert" in lines[1]
    assert [line for line in lines if line.strip().startswith("units:convert_units")]
    assert len("\n".join(lines)) < 600


def test_a_search_with_many_hits_shows_some_and_says_how_many_more() -> None:
    rows = tuple(
        SearchRow(ToolName("shop", f"tool_{number}"), 1.0, newly_loaded=True)
        for number in range(5_000)
    )
    text = str(ToolsSearched(0, "1", "sell", rows, 5_010))
    assert "more" in text
    assert len(text) < 10_000
