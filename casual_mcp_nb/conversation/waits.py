"""When a turn waited for the person."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.conversation.event import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    QuestionAnswered,
    QuestionAsked,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)


@dataclass(frozen=True)
class PersonWaits:
    """When a turn waited for the person.

    In `spans` neither the model nor a tool was running. The last one is endless if the turn still
    waits. `calls` is how long each call waited, up to the last event.
    """

    spans: tuple[tuple[float, float], ...] = ()
    calls: Mapping[str, float] = field(default_factory=dict)
    waiting: frozenset[str] = frozenset()
    open_questions: tuple[ApprovalAsked | QuestionAsked, ...] = ()

    @property
    def approvals(self) -> frozenset[str]:
        """The calls that wait for an approval now, by id."""
        return frozenset(each.call_id for each in of_type(self.open_questions, ApprovalAsked))

    def within(self, start: float, end: float) -> float:
        """Compute how long the turn waited between two times, in seconds since it began."""
        return sum(max(0.0, min(end, until) - max(start, since)) for since, until in self.spans)

    def taken(self, start: float, end: float) -> float:
        """Compute how long something took from `start` to `end`: without the time in which it
        waited for the person.
        """
        return max(0.0, end - start - self.within(start, end))


def person_waits(events: Iterable[Event]) -> PersonWaits:
    """Compute when a turn waited for the person."""
    state = _State()
    for event in events:
        state.add(event)
    return state.result()


class _State:
    """Running work and the open question, as the last event left them."""

    def __init__(self) -> None:
        self._at = 0.0
        self._model = False
        self._calls: dict[str, ToolStarted] = {}
        self._open: dict[str, ApprovalAsked | QuestionAsked] = {}
        self._spans: list[tuple[float, float]] = []
        self._waited: dict[str, float] = {}

    def add(self, event: Event) -> None:
        if self._open and event.at > self._at:
            for name in self._waiting():
                self._waited[name] = self._waited.get(name, 0.0) + event.at - self._at
            if self._waits():
                self._spans.append((self._at, event.at))
        self._at = max(self._at, event.at)
        match event:
            case StepStarted() | StepFinished():
                self._model = isinstance(event, StepStarted)
            case ToolStarted():
                self._calls[event.call_id] = event
            case ToolFinished():
                self._calls.pop(event.call_id, None)
                self._open.pop(event.call_id, None)
            case ApprovalAsked(call_id=id) | QuestionAsked(id=id):
                self._open[id] = event
            case ApprovalAnswered(call_id=id) | QuestionAnswered(id=id):
                self._open.pop(id, None)
            case TurnFinished():
                self._model = False
                self._calls.clear()
                self._open.clear()

    def result(self) -> PersonWaits:
        spans = list(self._spans)
        if self._waits():
            spans.append((self._at, math.inf))
        waiting = frozenset(self._waiting())
        return PersonWaits(tuple(spans), self._waited, waiting, tuple(self._open.values()))

    def _waiting(self) -> list[str]:
        # A server does not tell during which call it asks.
        servers = {question.server for question in of_type(self._open.values(), QuestionAsked)}
        waiting: list[str] = []
        # Backwards, because nested calls start after the one that makes them, which waits while all
        # of them do.
        nested: dict[str | None, list[bool]] = {}
        for name, call in reversed(self._calls.items()):
            waits = (
                name in self._open
                or call.tool.server in servers
                or (name in nested and all(nested[name]))
            )
            nested.setdefault(call.parent, []).append(waits)
            if waits:
                waiting.append(name)
        return waiting

    def _waits(self) -> bool:
        if not self._open or self._model:
            return False
        waiting = set(self._waiting())
        return all(
            name in waiting for name, call in self._calls.items() if call.parent not in self._calls
        )
