"""Limits: how deep and large input may be, and how long questions stay open.

Values that are nested too deeply cannot be sent, shown or saved, because JSON encoders recurse. And
a limit in bytes is not enough: each value takes up to a microsecond in a parser, and up to a hundred
in an SDK, all of it on the event loop. Imports are kept off the loop, see `load`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.errors import UsageError

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage


LONGEST_WAIT = 60.0
"""The longest wait in seconds that a provider may ask for.

More (`Retry-After: 3600`) is an error immediately.
"""

MAX_VALUES = 250_000
"""How many values a JSON message may have: parsers take that many in less than 250 ms, and a list
of 10,000 tools has fewer.
"""
MAX_PARTS = 10_000
"""How many parts and tool calls one message may have."""
MAX_DEPTH = 100
"""How deeply arguments and structured results may nest.

MCP servers' parsers fail at about 200 levels.
"""

_LARGE = 10_000
_NESTED = (dict, list, tuple)


def is_too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Check whether objects and lists in a value are nested beyond a limit, as they are in one that
    contains itself.
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


def is_large(value: Any) -> bool:
    """Check whether a value has too many parts, or too long a string, to traverse quickly.

    A string may have ten times as many characters.
    """
    waiting, size = [value], 0
    while waiting:
        node = waiting.pop()
        size += 1 + (len(node) // 10 if isinstance(node, str) else 0)
        if isinstance(node, _NESTED):
            size += len(node)
            if size <= _LARGE:
                waiting += node.values() if isinstance(node, dict) else node
        if size > _LARGE:
            return True
    return False


class ValueCount:
    """Counts values in chunks of JSON: objects, lists and commas outside strings."""

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
    """Count a message's parts and tool calls."""
    parts = 0
    if message.role == "assistant":
        parts += len(message.tool_calls or ())
    if isinstance(message.content, list):
        parts += len(message.content)
    return parts


def check_parts(messages: Iterable[ChatMessage]) -> None:
    """Check that no message has more than `MAX_PARTS` parts and tool calls."""
    for number, message in enumerate(messages, 1):
        parts = parts_in(message)
        if parts > MAX_PARTS:
            raise UsageError(
                f"Message {number} has {parts:,} parts and tool calls. A message may have"
                f" {MAX_PARTS:,}.",
                hint="Join texts, or attach a file in fewer pieces.",
            )


def encodable(text: str, errors: str = "backslashreplace") -> str:
    """Escape lone surrogates, which UTF-8 cannot hold, as JSON does, or replace them by `?` with
    `replace`.
    """
    if text.isascii():
        return text
    return text.encode("utf-8", errors).decode()


def strict_json(value: Any) -> tuple[Any, str]:
    """Write a value as JSON that every parser takes.

    Returns:
        The value, in which whatever JSON lacks is replaced: lone surrogates by `?`, NaN and
        infinity by null, and Python objects by their text. And the JSON.
    """
    from pydantic_core import to_json

    try:
        written = to_json(value, inf_nan_mode="constants").decode()
        if "NaN" not in written and "Infinity" not in written:
            return value, written
    except ValueError:
        written = encodable(json.dumps(value, ensure_ascii=False, default=str), "replace")
    plain = json.loads(written, parse_constant=ignore)
    return plain, to_json(plain).decode()


def read_json(text: str | bytes, otherwise: Any = None) -> Any:
    """Read JSON. `otherwise` is returned for what is none, or is nested too deeply to be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise


def typed_value(text: str) -> Any:
    """Read a value that a person typed: as JSON if it can be, otherwise as text."""
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text


ANSWER_SECONDS = 600.0


@dataclass
class AnswerLimits:
    """Limits for questions to the person, shared by everything in a session that asks.

    `seconds` is how long an approval or a server's request waits for an answer. None waits forever.
    The others limit open requests, from one server and in total.
    """

    seconds: float | None = ANSWER_SECONDS
    per_server: int = 8
    in_all: int = 32

    def wait(self, seconds: float | None) -> None:
        """Set how long to wait for an answer: a positive number of seconds, or None."""
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and 0 < seconds <= sys.float_info.max):
            raise UsageError(
                "The time limit for answers must be a positive number of seconds.",
                hint="None waits forever.",
            )
        self.seconds = seconds

    @property
    def nobody_answered(self) -> str:
        """The message when time is up."""
        return f"No one answered within {_in_words(self.seconds or 0)}."


def _in_words(seconds: float) -> str:
    minutes, seconds_left = divmod(seconds, 60)
    if minutes and not seconds_left:
        return count(int(minutes), "minute")
    return f"{seconds:g} s"


_loaded: set[object] = set()


async def load(*modules: str) -> None:
    """Import other packages' modules without blocking the loop, however slow the disk is.

    Do nothing if already imported.
    """
    if not _loaded.issuperset(modules):
        await asyncio.to_thread(_import_all, modules)
        _loaded.update(modules)


def _import_all(modules: Iterable[str]) -> None:
    for name in modules:
        importlib.import_module(name)
