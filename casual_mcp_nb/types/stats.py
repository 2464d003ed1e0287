"""Counts over a turn or a conversation. They are computed from traces and can be added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from casual_mcp_nb.types.event import Event, StepFinished, StepStarted, ToolsSearched, ToolStarted, TurnStarted
from casual_mcp_nb.types.rich import Rich
from casual_mcp_nb.types.tokens import Origin, TokenUsage


@dataclass(frozen=True)
class TokenUsageStats:
    """Tokens over several calls of a model.

    `None` where no call has a count; `unknown_calls` says how many calls are missing from the sums. `origin` says
    `estimated` as soon as one of the counts is.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    unknown_calls: int = 0
    origin: Origin = "reported"

    @property
    def total_tokens(self) -> int | None:
        """Requests and answers together, or None where neither is known."""
        if self.prompt_tokens is None and self.completion_tokens is None:
            return None
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)

    def __add__(self, other: TokenUsageStats) -> TokenUsageStats:
        return TokenUsageStats(
            _add(self.prompt_tokens, other.prompt_tokens),
            _add(self.completion_tokens, other.completion_tokens),
            self.unknown_calls + other.unknown_calls,
            _origin(self.origin, other.origin),
        )


@dataclass(frozen=True)
class ToolCallStats:
    """Calls by tool (its name on the wire) and by server. Our own tools count under the server `_synthetic`, names that are no
    tool's under `_unknown`."""

    by_tool: Mapping[str, int] = field(default_factory=dict)
    by_server: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All calls."""
        return sum(self.by_tool.values())

    def __add__(self, other: ToolCallStats) -> ToolCallStats:
        return ToolCallStats(
            dict(Counter(self.by_tool) + Counter(other.by_tool)),
            dict(Counter(self.by_server) + Counter(other.by_server)),
        )


@dataclass(frozen=True)
class DiscoveryStats:
    """How often the model searched, and how many tools that loaded."""

    search_calls: int = 0
    tools_discovered: int = 0

    def __add__(self, other: DiscoveryStats) -> DiscoveryStats:
        return DiscoveryStats(self.search_calls + other.search_calls, self.tools_discovered + other.tools_discovered)


@dataclass(frozen=True)
class ChatStats(Rich):
    """What a turn or a conversation took.

    Args:
        tokens: Tokens as counted; who counted is their `origin`.
        tool_calls: Calls by tool and server.
        llm_calls: Calls of the model that were answered.
        discovery: Searches; None where discovery was off.
        sent_tokens: Size of all requests: reported where that is known, estimated for the rest.
        sent_origin: `estimated` as soon as one of them is.
    """

    tokens: TokenUsageStats = field(default_factory=TokenUsageStats)
    tool_calls: ToolCallStats = field(default_factory=ToolCallStats)
    llm_calls: int = 0
    discovery: DiscoveryStats | None = None
    sent_tokens: int = 0
    sent_origin: Origin = "reported"

    def __add__(self, other: ChatStats) -> ChatStats:
        both = [stats for stats in (self.discovery, other.discovery) if stats is not None]
        return ChatStats(
            self.tokens + other.tokens,
            self.tool_calls + other.tool_calls,
            self.llm_calls + other.llm_calls,
            sum(both[1:], both[0]) if both else None,
            self.sent_tokens + other.sent_tokens,
            _origin(self.sent_origin, other.sent_origin),
        )

    @classmethod
    def of(cls, events: Iterable[Event]) -> ChatStats:
        """The stats of the turn that these events tell of."""
        events = list(events)
        sent_tokens, sent_origin = _sent(events)
        usages = [event.usage for event in events if isinstance(event, StepFinished)]
        started = [event for event in events if isinstance(event, ToolStarted)]
        searches = [event for event in events if isinstance(event, ToolsSearched)]
        discovery = any(event.discovery for event in events if isinstance(event, TurnStarted))
        return cls(
            tokens=sum((_usage_stats(usage) for usage in usages), TokenUsageStats()),
            tool_calls=ToolCallStats(
                dict(Counter(event.name for event in started)),
                dict(Counter(event.tool.server for event in started)),
            ),
            llm_calls=len(usages),
            discovery=DiscoveryStats(len(searches), sum(row.newly_loaded for event in searches for row in event.rows))
            if discovery
            else None,
            sent_tokens=sent_tokens,
            sent_origin=sent_origin,
        )


def _sent(events: list[Event]) -> tuple[int, Origin]:
    estimates = {event.step: event.request.tokens.total for event in events if isinstance(event, StepStarted)}
    usages = {event.step: event.usage for event in events if isinstance(event, StepFinished) and event.usage}
    reported = {s: u.prompt_tokens for s, u in usages.items() if u.prompt_tokens is not None and u.origin == "reported"}
    return sum((estimates | reported).values()), "reported" if estimates.keys() <= reported.keys() else "estimated"


def _origin(*origins: Origin) -> Origin:
    return "estimated" if "estimated" in origins else "reported"


def _usage_stats(usage: TokenUsage | None) -> TokenUsageStats:
    if usage is None:
        return TokenUsageStats(unknown_calls=1)
    return TokenUsageStats(usage.prompt_tokens, usage.completion_tokens, origin=usage.origin)


def _add(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b
