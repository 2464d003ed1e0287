"""Server processes: they are started, found again, forked where that is quicker, and ended as groups.

Their stdout is read with limits, and their stderr is kept.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from fastmcp.client.transports.base import ClientTransport, TransportOptions
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.secret import redacted, revealed_by_name
from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers._launch import ANNOUNCEMENT
from casual_mcp_nb.servers.logs import ProbeNoise
from casual_mcp_nb.servers.message_limits import MAX_MESSAGE_BYTES, LineLimit
from casual_mcp_nb.servers.redaction import clean

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

POLL_SECONDS = 0.02
_POSIX = os.name == "posix"


def command_of(config: ServerConfig) -> list[str]:
    """Build a stdio server's command line: the config's own, or a bundled server's."""
    if config.bundled:
        from casual_mcp_nb.bundled import command

        return command(config.bundled, list(config.args))
    return [config.command or "", *config.args]


def launched(command: Sequence[str]) -> list[str]:
    """Prefix a command with the launcher, so that its process can be found and cannot outlive ours.

    Unchanged on Windows.
    """
    if not _POSIX:
        return list(command)
    return [
        sys.executable,
        "-I",
        "-S",
        str(Path(__file__).with_name("_launch.py")),
        str(os.getpid()),
        *command,
    ]


def environment_of(config: ServerConfig) -> dict[str, str]:
    """Collect the variables that a server gets in addition to the SDK's few (HOME, LOGNAME, PATH,
    SHELL, TERM, USER).
    """
    # FastMCP's banner would be the first thing that a person reads of a server that failed.
    variables = {"FASTMCP_SHOW_SERVER_BANNER": "false"}
    # A bundled server looks for the user's files where this process and the command line do.
    folder = os.environ.get("XDG_CONFIG_HOME") if config.bundled else None
    if folder:
        variables["XDG_CONFIG_HOME"] = folder
    return variables | revealed_by_name(config.env)


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
    return (
        f"the command {shown(command[0], 300)} was not"
        f" found{_advice_for_command_line(command[0], path)}"
    )


def _advice_for_command_line(command: str, path: str | None) -> str:
    first, _, arguments = command.strip().partition(" ")
    if not arguments or shutil.which(first, path=path) is None:
        return ""
    return (
        f"; it is a whole command line: put {shown(first)} into command, and the words after it"
        " into args"
    )


def process_ended(pid: int) -> bool:
    """Check whether a child process has ended, even if it has not been waited for."""
    if not hasattr(os, "waitid"):
        # macOS before Python 3.13; a process that ended counts as running until asyncio has waited
        # for it.
        return not _reached(os.kill, pid, 0)
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def signal_group(pid: int, number: int) -> bool:
    """Send a signal to a process group. Return False if it has no members left."""
    return _POSIX and _reached(os.killpg, pid, number)


def _reached(send: Callable[[int, int], None], pid: int, number: int) -> bool:
    try:
        send(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # A zombie on macOS, or another user's process, which we cannot end.
    return True


_GRACE_SECONDS = 0.3


async def end_group(pid: int) -> None:
    """End whatever is left in a process group: SIGTERM, then SIGKILL after a short time."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not signal_group(pid, number):
            return
        for _ in range(round(_GRACE_SECONDS / POLL_SECONDS)):
            await asyncio.sleep(POLL_SECONDS)
            if not signal_group(pid, 0):
                return


KEPT_BYTES = 32 * 1024
TAIL_LINES = 20
LINE_LENGTH = 500


class StderrLog:
    """Reads a server's stderr.

    A thread drains the pipe, so that a server that writes a lot never blocks.

    Attributes:
        pid: The server's process id, as the launcher announced it, or None until then.
        file: The write end, for the server's process.
        on_chunk: Called on the thread with each chunk of output, and with nothing at the end.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.pid: int | None = None
        self.on_chunk: Callable[[bytes], None] = ignore
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
        noise = ProbeNoise()
        cleaned: list[str] = []
        for line in clean(text).strip("\n").split("\n"):
            cleaned += noise.keep(line)
        cleaned += noise.rest()
        return "\n".join(line[:LINE_LENGTH] for line in cleaned[-lines:])

    def close_writer(self) -> None:
        """Close our copy of the write end.

        The log then ends when the last process closes its own.
        """
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


ENCODING = "casual_mcp_nb_lines"
"""A codec for UTF-8 in lines with limited length: encoding is all that the SDK's stdout reader lets
us set.
"""

STDOUT_LINES: ContextVar[LineLimit | None] = ContextVar("STDOUT_LINES", default=None)
"""The filter for decoders created in this context: the SDK creates them, and passes no arguments.
"""


class _Decoder(codecs.IncrementalDecoder):
    """Decodes whole lines only, which also spares the SDK's reader its growing buffer."""

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._lines = STDOUT_LINES.get() or LineLimit(MAX_MESSAGE_BYTES)

    def decode(self, input: ReadableBuffer, final: bool = False) -> str:
        return self._lines.feed(bytes(input)).decode("utf-8", self.errors)


def _search(name: str) -> codecs.CodecInfo | None:
    if name != ENCODING:
        return None
    utf_8 = codecs.lookup("utf-8")
    return codecs.CodecInfo(utf_8.encode, utf_8.decode, incrementaldecoder=_Decoder, name=ENCODING)


codecs.register(_search)


class StdioTransport(ClientTransport):
    """A server process.

    Bytes that are not UTF-8 become U+FFFD. fastmcp's own transport would stop reading forever.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        stderr: TextIO,
        lines: LineLimit,
    ) -> None:
        program, *args = command
        self._parameters = StdioServerParameters(
            command=program,
            args=args,
            env=dict(env),
            cwd=cwd,
            encoding=ENCODING,
            encoding_error_handler="replace",
        )
        self._stderr = stderr
        self._lines = lines

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncIterator[ClientSession]:
        """Start the process. It ends with the session."""
        options = transport_options or TransportOptions()
        STDOUT_LINES.set(self._lines)
        async with (
            stdio_client(self._parameters, errlog=self._stderr) as (read, write),
            options.session_class(read, write, **session_kwargs) as session,
        ):
            yield session
