"""Loaded traces made valid: ids of calls that are unique in the conversation and not empty."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.types.event import Event, StepFinished, ToolFinished, ToolStarted, TurnStarted
from casual_mcp_nb.types.history import NEW_ID, repaired, sentences, unique_id
from casual_mcp_nb.types.trace import Trace

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage


def repaired_traces(traces: Iterable[Trace]) -> tuple[list[Trace], tuple[str, ...]]:
    """Return the traces of a conversation with every id of a call unique, and its events under that id.

    What a person added is repaired as `repaired` does it; a call of a model without a result has one in `Turn.messages` anyway.

    Args:
        traces: One for each turn.

    Returns:
        The traces, and for each kind of repair a sentence; none where everything was right.
    """
    taken: set[str] = set()
    repairs = [_TraceRepair(trace, taken) for trace in traces]
    renamed = sum(repair.renamed for repair in repairs)
    notes = [note for repair in repairs for note in repair.notes]
    return [repair.trace for repair in repairs], (*dict.fromkeys(notes), *sentences({NEW_ID: renamed}))


class _TraceRepair:
    """One trace, repaired.

    Args:
        trace: The trace.
        taken: The ids of the conversation so far; grows.

    Attributes:
        trace: The trace itself where nothing had to be repaired, or a new one.
        renamed: How many calls of a model got a new id.
        notes: What was repaired in the messages that a person added.
    """

    def __init__(self, trace: Trace, taken: set[str]) -> None:
        self.renamed = 0
        self.notes: tuple[str, ...] = ()
        self._taken = taken
        self._new: dict[tuple[type[Any], int, str], list[str]] = {}
        self._latest: dict[str, str] = {}
        events = list(map(self._event, trace))
        self.trace = trace
        if self.renamed or self.notes:
            self.trace = Trace(events)
            self.trace.unread = trace.unread

    def _event(self, event: Event) -> Event:
        match event:
            case TurnStarted():
                messages, self.notes = repaired(event.messages, self._taken)
                return dataclasses.replace(event, messages=tuple(messages)) if self.notes else event
            case StepFinished():
                return self._answer(event)
            case ToolStarted() | ToolFinished():
                # Of calls with the same id in one step, the first event is that of the first call.
                waiting = self._new.get((type(event), event.step, event.call_id))
                call_id = waiting.pop(0) if waiting else event.call_id
                self._latest[event.call_id] = call_id
            case _:
                call_id = self._latest.get(getattr(event, "call_id", None) or "", "")
        old = getattr(event, "call_id", None)
        changed: Any = event
        return dataclasses.replace(changed, call_id=call_id) if call_id and old != call_id else event

    def _answer(self, event: StepFinished) -> StepFinished:
        message: AssistantMessage = event.message
        calls = []
        for call in message.tool_calls or ():
            call_id = unique_id(call.id, self._taken)
            self.renamed += call_id != call.id
            for kind in (ToolStarted, ToolFinished):
                self._new.setdefault((kind, event.step, call.id), []).append(call_id)
            calls.append(call if call_id == call.id else call.model_copy(update={"id": call_id}))
        if calls == (message.tool_calls or []):
            return event
        return dataclasses.replace(event, message=message.model_copy(update={"tool_calls": calls}))
