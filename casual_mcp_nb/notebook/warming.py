"""Prepare the first turn in the background, while the servers start."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from casual_mcp_nb.types.displayable import display
from casual_mcp_nb.types.trace import Turn

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
        from casual_mcp_nb.providers.registry import specs

        # Reads the metadata of every package that is installed.
        specs()

        # Imports the SDK of every provider that is installed, which takes a second or more.
        import casual_llm  # noqa: F401

        _first_uses()
    except Exception:
        # The code that needs it gets the error.
        _log.debug("A background import failed.", exc_info=True)


def _first_uses() -> None:
    """Search, run a turn and draw it: the imports and caches of a first use would be hard to list."""
    from casual_mcp_nb.discovery.index import ToolSearchIndex
    from casual_mcp_nb.types.tool import ToolSpec

    ToolSearchIndex([ToolSpec("server", "tool", "A tool.", {"type": "object"})]).search("tool")
    turn = asyncio.run(_turn())
    display().live_bundle(turn, "output")
    display().mimebundle(turn)


async def _turn() -> Turn:
    """Run a turn of the offline planner without servers."""
    from casual_llm.messages import UserMessage

    from casual_mcp_nb.connections import ServerManager
    from casual_mcp_nb.engine.chat import McpToolChat
    from casual_mcp_nb.providers import ModelFactory
    from casual_mcp_nb.types.config import Config

    planner = {"clients": {"here": {"provider": "offline"}}, "models": {"planner": {"client": "here", "model": "planner"}}}
    async with McpToolChat(ServerManager({}), ModelFactory(Config.model_validate(planner))) as chat:
        return await chat.run([UserMessage(content="Hello")])


def _before_fork() -> None:
    # A child would wait forever for a module that another thread of the parent was importing.
    if _thread is not None and _thread is not threading.current_thread():
        _thread.join(_FORK_SECONDS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
