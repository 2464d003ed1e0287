"""Start a server's command so that it can be found and cannot outlive this process.

Run by path, with the standard library only. It writes its process id to stderr, asks the kernel to kill it when the thread that
started it ends, and becomes the command; or it has the fork server run the command, and stays as its process for the outside.
"""

from __future__ import annotations

import os
import signal
import sys

ANNOUNCEMENT = b"casual-mcp-nb process "
_READY_SECONDS = 15.0
"""A fork server that needs longer to import its libraries is not waited for."""


def main(parent: int, fork_server: str, command: list[str]) -> None:
    """Run `command`; on failure say why on stderr and exit with 127.

    Args:
        parent: Process id of who started this; when that has ended before the kernel was asked, so does this.
        fork_server: Address of the parent's fork server, which is used if it answers; else empty.
        command: Program and arguments; for the fork server `[python, "-P", script, ...]`.
    """
    os.write(2, ANNOUNCEMENT + b"%d\n" % os.getpid())
    if sys.platform == "linux":
        import ctypes

        parent_death_signal = 1
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
    if fork_server:
        _run_forked(parent, fork_server, command[2:])
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        os._exit(127)


def _run_forked(parent: int, address: str, arguments: list[str]) -> None:
    """Have the fork server run a script with our streams, folder and variables; exit as it does, or return if that fails."""
    import json
    import socket
    import struct

    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(_READY_SECONDS)
        connection.connect(f"\0{address}")
        # Nobody else can have a socket on which our parent listens.
        if struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0] != parent:
            return
        # A request before it is ready could be granted after we had given up, and two processes would read our stdin.
        if not connection.recv(16):
            return
        connection.settimeout(None)
        os.umask(umask := os.umask(0o077))
        request = json.dumps({"arguments": arguments, "folder": os.getcwd(), "variables": dict(os.environ), "umask": umask})
        socket.send_fds(connection, [request.encode()], [0, 1, 2])
        if not connection.recv(16):
            return
    except OSError:
        connection.close()
        return
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: connection.send(bytes([number])))
    # A pipe ends with the last process that has it.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    try:
        code = int(connection.recv(16) or -signal.SIGKILL)
    except OSError:
        code = -signal.SIGKILL
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
