"""Repair histories and traces, so that every provider accepts them: each call has one result behind
it, and an id that no other call has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.conversation.event import (
    Event,
    StepFinished,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from casual_mcp_nb.conversation.step import UNANSWERED
from casual_mcp_nb.conversation.turn import Trace

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, ChatMessage, ToolResultMessage


NEW_ID = "Gave a new id to {} with an empty or duplicate one."


def repaired(
    messages: Sequence[ChatMessage], taken: set[str] | None = None
) -> tuple[list[ChatMessage], tuple[str, ...]]:
    """Repair messages so that every provider accepts them as a history.

    Also counts repairs, by sentence.

    A misplaced result is moved behind its call, an empty or duplicate id is replaced, a call
    without a result gets a placeholder, and a result without a call is dropped. `taken` has the
    call ids that earlier messages use. Theirs are added.
    """
    if not messages:
        return [], ()
    if taken is None:
        taken = set()
    ids = _ids_if_intact(messages, taken)
    if ids is not None:
        taken |= ids
        return list(messages), ()
    repair = _Repair(taken)
    for message in messages:
        repair.add(message)
    return repair.history()


def _ids_if_intact(messages: Sequence[ChatMessage], taken: set[str]) -> set[str] | None:
    """Collect the call ids if no message needs repair, which is usual, or else return None."""
    ids: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            if not waiting or message.tool_call_id != waiting.pop():
                return None
        elif waiting:
            return None
        elif message.role == "assistant" and message.tool_calls:
            waiting = [call.id for call in reversed(message.tool_calls)]
            different = len(ids) + len(waiting)
            ids.update(waiting)
            if len(ids) != different or "" in ids:
                return None
    return None if waiting or not ids.isdisjoint(taken) else ids


def sentences(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Describe the repairs: `{}` in each text becomes the call count."""
    return tuple(text.format(count(number, "call")) for text, number in counts.items() if number)


def unique_id(wanted: str, taken: set[str]) -> str:
    """Choose `wanted`, or an unused id derived from it, and mark it as used."""
    unique = wanted
    if not unique or unique in taken:
        unique = f"{wanted or 'call'}_{len(taken) + 1}"
    while unique in taken:
        unique = f"{unique}_"
    taken.add(unique)
    return unique


def with_unique_ids(
    message: AssistantMessage, taken: set[str]
) -> tuple[AssistantMessage, list[str]]:
    """Give a message's calls ids that are unique, and mark them as used.

    Returns:
        The message, itself if its ids were good, and the ids of its calls.
    """
    calls = message.tool_calls or []
    ids = [unique_id(call.id, taken) for call in calls]
    if ids == [call.id for call in calls]:
        return message, ids
    renamed = [call.model_copy(update={"id": new}) for call, new in zip(calls, ids, strict=True)]
    return message.model_copy(update={"tool_calls": renamed}), ids


class _Repair:
    """Builds a history. A call's results are collected with it until all messages are read."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        # Each message, and behind it the results of its calls, or None where there is none yet.
        self._entries: list[list[Any]] = []
        self._open: dict[str, list[tuple[list[Any], int]]] = {}
        self._renamed = self._alone = self._moved = 0

    def add(self, message: ChatMessage) -> None:
        if message.role == "tool":
            self._result(message)
        elif message.role == "assistant" and message.tool_calls:
            unique, ids = with_unique_ids(message, self._taken)
            entry = [unique, *[None] * len(ids)]
            for index, call in enumerate(message.tool_calls):
                self._open.setdefault(call.id, []).append((entry, index))
                self._renamed += ids[index] != call.id
            self._entries.append(entry)
        else:
            self._entries.append([message])

    def _result(self, message: ToolResultMessage) -> None:
        waiting = self._open.get(message.tool_call_id)
        if not waiting:
            self._alone += 1
            return
        # If several calls share an id, those of the preceding message take precedence.
        last = self._entries[-1]
        chosen = next((n for n, (entry, _) in enumerate(waiting) if entry is last), 0)
        entry, index = waiting.pop(chosen)
        self._moved += entry is not last
        call = entry[0].tool_calls[index]
        if message.tool_call_id != call.id:
            message = message.model_copy(update={"tool_call_id": call.id})
        entry[index + 1] = message

    def history(self) -> tuple[list[ChatMessage], tuple[str, ...]]:
        """List the messages, and describe the repairs."""
        from casual_llm.messages import ToolResultMessage

        messages: list[ChatMessage] = []
        missing = 0
        for message, *results in self._entries:
            messages.append(message)
            calls = message.tool_calls if results else ()
            for call, result in zip(calls, results, strict=True):
                if result is None:
                    missing += 1
                    result = ToolResultMessage(
                        name=call.function.name, tool_call_id=call.id, content=UNANSWERED
                    )
                messages.append(result)
        counts = {
            NEW_ID: self._renamed,
            "Added a placeholder result to {} without one.": missing,
            "Dropped the results of {} without a message.": self._alone,
            "Moved the results of {} behind them.": self._moved,
        }
        return messages, sentences(counts)


def repaired_traces(traces: Iterable[Trace]) -> tuple[list[Trace], tuple[str, ...]]:
    """Make call ids unique throughout a conversation's traces.

    Messages that the person added are repaired by `repaired`. A model's call without a result gets
    one in `Turn.messages` anyway. Also returns one sentence per kind of repair.
    """
    taken: set[str] = set()
    repairs = [_TraceRepair(trace, taken) for trace in traces]
    renamed = sum(repair.renamed for repair in repairs)
    notes: list[str] = []
    for repair in repairs:
        notes += repair.notes
    return [repair.trace for repair in repairs], (
        *dict.fromkeys(notes),
        *sentences({NEW_ID: renamed}),
    )


class _TraceRepair:
    """A repaired trace: the trace itself if it was valid, or a new one.

    `renamed` counts the model's calls that got a new id, and `notes` are the repairs in the
    messages that the person added.
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
                if not self.notes:
                    return event
                return dataclasses.replace(event, messages=tuple(messages))
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
        if call_id and old != call_id:
            return dataclasses.replace(changed, call_id=call_id)  # type: ignore[no-any-return]
        return event

    def _answer(self, event: StepFinished) -> StepFinished:
        message, ids = with_unique_ids(event.message, self._taken)
        for call, call_id in zip(event.message.tool_calls or (), ids, strict=True):
            self.renamed += call_id != call.id
            for kind in (ToolStarted, ToolFinished):
                self._new.setdefault((kind, event.step, call.id), []).append(call_id)
        if message is event.message:
            return event
        return dataclasses.replace(event, message=message)
