"""The fork server: it has imported the MCP SDK, and forks a process for each bundled server.

Run by path, without the package, whose modules each server imports itself. Its stdin is the listening socket. Each connection
is a launcher (`_launch.py`), whose signals are passed on; a server is killed when its launcher ends, and the launcher gets its
exit code. There is one thread and no event loop.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

IDLE_SECONDS = 20.0
"""It ends when there was no server for so long."""
_REQUEST_BYTES = 1 << 20


class LaunchRequest(NamedTuple):
    """A launcher's request: the server that a forked process becomes.

    Args:
        arguments: A script and its arguments.
        folder: The working directory.
        variables: The environment.
        umask: The mask for new files.
        streams: Descriptors for stdin, stdout and stderr.
    """

    arguments: list[str]
    folder: str
    variables: dict[str, str]
    umask: int
    streams: list[int]


class ForkServer:
    """Forks a process for each request, and watches it.

    Args:
        listener: Where launchers connect.
        parent: The process whose children may be launchers, and with which it ends.
        watched: A descriptor of that process.
    """

    def __init__(self, listener: socket.socket, parent: int, watched: int) -> None:
        # Not epoll, whose descriptor would be shared with the forked processes.
        self._selector = selectors.PollSelector()
        self._listener = listener
        self._parent = parent
        self._selector.register(watched, selectors.EVENT_READ)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def serve(self) -> LaunchRequest | None:
        """Serve until the parent ends or nothing is left to do; in a forked process, return the request to run."""
        while True:
            idle = len(self._selector.get_map()) == 2
            events = self._selector.select(IDLE_SECONDS if idle else None)
            # The others are reported again: a handler may close what another event is about.
            handler: Callable[[], LaunchRequest | None] | None = events[0][0].data if events else None
            if handler is None:
                return None
            if request := handler():
                return request

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        # Nothing is waited for here: whoever sends no request holds up nobody.
        with suppress(OSError):
            if _is_launcher(connection, self._parent):
                connection.setblocking(False)
                connection.send(b"ready")
                self._selector.register(connection, selectors.EVENT_READ, lambda: self._fork(connection))
                return
        connection.close()

    def _fork(self, connection: socket.socket) -> LaunchRequest | None:
        self._selector.unregister(connection)
        if (request := _received(connection)) is not None:
            server, pid = os.getpid(), -1
            with suppress(OSError):
                pid = os.fork()
            if pid == 0:
                os.setpgid(0, 0)
                parent_death_signal = 1
                ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
                if os.getppid() != server:
                    os._exit(0)
                connection.close()
                for key in [*self._selector.get_map().values()]:
                    key.fileobj.close() if isinstance(key.fileobj, socket.socket) else os.close(key.fd)
                return request
            for stream in request.streams:
                os.close(stream)
            if pid > 0:
                self._watch(pid, connection)
                return None
        connection.close()
        return None

    def _watch(self, pid: int, connection: socket.socket) -> None:
        # Both it and the process do this, because either may be first.
        with suppress(OSError):
            os.setpgid(pid, pid)
        process = os.pidfd_open(pid)
        self._selector.register(process, selectors.EVENT_READ, lambda: self._ended(pid, process, connection))
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._signal(pid, connection))
        with suppress(OSError):
            connection.send(b"forked")

    def _signal(self, pid: int, connection: socket.socket) -> None:
        try:
            number = connection.recv(1)
        except OSError:
            number = b""
        if not number:
            self._selector.unregister(connection)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number[0] if number else signal.SIGKILL)

    def _ended(self, pid: int, process: int, connection: socket.socket) -> None:
        # Before it is waited for, which makes its id free for others.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._selector.unregister(process)
        os.close(process)
        if connection.fileno() in self._selector.get_map():
            self._selector.unregister(connection)
        with connection, suppress(OSError):
            connection.send(b"%d" % code)


def _is_launcher(connection: socket.socket, parent: int) -> bool:
    """Check whether a child of our parent is at the other end. Other processes of the user have no business here."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    # The name in parentheses may have blanks and parentheses; the state and the parent follow it.
    with open(f"/proc/{pid}/stat", "rb") as file:
        return uid == os.getuid() and int(file.read().rpartition(b")")[2].split()[1]) == parent


def _received(connection: socket.socket) -> LaunchRequest | None:
    """Receive the request of a launcher; None if it sent none that can be read."""
    streams: list[int] = []
    with suppress(OSError):
        message, streams, *_ = socket.recv_fds(connection, _REQUEST_BYTES, 3)
        with suppress(ValueError, TypeError, RecursionError):
            request = LaunchRequest(**json.loads(message), streams=streams)
            if len(streams) == 3 and _is_complete(request):
                connection.setblocking(True)
                return request
    for stream in streams:
        os.close(stream)
    return None


def _is_complete(request: LaunchRequest) -> bool:
    kinds = isinstance(request.arguments, list) and isinstance(request.variables, dict) and isinstance(request.umask, int)
    texts = [*request.arguments, request.folder, *request.variables, *request.variables.values()]
    return kinds and bool(request.arguments) and all(isinstance(text, str) for text in texts)


def become(request: LaunchRequest) -> None:
    """Run the script of a request in this process, as a new interpreter would."""
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
        os.close(stream)
    os.umask(request.umask)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.variables)
    time.tzset()
    # Libraries may have been installed since.
    importlib.invalidate_caches()
    sys.argv = request.arguments
    runpy.run_path(request.arguments[0], run_name="__main__")


def main(parent: int) -> None:
    """Import the libraries that bundled servers share, and serve.

    Args:
        parent: Process id of who started this.
    """
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.setsid()
    os.chdir("/")
    watched = os.pidfd_open(parent)
    if os.getppid() != parent:
        return
    import anyio.lowlevel
    import mcp.server.mcpserver  # noqa: F401

    # Imports what an event loop needs.
    anyio.run(anyio.lowlevel.checkpoint)
    if len(os.listdir("/proc/self/task")) > 1:
        return
    gc.collect()
    gc.freeze()
    if request := ForkServer(socket.socket(fileno=0), parent, watched).serve():
        become(request)


if __name__ == "__main__":
    main(int(sys.argv[1]))
