"""What a run's turns say in figures: what was called, what it took, and what the prompt cache
saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from casual_mcp_nb.conversation.codec import dump_traces
from casual_mcp_nb.conversation.event import FINDING, SYNTHETIC, UNKNOWN, TurnStarted
from casual_mcp_nb.conversation.step import with_nested
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.experiments.prompt_cache import cache_use
from casual_mcp_nb.experiments.run_record import RunRecord

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.stats import ChatStats
    from casual_mcp_nb.providers.chat_model import ChatModel


def measured(record: RunRecord, turns: Sequence[Turn], model: ChatModel) -> RunRecord:
    """Add the figures of its turns to a run.

    Args:
        record: The run, without figures.
        turns: Its turns.
        model: The model that answered.
    """
    if not turns or not turns[0].trace.of(TurnStarted):
        return record
    stats = turns[0].stats
    for turn in turns[1:]:
        stats = stats + turn.stats
    started = turns[0].started
    record = _with_calls(_with_tokens(record, stats, model), turns)
    return replace(
        record,
        steps=len(stats.steps),
        seconds=sum(turn.seconds for turn in turns),
        provider=started.provider,
        discovery=started.discovery,
        searchable=started.deferred,
        answer=turns[-1].answer,
        transcript=dump_traces(turn.trace for turn in turns),
    )


def _with_calls(record: RunRecord, turns: Sequence[Turn]) -> RunRecord:
    """Add the tools that were called, refused and found, and how searches ranked."""
    called = []
    refused = []
    found = []
    rankings = set()
    searches = 0
    for turn in turns:
        for call in with_nested(turn.tool_calls):
            if call.tool.server == SYNTHETIC:
                searches += call.tool.tool in FINDING
            elif call.tool.server == UNKNOWN:
                continue
            elif call.status == "denied":
                refused.append(str(call.tool))
            else:
                called.append(str(call.tool))
        for search in turn.searches:
            found += [str(row.tool) for row in search.rows]
            if search.query:
                rankings.add(str(search.ranked_by))
    return replace(
        record,
        calls=len(called),
        searches=searches,
        ranked_by=", ".join(sorted(rankings)) or None,
        found=tuple(dict.fromkeys(found)),
        called=tuple(dict.fromkeys(called)),
        refused=tuple(dict.fromkeys(refused)),
    )


def _with_tokens(record: RunRecord, stats: ChatStats, model: ChatModel) -> RunRecord:
    """Add the tokens, and the cost as far as all of it is known."""
    cache = cache_use(stats.steps, model.model, model.price)
    record = replace(
        record, input_tokens=stats.sent_tokens, origin=stats.parts.origin, **vars(cache)
    )
    if stats.llm_calls and not stats.tokens.unknown_calls:
        record = replace(record, output_tokens=stats.tokens.completion_tokens)
    if stats.discovery:
        record = replace(record, undeferred_tokens=stats.undeferred_tokens)
    cost = stats.cost
    if cost is None or cost.unknown_calls or cost.unknown_hosted:
        return replace(record, cold_cost=None, warm_cost=None)
    return replace(record, cost=cost.amount, currency=cost.currency)
