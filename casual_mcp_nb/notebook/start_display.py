"""Show how servers start, in a cell or on a terminal."""

from __future__ import annotations

import contextvars
import html
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.displayable import count, display
from casual_mcp_nb.notebook.caller import notebook_shell
from casual_mcp_nb.notebook.log import is_set

if TYPE_CHECKING:
    from casual_mcp_nb.base.status import Servers, ServerStatus


QUIET_VARIABLE = "MCP_QUIET"
"""The environment variable that turns this off. Empty, `0` and `false` count as not set."""

_SECONDS_BETWEEN_LOOKS = 0.1
_MAX_NAMES = 12
_MAX_REASON = 200


class StartDisplay:
    """Shows how servers start, with at most ten updates a second.

    Create it on the cell's thread, and call `begin` there where an interrupt leads to `finish`. On
    another thread it shows nothing.

    Args:
        announcement: The first text.
        quiet: Whether to show nothing.
        handle: A display that the cell has already, or None for a new one.
        explained: Whether what the person reads next says why servers failed. A terminal's lines
            leave the reasons to it.
    """

    def __init__(
        self,
        announcement: str,
        *,
        quiet: bool = False,
        handle: Any = None,
        explained: bool = False,
    ) -> None:
        in_cell = threading.current_thread() is threading.main_thread()
        visible = in_cell and not quiet and not is_set(QUIET_VARIABLE)
        self._context = contextvars.copy_context()
        self._announcement = announcement
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._servers: Callable[[], Servers] | None = None
        self._reported: set[str] = set()
        self._handle: Any = None
        if visible:
            self._handle = handle
        self._owned = handle is None
        self._explained = explained
        self._on_terminal = False
        if visible and handle is None:
            if notebook_shell() is not None:
                from IPython.display import DisplayHandle

                self._handle = DisplayHandle()  # type: ignore[no-untyped-call]
            else:
                self._on_terminal = sys.stderr is not None and sys.stderr.isatty()

    @property
    def in_notebook(self) -> bool:
        """Whether it is shown in a cell."""
        return self._handle is not None

    def begin(self) -> None:
        """Show the announcement, before anything slow is imported."""
        if self._handle is not None and self._owned:
            self._handle.display(_bundle(self._announcement), raw=True)

    def follow(self, servers: Callable[[], Servers]) -> None:
        """Show these servers until the end. They are read on a separate thread."""
        self._servers = servers
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
        """Stop updating, and leave the display to others, without waiting for a drawing."""
        with self._lock:
            self._ended.set()

    def finish(self, final: Callable[[Servers], Any]) -> None:
        """End the display. If that is interrupted, another thread does it.

        A terminal shows the servers that have no line yet.

        Args:
            final: Returns what stays in the cell, or None for nothing.
        """
        try:
            self.stop()
            # An interrupt may have come before it was started.
            if self._thread is not None and self._thread.is_alive():
                self._thread.join()
            self._show_end(final)
        except KeyboardInterrupt:
            self._ended.set()
            end = partial(self._context.copy().run, self._show_end, final)
            threading.Thread(target=end, name="casual-mcp-start", daemon=True).start()
            raise

    def _show_end(self, final: Callable[[Servers], Any]) -> None:
        shown: Any = None
        if self._servers is not None:
            servers = self._servers()
            if self._on_terminal:
                self._report(servers)
            shown = final(servers)
        if self._handle is not None and self._owned:
            if shown is None:
                shown = ""
            self._handle.update(_bundle(shown), raw=True)

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
            has_ended = status.state in ("ready", "unlisted", "failed")
            if has_ended and status.name not in self._reported:
                self._reported.add(status.name)
                sys.stderr.write(f"{line_of(status, explained=self._explained)}\n")
        sys.stderr.flush()


def announcement_of(names: Iterable[str]) -> str:
    """Format the text that is shown first: which servers start."""
    names = list(names)
    more = ""
    if len(names) > _MAX_NAMES:
        more = f" and {len(names) - _MAX_NAMES} more"
    return f"Starting {', '.join(names[:_MAX_NAMES])}{more} …"


def line_of(status: ServerStatus, *, explained: bool = False) -> str:
    """Format a line about a server that is ready or has failed.

    Args:
        status: The server.
        explained: Leave out why it failed.
    """
    took = ""
    if status.seconds is not None:
        took = f" ({status.seconds:.1f} s)"
    if status.state == "ready" and status.error is None:
        return f"{status.name}: ready, {count(status.tools, 'tool')}{took}"
    state: str = status.state
    if state == "unlisted":
        state = "connected"
    line = f"{status.name}: {state}{took}"
    if explained:
        return line
    reason = " ".join((status.error or "no reason was given").split())[:_MAX_REASON]
    return f"{line}: {reason}"


def summary_of(servers: Servers) -> str:
    """Format a line about servers that have started."""
    names: dict[str, list[str]] = {"ready": [], "failed": [], "unlisted": []}
    for name, status in servers.items():
        names.setdefault(status.state, []).append(name)
    summary = f"{len(names['ready'])} of {len(servers)} servers ready"
    if names["failed"]:
        summary += f"; failed: {', '.join(names['failed'])}"
    if names["unlisted"]:
        summary += f"; tools not listed: {', '.join(names['unlisted'])}"
    return summary


def _bundle(value: Any) -> dict[str, str]:
    if not isinstance(value, str):
        return display().mimebundle(value)
    if not value:
        return {"text/plain": "", "text/html": ""}
    return {"text/plain": value, "text/html": f"<small>{html.escape(value)}</small>"}
