"""Messages in the attributes of a span, in the ways in which instrumentations write them.

They are JSON text, lists of objects, or attributes with a number in their name. A message is as in
the conventions, or as in the API of a provider or a library.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
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
_MAX_DEPTH = 8


class NamedCall(NamedTuple):
    """A call that a message has."""

    id: str
    name: str
    arguments: Any


@dataclass(slots=True)
class Message:
    """A message."""

    role: str
    texts: list[str] = field(default_factory=list)
    calls: list[NamedCall] = field(default_factory=list)
    results: list[tuple[str, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Its text."""
        return "\n".join(filter(None, self.texts))


def value_of(attributes: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Read the first of these attributes that is there, even if it is spread over `name.0.field`.

    JSON text is parsed.
    """
    for name in names:
        value = attributes.get(name)
        if value is None:
            value = _spread(attributes, f"{name}.")
        value = _parsed(value)
        if value not in (None, "", [], {}):
            return value
    return None


def _parsed(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        read = parsed(value)
        return value if read is None else read
    return value


def _spread(attributes: Mapping[str, Any], prefix: str) -> Any:
    """Put attributes together whose names are paths that begin with a number."""
    fields: dict[str, Any] = {}
    for name, value in attributes.items():
        path = name.removeprefix(prefix)
        if path != name and path[:1].isdecimal():
            fields[path] = value
    return _nested(fields, _MAX_DEPTH)


def _nested(fields: Mapping[str, Any], depth: int) -> Any:
    """Put fields together whose names are paths. Numbers in these are those of a list's items."""
    groups: dict[str, dict[str, Any]] = {}
    for path, value in fields.items():
        name, _, rest = path.partition(".")
        groups.setdefault(name, {})[rest] = value
    values: dict[str, Any] = {}
    for name, inner in groups.items():
        values[name] = _nested(inner, depth - 1) if depth and "" not in inner else inner.get("")
    if values and all(map(str.isdecimal, values)):
        # As numbers, which Python does not read beyond 4,300 digits.
        return [values[name] for name in sorted(sorted(values), key=len)]
    return values


def messages_in(value: Any, role: str, depth: int = _MAX_DEPTH) -> Iterator[Message]:
    """Yield the messages in a value.

    Args:
        value: What an attribute has.
        role: The role of a message that does not say it.
        depth: How deep lists are looked into.
    """
    value = _parsed(value)
    if isinstance(value, dict):
        inner = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
        if inner is None:
            yield _message(unwrapped(value), role)
        value = inner
    if isinstance(value, str):
        yield Message(role, [value])
    elif isinstance(value, list) and depth:
        for each in value:
            yield from messages_in(each, role, depth - 1)


def _message(fields: dict[str, Any], role: str) -> Message:
    kind = text_in(fields, "type")
    if kind in _ROLES:
        role = kind
    role = text_in(fields, "role") or role
    message = Message(_ROLES.get(role, role))
    content = _first(fields, _CONTENT)
    parts = objects_in(_parsed(content))
    if _kind(fields) in ("call", "result"):
        parts = [fields]
    for part in parts:
        _add_part(message, unwrapped(part))
    if message.role == "tool" and not message.results:
        message.results.append((text_in(fields, *_IDS), _text_of(content)))
    for name in ("tool_calls", "toolCalls"):
        for call in objects_in(_parsed(fields.get(name))):
            message.calls.append(_call(unwrapped(call)))
    return message


def unwrapped(value: Any) -> dict[str, Any]:
    """Read an object, which may be JSON text, and lift the fields of known wrappers, such as
    `function`, into it.
    """
    value = _parsed(value)
    fields: dict[str, Any] = value if isinstance(value, dict) else {}
    for name in _WRAPPERS:
        inner = _parsed(fields[name]) if name in fields else None
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
        result = _text_of(_first(part, _RESULT))
        message.results.append((text_in(part, *_IDS), result))
    elif kind not in _THOUGHTS and (text or kind not in ("", "text")):
        message.texts.append(text or f"[{kind[:40]}]")


def _call(part: dict[str, Any]) -> NamedCall:
    name = text_in(part, "name", "toolName")
    return NamedCall(text_in(part, *_IDS), name, _first(part, _ARGUMENTS))


def _first(fields: dict[str, Any], names: Iterable[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _text_of(value: Any) -> str:
    """Read a result: a text, parts with texts, or a value as JSON."""
    texts = [text_in(part, "text", "content") for part in objects_in(value)]
    if any(texts) or value in (None, ""):
        return "\n".join(texts)
    return json.dumps(value, ensure_ascii=False)
