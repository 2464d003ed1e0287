"""The tools of a session as far as they are known, without waiting for servers."""

from __future__ import annotations

import contextlib

from casual_mcp_nb.engine.view import ToolView
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.notebook.status import manifest_of
from casual_mcp_nb.types.selection import Selection
from casual_mcp_nb.types.session import ExplorerSnapshot, Manifest, Servers, ToolSets
from casual_mcp_nb.types.tool import Catalog, ToolName
from casual_mcp_nb.widgets._rows import budget_of
from casual_mcp_nb.widgets.state import SessionParts, State


class ToolsState(State):
    """Follows the selection and the servers of a session.

    Servers that are not connected yet are connected in the background, and their tools appear one server after the other.

    Args:
        session: The session.
    """

    def __init__(self, session: SessionParts) -> None:
        super().__init__(session)
        self._tools = session.tool_service
        self._updating = False
        self._update_again = False
        self.follow(self._tools.selection.watch(self.changed))
        self.follow(session.observers.changes.add(self._tools_changed))
        session.engine.submit(self._connect())

    @property
    def catalog(self) -> Catalog:
        """The tools that are known now."""
        return self._tools.catalog

    @property
    def view(self) -> ToolView:
        """The model's view of them; without a toolset if the selection names one that does not exist."""
        return self._compiled(self._tools.selection)[0]

    @property
    def servers(self) -> Servers:
        """The servers as a noun."""
        return self._tools.servers

    @property
    def tool_sets(self) -> ToolSets:
        """The toolsets as a noun."""
        return self._tools.tool_sets_in(self.view)

    @property
    def manifest(self) -> Manifest:
        """The manifest as a noun."""
        return manifest_of(self.view)

    @property
    def exploration(self) -> ExplorerSnapshot:
        """All of it as a noun."""
        view = self.view
        return ExplorerSnapshot(
            servers=self.servers,
            selection=self._tools.selection.snapshot(),
            tool_sets=self.tool_sets,
            manifest=self.manifest,
            prices=budget_of(view)["servers"],
            offered=len(view.loaded),
            undeferred_tokens=view.undeferred_tokens,
            budget=self._tools.budget_in(view),
        )

    def _compiled(self, selection: Selection) -> tuple[ToolView, str]:
        """Compile the view under a selection, and describe the selection's error if it has one."""
        view = self._tools.current_view(selection)
        return view, view.problem

    def _off(self, selection: Selection) -> frozenset[ToolName]:
        """Find the tools that were excluded one by one."""
        return frozenset(tool.tool_name for tool in map(self.catalog.get, selection.tools_off) if tool)

    def _tools_changed(self) -> None:
        """Update after a change of a server or its tools; on any thread."""
        self.changed()
        self.session.engine.submit(self._update_tools())

    async def _update_tools(self) -> None:
        self._update_again = self._updating
        if self._updating:
            return
        self._updating = True
        before = self.catalog
        try:
            with contextlib.suppress(UsageError):
                await self._tools.update()
        finally:
            self._updating = False
        if self.catalog is not before:
            self.changed()
        if self._update_again:
            await self._update_tools()

    async def _connect(self) -> None:
        # A closed session still shows what was known.
        with contextlib.suppress(UsageError):
            await self._tools.view()
        self.changed()
