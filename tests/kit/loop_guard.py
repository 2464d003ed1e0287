"""A watch over every event loop of this process: which callback held its loop, for how long, and
where.

A callback holds its loop while it computes, and while it sleeps or waits for something. On a busy
machine it can also take long because it, or a thread that it starts, is not given the processor, or
because another thread has the interpreter; that is nobody's fault and is not counted: what it
computed is read from the clock of its thread, and what it slept from looks that a watcher takes
every 25 ms, of which only those count that were on time and saw a thread that wanted nothing. The
collector of garbage is not counted either: what it takes depends on all that the tests have loaded,
and it comes wherever it comes. Nor is a callback that another greenlet of its thread interrupts, as
with Playwright: what that one computes is not the callback's.

Another package that is imported for the first time on an engine's loop is reported however fast
that was: on a disk that has not read it lately, it takes a second.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

import casual_mcp_nb

LIMIT_SECONDS = 0.25
LOOK_SECONDS = 0.025
ON_TIME_SECONDS = 0.005
"""How late a look may be.

A thread that computes in Python keeps the interpreter for 5 ms at a time, so looks that are on time
saw nobody else at work.
"""
IDLE_SECONDS = 0.001
"""Processor time between two looks of a thread that only waits."""

PACKAGE = str(Path(casual_mcp_nb.__file__).parent) + os.sep
TESTS = str(Path(__file__).resolve().parents[1]) + os.sep
ROOT = Path(__file__).resolve().parents[2]
ENGINE = "casual-mcp-engine"
IMPORTS = "casual-mcp-imports"
"""The thread with a loop of its own on which everything is imported that a turn needs."""
NOT_OTHERS = sys.stdlib_module_names | {"casual_mcp_nb"}
ALLOWED = (("notebook/loop.py", "run"), ("notebook/caller.py", "serve"))
"""Where a thread waits by contract: a blocking call of a notebook holds the notebook's own loop,
never the engine's.
"""
STARTS = (("threading.py", "start"), ("subprocess.py", "_execute_child"))
"""Where a thread waits until the thread or process that it starts is given a processor."""


@dataclass(frozen=True)
class Held:
    """A loop that was held.

    Args:
        thread: The name of its thread.
        seconds: For how long.
        computing: How much of that was spent computing.
        place: The frame in which it was seen most: of this package, else of whatever ran.
        trace: The frames around it, innermost last.
    """

    thread: str
    seconds: float
    computing: float
    place: str
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = "".join(f"\n    {line}" for line in self.trace[-12:])
        return (
            f"{self.thread}: held for {self.seconds:.2f} s ({self.computing:.2f} s computing) in"
            f" {self.place}{lines}"
        )


@dataclass
class _Callback:
    handle: asyncio.Handle
    cpu: float
    started: float
    seen_cpu: float = 0.0
    seen_at: float = 0.0
    idle: float = 0.0
    collecting: float = 0.0
    nests: bool = False
    interrupted: bool = False
    places: Counter[tuple[str, ...]] = field(default_factory=Counter)


class LoopGuard:
    """The guard over event loops: it watches from `start` to `stop`, and `take` lists the reports
    since its last call.

    Args:
        limit: How long a callback may hold its loop, in seconds.
        share: How much of the time for which nobody else came to run a thread must have computed,
            to be the one that kept the interpreter. On a busy machine the watcher can be late for
            want of a processor; then that thread did not have one throughout.
    """

    def __init__(self, limit: float = LIMIT_SECONDS, share: float = 0.8) -> None:
        self.limit = limit
        self._share = share
        self._running: dict[int, _Callback] = {}
        self._collecting: dict[int, float] = {}
        self._collects_since: dict[int, float] = {}
        self._held: list[Held] = []
        self._original = asyncio.Handle._run
        self._stopped = threading.Event()
        self._watched: CodeType | None = None
        self.longest = 0.0

    def start(self) -> None:
        """Begin to watch: the loops that exist, and those to come."""
        guard, original = self, self._original

        def watched(handle: asyncio.Handle) -> None:
            ident = threading.get_ident()
            outer = guard._running.get(ident)
            if outer is not None:
                outer.nests = True
            callback = _Callback(handle, time.thread_time(), time.monotonic())
            callback.seen_cpu, callback.seen_at = callback.cpu, callback.started
            guard._running[ident] = callback
            try:
                original(handle)
            finally:
                if outer is None:
                    guard._running.pop(ident, None)
                else:
                    guard._running[ident] = outer
                guard._ended(callback, time.thread_time() - callback.cpu)

        self._watched = watched.__code__
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]
        asyncio.Handle._run = watched  # type: ignore[method-assign]
        gc.callbacks.append(self._collects)
        self._begin()
        os.register_at_fork(after_in_child=self._forked)

    def stop(self) -> None:
        """Leave the loops alone."""
        self._stopped.set()
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        gc.callbacks.remove(self._collects)
        asyncio.Handle._run = self._original  # type: ignore[method-assign]

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Report an import, which the finders after this one do."""
        if (
            not threading.current_thread().name.startswith(ENGINE)
            or name.split(".")[0] in NOT_OTHERS
        ):
            return
        frame, loads = sys._getframe(1), False
        while frame.f_back is not None and "importlib" in frame.f_code.co_filename:
            # Whoever only asks whether a package is there does not load it.
            loads |= frame.f_code.co_name == "_find_and_load"
            frame = frame.f_back
        # What another package imports while it is imported was reported with it.
        if loads and _short(frame.f_code.co_filename).startswith("casual_mcp_nb/"):
            trace = _trace(frame)
            self._held.append(Held(f"{ENGINE} (imported {name})", 0.0, 0.0, _place(trace), trace))

    def take(self) -> list[Held]:
        """List the reports since the last time, the longest first; a callback that is still running
        is not among them.
        """
        held, self._held = self._held, []
        self.longest = 0.0
        return sorted(held, key=lambda each: -each.seconds)

    def _begin(self) -> None:
        threading.Thread(target=self._watch, name="loop guard", daemon=True).start()

    def _forked(self) -> None:
        # Threads do not survive a fork.
        self._running.clear()
        self._collects_since.clear()
        if not self._stopped.is_set():
            self._begin()

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        ident, now = threading.get_ident(), time.thread_time()
        if phase == "start":
            self._collects_since[ident] = now
        elif (since := self._collects_since.pop(ident, None)) is not None:
            self._collecting[ident] = self._collecting.get(ident, 0.0) + now - since
        if (callback := self._running.get(ident)) is not None:
            callback.collecting += now if phase == "stop" else -now

    def _ended(self, callback: _Callback, cpu: float) -> None:
        cpu -= max(0.0, callback.collecting)
        seconds = cpu + callback.idle
        if seconds <= self.limit and seconds <= self.longest:
            return
        trace = callback.places.most_common(1)[0][0] if callback.places else ()
        thread = threading.current_thread().name
        if callback.nests or callback.interrupted or not _counts(trace, thread):
            return
        self.longest = max(self.longest, seconds)
        if seconds > self.limit:
            self._held.append(
                Held(thread, seconds, cpu, _place(trace) or repr(callback.handle), trace)
            )

    def _watch(self) -> None:
        # From here on: what a thread computed before nobody asked about.
        clocks = self._clocks(sys._current_frames())
        due, queued = time.monotonic() + LOOK_SECONDS, _queued()
        while not self._stopped.wait(LOOK_SECONDS):
            now = time.monotonic()
            late = now - due
            starved, queued = -queued, _queued()
            starved += queued
            frames = sys._current_frames()
            for ident, callback in list(self._running.items()):
                if now - callback.started > LOOK_SECONDS and ident in frames:
                    self._look(ident, callback, frames[ident], now, late <= ON_TIME_SECONDS)
            clocks = self._interpreter_held(frames, clocks, late - starved)
            del frames
            due = time.monotonic() + LOOK_SECONDS

    def _look(
        self, ident: int, callback: _Callback, frame: FrameType, now: float, on_time: bool
    ) -> None:
        cpu = _computed(ident)
        if cpu is None:
            return
        callback.interrupted |= not any(each.f_code is self._watched for each in _outwards(frame))
        trace = _trace(frame)
        waits = cpu - callback.seen_cpu < IDLE_SECONDS
        if (
            waits
            and not _starts_something(trace)
            and ((on_time and _sleeps(ident)) or "<frozen importlib._bootstrap>" in trace[-1])
        ):
            callback.idle += min(now - callback.seen_at, LOOK_SECONDS * 2)
        callback.places[trace] += max(1, round((now - callback.seen_at) * 1000))
        callback.seen_cpu, callback.seen_at = cpu, now

    def _clocks(self, frames: dict[int, FrameType]) -> dict[int, float]:
        """Read how long each thread has computed so far, without the collector."""
        clocks = {ident: cpu for ident in frames if (cpu := _computed(ident)) is not None}
        # One that collects just now has computed until it began to.
        return {
            ident: self._collects_since.get(ident, cpu) - self._collecting.get(ident, 0.0)
            for ident, cpu in clocks.items()
        }

    def _interpreter_held(
        self, frames: dict[int, FrameType], before: dict[int, float], late: float
    ) -> dict[int, float]:
        """Note a thread without a loop that kept the interpreter, in C code, for longer than the
        limit: all loops were held.
        """
        now = self._clocks(frames)
        for ident, cpu in now.items() if late > self.limit else ():
            computed = cpu - before.get(ident, 0.0)
            trace = _trace(frames[ident])
            # The main thread is that of the tests and of cells: what they compute there is theirs.
            main = ident == threading.main_thread().ident
            ours = not main and any(line.startswith("casual_mcp_nb/") for line in trace)
            # A loop that has come to its next wait by now: the callback before it was noted as it
            # ended.
            ours = ours and not any("(run_forever)" in line for line in trace)
            # What the watcher waited for a processor is not in `late`; what is left, it waited for
            # the interpreter.
            if (
                computed > max(self.limit, late * self._share)
                and ident not in self._running
                and ours
            ):
                name = next(
                    (thread.name for thread in threading.enumerate() if thread.ident == ident),
                    "a thread",
                )
                if _counts(trace, name):
                    self.longest = max(self.longest, computed)
                    self._held.append(
                        Held(
                            f"{name} (kept the interpreter)",
                            computed,
                            computed,
                            _place(trace),
                            trace,
                        )
                    )
        return now


def _sleeps(ident: int) -> bool:
    """Check whether a thread sleeps, rather than waits for the processor; True where that cannot be
    determined.
    """
    native = next(
        (thread.native_id for thread in threading.enumerate() if thread.ident == ident), None
    )
    try:
        stat = Path(f"/proc/self/task/{native}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] != "R"


def _computed(ident: int) -> float | None:
    """The processor time of a thread in seconds; None for one that has ended."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(ident))
    except OSError:
        return None


def _queued() -> float:
    """For how many seconds in all this thread wanted a processor and had none; 0 where that cannot
    be told.
    """
    try:
        return (
            int(
                Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
                .read_text()
                .split()[1]
            )
            / 1e9
        )
    except (OSError, IndexError, ValueError):
        return 0.0


def _counts(trace: tuple[str, ...], thread: str) -> bool:
    if thread == IMPORTS or any("linecache.py" in line for line in trace):
        # In its debug mode, asyncio reads the source of whatever starts a task.
        return False
    ours = [line for line in trace if line.startswith(("casual_mcp_nb/", "tests/"))]
    if not ours:
        # An SDK's own task: it reads what a server sent. Without a trace nothing is known but the
        # time.
        return thread == ENGINE or any(
            "site-packages/mcp" in line or "site-packages/fastmcp" in line for line in trace
        )
    innermost = ours[-1]
    if innermost.startswith("tests/"):
        return False
    return thread == ENGINE or not any(
        f"{file}:" in innermost and f"({name})" in innermost for file, name in ALLOWED
    )


def _starts_something(trace: tuple[str, ...]) -> bool:
    """Check whether it waits for the first moment of a thread or a process."""
    return any(
        file in line and line.endswith(f"({name})") for line in trace for file, name in STARTS
    )


def _place(trace: tuple[str, ...]) -> str:
    ours = [line for line in trace if line.startswith("casual_mcp_nb/")]
    return (ours or list(trace) or [""])[-1]


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _trace(frame: FrameType) -> tuple[str, ...]:
    """The frames of a stack: the innermost ones, and further out those of this project."""
    lines: list[str] = []
    for each in _outwards(frame):
        path = _short(each.f_code.co_filename)
        if len(lines) < 40 or path.startswith(("casual_mcp_nb/", "tests/")):
            lines.append(f"{path}:{each.f_lineno} ({each.f_code.co_name})")
    return tuple(reversed(lines))


def _short(path: str) -> str:
    for folder, name in ((PACKAGE, "casual_mcp_nb/"), (TESTS, "tests/")):
        if path.startswith(folder):
            return name + path[len(folder) :]
    return path
