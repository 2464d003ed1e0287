"""Start servers: ask first, show progress, and load in the background whatever the first turn
needs.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import html
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from casual_mcp_nb.base.displayable import display
from casual_mcp_nb.errors import TrustRequiredError
from casual_mcp_nb.notebook.blocking import on_engine
from casual_mcp_nb.notebook.caller import notebook_shell
from casual_mcp_nb.notebook.log import is_set
from casual_mcp_nb.notebook.loop import EngineThread

if TYPE_CHECKING:
    from casual_mcp_nb.base.status import Servers, ServerStatus
    from casual_mcp_nb.conversation.turn import Turn
    from casual_mcp_nb.engine.chat import McpToolChat
    from casual_mcp_nb.engine.tool_view import ToolView
    from casual_mcp_nb.notebook.consent import TrustGate


T = TypeVar("T")

LOADED = "system-info"


def demo_config() -> dict[str, Any]:
    """Build a config with the default bundled servers, in this process, all but one deferred;
    `Session.demo` adds the model.
    """
    from casual_mcp_nb.bundled import BUNDLED

    return {
        "servers": {
            name: {"bundled": name, "transport": "in-process", "defer_loading": name != LOADED}
            for name, server in BUNDLED.items()
            if server.default
        },
        "tool_sets": {
            "calculation": {
                "description": "Numbers, units and times",
                "servers": {"math": True, "units": True, "time": True},
            },
            "reading": {
                "description": "Look, but change nothing",
                "servers": {
                    "files": ["read_file", "list_directory"],
                    "text": True,
                    "sqlite": {"exclude": ["execute"]},
                },
            },
        },
        "tool_discovery": {"enabled": True},
    }


_log = logging.getLogger(__name__)

_FORK_SECONDS = 30.0
_EXIT_SECONDS = 10.0

_lock = threading.Lock()
_thread: threading.Thread | None = None
_ending = threading.Event()


def warm_up() -> None:
    """Start the imports, unless that was done before."""
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

        # Listing the imports and caches of a first search, turn and drawing would be hard.
        from casual_mcp_nb.base.tool import ToolSpec
        from casual_mcp_nb.discovery.search_tools import ToolSearchIndex

        ToolSearchIndex([ToolSpec("server", "tool", "A tool.", {"type": "object"})]).search("tool")
        turn = asyncio.run(_turn())
        display().live_bundle(turn, "output")
        display().mimebundle(turn)
    except Exception:
        # The code that needs it gets the error.
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
    # The interpreter ends daemon threads where they are. One that is loading a library written in
    # C++ takes the whole process with it, as an abort.
    _ending.set()
    if _thread is not None:
        _thread.join(_EXIT_SECONDS)


atexit.register(_at_exit)


def _before_fork() -> None:
    # A child would wait forever for a module that another thread in the parent was importing.
    if _thread is not None and _thread is not threading.current_thread():
        _thread.join(_FORK_SECONDS)


if hasattr(os, "register_at_fork"):
    # Functions run before a fork in the reverse order: this one before that which takes all
    # executors' lock, which the imports need.
    import concurrent.futures.thread  # noqa: F401

    os.register_at_fork(before=_before_fork)


QUIET_VARIABLE = "MCP_QUIET"
"""The environment variable that turns this off. Empty, `0` and `false` count as not set."""

_SECONDS_BETWEEN_LOOKS = 0.1
_MAX_NAMES = 12
_MAX_REASON = 200


class StartDisplay:
    """Shows how servers start, from its creation on, at most ten updates a second, or nothing if it
    is quiet.

    Create it on the cell's thread. It shows something before it imports anything slow.
    """

    def __init__(self, announcement: str, *, quiet: bool = False, handle: Any = None) -> None:
        visible = (
            not quiet
            and not is_set(QUIET_VARIABLE)
            and threading.current_thread() is threading.main_thread()
        )
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._reported: set[str] = set()
        self._handle: Any = handle if visible else None
        self._owned = handle is None
        self._on_terminal = False
        if visible and handle is None:
            if notebook_shell() is not None:
                from IPython.display import DisplayHandle

                self._handle = DisplayHandle()  # type: ignore[no-untyped-call]
                self._handle.display(_bundle(announcement), raw=True)
            else:
                self._on_terminal = sys.stderr is not None and sys.stderr.isatty()

    @property
    def in_notebook(self) -> bool:
        """Whether it is shown in a cell."""
        return self._handle is not None

    def follow(self, servers: Callable[[], Servers]) -> None:
        """Show these servers until the end. They are read on a separate thread."""
        if self._handle is None and not self._on_terminal:
            return
        self._thread = threading.Thread(
            target=self._context.run,
            args=(self._watch, servers),
            name="casual-mcp-start",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop updating, and leave the display to others.

        Does not wait for a drawing in progress.
        """
        with self._lock:
            self._ended.set()

    def finish(self, servers: Servers | None, final: Any = None) -> None:
        """End the display with a line for the servers, if there are any, and the cell's final
        output, if it has one.
        """
        self.stop()
        if self._thread is not None:
            self._thread.join()
        if self._on_terminal and servers is not None:
            self._report(servers)
        if self._handle is not None and self._owned:
            self._handle.update(_bundle("" if final is None else final), raw=True)

    def _watch(self, servers: Callable[[], Servers]) -> None:
        drawn: object = None
        while not self._ended.is_set():
            now = servers()
            states = [(status.name, status.state) for status in now.values()]
            if states != drawn:
                drawn = states
                self._draw(now)
            self._ended.wait(_SECONDS_BETWEEN_LOOKS)

    def _draw(self, servers: Servers) -> None:
        if self._on_terminal:
            self._report(servers)
            return
        bundle = _bundle(servers)
        with self._lock:
            if not self._ended.is_set():
                self._handle.update(bundle, raw=True)

    def _report(self, servers: Servers) -> None:
        """Write a line for each server that has become ready or failed since the last call."""
        for status in servers.values():
            if (
                status.state in ("ready", "unlisted", "failed")
                and status.name not in self._reported
            ):
                self._reported.add(status.name)
                sys.stderr.write(f"{line_of(status)}\n")
        sys.stderr.flush()


@dataclass(eq=False, repr=False)
class ServerStarter:
    """Starts a session's servers when they are first needed, for all its parts.

    Its coroutines run on the engine's loop. The rest is thread-safe. `predecessors` are earlier
    sessions that must close before anything connects, since they may hold a port or a file.
    """

    chat: McpToolChat
    engine: EngineThread
    gate: TrustGate
    check_open: Callable[[], None]
    _: KW_ONLY
    quiet: bool = False
    predecessors: Sequence[Future[None]] = ()

    def _servers(self) -> Servers:
        from casual_mcp_nb.notebook.status import servers_of

        return servers_of(self.chat)

    async def view(self) -> ToolView:
        """Compile the model's view. Connects servers that are not connected yet."""
        await self.admit()
        return await self.chat.view()

    async def admit(self) -> None:
        """Wait until the servers may be used: until earlier sessions that may hold a port or a file
        are closed.
        """
        self.require_trust()
        for end in self.predecessors:
            await asyncio.wait([asyncio.wrap_future(end)])
        self.predecessors = ()

    def require_trust(self) -> None:
        """Raise an error unless the servers may start, without asking."""
        self.check_open()
        self.gate.require()

    async def start(self) -> None:
        """Connect all servers, and begin the imports that the first turn needs."""
        warm_up()
        await self.view()

    async def _ready(self) -> None:
        await self.start()
        if notebook_shell() is not None:
            # Better while servers start than in the first question's cell.
            await warmed_up()

    async def connect(self, *, strict: bool, quiet: bool) -> Servers:
        """Connect, and show progress, see `Session.connect`.

        A coroutine on the caller's side, see `on_engine`.
        """
        from casual_mcp_nb.notebook.live import ShownServers

        with self.shown(quiet=quiet, table=True) as display:
            await on_engine(lambda _: self._ready())
        servers = self._servers()
        if strict:
            servers.raise_for_status()
        in_cell = display is not None and display.in_notebook
        return ShownServers(servers, notebook_shell()) if in_cell else servers

    @contextmanager
    def shown(
        self, *, quiet: bool = False, table: bool = False, handle: Any = None
    ) -> Iterator[StartDisplay | None]:
        """Show how servers start while the body runs, if any need to.

        Ask the person first if they must accept it.

        On the engine's own thread, which has no cell, it does nothing. A table leaves the servers
        in the cell. A handle is an existing display in the cell, used until the body stops this
        one.
        """
        if self.engine.inherited or self.engine.is_current:
            yield None
            return
        if not self.gate.is_open:
            self.check_open()
            self.gate.ask()
        waiting = self.chat.server_manager.waiting
        if not waiting:
            yield None
            return
        display = StartDisplay(announcement_of(waiting), quiet=quiet or self.quiet, handle=handle)
        display.follow(self._servers)
        try:
            yield display
        finally:
            servers = self._servers()
            display.finish(servers, servers if table else summary_of(servers))

    async def run_shown(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the engine thread do work for which servers may have to start, and show that.

        See `on_engine`.
        """
        try:
            with self.shown():
                return await on_engine(lambda _: work)
        except TrustRequiredError:
            work.close()
            raise


def announcement_of(names: Iterable[str]) -> str:
    """Format the text that is shown first: which servers start."""
    names = list(names)
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"Starting {', '.join(names[:_MAX_NAMES])}{more} …"


def line_of(status: ServerStatus) -> str:
    """Format a line about a server that is ready or has failed."""
    took = f" ({status.seconds:.1f} s)" if status.seconds is not None else ""
    if status.state == "ready" and status.error is None:
        return f"{status.name}: ready, {status.tools} tool{'' if status.tools == 1 else 's'}{took}"
    reason = " ".join((status.error or "no reason was given").split())[:_MAX_REASON]
    return (
        f"{status.name}: {'connected' if status.state == 'unlisted' else status.state}{took}:"
        f" {reason}"
    )


def summary_of(servers: Servers) -> str:
    """Format a line about servers that have started."""
    ready = [name for name, status in servers.items() if status.state == "ready"]
    failed = [name for name, status in servers.items() if status.state == "failed"]
    unlisted = [name for name, status in servers.items() if status.state == "unlisted"]
    more = f"; failed: {', '.join(failed)}" if failed else ""
    more += f"; tools not listed: {', '.join(unlisted)}" if unlisted else ""
    return f"{len(ready)} of {len(servers)} servers ready{more}"


def _bundle(value: Any) -> dict[str, str]:
    if isinstance(value, str):
        return {
            "text/plain": value,
            "text/html": f"<small>{html.escape(value)}</small>" if value else "",
        }
    return display().mimebundle(value)
