"""The text of each display, in all of its forms."""

from __future__ import annotations

import dataclasses
import logging
import re
import subprocess
import sys
from typing import Any

import pytest
from casual_llm.messages import AssistantMessage, UserMessage

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.search import SearchResults, TermScore
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.status import Manifest, ServerStatus, SessionStatus
from casual_mcp_nb.base.tokens import Budget, TokenParts, TokenUsage, TurnCosts
from casual_mcp_nb.base.tool import ToolName, ToolSpec
from casual_mcp_nb.conversation.event import (
    Event,
    HostedCall,
    Notice,
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
from casual_mcp_nb.conversation.stats import ChatStats, TokenUsageStats
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.display.render import to_text
from casual_mcp_nb.display.view import Block, DisplayLimits, Section, cell_text, fit
from casual_mcp_nb.views import mimebundle, page, turn_bundle, view_of

CALL = ToolName("math", "add")


def text_of(value: Any, parse: Any) -> str:
    """The text of the HTML form, with each run of spaces as one."""
    return re.sub(r"\s+", " ", parse(mimebundle(value)["text/html"]).text)


def turn_html(turn: Turn) -> str:
    return turn_bundle(turn, "output")["text/html"]


def plain(value: Any) -> str:
    return mimebundle(value)["text/plain"]


def calling_turn(make: Any, *later: Any) -> Turn:
    step = make("turn").trace.of(StepStarted)[0]
    call = ToolStarted(0, "1", "math__add", CALL, {"a": 1}, 0.5)
    return Turn(Trace([TurnStarted((UserMessage(content="Add."),), "m"), step, call, *later]))


def test_every_noun_has_three_forms_that_repeat(make: Any, kind: str) -> None:
    bundle = mimebundle(make(kind))
    assert list(bundle) == ["text/plain", "text/markdown", "text/html"]
    assert "cmn-bare" not in bundle["text/html"]
    assert bundle == mimebundle(make(kind))


def section_titles(blocks: tuple[Block, ...]) -> list[str]:
    """The titles of all sections, in the order in which every format has them."""
    sections = [block for block in blocks if isinstance(block, Section)]
    return [
        title
        for section in sections
        for title in (
            cell_text(section.title),
            *(() if section.brief else section_titles(section.blocks)),
        )
        if title
    ]


def test_all_forms_name_the_same_sections_in_the_same_order(
    make: Any, parse: Any, kind: str
) -> None:
    value = make(kind)
    bundle = mimebundle(value)
    titles = section_titles(fit(view_of(value, DisplayLimits()), DisplayLimits()).blocks)
    for form in (
        bundle["text/plain"],
        bundle["text/markdown"].replace("\\", ""),
        parse(bundle["text/html"]).text,
    ):
        position = 0
        for title in titles:
            position = form.index(title, position) + len(title)


def test_html_is_readable_without_its_style_and_keeps_formulas_out(
    make: Any, parse: Any, kind: str
) -> None:
    html = mimebundle(make(kind))["text/html"]
    assert re.match(r'<div class="cmn cmn-[a-z]+ tex2jax_ignore mathjax_ignore">', html)
    bare = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    assert parse(bare).text.strip() == parse(html).text.strip()


def test_the_style_asks_nothing_of_the_network(make: Any) -> None:
    style = re.findall(r"<style>(.*?)</style>", mimebundle(make("stats"))["text/html"], re.DOTALL)[
        0
    ]
    assert not re.search(r"url\(|@import|expression|:root|prefers-color-scheme", style)


def test_a_page_is_one_document_that_forbids_scripts_and_the_network(make: Any, parse: Any) -> None:
    html = page(make("turn"), "A <turn>")
    assert html.startswith("<!DOCTYPE html>")
    assert "default-src 'none'" in html
    assert "<title>A &lt;turn&gt;</title>" in html
    parse(html.removeprefix("<!DOCTYPE html>"))


def test_a_noun_answers_jupyter_and_print_with_its_display(make: Any) -> None:
    tool = make("tool")
    assert tool._repr_mimebundle_() == mimebundle(tool)
    assert str(tool) == plain(tool)


def test_the_display_room_needs_neither_ipython_nor_the_engine() -> None:
    code = (
        "import sys, casual_mcp_nb.views\nrooms = ('IPython', 'casual_mcp_nb.engine',"
        " 'casual_mcp_nb.notebook.loop', 'casual_mcp_nb.servers.connection')\nprint([room for room"
        " in rooms if room in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_a_value_that_cannot_be_drawn_is_shown_as_its_repr_and_logged_once(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(SearchResults):
        @property
        def hits(self) -> Any:
            raise ValueError("no hits <b>")

        @hits.setter
        def hits(self, value: Any) -> None:
            pass

        def __repr__(self) -> str:
            return "<Broken & bare>"

    broken = object.__new__(Broken)
    with caplog.at_level(logging.WARNING):
        forms = [mimebundle(broken) for _ in range(2)]
    assert "&lt;Broken &amp; bare&gt;" in forms[0]["text/html"]
    assert "<Broken & bare>" in forms[1]["text/plain"]
    assert len(caplog.records) == 1
    assert "no hits" not in caplog.text


def test_a_value_whose_repr_fails_too_is_still_shown() -> None:
    class Hopeless:
        def __repr__(self) -> str:
            raise RuntimeError

    assert "It cannot be shown." in mimebundle(Hopeless())["text/plain"]


def test_the_offline_planner_is_never_called_a_language_model(make: Any) -> None:
    session = dataclasses.replace(make("session"), model="demo", provider="offline")
    assert "(not an LLM)" in plain(session)
    assert "(not an LLM)" in plain(make("models"))
    started = TurnStarted((UserMessage(content="Hi"),), "demo", provider="offline")
    assert "(not an LLM)" in turn_html(Turn(Trace([started, TurnFinished("done")])))


def test_a_session_shows_the_saving_in_a_whole_turn(make: Any) -> None:
    text = plain(make("session"))
    assert re.search(r"A turn with one search and one call +≈ 2,000 +≈ 5,000 +60% less", text)
    assert "a turn takes 60% less" in text


def test_each_number_of_a_budget_has_one_name(make: Any) -> None:
    names = [
        "Tool definitions",
        "First request",
        "A turn with one search and one call",
        "Ten turns, 3 of them with a search",
    ]
    text = plain(make("session").budget)
    assert [len(re.findall(rf"^ *{name}", text, re.M)) for name in names] == [1] * len(names)
    for value in (make("session"), make("exploration")):
        assert re.search(
            rf"Tool definitions +≈ {value.tokens:,} of {value.undeferred_tokens:,} tokens",
            plain(value),
        )
        assert "first request" not in plain(value).casefold().replace(
            "first request: system prompt", ""
        )


def test_a_budget_shows_the_typical_ten_turns_before_the_worst(make: Any) -> None:
    budget = make("session").budget
    rows = [line for line in plain(budget).splitlines() if "≈" in line]
    counts = [int(re.findall(r"≈ ([\d,]+)", line)[0].replace(",", "")) for line in rows]
    assert counts[-3:] == [
        budget.now.ten_turns,
        budget.now.ten_turns_new,
        budget.now.ten_turns_worst,
    ]


def test_a_session_says_when_deferral_costs_more(make: Any) -> None:
    undeferred = TurnCosts(130, 150, 200, 2_000, 900, 2_000)
    costs = Budget(TurnCosts(80, 100, 300, 3_000, 900, 4_000), undeferred)
    for value in (make("session"), make("exploration")):
        assert "50% more" in plain(dataclasses.replace(value, budget=costs))
        assert "session.tools.load(" in plain(costs)
        assert "session.tools.load(" not in plain(
            Budget(TurnCosts(80, 100, 150, 1_500, 900, 4_000), undeferred)
        )
        nothing_deferred = dataclasses.replace(value, budget=Budget(costs.now, costs.now))
        for same in (nothing_deferred, dataclasses.replace(nothing_deferred, budget=None)):
            assert not re.search("% (more|less)", plain(same))


def test_a_session_without_anything_is_shown(make: Any) -> None:
    empty = dataclasses.replace(
        make("session"), servers=type(make("servers"))({}, {}), model=None, provider=None, notes=()
    )
    assert "0 of 0 ready" in plain(empty)
    assert re.search(r"Model +none", plain(empty))


def test_a_failed_server_shows_its_reason_and_the_end_of_its_stderr_folded(
    make: Any, parse: Any
) -> None:
    html = mimebundle(make("servers"))["text/html"]
    text = text_of(make("servers"), parse)
    assert "✗ failed" in text
    assert "It ended at once." in text
    assert "KeyError: 'TOKEN'" in text
    assert "<details" in html
    assert '<details class="cmn-section" style="margin:4px 0" open' not in html


def test_the_tools_of_a_server_that_failed_are_left_out_and_not_none() -> None:
    assert "Tools" not in plain(ServerStatus("x", "failed", "It ended."))
    assert re.search(r"Tools +0 tools, ≈ 0 tokens", plain(ServerStatus("x", "ready")))


def test_tools_show_mode_claims_and_price_and_sums_for_each_server(make: Any) -> None:
    text = plain(make("tools"))
    assert "3 tools of 3 servers, ≈ 142 tokens" in text
    assert "files · 1 tool, ≈ 29 tokens" in text
    assert re.search(
        r"remove +loaded +destructive, idempotent +≈ 29 +Remove a file for good\.", text
    )
    assert re.search(r"send +off", text)


def test_a_tool_card_lists_the_parameters_and_folds_the_schema(make: Any) -> None:
    text, html = plain(make("tool")), mimebundle(make("tool"))["text/html"]
    assert re.search(r"city +string +required +Name of the city", text)
    assert re.search(r"days +integer or null +optional", text)
    assert re.search(r'units +"metric" or "imperial"', text)
    assert re.search(r"tags +list of string", text)
    assert re.search(r"<details[^>]*><summary><strong>Schema</strong>", html)


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": []},
        {"properties": {"a": True, "b": None, "c": 3}},
        {"properties": {"a": {"type": ["string", 3], "description": 5}}, "required": "a"},
        {
            "properties": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/B"}]}},
            "required": [["a"]],
        },
        {"properties": {"a": {"enum": [1, None, {"b": []}]}}, "required": None},
    ],
)
def test_a_tool_card_takes_any_schema(schema: dict[str, Any], parse: Any) -> None:
    assert "Parameters" in text_of(ToolSpec("s", "t", "", schema), parse)


def test_a_deeply_nested_schema_does_no_harm() -> None:
    deep: dict[str, Any] = {}
    for _ in range(150):
        deep = {"items": deep, "type": "array"}
    tool = ToolSpec("s", "t", "", {"properties": {"a": deep}})
    assert "s__t" in plain(tool)


def test_the_manifest_is_shown_exactly_as_the_model_reads_it(make: Any) -> None:
    manifest = make("manifest")
    html = mimebundle(manifest)["text/html"]
    assert f"\n{manifest.text}</pre>" in html
    assert "≈ 16 tokens" in html
    assert "≈ 110 tokens" in html


def test_an_empty_manifest_says_that_nothing_is_deferred() -> None:
    assert "Nothing is deferred" in plain(Manifest(""))


def test_toolsets_show_the_one_in_use_and_its_tools(make: Any) -> None:
    text = plain(make("toolsets"))
    assert "● in use" in text
    assert "weather: all; files: read, list; " in text
    assert "mail: all but send" in text


def test_models_show_only_words_for_their_keys(make: Any) -> None:
    assert re.search(r"fast +openai +gpt-4\.1 +main +set +● default", plain(make("models")))


def test_search_results_show_ranks_scores_and_reasons(make: Any, parse: Any) -> None:
    text = text_of(make("search"), parse)
    assert re.search(r"\b2 matches of 15 tools, .*\bwords\. .*\btop 5\b", text)
    assert "Why weather:get_forecast is 1st" in text
    assert "Words with no match" in text
    assert "“tomorrow”" in text


def test_a_long_list_of_results_is_not_explained_row_by_row(make: Any) -> None:
    results = make("search")
    hit = dataclasses.replace(results.hits[0], explain=lambda: pytest.fail("it was computed"))
    assert "Match" in plain(dataclasses.replace(results, hits=(hit,) * 11))


def test_a_search_without_results_shows_a_note(make: Any) -> None:
    assert "No tool matches." in plain(dataclasses.replace(make("search"), hits=()))


def test_an_explanation_adds_up_to_the_score(make: Any) -> None:
    explanation = make("explanation")
    assert re.search(r"“forecast” +in name +1\.2 \(80%\)", plain(explanation))
    assert re.search(r"Score +1\.5", plain(explanation))
    html = mimebundle(explanation)["text/html"]
    assert re.search(r"<details(?:(?!</details>).)*Formula.*1\.73", html, re.DOTALL), (
        "the formula is folded"
    )


def test_an_explanation_shows_whole_words_and_words_for_the_other_parts(make: Any) -> None:
    shares = (
        TermScore("forecast", "name", 1, 1.7, 1.0),
        TermScore("weath", "description", 1, 1.0, 0.5, query_term="climat"),
        TermScore("words of the name", "name", 2, 3.4, 0.3),
        TermScore('clause "in Oslo"', "part of the request", 1, 0.0, 0.2),
    )
    spelling = {
        "forecast": "forecasts",
        "weath": "weather",
        "climat": "climate",
        "tomorr": "tomorrow",
    }
    explanation = dataclasses.replace(
        make("explanation"), shares=shares, missing=("tomorr",), spelling=spelling
    )
    text = plain(explanation)
    assert "“forecasts”" in text
    assert "“weather” (related to “climate”)" in text
    assert "Words together" in text
    assert 'request: "in Oslo"' in text
    assert "“tomorrow”" in text


def test_an_explanation_names_cut_and_missing_words(make: Any) -> None:
    explanation = make("explanation")
    assert "7th: not returned (limit 5)" in plain(dataclasses.replace(explanation, rank=7))
    assert "No match" in plain(dataclasses.replace(explanation, rank=None, score=0.0, shares=()))


def test_each_step_of_a_turn_is_a_line_with_its_tokens_and_its_time(make: Any) -> None:
    text = plain(make("turn"))
    assert "Steps · Tokens in · Time" in text
    assert "1 Searched tools for “weather”, loaded 1 from weather · 210 · 0.81 s" in text
    assert "2 weather:get_forecast city “Oslo” → no such city. · ✗ error · ≈ 335 · 0.77 s" in text
    assert "3 Answered · 455 · 0.40 s" in text
    assert re.search(r"weather:get_forecast +1\.5", text)
    assert re.search(r"mail:send +named by the model · already loaded", text)
    assert "5 tools loaded (4 at start, 1 found by search)" in text


def test_one_line_sums_up_a_turn_without_zero_figures(make: Any) -> None:
    text = plain(make("turn"))
    assert (
        "✗ failed · 3 steps · 1 search · 1 call · 1 failed · ≈ 1,000 tokens in, 74% less than with"
        " every tool loaded · 2.1 s" in text
    )
    quiet = plain(
        Turn(Trace([TurnStarted((UserMessage(content="Hi"),), "m"), TurnFinished("done", at=0.1)]))
    )
    assert "✓ done · 0.10 s" in quiet


def test_a_turn_shows_its_answer_first_and_the_rest_folded(make: Any) -> None:
    html = mimebundle(make("turn"))["text/html"].partition("</style>")[2]
    parts = [
        'data-part="answer"',
        'data-part="figures"',
        'data-key="step-1"',
        'data-key="step-3"',
        'data-key="details"',
    ]
    assert [html.index(part) for part in parts] == sorted(html.index(part) for part in parts)
    assert not re.findall(r'<details class="cmn-(?:step|details)"[^>]* open>', html)
    assert "What is the weather" not in html[: html.index('data-key="step-1"')], (
        "the cell above holds the prompt"
    )


def test_a_page_finds_each_part_of_a_turn_by_its_key(make: Any) -> None:
    html = mimebundle(make("turn"))["text/html"]
    keys = re.findall(r'data-key="([^"]+)"', html)
    assert len(keys) == len(set(keys))
    assert {"step-1", "call-0", "call-1", "request-1", "details"} <= set(keys)
    assert re.search(r'<pre[^>]* data-part="arguments" data-call="b"', html)
    assert re.search(r'<pre[^>]* data-part="result" data-call="b"', html)


def test_only_the_current_step_of_a_running_turn_is_open(make: Any) -> None:
    html = mimebundle(make("running turn"))["text/html"]
    assert re.findall(r'data-step="(\d)"[^>]* open>', html) == ["2"]


@pytest.mark.parametrize(
    ("end", "first"),
    [
        (TurnFinished("failed", "The key is refused."), "✗ The key is refused."),
        (
            TurnFinished("stopped", "Stopped. Completed steps are kept."),
            "■ Stopped. Completed steps are kept.",
        ),
        (TurnFinished("done"), "○ "),
    ],
)
def test_a_missing_answer_is_explained_in_its_place(
    make: Any, end: TurnFinished, first: str
) -> None:
    assert plain(calling_turn(make, end)).startswith(first)


def test_a_cut_answer_begins_with_a_note(make: Any) -> None:
    events = [
        *make("turn").trace.of(StepStarted)[:1],
        StepFinished(0, AssistantMessage(content="Half"), truncated=True),
    ]
    text = plain(
        Turn(Trace([TurnStarted((UserMessage(content="Hi"),), "m"), *events, TurnFinished("done")]))
    )
    assert text.startswith("✂ ")
    assert "│ Half" in text


def test_a_turn_opens_its_errors_and_folds_its_successes(make: Any) -> None:
    html = mimebundle(make("turn"))["text/html"]
    title = r'<summary><span class="cmn-phrase"><code[^>]*>weather:get_forecast'
    assert re.search(rf'<details class="cmn-call"[^>]* open>{title}', html)
    results = [ToolFinished(0, number, CALL, "ok", "3", None, 0.6) for number in "12"]
    turn = calling_turn(make, ToolStarted(0, "2", "math__add", CALL, {"a": 2}, 0.5), *results)
    assert "open" not in re.findall(r'<details class="cmn-call"[^>]*>', turn_html(turn))[0]


def test_a_failed_turn_says_why(make: Any) -> None:
    assert plain(make("turn")).startswith("✗ The model's answer was cut short.")


def test_a_running_turn_shows_its_call_with_its_progress(make: Any) -> None:
    text = plain(make("running turn"))
    assert text.startswith("Running weather:get_forecast …\n▸ running · 2 steps")
    assert "weather:get_forecast · ▸ running" in text
    assert "3 of 10 (30%): asking" in text


def test_a_running_turn_shows_the_text_so_far(make: Any) -> None:
    assert plain(make("streaming turn")).startswith("│ It rains\n▸ running")


@pytest.mark.parametrize(
    ("progress", "total"),
    [(3, None), (5, 0), (float("nan"), 2), (float("inf"), float("inf")), (-1, 4)],
)
def test_progress_can_be_any_number(
    make: Any, parse: Any, progress: float, total: float | None
) -> None:
    turn = calling_turn(make, ToolProgress("1", progress, total))
    assert "Progress" in text_of(turn, parse)


def test_a_call_without_an_outcome_in_a_turn_that_ended_is_not_called_running(make: Any) -> None:
    text = plain(calling_turn(make, TurnFinished("stopped", "You stopped it.", 1.0)))
    assert "? outcome" in text
    assert "■ stopped" in text
    assert "▸ running" not in text


def test_a_turn_that_did_not_begin_is_shown() -> None:
    assert plain(Turn(Trace())) == "… not started"


def test_an_answer_without_text_is_said_to_be_empty(make: Any) -> None:
    events = [
        *make("turn").trace.of(StepStarted)[:1],
        StepFinished(0, AssistantMessage(content="")),
        TurnFinished("done"),
    ]
    assert "returned no text." in plain(
        Turn(Trace([TurnStarted((UserMessage(content="Hi"),), "m"), *events]))
    )


def test_notices_and_server_logs_are_shown(make: Any) -> None:
    text = plain(make("turn"))
    assert "weather: A result" in text
    assert "weather info: cache miss" in text
    assert "Notices" not in plain(calling_turn(make))
    assert "A word." in plain(calling_turn(make, Notice("A word.")))


@pytest.mark.parametrize("mime_type", ["image/png", "image/jpeg", "image/gif", "image/webp"])
def test_small_images_are_in_the_page(make: Any, parse: Any, mime_type: str) -> None:
    result = ToolResult((ContentPart("image", mime_type=mime_type, data=b"123"),))
    html = turn_html(calling_turn(make, ToolFinished(0, "1", CALL, "ok", "an image", result, 0.6)))
    assert f'src="data:{mime_type};base64,MTIz"' in html
    parse(html)


@pytest.mark.fault(86)
@pytest.mark.parametrize(
    ("mime_type", "size", "note"),
    [
        ("image/svg+xml", 100, "image/svg+xml, 100 bytes"),
        ('image/png" onerror="x', 100, "onerror"),
        ("text/html", 100, "text/html, 100 bytes"),
        (None, 100, "image, 100 bytes"),
        ("image/png", 2_000_000, "image/png, 2,000,000 bytes"),
    ],
)
def test_other_and_large_images_are_only_named(
    make: Any, parse: Any, mime_type: str | None, size: int, note: str
) -> None:
    result = ToolResult((ContentPart("image", mime_type=mime_type, data=b"1" * size),))
    parsed = parse(
        turn_html(calling_turn(make, ToolFinished(0, "1", CALL, "ok", "an image", result, 0.6)))
    )
    assert "img" not in parsed.tags
    assert note in parsed.text


def test_stats_leave_unknown_tokens_out_and_never_say_0() -> None:
    text = plain(ChatStats(TokenUsageStats(unknown_calls=2), llm_calls=2))
    assert "Input" not in text
    assert "Total" not in text
    assert "reported no token count" not in text, (
        "every figure is an estimate then, and marked as such"
    )
    assert "discovery was off" in text


def test_stats_say_which_calls_their_sums_lack() -> None:
    text = plain(ChatStats(TokenUsageStats(10, 5, unknown_calls=2), llm_calls=3))
    assert "2 model calls reported" in text


def test_stats_say_who_counted(make: Any) -> None:
    assert re.search(r"Input +665 tokens", plain(make("stats")))
    events: list[Event] = [
        StepFinished(0, AssistantMessage(content="a"), TokenUsage(10, 2, origin="estimated")),
        TextDelta(0, "a"),
    ]
    assert "≈ 10 tokens" in plain(ChatStats.of(events))
    assert "≈ 12 tokens" in plain(ChatStats.of(events))


def test_a_step_counts_the_hosted_tools_that_it_does_not_name() -> None:
    message = UserMessage(content="What is new?")
    calls = tuple(HostedCall(name, "") for name in ("one", "two", "three", "four"))
    events: list[Event] = [
        TurnStarted((message,), "m"),
        StepStarted(0, Request((message,), (), TokenParts())),
        StepFinished(0, AssistantMessage(content="Nothing."), hosted_calls=calls),
        TurnFinished("done"),
    ]
    assert "three and 1 more" in plain(Turn(Trace(events)))


def test_stats_count_calls_by_tool_and_by_server(make: Any) -> None:
    text = plain(make("stats"))
    assert re.search(r"weather:get_forecast +2\n +search_tools +1\n", text)
    assert "built-in" in text


def test_no_number_in_a_row_is_out_of_its_column(make: Any) -> None:
    session: SessionStatus = make("session")
    lines = to_text(fit(view_of(session.servers, DisplayLimits()), DisplayLimits())).splitlines()
    header = next(line for line in lines if "Transport" in line)
    row = next(line for line in lines if line.lstrip().startswith("weather"))
    assert row.index("stdio") == header.index("Transport")


@pytest.mark.parametrize(
    ("strategy", "words"), [("search", "the model searches"), ("browse", "the model browses")]
)
def test_a_session_says_how_deferred_tools_are_found(make: Any, strategy: str, words: str) -> None:
    assert words in plain(dataclasses.replace(make("session"), strategy=strategy))


def test_a_selection_shows_the_limits_of_browsing_and_the_manifest() -> None:
    text = plain(Selection(strategy="browse", max_active_tools=7, manifest_max_tokens=900))
    assert re.search(r"Max tools loaded by browsing +7 tools", text)
    assert re.search(r"Max manifest size +900 estimated tokens", text)
