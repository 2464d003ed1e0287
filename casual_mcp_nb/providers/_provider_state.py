"""Keep the state that a provider needs back with an answer: signed thinking, encrypted reasoning, extra fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, AssistantToolCall, ChatMessage

    from casual_mcp_nb.types.provider_state import ProviderState

Part = dict[str, Any]
Fields = Mapping[str, Any]
_PLAIN = {"type", "text"}
# Every provider accepts such an id; others are accepted only by the provider that made them.
_COMMON_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")


def keep(message: AssistantMessage, wire: str, model: str, parts: Sequence[Part]) -> AssistantMessage:
    """Attach an answer's parts to its message, if they contain more than its text and calls.

    Args:
        message: The answer.
        wire: The wire format of the parts.
        model: The model that they belong to.
        parts: The parts of the answer in order, as in `ProviderState`.
    """
    # No provider accepts an answer that ends with reasoning.
    last = max((number for number, part in enumerate(parts) if part["type"] in ("text", "call")), default=-1)
    worth = _with_ids(parts[: last + 1], message.tool_calls or ())
    if all(part.keys() <= _PLAIN for part in worth):
        return message
    from casual_mcp_nb.types.provider_state import ProviderState, StatefulAssistantMessage

    return StatefulAssistantMessage(
        content=message.content, tool_calls=message.tool_calls, kept=ProviderState(wire=wire, model=model, parts=tuple(worth))
    )


def parts_with_fields(text: str, fields: Fields, of_calls: Sequence[Fields]) -> list[Part]:
    """Build the parts of an answer whose provider added extra fields to it and its calls.

    Args:
        text: Its text.
        fields: Those of the message.
        of_calls: Those of each of its calls.
    """
    parts: list[Part] = [{"type": "text", "text": text}] if text else []
    calls: list[Part] = [{"type": "call", **({"fields": dict(own)} if own else {})} for own in of_calls]
    first: list[Part] = [{"type": "fields", "fields": dict(fields)}] if fields else []
    return [*first, *parts, *calls]


def parts_of(message: AssistantMessage, wire: str, model: str) -> list[Part | AssistantToolCall]:
    """Restore an answer's parts: this model's original ones, with the calls in place, or else its text and calls."""
    calls = message.tool_calls or []
    parts = _own_parts(message, wire, model)
    if parts is None:
        return [*([{"type": "text", "text": message.content}] if message.content else []), *calls]
    waiting = iter(calls)
    return [next(waiting) if part["type"] == "call" else part for part in parts]


@dataclass(frozen=True)
class OwnFields:
    """Extra fields that a provider added to a message and its calls.

    Args:
        message: Fields of the message.
        calls: Fields of each call.
    """

    message: Fields
    calls: tuple[Fields, ...]


def kept_fields(message: ChatMessage, wire: str, model: str) -> OwnFields:
    """Read the fields kept by `parts_with_fields`; empty for another model or another text."""
    parts = _own_parts(message, wire, model) or ()
    merged: dict[str, Any] = {}
    for part in parts:
        # Conversations saved by earlier versions have `reasoning`.
        if part["type"] in ("fields", "reasoning") and isinstance(part.get("fields"), dict):
            merged |= part["fields"]
    calls = [part.get("fields") or {} for part in parts if part["type"] == "call"]
    return OwnFields(merged, tuple(calls or [{}] * len(getattr(message, "tool_calls", None) or ())))


def own_ids(message: ChatMessage, wire: str, model: str) -> frozenset[str]:
    """Collect the call ids in a message that this model made itself and that not every provider accepts."""
    return frozenset(str(part["id"]) for part in _own_parts(message, wire, model) or () if part.get("id"))


def _own_parts(message: ChatMessage, wire: str, model: str) -> tuple[Part, ...] | None:
    own: ProviderState | None = getattr(message, "kept", None)
    if own is None or (own.wire, own.model) != (wire, model):
        return None
    calls = getattr(message, "tool_calls", None) or ()
    kinds = [part.get("type") for part in own.parts]
    text = "".join(str(part.get("text")) for part, kind in zip(own.parts, kinds, strict=True) if kind == "text")
    if None in kinds or text != (message.content or "") or len(calls) != kinds.count("call"):
        return None
    return own.parts


def _with_ids(parts: Sequence[Part], calls: Sequence[AssistantToolCall]) -> list[Part]:
    waiting = iter(calls)
    return [_with_id(part, next(waiting, None)) if part["type"] == "call" else part for part in parts]


def _with_id(part: Part, call: AssistantToolCall | None) -> Part:
    return part if call is None or _COMMON_ID.fullmatch(call.id) or not call.id else {**part, "id": call.id}
