"""Import what the first turn needs in the background while the servers start."""

from __future__ import annotations

import asyncio
import logging
import os
import threading

_log = logging.getLogger(__name__)

_FORK_SECONDS = 30.0

_lock = threading.Lock()
_thread: threading.Thread | None = None


def warm_up() -> None:
    """Start the imports, unless that was done before."""
    global _thread
    with _lock:
        if _thread is None:
            # As a daemon, so that a kernel that is shut down meanwhile need not wait.
            _thread = threading.Thread(target=_import_all, name="casual-mcp-imports", daemon=True)
            _thread.start()


async def warmed_up() -> None:
    """Wait for the end of the imports, without blocking the loop."""
    warm_up()
    if _thread is not None and _thread.is_alive():
        await asyncio.to_thread(_thread.join)


def _import_all() -> None:
    try:
        from casual_mcp_nb.display import mimebundle  # noqa: F401, I001
        from casual_mcp_nb.discovery.index import ToolSearchIndex  # noqa: F401
        from casual_mcp_nb.providers.registry import specs

        # Reads the metadata of every package that is installed.
        specs()

        # Last, as it imports the SDK of every provider that is installed, which takes seconds.
        import casual_llm  # noqa: F401
    except Exception:
        # The code that needs it gets the error.
        _log.debug("A background import failed.", exc_info=True)


def _before_fork() -> None:
    # A child would wait forever for a module that another thread of the parent was importing.
    if _thread is not None and _thread is not threading.current_thread():
        _thread.join(_FORK_SECONDS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
