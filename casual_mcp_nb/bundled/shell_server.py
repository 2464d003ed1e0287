"""The `shell` server: run commands, with limits. Disabled by default."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from casual_mcp_nb.bundled._server import FunctionServer, destroys

MAX_SECONDS = 600.0
_DRAIN_SECONDS = 1.0
_END_SECONDS = 10.0
"""How long to wait for a command's leftover processes to end."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the server's command line options."""
    parser.add_argument(
        "--cwd", default=".", metavar="DIR", help="where commands run (default: the current folder)"
    )
    parser.add_argument(
        "--max-output",
        type=int,
        default=20_000,
        metavar="BYTES",
        help="maximum bytes kept of each stream (20000)",
    )


def build(cwd: str = ".", max_output: int = 20_000) -> FunctionServer:
    """Build the server. The folder that commands run in confines nothing.

    Keeps `max_output` bytes per output stream.
    """
    if not Path(cwd).is_dir():
        raise ValueError(f"not an existing folder: {cwd}")
    if max_output < 100:
        raise ValueError("--max-output must be at least 100")
    shell = Shell(Path(cwd).resolve(), max_output)
    tools = destroys(shell.run_command, open_world=True)
    return FunctionServer(
        "shell", "Run shell commands on this computer.", tools, on_close=shell.close
    )


class Shell:
    """The tool, and its running process groups."""

    def __init__(self, cwd: Path, max_output: int) -> None:
        self._cwd = cwd
        self._max_output = max_output
        self._running: set[int] = set()

    async def run_command(
        self,
        command: Annotated[
            str, Field(description="The command line for bash", min_length=1, max_length=20_000)
        ],
        timeout_seconds: Annotated[
            float,
            Field(description="When to end the command", gt=0, le=MAX_SECONDS, allow_inf_nan=False),
        ] = 30.0,
    ) -> dict[str, Any]:
        """Run a shell command on this computer, with bash if it is there.

        Returns its exit code, output and error output.

        Processes left in the background are ended with it; too much output is cut in the middle.
        """
        started = time.monotonic()
        transport, output = await self._start(command)
        pid = transport.get_pid()
        self._running.add(pid)
        try:
            with anyio.move_on_after(timeout_seconds) as limit:
                await output.exited.wait()
        finally:
            with anyio.CancelScope(shield=True):
                if not output.exited.is_set():
                    _end(pid)
                with anyio.move_on_after(_END_SECONDS):
                    await output.exited.wait()
                self._running.discard(pid)
                # A process that could not be found may hold the pipes open forever.
                with anyio.move_on_after(_DRAIN_SECONDS):
                    await output.closed.wait()
            transport.close()
        return {
            "exit_code": transport.get_returncode(),
            "stdout": output.out.text(),
            "stderr": output.err.text(),
            "timed_out": limit.cancelled_caught,
            "truncated": output.out.cut or output.err.cut,
            "seconds": round(time.monotonic() - started, 3),
        }

    def close(self) -> None:
        """End every running command."""
        for pid in self._running:
            _end(pid)

    async def _start(self, command: str) -> tuple[asyncio.SubprocessTransport, _Output]:
        try:
            return await asyncio.get_running_loop().subprocess_exec(
                partial(_Output, self._max_output),
                *_arguments(command),
                stdin=subprocess.DEVNULL,
                cwd=self._cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ToolError(f"The command cannot be started: {error}.") from error


class _Output(asyncio.SubprocessProtocol):
    """Collects a process's two streams, and tells when it has ended and when they are closed."""

    def __init__(self, limit: int) -> None:
        self.out, self.err = BothEnds(limit), BothEnds(limit)
        self.exited, self.closed = asyncio.Event(), asyncio.Event()
        self._open = {1, 2}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        (self.out if fd == 1 else self.err).add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open:
            self.closed.set()

    def process_exited(self) -> None:
        self.exited.set()


def _arguments(command: str) -> list[str]:
    if os.name == "nt":
        return ["cmd", "/c", command]
    reaper = [
        sys.executable,
        "-I",
        "-S",
        str(Path(__file__).with_name("_reaper.py")),
        str(os.getpid()),
    ]
    return [*reaper, shutil.which("bash") or "/bin/sh", "-c", command]


def _end(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGTERM)


class BothEnds:
    """Keeps a stream's first and last bytes, half the limit from each end, and its total size."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    @property
    def cut(self) -> bool:
        """Whether the middle was dropped."""
        return self.total > 2 * self._half

    def add(self, data: bytes) -> None:
        """Add the stream's next bytes."""
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        del self._tail[: -self._half]

    def text(self) -> str:
        """Decode the kept bytes as UTF-8, with a count of dropped bytes in between."""
        if not self.cut:
            return (self._head + self._tail).decode(errors="replace")
        missing = self.total - len(self._head) - len(self._tail)
        head, tail = self._head.decode(errors="replace"), self._tail.decode(errors="replace")
        return f"{head}\n[... {missing} of {self.total} bytes left out ...]\n{tail}"
