"""The worker process. Run by path, without importing the package.

It reads a line for each job: the seconds it may take, a space, and `[job, argument]` as JSON, and
writes a line for each answer: `["done", value]` or `["gave up", reason]`. Its first line announces
that it is ready.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

_FOR_FORMATS = (
    "fqdn",
    "isoduration",
    "rfc3339_validator",
    "rfc3986_validator",
    "rfc3987",
    "rfc3987_syntax",
    "uri_template",
    "webcolors",
)
SPARE_SECONDS = 2.0
"""Grace period after which it exits by itself, in case the owner is gone, which kills it before."""


def main(memory: int, max_bytes: int, folders: list[str]) -> None:
    """Run jobs until there are no more, within limits on memory and answer size, both in bytes."""
    # A notebook interrupt reaches its whole process group; the owner decides how it affects a job.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _ring)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.path += [folder for folder in folders if folder not in sys.path]
    reader, writer = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What a library prints must not be taken for an answer.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    _limit_memory(memory)
    _write(writer, ["ready", None])
    with os.fdopen(nowhere, "w") as sink:
        for line in reader:
            number, _, job = line.partition(b" ")
            seconds = float(number)
            # It ends the process from outside the interpreter, which a pattern keeps busy.
            faulthandler.dump_traceback_later(seconds + SPARE_SECONDS, exit=True, file=sink)
            _write(writer, _done(job, seconds, max_bytes))
            faulthandler.cancel_dump_traceback_later()


def _done(line: bytes, seconds: float, max_bytes: int) -> list[Any]:
    try:
        job, argument = json.loads(line)
        do = _job(job)
        _set_alarm(seconds)
        try:
            value = do(argument)
        finally:
            _set_alarm(0)
        if len(json.dumps(value)) > max_bytes:
            return ["gave up", f"it made more than {max_bytes / 2**20:.3g} MB"]
    except MemoryError:
        return ["gave up", "it needs too much memory"]
    except TimeoutError:
        return ["gave up", f"it took more than {seconds:.3g} s"]
    except RecursionError:
        return ["gave up", "it is nested too deeply"]
    return ["done", value]


def _job(name: str) -> Callable[[Any], Any]:
    if name == "ready":
        return _ready
    # jsonschema imports them for format checks, which are not used; one alone takes seconds.
    sys.modules.update(dict.fromkeys(_FOR_FORMATS))  # type: ignore[arg-type]
    function: Callable[[Any], Any] = getattr(importlib.import_module(f"_{name}"), name)
    return function


def _ready(job: str) -> None:
    _job(job)


def _set_alarm(seconds: float) -> None:
    """Schedule a TimeoutError in Python code, whose traceback shows where it was. 0 cancels it."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _ring(*_: object) -> None:
    raise TimeoutError


def _write(writer: BinaryIO, answer: list[Any]) -> None:
    writer.write(json.dumps(answer).encode() + b"\n")
    writer.flush()


def _limit_memory(memory: int) -> None:
    try:
        import resource
    except ImportError:
        return
    try:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (OSError, ValueError):
        # macOS does not limit a process's memory.
        return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
