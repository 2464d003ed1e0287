"""Servers."""

from __future__ import annotations

from casual_mcp_nb.compat import McpServerConfig, RemoteServerConfig, StdioServerConfig

__all__ = ["McpServerConfig", "RemoteServerConfig", "StdioServerConfig"]
