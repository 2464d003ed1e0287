"""The search tool and the manifest."""

from __future__ import annotations

from casual_mcp_nb.compat import SearchToolsTool, generate_manifest

__all__ = ["SearchToolsTool", "generate_manifest"]
