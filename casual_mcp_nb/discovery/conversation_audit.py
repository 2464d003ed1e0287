"""What deferring would have saved in a past conversation: its requests counted again, with every tool
deferred.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from casual_mcp_nb.base.config import DiscoveryOptions
from casual_mcp_nb.base.displayable import Displayable
from casual_mcp_nb.base.tokens import REUSED_WEIGHT, Origin, definition_tokens, message_tokens
from casual_mcp_nb.base.tool import ToolName, ToolSpec, wire_name
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import (
    CALL_TOOL,
    FINDING,
    PACKAGE_TOOLS,
    RUN_CODE,
    Request,
    StepStarted,
    ToolStarted,
)
from casual_mcp_nb.conversation.stats import StepStats
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.usage import ToolUsage, usage_of
from casual_mcp_nb.discovery.manifest import compose, generate_manifest, manifest_budget
from casual_mcp_nb.discovery.search_tools import (
    Finder,
    FoundTools,
    SearchArguments,
    SearchToolsTool,
)

_DEFERRING = FINDING | {CALL_TOOL, RUN_CODE}
"""A request that offers one of these does not send every definition."""


@dataclass(frozen=True)
class InputTokens:
    """The input of several requests.

    Args:
        requests: How many they are.
        definitions: The tokens of their tool definitions, with the search tool and its manifest.
        total: All their tokens.
        cached: Those that the provider reads from its cache.
    """

    requests: int = 0
    definitions: int = 0
    total: int = 0
    cached: int = 0

    @property
    def weighted(self) -> int:
        """All tokens, with cached ones counted as a tenth."""
        return round(self.total - (1 - REUSED_WEIGHT) * self.cached)

    def __add__(self, other: InputTokens) -> InputTokens:
        return InputTokens(
            self.requests + other.requests,
            self.definitions + other.definitions,
            self.total + other.total,
            self.cached + other.cached,
        )


@dataclass(frozen=True)
class ConversationAudit(Displayable):
    """What a conversation's requests took, and what they would have taken with every tool deferred.

    The same calls are assumed. Before a tool's first call, one more request searches for it by
    name, and loads what the search finds. Then the definitions differ, so that a cache has only
    those before. What the provider reported is the basis: only the other side is estimated.

    Args:
        requests: How many requests the conversation has.
        deferring: How many of them deferred tools already. They are not compared.
        tools: How many tools the compared requests sent.
        sent: The compared requests: those that send tool definitions which are recorded.
        deferred: The same with every tool deferred, estimated.
        origin: Who counted the tokens that were sent.
        cache_reported: Whether the provider reported cached tokens. Otherwise none count.
        usage: How the tools were used.
    """

    requests: int = 0
    deferring: int = 0
    tools: int = 0
    sent: InputTokens = field(default_factory=InputTokens)
    deferred: InputTokens = field(default_factory=InputTokens)
    origin: Origin = "estimated"
    cache_reported: bool = False
    usage: ToolUsage = field(default_factory=ToolUsage, repr=False)

    @property
    def searches(self) -> int:
        """How many more requests deferring would have taken."""
        return self.deferred.requests - self.sent.requests

    @property
    def saved(self) -> float | None:
        """The share of the input that deferring would have saved, with cached tokens counted as a
        tenth. Below 0 if it would have cost more, None if nothing can be compared.
        """
        before = self.sent.weighted
        return 1 - self.deferred.weighted / before if before else None

    @property
    def calls_by_server(self) -> dict[str, int]:
        """How many calls each server's tools had, the most called first."""
        calls: dict[str, int] = {}
        for use in self.usage:
            if use.calls:
                calls[use.tool.server] = calls.get(use.tool.server, 0) + use.calls
        return dict(sorted(calls.items(), key=_by_calls))

    def as_dict(self) -> dict[str, Any]:
        """Convert it to plain values, for JSON."""
        return {
            "requests": self.requests,
            "deferring": self.deferring,
            "tools": self.tools,
            "searches": self.searches,
            "sent": {**asdict(self.sent), "weighted": self.sent.weighted},
            "deferred": {**asdict(self.deferred), "weighted": self.deferred.weighted},
            "origin": self.origin,
            "cache_reported": self.cache_reported,
            "saved": self.saved,
            "calls_by_server": self.calls_by_server,
        }


def _by_calls(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def audit_conversation(source: str | Path | Iterable[Turn]) -> ConversationAudit:
    """Compute what deferring would have saved in a past conversation.

    Args:
        source: Its turns, or a file that `Conversation.load` reads: a saved conversation, or
            another agent's session.

    Returns:
        What its requests took, and what they would have taken with every tool deferred. Where a
        file has no tool definitions, as those of Claude Code and Codex, nothing is compared.

    Raises:
        UsageError: The file cannot be read.

    Example:
        `audit_conversation(session.turns).saved` is the share that deferring would have saved.
    """
    if isinstance(source, str | Path):
        source = Conversation.load(Path(source).expanduser())
    turns = list(source)
    reader = _Reader()
    requests = deferring = 0
    compared: list[_Sent] = []
    for turn in turns:
        for started, step, called in _requests(turn):
            requests += 1
            offered = reader.read(started.request)
            if offered.is_deferring:
                deferring += 1
            elif offered.tools and step.parts.tools:
                compared.append(_Sent(step, offered, called))
    replay = _Replay(reader.specs(turns, {name for each in compared for name in each.offer.tools}))
    for each in compared:
        replay.send(each)
    origins = {each.step.parts.origin for each in compared}
    return ConversationAudit(
        requests=requests,
        deferring=deferring,
        tools=len(replay.specs),
        sent=replay.sent,
        deferred=replay.deferred,
        origin="reported" if origins == {"reported"} else "estimated",
        cache_reported=any(each.step.cached_tokens is not None for each in compared),
        usage=usage_of(turns),
    )


def _requests(turn: Turn) -> Iterator[tuple[StepStarted, StepStats, list[str]]]:
    """Yield a turn's requests, each with its stats and the wire names of the tools that its answer
    calls.
    """
    called: dict[int, list[str]] = {}
    steps: dict[str, int] = {}
    for call in turn.trace.of(ToolStarted):
        steps[call.call_id] = call.step
        # A call that a function made is not the model's. A subagent has steps of its own.
        if call.parent is None or steps.get(call.parent) != call.step:
            name = call.wire_name or wire_name(call.tool)
            called.setdefault(call.step, []).append(name)
    stats = {step.step: step for step in turn.stats.steps}
    for started in turn.trace.of(StepStarted):
        if started.step in stats:
            yield started, stats[started.step], called.get(started.step, [])


class _Offer(NamedTuple):
    """The tokens of a request's definitions: by wire name, and of this package's own."""

    tools: Mapping[str, int]
    own: int
    is_deferring: bool


class _Sent(NamedTuple):
    """A request that was sent, and the wire names of the tools that its answer called."""

    step: StepStats
    offer: _Offer
    called: list[str]


class _Reader:
    """Reads the definitions in requests. Those of one object are counted once."""

    def __init__(self) -> None:
        self._tokens: dict[int, int] = {}
        self._definitions: dict[str, Mapping[str, Any]] = {}

    def read(self, request: Request) -> _Offer:
        """Read a request's definitions."""
        tools: dict[str, int] = {}
        own = 0
        is_deferring = bool(request.found)
        for definition in request.tools:
            name = definition.get("name")
            if id(definition) not in self._tokens:
                self._tokens[id(definition)] = definition_tokens(definition)
            tokens = self._tokens[id(definition)]
            if not isinstance(name, str) or name in PACKAGE_TOOLS:
                own += tokens
                is_deferring = is_deferring or name in _DEFERRING
            else:
                tools[name] = tokens
                self._definitions[name] = definition
        return _Offer(tools, own, is_deferring)

    def specs(self, turns: Iterable[Turn], wanted: Iterable[str]) -> dict[str, ToolSpec]:
        """Make specs of definitions, by wire name."""
        known: dict[str, ToolName] = {}
        for turn in turns:
            for call in turn.trace.of(ToolStarted):
                known[call.wire_name] = call.tool
        specs: dict[str, ToolSpec] = {}
        for name in sorted(wanted):
            definition = self._definitions[name]
            tool = known.get(name) or ToolName.split(name)
            text, schema = definition.get("description"), definition.get("parameters")
            specs[name] = ToolSpec(
                tool.server or "tools",
                tool.tool,
                text if isinstance(text, str) else "",
                schema if isinstance(schema, Mapping) else {},
                wire_name=name,
            )
        return specs


class _Replay:
    """Counts requests again, as if they were sent with every tool deferred."""

    def __init__(self, specs: Mapping[str, ToolSpec]) -> None:
        self.specs = specs
        self.sent = self.deferred = InputTokens()
        self._options = DiscoveryOptions()
        tools = tuple(specs.values())
        room = manifest_budget(
            sum(tool.tokens for tool in tools), self._options.manifest_max_tokens
        )
        search = SearchToolsTool(tools, manifest=generate_manifest(tools, room))
        self._search_tool = definition_tokens(search.definition)
        self._finder = Finder(tools, (), None, self._options.max_search_results)
        self._loaded: set[ToolName] = set()
        self._called: set[ToolName] = set()
        self._searches = 0

    def send(self, request: _Sent) -> None:
        """Count a request, and one more before it if its answer needs a search."""
        parts = request.step.parts
        cached = min(request.step.cached_tokens or 0, parts.total)
        self.sent += InputTokens(1, parts.tools, parts.total, cached)
        before = self._input(request)
        if cached:
            # What was new in the request would have been new as well.
            before = _reading(before, before.total - (parts.total - cached))
        self.deferred += before
        called = [self.specs[name] for name in request.called if name in request.offer.tools]
        missing = [tool for tool in called if tool.tool_name not in self._loaded]
        if missing:
            for tool in missing:
                self._search(tool)
            after = self._input(request)
            # Providers render the tools first, so that a new one ends what the cache has.
            self.deferred += _reading(after, before.definitions if cached else 0)
        self._called.update(tool.tool_name for tool in called)

    def _input(self, request: _Sent) -> InputTokens:
        """Count a request with the tools that are loaded now, in the unit of what was reported."""
        parts, offer = request.step.parts, request.offer
        scale = parts.tools / (sum(offer.tools.values()) + offer.own)
        definitions = offer.own + self._search_tool
        for name, tokens in offer.tools.items():
            if self.specs[name].tool_name in self._loaded:
                definitions += tokens
        others = parts.total - parts.tools + round(scale * self._searches)
        definitions = round(scale * definitions)
        return InputTokens(1, definitions, others + definitions)

    def _search(self, tool: ToolSpec) -> None:
        """Load what a search for a tool finds, and add the messages to those of later requests."""
        from casual_llm.messages import (
            AssistantMessage,
            AssistantToolCall,
            AssistantToolCallFunction,
            ToolResultMessage,
        )

        if tool.tool_name in self._loaded:
            return
        unused = self._loaded - self._called
        found = self._finder.find(SearchArguments(query=tool.name), self._loaded, unused)
        if tool not in found.tools:
            found = FoundTools({tool: None})
        content, inside = compose(
            tuple(found.tools),
            self._loaded,
            found.notes,
            filled=found.filled,
            siblings=found.siblings,
            max_tokens=self._options.max_search_tokens,
        )
        self._loaded |= {tool.tool_name, *(each.tool_name for each in inside)}
        written = json.dumps({"query": tool.name})
        function = AssistantToolCallFunction(name=SearchToolsTool.name, arguments=written)
        call = AssistantToolCall(id="search", function=function)
        asked = AssistantMessage(content="", tool_calls=[call])
        answer = ToolResultMessage(name=function.name, tool_call_id=call.id, content=content)
        self._searches += message_tokens(asked) + message_tokens(answer)


def _reading(tokens: InputTokens, cached: int) -> InputTokens:
    """Say how much of a request the cache has."""
    return InputTokens(tokens.requests, tokens.definitions, tokens.total, max(cached, 0))
