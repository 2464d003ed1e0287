"""Start a server's command so that it can be found and cannot outlive this process.

Run by path, with the standard library only. It writes its process id to stderr, asks the kernel to
kill it when the thread that started it ends, and becomes the command. Or it has the fork server run
the command, and represents it.
"""

from __future__ import annotations

import os
import signal
import sys

ANNOUNCEMENT = b"casual-mcp-nb process "


def main(parent: int, command: list[str]) -> None:
    """Run `command`, unless the parent process has ended.

    On failure report the reason on stderr and exit with 127.
    """
    os.write(2, ANNOUNCEMENT + b"%d\n" % os.getpid())
    if sys.platform == "linux":
        import ctypes

        parent_death_signal = 1
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode("utf-8", "replace"))
        os._exit(127)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
