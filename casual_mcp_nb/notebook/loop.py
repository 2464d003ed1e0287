"""The engine thread: a daemon thread with one event loop, on which the engine and every connection
run.

A notebook function runs on the thread or loop that its objects belong to. While a cell blocks in
`session.chat`, its thread waits for the engine and can meanwhile run functions: matplotlib, sqlite3
connections and `display()` work there. While a cell awaits, and for turns that no cell waits for,
they run on a worker thread. An async function runs on the caller's own loop, where its objects
live, unless a blocking call holds that loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

# Imported with it, so that no warning is printed into a cell.
import casual_mcp_nb.notebook.log  # noqa: F401
from casual_mcp_nb.base.handover import Handover
from casual_mcp_nb.errors import ClosedError, UsageError
from casual_mcp_nb.notebook.caller import CALLER, Caller, caller_here

T = TypeVar("T")

CLEAN_UP_SECONDS = 0.5

_WAKE_SECONDS = 0.05

OTHER_PROCESS = "it belongs to the process that opened it, and this is a child of that process"
"""Why a forked child cannot use the session that it inherited."""


def _show_in_one_line(interrupt: BaseException) -> None:
    """Let IPython show one line for an interrupt.

    Drawing a stack would take half a second.
    """
    line = f"{type(interrupt).__name__}: stopped. Completed steps are kept."
    interrupt._render_traceback_ = lambda: [line]  # type: ignore[attr-defined]


class EngineThread:
    """Runs coroutines on its own event loop, for callers that block and for callers that await.

    The loop keeps running while a cell sleeps, computes or waits: connections stay alive and
    displays are updated.
    """

    def __init__(self) -> None:
        self._blocked: set[Future[Any]] = set()
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="casual-mcp-engine", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        """Run the loop until `stop`.

        A task that raises KeyboardInterrupt or SystemExit ends the loop. Whoever waits for it gets
        the error, and all other work goes on.
        """
        while True:
            try:
                self._loop.run_forever()
            except (KeyboardInterrupt, SystemExit):
                continue
            return

    @property
    def is_current(self) -> bool:
        """Whether the caller is on the engine thread itself."""
        return threading.current_thread() is self._thread

    @property
    def blocked(self) -> int:
        """How many callers block now."""
        return len(self._blocked)

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child's copy. A fork copies no threads, so nothing runs on it."""
        return os.getpid() != self._process

    def check_process(self) -> None:
        """Raise ClosedError if the engine was inherited through a fork."""
        if self.inherited:
            raise ClosedError(
                f"This session is closed: {OTHER_PROCESS}.",
                hint="Open a new session here, in the child.",
            )

    def hand_over(self, work: Coroutine[Any, Any, T], caller: Caller | None = None) -> Handover[T]:
        """Prepare `work` for the loop. Start it with the `start` of what is returned.

        Args:
            work: The work.
            caller: Who waits for it, or None if nobody does.

        Raises:
            ClosedError: The engine was inherited through a fork.
        """
        if self.inherited:
            work.close()
        self.check_process()
        context = contextvars.copy_context()
        context.run(CALLER.set, caller)
        return context.run(Handover, work, self._loop)

    def submit(self, work: Coroutine[Any, Any, T]) -> tuple[Future[T], threading.Event]:
        """Start `work` on the loop, for nobody that waits.

        Returns:
            Its future, and an event that is set when the work has ended. If the future is
            cancelled, that can be later.

        Raises:
            ClosedError: The engine was inherited through a fork.
        """
        handover = self.hand_over(work)
        handover.start()
        return handover.future, handover.ended

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and block until it has ended.

        An interrupt cancels it, gives it half a second to clean up, and is raised here. IPython
        shows one line for it.

        Raises:
            UsageError: The caller is on the engine thread.
            ClosedError: The engine was inherited through a fork.
        """
        if self.is_current and not self.inherited:
            work.close()
            raise UsageError(
                "This call would block the engine thread.",
                hint="Await the method that ends in _async instead.",
            )
        caller = caller_here(blocking=True)
        with self.hand_over(work, caller) as handover:
            handover.future.add_done_callback(self._blocked.discard)
            handover.future.add_done_callback(caller.end)
            try:
                self._blocked.add(handover.future)
                handover.start()
                caller.serve()
                return handover.future.result()
            except BaseException as error:
                handover.cancel(CLEAN_UP_SECONDS)
                if isinstance(error, KeyboardInterrupt):
                    _show_in_one_line(error)
                raise

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and await its end from any other loop.

        The caller's loop is woken twenty times a second, so that an interrupt is noticed. An
        interrupt cancels the work, which has half a second to clean up. IPython shows one line for
        it.
        """
        with self.hand_over(work, caller_here(blocking=False)) as handover:
            waiting = asyncio.wrap_future(handover.future)
            try:
                handover.start()
                while not waiting.done():
                    await asyncio.wait({waiting}, timeout=_WAKE_SECONDS)
            except (asyncio.CancelledError, KeyboardInterrupt) as interrupt:
                # At once: all threads may be busy.
                handover.cancel()
                await asyncio.to_thread(handover.ended.wait, CLEAN_UP_SECONDS)
                # The same error is raised again: asyncio.timeout and TaskGroup recognize their own
                # cancellation by its exact type.
                _show_in_one_line(interrupt)
                raise
            return waiting.result()

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a short function on the loop after a delay. Thread-safe.

        Does nothing in a forked child.
        """
        if self.inherited:
            return
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, function)

    def stop(self) -> None:
        """End the thread. Work that still runs on it is dropped."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLEAN_UP_SECONDS)
        self._loop.close()


_lock = threading.Lock()

_engine: EngineThread | None = None

_inherited: list[EngineThread] = []
"""Engines inherited through forks, never collected: closing such a loop would remove the parent's
wake-up call from the epoll object that both share.
"""


def engine_thread() -> EngineThread:
    """Get this process's engine thread, started when it is first used.

    A forked child has its own.
    """
    global _engine
    with _lock:
        if _engine is None:
            _engine = EngineThread()
        return _engine


def _in_forked_child() -> None:
    global _lock, _engine
    # Another thread may have held it at the fork, and nobody is left to release it.
    _lock = threading.Lock()
    if _engine is not None:
        _inherited.append(_engine)
        _engine = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
