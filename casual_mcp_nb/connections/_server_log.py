"""Record a server's log: its stderr and the log messages that it sends, in one bounded list."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from casual_mcp_nb.connections._redactor import Redactor, clean
from casual_mcp_nb.types.server_records import LogLine, ServerLog

MAX_LINES = 500
LINE_LENGTH = 2_000
MAX_CHARACTERS = 100_000
"""Maximum total length of the returned lines."""
_STORED = 8 * 1024
"""Maximum stored length of a line: longer than what is shown, so that a cut cannot leave half a secret unmasked."""


class LogBuffer:
    """Collects the lines of a server's log across its sessions; for any thread.

    Args:
        server: The server.
        secrets: The values to mask.
    """

    def __init__(self, server: str, secrets: Iterable[str] = ()) -> None:
        self._server = server
        # A secret of several lines, such as a key, arrives line by line.
        self._redact = Redactor({part for secret in secrets for part in (secret, *secret.splitlines())})
        self._lines: deque[tuple[float, str, str]] = deque(maxlen=MAX_LINES)
        self._count = 0
        self._lock = threading.Lock()

    def add(self, level: str, text: str) -> None:
        """Add a line; an empty one is left out."""
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
        """Read the end of the log, cleaned and redacted."""
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
