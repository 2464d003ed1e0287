"""Every event and every message through every writer and back, with hostile texts, numbers that
JSON lacks, and secrets.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    ImageContent,
    SystemMessage,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from casual_mcp_nb import OpenTelemetry
from casual_mcp_nb.base.content import ContentPart
from casual_mcp_nb.base.limits import encodable
from casual_mcp_nb.base.tokens import TokenParts
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.cassettes.format import Cassette
from casual_mcp_nb.cli.transcript import JsonLines, plain_end
from casual_mcp_nb.conversation import codec
from casual_mcp_nb.conversation.conversation import Conversation, ConversationHead
from casual_mcp_nb.conversation.event import (
    Event,
    Request,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.conversation.messages import (
    ProviderState,
    StatefulAssistantMessage,
    TaskReportMessage,
    ToolOutcomeMessage,
)
from casual_mcp_nb.conversation.store import ConversationStore, SavedTurns
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.notebook.saving import export
from casual_mcp_nb.serve.api import MAX_EVENT, event_as_sse
from casual_mcp_nb.widgets.player import player_page
from tests.display.conftest import PIXEL, Say, turn_events
from tests.display.test_display_events import event_of
from tests.display.test_display_hostile import HOSTILE
from tests.kit.secrets import planted

SECRET = planted("key")
TEXTS = {**HOSTILE, "long": "<long>" * 40_000, "events": "\n\nevent: Answer\ndata: {}\r\n\r\n"}
EVENTS = {kind.__name__: kind for kind in get_args(Event)}
LEFT_OUT = {
    "TurnStarted": {"messages", "price", "began", "recorded", "agent"},
    "ToolFinished": {"result", "large"},
    "TaskStarted": {"task_id"},
    "TaskEnded": {"result"},
    "AppCalled": {"result"},
}
"""The fields of events that followers do not get."""


def messages(say: Say) -> list[Any]:
    """A message of each class, each of its texts passed through `say`."""
    image = ImageContent(source={"type": "base64", "data": "iVBORw0KGgo="}, media_type="image/png")
    calls = [
        AssistantToolCall(
            id=id, function=AssistantToolCallFunction(name="mail__send", arguments=arguments)
        )
        for id, arguments in (("c1", json.dumps({"to": say("a")})), ("c2", say("{not json")))
    ]
    state = ProviderState(
        wire="anthropic", model="m", parts=({"type": "thinking", "text": say("Hm.")},)
    )
    return [
        SystemMessage(content=say("Be kind.")),
        TaskReportMessage(
            content=say("Task 1 is done."),
            handles=("r_0123456789",),
            origins={"r_0123456789": "c1"},
        ),
        UserMessage(content=[TextContent(text=say("Look.")), image]),
        StatefulAssistantMessage(content=say("I send."), tool_calls=calls, kept=state),
        ToolResultMessage(name="mail__send", tool_call_id="c1", content=say("Sent.")),
        ToolOutcomeMessage(
            name="mail__send",
            tool_call_id="c2",
            content=say("Error: no."),
            failed=True,
            images=(image,),
        ),
        AssistantMessage(content=say("Done.")),
    ]


def traces(say: Say) -> Iterator[Trace]:
    """Turns that together have an event of each class and a message of each class."""
    system, told, prompt, asks, *results, answer = messages(say)
    events: list[Event] = [
        TurnStarted((told, prompt), "m", began=1.0),
        StepStarted(0, Request((system, told, prompt), (), TokenParts())),
    ]
    events += [StepFinished(0, asks)]
    for call in asks.tool_calls:
        events += [
            ToolStarted(
                0,
                call.id,
                "mail__send",
                ToolName("mail", "send"),
                {say("to"): math.nan, "n": 10**30},
            )
        ]
        events += [
            ToolProgress(call.id, math.inf, -math.inf),
            ToolFinished(0, call.id, ToolName("mail", "send"), "ok", say("x")),
        ]
    events += [
        StepStarted(1, Request((system, told, prompt, asks, *results), (), TokenParts())),
        StepFinished(1, answer),
    ]
    yield Trace([*events, TurnFinished("done", at=9.0)])
    begin, *between, end = turn_events(say)
    inside = {type(event) for event in (*between, begin, end)}
    others = [event_of(name, say) for name, kind in EVENTS.items() if kind not in inside]
    yield Trace([begin, *between, *others, end])


def conversation(say: Say) -> Conversation:
    return Conversation(map(Turn, traces(say)))


def strict(text: str | bytes) -> Any:
    """Parse JSON as the standard has it."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def line_of(event: Event) -> Any:
    """The line that `chat --json` writes."""
    written, sys.stdout = sys.stdout, io.StringIO()
    try:
        JsonLines(cast("Any", None)).write(event)
        lines = sys.stdout.getvalue().split("\n")
    finally:
        sys.stdout = written
    assert lines[1:] == [""], "it is not one line"
    return strict(lines[0])


def sent(event: Event) -> Any:
    """The server-sent event."""
    data = event_as_sse(event)
    assert len(data) <= MAX_EVENT
    name, value, *rest = data.decode("ascii").split("\n")
    assert (name, rest) == (f"event: {type(event).__name__}", ["", ""])
    return strict(value.removeprefix("data: "))


def test_the_examples_have_every_event_and_every_message() -> None:
    both = list(traces(str))
    assert {type(event) for trace in both for event in trace} == set(get_args(Event))
    assert {type(message) for message in messages(str)} == {
        kind for kinds in codec._kinds().values() for kind in kinds
    }


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_has_one_set_of_fields_for_all_who_follow_a_turn(name: str) -> None:
    event = event_of(name)
    fields = {field.name for field in dataclasses.fields(event)} - LEFT_OUT.get(name, set())
    assert sent(event).keys() - {"version"} == fields
    if name != "TurnFinished":
        assert line_of(event) == {"event": name, **sent(event)}
    else:
        end = plain_end(Turn(Trace([event_of("TurnStarted"), event])))
        assert end.items() >= {"event": name, **sent(event)}.items()


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_followers_get_hostile_texts_as_strict_json_on_one_line(text: str) -> None:
    for trace in traces(lambda said: f"{said} {text}"):
        for event in trace:
            sent(event)
            if isinstance(event, TurnFinished):
                strict(json.dumps(plain_end(Turn(trace))))
            else:
                line_of(event)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_saved_turns_come_back_as_they_were(text: str) -> None:
    before = conversation(lambda said: f"{said} {text}")
    written = before.to_json()
    strict(written)
    back = Conversation.from_json(written)
    assert back.to_json() == written
    assert not back.repairs
    assert [type(message) for message in back[0].messages] == [
        type(message) for message in before[0].messages
    ]
    if encodable(text) == text:
        assert [list(turn.trace) for turn in back[1:]] == [list(turn.trace) for turn in before[1:]]
        assert back.messages == before.messages


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_store_has_the_same_document(tmp_path: Path, text: str) -> None:
    before = conversation(lambda said: f"{said} {text}")
    with ConversationStore.at(tmp_path / "talk.db") as store:
        saved = SavedTurns(store, ConversationHead)
        saved.save(list(before))
        store.flush()
        assert saved.id is not None
        assert (
            store.open(saved.id, SavedTurns(store, ConversationHead)).to_json() == before.to_json()
        )


def texts_of(path: Path) -> Callable[[Conversation], Iterator[str]]:
    """The writers that leave out secrets."""

    def written(talk: Conversation) -> Iterator[str]:
        for suffix in (".json", ".md", ".html", ".ipynb"):
            yield export(talk, path / f"talk{suffix}", secrets=[SECRET]).read_text(encoding="utf-8")
        yield Cassette.from_conversation(talk).to_json([SECRET])
        yield player_page(talk, "Talk", cassette=Cassette.from_conversation(talk), secrets=[SECRET])
        exporter, tracers = InMemorySpanExporter(), TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(exporter))
        listener = OpenTelemetry(tracer_provider=tracers, content=True).listener(
            secrets=lambda: [SECRET]
        )
        for turn in talk:
            for event in turn.trace:
                listener(turn, event)
        yield "\n".join(span.to_json() for span in exporter.get_finished_spans())

    return written


def test_no_writer_shows_a_secret_that_any_event_or_message_has(tmp_path: Path) -> None:
    talk = conversation(lambda said: f"{said} {SECRET}")
    for text in texts_of(tmp_path)(talk):
        assert len(text) > 1_000
        assert SECRET not in text
        assert SECRET[4:-4] not in text


def test_a_cassette_and_a_player_hold_any_text() -> None:
    for text in TEXTS.values():
        talk = conversation(lambda said, more=text: f"{said} {more}")  # type: ignore[misc]
        cassette = Cassette.from_conversation(talk)
        written = cassette.to_json()
        strict(written)
        assert Cassette.from_json(written).to_json() == written
    page = player_page(talk, "Talk")
    assert len(re.findall(r"</script>", page)) == 2


def test_what_a_cassette_has_of_a_message_is_what_a_model_reads_of_it() -> None:
    talk = conversation(str)
    (request,) = [
        each.request
        for each in Cassette.from_conversation(talk[:1]).interactions
        if each.kind == "model"
    ][1:]
    assert [message["role"] for message in request["messages"]] == [
        "system",
        "user",
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert PIXEL.hex() not in json.dumps(request)


def test_text_deltas_are_sent_as_they_came() -> None:
    assert sent(TextDelta(2, "It rains", 0.5)) == {"step": 2, "text": "It rains", "at": 0.5}


def test_bytes_are_read_in_both_alphabets_of_base64() -> None:
    part = ContentPart("image", data=b"\xff\x00?>")
    for data in ("/wA/Pg==", "_wA_Pg=="):
        assert codec.load_value(ContentPart, {"kind": "image", "data": data}) == part
    assert codec.load_value(ContentPart, codec.dump_value(part)) == part
    with pytest.raises(ValueError, match="data"):
        codec.load_value(ContentPart, {"kind": "image", "data": "!!!"})


def test_the_guide_names_events_and_fields_that_there_are() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/command-line.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`[A-Z]\w+`(?:, )?)+) \| (.+) \|$", guide, re.MULTILINE)
    named = {
        name: re.findall(r"`(\w+)`", fields)
        for names, fields in rows
        for name in re.findall(r"\w+", names)
    }
    in_a_notebook = {"TextEdited", "RequestEdited", "AppCalled"}
    assert named.keys() == EVENTS.keys() - in_a_notebook, (
        "in a terminal nobody edits what a model reads, or uses an app"
    )
    for name in ("StepStarted", "ToolFinished", "ToolStarted", "ToolProgress", "ModelRetry"):
        first = named[name][0]
        assert first in sent(event_of(name))
    end = plain_end(Turn(Trace([event_of("TurnStarted"), event_of("TurnFinished")])))
    assert {"kind", "answer", "seconds", "stats"} <= end.keys() & set(named["TurnFinished"])
