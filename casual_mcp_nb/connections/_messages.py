"""Messages that are too large or cannot be read: each becomes an error for the call that it belongs to.

The SDK's reader takes time in the square of a message's size, and its parser holds the interpreter for about a microsecond a
value, so size and number of values are bounded before either sees a byte. What is dropped is answered in its place, so that the
call ends at once and the connection goes on.
"""

from __future__ import annotations

import codecs
import json
import re
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from pydantic import ValidationError

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""The largest message that is taken from a server."""
MAX_SSE_MESSAGE_BYTES = 1024 * 1024 - 1024
"""The same for the transport `sse`, whose reader in the SDK ends the session at 1 MB."""
MAX_VALUES = 250_000
"""How many values the largest message may hold: what the SDK parses in less than a quarter of a second, and a list of 10,000
tools."""
MAX_SURROGATES = 300_000
"""How many escaped surrogates a message may hold: 150,000 emoji where a server escapes them."""

ENDLESS_FACTOR = 4
"""So many times the limit may a message be read and dropped; one that has no end by then will not have one."""
STALLED_SECONDS = 1.0
"""A message that is longer under way than this when its call runs out of time is not going to end."""

UNREADABLE = "its reply cannot be read"

_COUNTED_FROM = 256 * 1024

_ENDS_KEPT = 512
# A request of ours has a number. The id comes first in the messages of most servers and last in those of the TypeScript SDK.
_ID_FIRST = re.compile(r'\s*(?:data:\s*)?\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*"?(\d+)\b')
_ID_LAST = re.compile(r'"id"\s*:\s*"?(\d+)"?\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_HALF_A_PAIR = re.compile(
    rb"\\u[dD](?:[89abAB]HH(?!\\u[dD][c-fC-F])|[c-fC-F]HH(?<!\\u[dD][89abAB]HH\\u[dD][c-fC-F]HH))".replace(
        b"HH", rb"[\da-fA-F]{2}"
    )
)
# In their order: an escaped backslash, a whole pair, and what is left of one.
_SURROGATES = re.compile(rb"\\(?:\\|u[dD][89abAB]HH\\u[dD][c-fC-F]HH|(u[dD][89a-fA-F]HH))".replace(b"HH", rb"[\da-fA-F]{2}"))


def id_of(start: str, end: str) -> int | None:
    """The id in a JSON-RPC message, from its start or its end; None where neither holds one."""
    found = _ID_FIRST.match(start) or _ID_LAST.search(end)
    return int(found[1]) if found else None


def input_of(error: ValidationError) -> str:
    """What the parser was given when it failed."""
    return next(map(str, _inputs(error)), "")


def answer_to_unreadable(error: ValidationError) -> dict[str, Any] | None:
    """The error reply that takes the place of a message that cannot be read; None where it cannot be told whose it is."""
    numbers = map(_id_in, _inputs(error))
    number = next((number for number in numbers if number is not None), None)
    return None if number is None else reply(number, UNREADABLE)


def _inputs(error: ValidationError) -> list[Any]:
    return [problem["input"] for problem in error.errors(include_url=False, include_context=False)]


def _id_in(given: Any) -> int | None:
    if isinstance(given, str):
        return id_of(given[:_ENDS_KEPT], given[-_ENDS_KEPT:])
    # What is JSON, but no message, is given as a value by the kinds of message that lack a field.
    number = given.get("id") if isinstance(given, dict) and "method" not in given else None
    return number if isinstance(number, int) else None


def reply(number: int, message: str) -> dict[str, Any]:
    """The error reply to a request."""
    return {"jsonrpc": "2.0", "id": number, "error": {"code": -32603, "message": message}}


def too_large(size: int, limit: int) -> str:
    """What is said of a message of so many bytes."""
    return f"its reply is too large: {size / 2**20:.1f} MB, and at most {limit / 2**20:.0f} MB are taken"


def too_many_values() -> str:
    """What is said of a message that holds too many values."""
    return f"its reply is too large: over {MAX_VALUES:,} values in one message"


class ValueCount:
    """Counts the values in JSON that comes in pieces: objects, lists and commas, but none within texts."""

    def __init__(self) -> None:
        self.values = 0
        self._in_text = False
        self._held = b""

    def feed(self, chunk: bytes) -> None:
        """Count on."""
        chunk = self._held + chunk
        # An escape that is cut in two belongs to the next piece.
        cut = (len(chunk) - len(chunk.rstrip(b"\\"))) % 2
        self._held = chunk[len(chunk) - cut :]
        pieces = chunk[: len(chunk) - cut].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(pieces[self._in_text :: 2])
        self.values += sum(map(outside.count, (b",", b"{", b"[")))
        self._in_text ^= len(pieces) % 2 == 0


def readable(message: bytes) -> bytes | None:
    """A message with U+FFFD for bytes that are not UTF-8 and for halves of surrogate pairs: the SDK's parser would refuse the
    whole message for one of them, and with it a whole list of tools. None where there is more to look at than can be replaced
    in a moment."""
    if not message.isascii():
        message = message.decode("utf-8", "replace").encode()
    surrogates = message.count(b"\\ud") + message.count(b"\\uD")
    if surrogates > MAX_SURROGATES:
        return None
    if surrogates and _HALF_A_PAIR.search(message):
        message = _SURROGATES.sub(lambda found: b"\\ufffd" if found[1] else found[0], message)
    return message


class LineLimit:
    """Passes lines of bytes on as `readable` makes them, but for those longer than a limit: they are dropped as they come and
    answered at their end. One that grows without an end is reported once.

    Args:
        limit: Bytes of a line at most.
        prefix: What a message's line begins with, such as `data: `.
        whole: Whether all bytes are one message, whatever lines it has.
        asked: The id of the request that is answered, where that is known.

    Attributes:
        endless: Whether a line has grown beyond what could still have an end.
        on_endless: Called with words for it when that happens.
    """

    def __init__(self, limit: int, prefix: bytes = b"", whole: bool = False, asked: int | None = None) -> None:
        self.on_endless: Callable[[str], None] = lambda _reason: None
        self._limit = limit
        self._prefix = prefix
        self.whole = whole
        self._asked = asked
        self._parts: list[bytes] = []
        self._size = 0
        self._began = 0.0
        self.endless = False
        self._head = b""
        self._tail = b""
        self._count = ValueCount()

    @property
    def stalled(self) -> str | None:
        """Words for a line that has begun and should have ended by now; None where there is none."""
        if not self._size or (self._size <= self._limit and time.monotonic() - self._began < STALLED_SECONDS):
            return None
        return f"it began a message and did not end it ({_amount(self._size)} without a line break)"

    def feed(self, chunk: bytes, final: bool = False) -> bytes:
        """Take what came; give what is complete.

        Args:
            chunk: The next bytes.
            final: Whether nothing follows.
        """
        out: list[bytes] = []
        lines = [chunk] if self.whole else chunk.split(b"\n")
        for line in lines[:-1]:
            self._add(line)
            out += [self._take(), b"\n"]
        self._add(lines[-1])
        return b"".join([*out, self._take()] if final else out)

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
            for piece in ([part] if counted else self._parts) if self._size > _COUNTED_FROM else ():
                self._count.feed(piece)
            if self._fits:
                return
            part = b""
        if self._parts:
            kept = b"".join(self._parts)
            self._head, self._tail, self._parts = kept[:_ENDS_KEPT], kept[-_ENDS_KEPT:], []
        self._head = self._head or part[:_ENDS_KEPT]
        self._tail = (self._tail + part[-_ENDS_KEPT:])[-_ENDS_KEPT:]

    @property
    def _fits(self) -> bool:
        return self._size <= self._limit and self._count.values <= MAX_VALUES

    def _take(self) -> bytes:
        line = self._whole_line() if self._fits else self._answer(self._reason())
        self._parts, self._size, self._head, self._tail, self._count = [], 0, b"", b"", ValueCount()
        return line

    def _whole_line(self) -> bytes:
        message = b"".join(self._parts)
        line = readable(message)
        if line is None:
            self._head, self._tail = message[:_ENDS_KEPT], message[-_ENDS_KEPT:]
            return self._answer(UNREADABLE)
        return line

    def _reason(self) -> str:
        return too_large(self._size, self._limit) if self._size > self._limit else too_many_values()

    def _answer(self, reason: str) -> bytes:
        number = self._asked
        if number is None:
            number = id_of(self._head.decode("utf-8", "replace"), self._tail.decode("utf-8", "replace"))
        if number is None:
            return b""
        return self._prefix + json.dumps(reply(number, reason)).encode()


def _amount(size: int) -> str:
    return f"{size / 2**20:.1f} MB" if size >= 2**20 else f"{size:,} bytes"


STDOUT_LINES: ContextVar[LineLimit | None] = ContextVar("STDOUT_LINES", default=None)
"""What a decoder that is made in this context passes its bytes through: the SDK makes it, and takes no argument for it."""


class _Decoder(codecs.IncrementalDecoder):
    """Decodes whole lines only, which also spares the SDK's reader its growing buffer."""

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._lines = STDOUT_LINES.get() or LineLimit(MAX_MESSAGE_BYTES)

    def decode(self, input: ReadableBuffer, final: bool = False) -> str:
        return self._lines.feed(bytes(input)).decode("utf-8", self.errors)


def _find(name: str) -> codecs.CodecInfo | None:
    if name != ENCODING:
        return None
    utf_8 = codecs.lookup("utf-8")
    return codecs.CodecInfo(utf_8.encode, utf_8.decode, incrementaldecoder=_Decoder, name=ENCODING)


ENCODING = "casual_mcp_nb_lines"
"""UTF-8 in lines of bounded length: the only way in which the SDK lets its reader of stdout be told something."""

codecs.register(_find)
