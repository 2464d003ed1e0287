"""Loaded and deferred tools."""

from __future__ import annotations

from casual_mcp_nb.compat import partition_tools

__all__ = ["partition_tools"]
