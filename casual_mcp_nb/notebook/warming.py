"""Import in the background what the first turn needs."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from typing import TYPE_CHECKING

from casual_mcp_nb.base.displayable import display

if TYPE_CHECKING:
    from casual_mcp_nb.conversation.turn import Turn


_log = logging.getLogger(__name__)

_FORK_SECONDS = 30.0
_EXIT_SECONDS = 10.0

_lock = threading.Lock()
_thread: threading.Thread | None = None
_ending = threading.Event()


def warm_up() -> None:
    """Start the imports, unless they were started before."""
    global _thread
    with _lock:
        if _thread is None:
            # As a daemon, so that nothing waits for it longer than `_at_exit` does.
            _thread = threading.Thread(target=_import_all, name="casual-mcp-imports", daemon=True)
            _thread.start()


async def warmed_up() -> None:
    """Wait for the imports, without blocking the loop."""
    warm_up()
    if _thread is not None and _thread.is_alive():
        await asyncio.to_thread(_thread.join)


def _import_all() -> None:
    try:
        from casual_mcp_nb.providers.registry import specs

        # Reads the metadata of every installed package.
        specs()

        if _ending.is_set():
            return

        # Imports every installed provider SDK, which takes a second or more.
        import casual_llm  # noqa: F401

        if _ending.is_set():
            return

        # A search, a turn and a drawing import and cache more than could be listed here.
        from casual_mcp_nb.base.tool import ToolSpec
        from casual_mcp_nb.discovery.search_tools import ToolSearchIndex

        ToolSearchIndex([ToolSpec("server", "tool", "A tool.", {"type": "object"})]).search("tool")
        turn = asyncio.run(_turn())
        display().live_bundle(turn, "output")
        display().mimebundle(turn)
    except Exception:
        # Code that needs the module gets the error.
        _log.debug("A background import failed.", exc_info=True)


async def _turn() -> Turn:
    from casual_llm.messages import UserMessage

    from casual_mcp_nb.base.config import Config
    from casual_mcp_nb.engine.chat import McpToolChat
    from casual_mcp_nb.providers.factory import ModelFactory
    from casual_mcp_nb.servers.server_manager import ServerManager

    planner = {
        "clients": {"here": {"provider": "offline"}},
        "models": {"planner": {"client": "here", "model": "planner"}},
    }
    async with McpToolChat(ServerManager({}), ModelFactory(Config.model_validate(planner))) as chat:
        return await chat.run([UserMessage(content="Hello")])


def _at_exit() -> None:
    # The interpreter ends daemon threads wherever they are. If this one is loading a library
    # written in C++, that aborts the process.
    _ending.set()
    if _thread is not None:
        _thread.join(_EXIT_SECONDS)


atexit.register(_at_exit)


def _before_fork() -> None:
    # A child would wait forever for a module that another thread in the parent was importing.
    if _thread is not None and _thread is not threading.current_thread():
        _thread.join(_FORK_SECONDS)


if hasattr(os, "register_at_fork"):
    # The last function that is registered runs first. `concurrent.futures` registers one that takes
    # a lock which the imports need, so that has to be registered before this one.
    import concurrent.futures.thread  # noqa: F401

    os.register_at_fork(before=_before_fork)
