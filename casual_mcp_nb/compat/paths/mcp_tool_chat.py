"""The chat."""

from __future__ import annotations

from casual_mcp_nb.compat import McpToolChat, MetaDict

__all__ = ["McpToolChat", "MetaDict"]
