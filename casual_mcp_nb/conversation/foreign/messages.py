"""Messages as agents and instrumentations write them: as in the API of a provider or a library, or
as in the conventions of OpenTelemetry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from casual_mcp_nb.conversation.foreign.lines import Fields, objects_in, parsed, text_in

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
_KIND = ("type", "toolCallType")
_CALLS = frozenset({"tool_call", "tool_use", "tool-call", "function", "function_call"})
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

    def add(self, part: Fields) -> None:
        """Add a part, except for thoughts."""
        kind, text = text_in(part, *_KIND), text_in(part, "content", "text")
        if kind in _CALLS:
            self.calls.append(_call(part))
        elif kind in _RESULTS:
            self.results.append(_result(part))
        elif kind not in _THOUGHTS and (text or kind not in ("", "text")):
            self.texts.append(text or f"[{kind[:40]}]")


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


def message_in(value: Fields, role: str, *, as_json: bool = False) -> Message:
    """Read a message.

    Args:
        value: The message.
        role: The role of one that does not say it.
        as_json: Whether a text may be its parts as JSON. A text without parts stays one.
    """
    fields = unwrapped(value)
    kind = text_in(fields, *_KIND)
    is_part = kind in _CALLS | _RESULTS
    if kind in _ROLES and not is_part:
        role = kind
    role = text_in(fields, "role") or role
    message = Message(_ROLES.get(role, role))
    content = _first(fields, _CONTENT)
    parts = objects_in(content)
    if as_json:
        inner = objects_in(from_text(content))
        if all(part.keys() & {"type", "text", "content"} for part in inner):
            parts = inner or parts
    if is_part:
        parts = [fields]
    for part in parts:
        message.add(unwrapped(part))
    if message.role == "tool" and not message.results:
        message.results.append(Result(text_in(fields, *_IDS), text_of(content)))
    for name in ("tool_calls", "toolCalls"):
        for call in objects_in(from_text(fields.get(name))):
            message.calls.append(_call(unwrapped(call)))
    return message


def unwrapped(value: Any) -> Fields:
    """Read an object, which may be JSON text, and lift the fields of known wrappers, such as
    `function`, into it.
    """
    value = from_text(value)
    fields: Fields = value if isinstance(value, dict) else {}
    for name in _WRAPPERS:
        inner = from_text(fields[name]) if name in fields else None
        if isinstance(inner, dict):
            fields = {**fields, **inner}
    return fields


def _call(part: Fields) -> Call:
    name = text_in(part, "name", "toolName")
    return Call(text_in(part, *_IDS), name, _first(part, _ARGUMENTS))


def _first(fields: Fields, names: Iterable[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _result(part: Fields) -> Result:
    value, failed = _first(part, _RESULT), part.get("is_error") is True
    found = [text_in(each, "tool_name") for each in objects_in(value)]
    return Result(text_in(part, *_IDS), text_of(value), failed, found)


def text_of(value: Any) -> str:
    """Read a result: a text, parts with texts, or a value as JSON."""
    texts: list[str] = []
    is_text = value in (None, "", [])
    for part in objects_in(value):
        kind, text = text_in(part, "type"), text_in(part, *_TEXT)
        if not text and kind in _MEDIA:
            text = f"[{kind}]"
        texts.append(text)
        is_text = is_text or kind == "text"
    if is_text or any(texts):
        return "\n".join(filter(None, texts))
    return json.dumps(value, ensure_ascii=False)
