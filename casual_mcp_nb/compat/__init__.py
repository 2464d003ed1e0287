"""The names and calls of casual-mcp 1.0, each a thin face over what this package has.

Code that was written for casual-mcp changes only the name of the package: what it imports from `casual_mcp` is in
`casual_mcp_nb`, and the modules of `paths/` are found there under the names that they have in casual-mcp.
"""

from __future__ import annotations

from casual_mcp_nb.compat._chat import McpToolChat
from casual_mcp_nb.compat._client import McpClient, ToolCache, load_mcp_client
from casual_mcp_nb.compat._config import (
    McpClientConfig,
    McpModelConfig,
    McpServerConfig,
    RemoteServerConfig,
    StdioServerConfig,
    ToolDiscoveryConfig,
    ToolSetValidationError,
)
from casual_mcp_nb.compat._logging import configure_logging, get_logger
from casual_mcp_nb.compat._tools import (
    SearchToolsTool,
    ToolSearchIndex,
    generate_manifest,
    partition_tools,
    render_system_prompt,
    tool_from_mcp,
    tools_from_mcp,
)

__all__ = [
    "McpClient",
    "McpClientConfig",
    "McpModelConfig",
    "McpServerConfig",
    "McpToolChat",
    "RemoteServerConfig",
    "SearchToolsTool",
    "StdioServerConfig",
    "ToolCache",
    "ToolDiscoveryConfig",
    "ToolSearchIndex",
    "ToolSetValidationError",
    "configure_logging",
    "generate_manifest",
    "get_logger",
    "load_mcp_client",
    "partition_tools",
    "render_system_prompt",
    "tool_from_mcp",
    "tools_from_mcp",
]
