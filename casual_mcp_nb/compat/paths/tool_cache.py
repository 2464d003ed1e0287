"""The list of tools."""

from __future__ import annotations

from casual_mcp_nb.compat import ToolCache

__all__ = ["ToolCache"]
