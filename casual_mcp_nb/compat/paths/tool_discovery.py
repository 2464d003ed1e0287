"""Loaded and deferred tools."""

from __future__ import annotations

from casual_mcp_nb.compat import build_tool_server_map, partition_tools

__all__ = ["build_tool_server_map", "partition_tools"]
