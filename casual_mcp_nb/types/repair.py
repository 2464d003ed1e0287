"""Repair loaded traces: make call ids unique in the conversation and non-empty."""

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
    """Give the traces of a conversation unique call ids, also in the events of each call.

    Messages that the person added are repaired by `repaired`; a model's call without a result gets one in `Turn.messages`
    anyway.

    Args:
        traces: One for each turn.

    Returns:
        The traces, and one sentence for each kind of repair; none if everything was valid.
    """
    taken: set[str] = set()
    repairs = [_TraceRepair(trace, taken) for trace in traces]
    renamed = sum(repair.renamed for repair in repairs)
    notes = [note for repair in repairs for note in repair.notes]
    return [repair.trace for repair in repairs], (*dict.fromkeys(notes), *sentences({NEW_ID: renamed}))


class _TraceRepair:
    """A repaired trace.

    Args:
        trace: The trace.
        taken: The ids used in the conversation so far; grows.

    Attributes:
        trace: The trace itself if it was valid, or a new one.
        renamed: How many of the model's calls got a new id.
        notes: The repairs in the messages that the person added.
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
                # If calls in one step share an id, the first event belongs to the first call.
                waiting = self._new.get((type(event), event.step, event.call_id))
                call_id = waiting.pop(0) if waiting else event.call_id
                self._latest[event.call_id] = call_id
            case _:
                call_id = self._latest.get(getattr(event, "call_id", None) or "", "")
        if isinstance(event, ToolStarted) and event.parent is not None:
            event = dataclasses.replace(event, parent=self._latest.get(event.parent, event.parent))
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
