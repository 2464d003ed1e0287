"""Tables of the messages and tool definitions shared by the requests of a conversation, each stored once with a number."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage
    from pydantic import BaseModel

Span = list[int]
"""A half-open range of numbers: from the first up to, but not including, the second."""


class NumberedValues:
    """Numbers values; equal values get the same number.

    Args:
        rows: Those that have a number already.

    Attributes:
        rows: The values as JSON objects, by number.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self.rows: list[Mapping[str, Any]] = list(rows)
        self._by_text = {_text(row): number for number, row in enumerate(self.rows)}
        self._by_object: dict[int, int] = {}
        # Keeps the objects alive, because ids are reused after collection.
        self._values: list[Any] = []

    def number(self, value: Any) -> int:
        """Number a message or a definition; add it if it is new."""
        number = self._by_object.get(id(value))
        if number is None:
            row = value if isinstance(value, Mapping) else value.model_dump(mode="json")
            text = _text(row)
            number = self._by_text.setdefault(text, len(self.rows))
            if number == len(self.rows):
                self.rows.append(row)
            self._by_object[id(value)] = number
            self._values.append(value)
        return number

    def spans(self, values: Iterable[Any]) -> list[Span]:
        """Number values, as spans; even a long history needs only a few."""
        spans: list[Span] = []
        numbers = self._by_object
        for value in values:
            # Each request has all messages again.
            number = numbers.get(id(value))
            if number is None:
                number = self.number(value)
            if spans and spans[-1][1] == number:
                spans[-1][1] += 1
            else:
                spans.append([number, number + 1])
        return spans


def _text(row: Mapping[str, Any]) -> str:
    return json.dumps(row, sort_keys=True, default=str)


def spread(spans: Sequence[Any], rows: Sequence[Any]) -> Iterator[Any]:
    """Yield the rows that spans refer to; inline rows, as in older files, are yielded unchanged.

    Raises:
        ValueError: A span refers to missing rows.
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
    """Parse a message from a JSON object; unknown fields are kept on it.

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
    """List the message classes by role, those with more required fields first."""
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
    """Create a variant of a message class that keeps unknown fields."""
    from pydantic import ConfigDict

    return type(kind.__name__, (kind,), {"model_config": ConfigDict(extra="allow"), "__module__": kind.__module__})
