"""Repair message histories: exactly one result after each call, unique and non-empty ids, no result without a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.types.step import UNANSWERED

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, ChatMessage, ToolResultMessage

NEW_ID = "Gave a new id to {} with an empty or duplicate one."


def repaired(messages: Sequence[ChatMessage], taken: set[str] | None = None) -> tuple[list[ChatMessage], tuple[str, ...]]:
    """Repair messages so that every provider accepts them as a history.

    A misplaced result is moved behind its call, an empty or duplicate id is replaced, a call without a result gets a
    placeholder, and a result without a call is dropped.

    Args:
        messages: Any messages, from a file or the user.
        taken: Call ids used in the conversation before these messages; those of the messages are added.

    Returns:
        The messages, with valid ones unchanged, and one sentence for each kind of repair with the number of repairs.
    """
    if not messages:
        return [], ()
    taken = set() if taken is None else taken
    if (ids := _ids_if_intact(messages, taken)) is not None:
        taken |= ids
        return list(messages), ()
    repair = _Repair(taken)
    for message in messages:
        repair.add(message)
    return repair.messages(), sentences(repair.counts())


def _ids_if_intact(messages: Sequence[ChatMessage], taken: set[str]) -> set[str] | None:
    """Collect the call ids of messages that need no repair, as nearly all do; None where one does."""
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
            count = len(ids) + len(waiting)
            ids.update(waiting)
            if len(ids) != count or "" in ids:
                return None
    return None if waiting or not ids.isdisjoint(taken) else ids


def sentences(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Describe the repairs: `{}` in each text is replaced by the number of calls."""
    return tuple(text.format(f"{count:,} call{'s' * (count != 1)}") for text, count in counts.items() if count)


def unique_id(wanted: str, taken: set[str]) -> str:
    """Choose `wanted`, or an unused id derived from it, and mark it as used."""
    unique = wanted
    while not unique or unique in taken:
        unique = f"{wanted or 'call'}_{len(taken) + 1}" if unique in ("", wanted) else f"{unique}_"
    taken.add(unique)
    return unique


class _Repair:
    """Builds a history; the results of a call are collected with it until all messages are read."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._entries: list[ChatMessage | _Calls] = []
        self._open: dict[str, list[tuple[_Calls, int]]] = {}
        self._last: _Calls | None = None
        self._renamed = self._alone = self._moved = 0

    def add(self, message: ChatMessage) -> None:
        """Add the next message."""
        if message.role == "tool":
            self._result(message)
        elif message.role == "assistant" and message.tool_calls:
            self._answer_with_calls(message)
        else:
            self._entries.append(message)
            self._last = None

    def _answer_with_calls(self, message: AssistantMessage) -> None:
        calls = message.tool_calls or []
        ids = [unique_id(call.id, self._taken) for call in calls]
        entry = _Calls(message, ids)
        for index, call in enumerate(calls):
            self._open.setdefault(call.id, []).append((entry, index))
        if ids != [call.id for call in calls]:
            self._renamed += sum(new != call.id for new, call in zip(ids, calls, strict=True))
            renamed = [call.model_copy(update={"id": new}) for new, call in zip(ids, calls, strict=True)]
            entry.message = message.model_copy(update={"tool_calls": renamed})
        self._entries.append(entry)
        self._last = entry

    def _result(self, message: ToolResultMessage) -> None:
        waiting = self._open.get(message.tool_call_id)
        if not waiting:
            self._alone += 1
            return
        # If several calls share an id, those of the preceding message take precedence.
        entry, index = next((pair for pair in waiting if pair[0] is self._last), waiting[0])
        waiting.remove((entry, index))
        self._moved += entry is not self._last
        if message.tool_call_id != entry.ids[index]:
            message = message.model_copy(update={"tool_call_id": entry.ids[index]})
        entry.results[index] = message

    def messages(self) -> list[ChatMessage]:
        """List all messages, with each call followed by its result."""
        messages: list[ChatMessage] = []
        for entry in self._entries:
            messages += entry.messages() if isinstance(entry, _Calls) else [entry]
        return messages

    def counts(self) -> dict[str, int]:
        """Count the repairs of each kind, by its sentence."""
        missing = sum(len(entry.ids) - len(entry.results) for entry in self._entries if isinstance(entry, _Calls))
        return {
            NEW_ID: self._renamed,
            "Added a placeholder result to {} without one.": missing,
            "Dropped the results of {} that no message makes.": self._alone,
            "Moved the results of {} behind them.": self._moved,
        }


class _Calls:
    """A message with tool calls, and the results found for them."""

    def __init__(self, message: AssistantMessage, ids: list[str]) -> None:
        self.message = message
        self.ids = ids
        self.results: dict[int, ToolResultMessage] = {}

    def messages(self) -> list[Any]:
        """List the message and a result for each of its calls, in their order."""
        from casual_llm.messages import ToolResultMessage

        calls = self.message.tool_calls or []
        return [
            self.message,
            *(
                self.results.get(index) or ToolResultMessage(name=call.function.name, tool_call_id=call.id, content=UNANSWERED)
                for index, call in enumerate(calls)
            ),
        ]
