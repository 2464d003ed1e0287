"""The view of what turns used."""

from __future__ import annotations

from collections.abc import Mapping

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.tokens import deferral_facts, make_up_table, step_table
from casual_mcp_nb.display.view import (
    Bar,
    Block,
    Cell,
    DisplayLimits,
    KeyValues,
    Name,
    Section,
    Table,
    Text,
    View,
    columns,
    fraction,
)
from casual_mcp_nb.types.prices import Cost
from casual_mcp_nb.types.stats import ChatStats


def stats_view(stats: ChatStats, limits: DisplayLimits) -> View:
    """Return tokens with their breakdown, what deferring saved, tokens of each step, searches, calls by tool and by server."""
    blocks: list[Block] = [
        Section("Tokens", (KeyValues(_tokens(stats)),)),
        *_make_up(stats, limits),
        Section("Discovery", _discovery(stats)),
        _calls("Calls by tool", "Tool", stats.tool_calls.by_tool),
        _calls("Calls by server", "Server", stats.tool_calls.by_server),
    ]
    return View("stats", "Stats", tuple(blocks), note=words.count(stats.tool_calls.total, "tool call"))


def _tokens(stats: ChatStats) -> tuple[tuple[str, Cell], ...]:
    tokens = stats.tokens
    facts: list[tuple[str, Cell]] = [
        ("Model calls", words.number(stats.llm_calls)),
        ("Request tokens", words.tokens(tokens.prompt_tokens, tokens.origin)),
        ("Answer tokens", words.tokens(tokens.completion_tokens, tokens.origin)),
        ("All tokens", words.tokens(tokens.total_tokens, tokens.origin)),
    ]
    if tokens.cached_tokens is not None:
        facts.append(("Of the requests, cached", words.tokens(tokens.cached_tokens, tokens.origin)))
    if tokens.unknown_calls:
        facts.append(("Not in these sums", f"{words.count(tokens.unknown_calls, 'call')} of the model without a count"))
    return (*facts, *_cost(stats.cost))


def _cost(cost: Cost | None) -> tuple[tuple[str, Cell], ...]:
    if cost is None:
        return ()
    missing = f"{words.count(cost.unknown_calls, 'call')} of the model without a price or a count"
    return (("Cost", str(cost)), *((("Not in this cost", missing),) if cost.unknown_calls else ()))


def _make_up(stats: ChatStats, limits: DisplayLimits) -> tuple[Section, ...]:
    if not stats.steps:
        return ()
    note = words.tokens(stats.sent_tokens, stats.parts.origin)
    return (
        Section("Requests by part", (make_up_table(stats.parts),), note=note),
        Section("Requests by step", (step_table(stats.steps, limits),), fold="open"),
    )


def _discovery(stats: ChatStats) -> tuple[Block, ...]:
    if stats.discovery is None and not stats.llm_calls:
        return (Text("No turns yet."),)
    if stats.discovery is None:
        return (KeyValues((("Searches", "discovery was off"),)),)
    counts = KeyValues(
        (
            ("Searches", words.number(stats.discovery.search_calls)),
            ("Tools discovered", words.number(stats.discovery.tools_discovered)),
        )
    )
    return (counts, deferral_facts(stats)) if stats.steps else (counts,)


def _calls(title: str, noun: str, counts: Mapping[str, int]) -> Section:
    most = max(counts.values(), default=0)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = tuple((Name(name), Bar(words.number(number), fraction(number, most))) for name, number in ranked)
    return Section(title, (Table(columns(noun, "Calls"), rows) if rows else Text("There were none."),))
