"""However much there is to show, an output stays small and names its omissions."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    UserMessage,
)

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.status import Manifest, ModelRow, Models, Servers, ServerStatus, Tools
from casual_mcp_nb.base.tokens import TokenParts, TokenUsage
from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import (
    Event,
    Request,
    SearchRow,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolsSearched,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.display.render import to_html, to_markdown, to_text
from casual_mcp_nb.display.view import (
    DisplayLimits,
    KeyValues,
    Section,
    Table,
    View,
    columns,
    fit,
)
from casual_mcp_nb.views import MAX_BYTES, live_bundle, mimebundle

MEGABYTE = 1_000_000
ADD = ToolName("math", "add")


def size(value: Any) -> int:
    bundle = mimebundle(value)
    assert "cmn-bare" not in bundle["text/html"], "it was shown as its repr"
    return max(len(form.encode()) for form in bundle.values())


def turn_html(turn: Turn) -> str:
    return live_bundle(turn, "output")["text/html"]


def many_tools(count: int, servers: int) -> Tools:
    description = "Does one thing & does it well. " * 5
    specs = [
        ToolSpec(f"server{i % servers}", f"tool_{i}", description, {"properties": {"a": {}}})
        for i in range(count)
    ]
    return Tools(Catalog(specs), {})


def long_turn(steps: int, calls: int = 1, text: str = "A result. ") -> Turn:
    events: list[Event] = [TurnStarted((UserMessage(content=text),), "m", None, True, 4, 12, 1_890)]
    for index in range(steps):
        ids = [f"{index}-{number}" for number in range(calls)]
        requested = [
            AssistantToolCall(
                id=i, function=AssistantToolCallFunction(name="math__add", arguments="{}")
            )
            for i in ids
        ]
        message = AssistantMessage(content="I go on.", tool_calls=requested)
        events.append(StepStarted(index, Request((), (), TokenParts(10, 20, 30, 40)), float(index)))
        events.append(StepFinished(index, message, TokenUsage(100, 10), None, index + 0.1))
        for call_id in ids:
            events.append(ToolStarted(index, call_id, "math__add", ADD, {"a": text}, index + 0.2))
            events.append(
                ToolFinished(
                    index, call_id, ADD, "error" if index % 2 else "ok", text, None, index + 0.3
                )
            )
    return Turn(Trace(events))


@pytest.mark.fault(90)
@pytest.mark.timeout(30)
@pytest.mark.parametrize("servers", [1, 20, 5_000])
def test_ten_thousand_tools_are_a_small_output_in_seconds(servers: int) -> None:
    tools = many_tools(10_000, servers)
    assert size(tools) <= MAX_BYTES


@pytest.mark.fault(90)
def test_tools_beyond_the_limit_are_counted() -> None:
    bundle = mimebundle(many_tools(10_000, 1))
    for form in bundle.values():
        assert "9,950 more" in form
        assert "10,000 tools of 1 server" in form


@pytest.mark.fault(90)
@pytest.mark.timeout(30)
def test_a_megabyte_in_every_text_of_a_noun_is_cut_with_its_size_stated(
    make: Any, parse: Any, kind: str
) -> None:
    value = make(kind, lambda said: said + "<&\"'" * (MEGABYTE // 4))
    bundle = mimebundle(value)
    assert max(len(form.encode()) for form in bundle.values()) <= MAX_BYTES
    assert "characters in all" in bundle["text/plain"]
    assert "cmn-bare" not in bundle["text/html"]
    parse(bundle["text/html"])


@pytest.mark.fault(90)
@pytest.mark.parametrize(("steps", "calls"), [(50, 1), (50, 10), (500, 1), (2, 1_000)])
def test_a_long_turn_is_a_small_output_that_counts_omissions(
    parse: Any, steps: int, calls: int
) -> None:
    turn = long_turn(steps, calls, 'A "result" & more. ' * 30)
    assert size(turn) <= MAX_BYTES
    html = turn_html(turn)
    assert len(html.encode()) <= MAX_BYTES
    assert f'data-step="{steps}"' in html
    assert " more" in parse(html).text


@pytest.mark.fault(90)
def test_a_search_that_found_thousands_of_tools_is_a_small_output() -> None:
    rows = tuple(SearchRow(ToolName("server", f"tool_{i}"), 1.0, True) for i in range(10_000))
    search = ToolName("_synthetic", "search_tools")
    events = list(long_turn(1).trace)
    events += [
        ToolStarted(0, "s", "search_tools", search, {}),
        ToolsSearched(0, "s", "all", rows, 10_000),
    ]
    turn = Turn(Trace(events))
    assert size(turn) <= MAX_BYTES
    assert "9,950 more" in turn_html(turn)


@pytest.mark.fault(90)
def test_images_beyond_the_limit_are_only_named(parse: Any) -> None:
    parts = tuple(ContentPart("image", mime_type="image/png", data=b"x" * 10_000) for _ in range(5))
    events = list(long_turn(1).trace)
    events += [
        ToolStarted(0, "i", "math__plot", ADD, {}),
        ToolFinished(0, "i", ADD, "ok", "Five images.", ToolResult(parts)),
    ]
    turn = Turn(Trace(events))
    assert size(turn) <= MAX_BYTES
    assert parse(turn_html(turn)).tags.count("img") == 2


@pytest.mark.fault(90)
def test_five_thousand_servers_are_a_small_output() -> None:
    statuses = {
        f"s{i}": ServerStatus(f"s{i}", "failed", "It ended. " * 20, "Traceback\n" * 20)
        for i in range(5_000)
    }
    servers = Servers(statuses, {})
    assert size(servers) <= MAX_BYTES
    assert "more with an error" in mimebundle(servers)["text/plain"]


def test_a_manifest_of_usual_size_is_shown_whole() -> None:
    text = "\n".join(f"- server{i} (3 tools): a, b, c\n  What it does." for i in range(100))
    for form in mimebundle(Manifest(text, 300, 9_000)).values():
        assert "server99" in form
        assert "characters in all" not in form


def test_a_text_of_many_lines_is_cut_by_lines() -> None:
    tool = ToolSpec("s", "t", "\n" * 1_900)
    assert mimebundle(tool)["text/plain"].count("\n") < 200


def short_turn(number: int) -> Turn:
    text = f"Question {number:04}"
    turn = long_turn(2, text=text)
    turn.trace.append(TurnFinished("done", None, 3.0))
    return turn


GROWING: dict[str, Callable[[int], Any]] = {
    "conversation": lambda count: Conversation([short_turn(number) for number in range(count)]),
    "turn": lambda count: long_turn(count),
    "stats": lambda count: Conversation([short_turn(number) for number in range(count)]).stats,
    "tools": lambda count: many_tools(count, 3),
    "servers": lambda count: Servers(
        {f"s{number:04}": ServerStatus(f"s{number:04}", "ready") for number in range(count)}, {}
    ),
    "models": lambda count: Models(
        tuple(ModelRow(f"m{number:04}", "c", "openai", "gpt", "set") for number in range(count))
    ),
    "manifest": lambda count: Manifest(
        "\n".join(f"- s{number:04} (1 tool): a" for number in range(count)), count
    ),
    "search": lambda count: turn_with_hits(count),
}


def turn_with_hits(count: int) -> Turn:
    rows = tuple(
        SearchRow(ToolName("math", f"tool_{number:04}"), 1.0, True) for number in range(count)
    )
    events = [*long_turn(1).trace]
    call = next(event for event in events if isinstance(event, ToolStarted))
    return Turn(Trace([*events, ToolsSearched(0, call.call_id, "sum", rows, count, 1.0)]))


@pytest.mark.defect("F13")
@pytest.mark.parametrize("kind", GROWING)
def test_growing_content_never_shortens_the_text_or_markdown(kind: str) -> None:
    for form in ("text/plain", "text/markdown"):
        sizes = [
            len(mimebundle(GROWING[kind](count), {form})[form].encode())
            for count in (1, 4, 10, 25, 50)
        ]
        assert sizes == sorted(sizes), form
        assert sizes[-1] < MAX_BYTES, "the limit would be what makes it shorter"


@pytest.mark.defect("F13")
def test_each_form_is_drawn_only_when_it_is_wanted(make: Any, kind: str) -> None:
    value = make(kind)
    draws = {"str": to_text, "_repr_markdown_": to_markdown, "_repr_html_": to_html}
    files = {draw.__code__: name for name, draw in draws.items()}
    for name in draws:
        drawn: Counter[str] = Counter()

        def count(frame: FrameType, event: str, _: Any, drawn: Counter[str] = drawn) -> None:
            if event == "call" and frame.f_code in files:
                drawn[files[frame.f_code]] += 1

        sys.setprofile(count)
        try:
            str(value) if name == "str" else getattr(value, name)()
        finally:
            sys.setprofile(None)
        # The manifest and the system prompt are a text themselves.
        assert drawn.keys() <= {name}
        assert drawn.total() <= 1
    assert mimebundle(value, exclude={"text/html"}).keys() == {"text/plain", "text/markdown"}


def test_rows_and_texts_in_lists_are_cleaned_and_cut_like_those_in_tuples() -> None:
    text: Any = "\x1b[2J" + "long " * 10_000
    rows: Any = ([text], (text,))
    facts: Any = [(text, text)]
    section = Section("Rows", (Table(columns("Text"), rows), KeyValues(facts)))
    view = fit(View("view", "", (section,)), DisplayLimits())
    assert "\x1b" not in to_text(view)
    assert len(to_text(view)) < 10_000
