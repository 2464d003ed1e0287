"""Draw at a bounded rate on a separate thread, however often it is requested."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache

from casual_mcp_nb.notebook.loop import EngineThread

_TICK_SECONDS = 1.0

_log = logging.getLogger(__name__)


@cache
def drawing_thread() -> ThreadPoolExecutor:
    """Get the one thread that draws turns and widgets: drawing on the engine's loop would hold up every connection."""
    return ThreadPoolExecutor(1, thread_name_prefix="casual-mcp-display")


if hasattr(os, "register_at_fork"):
    # A fork copies no threads.
    os.register_at_fork(after_in_child=drawing_thread.cache_clear)


class Throttle:
    """Does `work` on the drawing thread: immediately if it was not done lately, otherwise as soon as `seconds` have passed.

    Calls in between count as one, and the work sees whatever changed before the last call.

    Args:
        engine: Runs the timers.
        work: The work; when it raises, the error goes to the log.
        seconds: The least time from one start to the next.
        ticking: Whether to work once a second even if nobody calls, for a display in which time passes.
    """

    def __init__(
        self, engine: EngineThread, work: Callable[[], None], seconds: float, ticking: Callable[[], bool] = lambda: False
    ) -> None:
        self._engine = engine
        self._work = work
        self._seconds = seconds
        self._ticking = ticking
        self._lock = threading.Lock()
        self._planned = False
        self._tick_planned = False
        self._ended = False
        self._next = 0.0
        self._waiting: list[Future[None]] = []

    def __call__(self, *, urgent: bool = False) -> None:
        """Request the work, from any thread.

        Args:
            urgent: Do not wait for `seconds` to pass.
        """
        with self._lock:
            if self._ended or (self._planned and not urgent):
                return
            self._planned = True
            wait = 0.0 if urgent else self._next - time.monotonic()
        if wait > 0:
            self._engine.call_later(wait, self._start)
        else:
            self._start()

    async def settled(self) -> None:
        """Wait until the requested work is done; return immediately if there is none, or at the end of the process."""
        done = Future[None]()
        with self._lock:
            if planned := self._planned:
                self._waiting.append(done)
        if not planned:
            # It may be under way on the only thread there is for it.
            try:
                done = drawing_thread().submit(lambda: None)
            except RuntimeError:
                return
        await asyncio.wrap_future(done)

    def end(self) -> None:
        """Ignore all further requests."""
        self._ended = True

    def _start(self) -> None:
        # At the end of the process the thread accepts no more work.
        with suppress(RuntimeError):
            drawing_thread().submit(self._run)

    def _run(self) -> None:
        with self._lock:
            if not self._planned:
                # An urgent request was served before the timer of an earlier one.
                return
            self._planned = False
            self._next = time.monotonic() + self._seconds
            waiting, self._waiting = self._waiting, []
        try:
            if not self._ended:
                self._work()
        except Exception:
            _log.exception("A display could not be updated.")
        for done in waiting:
            if done.set_running_or_notify_cancel():
                done.set_result(None)
        if self._ticking() and not self._ended and not self._tick_planned:
            self._tick_planned = True
            self._engine.call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self._tick_planned = False
        self()
