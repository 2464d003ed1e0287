"""Tools that no server runs."""

from __future__ import annotations

from casual_mcp_nb.discovery.synthetic import SyntheticTool, SyntheticToolResult

__all__ = ["SyntheticTool", "SyntheticToolResult"]
