"""Capture a server's stderr: read immediately, keep the end, show it cleaned and redacted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from typing import TextIO

from casual_mcp_nb.connections._launch import ANNOUNCEMENT
from casual_mcp_nb.connections._redactor import clean
from casual_mcp_nb.types.secret import redacted

KEPT_BYTES = 32 * 1024
TAIL_LINES = 20
LINE_LENGTH = 500


class StderrLog:
    """The read end of a server's stderr. A thread drains the pipe, so that a server that writes a lot never blocks.

    Args:
        secrets: Strings to redact in what is shown.

    Attributes:
        pid: Process id of the server, from the launcher's announcement; None until that was read.
        file: The write end, for the server's process.
        on_chunk: Called on the thread with each piece of what the server writes, and with nothing at the end.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.pid: int | None = None
        self.on_chunk: Callable[[bytes], None] = lambda _chunk: None
        self._secrets = frozenset(secrets)
        self._tail = b""
        self._cut = False
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        read, write = os.pipe()
        self.file: TextIO = os.fdopen(write, "w", encoding="utf-8")
        threading.Thread(target=self._read, args=(read,), name="mcp-stderr", daemon=True).start()

    def tail(self, lines: int = TAIL_LINES) -> str:
        """Read the last lines, cleaned and redacted, each cut to 500 characters."""
        text = redacted(self._tail.decode("utf-8", "replace"), self._secrets)
        if self._cut:
            # The first line may begin within a secret, which would then not be recognised.
            text = text.partition("\n")[2] or text[max(map(len, self._secrets), default=0) :]
        cleaned = clean(text).strip("\n").split("\n")
        return "\n".join(line[:LINE_LENGTH] for line in cleaned[-lines:])

    def close_writer(self) -> None:
        """Close our copy of the write end; the log then ends with the last process that holds one."""
        with contextlib.suppress(OSError):
            self.file.close()

    async def wait_end(self, seconds: float) -> None:
        """Wait until everything has been read, with a time limit."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    def _read(self, fd: int) -> None:
        head: bytes | None = b""
        while chunk := _read_chunk(fd):
            if head is not None:
                head += chunk
                if len(head) < len(ANNOUNCEMENT) + 20 and b"\n" not in head:
                    continue
                chunk, head = self._without_announcement(head), None
            self._keep(chunk)
        os.close(fd)
        self._keep(head or b"")
        self.on_chunk(b"")
        # The loop may be gone: the interpreter is ending and nobody waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ended.set)

    def _keep(self, chunk: bytes) -> None:
        tail = self._tail + chunk
        self._cut = self._cut or len(tail) > KEPT_BYTES
        self._tail = tail[-KEPT_BYTES:]
        if chunk:
            self.on_chunk(chunk)

    def _without_announcement(self, head: bytes) -> bytes:
        line, _, remainder = head.partition(b"\n")
        number = line.removeprefix(ANNOUNCEMENT)
        if number == line or not number.isdigit():
            return head
        self.pid = int(number)
        return remainder


def _read_chunk(fd: int) -> bytes:
    try:
        return os.read(fd, 65_536)
    except OSError:
        return b""
