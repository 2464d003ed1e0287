"""The events of a turn as a client reads them: JSON, cut, and without the service's internals."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.types.event import Event, Request, StepFinished, StepStarted, ToolFinished, TurnStarted
from casual_mcp_nb.types.tool import ToolName

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage
    from pydantic import BaseModel

MAX_TEXT = 10_000
MAX_ITEMS = 200
MAX_DEPTH = 12
MAX_EVENT = 200_000
"""Maximum size of an event in bytes."""
_LEFT_OUT: Mapping[type[Any], frozenset[str]] = {
    TurnStarted: frozenset({"messages", "price", "began", "recorded"}),
    ToolFinished: frozenset({"result", "large"}),
}
"""Fields that a client has already, or that are too large: a call's text is what the model reads of its result."""


def fields_of(event: Event) -> dict[str, Any]:
    """Convert an event to plain values, its texts and lists cut.

    Of the request of a step there is only its size: it has the system prompt and all definitions.
    """
    left_out = _LEFT_OUT.get(type(event), frozenset())
    named = ((field.name, getattr(event, field.name)) for field in dataclasses.fields(event))
    fields = {name: _plain(value) for name, value in named if name not in left_out}
    if isinstance(event, StepStarted):
        fields["request"] = _size(event.request)
    elif isinstance(event, StepFinished):
        fields["message"] = _plain(message_fields(event.message))
    return fields


def message_fields(message: ChatMessage) -> dict[str, Any]:
    """Convert a message to the fields of its role, without the state that is only for its provider."""
    return message.model_dump(mode="json", include=_names(message.role))


@cache
def _names(role: str) -> set[str]:
    from casual_llm.messages import AssistantMessage, SystemMessage, ToolResultMessage, UserMessage

    kinds: Mapping[str, type[BaseModel]] = {
        "assistant": AssistantMessage,
        "system": SystemMessage,
        "tool": ToolResultMessage,
        "user": UserMessage,
    }
    return set(kinds[role].model_fields)


def as_json(value: Any) -> str:
    """Convert plain values to JSON in ASCII, which can also hold lone surrogates."""
    return json.dumps(value, separators=(",", ":"))


def event_as_sse(event: Event) -> bytes:
    """Format an event as a server-sent event of its name; one that is too large has only its time."""
    name, sent = type(event).__name__, as_sse(type(event).__name__, fields_of(event))
    return sent if len(sent) <= MAX_EVENT else as_sse(name, {"at": event.at, "cut": True})


def as_sse(name: str, value: Any) -> bytes:
    """Format a server-sent event."""
    return f"event: {name}\ndata: {as_json(value)}\n\n".encode()


def _size(request: Request) -> dict[str, Any]:
    return {
        "messages": len(request.messages),
        "tools": len(request.tools) + len(request.found),
        "tokens": request.tokens.total,
        "delivery": request.delivery,
    }


def _plain(value: Any, depth: int = MAX_DEPTH) -> Any:
    match value:
        case None | bool():
            return value
        case int():
            # A larger one is exact in no JavaScript client, and may have thousands of digits.
            return value if abs(value) < 2**63 else "[a large number]"
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}…"
        case ToolName():
            return str(value)[:MAX_TEXT]
    if depth == 0:
        return "[nested too deeply]"
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name), depth - 1) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key)[:MAX_TEXT]: _plain(item, depth - 1) for key, item in islice(value.items(), MAX_ITEMS)}
    if isinstance(value, list | tuple):
        return [_plain(item, depth - 1) for item in value[:MAX_ITEMS]]
    return f"[{type(value).__name__}]"
