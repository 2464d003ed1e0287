"""The explorer and its single parts: everything that the model sees, its cost, and how it is found."""

from __future__ import annotations

from casual_mcp_nb.base.search import SearchResults
from casual_mcp_nb.base.status import ExplorerSnapshot, Manifest, Servers, ToolSets
from casual_mcp_nb.widgets.base import SessionWidget
from casual_mcp_nb.widgets.resources import ResourcesState
from casual_mcp_nb.widgets.search import SearchState
from casual_mcp_nb.widgets.selection import SelectionState
from casual_mcp_nb.widgets.state import SessionParts


class Explorer(SessionWidget):
    """Tools, resources and prompts of servers with their cost: the manifest, the budget, the toolsets, the search.

    Args:
        session: The session; servers that are not connected yet are connected in the background.
    """

    bundle = "explorer"

    def __init__(self, session: SessionParts) -> None:
        self.selection = SelectionState(session)
        self.search = SearchState(session)
        self.resources = ResourcesState(session)
        super().__init__(session, selection=self.selection, search=self.search, resources=self.resources)

    def static(self) -> ExplorerSnapshot:
        """Build a snapshot of the servers, the budget, the toolsets and the manifest."""
        return self.selection.exploration


class ToolsetPicker(SessionWidget):
    """Chooses the toolset, and edits and saves toolsets.

    In Python: `session.selection.tool_set` and `session.tools.save_set`.
    """

    bundle = "toolset_picker"

    def __init__(self, session: SessionParts) -> None:
        self.selection = SelectionState(session, tools=False)
        super().__init__(session, selection=self.selection)

    def static(self) -> ToolSets:
        """Get the toolsets as they are now."""
        return self.selection.tool_sets


class ServerToggles(SessionWidget):
    """Makes each server loaded, deferred or off, and shows its price.

    In Python: `session.selection.servers[name]` and `session.servers.reconnect`.
    """

    bundle = "server_toggles"

    def __init__(self, session: SessionParts) -> None:
        self.selection = SelectionState(session, tools=False)
        super().__init__(session, selection=self.selection)

    def static(self) -> Servers:
        """Get the servers as they are now."""
        return self.selection.servers


class ManifestView(SessionWidget):
    """The present manifest as the model reads it. In Python: `session.tools.manifest`."""

    bundle = "manifest_view"

    def __init__(self, session: SessionParts) -> None:
        self.selection = SelectionState(session, tools=False)
        super().__init__(session, selection=self.selection)

    def static(self) -> Manifest:
        """Get the manifest as it is now."""
        return self.selection.manifest


class SearchBox(SessionWidget):
    """Ranks tools as the person types, as the model's own search does. In Python: `session.search`."""

    bundle = "search_box"

    def __init__(self, session: SessionParts) -> None:
        self.search = SearchState(session)
        super().__init__(session, search=self.search)

    def static(self) -> SearchResults:
        """Get the results of the last query."""
        return self.search.results
