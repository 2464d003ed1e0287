"""Which tools were really used: offered, found, called, in one conversation or in many."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.displayable import Displayable, DisplayableList
from casual_mcp_nb.base.iterables import present
from casual_mcp_nb.base.tokens import definition_tokens, total_tokens
from casual_mcp_nb.base.tool import SYNTHETIC, ToolName, wire_name
from casual_mcp_nb.conversation.event import PACKAGE_TOOLS, UNKNOWN, StepStarted, ToolsSearched

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.turn import Turn


@dataclass(frozen=True)
class ToolUse(Displayable):
    """How one tool was used.

    Args:
        tool: The tool.
        requests: How many requests offered its definition.
        tokens: The estimated tokens of its definition, summed over these requests.
        definition: The estimated tokens of its definition in one request, as it was last sent, or 0
            if it never was.
        found: How many searches returned it.
        calls: How many calls the model, its programs and apps made.
        succeeded: How many of these calls ended without an error.
        seconds: How long they took together, without waiting for a person.
        last_used: When it was last called, in seconds since 1970, or None if it never was, or the
            file does not say when.
    """

    tool: ToolName
    requests: int = 0
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


class UsageRow(NamedTuple):
    """What usage needs of one event. A saved conversation is read into such rows without its texts."""

    event: str
    at: float = 0.0
    began: float | None = None
    call_id: str = ""
    tool: ToolName | None = None
    wire_name: str = ""
    status: str = ""
    offered: Offer = ()
    hits: tuple[ToolName, ...] = ()
    seconds: float = 0.0
    added: bool = False
    recorded: int = 0


FIELDS = {
    "TurnStarted": ("began", "model", "recorded"),
    "StepStarted": ("request.tools", "request.found"),
    "ToolsSearched": ("rows", "at"),
    "ToolStarted": ("at", "call_id", "tool", "wire_name"),
    "ToolFinished": ("at", "call_id", "status"),
    "ApprovalAsked": ("at", "call_id"),
    "ApprovalAnswered": ("at", "call_id"),
    "AppCalled": ("began", "tool", "status", "seconds"),
}
"""The events that usage is computed from, with the fields that it needs."""


def row_of(event: str, values: Sequence[Any], offered: Offer = ()) -> UsageRow:
    """Read an event.

    Args:
        event: The name of its class.
        values: Its `FIELDS`, also as JSON has them.
        offered: The definitions in its request, if it is a `StepStarted`.
    """
    match event:
        case "TurnStarted":
            began, model, recorded = values
            return UsageRow(
                event, began=began and float(began), added=not model, recorded=int(recorded or 0)
            )
        case "StepStarted":
            return UsageRow(event, offered=offered)
        case "ToolsSearched":
            hits, _at = values
            return UsageRow(event, hits=tuple([_tool(hit["tool"]) for hit in hits]))
        case "ToolStarted":
            at, call_id, tool, name = values
            return UsageRow(event, float(at), None, str(call_id), _tool(tool), str(name or ""))
        case "ToolFinished":
            at, call_id, status = values
            return UsageRow(event, float(at), call_id=str(call_id), status=str(status))
        case "AppCalled":
            began, tool, status, seconds = values
            return UsageRow(
                event,
                began=float(began),
                tool=_tool(tool),
                status=str(status),
                seconds=float(seconds),
            )
    at, call_id = values
    return UsageRow(event, float(at), call_id=str(call_id))


def _tool(value: ToolName | Mapping[str, Any]) -> ToolName:
    if isinstance(value, ToolName):
        return value
    return ToolName(str(value["server"]), str(value["tool"]))


@dataclass
class _Count:
    """What is known of a tool so far."""

    found: int = 0
    calls: int = 0
    succeeded: int = 0
    seconds: float = 0.0
    last_used: float | None = None


@dataclass
class _OpenCall:
    """A call that has no end yet."""

    tool: ToolName
    at: float
    asked: float | None = None
    waited: float = 0.0


class UsageCounter:
    """Counts the uses of tools over the turns of any number of conversations.

    A fork, and many a resumed session of another agent, begins with a copy of another
    conversation's turns. They are counted once.
    """

    def __init__(self) -> None:
        self._conversations = 0
        self._turns = 0
        self._counted: set[Hashable] = set()
        self._offers: Counter[Offer] = Counter()
        self._counts: dict[ToolName, _Count] = {}
        self._names: dict[str, ToolName] = {}

    def add_conversation(self) -> None:
        """Count one more conversation."""
        self._conversations += 1

    def add_turn(self, rows: Iterable[UsageRow], identity: Hashable = None) -> None:
        """Count a turn by its events, in order. Its copies, which have its time, are left out.

        Args:
            rows: The events.
            identity: What a copy of the turn has, too, if that is not the time when it began.
        """
        rows = list(rows)
        began, recorded = None, 0
        if rows and rows[0].event == "TurnStarted":
            began, recorded = rows[0].began, rows[0].recorded
        if identity is None and began is not None:
            identity = began, len(rows)
        if identity is not None and self._is_counted(identity):
            return
        open_calls: dict[str, _OpenCall] = {}
        steps = 0
        for row in rows:
            steps += row.event == "StepStarted"
            if 0 < steps <= recorded:
                # It was made in the turn from which it is copied.
                continue
            match row.event:
                case "TurnStarted":
                    self._turns += not row.added
                case "StepStarted":
                    self._offers[row.offered] += 1
                case "ToolsSearched":
                    for tool in row.hits:
                        self._of(tool).found += 1
                case "ToolStarted" if row.tool is not None and _is_real(row.tool):
                    # Another agent's turn can be copied before it has ended.
                    if began is not None and self._is_counted((began, row.at, row.call_id)):
                        continue
                    open_calls[row.call_id] = _OpenCall(row.tool, row.at)
                    self._names.setdefault(row.wire_name, row.tool)
                    self._start(row.tool, None if began is None else began + row.at)
                case "AppCalled" if row.tool is not None and _is_real(row.tool):
                    self._start(row.tool, row.began)
                    self._end(row.tool, row.seconds, row.status)
                case "ApprovalAsked" if row.call_id in open_calls:
                    open_calls[row.call_id].asked = row.at
                case "ApprovalAnswered" if row.call_id in open_calls:
                    call = open_calls[row.call_id]
                    if call.asked is not None:
                        call.waited += row.at - call.asked
                        call.asked = None
                case "ToolFinished" if row.call_id in open_calls:
                    call = open_calls.pop(row.call_id)
                    self._end(call.tool, row.at - call.at - call.waited, row.status)

    def _is_counted(self, identity: Hashable) -> bool:
        """Check whether a turn or a call was counted before, and remember it."""
        if identity in self._counted:
            return True
        self._counted.add(identity)
        return False

    def _start(self, tool: ToolName, when: float | None) -> None:
        count = self._of(tool)
        count.calls += 1
        if when is not None:
            count.last_used = max(count.last_used or 0.0, when)

    def _end(self, tool: ToolName, seconds: float, status: str) -> None:
        count = self._of(tool)
        count.seconds += max(0.0, seconds)
        count.succeeded += status == "ok"

    def _of(self, tool: ToolName) -> _Count:
        count = self._counts.get(tool)
        if count is None:
            self._names.setdefault(wire_name(tool), tool)
            count = self._counts[tool] = _Count()
        return count

    def usage(self, names: Mapping[str, ToolName] | None = None) -> ToolUsage:
        """Sum up.

        Args:
            names: Tools by their wire name, for those that were only offered. Others are split at
                their first `__`.
        """
        known = {**(names or {}), **self._names}
        uses: dict[ToolName, ToolUse] = {}
        for tool, count in self._counts.items():
            uses[tool] = ToolUse(tool, **vars(count))
        for offer, requests in self._offers.items():
            for name, tokens in offer:
                tool = known.get(name) or ToolName.split(name)
                use = uses.get(tool) or ToolUse(tool)
                uses[tool] = replace(
                    use,
                    requests=use.requests + requests,
                    tokens=use.tokens + requests * tokens,
                    definition=tokens,
                )
        return ToolUsage(
            tuple(sorted(uses.values(), key=_by_calls)),
            self._conversations,
            self._turns,
            self._offers.total(),
        )


def _is_real(tool: ToolName) -> bool:
    return tool.server not in (SYNTHETIC, UNKNOWN)


class Offers:
    """Reads the definitions in requests. Equal ones are counted once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, int] | None] = {}

    def read(self, definitions: Iterable[Mapping[str, Any]]) -> Offer:
        """Read definitions. This package's own tools are left out."""
        return tuple(present(map(_name_and_tokens, definitions)))

    def read_text(self, text: str) -> tuple[str, int] | None:
        """Read a definition as JSON, or return None if it is one of this package's own tools."""
        if text not in self._known:
            definition = json.loads(text)
            self._known[text] = (
                _name_and_tokens(definition) if isinstance(definition, dict) else None
            )
        return self._known[text]


def _name_and_tokens(definition: Mapping[str, Any]) -> tuple[str, int] | None:
    name = definition.get("name")
    if not isinstance(name, str) or name in PACKAGE_TOOLS:
        return None
    return name, definition_tokens(definition)


def rows_of(turn: Turn, offers: Offers) -> Iterator[UsageRow]:
    """Read a turn of this process into rows."""
    for event in turn.trace:
        name = type(event).__name__
        values: Sequence[Any] = ()
        offered: Offer = ()
        match event:
            case StepStarted(request=request):
                offered = offers.read((*request.tools, *request.found))
            case ToolsSearched():
                values = [[{"tool": row.tool} for row in event.rows], event.at]
            case _ if name in FIELDS:
                values = attrgetter(*FIELDS[name])(event)
            case _:
                continue
        yield row_of(name, values, offered)


def usage_of(turns: Iterable[Turn], names: Mapping[str, ToolName] | None = None) -> ToolUsage:
    """Count the uses of tools in one conversation.

    Args:
        turns: Its turns.
        names: Tools by their wire name, see `UsageCounter.usage`.
    """
    counter, offers = UsageCounter(), Offers()
    counter.add_conversation()
    for turn in turns:
        counter.add_turn(rows_of(turn, offers))
    return counter.usage(names)
