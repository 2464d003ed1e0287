"""The saving by deferral, counted over whole turns, also when it loses."""

from __future__ import annotations

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    UserMessage,
)

from casual_mcp_nb.base.tokens import TokenParts, TokenUsage
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.event import (
    SYNTHETIC,
    Event,
    Request,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from casual_mcp_nb.conversation.stats import ChatStats

SEARCH, ADD = ToolName(SYNTHETIC, "search_tools"), ToolName("math", "add")


def step(
    index: int,
    parts: TokenParts,
    call: ToolName | None,
    result: str = "",
    usage: TokenUsage | None = None,
) -> list[Event]:
    name = call.tool if call else ""
    function = AssistantToolCallFunction(name=name, arguments="{}")
    asked = [AssistantToolCall(id=str(index), function=function)] if call else None
    events: list[Event] = [
        StepStarted(index, Request((), (), parts)),
        StepFinished(index, AssistantMessage(content="", tool_calls=asked), usage),
    ]
    if call:
        events += [
            ToolStarted(index, str(index), name, call, {}),
            ToolFinished(index, str(index), call, "ok", result),
        ]
    return events


def turn(undeferred: int, *steps: list[Event], discovery: bool = True) -> ChatStats:
    started = TurnStarted(
        (UserMessage(content="Add."),), "m", discovery=discovery, undeferred_tokens=undeferred
    )
    return ChatStats.of([started, *(event for events in steps for event in events)])


def test_a_step_that_only_searched_would_not_have_been() -> None:
    stats = turn(
        1_000,
        step(0, TokenParts(10, 50, 40, 20), SEARCH, "Found."),
        step(1, TokenParts(10, 50, 80, 20, 0), ADD, "3"),
        step(2, TokenParts(10, 50, 80, 20, 5), None),
    )
    assert stats.steps[0].undeferred_tokens == 0
    assert stats.sent_tokens == 120 + 160 + 165
    assert 1_900 < stats.undeferred_tokens < 2 * (10 + 20 + 5 + 1_000)


def test_what_searches_said_is_no_part_of_what_would_have_been_sent() -> None:
    long = "Found a tool. " * 100
    short = turn(
        100,
        step(0, TokenParts(10, 5, 5, 20), SEARCH, "Found."),
        step(1, TokenParts(10, 5, 15, 20, 400), None),
    )
    talkative = turn(
        100,
        step(0, TokenParts(10, 5, 5, 20), SEARCH, long),
        step(1, TokenParts(10, 5, 15, 20, 400), None),
    )
    assert talkative.undeferred_tokens < short.undeferred_tokens - 200


def test_deferral_that_loses_is_told_as_a_loss() -> None:
    stats = turn(
        30,
        step(0, TokenParts(10, 50, 40, 20), SEARCH, "Found."),
        step(1, TokenParts(10, 50, 70, 40, 20), None),
    )
    assert stats.sent_tokens > 2 * stats.undeferred_tokens
    assert "Deferring costs" in str(stats)


def test_without_discovery_there_is_nothing_to_compare() -> None:
    stats = turn(1_000, step(0, TokenParts(10, 0, 1_000, 20), None), discovery=False)
    assert stats.undeferred_tokens == stats.sent_tokens
    assert "Saved by deferring" not in str(stats)


def test_the_comparison_is_on_the_scale_of_the_providers_count() -> None:
    usage = TokenUsage(220, 5)
    (row,) = turn(200, step(0, TokenParts(10, 20, 60, 20), None, usage=usage)).steps
    assert row.parts.total == 220
    assert row.parts.origin == "reported"
    assert row.undeferred_tokens == 2 * (30 + 200)


def test_the_stats_of_turns_add_up_and_number_their_turns() -> None:
    one = turn(200, step(0, TokenParts(10, 20, 60, 20), None))
    both = one + one + one
    assert [(row.turn, row.step) for row in both.steps] == [(0, 0), (1, 0), (2, 0)]
    assert both.sent_tokens == 3 * one.sent_tokens
    assert both.parts == TokenParts(30, 60, 180, 60)
    assert sum([one, one], ChatStats()).steps == (one + one).steps


def test_the_make_up_of_several_requests_is_estimated_as_soon_as_one_is() -> None:
    reported = TokenParts(1, 1, 1, 1, 1, "reported")
    assert (reported + reported).origin == "reported"
    assert (reported + TokenParts(1)).origin == "estimated"
    assert ChatStats().parts == TokenParts()


@pytest.mark.parametrize("events", [[], [StepStarted(0, Request((), (), TokenParts()))]])
def test_stats_of_next_to_nothing_do_no_harm(events: list[Event]) -> None:
    assert ChatStats.of(events).sent_tokens == 0
