"""Work that is asked for often and done at a bounded rate, away from the engine's loop."""

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

_log = logging.getLogger(__name__)


@cache
def drawing_thread() -> ThreadPoolExecutor:
    """The one thread on which widgets are drawn: drawing on the engine's loop would hold up every connection."""
    return ThreadPoolExecutor(1, thread_name_prefix="casual-mcp-widgets")


if hasattr(os, "register_at_fork"):
    # A fork copies no threads.
    os.register_at_fork(after_in_child=drawing_thread.cache_clear)


class Throttle:
    """Does `work` on the drawing thread: at once where it was not done lately, otherwise as soon as `seconds` have passed.

    Calls in between count as one, and whatever changed before the last call is seen by the work.

    Args:
        engine: Waits.
        work: Is done; an exception of it goes to the log.
        seconds: The least time between two beginnings.
    """

    def __init__(self, engine: EngineThread, work: Callable[[], None], seconds: float) -> None:
        self._engine = engine
        self._work = work
        self._seconds = seconds
        self._lock = threading.Lock()
        self._planned = False
        self._ended = False
        self._next = 0.0
        self._waiting: list[Future[None]] = []

    def __call__(self) -> None:
        """Ask for the work, from any thread."""
        with self._lock:
            if self._planned or self._ended:
                return
            self._planned = True
            wait = self._next - time.monotonic()
        if wait > 0:
            self._engine.call_later(wait, self._start)
        else:
            self._start()

    async def settled(self) -> None:
        """Wait until the work that was asked for is done; at once where there is none, or at the end of the process."""
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
        """Do nothing from now on."""
        self._ended = True

    def _start(self) -> None:
        # At the end of the process the thread takes nothing more.
        with suppress(RuntimeError):
            drawing_thread().submit(self._run)

    def _run(self) -> None:
        with self._lock:
            self._planned = False
            self._next = time.monotonic() + self._seconds
            waiting, self._waiting = self._waiting, []
        try:
            if not self._ended:
                self._work()
        except Exception:
            _log.exception("A widget could not be brought up to date.")
        for done in waiting:
            if done.set_running_or_notify_cancel():
                done.set_result(None)
