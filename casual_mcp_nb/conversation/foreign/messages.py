"""Messages as agents and instrumentations write them: as in the API of a provider or a library, or
as in the conventions of OpenTelemetry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from casual_mcp_nb.conversation.foreign.lines import objects_in, parsed, text_in

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "function": "tool",
    "system": "system",
    "tool": "tool",
}
_WRAPPERS = (
    *("message", "kwargs", "data", "message_content"),
    *("tool", "json_schema", "tool_call", "function"),
)
_CONTENT = ("parts", "content", "contents", "text", "message")
_LISTS = ("messages", "choices", "generations")
_CALLS = frozenset({"tool_call", "tool_use", "tool-call", "function_call"})
_RESULTS = frozenset({"tool_call_response", "tool_result", "tool-result", "function_call_output"})
_THOUGHTS = frozenset({"thinking", "reasoning", "redacted_thinking"})
_IDS = ("call_id", "tool_call_id", "tool_use_id", "toolCallId", "id")
_ARGUMENTS = ("arguments", "input", "args")
_RESULT = ("response", "result", "content", "output")
_TEXT = ("text", "content", "tool_name")
_MEDIA = frozenset({"audio", "document", "image", "input_image", "image_url"})
_MAX_DEPTH = 8


class Call(NamedTuple):
    """A tool call that a message asks for."""

    id: str
    name: str
    arguments: Any


class Result(NamedTuple):
    """A result that a message has. `found` are the names of tools in it."""

    id: str
    text: str
    failed: bool = False
    found: Sequence[str] = ()


@dataclass(slots=True)
class Message:
    """A message."""

    role: str
    texts: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Its text."""
        return "\n".join(filter(None, self.texts))


def from_text(value: Any) -> Any:
    """Parse JSON text of an object or a list. Anything else stays as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        read = parsed(value)
        return value if read is None else read
    return value


def messages_in(value: Any, role: str, depth: int = _MAX_DEPTH) -> Iterator[Message]:
    """Yield the messages in a value.

    Args:
        value: What an attribute has.
        role: The role of a message that does not say it.
        depth: How deep lists are looked into.
    """
    value = from_text(value)
    if isinstance(value, dict):
        inner = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
        if inner is None:
            yield message_in(value, role, as_json=True)
        value = inner
    if isinstance(value, str):
        yield Message(role, [value])
    elif isinstance(value, list) and depth:
        for each in value:
            yield from messages_in(each, role, depth - 1)


def message_in(value: dict[str, Any], role: str, *, as_json: bool = False) -> Message:
    """Read a message.

    Args:
        value: The message.
        role: The role of one that does not say it.
        as_json: Whether a text may be its parts as JSON. A text without parts stays one.
    """
    fields = unwrapped(value)
    kind = text_in(fields, "type")
    if kind in _ROLES:
        role = kind
    role = text_in(fields, "role") or role
    message = Message(_ROLES.get(role, role))
    content = _first(fields, _CONTENT)
    parts = objects_in(content)
    if as_json:
        parts = _parts_in(from_text(content)) or parts
    if _kind(fields) in ("call", "result"):
        parts = [fields]
    for part in parts:
        _add_part(message, unwrapped(part))
    if message.role == "tool" and not message.results:
        message.results.append(Result(text_in(fields, *_IDS), text_of(content)))
    for name in ("tool_calls", "toolCalls"):
        for call in objects_in(from_text(fields.get(name))):
            message.calls.append(_call(unwrapped(call)))
    return message


def _parts_in(content: Any) -> list[dict[str, Any]]:
    """List the parts that content consists of: objects that say their kind, or have a text."""
    parts = objects_in(content)
    return parts if all(part.keys() & {"type", "text", "content"} for part in parts) else []


def unwrapped(value: Any) -> dict[str, Any]:
    """Read an object, which may be JSON text, and lift the fields of known wrappers, such as
    `function`, into it.
    """
    value = from_text(value)
    fields: dict[str, Any] = value if isinstance(value, dict) else {}
    for name in _WRAPPERS:
        inner = from_text(fields[name]) if name in fields else None
        if isinstance(inner, dict):
            fields = {**fields, **inner}
    return fields


def _kind(part: dict[str, Any]) -> str:
    kind = text_in(part, "type")
    if kind in _CALLS or "toolCallType" in part:
        return "call"
    return "result" if kind in _RESULTS else kind


def _add_part(message: Message, part: dict[str, Any]) -> None:
    kind, text = _kind(part), text_in(part, "content", "text")
    if kind == "call":
        message.calls.append(_call(part))
    elif kind == "result":
        message.results.append(_result(part))
    elif kind not in _THOUGHTS and (text or kind not in ("", "text")):
        message.texts.append(text or f"[{kind[:40]}]")


def _call(part: dict[str, Any]) -> Call:
    name = text_in(part, "name", "toolName")
    return Call(text_in(part, *_IDS), name, _first(part, _ARGUMENTS))


def _first(fields: dict[str, Any], names: Iterable[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _result(part: dict[str, Any]) -> Result:
    value, failed = _first(part, _RESULT), part.get("is_error") is True
    found = [text_in(each, "tool_name") for each in objects_in(value)]
    return Result(text_in(part, *_IDS), text_of(value), failed, found)


def text_of(value: Any) -> str:
    """Read a result: a text, parts with texts, or a value as JSON."""
    texts: list[str] = []
    for part in objects_in(value):
        text = next((part[name] for name in _TEXT if isinstance(part.get(name), str)), None)
        kind = text_in(part, "type")
        if text is None and kind in _MEDIA:
            text = f"[{kind}]"
        if text is not None:
            texts.append(text)
    if not texts and value not in (None, "", []):
        return json.dumps(value, ensure_ascii=False)
    return "\n".join(filter(None, texts))
