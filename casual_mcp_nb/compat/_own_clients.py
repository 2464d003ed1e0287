"""A client of one's own: anything with casual-mcp's `list_tools` and `call_tool`, such as a class
that adds something to each call, or a test's stand-in. Its tools become those of servers of this
process, which ask it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastmcp import Client, FastMCP
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsRequest, TextContent
from pydantic import BaseModel

from casual_mcp_nb.base.content import ToolResult as OurResult
from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.compat._tools import extract_server_and_tool, sdk_tool
from casual_mcp_nb.servers.convert import result_from_mcp, warn_left_out

DEFAULT_SERVER = "default"
"""The server of all tools if no server is named, as in casual-mcp."""

ListTools = Callable[[], Awaitable[Sequence[Any]]]


def has_fastmcps_methods(client: Client[Any]) -> bool:
    """Check whether a FastMCP client lists and calls as FastMCP's own class does."""
    return all(
        getattr(getattr(client, name), "__func__", None) is getattr(Client, name)
        for name in ("list_tools", "call_tool")
    )


def servers_of(
    client: Any, list_tools: ListTools, server_names: Sequence[str]
) -> dict[str, FastMCP[Any]]:
    """Build a server of this process for each of a client's servers.

    Args:
        client: The client. It is entered, if that is possible, while a server is connected.
        list_tools: Lists all of its tools.
        server_names: Its servers, which its tools' names begin with. The first one by alphabet
            also has the tools that begin with none.
    """
    names = tuple(sorted(server_names)) or (DEFAULT_SERVER,)
    return {name: _server(name, names, client, list_tools) for name in names}


def _server(name: str, names: tuple[str, ...], client: Any, list_tools: ListTools) -> FastMCP[Any]:
    @asynccontextmanager
    async def connected(_: FastMCP[Any]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if hasattr(client, "__aenter__"):
                await stack.enter_async_context(client)
            yield

    return FastMCP(name, lifespan=connected, middleware=[_Asked(name, names, client, list_tools)])


class _Asked(Middleware):
    """Answers for one of a client's servers."""

    def __init__(
        self, server: str, names: tuple[str, ...], client: Any, list_tools: ListTools
    ) -> None:
        self._server = server
        self._names = names
        self._client = client
        self._list_tools = list_tools
        self._listed_names: dict[str, str] = {}

    async def on_list_tools(
        self,
        context: MiddlewareContext[ListToolsRequest],
        call_next: CallNext[ListToolsRequest, Sequence[Tool]],
    ) -> Sequence[Tool]:
        tools = []
        for listed in await self._list_tools():
            name = listed.wire_name if isinstance(listed, ToolSpec) else str(listed.name)
            server, own_name = extract_server_and_tool(name, self._names)
            if server not in self._names:
                server = self._names[0]
            if server != self._server:
                continue
            try:
                tools.append(_tool(listed, own_name))
            except ValueError as error:
                warn_left_out(server, name, str(error))
                continue
            self._listed_names[own_name] = name
        return tools

    async def on_call_tool(
        self,
        context: MiddlewareContext[CallToolRequestParams],
        call_next: CallNext[CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        own_name = context.message.name
        name = self._listed_names.get(own_name, own_name)
        arguments = context.message.arguments or {}
        result = await _asked(self._client, name, arguments, _meta_of(context))
        return ToolResult(result.content, result.structured_content, is_error=result.is_error)


def _meta_of(context: MiddlewareContext[CallToolRequestParams]) -> dict[str, Any] | None:
    """Find what the caller passed to the server with the call, without what the protocol adds."""
    request = context.fastmcp_context.request_context if context.fastmcp_context else None
    meta = (request and request.meta) or {}
    given: dict[str, Any] = {}
    for key, value in meta.items():
        if key != "progressToken" and not key.startswith("io.modelcontextprotocol/"):
            given[key] = value
    return given or None


def _tool(listed: Any, own_name: str) -> Tool:
    tool = sdk_tool(listed, own_name)
    return Tool(
        name=own_name,
        title=tool.title,
        description=tool.description,
        parameters=tool.input_schema or {"type": "object", "properties": {}},
        output_schema=tool.output_schema,
        annotations=tool.annotations,
        meta=tool.meta,
    )


async def answer_of(
    client: Any, name: str, arguments: dict[str, Any], meta: Mapping[str, Any] | None
) -> OurResult:
    """Have a client call a tool by its name there. A failure is a result, too."""
    return result_from_mcp(await _asked(client, name, arguments, meta))


async def _asked(
    client: Any, name: str, arguments: dict[str, Any], meta: Mapping[str, Any] | None
) -> CallToolResult:
    try:
        return _sdk_result(await client.call_tool(name, arguments, meta=meta))
    except Exception as error:
        # Clients raise and return whatever they like, FastMCP's a ToolError if a tool reports one.
        return CallToolResult(content=[TextContent(type="text", text=str(error))], is_error=True)


def _sdk_result(answer: Any) -> CallToolResult:
    """Convert a client's answer to the SDK's form: FastMCP's, the SDK's from before its version 2,
    or an object with some of their fields.
    """
    structured = [
        getattr(answer, name, None) for name in ("structured_content", "structuredContent")
    ]
    objects = of_type(structured, dict)
    flags = [getattr(answer, name, None) for name in ("is_error", "isError")]
    return CallToolResult(
        content=list(map(_block, answer.content)),
        structured_content=objects[0] if objects else None,
        is_error=True in flags,
    )


def _block(block: Any) -> Any:
    if isinstance(block, BaseModel):
        return block
    text = getattr(block, "text", None)
    if not isinstance(text, str):
        media_type = getattr(block, "mime_type", None) or getattr(block, "mimeType", "")
        text = f"[{block.type}: {media_type}]"
    return TextContent(type="text", text=text)
