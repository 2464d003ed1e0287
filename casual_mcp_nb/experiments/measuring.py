"""What a run's turns say in figures: what was called, what it took, and what the prompt cache saved."""

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
    calls = [call for turn in turns for call in with_nested(turn.tool_calls)]
    searches = [call for call in calls if call.tool.server == SYNTHETIC and call.tool.tool in FINDING]
    own = [call for call in calls if call.tool.server not in (SYNTHETIC, UNKNOWN)]
    called = [str(call.tool) for call in own if call.status != "denied"]
    hits = dict.fromkeys(str(row.tool) for turn in turns for search in turn.searches for row in search.rows)
    ranked = {str(search.ranked_by) for turn in turns for search in turn.searches if search.query}
    cost = stats.cost
    if cost is not None and (cost.unknown_calls or cost.unknown_hosted):
        cost = None
    cache, started = cache_use(stats.steps, model.model, model.price), turns[0].started
    return replace(
        record,
        steps=len(stats.steps),
        calls=len(called),
        searches=len(searches),
        ranked_by=", ".join(sorted(ranked)) or None,
        input_tokens=stats.sent_tokens,
        tokens_reused=cache.reused,
        first_reused=cache.first,
        cold_reused=cache.cold,
        warm_reused=cache.warm,
        output_tokens=None if stats.tokens.unknown_calls or not stats.llm_calls else stats.tokens.completion_tokens,
        origin=stats.parts.origin,
        reused_origin=cache.origin,
        seconds=sum(turn.seconds for turn in turns),
        cost=cost.amount if cost else None,
        cold_cost=cache.cold_cost if cost else None,
        warm_cost=cache.warm_cost if cost else None,
        currency=cost.currency if cost else None,
        provider=started.provider,
        discovery=started.discovery,
        searchable=started.deferred,
        undeferred_tokens=stats.undeferred_tokens if stats.discovery else None,
        answer=turns[-1].answer,
        found=tuple(hits),
        called=tuple(dict.fromkeys(called)),
        refused=tuple(dict.fromkeys(str(call.tool) for call in own if call.status == "denied")),
        transcript=dump_traces(turn.trace for turn in turns),
    )
