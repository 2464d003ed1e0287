"""How long sessions live: a notebook has one for each config, and none outlives the interpreter."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.shell import shell

if TYPE_CHECKING:
    from casual_mcp_nb.notebook.session import Session

EXIT_SECONDS = 2.0
"""What the closing of all sessions may take at exit. Jupyter gives a kernel 2.5 s before it sends signals."""

_lock = threading.Lock()
_open: weakref.WeakSet[Session] = weakref.WeakSet()
_closing: set[Future[None]] = set()


def close_in_background(engine: EngineThread, close: Callable[[], Coroutine[Any, Any, None]]) -> Future[None]:
    """Start a close on the engine thread; the interpreter waits for it before it ends."""
    future, _ = engine.submit(close())
    _closing.add(future)
    future.add_done_callback(_closing.discard)
    return future


def replace_earlier(session: Session) -> list[Future[None]]:
    """Note that a session is open. In IPython, where set-up cells are run again and again, it takes the place of the one that
    was opened from the same config under the same name, also where `Out` still holds that.

    Returns:
        The ends of the sessions whose place it takes.
    """
    if not _open:
        _end_with_worker()
    with _lock:
        others = [other for other in _open if _same_place(other, session)] if shell() else []
        _open.add(session)
    return [other.close_replaced("its config was opened anew, by a newer session") for other in others]


def _end_with_worker() -> None:
    """Have a child of `multiprocessing` close its sessions when it ends: it leaves with `os._exit`, which skips `atexit`."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _close_all, exitpriority=0)


def unregister(session: Session) -> None:
    """Note that a session was closed."""
    with _lock:
        _open.discard(session)


def _same_place(one: Session, other: Session) -> bool:
    if one.name != other.name or not one.config.servers:
        return False
    if one.config.path or other.config.path:
        return _place(one) == _place(other)
    return one.config == other.config


def _place(session: Session) -> object:
    return session.config.path.resolve() if session.config.path else None


@atexit.register
def _close_all() -> None:
    for session in tuple(_open):
        session.close_replaced("the interpreter is ending")
    wait(tuple(_closing), timeout=EXIT_SECONDS)


def _in_forked_child() -> None:
    """Give up what was inherited: it still belongs to the parent, whose servers and displays must not notice."""
    global _lock
    _lock = threading.Lock()
    for session in tuple(_open):
        _inherited.append(session)
        session.abandon()
    _open.clear()
    _closing.clear()


_inherited: list[Session] = []
"""The parent's sessions, kept for good: to collect them would run the ends of their coroutines."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
