"""Limits on input: how deeply values are nested, and how many there are.

Too deeply nested values cannot be sent, shown or saved, because JSON encoders recurse. Each value costs whoever reads it up to
a microsecond in a parser and up to a hundred in an SDK, all of it on the event loop, so bytes alone are not a limit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import UsageError

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

MAX_VALUES = 250_000
"""Maximum number of values in one JSON message of a server or a client: parsers take that many in less than 250 ms, and a list
of 10,000 tools has fewer."""
MAX_PARTS = 10_000
"""Maximum number of parts and tool calls in one message of a conversation."""
MAX_DEPTH = 100
"""Maximum nesting of arguments and structured results. Parsers of MCP servers fail at about 200 levels."""

_NESTED = (dict, list, tuple)


def is_too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Check whether objects and lists in a value are nested beyond a limit, as they are in one that contains itself.

    Args:
        value: Any JSON value.
        limit: Maximum number of levels.
    """
    # Depth-first, so that a value that contains itself several times does not grow without bound.
    waiting = [(value, 1)] if isinstance(value, _NESTED) else []
    while waiting:
        node, depth = waiting.pop()
        if depth > limit:
            return True
        for item in node.values() if isinstance(node, dict) else node:
            if isinstance(item, _NESTED):
                waiting.append((item, depth + 1))
    return False


def is_large(value: Any, limit: int = 10_000) -> bool:
    """Check whether a value has too many parts, or too long a string, to traverse quickly.

    Args:
        value: Any JSON value.
        limit: Maximum number of parts; a string may have ten times as many characters.
    """
    waiting, size = [value], 0
    while waiting:
        node = waiting.pop()
        size += 1 + (len(node) // 10 if isinstance(node, str) else 0)
        if isinstance(node, Mapping | list | tuple):
            size += len(node)
            if size <= limit:
                waiting += node.values() if isinstance(node, Mapping) else node
        if size > limit:
            return True
    return False


class ValueCount:
    """Counts the values in chunks of JSON: objects, lists and commas outside strings."""

    def __init__(self) -> None:
        self.values = 0
        self._in_string = False
        self._carried = b""

    def feed(self, chunk: bytes) -> None:
        """Count the next chunk."""
        chunk = self._carried + chunk
        # A split escape belongs to the next chunk.
        cut = (len(chunk) - len(chunk.rstrip(b"\\"))) % 2
        self._carried = chunk[len(chunk) - cut :]
        pieces = chunk[: len(chunk) - cut].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[self._in_string :: 2])
        self.values += sum(map(outside.count, (b",", b"{", b"[")))
        self._in_string ^= len(pieces) % 2 == 0


def parts_in(message: ChatMessage) -> int:
    """Count the parts and tool calls of a message."""
    calls = (message.role == "assistant" and message.tool_calls) or ()
    return len(calls) + (len(message.content) if isinstance(message.content, list) else 0)


def check_parts(messages: Iterable[ChatMessage]) -> None:
    """Check that no message has more than `MAX_PARTS` parts and tool calls.

    Raises:
        UsageError: One has more.
    """
    for number, message in enumerate(messages, 1):
        plain = message.role == "user" and isinstance(message.content, str)
        if not plain and (parts := parts_in(message)) > MAX_PARTS:
            raise UsageError(
                f"Message {number} has {parts:,} parts and tool calls; a message may have {MAX_PARTS:,}.",
                hint="Join texts, or attach a file in fewer pieces.",
            )


def parse_arguments(text: str | None) -> dict[str, Any] | str:
    """Parse the arguments of a call as the model wrote them.

    Returns:
        The arguments; none for an empty string or `null`. The text itself if it is not a JSON object or is nested too deeply;
        `problem_of` says which.
    """
    if text is None or not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if value is None:
        return {}
    if not isinstance(value, dict) or (text.count("{") + text.count("[") > MAX_DEPTH and is_too_deep(value)):
        return text
    return value


def problem_of(text: str) -> str:
    """Describe the problem with arguments that `parse_arguments` could not use, as the predicate of a sentence."""
    try:
        is_object = isinstance(json.loads(text), dict)
    except RecursionError:
        is_object = text.lstrip().startswith("{")
    except ValueError:
        is_object = False
    return f"are nested more than {MAX_DEPTH} levels deep" if is_object else "are not a JSON object"
