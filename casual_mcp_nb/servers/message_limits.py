"""Limit the messages of servers: one that is too large, or cannot be read, fails only the call that
it belongs to.

The SDK's reader takes quadratic time in a message's size, and its parser holds the interpreter for
about a microsecond per value, so both are limited before either sees a byte. A dropped message is
replaced by an error reply: its call ends immediately, and the connection continues.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.limits import MAX_VALUES, ValueCount
from casual_mcp_nb.servers._envelopes import repaired

if TYPE_CHECKING:
    from pydantic import ValidationError

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_SSE_MESSAGE_BYTES = 1024 * 1024 - 1024
"""The same for the transport `sse`, whose reader in the SDK ends the session at 1 MB."""
MAX_SURROGATES = 300_000
"""How many escaped surrogates a message may have: 150,000 emoji, if a server escapes them."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some servers on Windows begin their output with it, and some event streams do.

It does not belong to a message.
"""

ENDLESS_FACTOR = 4
"""An oversized message is read and dropped up to this many times the limit.

Beyond that, it counts as endless.
"""
STALLED_SECONDS = 1.0
"""A message that has been incomplete for longer than this when its call times out counts as
endless.
"""

UNREADABLE = "its reply cannot be read"

_COUNTED_FROM = 256 * 1024

_END_LENGTH = 512
# Our request ids are numbers. Most servers put the id first, the TypeScript SDK last.
_ID_FIRST = re.compile(
    r'\s*(?:data:\s*)?\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?(\d+)\b'
)
_ID_LAST = re.compile(r'"id"\s*:\s*"?(\d+)"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_HALF_A_PAIR = re.compile(
    rb"\\u[dD](?:[89abAB]HH(?!\\u[dD][c-fC-F])|[c-fC-F]HH(?<!\\u[dD][89abAB]HH\\u[dD][c-fC-F]HH))".replace(
        b"HH", rb"[\da-fA-F]{2}"
    )
)
# In order: an escaped backslash, a whole pair, and half a pair.
_SURROGATES = re.compile(
    rb"\\(?:\\|u[dD][89abAB]HH\\u[dD][c-fC-F]HH|(u[dD][89a-fA-F]HH))".replace(
        b"HH", rb"[\da-fA-F]{2}"
    )
)


def id_of(start: str, end: str) -> int | None:
    """Find a JSON-RPC message's id at its start or end, or None if neither contains one."""
    match = _ID_FIRST.match(start) or _ID_LAST.search(end)
    if match:
        return int(match[1])
    return None


def input_of(error: ValidationError) -> str:
    """Find the input on which the parser failed."""
    return next(map(str, _inputs(error)), "")


def answer_to_unreadable(error: ValidationError) -> dict[str, Any] | None:
    """Build the error reply that replaces an unreadable message, or None if its request is
    unknown.
    """
    ids = map(_id_in, _inputs(error))
    request_id = next((each for each in ids if each is not None), None)
    if request_id is None:
        return None
    return reply(request_id, UNREADABLE)


def _inputs(error: ValidationError) -> list[Any]:
    return [problem["input"] for problem in error.errors(include_url=False, include_context=False)]


def _id_in(given: Any) -> int | None:
    if isinstance(given, str):
        return id_of(given[:_END_LENGTH], given[-_END_LENGTH:])
    # JSON that is not a message causes an error per message kind, with the value as input.
    request_id = given.get("id") if isinstance(given, dict) and "method" not in given else None
    if isinstance(request_id, int):
        return request_id
    return None


def reply(request_id: int, message: str) -> dict[str, Any]:
    """Build the error reply to a request.

    See https://www.jsonrpc.org/specification#error_object.
    """
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": -32603, "message": message}}


def readable(message: bytes) -> bytes | None:
    """Replace bytes that are not UTF-8, and lone surrogates, with U+FFFD.

    A single one would make the SDK's parser refuse the whole message, such as a list of tools. None
    if there are too many.
    """
    if not message.isascii():
        message = message.decode("utf-8", "replace").encode()
    surrogates = message.count(b"\\ud") + message.count(b"\\uD")
    if surrogates > MAX_SURROGATES:
        return None
    if surrogates and _HALF_A_PAIR.search(message):
        message = _SURROGATES.sub(lambda match: b"\\ufffd" if match[1] else match[0], message)
    return message


class LineLimit:
    """Forwards lines of bytes repaired by `readable`.

    Lines above a limit are dropped, and answered when they end.

    Args:
        whole: Whether all bytes are one message, regardless of line breaks.

    Attributes:
        endless: Whether a line is so long that it counts as endless.
        on_endless: Called once with the reason when that happens.
    """

    def __init__(
        self, limit: int, prefix: bytes = b"", whole: bool = False, request_id: int | None = None
    ) -> None:
        self.on_endless: Callable[[str], None] = ignore
        self._limit = limit
        self._prefix = prefix
        self.whole = whole
        self._request_id = request_id
        self._parts: list[bytes] = []
        self._size = 0
        self._began = 0.0
        self.endless = False
        self._head = b""
        self._tail = b""
        self._count = ValueCount()

    @property
    def stalled(self) -> str | None:
        """The problem with a line that should have ended by now, if there is one."""
        if not self._size or (
            self._size <= self._limit and time.monotonic() - self._began < STALLED_SECONDS
        ):
            return None
        return f"it began a message and did not end it ({_amount(self._size)} without a line break)"

    def feed(self, chunk: bytes, final: bool = False) -> bytes:
        """Add bytes, and return the complete lines."""
        out: list[bytes] = []
        lines = [chunk] if self.whole else chunk.split(b"\n")
        for line in lines[:-1]:
            self._add(line)
            out += [self._finish(), b"\n"]
        self._add(lines[-1])
        if final:
            out.append(self._finish())
        return b"".join(out)

    def _add(self, part: bytes) -> None:
        if part and not self._size:
            self._began = time.monotonic()
        counted = self._size > _COUNTED_FROM
        self._size += len(part)
        if self._size > self._limit * ENDLESS_FACTOR and not self.endless:
            self.endless = True
            self.on_endless(f"it sent a message without an end ({_amount(self._size)} so far)")
        if self._fits:
            self._parts.append(part)
            # Small messages, which are nearly all, are not counted.
            if counted:
                self._count.feed(part)
            elif self._size > _COUNTED_FROM:
                for piece in self._parts:
                    self._count.feed(piece)
            if self._fits:
                return
            part = b""
        if self._parts:
            start = b"".join(self._parts)
            self._head, self._tail, self._parts = start[:_END_LENGTH], start[-_END_LENGTH:], []
        self._head = self._head or part[:_END_LENGTH]
        self._tail = (self._tail + part[-_END_LENGTH:])[-_END_LENGTH:]

    @property
    def _fits(self) -> bool:
        return self._size <= self._limit and self._count.values <= MAX_VALUES

    def _finish(self) -> bytes:
        line = self._whole_line() if self._fits else self._answer(self._reason())
        self._parts, self._size, self._head, self._tail, self._count = [], 0, b"", b"", ValueCount()
        return line

    def _whole_line(self) -> bytes:
        message = b"".join(self._parts).removeprefix(BYTE_ORDER_MARK)
        line = readable(message)
        if line is None:
            self._head, self._tail = message[:_END_LENGTH], message[-_END_LENGTH:]
            return self._answer(UNREADABLE)
        return repaired(line)

    def _reason(self) -> str:
        if self._size > self._limit:
            return (
                f"its reply is too large: {self._size / 2**20:.1f} MB, and at most"
                f" {self._limit / 2**20:.0f} MB are accepted"
            )
        return f"its reply is too large: over {MAX_VALUES:,} values in one message"

    def _answer(self, reason: str) -> bytes:
        request_id = self._request_id
        if request_id is None:
            request_id = id_of(
                self._head.decode("utf-8", "replace"), self._tail.decode("utf-8", "replace")
            )
        if request_id is None:
            return b""
        return self._prefix + json.dumps(reply(request_id, reason)).encode()


def _amount(size: int) -> str:
    if size >= 2**20:
        return f"{size / 2**20:.1f} MB"
    return f"{size:,} bytes"
