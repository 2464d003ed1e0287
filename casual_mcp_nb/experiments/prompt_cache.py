"""What a provider's prompt cache does to a run's price: as measured, and at both ends, cold and
warm.

Whether a conversation's first request is read from the cache depends on what was sent minutes
before, and not on the arm. So each run is also priced as if nothing of it had been read (`cold`),
and as if all its prefix had been (`warm`): the system prompt and the tool definitions. The requests
that follow in a conversation repeat the previous ones either way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from casual_mcp_nb.base.prices import Price
from casual_mcp_nb.base.tokens import Origin, TokenUsage
from casual_mcp_nb.conversation.stats import StepStats

_MINIMUMS = (
    # platform.claude.com/docs/en/build-with-claude/prompt-caching, seen 2026-11-28.
    (r"claude.*(opus|fable|mythos)-5", 512),
    (r"claude.*opus-4-7", 2_048),
    (r"claude.*(opus-4-[56]|haiku-4-5)", 4_096),
    (r"claude.*haiku", 2_048),
    (r"claude", 1_024),
    # ai.google.dev/gemini-api/docs/caching, seen 2026-11-28.
    (r"gemini-2-5", 2_048),
    (r"gemini", 4_096),
    # developers.openai.com/api/docs/guides/prompt-caching, seen 2026-11-28.
    (r"(^|/)(gpt-|o\d|chatgpt-|codex)", 1_024),
)
"""The shortest prefix that a model's provider caches, in tokens, by a pattern for the model's name.

The first one counts.
"""


def least_prefix(model: str) -> int:
    """Look up the shortest prefix that a model's provider caches, in tokens, or 0 if it is
    unknown.
    """
    name = model.lower().replace(".", "-")
    return next((tokens for pattern, tokens in _MINIMUMS if re.search(pattern, name)), 0)


@dataclass(frozen=True)
class CacheUse:
    """A run's use of the prompt cache, in the fields of a `RunRecord`.

    Args:
        tokens_reused: Input tokens read from the cache, reported or estimated.
        reused_origin: Who counted them.
        first_reused: Tokens of them in the conversation's first request, or None if the provider
            did not report this.
        cold_reused: The same if the first request reads nothing.
        warm_reused: The same if the first request reads all its prefix.
        cold_cost: What the run then costs, or None without a price.
        warm_cost: What it costs with the warm cache.
    """

    tokens_reused: int = 0
    reused_origin: Origin = "estimated"
    first_reused: int | None = None
    cold_reused: int = 0
    warm_reused: int = 0
    cold_cost: float | None = None
    warm_cost: float | None = None


def cache_use(steps: Sequence[StepStats], model: str, price: Price | None) -> CacheUse:
    """Compute how a run's requests use the prompt cache.

    Args:
        steps: All steps of its conversation.
        model: The provider's name for the model.
        price: Its price, if it has one.
    """
    answered = [step for step in steps if step.seconds is not None]
    if not answered:
        return CacheUse()
    least = least_prefix(model)
    reported = all(step.cached_tokens is not None for step in answered)
    first = answered[0]
    read, written = first.cached_tokens or 0, first.cache_write_tokens or 0
    # What the provider has read or written is what it can read the next time.
    begins_with = first.parts.total - first.parts.history - first.parts.results
    prefix = read + written or _if_cached(begins_with, least)
    later = _repeated(answered, least, reported=reported)
    repeated = sum(later)
    use = CacheUse(repeated, cold_reused=repeated, warm_reused=prefix + repeated)
    if reported:
        total = sum(step.cached_tokens or 0 for step in answered)
        use = replace(
            use, tokens_reused=total, reused_origin="reported", first_reused=first.cached_tokens
        )
    if price is None or any(map(_has_no_cost, answered)):
        return use
    cold = warm = 0.0
    for step, tokens in zip(answered, (0, *later), strict=True):
        usage = TokenUsage(
            step.parts.total, step.completion_tokens, tokens, step.cache_write_tokens
        )
        if_cold = if_warm = usage
        if step is first:
            # A provider that reports no writing asks nothing for it.
            if_cold = replace(usage, cache_write_tokens=read + written if written else None)
            if_warm = replace(usage, cached_tokens=prefix, cache_write_tokens=None)
        hosted = step.cost.hosted if step.cost is not None else 0.0
        cold += _amount(price, if_cold) + hosted
        warm += _amount(price, if_warm) + hosted
    return replace(use, cold_cost=cold, warm_cost=warm)


def _repeated(steps: Sequence[StepStats], least: int, *, reported: bool) -> list[int]:
    """Compute how much each request but the first can read of what the request before has sent.

    More than that can only be left from another conversation like this one.
    """
    amounts = []
    for before, step in pairwise(steps):
        if reported:
            tokens = step.cached_tokens or 0
        else:
            tokens = _if_cached(step.reused or 0, least)
        amounts.append(min(tokens, _if_cached(before.parts.total, least)))
    return amounts


def _has_no_cost(step: StepStats) -> bool:
    return step.completion_tokens is None or step.cost is None or step.cost.unknown_hosted > 0


def _amount(price: Price, usage: TokenUsage) -> float:
    cost = price.of(usage)
    return cost.amount if cost is not None else 0.0


def _if_cached(tokens: int, least: int) -> int:
    return tokens if tokens >= least else 0
