"""Which tools were really used: offered, found, called, in one conversation or in many."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.displayable import Displayable, DisplayableList
from casual_mcp_nb.base.iterables import present
from casual_mcp_nb.base.tokens import definition_tokens, total_tokens
from casual_mcp_nb.base.tool import SYNTHETIC, ToolName, wire_name
from casual_mcp_nb.conversation.event import PACKAGE_TOOLS, UNKNOWN, StepStarted, TurnStarted

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.turn import Turn


@dataclass(frozen=True)
class ToolUse(Displayable):
    """How one tool was used.

    Args:
        tool: The tool.
        requests: How many requests offered its definition.
        turns: How many turns these requests belong to.
        tokens: The estimated tokens of its definition, summed over these requests.
        definition: The estimated tokens of its definition in one request, as it was last sent, or 0
            if it never was.
        found: How many searches returned it.
        calls: How many calls the model, its programs and apps made.
        succeeded: How many of these calls ended without an error.
        seconds: How long they took together, without waiting for a person. A call that was stopped
            took the time until then.
        last_used: When it was last called, in seconds since 1970, or None if it never was, or the
            file does not say when.
    """

    tool: ToolName
    requests: int = 0
    turns: int = 0
    tokens: int = 0
    definition: int = 0
    found: int = 0
    calls: int = 0
    succeeded: int = 0
    seconds: float = 0.0
    last_used: float | None = None


@dataclass(frozen=True)
class ToolUsage(DisplayableList[ToolUse], items="tools"):
    """How the tools were used, the most called first.

    Attributes:
        tools: The tools that a request offered, a search returned or a call named.
        conversations: How many conversations were read.
        turns: How many turns they have, without those that were only added.
        requests: How many model calls they made.
        calls: How many tool calls the models, their programs and apps made.
        unread_records: How many lines and other records of other agents' sessions were not
            understood.
    """

    tools: tuple[ToolUse, ...] = field(default=(), repr=False)
    conversations: int = 0
    turns: int = 0
    requests: int = 0
    unread_records: int = 0

    @property
    def calls(self) -> int:
        """How many calls were made."""
        return sum(tool.calls for tool in self.tools)

    @property
    def never_used(self) -> tuple[ToolUse, ...]:
        """The tools whose definition was sent, and which were never called, the most expensive
        first.
        """
        unused = [tool for tool in self.tools if tool.requests and not tool.calls]
        return tuple(sorted(unused, key=_by_tokens))

    @property
    def unused_tokens(self) -> int:
        """The estimated tokens that a request spent on tools which were never called, on average."""
        if not self.requests:
            return 0
        return round(total_tokens(self.never_used) / self.requests)

    def of(self, tool: ToolName) -> ToolUse:
        """Find a tool's row. One without any use, if there is none."""
        for each in self.tools:
            if each.tool == tool:
                return each
        return ToolUse(tool)

    def of_server(self, server: str) -> tuple[ToolUse, ...]:
        """Find the rows of a server's tools."""
        return tuple(each for each in self.tools if each.tool.server == server)


def _by_tokens(use: ToolUse) -> tuple[int, str]:
    return -use.tokens, str(use.tool)


def _by_calls(use: ToolUse) -> tuple[int, int, str]:
    return -use.calls, *_by_tokens(use)


Offer = tuple[tuple[str, int], ...]
"""The definitions in a request: each tool's wire name and estimated tokens."""


@dataclass(frozen=True)
class Hit:
    """What usage needs of a tool that a search returned."""

    tool: ToolName


FIELDS: Mapping[str, Mapping[str, Any]] = {
    "TurnStarted": {
        "began": float | None,
        "model": str,
        "recorded": int | None,
        "agent": str | None,
        "messages": list[Any] | None,
    },
    "StepStarted": {"request.tools": list[Any], "request.found": list[Any] | None},
    "ToolsSearched": {"rows": list[Hit], "at": float},
    "ToolStarted": {"at": float, "call_id": str, "tool": ToolName, "wire_name": str | None},
    "ToolFinished": {"at": float, "call_id": str, "status": str},
    "ApprovalAsked": {"at": float, "call_id": str},
    "ApprovalAnswered": {"at": float, "call_id": str},
    "QuestionAsked": {"at": float, "id": str, "server": str | None},
    "QuestionAnswered": {"at": float, "id": str},
    "AppCalled": {"began": float, "tool": ToolName, "status": str, "seconds": float},
}
"""The events that usage is computed from, with the fields that it needs, and their types in JSON."""

UsedEvent = tuple[str, Sequence[Any]]
"""The name of an event's class, and its `FIELDS`. A `StepStarted` has one `Offer` in their place, and
the `messages` of a `TurnStarted` are anything that is equal in a copy.
"""


@dataclass
class _Count:
    """What is known of a tool so far."""

    requests: int = 0
    turns: int = 0
    tokens: int = 0
    definition: int = 0
    found: int = 0
    calls: int = 0
    succeeded: int = 0
    seconds: float = 0.0
    last_used: float | None = None

    def start(self, when: float | None) -> None:
        """Count a call that began at a time, if that is known."""
        self.calls += 1
        if when is not None:
            self.last_used = max(self.last_used or 0.0, when)

    def end(self, seconds: float, status: str) -> None:
        """Count how the call ended."""
        self.seconds += max(0.0, seconds)
        self.succeeded += status == "ok"


@dataclass
class _OpenCall:
    """A call that has no end yet, and the questions for which it waits."""

    tool: ToolName
    at: float
    questions: set[str] = field(default_factory=set)
    asked: float = 0.0
    waited: float = 0.0

    def ask(self, question: str, at: float) -> None:
        if not self.questions:
            self.asked = at
        self.questions.add(question)

    def answer(self, question: str, at: float) -> None:
        if question in self.questions:
            self.questions.remove(question)
            if not self.questions:
                self.waited += at - self.asked

    def seconds_until(self, at: float) -> float:
        """Compute how long it took without waiting for a person, if it ends now."""
        end = self.asked if self.questions else at
        return end - self.at - self.waited


class UsageCounter:
    """Counts the uses of tools over the turns of any number of conversations.

    A fork, and many a resumed session of another agent, begins with a copy of another
    conversation's turns. They are counted once.
    """

    def __init__(self) -> None:
        self._conversations = self._turns = self._unread = 0
        self._counted: set[Hashable] = set()
        self._offers: Counter[Offer] = Counter()
        self._offers_of_turns: Counter[frozenset[Offer]] = Counter()
        self._counts: defaultdict[ToolName, _Count] = defaultdict(_Count)
        self._names: dict[str, ToolName] = {}

    def add_conversation(self) -> None:
        """Count one more conversation."""
        self._conversations += 1

    def add(self, turns: Iterable[Turn], unread_records: int = 0) -> None:
        """Count one more conversation, by its turns.

        Args:
            turns: Its turns.
            unread_records: How many records of its file were not understood.
        """
        self.add_conversation()
        self._unread += unread_records
        for turn in turns:
            self.add_turn(_used_events(turn))

    def add_turn(self, events: Iterable[UsedEvent]) -> None:
        """Count a turn by its events, in order, unless it is a copy: that has its time.

        Codex writes the turns that a fork copies with the time of the copy. They have its messages
        and calls. The calls are not enough: some models number them from 0 in each session.
        """
        events = list(events)
        began, recorded = None, 0
        identity: Hashable = None
        if events and events[0][0] == "TurnStarted":
            began, _model, recorded, agent, messages = events[0][1]
            if began is not None:
                identity = began, len(events)
            calls = [tuple(values[1:3]) for name, values in events if name == "ToolStarted"]
            if agent == "Codex" and calls:
                identity = messages, *calls
        if identity is not None and self._is_counted(identity):
            return
        open_calls: dict[str, _OpenCall] = {}
        questions: dict[str, str | None] = {}
        offers: set[Offer] = set()
        steps = 0
        for event, values in events:
            steps += event == "StepStarted"
            if 0 < steps <= (recorded or 0):
                # It was made in the turn from which it is copied.
                continue
            match event, values:
                case "TurnStarted", [_, model, *_]:
                    self._turns += bool(model)
                case "StepStarted", [offer]:
                    self._offers[offer] += 1
                    offers.add(offer)
                case "ToolsSearched", [hits, _]:
                    for hit in hits:
                        self._counts[hit.tool].found += 1
                case "ToolStarted", [at, id, tool, name] if _is_real(tool):
                    # Another agent's turn can be copied before it has ended.
                    if began is not None and self._is_counted((began, at, id)):
                        continue
                    call = open_calls[id] = _OpenCall(tool, at)
                    for question, server in questions.items():
                        if server == tool.server:
                            call.ask(question, at)
                    self._names.setdefault(name or "", tool)
                    self._counts[tool].start(None if began is None else began + at)
                case "AppCalled", [when, tool, status, seconds] if _is_real(tool):
                    self._counts[tool].start(when)
                    self._counts[tool].end(seconds, status)
                case "ApprovalAsked", [at, id] if id in open_calls:
                    open_calls[id].ask(id, at)
                case "ApprovalAnswered", [at, id] if id in open_calls:
                    open_calls[id].answer(id, at)
                case "QuestionAsked", [at, id, server]:
                    # A server does not tell during which call it asks.
                    questions[id] = server
                    for call in open_calls.values():
                        if call.tool.server == server:
                            call.ask(id, at)
                case "QuestionAnswered", [at, id]:
                    questions.pop(id, None)
                    for call in open_calls.values():
                        call.answer(id, at)
                case "ToolFinished", [at, id, status] if id in open_calls:
                    call = open_calls.pop(id)
                    self._counts[call.tool].end(call.seconds_until(at), status)
        self._offers_of_turns[frozenset(offers)] += 1

    def _is_counted(self, identity: Hashable) -> bool:
        """Check whether a turn or a call was counted before, and remember it."""
        if identity in self._counted:
            return True
        self._counted.add(identity)
        return False

    def usage(self, names: Mapping[str, ToolName] | None = None) -> ToolUsage:
        """Sum up.

        Args:
            names: Tools by their wire name, for those that were only offered. Others are split at
                their first `__`.
        """
        counts = deepcopy(self._counts)
        known = {**(names or {}), **{wire_name(tool): tool for tool in counts}, **self._names}
        for offer, requests in self._offers.items():
            for name, tokens in offer:
                count = counts[known.get(name) or ToolName.split(name)]
                count.requests += requests
                count.tokens += requests * tokens
                count.definition = tokens
        for offers, turns in self._offers_of_turns.items():
            sent = {name for offer in offers for name, _ in offer}
            for tool in {known.get(name) or ToolName.split(name) for name in sent}:
                counts[tool].turns += turns
        uses = [ToolUse(tool, **vars(count)) for tool, count in counts.items()]
        return ToolUsage(
            tuple(sorted(uses, key=_by_calls)),
            self._conversations,
            self._turns,
            self._offers.total(),
            self._unread,
        )


def _is_real(tool: ToolName) -> bool:
    return tool.server not in (SYNTHETIC, UNKNOWN)


def offer_of(definitions: Iterable[Mapping[str, Any]]) -> Offer:
    """Read the definitions in a request. This package's own tools are left out."""
    return tuple(present(map(name_and_tokens, definitions)))


def name_and_tokens(definition: Mapping[str, Any]) -> tuple[str, int] | None:
    """Read a definition, or return None if it is one of this package's own tools."""
    name = definition.get("name")
    if not isinstance(name, str) or name in PACKAGE_TOOLS:
        return None
    return name, definition_tokens(definition)


def _used_events(turn: Turn) -> Iterator[UsedEvent]:
    """Yield what usage needs of a turn of this process."""
    for event in turn.trace:
        name = type(event).__name__
        if isinstance(event, StepStarted):
            yield name, [offer_of((*event.request.tools, *event.request.found))]
        elif isinstance(event, TurnStarted):
            *values, _messages = attrgetter(*FIELDS[name])(event)
            yield name, [*values, turn.prompt]
        elif name in FIELDS:
            yield name, attrgetter(*FIELDS[name])(event)


def usage_of(
    turns: Iterable[Turn], names: Mapping[str, ToolName] | None = None, unread_records: int = 0
) -> ToolUsage:
    """Count the uses of tools in one conversation.

    Args:
        turns: Its turns.
        names: Tools by their wire name, see `UsageCounter.usage`.
        unread_records: How many records of its file were not understood.
    """
    counter = UsageCounter()
    counter.add(turns, unread_records)
    return counter.usage(names)
