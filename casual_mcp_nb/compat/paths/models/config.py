"""The config."""

from __future__ import annotations

from casual_mcp_nb.compat import McpClientConfig, McpModelConfig
from casual_mcp_nb.types.config import Config

__all__ = ["Config", "McpClientConfig", "McpModelConfig"]
