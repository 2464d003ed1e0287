"""Processes of servers: started, found again, their stderr read, forked where that is quicker, ended as groups."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TextIO

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.secret import redacted
from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers._errors import clean
from casual_mcp_nb.servers._launch import ANNOUNCEMENT

POLL_SECONDS = 0.02
_POSIX = os.name == "posix"


def command_of(config: ServerConfig) -> list[str]:
    """Build the command line of a stdio server: the config's own, or that of a bundled server."""
    if config.bundled:
        from casual_mcp_nb.bundled import command

        return command(config.bundled, list(config.args))
    return [config.command or "", *config.args]


def launched(command: Sequence[str]) -> list[str]:
    """Prefix a command with the launcher, so that its process can be found and cannot outlive ours; unchanged on Windows."""
    if not _POSIX:
        return list(command)
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("_launch.py")), str(os.getpid()), *command]


def environment_of(config: ServerConfig) -> dict[str, str]:
    """Collect the variables that a server gets in addition to the SDK's few (HOME, LOGNAME, PATH, SHELL, TERM, USER)."""
    # A bundled server looks for the user's files where this process and the command line do.
    folder = os.environ.get("XDG_CONFIG_HOME") if config.bundled else None
    given = {key: value.get_secret_value() for key, value in config.env.items()}
    return {"XDG_CONFIG_HOME": folder, **given} if folder else given


def why_not_startable(command: Sequence[str], config: ServerConfig) -> str | None:
    """Explain why the command cannot be started, or None if it can."""
    if config.bundled:
        from casual_mcp_nb.bundled.registry import bundled_server

        # Its process would only say so on its stderr, and end.
        if (missing := bundled_server(config.bundled).missing_libraries()) is not None:
            return f"{missing.reason} ({missing.remedy})"
    if config.cwd is not None and not Path(config.cwd).is_dir():
        return f"the folder {shown(config.cwd)} does not exist"
    if any("\0" in word for word in command):
        return "its command contains a NUL character"
    path = config.env["PATH"].get_secret_value() if "PATH" in config.env else None
    folder = config.cwd or "."
    program = str(Path(folder, command[0])) if os.sep in command[0] else command[0]
    if shutil.which(program, path=path):
        return None
    if Path(program).is_file():
        return f"the command {shown(command[0], 300)} is not executable"
    return f"the command {shown(command[0], 300)} was not found{_advice_for_command_line(command[0], path)}"


def _advice_for_command_line(command: str, path: str | None) -> str:
    first, _, arguments = command.strip().partition(" ")
    if not arguments or shutil.which(first, path=path) is None:
        return ""
    return f"; it is a whole command line: put {shown(first)} into command, and the words after it into args"


def process_ended(pid: int) -> bool:
    """Check whether a child process has ended, even if it has not been waited for."""
    if not hasattr(os, "waitid"):
        # macOS before Python 3.13; a process that ended counts as running until asyncio has waited for it.
        return not _process_exists(pid)
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def signal_group(pid: int, number: int) -> bool:
    """Send a signal to a process group; return False if it has no members left."""
    if not _POSIX:
        return False
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        # A zombie on macOS, or a process of another user, which we cannot end.
        return True
    return True


async def end_group(pid: int, grace: float = 0.3) -> None:
    """End the rest of a process group: SIGTERM, then SIGKILL after at most `grace` seconds."""
    if not signal_group(pid, signal.SIGTERM):
        return
    for _ in range(round(grace / POLL_SECONDS)):
        await asyncio.sleep(POLL_SECONDS)
        if not signal_group(pid, 0):
            return
    signal_group(pid, signal.SIGKILL)


KEPT_BYTES = 32 * 1024
TAIL_LINES = 20
LINE_LENGTH = 500


class StderrLog:
    """The read end of a server's stderr. A thread drains the pipe, so that a server that writes a lot never blocks.

    Attributes:
        pid: Process id of the server, from the launcher's announcement, or None until that was read.
        file: The write end, for the server's process.
        on_chunk: Called on the thread with each piece of the server's output, and with nothing at the end.
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
        """Close our copy of the write end. The log then ends with the last process that holds one."""
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
