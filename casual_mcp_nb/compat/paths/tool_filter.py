"""Toolsets."""

from __future__ import annotations

from casual_mcp_nb.compat import ToolSetValidationError

__all__ = ["ToolSetValidationError"]
