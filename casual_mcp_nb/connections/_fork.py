"""Start this process's fork server, from which the bundled servers of all its sessions are forked. Linux only."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from weakref import WeakSet

from casual_mcp_nb.types.server import ServerConfig

_END_SECONDS = 2.0
"""The most that a session waits for it to be gone, which takes a few milliseconds unless the machine is very busy."""
_lock = threading.Lock()


class _ForkServerProcess(NamedTuple):
    address: str
    pid: int
    waiter: threading.Thread

    @property
    def ours(self) -> bool:
        """Whether it is this process's. In a forked child, no thread of ours is alive."""
        return self.waiter.is_alive()


_running: _ForkServerProcess | None = None
_users: WeakSet[object] = WeakSet()


def use_fork_server(user: object) -> None:
    """Keep the fork server, if one is started, until each of its users has called `leave_fork_server`."""
    _users.add(user)


def leave_fork_server(user: object) -> None:
    """End the fork server, and with it its servers, if nobody else uses it. Twice is harmless."""
    with _lock:
        _users.discard(user)
        ending = None if _users or _running is None or not _running.ours else _running
        if ending is not None:
            os.kill(ending.pid, signal.SIGKILL)
    if ending is not None:
        ending.waiter.join(_END_SECONDS)


def fork_server_for(config: ServerConfig) -> str:
    """Start the fork server if need be, and return its address; empty where the server gets an interpreter to itself.

    Args:
        config: Its config. With variables in `env` it is not forked: the interpreter and libraries read some when they start.
    """
    possible = sys.platform == "linux" and hasattr(os, "pidfd_open") and sys.executable
    if not possible or not config.bundled or config.env:
        return ""
    global _running
    with _lock, suppress(OSError):
        if _running is None or not _running.ours:
            _running = _start()
        return _running.address
    return ""


def _start() -> _ForkServerProcess:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        # An abstract address: there is no file to remove. Both sides check who the other is.
        listener.bind("")
        listener.listen(128)
        nowhere = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (1, 2)]
        script = Path(__file__).with_name("_fork_server.py")
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", str(script), str(os.getpid())],
            # Those of each server come with its launcher. HOME may have libraries; the locale is the one that launchers choose.
            {"LC_CTYPE": "C.UTF-8", **{name: value for name, value in os.environ.items() if name == "HOME"}},
            file_actions=[(os.POSIX_SPAWN_DUP2, listener.fileno(), 0), *nowhere],
        )
        address = listener.getsockname()[1:].decode()
    waiter = threading.Thread(target=_wait, args=(pid,), name="mcp-fork-server", daemon=True)
    waiter.start()
    return _ForkServerProcess(address, pid, waiter)


def _wait(pid: int) -> None:
    global _running
    with suppress(ChildProcessError):
        # Its id is free for others only after the second wait, when nobody can use it any more.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with _lock:
            if _running is not None and _running.pid == pid:
                _running = None
            os.waitpid(pid, 0)
