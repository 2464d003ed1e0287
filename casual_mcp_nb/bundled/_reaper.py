"""Run a command, and end every process that it leaves behind: `python -I -S _reaper.py PARENT
COMMAND...`.

Run by path, with the standard library only. On Linux, processes that a command leaves in the
background become children of this process, whatever their session and environment. Elsewhere, only
its process group is found.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
"""Operations of prctl(2)."""


def main(parent: int, command: list[str]) -> None:
    """Run a command until it ends, SIGTERM arrives or the parent ends.

    Then kill leftovers and exit as the command did.
    """
    if sys.platform == "linux":
        import ctypes

        prctl = ctypes.CDLL(None).prctl
        prctl(_SET_CHILD_SUBREAPER, 1)
        prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
        if os.getppid() != parent:
            return
    # Blocked until the command can be ended.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.setsid()
        try:
            os.execv(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode("utf-8", "replace"))
            os._exit(127)

    def end(_signum: int, _frame: FrameType | None) -> None:
        _kill(pid)

    signal.signal(signal.SIGTERM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    ended, status = os.wait()
    # Others that end before the command are those that it left behind.
    while ended != pid:
        ended, status = os.wait()
    # Its id is free again, but no other group gets it while this one has a process left.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    # Its children, and grandchildren that become ours.
    with suppress(ChildProcessError):
        while True:
            for child in _children():
                _kill(child)
            os.wait()
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        os._exit(code)
    with suppress(OSError, ValueError):
        signal.signal(-code, signal.SIG_DFL)
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), -code)
    os._exit(128 - code)


def _children() -> list[int]:
    if sys.platform != "linux":
        return []
    parent, children = str(os.getpid()), []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with (
            suppress(OSError),
            open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file,
        ):
            # The program's name is in parentheses, and may contain any characters.
            if file.read().rpartition(")")[2].split()[1] == parent:
                children.append(int(name))
    return children


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
