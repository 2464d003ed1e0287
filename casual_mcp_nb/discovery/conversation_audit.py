"""What deferring would have saved in a past conversation: its requests counted again, with every tool
deferred.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from casual_mcp_nb.base.config import DiscoveryOptions
from casual_mcp_nb.base.displayable import Displayable
from casual_mcp_nb.base.tokens import (
    REUSED_WEIGHT,
    Origin,
    TokenParts,
    definition_tokens,
    estimate_tokens,
    total_tokens,
)
from casual_mcp_nb.base.tool import ToolName, ToolSpec
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import CALL_TOOL, FINDING, RUN_CODE, Request
from casual_mcp_nb.conversation.step import Step, with_nested
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.usage import ToolUsage, offer_of, usage_of
from casual_mcp_nb.discovery.manifest import compose, generate_manifest, manifest_budget
from casual_mcp_nb.discovery.search_tools import (
    Finder,
    FoundTools,
    SearchArguments,
    SearchToolsTool,
)

_DEFERRING = FINDING | {CALL_TOOL, RUN_CODE}
"""A request that offers one of these does not send every definition."""
_TWO_MESSAGES = 20
"""Tokens in a search's call and its result, besides the query and the text."""


class InputTokens(NamedTuple):
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


@dataclass(frozen=True)
class ConversationAudit(Displayable):
    """What a conversation's requests took, and what they would have taken with every tool deferred.

    The same calls are assumed. Before a tool's first call, one more request searches for its name,
    and loads what the search finds. That changes the definitions, so that of the next request only
    those before it are in a cache.

    Args:
        requests: How many requests the conversation has.
        deferring: How many of them deferred tools already. They are not compared.
        sent: The compared requests: those whose tool definitions are recorded.
        deferred: The same with every tool deferred, estimated.
        origin: Who counted the tokens that were sent.
        usage: How the tools were used.
    """

    requests: int = 0
    deferring: int = 0
    sent: InputTokens = field(default_factory=InputTokens)
    deferred: InputTokens = field(default_factory=InputTokens)
    origin: Origin = "estimated"
    usage: ToolUsage = field(default_factory=ToolUsage, repr=False)

    @property
    def saved(self) -> float | None:
        """The share of the input that deferring would have saved, with cached tokens counted as a
        tenth. Below 0 if it would have cost more, None if nothing can be compared.
        """
        before = self.sent.weighted
        return 1 - self.deferred.weighted / before if before else None


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
    """
    if isinstance(source, str | Path):
        source = Conversation.load(Path(source).expanduser())
    turns = list(source)
    deferring: list[Step] = []
    others: list[Step] = []
    for turn in turns:
        for step in turn.steps:
            if _is_deferring(step.request):
                deferring.append(step)
            else:
                others.append(step)
    replay = _Replay(others)
    return ConversationAudit(
        requests=len(deferring) + len(others),
        deferring=len(deferring),
        sent=_sum(replay.sent),
        deferred=_sum(replay.deferred),
        origin=replay.parts.origin,
        usage=usage_of(turns),
    )


def _is_deferring(request: Request) -> bool:
    return bool(request.found) or any(str(tool.get("name")) in _DEFERRING for tool in request.tools)


def _sum(inputs: Iterable[InputTokens]) -> InputTokens:
    return InputTokens(*map(sum, zip(*inputs, strict=True)))


class _Replay:
    """Counts requests again, as if they were sent with every tool deferred."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self.sent: list[InputTokens] = []
        self.deferred: list[InputTokens] = []
        self.parts = TokenParts(origin="reported")
        self._specs: dict[str, ToolSpec] = {}
        self._loaded: set[ToolName] = set()
        self._called: set[ToolName] = set()
        self._said = 0
        offered = []
        for step in steps:
            tools = dict(offer_of(step.request.tools))
            if tools and step.request.tokens.tools:
                offered.append((step, tools))
                for definition in step.request.tools:
                    name = definition.get("name")
                    if isinstance(name, str) and name in tools:
                        self._specs[name] = _spec(definition)
        specs = tuple(self._specs.values())
        options = DiscoveryOptions()
        room = manifest_budget(total_tokens(specs), options.manifest_max_tokens)
        search = SearchToolsTool(specs, manifest=generate_manifest(specs, room))
        self._search_tool = definition_tokens(search.definition)
        self._most = options.max_search_tokens
        self._finder = Finder(specs, (), None, options.max_search_results)
        for step, tools in offered:
            self._send(step, tools)

    def _send(self, step: Step, tools: Mapping[str, int]) -> None:
        """Count a request with the tokens of its tools, and once more if its answer needs a search."""
        parts = step.request.tokens
        self.parts += parts
        cached = 0
        if step.usage is not None:
            cached = min(step.usage.cached_tokens or 0, parts.total)
        self.sent.append(InputTokens(1, parts.tools, parts.total, cached))
        before = self._input(parts, tools)
        if cached:
            # What was new in the request is new in this one.
            repeated = before.total - (parts.total - cached)
            before = before._replace(cached=max(repeated, 0))
        self.deferred.append(before)
        names = [call.name for call in with_nested(step.tool_calls)]
        called = {self._specs[name].tool_name: self._specs[name] for name in names if name in tools}
        if not called.keys() <= self._loaded:
            for spec in called.values():
                self._search(spec)
            after = self._input(parts, tools)
            # Providers render the tools first, so that new ones end what the cache has.
            self.deferred.append(after._replace(cached=before.definitions if cached else 0))
        self._called |= called.keys()

    def _input(self, parts: TokenParts, tools: Mapping[str, int]) -> InputTokens:
        """Count a request with the tools that are loaded now, in the unit of its parts."""
        scale = parts.tools / sum(tools.values())
        definitions = self._search_tool
        for name, tokens in tools.items():
            if self._specs[name].tool_name in self._loaded:
                definitions += tokens
        others = parts.total - parts.tools + round(scale * self._said)
        return InputTokens(1, round(scale * definitions), others + round(scale * definitions))

    def _search(self, spec: ToolSpec) -> None:
        """Load what a search for a tool finds. Later requests repeat its call and its result."""
        if spec.tool_name in self._loaded:
            return
        unused = self._loaded - self._called
        found = self._finder.find(SearchArguments(query=spec.name), self._loaded, unused)
        if spec not in found.tools:
            found = FoundTools({spec: None})
        text, inside = compose(
            tuple(found.tools),
            self._loaded,
            found.notes,
            filled=found.filled,
            siblings=found.siblings,
            max_tokens=self._most,
        )
        self._loaded |= {spec.tool_name, *(each.tool_name for each in inside)}
        self._said += _TWO_MESSAGES + estimate_tokens(spec.name) + estimate_tokens(text)


def _spec(definition: Mapping[str, Any]) -> ToolSpec:
    name, schema = definition["name"], definition.get("parameters")
    tool = ToolName.split(name)
    return ToolSpec(
        tool.server or "tools",
        tool.tool,
        str(definition.get("description") or ""),
        schema if isinstance(schema, Mapping) else {},
        wire_name=name,
    )
