"""Config, connections and prompts."""

from __future__ import annotations

from casual_mcp_nb.compat import format_tool_call_result, load_mcp_client, render_system_prompt
from casual_mcp_nb.config.loader import load_config

__all__ = ["format_tool_call_result", "load_config", "load_mcp_client", "render_system_prompt"]
