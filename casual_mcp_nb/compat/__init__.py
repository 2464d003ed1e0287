"""The names and calls of casual-mcp 1.0, each a thin wrapper around this package.

Code that was written for casual-mcp changes only the name of the package: what it imports from `casual_mcp` is in
`casual_mcp_nb`, and the modules of `paths/` are found there under the names that they have in casual-mcp.
"""

from __future__ import annotations

from casual_mcp_nb.compat._chat import (
    GenerationError,
    McpClient,
    McpToolChat,
    MetaDict,
    ToolCache,
    format_tool_call_result,
    load_mcp_client,
)
from casual_mcp_nb.compat._tools import (
    McpClientConfig,
    McpModelConfig,
    McpServerConfig,
    RemoteServerConfig,
    SearchToolsTool,
    StdioServerConfig,
    ToolDiscoveryConfig,
    ToolRule,
    ToolSearchIndex,
    ToolSetValidationError,
    build_tool_server_map,
    configure_logging,
    extract_server_and_tool,
    filter_tools_by_toolset,
    generate_manifest,
    get_logger,
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
