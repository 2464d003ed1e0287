"""Text from servers: their logs, and the libraries' log records about them."""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from casual_mcp_nb.base.secret import redacted
from casual_mcp_nb.base.wire import LogLine, ServerLog
from casual_mcp_nb.servers.redaction import Redactor, clean

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
"""Loggers that other programs use too: asyncio's, and the one that the MCP SDK's client session
names `client`.
"""
_OWN = __name__.partition(".")[0]
_secrets: set[str] = set()
_routed: set[str] = set(LIBRARIES)


class _Forward(logging.Handler):
    """Forwards a library's record as one short, redacted line.

    The record itself is replaced by that line too, for other handlers: at level DEBUG the libraries
    log whole requests and results.
    """

    def emit(self, record: logging.LogRecord) -> None:
        record.msg, record.args = _one_line(record), ()
        record.exc_info = record.exc_text = record.stack_info = None
        if logger.isEnabledFor(record.levelno):
            logger.log(record.levelno, "%s: %s", record.name, record.msg)


class _Divert(logging.Filter):
    """Forwards a shared logger's records about the libraries, and leaves the user's own alone."""

    def filter(self, record: logging.LogRecord) -> bool:
        theirs = _code_of(record) in {_OWN, *_routed}
        if theirs:
            _Forward().emit(record)
        return not theirs


def _code_of(record: logging.LogRecord) -> str:
    """Find the package that a record is about: the failed coroutine's, else the logging code's."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and error.__traceback__ is not None and record.name == "asyncio":
        return str(error.__traceback__.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
    loaded = [name for name in (_OWN, *_routed) if name in sys.modules]
    folders = {}
    for name in loaded:
        for folder in getattr(sys.modules[name], "__path__", ()):
            folders[folder] = name
    return next(
        (name for folder, name in folders.items() if record.pathname.startswith(folder)), ""
    )


def _one_line(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception:
        text = str(record.msg)
    if record.exc_info and record.exc_info[0] is not None:
        text = f"{text} ({record.exc_info[0].__name__})"
    # Redacted before it is cut: half a secret would not be recognised.
    text = clean(redacted(text, _secrets))
    if len(text) > MAX_RECORD_LENGTH:
        return f"{text[:MAX_RECORD_LENGTH]}… ({len(text):,} characters)"
    return text


def keep_out_of_log(secrets: Iterable[str]) -> None:
    """Redact these texts in every library record from now on."""
    _secrets.update(secrets)


def route_library_logs(more: Iterable[str] = ()) -> None:
    """Redirect log records from the MCP and model libraries and their HTTP clients to our logger.

    Other handlers stay, except fastmcp's own. From loggers that other programs use too, only the
    libraries' records are redirected.
    """
    others = tuple(more)
    _routed.update(others)
    for name in SHARED:
        logger_of_all = logging.getLogger(name)
        if not any(isinstance(each, _Divert) for each in logger_of_all.filters):
            logger_of_all.addFilter(_Divert())
    for name in (*LIBRARIES, *others):
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
"""Maximum stored line length: longer than the displayed part, so that a cut cannot leave half a
secret unmasked.
"""


PROBE_LEFT_OUT = (
    "(left out: validation errors of server/discover, which this server does not know, as is usual"
    " for mcp 1.x)"
)
_MAX_HELD = 30


class ProbeNoise:
    """Leaves out what servers built on mcp 1.x log about a request that they do not know: 94 to 277
    lines.

    It is a validation error with lines for every request that they do know, plain, or in a column
    if they have `rich`. Other validation errors stay.
    """

    _BEGIN = re.compile(
        r"Failed to validate request:|Message that failed validation:|validation errors? for"
        r" ClientRequest"
    )
    _OF_ERROR = re.compile(
        r"\s*$|\s+(?=\S)(?!(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\s)|[A-Z]\w+(?:\.[\w.]+)+\s*$"
    )

    def __init__(self) -> None:
        self._held: list[str] | None = None
        self._known = False

    def keep(self, line: str) -> list[str]:
        """Take the next line, and return those that stay: this one, none, or some that were held
        until now.
        """
        begins = self._BEGIN.search(line) is not None
        if self._held is None and not begins:
            return [line]
        if not begins and not self._OF_ERROR.match(line):
            return [*self.rest(), line]
        if self._held is None:
            self._held = []
        if self._known:
            return []
        self._held.append(line)
        if "server/discover" in line:
            self._held, self._known = [], True
            return [PROBE_LEFT_OUT]
        if len(self._held) > _MAX_HELD:
            return self.rest()
        return []

    def rest(self) -> list[str]:
        """End an error, and return the lines that were held in case it were one to leave out."""
        held, self._held, self._known = self._held or [], None, False
        return held


class LogBuffer:
    """Collects a server's log lines across its sessions. Thread-safe."""

    def __init__(self, server: str, secrets: Iterable[str] = ()) -> None:
        self._server = server
        # A secret with several lines, such as a key, arrives line by line.
        parts: set[str] = set()
        for secret in secrets:
            parts.update((secret, *secret.splitlines()))
        self._redact = Redactor(parts)
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
        """Create a callback for the chunks of a session's stderr, with an empty one at the end."""
        part = b""
        noise = ProbeNoise()

        def feed(chunk: bytes) -> None:
            nonlocal part
            *lines, partial = (part + (chunk or b"\n")).split(b"\n")
            part = partial[:_STORED]
            for line in lines:
                for kept in noise.keep(line[:_STORED].decode("utf-8", "replace")):
                    self.add("stderr", kept)
            for kept in noise.rest() if not chunk else ():
                self.add("stderr", kept)

        return feed

    def read(self) -> ServerLog:
        """Read the last lines, cleaned and redacted."""
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


_NOISE = re.compile(
    r"""\s*$                                              # nothing
    |npm\ (error|ERR!)\s*(code\b|errno\b|syscall\b|path\b|\d+\s*$|A\ complete\ log\b|.*[/\\]_logs[/\\]|$)
    |npm\ (warn|WARN|notice)\b
    |Node\.js\ v\d                                        # the last line of every Node crash
    |\s+at\ |\s*[\^~]+\s*$|[{}\s\]]+$                     # stack frames and marks
    """,
    re.VERBOSE,
)
_NPM = re.compile(r"npm (error|ERR!)\s*(\d+\s+)?")
_ERROR = re.compile(
    r"(error|exception|fatal|panic)\b|not found|cannot find|failed|denied", re.IGNORECASE
)


def telling_line(stderr: str) -> str:
    """Find the line that explains why a process failed: npm's first, otherwise the last error or
    the last line.
    """
    lines = [line.strip() for line in stderr.splitlines() if not _NOISE.match(line)]
    npm = [line for line in lines if _NPM.match(line)]
    if npm:
        return _NPM.sub("", npm[0])
    errors = [line for line in lines if _ERROR.search(line)]
    return (errors or lines or [""])[-1]
