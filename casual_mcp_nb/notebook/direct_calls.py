"""A call of a tool by the person."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from casual_mcp_nb.connections import ServerManager
from casual_mcp_nb.engine.results import result_words
from casual_mcp_nb.types.step import ToolCall
from casual_mcp_nb.types.tool import ToolSpec


async def call_tool_directly(server_manager: ServerManager, tool: ToolSpec, arguments: Mapping[str, Any]) -> ToolCall:
    """Call a tool of the catalog, and put what came back as a call of a turn is put.

    Raises:
        ServerError: The server failed.
    """
    start = time.monotonic()
    result = await server_manager.call(tool, arguments)
    return ToolCall(
        id="",
        name=tool.wire_name,
        tool=tool.tool_name,
        arguments=dict(arguments),
        status="error" if result.is_error else "ok",
        result=await result_words(result),
        content=result.content,
        structured=result.structured,
        seconds=time.monotonic() - start,
    )
