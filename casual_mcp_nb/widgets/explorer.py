"""The explorer: everything that the model sees, its cost, and how it is found."""

from __future__ import annotations

from casual_mcp_nb.types.session import ExplorerSnapshot
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
