"""Tools in the form of casual-llm."""

from __future__ import annotations

from casual_mcp_nb.compat import tool_from_mcp, tools_from_mcp

__all__ = ["tool_from_mcp", "tools_from_mcp"]
