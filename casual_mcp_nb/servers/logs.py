"""Text from servers: their logs, their last JSON-RPC messages, and the libraries' log records about them."""

from __future__ import annotations

import json
import logging
import marshal
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from casual_mcp_nb.base.mcp import Direction, LogLine, Message, Messages, ServerLog
from casual_mcp_nb.base.secret import MASK, redacted
from casual_mcp_nb.servers._errors import Redactor, clean

logger = logging.getLogger("casual_mcp_nb.servers")
# Without a handler, Python would print warnings into the cell.
logger.addHandler(logging.NullHandler())

MAX_RECORD_LENGTH = 200
LIBRARIES = (
    "casual_llm",
    "fastmcp",
    "mcp",
    "httpx2",
    "httpcore2",
    "httpx",
    "httpcore",
    "hpack",
    "google.auth",
    "key_value",
    "LiteLLM",
)
SHARED = ("asyncio", "client")
"""Loggers that other programs use too: asyncio's, and the one that the MCP SDK's client session names `client`."""
_OWN = __name__.partition(".")[0]
_secrets: set[str] = set()
_routed: set[str] = set(LIBRARIES)


class _Forward(logging.Handler):
    """Forwards a library's record as one short, redacted line.

    The record itself is replaced by that line too, for other handlers: at level DEBUG the libraries log whole requests and
    results.
    """

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args = _one_line(record), ()
        record.exc_info = record.exc_text = record.stack_info = None
        if logger.isEnabledFor(record.levelno):
            logger.log(record.levelno, "%s: %s", record.name, record.msg)


class _Divert(logging.Filter):
    """Forwards the records of a shared logger that are about the libraries, and leaves those of the user's own code alone."""

    def filter(self, record: logging.LogRecord) -> bool:
        theirs = _code_of(record) in {_OWN, *_routed}
        if theirs:
            _Forward().emit(record)
        return not theirs


def _code_of(record: logging.LogRecord) -> str:
    """Find the package that a record is about: that of the coroutine which failed, else that of the code which logged."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and error.__traceback__ is not None and record.name == "asyncio":
        return str(error.__traceback__.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    loaded = [name for name in (_OWN, *_routed) if name in sys.modules]
    folders = {folder: name for name in loaded for folder in getattr(sys.modules[name], "__path__", ())}
    return next((name for folder, name in folders.items() if record.pathname.startswith(folder)), "")


def _one_line(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:
        text = str(record.msg)
    if record.exc_info and record.exc_info[0] is not None:
        text = f"{text} ({record.exc_info[0].__name__})"
    # Redacted before it is cut: half a secret would not be recognised.
    text = clean(redacted(text, _secrets))
    return f"{text[:MAX_RECORD_LENGTH]}… ({len(text):,} characters)" if len(text) > MAX_RECORD_LENGTH else text


def keep_out_of_log(secrets: Iterable[str]) -> None:
    """Redact these texts in every record of the libraries from now on."""
    _secrets.update(secrets)


def route_library_logs(more: Iterable[str] = ()) -> None:
    """Redirect the records of the MCP and model libraries and their HTTP clients to our logger.

    Other handlers stay. Fastmcp's own are removed. Of the loggers that other programs use too, only the libraries' records are
    redirected.
    """
    _routed.update(more)
    for name in SHARED:
        logger_of_all = logging.getLogger(name)
        if not any(isinstance(each, _Divert) for each in logger_of_all.filters):
            logger_of_all.addFilter(_Divert())
    for name in (*LIBRARIES, *more):
        library = logging.getLogger(name)
        library.propagate = False
        for handler in list(library.handlers):
            if type(handler).__module__.startswith("rich."):
                library.removeHandler(handler)
        if not any(isinstance(handler, _Forward) for handler in library.handlers):
            library.handlers.insert(0, _Forward())


MAX_LINES = 500
LINE_LENGTH = 2_000
MAX_CHARACTERS = 100_000
_STORED = 8 * 1024
"""Maximum stored length of a line: longer than the displayed part, so that a cut cannot leave half a secret unmasked."""


class LogBuffer:
    """Collects the lines of a server's log across its sessions. For any thread."""

    def __init__(self, server: str, secrets: Iterable[str] = ()) -> None:
        self._server = server
        # A secret of several lines, such as a key, arrives line by line.
        self._redact = Redactor({part for secret in secrets for part in (secret, *secret.splitlines())})
        self._lines: deque[tuple[float, str, str]] = deque(maxlen=MAX_LINES)
        self._count = 0
        self._lock = threading.Lock()

    def add(self, level: str, text: str) -> None:
        """Add a line. An empty one is left out."""
        if text.strip():
            with self._lock:
                self._lines.append((time.time(), level, text[:_STORED]))
                self._count += 1

    def stderr(self) -> Callable[[bytes], None]:
        """Create a callback for the chunks of one session's stderr, with an empty one at its end."""
        part = b""

        def feed(chunk: bytes) -> None:
            nonlocal part
            *lines, partial = (part + (chunk or b"\n")).split(b"\n")
            part = partial[:_STORED]
            for line in lines:
                self.add("stderr", line[:_STORED].decode("utf-8", "replace"))

        return feed

    def read(self) -> ServerLog:
        """Read the log's end, cleaned and redacted."""
        lines: list[LogLine] = []
        left = MAX_CHARACTERS
        with self._lock:
            stored, count = tuple(self._lines), self._count
        for at, level, text in reversed(stored):
            shown = clean(self._redact.start(text, LINE_LENGTH, cut=len(text) >= _STORED))
            left -= len(shown)
            if left < 0:
                break
            lines.append(LogLine(at, level, shown))
        return ServerLog(self._server, tuple(reversed(lines)), count - len(lines))


MAX_MESSAGES = 200
MAX_MESSAGE_LENGTH = 20_000
_PLAIN = 2
"""The version of marshal that looks for no values that are the same."""
_MAX_COPIED = 200
_MAX_DEPTH = 50
_MAX_OPEN = 1_000
_BASE64_KEYS = frozenset({"data", "blob"})
_SHORT = 200
_SCALARS = frozenset({bool, int, float})
_MORE = "…"
_INVISIBLE = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _Cut:
    """A string's beginning, longer than the part that is shown, and its total length."""

    text: str
    length: int


class _Stored(NamedTuple):
    at: float
    direction: Direction
    method: str
    tool: str
    body: Any


class MessageLog:
    """Collects the messages of a server across its sessions. Written on one thread, read on any."""

    def __init__(self, server: str, secrets: Iterable[str] = ()) -> None:
        self._server = server
        self._redact = Redactor(secrets)
        self._stored: deque[_Stored] = deque(maxlen=MAX_MESSAGES)
        self._open: dict[tuple[Direction, Any], tuple[str, str]] = {}

    def add(self, direction: Direction, message: Any) -> None:
        """Add one of the SDK's four kinds of JSON-RPC messages."""
        fields = {name: value for name, value in vars(message).items() if value is not None}
        if "error" in fields:
            fields["error"] = vars(fields["error"])
        method, tool = self._subject(direction, fields)
        # Most messages are short, and nobody reads most of them: a copy in C takes a tenth of what a shortened one takes.
        body: Any = None
        result = fields.get("result")
        parts = result.values() if isinstance(result, dict) else ()
        # A whole listing would be copied only to be shortened.
        if not any(isinstance(part, list) and len(part) > _MAX_COPIED for part in parts):
            with suppress(ValueError):
                body = marshal.dumps(fields, _PLAIN)
        if body is None or len(body) > MAX_MESSAGE_LENGTH:
            body = self._shortened(fields)
        self._stored.append(_Stored(time.time(), direction, method, tool, body))

    def _shortened(self, fields: dict[str, Any]) -> dict[str, Any]:
        return _Shortener(MAX_MESSAGE_LENGTH - 4, self._redact.longest).fields(fields)

    def read(self, tool: str | None = None) -> Messages:
        """List the messages, redacted, of one tool or of all."""
        stored = [each for each in tuple(self._stored) if tool is None or each.tool == tool]
        return Messages(self._server, tuple(map(self._message, stored)))

    def _subject(self, direction: Direction, fields: dict[str, Any]) -> tuple[str, str]:
        """Find the method and tool of a message. For a response, those of its request."""
        method, request_id, params = fields.get("method"), fields.get("id"), fields.get("params")
        opposite: Direction = "received" if direction == "sent" else "sent"
        if method is None:
            return self._open.pop((opposite, request_id), ("", ""))
        values = params if isinstance(params, dict) else {}
        method = method if isinstance(method, str) else ""
        if request_id is None:
            if method == "notifications/progress":
                return method, self._open.get((opposite, values.get("progressToken")), ("", ""))[1]
            if method == "notifications/cancelled":
                return method, self._open.get((direction, values.get("requestId")), ("", ""))[1]
            return method, ""
        name = values.get("name") if method == "tools/call" else None
        subject = (method, name if isinstance(name, str) else "")
        self._open[direction, request_id] = subject
        if len(self._open) > _MAX_OPEN:
            self._open.pop(next(iter(self._open)))
        return subject

    def _message(self, stored: _Stored) -> Message:
        body = self._shortened(marshal.loads(stored.body)) if isinstance(stored.body, bytes) else stored.body
        text = json.dumps(self._redacted(body), ensure_ascii=False, indent=2, default=str)
        text = _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
        if len(text) > MAX_MESSAGE_LENGTH:
            text = f"{text[:MAX_MESSAGE_LENGTH]}{_MORE}"
        method, tool = (clean(self._redact(name))[:200] for name in (stored.method, stored.tool))
        return Message(stored.at, stored.direction, method, tool, text)

    def _redacted(self, value: Any) -> Any:
        match value:
            case str():
                return self._redact(value)
            case _Cut(text, length):
                beginning = self._redact.start(text, len(text), cut=True)
                return f"{beginning}{_MORE} ({length:,} characters)"
            case dict():
                return {self._redact(key): self._redacted(item) for key, item in value.items()}
            case list():
                return [self._redacted(item) for item in value]
            case int() | float() if not isinstance(value, bool) and self._redact(str(value)) == MASK:
                return MASK
        return value


class _Shortener:
    """Copies the beginning of a JSON value, in a time independent of its size.

    Of a string that is cut, `spare` more characters are copied, in case the cut is inside a secret.
    """

    def __init__(self, length: int, spare: int) -> None:
        self._left = length
        self._spare = spare

    def short(self, value: Any, key: str = "", depth: int = 0) -> Any:
        self._left -= 4
        if isinstance(value, dict):
            return _MORE if depth > _MAX_DEPTH else self.fields(value, depth)
        if isinstance(value, list) and depth > _MAX_DEPTH:
            return _MORE
        if isinstance(value, (list, tuple)):
            items: list[Any] = []
            for item in value:
                if self._left <= 0:
                    items.append(f"{_MORE} {len(value) - len(items):,} more")
                    break
                items.append(self.short(item, key, depth + 1))
            return items
        if isinstance(value, str):
            return self._text(value, key)
        return value if value is None or isinstance(value, (int, float)) else f"({type(value).__name__})"

    def fields(self, value: dict[Any, Any], depth: int = 0) -> dict[str, Any]:
        copy: dict[str, Any] = {}
        for name, item in value.items():
            left = self._left
            if left <= 0:
                copy[_MORE] = f"{len(value) - len(copy):,} more"
                break
            if type(name) is str and len(name) <= _SHORT:
                self._left = left = left - len(name)
            else:
                name = self._key(name)
            kind = type(item)
            # Nearly all items are short: a call for each would take longer than all else.
            if kind is str and len(item) <= _SHORT and len(item) + 4 <= left:
                self._left = left - len(item) - 4
                copy[name] = item
            elif item is None or kind in _SCALARS:
                self._left = left - 4
                copy[name] = item
            elif kind is dict and depth < _MAX_DEPTH:
                self._left = left - 4
                copy[name] = self.fields(item, depth + 1) if item else {}
            else:
                copy[name] = self.short(item, name[:20], depth + 1)
        return copy

    def _text(self, value: str, key: str) -> Any:
        if key in _BASE64_KEYS and len(value) > _SHORT and " " not in value[:_SHORT]:
            return f"({len(value):,} characters of base64)"
        room = max(self._left, 0)
        self._left -= len(value)
        return value if len(value) <= room else _Cut(value[: room + self._spare], len(value))

    def _key(self, name: object) -> str:
        key = str(name)
        self._left -= len(key)
        return key if len(key) <= _SHORT else f"({len(key):,} characters)"
