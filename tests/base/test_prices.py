"""The cost of turns by the person's own price table: marked as an estimate, and left out where it
is not known.
"""

from __future__ import annotations

import pytest
from casual_llm.messages import AssistantMessage, UserMessage
from pydantic import ValidationError

from casual_mcp_nb.base.prices import Cost, Price, price_of, total_cost
from casual_mcp_nb.base.tokens import TokenParts, TokenUsage
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import (
    Event,
    Request,
    StepFinished,
    StepStarted,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.conversation.stats import ChatStats
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.views import mimebundle

PRICE = Price(input=2, output=8, cached_input=0.5)
USAGE = TokenUsage(1_000_000, 100_000, 400_000)


def turn(*usages: TokenUsage | None, price: Price | None = PRICE) -> Turn:
    """A turn with a step for each of these reports."""
    asked = UserMessage(content="x")
    events: list[Event] = [TurnStarted((asked,), "m", price=price)]
    for step, usage in enumerate(usages):
        events.append(StepStarted(step, Request((asked,), (), TokenParts(history=10)), step))
        events.append(StepFinished(step, AssistantMessage(content="y"), usage, "stop", step + 0.5))
    return Turn(Trace([*events, TurnFinished("done", at=9)]))


def shown(noun: object) -> str:
    return mimebundle(noun)["text/plain"]


def test_cached_tokens_have_their_own_price() -> None:
    assert PRICE.of(USAGE) == Cost(0.6 * 2 + 0.4 * 0.5 + 0.1 * 8, "USD")
    assert Price(input=2, output=8).of(USAGE) == Cost(2.8, "USD")


def test_tokens_written_to_the_cache_cost_a_quarter_more_without_a_price() -> None:
    usage = TokenUsage(1_000_000, 0, 400_000, cache_write_tokens=200_000)
    assert PRICE.of(usage) == Cost(0.4 * 2 + 0.4 * 0.5 + 0.2 * 2.5, "USD")
    assert PRICE.model_copy(update={"cache_write": 4}).of(usage) == Cost(
        0.4 * 2 + 0.4 * 0.5 + 0.2 * 4, "USD"
    )
    # A server that counts more than there is does not make a request cheaper than nothing.
    assert PRICE.of(TokenUsage(100, 0, 400, cache_write_tokens=900)) == Cost(
        100 * 0.5 / 1_000_000, "USD"
    )


def test_steps_turns_and_conversations_have_their_cost() -> None:
    one = turn(USAGE, USAGE)
    assert [step.cost for step in one.steps] == [Cost(2.2, "USD")] * 2
    assert one.cost == one.stats.cost == Cost(4.4, "USD")
    talk = Conversation([one, one])
    assert talk.stats.cost == Cost(8.8, "USD")
    assert Conversation.from_json(talk.to_json()).stats.cost == talk.stats.cost


@pytest.mark.parametrize("usage", [None, TokenUsage(), TokenUsage(10, None), TokenUsage(None, 10)])
def test_a_call_without_a_count_has_no_cost_and_is_missing_from_the_sum(
    usage: TokenUsage | None,
) -> None:
    assert turn(usage).cost is None
    mixed = turn(USAGE, usage)
    assert mixed.cost == Cost(2.2, "USD", unknown_calls=1)
    assert "1 model call without" in shown(mixed.stats)


def test_a_model_without_a_price_has_no_cost_and_nothing_is_said_of_one() -> None:
    free = turn(USAGE, price=None)
    assert (free.cost, free.steps[0].cost, free.stats.cost, ChatStats().cost) == (
        None,
        None,
        None,
        None,
    )
    assert all(
        "ost" not in shown(noun).replace("most", "") for noun in (free, free.stats, free.steps[0])
    )


def test_a_price_of_nothing_is_a_cost_of_nothing() -> None:
    assert str(turn(USAGE, price=Price(input=0, output=0)).cost) == "0.0000 USD (estimate)"


def test_costs_in_several_currencies_are_not_added() -> None:
    assert total_cost([Cost(1, "USD"), Cost(1, "EUR")]) is None


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (1234.5, "1,234.50 EUR (estimate)"),
        (0.0234, "0.0234 EUR (estimate)"),
        (0.000123, "0.000123 EUR (estimate)"),
    ],
)
def test_a_cost_says_that_it_is_an_estimate(amount: float, text: str) -> None:
    assert str(Cost(amount, "EUR")) == text


def test_every_display_of_a_cost_says_that_it_is_an_estimate() -> None:
    one = turn(USAGE)
    for noun in (one, one.stats, one.steps[0]):
        for form in mimebundle(noun).values():
            assert "2.20 USD (estimate)" in form
            assert form.count(" USD") == form.count("USD (estimate)")


def test_cached_tokens_are_shown_where_they_are_reported() -> None:
    one = turn(USAGE)
    assert one.stats.tokens.cached_tokens == one.stats.steps[0].cached_tokens == 400_000
    assert "400,000 read from the cache" in shown(one)
    assert "400,000 tokens" in shown(one.stats)
    assert "cache" not in shown(turn(TokenUsage(10, 2)).stats)


def test_what_is_written_to_the_cache_is_added_up_and_shown() -> None:
    one = turn(
        TokenUsage(10, 2, 0, cache_write_tokens=7), TokenUsage(20, 2, 7, cache_write_tokens=9)
    )
    assert (one.stats.tokens.cache_write_tokens, one.stats.steps[0].cache_write_tokens) == (16, 7)
    assert [
        step.usage.cache_write_tokens
        for step in Turn(Trace.from_json(one.trace.to_json())).steps
        if step.usage
    ] == [7, 9]
    assert "Written to the cache" in shown(one.stats)
    assert "7 written to it" in shown(one)


def test_the_name_in_the_config_comes_before_the_name_of_the_provider() -> None:
    other = Price(input=1, output=1)
    assert price_of({"gpt": PRICE, "gpt-4.1": other}, "gpt", "gpt-4.1") is PRICE
    assert price_of({"gpt-4.1": other}, "gpt", "gpt-4.1") is other
    assert price_of({}, "gpt") is None


@pytest.mark.parametrize(
    "fields",
    [{"input": -1}, {"input": float("nan")}, {"output": float("inf")}, {"currency": ""}, {"x": 1}],
)
def test_a_price_is_a_finite_amount_of_a_currency(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Price.model_validate({"input": 1, "output": 1, **fields})
