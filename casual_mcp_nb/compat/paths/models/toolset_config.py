"""Toolsets."""

from __future__ import annotations

from casual_mcp_nb.base.config import ExcludeSpec, ToolSetConfig
from casual_mcp_nb.compat import ToolRule as ToolSpec

__all__ = ["ExcludeSpec", "ToolSetConfig", "ToolSpec"]
