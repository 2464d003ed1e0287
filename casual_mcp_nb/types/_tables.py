"""What many requests of a conversation share, written once: messages and definitions of tools, each with a number."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage
    from pydantic import BaseModel

Span = list[int]
"""The numbers from the first up to, and without, the second."""


class NumberedValues:
    """Values that get a number each: the same value the same one.

    Attributes:
        rows: The values as JSON objects, by number.
    """

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []
        self._by_text: dict[str, int] = {}
        self._by_object: dict[int, int] = {}
        # Without them an id could be that of another object later on.
        self._kept: list[Any] = []

    def number(self, value: Any) -> int:
        """Return the number of a message or a definition, which is added if it is new."""
        number = self._by_object.get(id(value))
        if number is None:
            row = value if isinstance(value, Mapping) else value.model_dump(mode="json")
            text = json.dumps(row, sort_keys=True, default=str)
            number = self._by_text.setdefault(text, len(self.rows))
            if number == len(self.rows):
                self.rows.append(row)
            self._by_object[id(value)] = number
            self._kept.append(value)
        return number

    def spans(self, values: Iterable[Any]) -> list[Span]:
        """Return the numbers of values as spans, of which a history has few however long it is."""
        spans: list[Span] = []
        for number in map(self.number, values):
            if spans and spans[-1][1] == number:
                spans[-1][1] += 1
            else:
                spans.append([number, number + 1])
        return spans


def spread(spans: Sequence[Any], rows: Sequence[Any]) -> Iterator[Any]:
    """Yield the rows that spans name; what is written in their place, as older files do, is passed on as it is.

    Raises:
        ValueError: A span names rows that are not there.
    """
    for span in spans:
        if isinstance(span, Mapping):
            yield span
            continue
        start, end = span
        if not 0 <= start <= end <= len(rows):
            raise ValueError("A span outside of its table.")
        yield from rows[start:end]


def read_message(row: Any) -> ChatMessage:
    """Return the message that a JSON object holds; fields that are not known are kept on it.

    Raises:
        ValueError: It is not a message.
    """
    kinds = _kinds().get(row["role"], ())
    kind = next((kind for kind in kinds if _required(kind) <= row.keys()), None)
    if kind is None:
        raise ValueError("Not a message.")
    if not row.keys() <= _named(kind):
        kind = _open(kind)
    message: Any = kind.model_validate(row)
    return message  # type: ignore[no-any-return]


@cache
def _kinds() -> Mapping[str, tuple[type[BaseModel], ...]]:
    """Return the classes of messages by role, those that ask for more fields first."""
    from casual_llm.messages import AssistantMessage, SystemMessage, ToolResultMessage, UserMessage

    from casual_mcp_nb.types.provider_state import StatefulAssistantMessage, ToolOutcomeMessage

    return {
        "system": (SystemMessage,),
        "user": (UserMessage,),
        "assistant": (StatefulAssistantMessage, AssistantMessage),
        "tool": (ToolOutcomeMessage, ToolResultMessage),
    }


@cache
def _required(kind: type[BaseModel]) -> frozenset[str]:
    return frozenset(name for name, field in kind.model_fields.items() if field.is_required())


@cache
def _named(kind: type[BaseModel]) -> frozenset[str]:
    return frozenset(kind.model_fields)


@cache
def _open(kind: type[BaseModel]) -> type[BaseModel]:
    """Return the same class of messages, which keeps fields that it does not know."""
    from pydantic import ConfigDict

    return type(kind.__name__, (kind,), {"model_config": ConfigDict(extra="allow"), "__module__": kind.__module__})
