"""Statistics for a turn or a conversation, computed from traces. They can be added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from casual_mcp_nb.base.displayable import Displayable, display
from casual_mcp_nb.base.iterables import attributes, grouped, of_type
from casual_mcp_nb.base.prices import Cost, Price, total_cost
from casual_mcp_nb.base.tokens import (
    CacheMiss,
    Origin,
    TokenParts,
    TokenUsage,
    estimate_tokens,
    summed,
)
from casual_mcp_nb.base.tool import wire_name
from casual_mcp_nb.conversation.event import (
    FINDING,
    SYNTHETIC,
    UNKNOWN,
    AppCalled,
    Event,
    ModelRetry,
    Request,
    SkillRead,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolsSearched,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)

_MESSAGE_TOKENS = 4
"""Token overhead per message, besides its text."""
_NOT_SENT = ("spend_limit", "budget_reached")
"""The kinds of the errors that end a turn before its next request."""


@dataclass(frozen=True)
class TokenUsageStats:
    """Tokens of several model calls together.

    `None` if no call has a count. `unknown_calls` counts the calls that are missing from the sums.
    `origin` is `estimated` if any count is. `cached_tokens` are input that providers read from
    their caches, and `cache_write_tokens` input that they wrote to them.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    unknown_calls: int = 0
    origin: Origin = "reported"
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None

    @property
    def total_tokens(self) -> int | None:
        """Input and output together, or None if either is unknown."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens

    def model_dump(self) -> dict[str, int | None]:
        """Convert the counts to a dict, as casual-mcp does: `prompt_tokens`, `completion_tokens`,
        `total_tokens`.
        """
        return attributes(self, ("prompt_tokens", "completion_tokens", "total_tokens"))

    def __add__(self, other: TokenUsageStats) -> TokenUsageStats:
        return summed(self, other)


@dataclass(frozen=True)
class ToolCallStats:
    """Calls by tool (its wire name, whatever spelling the model used) and by server.

    Synthetic tools count under the server `_synthetic`. Unknown names all count under `_unknown`,
    in both. `failed` counts calls that ended in an error or at a limit. Nothing else includes
    `hosted`, calls that the provider ran itself, and `from_apps`, calls of apps by `server:tool`.
    """

    by_tool: Mapping[str, int] = field(default_factory=dict)
    by_server: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    hosted: Mapping[str, int] = field(default_factory=dict)
    from_apps: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """The total number of calls."""
        return sum(self.by_tool.values())

    def model_dump(self) -> dict[str, Any]:
        """Convert the counts to a dict, as casual-mcp does: `by_tool`, `by_server`, `total`."""
        return {
            "by_tool": dict(self.by_tool),
            "by_server": dict(self.by_server),
            "total": self.total,
        }

    def __add__(self, other: ToolCallStats) -> ToolCallStats:
        return summed(self, other)


@dataclass(frozen=True)
class DiscoveryStats:
    """Search count, and the tools that searches loaded.

    By `server:tool`, `found` counts how many searches returned each tool, and `called` how often it
    was called.
    """

    search_calls: int = 0
    tools_discovered: int = 0
    found: Mapping[str, int] = field(default_factory=dict)
    called: Mapping[str, int] = field(default_factory=dict)

    def model_dump(self) -> dict[str, int]:
        """Convert the counts to a dict, as casual-mcp does: `tools_discovered`, `search_calls`."""
        return {"tools_discovered": self.tools_discovered, "search_calls": self.search_calls}

    def __add__(self, other: DiscoveryStats) -> DiscoveryStats:
        return summed(self, other)


@dataclass(frozen=True)
class StepStats:
    """One model call's statistics.

    `turn` and `step` are indexes, from 0; displays and `to_frame` count from 1.
    `undeferred_tokens` is the request size if every tool had been loaded, or 0 for a step that only
    searched, since it would not have been needed. `reused` estimates how much repeats the previous
    request.
    """

    turn: int
    step: int
    parts: TokenParts
    undeferred_tokens: int
    completion_tokens: int | None = None
    answer_origin: Origin = "reported"
    seconds: float | None = None
    tool_calls: int = 0
    reused: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost: Cost | None = None
    cache_miss: CacheMiss | None = None


@dataclass(frozen=True)
class ChatStats(Displayable):
    """Statistics for a turn or a conversation.

    Args:
        tokens: The token counts, with their `origin`.
        tool_calls: Calls by tool and server.
        llm_calls: Answered model calls.
        discovery: Searches, or None if discovery was off.
        steps: Statistics per model call, in order, including unanswered ones, but not one that a
            limit kept from being sent.
        skills: How often the model read files of each skill, by `server:skill`.
    """

    tokens: TokenUsageStats = field(default_factory=TokenUsageStats)
    tool_calls: ToolCallStats = field(default_factory=ToolCallStats)
    llm_calls: int = 0
    discovery: DiscoveryStats | None = None
    steps: tuple[StepStats, ...] = ()
    skills: Mapping[str, int] = field(default_factory=dict)

    @property
    def parts(self) -> TokenParts:
        """Tokens by part, over all requests: reported where known, estimated otherwise."""
        if not self.steps:
            return TokenParts()
        return sum((step.parts for step in self.steps[1:]), self.steps[0].parts)

    @property
    def sent_tokens(self) -> int:
        """Tokens in all requests."""
        return sum(step.parts.total for step in self.steps)

    @property
    def reused_tokens(self) -> int:
        """Estimated tokens that each request repeats from the previous one, which a provider can
        cache.
        """
        return sum(step.reused or 0 for step in self.steps)

    @property
    def undeferred_tokens(self) -> int:
        """Tokens in all requests if every tool had been loaded: all definitions in each, and no
        searches.
        """
        return sum(step.undeferred_tokens for step in self.steps)

    @property
    def cost(self) -> Cost | None:
        """Estimated cost by the user's price table.

        None if no answered call has both price and token count, or if currencies differ.
        """
        return total_cost([step.cost for step in self.steps if step.seconds is not None])

    def model_dump(self) -> dict[str, Any]:
        """Convert the counts to a dict, as casual-mcp does: `tokens`, `tool_calls`, `llm_calls`,
        `discovery`.
        """
        return {
            "tokens": self.tokens.model_dump(),
            "tool_calls": self.tool_calls.model_dump(),
            "llm_calls": self.llm_calls,
            "discovery": self.discovery.model_dump() if self.discovery else None,
        }

    def to_frame(self) -> Any:
        """Build a pandas DataFrame with one row per model call.

        Raises:
            MissingDependencyError: pandas is not installed.
        """
        return display().frame_of(self)

    def plot(self) -> Any:
        """Plot each request's tokens by part, as stacked bars in a matplotlib figure.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
        return display().figure_of(self)

    def __add__(self, other: ChatStats) -> ChatStats:
        steps = self.steps + _after(self.steps, other.steps)
        return replace(summed(self, other), steps=steps)

    @classmethod
    def of(cls, events: Iterable[Event]) -> ChatStats:
        """Compute a turn's stats from its events."""
        events = list(events)
        tokens = TokenUsageStats()
        answers = failed = 0
        discovery = False
        started: list[ToolStarted] = []
        searches: list[ToolsSearched] = []
        hosted: Counter[str] = Counter()
        from_apps: Counter[str] = Counter()
        skills: Counter[str] = Counter()
        for event in events:
            match event:
                case TurnStarted():
                    discovery = discovery or event.discovery
                case StepFinished():
                    answers += 1
                    tokens += _usage_stats(event.usage)
                    hosted.update(call.name for call in event.hosted_calls)
                case ToolStarted():
                    started.append(event)
                case ToolFinished(status="error" | "timeout"):
                    failed += 1
                case ToolsSearched() if not event.unloaded:
                    searches.append(event)
                case AppCalled():
                    from_apps[str(event.tool)] += 1
                case SkillRead():
                    skills[str(event.skill)] += 1
        by_tool = Counter(map(_tool_key, started))
        by_server = Counter(event.tool.server for event in started)
        return cls(
            tokens,
            ToolCallStats(dict(by_tool), dict(by_server), failed, dict(hosted), dict(from_apps)),
            answers,
            _discovery(searches, started) if discovery else None,
            tuple(_steps(events)),
            dict(skills),
        )


def unsent_step(events: Iterable[Event]) -> int | None:
    """Find the step of a turn whose request was not sent because of a limit, or None."""
    step: int | None = None
    for event in events:
        match event:
            case StepStarted():
                step = event.step
            case StepFinished() | ModelRetry():
                step = None
            case TurnFinished() if event.failure is not None and event.failure.kind in _NOT_SENT:
                return step
    return None


def _discovery(searches: Iterable[ToolsSearched], started: Iterable[ToolStarted]) -> DiscoveryStats:
    count = loaded = 0
    found: Counter[str] = Counter()
    called: Counter[str] = Counter()
    for search in searches:
        count += 1
        for row in search.rows:
            loaded += row.newly_loaded
            found[str(row.tool)] += 1
    for call in started:
        if call.tool.server not in (SYNTHETIC, UNKNOWN):
            called[str(call.tool)] += 1
    return DiscoveryStats(count, loaded, dict(found), dict(called))


def _tool_key(event: ToolStarted) -> str:
    if event.tool.server in (SYNTHETIC, UNKNOWN):
        return event.tool.tool if event.tool.server == SYNTHETIC else UNKNOWN
    return event.wire_name or wire_name(event.tool)


def _after(steps: tuple[StepStats, ...], later: tuple[StepStats, ...]) -> tuple[StepStats, ...]:
    if not steps:
        return later
    turns = steps[-1].turn + 1
    return tuple(replace(step, turn=step.turn + turns) for step in later)


def _steps(events: list[Event]) -> Iterator[StepStats]:
    """Compute each step's stats.

    `undeferred_tokens` excludes the tools that searches added to later requests.
    """
    started = next(iter(of_type(events, TurnStarted)), None)
    answers = {event.step: event for event in of_type(events, StepFinished)}
    calls = grouped(of_type(events, ToolFinished), "step")
    of_searches = 0
    unsent = unsent_step(events)
    for event in events:
        if not isinstance(event, StepStarted) or event.step == unsent:
            continue
        answer, calls_made = answers.get(event.step), calls.get(event.step, [])
        searches = [call for call in calls_made if _only_finds(call)]
        only_searched = bool(calls_made) and len(searches) == len(calls_made)
        request = counted_request(event.request, answer)
        without = request.tokens.total
        if started is not None and started.discovery:
            all_tools = event.undeferred_tokens
            if all_tools is None:
                all_tools = started.undeferred_tokens
            estimated = event.request.tokens
            size = estimated.total - estimated.definitions - of_searches + all_tools
            without = round(size * request.tokens.total / max(estimated.total, 1))
            if only_searched:
                without = 0
        of_searches += sum(_MESSAGE_TOKENS + estimate_tokens(call.text) for call in searches)
        if only_searched and answer:
            for made in answer.message.tool_calls or ():
                of_searches += estimate_tokens(f"{made.function.name} {made.function.arguments}")
        yield _step_stats(event, answer, request, without, started.price if started else None)


def _only_finds(call: ToolFinished) -> bool:
    return call.tool.server == SYNTHETIC and call.tool.tool in FINDING


def _step_stats(
    event: StepStarted,
    answer: StepFinished | None,
    request: Request,
    without: int,
    price: Price | None,
) -> StepStats:
    stats = StepStats(0, event.step, request.tokens, without, reused=request.reused)
    if answer is None:
        return stats
    usage = answer.usage or TokenUsage()
    return replace(
        stats,
        seconds=answer.at - event.at,
        tool_calls=len(answer.message.tool_calls or ()),
        cost=cost_of(answer, price),
        completion_tokens=usage.completion_tokens,
        answer_origin=usage.origin,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        cache_miss=usage.cache_miss,
    )


def counted_request(request: Request, answer: StepFinished | None) -> Request:
    """Scale a request's estimates to the provider's count, if the answer has one."""
    tokens = request.tokens.as_counted(answer.usage if answer else None)
    if tokens is request.tokens:
        return request
    reused = request.reused
    if reused is not None:
        reused = reused * tokens.total // max(request.tokens.total, 1)
    return replace(request, tokens=tokens, reused=reused)


def cost_of(answer: StepFinished, price: Price | None) -> Cost | None:
    """Compute what an answer costs, or None if price or tokens are unknown."""
    if price is None:
        return None
    return price.of(answer.usage, [call.name for call in answer.hosted_calls])


def _usage_stats(usage: TokenUsage | None) -> TokenUsageStats:
    if usage is None:
        return TokenUsageStats(unknown_calls=1)
    names = (
        "prompt_tokens",
        "completion_tokens",
        "origin",
        "cached_tokens",
        "cache_write_tokens",
    )
    return TokenUsageStats(**attributes(usage, names))
