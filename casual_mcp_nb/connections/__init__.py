"""The MCP client: one connection per server, all concurrent, with their tools as one catalog.

Importing this package does not import the SDK; the first connection does.
"""

from __future__ import annotations

from casual_mcp_nb.connections._errors import error_text
from casual_mcp_nb.connections._log import keep_out_of_log, route_library_logs
from casual_mcp_nb.connections._resources import ServerResources
from casual_mcp_nb.connections.cache import ToolCache
from casual_mcp_nb.connections.connection import Connection
from casual_mcp_nb.connections.convert import result_from_mcp, tool_from_mcp, tools_from_mcp, warn_left_out
from casual_mcp_nb.connections.handlers import Handlers
from casual_mcp_nb.connections.server_manager import ServerManager

__all__ = [
    "Connection",
    "Handlers",
    "ServerManager",
    "ServerResources",
    "ToolCache",
    "error_text",
    "keep_out_of_log",
    "result_from_mcp",
    "route_library_logs",
    "tool_from_mcp",
    "tools_from_mcp",
    "warn_left_out",
]
