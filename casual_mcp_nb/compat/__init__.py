"""The names and calls of casual-mcp 1.0, each a thin wrapper around this package.

Code that was written for casual-mcp changes only the name of the package: what it imports from `casual_mcp` is in
`casual_mcp_nb`, and the modules of `paths/` are found there under the names that they have in casual-mcp.
"""

from __future__ import annotations

from casual_mcp_nb.compat._chat import GenerationError, McpToolChat, MetaDict, format_tool_call_result
from casual_mcp_nb.compat._client import McpClient, ToolCache, load_mcp_client
from casual_mcp_nb.compat._config import (
    McpClientConfig,
    McpModelConfig,
    McpServerConfig,
    RemoteServerConfig,
    StdioServerConfig,
    ToolDiscoveryConfig,
    ToolRule,
    ToolSetValidationError,
)
from casual_mcp_nb.compat._logging import configure_logging, get_logger
from casual_mcp_nb.compat._tools import (
    SearchToolsTool,
    ToolSearchIndex,
    build_tool_server_map,
    extract_server_and_tool,
    filter_tools_by_toolset,
    generate_manifest,
    partition_tools,
    render_system_prompt,
    tool_from_mcp,
    tools_from_mcp,
    validate_toolset,
)

__all__ = [
    "GenerationError",
    "McpClient",
    "McpClientConfig",
    "McpModelConfig",
    "McpServerConfig",
    "McpToolChat",
    "MetaDict",
    "RemoteServerConfig",
    "SearchToolsTool",
    "StdioServerConfig",
    "ToolCache",
    "ToolDiscoveryConfig",
    "ToolRule",
    "ToolSearchIndex",
    "ToolSetValidationError",
    "build_tool_server_map",
    "configure_logging",
    "extract_server_and_tool",
    "filter_tools_by_toolset",
    "format_tool_call_result",
    "generate_manifest",
    "get_logger",
    "load_mcp_client",
    "partition_tools",
    "render_system_prompt",
    "tool_from_mcp",
    "tools_from_mcp",
    "validate_toolset",
]
