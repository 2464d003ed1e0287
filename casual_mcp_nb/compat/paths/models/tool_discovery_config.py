"""Discovery."""

from __future__ import annotations

from casual_mcp_nb.compat import ToolDiscoveryConfig

__all__ = ["ToolDiscoveryConfig"]
