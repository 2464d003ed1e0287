"""Start and control the worker process."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

START_SECONDS = 20.0
"""Time limit for starting the process, which does not count towards a job."""
GRACE_SECONDS = 1.0
"""How long a job whose time is up has to be interrupted and to say where it was, before it is
killed.
"""
MAX_BYTES = 8 * 1024 * 1024
"""Maximum size of a job's answer, as JSON."""
MEMORY = 512 * 1024 * 1024
"""The process's memory limit, if the system can enforce one."""

_MODULES = (
    "attr",
    "jinja2",
    "jsonschema",
    "jsonschema_specifications",
    "markupsafe",
    "referencing",
    "rpds",
    "typing_extensions",
)
_CHILD = Path(__file__).with_name("_child.py")


class GaveUp(Exception):
    """A job exceeded a limit.

    The message is a clause that names it, such as `it took more than 2 s`.
    """


class Worker:
    """A process that runs short jobs, one at a time.

    It starts with the first job, and restarts after a job had to be killed.

    It inherits no environment, open files or secrets from this process. It reads jobs and writes
    answers as lines of JSON. It ends with `close`, with the last reference to this object, and with
    this process, however that ends.
    """

    def __init__(self, memory: int = MEMORY) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._closed = False
        self._process: _Process | None = None

    async def call(self, job: str, argument: Any, seconds: float) -> Any:
        """Run a job like `run`, without blocking the caller's loop."""
        return await asyncio.to_thread(self.run, job, argument, seconds)

    def run(self, job: str, argument: Any, seconds: float) -> Any:
        """Run a job in `_child.py` and wait for it. Call it on any thread but an event loop's.

        The limit covers the jobs before it too.

        Raises:
            GaveUp: It took too long, used too much memory, or returned too much, or the process
                does not start.
        """
        line = _line(job, argument)
        if not self._lock.acquire(timeout=seconds):
            raise GaveUp(f"other checks took more than {seconds:.3g} s")
        try:
            process = self._process
            if process is None or not process.alive or process.owner != os.getpid():
                if self._closed:
                    raise GaveUp("the session is closed")
                process = self._process = _Process(self._memory)
                weakref.finalize(self, process.abandon)
            if job not in process.imported:
                process.ask(_line("ready", job), START_SECONDS)
                process.imported.add(job)
            return process.ask(line, seconds)
        finally:
            self._lock.release()

    def close(self, *, for_good: bool = True) -> None:
        """End the process and abandon a running job.

        If it is not for good, the next job starts another process.
        """
        self._closed = self._closed or for_good
        if (process := self._process) is not None:
            process.kill()

    async def aclose(self, *, for_good: bool = True) -> None:
        """Close like `close`, without blocking the caller's loop."""
        try:
            await asyncio.to_thread(self.close, for_good=for_good)
        except RuntimeError:
            # The interpreter is ending: no thread can be started any more.
            self.close(for_good=for_good)

    @property
    def pid(self) -> int | None:
        """The process's id, if one is running."""
        if self._process is None or not self._process.alive:
            return None
        return self._process.pid


class _Process:
    def __init__(self, memory: int) -> None:
        _forget_ended()
        self.owner = os.getpid()
        self.imported: set[str] = set()
        flags = ["-I", "-B", "-X", "utf8"]
        limits = [str(memory), str(MAX_BYTES)]
        command = [sys.executable, *flags, str(_CHILD), *limits, *_library_folders()]
        try:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Python does not start on Windows without it.
                env={name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ},
                cwd=Path(sys.executable).anchor or os.sep,
            )
        except OSError as error:
            raise GaveUp(f"its process does not start ({error.strerror})") from None
        self.pid = self._popen.pid
        if self._exchange(b"", START_SECONDS, 16) is None:
            self.kill()
            raise GaveUp("its process does not start")

    @property
    def alive(self) -> bool:
        return self._popen.poll() is None

    def ask(self, line: bytes, seconds: float) -> Any:
        started = time.monotonic()
        reply = self._exchange(b"%.3f " % seconds + line, seconds + GRACE_SECONDS, MAX_BYTES + 1024)
        if reply is None:
            self.kill()
            if time.monotonic() - started >= seconds:
                raise GaveUp(f"it took more than {seconds:.3g} s")
            raise GaveUp("its process ended early")
        kind, value = json.loads(reply)
        if kind == "gave up":
            raise GaveUp(value)
        return value

    def _exchange(self, line: bytes, seconds: float, limit: int) -> bytes | None:
        """Write a line and read one, or None if the process ended or had to be killed."""
        stdin, stdout = self._popen.stdin, self._popen.stdout
        assert stdin is not None
        assert stdout is not None
        timer = threading.Timer(seconds, self._popen.kill)
        timer.daemon = True
        try:
            timer.start()
            stdin.write(line)
            stdin.flush()
            reply = stdout.readline(limit)
        except (OSError, ValueError):
            return None
        except BaseException:
            # The next job would get the answer to this one.
            self.kill()
            raise
        finally:
            timer.cancel()
        return reply if reply.endswith(b"\n") else None

    def kill(self) -> None:
        """Kill the process and wait for its end, which takes long on a busy machine."""
        if self.owner != os.getpid():
            return
        with contextlib.suppress(OSError):
            self._popen.kill()
        self._popen.wait()
        self._close_pipes()

    def abandon(self) -> None:
        """Kill the process without waiting: garbage is collected on any thread, an event loop's
        too.
        """
        if self.owner != os.getpid():
            return
        with contextlib.suppress(OSError):
            self._popen.kill()
        self._close_pipes()
        _abandoned.append(self._popen)

    def _close_pipes(self) -> None:
        for pipe in (self._popen.stdin, self._popen.stdout):
            # Unwritten data can no longer be written.
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                if pipe is not None:
                    pipe.close()


def _library_folders() -> list[str]:
    """List where the jobs' libraries are, which an isolated interpreter might not find."""
    folders: dict[str, None] = {}
    for name in _MODULES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            folder = Path(spec.origin).parent
            if (folder / "__init__.py").exists():
                folder = folder.parent
            folders[str(folder)] = None
    return list(folders)


_abandoned: list[subprocess.Popen[bytes]] = []
"""Killed processes whose end nobody has waited for."""


def _forget_ended() -> None:
    """Take the exit statuses of abandoned processes, without which the system keeps their
    entries.
    """
    _abandoned[:] = [process for process in _abandoned if process.poll() is None]


atexit.register(_forget_ended)


def _line(job: str, argument: Any) -> bytes:
    return json.dumps([job, argument]).encode() + b"\n"
