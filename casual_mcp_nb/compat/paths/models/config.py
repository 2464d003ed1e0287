"""The config."""

from __future__ import annotations

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.compat import McpClientConfig, McpModelConfig

__all__ = ["Config", "McpClientConfig", "McpModelConfig"]
