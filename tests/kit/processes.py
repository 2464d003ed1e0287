"""Processes that carry a mark in their environment, found through /proc, and the wait for their
end.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

MARK = "CASUAL_TEST_MARK"
"""The variable that carries the mark."""


@dataclass(frozen=True)
class Process:
    """A living process: its id and its command line."""

    pid: int
    command: str


def new_mark() -> str:
    """A mark that no other process carries."""
    return f"mark-{uuid.uuid4().hex}"


def marked(mark: str) -> list[Process]:
    """All living processes with the mark in the environment that they were started with, this one
    left out.
    """
    ids = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            # A zombie has no environment any more.
            if mark.encode() in (folder / "environ").read_bytes():
                command = (
                    (folder / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode("utf-8", "replace")
                    .strip()
                )
                ids.append(Process(int(folder.name), command))
        except OSError:
            continue
    return ids


def runs(pid: int) -> bool:
    """Check whether a process runs. A zombie has ended; it only waits for its parent."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # Its parent cannot take the exit status before all threads have ended.
    threads = int(fields[16])
    return state != "Z" or threads > 1


def wait_gone(mark: str, seconds: float = 30.0) -> None:
    """Wait until no process carries the mark; fail after so many seconds, naming those that are
    left.
    """
    end = time.monotonic() + seconds
    while left := marked(mark):
        remaining = end - time.monotonic()
        assert remaining > 0, f"after {seconds} s there are still {left}"
        _wait_any(left, remaining)


async def gone(mark: str, seconds: float = 30.0) -> None:
    """As `wait_gone`, without holding up the loop."""
    await asyncio.to_thread(wait_gone, mark, seconds)


def _wait_any(processes: list[Process], seconds: float) -> None:
    with ExitStack() as stack:
        descriptors = []
        for process in processes:
            try:
                descriptors.append(os.pidfd_open(process.pid))
            except ProcessLookupError:
                return
            stack.callback(os.close, descriptors[-1])
        select.select(descriptors, [], [], seconds)
