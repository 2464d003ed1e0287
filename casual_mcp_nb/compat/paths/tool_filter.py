"""Toolsets."""

from __future__ import annotations

from casual_mcp_nb.compat import ToolSetValidationError, extract_server_and_tool, filter_tools_by_toolset, validate_toolset

__all__ = ["ToolSetValidationError", "extract_server_and_tool", "filter_tools_by_toolset", "validate_toolset"]
