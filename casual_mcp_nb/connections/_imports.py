"""The SDKs, imported on other threads: they take seconds, and the loop must go on."""

from __future__ import annotations

import asyncio
import importlib
from typing import TYPE_CHECKING

from casual_mcp_nb.connections._log import route_library_logs

if TYPE_CHECKING:
    from casual_mcp_nb.connections._mcp_session import McpSession


async def link_class(in_process: bool = False) -> type[McpSession]:
    """`McpSession` with everything below it; the first use takes up to two seconds on a worker thread.

    Args:
        in_process: Whether it is for a server of this process, which needs fastmcp's server side too.
    """
    return await asyncio.to_thread(_import_link, in_process)


def _import_link(in_process: bool) -> type[McpSession]:
    importlib.import_module("casual_mcp_nb.connections._http")
    if in_process:
        importlib.import_module("fastmcp.server.server")
    from casual_mcp_nb.connections._mcp_session import McpSession

    route_library_logs()
    return McpSession
