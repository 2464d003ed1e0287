"""Toolsets: which tools a conversation may use."""

from casual_mcp_nb.toolsets.filter import check_tool_set, filter_tools, missing_servers, resolve_tool_set, unknown_servers

__all__ = ["check_tool_set", "filter_tools", "missing_servers", "resolve_tool_set", "unknown_servers"]
