"""Views for statistics: tokens used and saved, searches, and calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from casual_mcp_nb.base.prices import Cost
from casual_mcp_nb.base.tool import ToolName, wire_name
from casual_mcp_nb.conversation.event import SEARCH_TOOLS, SYNTHETIC, UNKNOWN
from casual_mcp_nb.conversation.stats import ChatStats, DiscoveryStats, ToolCallStats
from casual_mcp_nb.conversation.view_requests import deferral_rows, make_up_table, step_table
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import (
    Bar,
    Block,
    Cell,
    DisplayLimits,
    Facts,
    KeyValues,
    Name,
    Row,
    Section,
    Table,
    TextBlock,
    View,
    columns,
    fraction,
    known,
)

_SKILLS = 8
_MAX_REASONS = 8


def stats_view(stats: ChatStats, limits: DisplayLimits) -> View:
    """Show the tokens used and saved, with their breakdown.

    Folded, tokens by step, searches, calls by tool and server.
    """
    by_server = {_server(name): count for name, count in stats.tool_calls.by_server.items()}
    blocks: list[Block] = [
        KeyValues((*_token_facts(stats), *_discovery_facts(stats), *_skill_facts(stats))),
        *_make_up(stats, limits),
        *_search_outcomes(stats.discovery, limits),
        _calls("Calls by tool", "Tool", _by_tool(stats.tool_calls)),
        _calls("Calls by server", "Server", by_server),
    ]
    if stats.tool_calls.hosted:
        blocks.append(_calls("Calls that the provider ran", "Hosted tool", stats.tool_calls.hosted))
    if stats.tool_calls.from_apps:
        blocks.append(_calls("Calls from apps", "Tool", stats.tool_calls.from_apps))
    searches = stats.tool_calls.by_tool.get(SEARCH_TOOLS, 0)
    note = words.count(stats.tool_calls.total - searches, "tool call")
    if searches:
        note = f"{words.count(searches, 'search')}, {note}"
    if stats.sent_tokens:
        note = f"{words.tokens(stats.sent_tokens, stats.parts.origin)} in, {note}"
    return View("stats", "Stats", tuple(blocks), note=note)


def _token_facts(stats: ChatStats) -> Facts:
    tokens, repeated, note = stats.tokens, "", ""
    if stats.reused_tokens:
        share = words.percent(stats.reused_tokens / max(stats.sent_tokens, 1))
        repeated = f"{words.tokens(stats.reused_tokens, 'estimated')} ({share} of the input)"
    # Where no call reported any, as with the offline planner, every figure is an estimate and
    # marked as such.
    if tokens.unknown_calls and tokens.prompt_tokens is not None:
        note = f"{words.count(tokens.unknown_calls, 'model call')} reported no token count"
    return known(
        ("Model calls", words.number(stats.llm_calls)),
        ("Input", words.tokens(tokens.prompt_tokens, tokens.origin)),
        ("Read from the cache", words.tokens(tokens.cached_tokens, tokens.origin)),
        ("Written to the cache", words.tokens(tokens.cache_write_tokens or None, tokens.origin)),
        ("Output", words.tokens(tokens.completion_tokens, tokens.origin)),
        ("Total", words.tokens(tokens.total_tokens, tokens.origin)),
        ("Repeated from the previous request", repeated),
        *(("Not read from the cache", miss) for miss in _misses(stats)),
        ("Note", note),
        *_cost(stats.cost),
    )


def _misses(stats: ChatStats) -> tuple[str, ...]:
    """Show why providers did not read their caches, in their own words, and how often each reason
    was given.
    """
    reasons = Counter(step.cache_miss.reason for step in stats.steps if step.cache_miss)
    return tuple(
        f"{reason} ({words.count(times, 'model call')})"
        for reason, times in reasons.most_common(_MAX_REASONS)
    )


def _cost(cost: Cost | None) -> Facts:
    if cost is None:
        return ()
    hosted, unpriced, unpriced_hosted = "", "", ""
    if cost.hosted:
        hosted = str(Cost(cost.hosted, cost.currency))
    if cost.unknown_calls:
        calls = words.count(cost.unknown_calls, "model call")
        unpriced = f"{calls} without a price or a token count"
    if cost.unknown_hosted:
        calls = words.count(cost.unknown_hosted, "call")
        unpriced_hosted = f"{calls} of hosted tools without a price"
    return known(
        ("Cost", str(cost)),
        ("Hosted tools, included", hosted),
        ("Not in the cost", unpriced),
        ("Not in the cost", unpriced_hosted),
    )


def _make_up(stats: ChatStats, limits: DisplayLimits) -> tuple[Section, ...]:
    if not stats.steps:
        return ()
    note = words.tokens(stats.sent_tokens, stats.parts.origin)
    return (
        Section("Tokens by part", (make_up_table(stats.parts),), note=note),
        Section(
            "Tokens by step",
            (step_table(stats.steps, limits),),
            note=words.count(len(stats.steps), "step"),
            fold="closed",
        ),
    )


def _discovery_facts(stats: ChatStats) -> Facts:
    discovery = stats.discovery
    if discovery is None:
        return (("Searches", "discovery was off" if stats.llm_calls else "no turns yet"),)
    searches = words.number(discovery.search_calls)
    if discovery.search_calls:
        searches = f"{searches}, {words.count(discovery.tools_discovered, 'tool')} found"
    facts: list[tuple[str, Cell]] = [("Searches", searches)]
    if stats.steps:
        facts += deferral_rows(stats)[1:]
    return tuple(facts)


def _skill_facts(stats: ChatStats) -> Facts:
    if not stats.skills:
        return ()
    return (("Skills read", words.listed(stats.skills, _SKILLS)),)


def _search_outcomes(
    discovery: DiscoveryStats | None, limits: DisplayLimits
) -> tuple[Section, ...]:
    """Show how often each tool that searches returned was found and called.

    Those that were never called come last.
    """
    if discovery is None or not discovery.found:
        return ()
    called = discovery.called
    ranked = sorted(
        discovery.found.items(), key=lambda item: (-called.get(item[0], 0), -item[1], item[0])
    )

    def row(item: tuple[str, int]) -> Row:
        name, times = item
        return (Name(name), words.number(times), words.number(called.get(name, 0)))

    unused = sum(name not in called for name in discovery.found)
    note = f"{unused:,} never called" if unused else ""
    table = Table.of(columns("Tool", "Found #", "Calls #"), ranked, row, limits.rows)
    return (Section("Tools found", (table,), note=note, fold="closed"),)


def _by_tool(calls: ToolCallStats) -> dict[str, int]:
    """Replace the wire names in counts by `server:tool`."""
    prefixes = {
        wire_name(ToolName(server, "")): server for server in sorted(calls.by_server, key=len)
    }
    names: dict[str, int] = {}
    for name, count in calls.by_tool.items():
        prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), None)
        shown = _server(name)
        if prefix is not None:
            shown = f"{prefixes[prefix]}:{name.removeprefix(prefix)}"
        names[shown] = count
    return names


def _server(name: str) -> str:
    return {SYNTHETIC: "built-in", UNKNOWN: "no such tool"}.get(name, name)


def _calls(title: str, heading: str, counts: Mapping[str, int]) -> Section:
    most = max(counts.values(), default=0)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    # Bars with the same length compare nothing.
    differ = len(set(counts.values())) > 1
    rows = tuple(
        (Name(name), Bar(words.number(number), fraction(number, most) if differ else None))
        for name, number in ranked
    )
    table = Table(columns(heading, "Calls", shares=(40, 60)), rows)
    note = words.count(sum(counts.values()), "call")
    return Section(title, (table if rows else TextBlock("None."),), note=note, fold="closed")
