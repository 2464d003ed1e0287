"""Views of what turns took."""

from __future__ import annotations

from collections.abc import Mapping

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.search import fraction
from casual_mcp_nb.display.view import Bar, Block, Cell, Facts, Limits, Name, Section, Table, Text, View, columns
from casual_mcp_nb.types.stats import ChatStats
from casual_mcp_nb.types.step import Step

_PARTS = ("System #", "Manifest #", "Tools #", "History #", "Results #")


def stats_view(stats: ChatStats, limits: Limits) -> View:
    """Tokens, calls by tool and by server, searches."""
    tokens = stats.tokens
    facts: list[tuple[str, Cell]] = [
        ("Model calls", words.number(stats.llm_calls)),
        ("Sent in all", words.tokens(stats.sent_tokens, stats.sent_origin)),
        ("Request tokens", words.tokens(tokens.prompt_tokens, tokens.origin)),
        ("Answer tokens", words.tokens(tokens.completion_tokens, tokens.origin)),
        ("All tokens", words.tokens(tokens.total_tokens, tokens.origin)),
    ]
    if tokens.unknown_calls:
        facts.append(("Not in these sums", f"{words.count(tokens.unknown_calls, 'call')} of the model without a count"))
    blocks: list[Block] = [
        Section("Tokens", (Facts(tuple(facts)),)),
        Section("Discovery", (Facts(_discovery(stats)),)),
        _calls("Calls by tool", "Tool", stats.tool_calls.by_tool),
        _calls("Calls by server", "Server", stats.tool_calls.by_server),
    ]
    return View("stats", "Stats", tuple(blocks), note=words.count(stats.tool_calls.total, "tool call"))


def _discovery(stats: ChatStats) -> tuple[tuple[str, Cell], ...]:
    if stats.discovery is None:
        return (("Searches", "discovery was off"),)
    return (
        ("Searches", words.number(stats.discovery.search_calls)),
        ("Tools discovered", words.number(stats.discovery.tools_discovered)),
    )


def _calls(title: str, noun: str, counts: Mapping[str, int]) -> Section:
    most = max(counts.values(), default=0)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    rows = tuple((Name(name), Bar(words.number(number), fraction(number, most))) for name, number in ranked)
    return Section(title, (Table(columns(noun, "Calls"), rows) if rows else Text("There were none."),))


def token_table(steps: list[Step], limits: Limits) -> Table:
    """What each request was made of, and its answer; of a long turn the last ones."""
    last = steps[-max(1, limits.rows // 2) :]
    most = max((step.request.tokens.total for step in last), default=0)
    titles = columns("Step", *_PARTS, "Request", "Counts", "Answer")
    return Table(titles, tuple(_token_row(step, most) for step in last), len(steps) - len(last))


def _token_row(step: Step, most: int) -> tuple[Cell, ...]:
    parts = step.request.tokens
    return (
        str(step.index + 1),
        *(words.number(value) for value in parts.as_dict().values()),
        Bar(words.number(parts.total), fraction(parts.total, most)),
        parts.origin,
        answer_tokens(step),
    )


def answer_tokens(step: Step) -> str:
    """The tokens of a step's answer with their origin, or `unknown`."""
    usage = step.usage
    if usage is None or usage.completion_tokens is None:
        return words.UNKNOWN
    return f"{words.number(usage.completion_tokens)} ({usage.origin})"
