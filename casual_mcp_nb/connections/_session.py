"""The SDK's client session and transports, made tolerant of servers that break the protocol in one place.

What the SDK refuses as a whole is repaired piece by piece before it looks: a listing with one invalid tool loses that tool, a
result with one unknown part keeps the others. And the session says when its stream has ended, which fastmcp's client does not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TextIO

import mcp_types
from fastmcp.client.transports.base import ClientTransport, TransportOptions
from mcp import ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import INTERNAL_ERROR
from mcp_types.methods import validate_server_result

from casual_mcp_nb.connections.convert import UNKNOWN_CONTENT_META, warn_left_out
from casual_mcp_nb.errors import shown

HANDSHAKE_VERSION = "2025-11-25"


class _Dispatcher(JSONRPCDispatcher[Any]):
    repair: Callable[[str, dict[str, Any]], dict[str, Any]]
    on_closed: Callable[[], None]

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        return self.repair(method, await super().send_raw_request(method, params, *args, **kwargs))

    async def run(self, *args: Any, **kwargs: Any) -> None:
        try:
            await super().run(*args, **kwargs)
        finally:
            self.on_closed()


class _TolerantSession(ClientSession):
    server_name: str
    on_closed: Callable[[], None]

    def __init__(self, read_stream: Any, write_stream: Any, **kwargs: Any) -> None:
        dispatcher = _Dispatcher(read_stream, write_stream)
        dispatcher.repair = self._repair
        dispatcher.on_closed = self.on_closed
        self._listed: set[str] = set()
        super().__init__(dispatcher=dispatcher, **kwargs)

    async def validate_tool_result(self, name: str, result: mcp_types.CallToolResult) -> None:
        """As the SDK does, but a breach marks the result as an error and keeps what the tool said."""
        if name not in self._listed:
            # The SDK would list first, and lose a result that is already here when that fails or hangs.
            return
        try:
            await super().validate_tool_result(name, result)
        except RuntimeError as error:
            result.is_error = True
            result.content = [*result.content, mcp_types.TextContent(type="text", text=_breach(error))]

    def _repair(self, method: str, raw: dict[str, Any]) -> dict[str, Any]:
        if method == "tools/list":
            listing = raw if self._is_valid(method, raw) else self._keep_valid_tools(raw)
            self._listed.update(_names(listing))
            return listing
        return self._keep_known_content(raw) if method == "tools/call" else raw

    def _is_valid(self, method: str, raw: dict[str, Any]) -> bool:
        try:
            validate_server_result(method, self.protocol_version or HANDSHAKE_VERSION, raw)
        except KeyError:
            return True
        except ValueError:
            return False
        return True

    def _keep_valid_tools(self, raw: dict[str, Any]) -> dict[str, Any]:
        tools = raw.get("tools")
        if not isinstance(tools, list):
            raise MCPError(INTERNAL_ERROR, "its answer to tools/list holds no list of tools")
        if not self._is_valid("tools/list", {**raw, "tools": []}):
            # Something else is wrong with the answer, which the SDK names.
            return raw
        kept = []
        for tool in tools:
            if self._is_valid("tools/list", {**raw, "tools": [tool]}):
                kept.append(tool)
            else:
                name = tool.get("name") if isinstance(tool, dict) else tool
                warn_left_out(self.server_name, str(name), "its definition is not valid")
        return {**raw, "tools": kept}

    def _keep_known_content(self, raw: dict[str, Any]) -> dict[str, Any]:
        content = raw.get("content")
        # The SDK validates the whole result anyway; validating it here as well would double the cost of a large one.
        if not isinstance(content, list) or all(_is_known(block) for block in content):
            return raw
        return {**raw, "content": [block if _is_known(block) else _stand_in(block) for block in content], "isError": True}


def _names(listing: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in listing["tools"] if isinstance(tool, dict) and isinstance(tool.get("name"), str)]


_TEXTS_OF = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("name", "uri"),
}


def _is_known(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    if block.get("type") == "resource":
        resource = block.get("resource")
        return isinstance(resource, dict) and any(isinstance(resource.get(key), str) for key in ("text", "blob"))
    keys = _TEXTS_OF.get(str(block.get("type")), ())
    return bool(keys) and all(isinstance(block.get(key), str) for key in keys)


def _stand_in(block: Any) -> dict[str, Any]:
    kind = str(block.get("type")) if isinstance(block, dict) else type(block).__name__
    text = f"a part of the result cannot be read: content of type {shown(kind)}"
    return {"type": "text", "text": text, "_meta": {UNKNOWN_CONTENT_META: kind}}


def _breach(error: RuntimeError) -> str:
    cause: Any = error.__cause__
    if hasattr(cause, "json_path"):
        said = f"at {cause.json_path}: {cause.message[:500]}"
    else:
        said = str(error).partition("\n")[0][:500]
    return f"The structured content does not fit the tool's own output schema: {said}"


class StdioTransport(ClientTransport):
    """A server process. fastmcp's own transport goes deaf for ever at a byte that is not UTF-8; here it becomes a mark.

    Args:
        command: The command line.
        env: Variables beside the SDK's short list.
        cwd: Folder to start it in.
        stderr: A file for its stderr.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: str | None, stderr: TextIO) -> None:
        program, *args = command
        self._parameters = StdioServerParameters(
            command=program, args=args, env=dict(env), cwd=cwd, encoding_error_handler="replace"
        )
        self._stderr = stderr

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncIterator[ClientSession]:
        """Start the process; it is ended when the session is left."""
        options = transport_options or TransportOptions()
        async with (
            stdio_client(self._parameters, errlog=self._stderr) as (read, write),
            options.session_class(read, write, **session_kwargs) as session,
        ):
            yield session


class TolerantTransport(ClientTransport):
    """A fastmcp transport whose sessions are tolerant and say when they end.

    Args:
        inner: The transport that carries the messages.
        server_name: For warnings.
        on_closed: Called once when the stream of messages has ended, whoever ended it.
    """

    def __init__(self, inner: ClientTransport, server_name: str, on_closed: Callable[[], None]) -> None:
        self._inner = inner
        self.legacy_only = inner.legacy_only
        members = {"server_name": server_name, "on_closed": staticmethod(on_closed)}
        self._options = TransportOptions(session_class=type("TolerantSession", (_TolerantSession,), members))

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncIterator[ClientSession]:
        """Open the inner transport with a session of ours."""
        async with self._inner.connect_session(transport_options=self._options, **session_kwargs) as session:
            yield session

    async def close(self) -> None:
        """Close the inner transport."""
        await self._inner.close()  # type: ignore[no-untyped-call]

    def get_session_id(self) -> str | None:
        """The inner transport's session id, if it has one."""
        return self._inner.get_session_id()
