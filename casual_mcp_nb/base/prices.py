"""Token costs by the user's price table.

Every amount is an estimate: only the provider's bill counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from casual_mcp_nb.base.iterables import present
from casual_mcp_nb.base.tokens import TokenUsage

PER = 1_000_000
"""How many tokens a price is for."""
WRITE_SURCHARGE = 1.25
"""How much more than other input a token costs that is written to the cache: at Anthropic, and at
OpenAI from GPT-5.6 on.
"""

_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Cost:
    """The cost of model calls that have a price and a token count.

    `unknown_calls` are not included. `hosted` is the amount for tools that the provider ran itself,
    without `unknown_hosted` calls that have no price.
    """

    origin: ClassVar[str] = "estimate"
    amount: float
    currency: str
    unknown_calls: int = 0
    hosted: float = 0.0
    unknown_hosted: int = 0

    def __str__(self) -> str:
        digits = 6
        if self.amount >= 1:
            digits = 2
        elif self.amount >= 0.01 or not self.amount:
            digits = 4
        return f"{self.amount:,.{digits}f} {self.currency} ({self.origin})"


class Price(BaseModel):
    """A model's prices per million tokens.

    Args:
        input: Price of input tokens.
        output: Price of output tokens, including reasoning.
        cached_input: Price of input tokens read from the provider's cache. None means the same as
            `input`.
        cache_write: Price of input tokens written to the cache. None means 1.25 times `input`,
            which Anthropic and OpenAI ask.
        hosted_tools: Price per thousand calls to tools that the provider runs itself, by name.
        currency: Its currency.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    input: _Amount
    output: _Amount
    cached_input: _Amount | None = None
    cache_write: _Amount | None = None
    hosted_tools: dict[str, _Amount] = Field(default_factory=dict)
    currency: str = Field(default="USD", min_length=1, max_length=12)

    def of(self, usage: TokenUsage | None, hosted: Sequence[str] = ()) -> Cost | None:
        """Compute a call's cost, or None if its tokens are unknown.

        `hosted` names each call that the provider ran.
        """
        if usage is None or usage.prompt_tokens is None or usage.completion_tokens is None:
            return None
        cached = min(usage.cached_tokens or 0, usage.prompt_tokens)
        written = min(usage.cache_write_tokens or 0, usage.prompt_tokens - cached)
        for_cached, for_written = self.cached_input, self.cache_write
        if for_cached is None:
            for_cached = self.input
        if for_written is None:
            for_written = WRITE_SURCHARGE * self.input
        amount = (usage.prompt_tokens - cached - written) * self.input
        amount += usage.completion_tokens * self.output
        amount += cached * for_cached
        amount += written * for_written
        of_hosted = sum(self.hosted_tools.get(name, 0.0) for name in hosted) / 1_000
        unpriced = sum(name not in self.hosted_tools for name in hosted)
        return Cost(
            amount / PER + of_hosted, self.currency, hosted=of_hosted, unknown_hosted=unpriced
        )


def _in_one_currency(prices: dict[str, Price]) -> dict[str, Price]:
    if len({price.currency for price in prices.values()}) > 1:
        raise ValueError("the prices must all be in one currency")
    return prices


PriceTable = Annotated[dict[str, Price], AfterValidator(_in_one_currency)]
"""Prices by a model's name in the config, or by the provider's name for it."""


def price_of(prices: Mapping[str, Price], *names: str) -> Price | None:
    """Look up the price by the first name that has one, or None."""
    return next((prices[name] for name in names if name in prices), None)


def total_cost(costs: list[Cost | None]) -> Cost | None:
    """Add up the costs, or return None if there are none, or if currencies differ."""
    priced = present(costs)
    if len({cost.currency for cost in priced}) != 1:
        return None
    return Cost(
        sum(cost.amount for cost in priced),
        priced[0].currency,
        len(costs) - len(priced),
        sum(cost.hosted for cost in priced),
        sum(cost.unknown_hosted for cost in priced),
    )
