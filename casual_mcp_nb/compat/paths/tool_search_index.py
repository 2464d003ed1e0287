"""Search by words."""

from __future__ import annotations

from casual_mcp_nb.compat import ToolSearchIndex

__all__ = ["ToolSearchIndex"]
