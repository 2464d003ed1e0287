"""Our client side of MCP: one connection a server, all of them side by side, and their tools as a catalog.

Importing this room imports no SDK; the first connection does.
"""

from __future__ import annotations

from casual_mcp_nb.connections._log import keep_out_of_log, route_library_logs
from casual_mcp_nb.connections.cache import ToolCache
from casual_mcp_nb.connections.connection import Connection
from casual_mcp_nb.connections.convert import error_text, result_from_mcp, tool_from_mcp, tools_from_mcp
from casual_mcp_nb.connections.handlers import Handlers
from casual_mcp_nb.connections.server_manager import ServerManager

__all__ = [
    "Connection",
    "Handlers",
    "ServerManager",
    "ToolCache",
    "error_text",
    "keep_out_of_log",
    "result_from_mcp",
    "route_library_logs",
    "tool_from_mcp",
    "tools_from_mcp",
]
