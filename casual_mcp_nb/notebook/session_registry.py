"""The open sessions: a notebook has one for each config, and none outlives the interpreter."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, Protocol

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.notebook.loop import EngineThread, shell

EXIT_SECONDS = 2.0
"""How long closing all sessions may take at exit. Jupyter gives a kernel 2.5 s before it sends signals."""

_lock = threading.Lock()


class Registered(Protocol):
    """The part of a session that the registry needs."""

    config: Config
    name: str | None

    def close_replaced(self, why: str) -> Future[None]:
        """Close in the background; `why` is told to whoever uses it from now on."""

    def abandon(self) -> None:
        """Become unusable, in a forked child."""


_open: weakref.WeakSet[Registered] = weakref.WeakSet()
_closing: set[Future[None]] = set()


def close_in_background(engine: EngineThread, close: Callable[[], Coroutine[Any, Any, None]]) -> Future[None]:
    """Start closing on the engine thread. The interpreter waits for it before it exits."""
    future, _ = engine.submit(close())
    _closing.add(future)
    future.add_done_callback(_closing.discard)
    return future


def replace_earlier(session: Registered) -> list[Future[None]]:
    """Register an open session, and close the earlier one that it replaces.

    In IPython, where set-up cells are run again and again, that is the one opened from the same config under the same name,
    even if `Out` still holds it.

    Returns:
        Futures that are done when the earlier sessions are closed.
    """
    if not _open:
        _end_with_worker()
    with _lock:
        others = [other for other in _open if _replaces(session, other)] if shell() else []
        _open.add(session)
    return [other.close_replaced("a newer session was opened from its config") for other in others]


def _end_with_worker() -> None:
    """Have a `multiprocessing` child close its sessions when it ends: it leaves with `os._exit`, which skips `atexit`."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _close_all, exitpriority=0)


def unregister(session: Registered) -> None:
    """Remove a closed session."""
    with _lock:
        _open.discard(session)


def _replaces(session: Registered, other: Registered) -> bool:
    if session.name != other.name or not session.config.servers:
        return False
    paths = session.config.path, other.config.path
    if any(paths):
        return _resolved(paths[0]) == _resolved(paths[1])
    return session.config == other.config


def _resolved(path: Path | None) -> Path | None:
    return path and path.resolve()


@atexit.register
def _close_all() -> None:
    for session in tuple(_open):
        session.close_replaced("the interpreter is ending")
    wait(tuple(_closing), timeout=EXIT_SECONDS)


def _in_forked_child() -> None:
    """Abandon the inherited sessions: they still belong to the parent, whose servers and displays must not notice."""
    global _lock
    _lock = threading.Lock()
    for session in tuple(_open):
        _inherited.append(session)
        session.abandon()
    _open.clear()
    _closing.clear()


_inherited: list[Registered] = []
"""The parent's sessions, never collected: that would run the ends of their coroutines."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
