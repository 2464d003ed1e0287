"""Requests to the model, the new part of each, and the usage of a conversation."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from casual_llm.messages import AssistantMessage, UserMessage

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.tokens import CacheMiss, TokenParts, TokenUsage
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    PrefixChanged,
    Request,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolProgress,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.conversation.step import Step, ToolCall
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.conversation.view_calls import call_spans
from casual_mcp_nb.views import MAX_BYTES, document, live_bundle, mimebundle, turn_bundle


def plain(value: Any) -> str:
    return mimebundle(value)["text/plain"]


def call(structured: Any = None, *content: ContentPart) -> ToolCall:
    original = ToolResult(content, structured)
    return ToolCall("1", "shop__list", ToolName("shop", "list"), {}, "ok", "text", original)


def test_a_request_shows_its_messages_tools_and_breakdown(make: Any) -> None:
    text = plain(make("request"))
    assert "2 messages, 1 tool, ≈ 205 tokens" in text
    assert re.search(r"Tool definitions +≈ 110 +54%", text)
    assert "1. system · ≈ 4 tokens" in text
    assert "You are kind." in text
    assert re.search(r"weather__get_forecast +≈ \d+ +The weather forecast", text)
    assert '"parameters": {' in text


def test_a_line_marks_the_end_of_the_part_repeated_from_the_previous_request() -> None:
    messages = tuple(UserMessage(content=f"Message {number}.") for number in range(1, 4))
    tools = tuple(
        {"name": name, "description": "", "parameters": {}} for name in ("alpha", "beta", "gamma")
    )
    whole = Request(
        messages,
        tools,
        TokenParts(tools=30, history=30),
        reused=50,
        reused_tools=3,
        reused_messages=2,
    )
    broken = dataclasses.replace(whole, reused=20, reused_tools=2, reused_messages=0)
    for request, before, after in ((whole, "Message 2.", "Message 3."), (broken, "beta", "gamma")):
        for form, text in mimebundle(request).items():
            if form != "text/html":
                text = text.partition("Definitions")[0]
            assert text.count("Reused up to here") == 1
            position = text.index("Reused up to here")
            assert text.rindex(before, 0, position) < position < text.index(after, position)
    first = dataclasses.replace(whole, reused=None, reused_tools=0, reused_messages=0)
    assert "Reused" not in plain(first)
    long = dataclasses.replace(whole, messages=messages * 100, reused_messages=200)
    assert plain(long).count("Reused up to here") == 1


def test_a_step_shows_its_cache_reuse_its_break_and_the_providers_reason() -> None:
    question = UserMessage(content="x")
    usage = TokenUsage(100, 5, 0, cache_miss=CacheMiss("tools_changed", 80))
    events: list[Event] = [
        TurnStarted((question,), "m"),
        PrefixChanged(0, "found", 20, 60, ("shop__<b>list</b>",)),
        StepStarted(0, Request((question,), (), TokenParts(history=50), reused=20)),
        StepFinished(0, AssistantMessage(content="y"), usage),
        TurnFinished("done"),
    ]
    turn = Turn(Trace(events))
    # What is estimated is scaled to what the provider counted.
    assert (turn.steps[0].request.reused, turn.stats.steps[0].reused, turn.stats.reused_tokens) == (
        40,
        40,
        40,
    )
    assert "a search added shop:" in plain(turn)
    assert "<b>" not in mimebundle(turn)["text/html"]
    for value in (turn, turn.steps[0], turn.stats):
        assert "tools_changed" in plain(value)
    assert "≈ 40 tokens (40% of the input)" in plain(turn.stats)


@pytest.mark.fault(90)
def test_a_request_of_five_thousand_messages_is_small_and_counts_omissions() -> None:
    messages = tuple(UserMessage(content=f"Message {number}. " * 20) for number in range(5_000))
    bundle = mimebundle(Request(messages, (), TokenParts(1, 2, 3, 4, 5)))
    assert max(len(form.encode()) for form in bundle.values()) <= MAX_BYTES
    for form in bundle.values():
        assert "messages more" in form
    assert "1. user" in bundle["text/plain"]
    assert "5000. user" in bundle["text/plain"]


def test_a_diff_shows_messages_tools_and_tokens_before_and_after(make: Any) -> None:
    text = plain(make("diff"))
    assert re.search(r"\bStep 2: .* \+130 tokens", text)
    assert "+ weather__get_forecast" in text
    assert "- mail__send" in text
    assert re.search(r"Tool definitions +≈ 110 +≈ 200 +\+90", text)
    assert "2. user" in text


def test_the_diff_of_the_first_step_is_all_that_was_sent(make: Any) -> None:
    text = plain(make("turn").steps[0].diff())
    assert "first request" in text
    assert "+ weather__get_forecast" in text


def test_a_step_shows_its_usage_answer_and_calls(make: Any) -> None:
    text = plain(make("turn").steps[0])
    assert re.search(r"Input +210 tokens", text)
    assert re.search(r"Ending +stopped to call tools", text)
    assert "I look for" in text
    assert "search_tools · ✓ ok" in text
    assert "The whole request" in text
    assert "Output" not in plain(Step(0, make("request")))


def test_a_conversation_shows_each_turn_answer_first_and_the_sum(make: Any) -> None:
    text = plain(make("conversation"))
    assert "Conversation · 2 turns" in text
    assert re.search(
        r"Turn 1\n +Prompt\n +│ What is the weather\n +│ in Oslo\?\n +✗ .*\n +│ It rains in Oslo\.",
        text,
    )
    assert "≈ 2,000 tokens" in text
    assert "No turns yet." in plain(Conversation())


def test_the_bars_of_a_request_add_up_to_its_share_of_the_largest(make: Any, parse: Any) -> None:
    html = mimebundle(make("turn stats"))["text/html"]
    rows = re.findall(r'<div class="cmn-bar" style="height:6px">(.*?)</td>', html)
    widths = [sum(map(int, re.findall(r"border-left:([0-9]+)px", row))) for row in rows]
    assert widths[1] < widths[2] < widths[3]
    assert abs(widths[3] - 160) <= 3
    parse(html)


def test_a_document_holds_every_turn_with_every_request(make: Any, parse: Any) -> None:
    html = document(make("conversation"), "html", "A <title>")
    assert html.count("<strong>Request</strong>") == 1
    assert html.count("<strong>New in the request</strong>") == 5
    assert html.count("<strong>Definitions</strong>") == 1
    assert "default-src 'none'" in html
    parse(html.removeprefix("<!DOCTYPE html>"))
    markdown = document(make("conversation"), "markdown", "")
    assert "Turn 2" in markdown
    assert markdown.count("<strong>New in the request</strong>") == 5
    assert "**Messages added**" in markdown, "a file has everything"


def test_a_turn_is_shown_with_as_much_as_is_asked_for(make: Any) -> None:
    turn = make("turn")
    answer, usual, everything = (
        turn_bundle(turn, detail)["text/html"] for detail in ("text", "output", "all")
    )  # type: ignore[arg-type]
    assert "Take an umbrella." in answer
    assert "get_forecast" not in answer
    assert "cut short" in answer
    assert usual.count("New in the request") == 2
    assert everything.count("New in the request") == 2
    assert len(re.findall("<details[^>]* open>", everything)) == everything.count("<details")
    assert "cache miss" in everything


def test_an_answer_that_has_not_begun_is_shown_as_running(make: Any) -> None:
    assert "Running weather:get_forecast" in turn_bundle(make("running turn"), "text")["text/plain"]
    assert "not started" in turn_bundle(Turn(Trace()), "text")["text/plain"]


def test_a_running_call_shows_how_long_it_has_been_running(make: Any) -> None:
    bundle = live_bundle(make("running turn"), "output", 4.9)
    assert re.search(r"Elapsed</th><td[^>]*>3\.5 s", bundle["text/html"])
    assert bundle["text/plain"].startswith("▸ running · 2 steps")
    assert bundle["text/plain"].endswith("4.9 s")
    assert "\n" not in bundle["text/plain"]


def test_a_call_waiting_for_approval_is_marked_and_the_wait_is_not_counted(make: Any) -> None:
    events: list[Event] = [
        event for event in make("running turn").trace if not isinstance(event, ToolProgress)
    ]
    events.append(ApprovalAsked("b", 1.5))
    waiting = live_bundle(Turn(Trace(events)), "output", 30.0)["text/html"]
    assert "… waiting for you" in waiting
    assert "to allow weather:get_forecast" in waiting
    assert "Elapsed" not in waiting
    assert "▸ running" not in waiting, "nothing runs while it waits"
    events.append(ApprovalAnswered("b", 30.9))
    running = live_bundle(Turn(Trace(events)), "output", 31.8)["text/html"]
    assert "waiting for you" not in running
    assert re.search(r"Elapsed</th><td[^>]*>1\.0 s", running)
    events.append(
        ToolFinished(1, "b", ToolName("weather", "get_forecast"), "ok", "Rain.", None, 31.9)
    )
    ended = Turn(Trace(events)).tool_calls[-1]
    assert (ended.seconds, ended.waited) == pytest.approx((1.1, 29.4))


def test_a_call_that_is_stopped_while_it_waits_for_approval_took_the_time_before(make: Any) -> None:
    stopped = ToolFinished(
        1, "b", ToolName("weather", "get_forecast"), "stopped", "Error: stopped.", None, 9.5
    )
    turn = Turn(
        Trace(
            [
                *make("running turn").trace,
                ApprovalAsked("b", 1.5),
                stopped,
                TurnFinished("stopped", None, 9.5),
            ]
        )
    )
    assert (turn.tool_calls[-1].seconds, turn.tool_calls[-1].waited) == pytest.approx((0.1, 8.0))
    assert "waiting for you" not in plain(turn)


def test_progress_without_a_clock_is_as_old_as_the_last_event(make: Any) -> None:
    turn = Turn(Trace([*make("running turn").trace, ToolProgress("b", 5, 10, None, 2.4)]))
    assert re.search(r"Elapsed +1\.0 s", plain(turn))


@pytest.mark.parametrize(
    "structured",
    [
        {"result": [{"item": "tea", "price": 3}, {"item": "milk", "stock": None}]},
        [{"item": "tea", "price": 3}, {"item": "milk", "stock": None}],
        {"rows": [{"item": "tea", "price": 3}, {"item": "milk", "stock": None}], "count": 2},
    ],
)
def test_a_list_of_objects_is_a_table(structured: Any) -> None:
    text = plain(call(structured))
    assert re.search(r"item +price +stock", text)
    assert re.search(r"tea +3\n", text)
    assert re.search(r"milk +null", text)


def test_a_flat_object_is_its_fields() -> None:
    assert re.search(r"item +tea\n +price +3", plain(call({"item": "tea", "price": 3})))


@pytest.mark.parametrize(
    "structured",
    [None, 3, "text", {"result": 3}, [], [1, 2], {"a": {"b": 1}, "c": 2}, [{"a": []}], [{}]],
)
def test_other_structured_results_stay_the_text_that_they_are(structured: Any) -> None:
    assert "As " not in plain(call(structured))


def test_the_line_of_a_call_has_the_summary_of_its_result() -> None:
    found = call({"total": 12, "cut": False, "rows": [], "summary": "12 rows."})
    assert "".join(span.text for span in call_spans(found)).endswith("→ 12 rows.")


def test_the_line_of_a_call_has_the_sentence_that_the_tool_gave_beside_an_object() -> None:
    issues = {"issues": {"first": 1}, "total": 3}
    said = call(issues, ContentPart("text", "There are 3 open issues."))
    assert call_spans(said)[-1].text == "→ There are 3 open issues."
    assert (
        call_spans(call(issues, ContentPart("text", '{"issues": {"first": 1}, "total": 3}')))[
            -1
        ].text
        == "→ 3"
    )


@pytest.mark.fault(90)
def test_a_large_table_is_cut_with_a_note() -> None:
    rows = [{f"column {number}": "x" * 500 for number in range(30)} for _ in range(5_000)]
    bundle = mimebundle(call(rows))
    assert max(len(form.encode()) for form in bundle.values()) <= MAX_BYTES
    assert "cmn-bare" not in bundle["text/html"]
    assert re.search(r"4,9\d\d more", bundle["text/plain"])


def test_audio_resources_and_links_are_notes_in_words(parse: Any) -> None:
    shown = call(
        None,
        ContentPart("audio", mime_type="audio/wav", data=b"1" * 2_048),
        ContentPart("resource", "A text", "text/plain", uri="file:///a.txt"),
        ContentPart("link", "Docs", None, uri="https://docs.example/a"),
    )
    text = plain(shown)
    assert "audio/wav, 2,048 bytes, from shop:list" in text
    assert "resource, text/plain, 6 characters, file:///a.txt" in text
    assert 'link, Docs, session.resources.read("https://docs.example/a", server="shop")' in text
    assert "a" not in parse(mimebundle(shown)["text/html"]).tags


def test_an_image_is_bounded(parse: Any) -> None:
    images = [
        ContentPart("image", mime_type="image/png", data=b"1" * size) for size in (1_000, 100_000)
    ]
    assert parse(mimebundle(call(None, *images))["text/html"]).tags.count("img") == 1


def test_the_answer_is_drawn_as_markdown_and_stays_text_in_the_other_forms(make: Any) -> None:
    started = TurnStarted((UserMessage(content="Hi"),), "m")
    answer = StepFinished(0, AssistantMessage(content="**Rain** in [Oslo](https://e.ex)"))
    bundle = mimebundle(Turn(Trace([started, StepStarted(0, make("request")), answer])))
    assert "<strong>Rain</strong> in [Oslo](https://e.ex)" in bundle["text/html"]
    assert "│ **Rain** in" in bundle["text/plain"]


def test_a_server_card_lists_its_capabilities_and_instructions(make: Any) -> None:
    status = dataclasses.replace(
        make("server"), capabilities=("tools", "prompts"), instructions="Ask for a city first."
    )
    text = plain(status)
    assert re.search(r"Capabilities +tools, prompts", text)
    assert "Ask for a city" in text
    assert "KeyError: 'TOKEN'" in text


def test_a_diagnosis_explains_failures_and_remedies(make: Any) -> None:
    text = plain(make("diagnosis"))
    assert "3 checks, 1 failure, 1 warning" in text
    assert re.search(r"mail +✗ fails +It ended at once\. +Reconnect it\.", text)


def test_the_system_prompt_is_shown_exactly_as_the_model_reads_it(make: Any) -> None:
    prompt = make("prompt")
    assert str(prompt) == "You are kind."
    assert "\nYou are kind.</pre>" in mimebundle(prompt)["text/html"]


def test_tools_added_by_the_provider_are_listed_separately() -> None:
    definitions = ({"name": "shop__<b>list</b>", "description": "List.", "parameters": {}},)
    request = Request(
        (UserMessage(content="x"),), (), TokenParts(tools=30), delivery="native", found=definitions
    )
    text = plain(request)
    assert (
        text.index("Tools offered")
        < text.index("added by the provider")
        < text.index("shop__<b>list</b>")
    )
    assert "<b>list</b>" not in mimebundle(request)["text/html"]
