"""Start this process's fork server, from which the bundled servers of all its sessions are forked. Linux only."""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from casual_mcp_nb.types.server import ServerConfig

_lock = threading.Lock()


class _Running(NamedTuple):
    address: str
    waiter: threading.Thread


_running: _Running | None = None


def fork_server_for(config: ServerConfig) -> str:
    """Return the address of the fork server, started if need be; empty where the server gets an interpreter to itself.

    Args:
        config: Its config. With variables in `env` it is not forked: the interpreter and libraries read some when they start.
    """
    possible = sys.platform == "linux" and hasattr(os, "pidfd_open") and sys.executable
    if not possible or not config.bundled or config.env:
        return ""
    global _running
    with _lock, suppress(OSError):
        # In a forked child of this process, no thread of ours is alive.
        if _running is None or not _running.waiter.is_alive():
            _running = _start()
        return _running.address
    return ""


def _start() -> _Running:
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
    return _Running(address, waiter)


def _wait(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)
