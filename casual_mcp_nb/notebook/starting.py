"""Start servers when they are first needed: ask the person first, and show how they start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from casual_mcp_nb.errors import TrustRequiredError
from casual_mcp_nb.notebook.blocking import on_engine
from casual_mcp_nb.notebook.caller import notebook_shell
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.start_display import StartDisplay, announcement_of, summary_of
from casual_mcp_nb.notebook.warming import warm_up, warmed_up

if TYPE_CHECKING:
    from casual_mcp_nb.base.status import Servers
    from casual_mcp_nb.engine.chat import McpToolChat
    from casual_mcp_nb.engine.tool_view import ToolView
    from casual_mcp_nb.notebook.consent import TrustGate


T = TypeVar("T")


@dataclass(eq=False, repr=False)
class ServerStarter:
    """Starts a session's servers when they are first needed.

    Its coroutines run on the engine's loop. The rest is thread-safe.

    Attributes:
        quiet: Whether it shows nothing.
        predecessors: The ends of earlier sessions that this one replaces. They may hold a port or a
            file, so nothing connects before they are closed.
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
        """Compile the model's view. Connect servers that are not connected yet."""
        await self.admit()
        return await self.chat.view()

    async def admit(self) -> None:
        """Wait until the sessions that this one replaces are closed.

        Raises:
            TrustRequiredError: The person has not accepted the servers.
            ClosedError: The session is closed.
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
            # Wait for the imports now, rather than in the cell with the first question.
            await warmed_up()

    async def connect(self, *, strict: bool, quiet: bool) -> Servers:
        """Connect all servers, see `Session.connect`.

        A coroutine on the caller's side, see `on_engine`.

        Args:
            strict: Raise ConnectError if a server failed.
            quiet: Show nothing.
        """
        from casual_mcp_nb.notebook.live import ShownServers

        with self.shown(quiet=quiet, table=True) as display:
            await on_engine(self._ready())
        servers = self._servers()
        if strict:
            servers.raise_for_status()
        if display is not None and display.in_notebook:
            return ShownServers(servers, notebook_shell())
        return servers

    @contextmanager
    def shown(
        self, *, quiet: bool = False, table: bool = False, handle: Any = None
    ) -> Iterator[StartDisplay | None]:
        """Show how servers start while the body runs, if any have to.

        The person is asked first if they must accept them. On the engine's own thread, which has no
        cell, nothing is shown or asked.

        Args:
            quiet: Show nothing.
            table: Leave a table of the servers in the cell, rather than a line.
            handle: A display that the cell has already, which is used until the body stops this
                one.

        Yields the display, or None if no server has to start.
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
            self.gate.remember_typed()
            return
        display = StartDisplay(announcement_of(waiting), quiet=quiet or self.quiet, handle=handle)

        def final(servers: Servers) -> Servers | str:
            if table:
                return servers
            return summary_of(servers)

        try:
            display.begin()
            display.follow(self._servers)
            yield display
        finally:
            display.finish(final)
        self.gate.remember_typed()

    async def run_shown(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the engine thread do work for which servers may have to start, see `on_engine`.

        How they start is shown.
        """
        try:
            with self.shown():
                return await on_engine(work)
        except TrustRequiredError:
            work.close()
            raise
