"""The view of the usage of turns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.tokens import deferral_rows, make_up_table, step_table
from casual_mcp_nb.display.view import (
    Bar,
    Block,
    Cell,
    DisplayLimits,
    KeyValues,
    Name,
    Section,
    Table,
    TextBlock,
    View,
    columns,
    fraction,
)
from casual_mcp_nb.types.event import SYNTHETIC, UNKNOWN
from casual_mcp_nb.types.prices import Cost
from casual_mcp_nb.types.stats import ChatStats, DiscoveryStats, ToolCallStats
from casual_mcp_nb.types.tool import ToolName, wire_name

_MAX_REASONS = 8


def stats_view(stats: ChatStats, limits: DisplayLimits) -> View:
    """Show tokens with their breakdown, the saving by deferring, tokens of each step, searches, calls by tool and by server."""
    blocks: list[Block] = [
        Section("Tokens", (KeyValues(_tokens(stats)),)),
        *_make_up(stats, limits),
        Section("Discovery", _discovery(stats, limits)),
        _calls("Calls by tool", "Tool", _by_tool(stats.tool_calls)),
        _calls("Calls by server", "Server", {_server(name): count for name, count in stats.tool_calls.by_server.items()}),
    ]
    if stats.tool_calls.hosted:
        blocks.append(_calls("Calls that the provider ran", "Hosted tool", stats.tool_calls.hosted))
    note = words.count(stats.tool_calls.total, "tool call")
    if stats.sent_tokens:
        note = f"{words.tokens(stats.sent_tokens, stats.parts.origin)} in, {note}"
    return View("stats", "Stats", tuple(blocks), note=note)


def _tokens(stats: ChatStats) -> tuple[tuple[str, Cell], ...]:
    tokens = stats.tokens
    facts: list[tuple[str, Cell]] = [
        ("Model calls", words.number(stats.llm_calls)),
        *(
            (label, words.tokens(value, tokens.origin))
            for label, value in (
                ("Input", tokens.prompt_tokens),
                ("Read from the cache", tokens.cached_tokens),
                ("Written to the cache", tokens.cache_write_tokens or None),
                ("Output", tokens.completion_tokens),
                ("Total", tokens.total_tokens),
            )
            if value is not None
        ),
    ]
    if stats.reused_tokens:
        share = words.percent(stats.reused_tokens / max(stats.sent_tokens, 1))
        facts.append(
            ("Same as in the request before", f"{words.tokens(stats.reused_tokens, 'estimated')} ({share} of the input)")
        )
    facts += [("Not read from the cache", miss) for miss in _misses(stats)]
    if tokens.unknown_calls:
        facts.append(("Note", f"{words.count(tokens.unknown_calls, 'model call')} reported no token count"))
    return (*facts, *_cost(stats.cost))


def _misses(stats: ChatStats) -> tuple[str, ...]:
    """Show why providers did not read their caches, in their own words, with the number of times each reason was given."""
    reasons = Counter(step.cache_miss.reason for step in stats.steps if step.cache_miss)
    return tuple(f"{reason} ({words.count(times, 'model call')})" for reason, times in reasons.most_common(_MAX_REASONS))


def _cost(cost: Cost | None) -> tuple[tuple[str, Cell], ...]:
    if cost is None:
        return ()
    missing = f"{words.count(cost.unknown_calls, 'model call')} without a price or a token count"
    facts: list[tuple[str, Cell]] = [("Cost", str(cost))]
    if cost.hosted:
        facts.append(("Of it hosted tools", str(Cost(cost.hosted, cost.currency))))
    if cost.unknown_calls:
        facts.append(("Not in the cost", missing))
    if cost.unknown_hosted:
        facts.append(("Not in the cost", f"{words.count(cost.unknown_hosted, 'call')} of hosted tools without a price"))
    return tuple(facts)


def _make_up(stats: ChatStats, limits: DisplayLimits) -> tuple[Section, ...]:
    if not stats.steps:
        return ()
    note = words.tokens(stats.sent_tokens, stats.parts.origin)
    return (
        Section("Tokens by part", (make_up_table(stats.parts),), note=note),
        Section("Tokens by step", (step_table(stats.steps, limits),), fold="open"),
    )


def _discovery(stats: ChatStats, limits: DisplayLimits) -> tuple[Block, ...]:
    if stats.discovery is None and not stats.llm_calls:
        return (TextBlock("No turns yet."),)
    if stats.discovery is None:
        return (KeyValues((("Searches", "discovery was off"),)),)
    counts = KeyValues(
        (
            ("Searches", words.number(stats.discovery.search_calls)),
            ("Tools discovered", words.number(stats.discovery.tools_discovered)),
        )
    )
    savings = (KeyValues(deferral_rows(stats)),) if stats.steps else ()
    return (counts, *savings, *_search_outcomes(stats.discovery, limits))


def _search_outcomes(discovery: DiscoveryStats, limits: DisplayLimits) -> tuple[Section, ...]:
    """Show how often each tool that searches returned was found and called; those that were never called come last."""
    if not discovery.found:
        return ()
    called = discovery.called
    ranked = sorted(discovery.found.items(), key=lambda item: (-called.get(item[0], 0), -item[1], item[0]))
    rows = tuple((Name(name), words.number(times), words.number(called.get(name, 0))) for name, times in ranked[: limits.rows])
    unused = sum(name not in called for name in discovery.found)
    note = f"{unused:,} never called" if unused else ""
    table = Table(columns("Tool", "Found #", "Calls #"), rows, len(ranked) - len(rows))
    return (Section("Tools found", (table,), note=note, fold="closed"),)


def _by_tool(calls: ToolCallStats) -> dict[str, int]:
    """Replace the wire names in counts by `server:tool`."""
    prefixes = {wire_name(ToolName(server, "")): server for server in sorted(calls.by_server, key=len)}
    names: dict[str, int] = {}
    for name, count in calls.by_tool.items():
        prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), "")
        names[f"{prefixes[prefix]}:{name.removeprefix(prefix)}" if prefix else _server(name)] = count
    return names


def _server(name: str) -> str:
    return {SYNTHETIC: "built-in", UNKNOWN: "no such tool"}.get(name, name)


def _calls(title: str, heading: str, counts: Mapping[str, int]) -> Section:
    most = max(counts.values(), default=0)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = tuple((Name(name), Bar(words.number(number), fraction(number, most))) for name, number in ranked)
    return Section(title, (Table(columns(heading, "Calls"), rows) if rows else TextBlock("None."),))
