"""The SDK's client session and transports, made tolerant of servers that break the protocol in one place.

What the SDK refuses as a whole is repaired piece by piece before it looks: a listing with one invalid tool loses that tool, a
result with one unknown part keeps the others. And the session says when its stream has ended, which fastmcp's client does not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TextIO, TypeVar

import mcp_types
from fastmcp import Client
from fastmcp.client.transports.base import ClientTransport, TransportOptions
from mcp import ClientSession, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, REQUEST_TIMEOUT, JSONRPCError
from mcp_types.methods import validate_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from casual_mcp_nb.connections._messages import ENCODING, STDOUT_LINES, LineLimit, answer_to_unreadable
from casual_mcp_nb.connections.convert import CONNECTION_CLOSED, UNKNOWN_CONTENT_META, has_few_values, warn_left_out
from casual_mcp_nb.errors import shown

T = TypeVar("T")

Undiscovered = Literal["silent", "ended"]
"""What a server did that gave no answer to `server/discover`."""

HANDSHAKE_VERSION = "2025-11-25"
MAX_PARTS = 1_000
"""How many parts of a result are taken."""
SLICE = 500
"""How many tools of a listing are read at once: about 40 ms."""


class _Dispatcher(JSONRPCDispatcher[Any]):
    repair: Callable[[str, dict[str, Any]], dict[str, Any]]
    on_closed: Callable[[], None]
    on_refused: Callable[[str], None]

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        return self.repair(method, await super().send_raw_request(method, params, *args, **kwargs))

    async def run(self, on_request: Any, *args: Any, **kwargs: Any) -> None:
        async def answer(context: Any, method: str, params: Mapping[str, Any] | None) -> Any:
            try:
                return await on_request(context, method, params)
            except MCPError:
                self.on_refused(method)
                raise

        try:
            await super().run(answer, *args, **kwargs)
        finally:
            self.on_closed()

    async def _dispatch(self, item: Any, *args: Any) -> None:
        reply = answer_to_unreadable(item) if isinstance(item, ValidationError) else None
        await super()._dispatch(SessionMessage(JSONRPCError.model_validate(reply)) if reply else item, *args)


class _TolerantSession(ClientSession):
    server_name: str
    discover_seconds: float
    on_undiscovered: Callable[[Undiscovered], None]
    on_closed: Callable[[], None]
    on_refused: Callable[[str], None]
    mask: Callable[[str], str]

    def __init__(self, read_stream: Any, write_stream: Any, **kwargs: Any) -> None:
        dispatcher = _Dispatcher(read_stream, write_stream)
        dispatcher.repair = self._repair
        dispatcher.on_closed = self.on_closed
        dispatcher.on_refused = self.on_refused
        if (ask := kwargs.get("elicitation_callback")) is not None:
            kwargs["elicitation_callback"] = _bounded(ask)
        self.output_schemas: dict[str, dict[str, Any] | None] = {}
        self._page: dict[str, Any] = {"tools": []}
        super().__init__(dispatcher=dispatcher, **kwargs)

    async def send_discover(self, version: str) -> dict[str, Any]:
        """As the SDK does, but a server that does not answer leaves time for the older handshake."""
        try:
            async with asyncio.timeout(self.discover_seconds):
                return await super().send_discover(version)
        except (TimeoutError, MCPError) as error:
            if isinstance(error, MCPError) and error.code != REQUEST_TIMEOUT:
                if str(error) == CONNECTION_CLOSED:
                    self.on_undiscovered("ended")
                raise
        self.on_undiscovered("silent")
        raise MCPError(REQUEST_TIMEOUT, "no answer to server/discover")

    async def validate_tool_result(self, name: str, result: mcp_types.CallToolResult) -> None:
        """Take the check out of the SDK's hands: it would be made on the loop, and the server chooses what it takes.
        `Connection` makes it, see `_output.py`."""

    async def list_tools(self, *, params: mcp_types.PaginatedRequestParams | None = None) -> mcp_types.ListToolsResult:
        """As the SDK does, but the tools are read slice by slice: a long list does not hold the loop, and an invalid tool costs
        only itself."""
        result = await super().list_tools(params=params)
        page = self._page
        result.next_cursor = page.get("nextCursor")
        for start in range(0, len(page["tools"]), SLICE):
            result.tools += self._valid_tools(page, page["tools"][start : start + SLICE])
            await asyncio.sleep(0)
        self.output_schemas.update({tool.name: tool.output_schema for tool in result.tools})
        complete = (params is None or params.cursor is None) and result.next_cursor is None
        return self._absorb_tool_listing(result, complete=complete)

    def _repair(self, method: str, raw: dict[str, Any]) -> dict[str, Any]:
        if method == "tools/list":
            if not isinstance(raw.get("tools"), list):
                raise MCPError(INTERNAL_ERROR, "its answer to tools/list holds no list of tools")
            # `list_tools` goes on with it before anything else can run. With a cursor the SDK keeps what it knows of tools.
            self._page, cursor = raw, raw.get("nextCursor")
            return {**raw, "tools": [], "nextCursor": "" if cursor is None else cursor}
        return self._keep_known_content(raw) if method == "tools/call" else raw

    def _valid_tools(self, page: dict[str, Any], tools: list[Any]) -> list[mcp_types.Tool]:
        """The tools of a listing, without those whose definition is not valid."""
        part = {**page, "tools": tools}
        try:
            with contextlib.suppress(KeyError):
                validate_server_result("tools/list", self.protocol_version or HANDSHAKE_VERSION, part)
            return mcp_types.ListToolsResult.model_validate(part, by_name=False).tools
        except ValueError:
            if len(tools) > 1:
                return [valid for tool in tools for valid in self._valid_tools(page, [tool])]
        name = tools[0].get("name") if isinstance(tools[0], dict) else tools[0]
        warn_left_out(self.server_name, self.mask(str(name)), "its definition is not valid")
        return []

    def _keep_known_content(self, raw: dict[str, Any]) -> dict[str, Any]:
        content = raw.get("content")
        if isinstance(content, list) and len(content) > MAX_PARTS:
            left_out = f"[{len(content) - MAX_PARTS:,} more parts of this result are left out; at most {MAX_PARTS:,} are taken]"
            content = [*content[:MAX_PARTS], {"type": "text", "text": left_out}]
            raw = {**raw, "content": content}
        # The SDK validates the whole result anyway; validating it here as well would double the cost of a large one.
        if not isinstance(content, list) or all(_is_known(block) for block in content):
            return raw
        known = [block if _is_known(block) else _stand_in(block, self.mask) for block in content]
        return {**raw, "content": known, "isError": True}


def _bounded(ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """An answer to requests for a form, but for forms so large that fastmcp would hold the loop to make a type of one."""

    async def answer(context: Any, params: Any) -> Any:
        if not has_few_values(getattr(params, "requested_schema", None)):
            return mcp_types.ErrorData(code=INVALID_PARAMS, message="the form is too large to be shown")
        return await ask(context, params)

    return answer


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


def _stand_in(block: Any, mask: Callable[[str], str]) -> dict[str, Any]:
    kind = mask(str(block.get("type"))) if isinstance(block, dict) else type(block).__name__
    text = f"a part of the result cannot be read: content of type {shown(kind)}"
    return {"type": "text", "text": text, "_meta": {UNKNOWN_CONTENT_META: kind}}


class TolerantClient(Client[Any]):
    """fastmcp's client for sessions of ours. They answer all that is open when their stream ends, so that no request needs two
    tasks more to be watched. A version that is asked for is asked of the server too, which fastmcp takes for granted."""

    async def _negotiate(self, timeout: Any = None) -> None:  # noqa: ASYNC109 (as the base class has it)
        while self.mode in MODERN_PROTOCOL_VERSIONS and self.session.protocol_version is None:
            try:
                await self.session.discover()
            except MCPError as error:
                # It may still be starting; the connection's own limit ends this.
                if error.code != REQUEST_TIMEOUT:
                    raise
        await super()._negotiate(timeout)

    async def _await_with_session_monitoring(self, coro: Coroutine[Any, Any, T]) -> T:
        return await coro


class StdioTransport(ClientTransport):
    """A server process. fastmcp's own transport goes deaf for ever at a byte that is not UTF-8; here it becomes a mark.

    Args:
        command: The command line.
        env: Variables beside the SDK's short list.
        cwd: Folder to start it in.
        stderr: A file for its stderr.
        lines: What its stdout passes through.
    """

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], cwd: str | None, stderr: TextIO, lines: LineLimit
    ) -> None:
        program, *args = command
        self._parameters = StdioServerParameters(
            command=program, args=args, env=dict(env), cwd=cwd, encoding=ENCODING, encoding_error_handler="replace"
        )
        self._stderr = stderr
        self._lines = lines

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncIterator[ClientSession]:
        """Start the process; it is ended when the session is left."""
        options = transport_options or TransportOptions()
        STDOUT_LINES.set(self._lines)
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
        on_refused: Called with the method of a request of the server that was answered with an error.
        on_undiscovered: Called when the server ended instead of answering `server/discover`, or did not answer in time.
        discover_seconds: That time.
        mask: Hides secrets in a text, before that is cut.
    """

    def __init__(
        self,
        inner: ClientTransport,
        server_name: str,
        on_closed: Callable[[], None],
        on_refused: Callable[[str], None],
        on_undiscovered: Callable[[Undiscovered], None],
        discover_seconds: float,
        mask: Callable[[str], str],
    ) -> None:
        self._inner = inner
        self.legacy_only = inner.legacy_only
        callbacks: dict[str, Callable[..., Any]] = {
            "on_closed": on_closed,
            "on_refused": on_refused,
            "on_undiscovered": on_undiscovered,
            "mask": mask,
        }
        members: dict[str, Any] = {"server_name": server_name, "discover_seconds": discover_seconds}
        members |= {name: staticmethod(callback) for name, callback in callbacks.items()}
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
