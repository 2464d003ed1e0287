"""Toolsets."""

from __future__ import annotations

from casual_mcp_nb.compat import ToolRule as ToolSpec
from casual_mcp_nb.types.config import ExcludeSpec, ToolSetConfig

__all__ = ["ExcludeSpec", "ToolSetConfig", "ToolSpec"]
