"""Hand work over to the event loop of another thread."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class Handover(Generic[T]):
    """Work that a thread hands over to the event loop of another one.

    It is created before it starts, unlike what `asyncio.run_coroutine_threadsafe` returns: the loop
    may run the work before `start` returns, and whoever is interrupted meanwhile can `cancel` it.

    The work runs in a copy of the context in which this is created. Used as a context manager, it
    does not outlive the body.

    Args:
        work: The work.
        loop: The loop that runs it.

    Attributes:
        future: The outcome of the work.
        ended: Set when the work has ended. If the future is cancelled, that can be later.
    """

    def __init__(self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self.future = Future[T]()
        self.ended = threading.Event()
        self._work = work
        self._loop = loop
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[T] | None = None
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.cancel()

    def start(self) -> None:
        """Have the loop start the work, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            # The loop is closed.
            self._work.close()
            self.ended.set()
            raise

    def cancel(self, seconds: float = 0) -> None:
        """Cancel the work, and wait for its end so many seconds at most. From any thread.

        It may not have started, or have ended.
        """
        if self.future.cancel():
            # An interrupt may have kept an earlier call from it.
            self._tell_loop()
            self.ended.wait(seconds)

    def _begin(self) -> None:
        if self.future.cancelled():
            self._stop()
            return
        self._task = self._loop.create_task(self._work, context=self._context)
        self._task.add_done_callback(self._end)

        def on_done(_: object) -> None:
            if self.future.cancelled():
                self._tell_loop()

        self.future.add_done_callback(on_done)

    def _tell_loop(self) -> None:
        # A closed loop runs nothing any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        if self._task is None:
            self._work.close()
            self.ended.set()
        else:
            self._task.cancel()

    def _end(self, task: asyncio.Task[T]) -> None:
        self.ended.set()
        if task.cancelled():
            self.future.cancel()
        if not self.future.set_running_or_notify_cancel():
            return
        error = task.exception()
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(task.result())
