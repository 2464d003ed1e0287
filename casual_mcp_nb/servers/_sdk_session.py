"""The SDK's client session, tolerant of servers' local protocol errors.

Messages that the SDK would refuse as a whole are repaired first, see `_repairs.py`. The session
tells its opener when its stream ends, and answers what a server asks in place of a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import mcp_types
from fastmcp.skills.models import (
    GetSkillParams,
    GetSkillRequest,
    GetSkillResult,
    ListSkillsParams,
    ListSkillsRequest,
    ListSkillsResult,
    MCPSkill,
)
from mcp import ClientSession, MCPError
from mcp.client.session import ClientRequestContext
from mcp.shared.dispatcher import CallOptions, DispatchContext, Dispatcher, OnNotify, OnRequest
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    InputRequiredResult,
)
from mcp_types.methods import INPUT_REQUIRED_METHODS, validate_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from casual_mcp_nb.base.mcp import APPS_EXTENSION
from casual_mcp_nb.servers._repairs import Repairs, ToolsPage
from casual_mcp_nb.servers._routing import Routing
from casual_mcp_nb.servers._streams import Received, Sent
from casual_mcp_nb.servers.askers import ASKER
from casual_mcp_nb.servers.session_protocols import SessionOpener
from casual_mcp_nb.servers.usable import notification_kinds, request_kinds

MAX_ROUNDS = 10
"""How often a request is repeated for a server that asks something, or to wait, in place of a
result.
"""
STATE_SECONDS = 0.05
MAX_STATE_SECONDS = 0.25
"""The first and the longest wait before a request is repeated for a server that asks nothing."""


class _RepairingDispatcher(Dispatcher[Any]):
    """The session's way to its server: changes what both send where that is necessary, and hands it
    on to the SDK's dispatcher.
    """

    def __init__(self, read_stream: Any, write_stream: Any, session: TolerantSession) -> None:
        opener = session.opener
        wire = opener.connection.wire
        self._session = session
        self._sdk = JSONRPCDispatcher[Any](
            Received(read_stream, wire),
            Sent(write_stream, wire),
            on_stream_exception=opener.unreadable,
        )

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request. Return the answer, repaired."""
        session = self._session
        sent, options = dict(params or {}), CallOptions(**(opts or {}))
        if method == "initialize":
            sent["capabilities"] = session.declared(sent["capabilities"], modern=False)
        elif CLIENT_CAPABILITIES_META_KEY in sent.get("_meta", {}):
            sent["_meta"] = self._modern_meta(method, sent["_meta"])
        if method == "server/discover":
            # The SDK's own limit, 10 s, is less than some servers need to wake up.
            options.pop("timeout", None)
        if method == "tools/call" and (headers := session.routing.headers(sent)):
            options["headers"] = {**options.get("headers", {}), **headers}
        number = session.repairs.numbers.get((method, sent.get("cursor") or ""))
        if number is not None:
            sent["cursor"] = number
        answer = await self._sdk.send_raw_request(method, sent, options)
        answer = session.repairs.repair(method, answer, str(sent.get("name") or ""))
        if method == "server/discover" and session.has_alternative:
            # Every later answer is held to this version, so the versions of a server that does not
            # keep it are of no use.
            validate_server_result(method, sent["_meta"][PROTOCOL_VERSION_META_KEY], answer)
        return answer

    def _modern_meta(self, method: str, meta: Mapping[str, Any]) -> dict[str, Any]:
        """Build the `_meta` of a request on a connection without a handshake, which declares the
        client's capabilities each time.
        """
        asker = ASKER.get()
        if asker is not None and method in INPUT_REQUIRED_METHODS:
            # What the server may ask and log depends on who calls it.
            return {**meta, **asker.meta}
        declared = self._session.declared(meta[CLIENT_CAPABILITIES_META_KEY], modern=True)
        return {**meta, CLIENT_CAPABILITIES_META_KEY: declared}

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> None:
        """Send a notification as it is."""
        await self._sdk.notify(method, params, opts)

    async def run(
        self, on_request: OnRequest, on_notify: OnNotify, *args: Any, **kwargs: Any
    ) -> None:
        """Receive messages until the stream ends. The server's requests and notifications are
        repaired.
        """
        session = self._session

        async def answer(
            context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
        ) -> dict[str, Any]:
            kinds = request_kinds(method, session.protocol_version)
            usable = session.repairs.usable_part(method, kinds, params)
            try:
                return await on_request(context, method, usable)
            except MCPError:
                session.opener.connection.request_refused(method)
                raise

        async def note(
            context: DispatchContext[Any], method: str, params: Mapping[str, Any] | None
        ) -> None:
            kinds = notification_kinds(method, session.protocol_version)
            await on_notify(context, method, session.repairs.usable_part(method, kinds, params))

        try:
            await self._sdk.run(answer, note, *args, **kwargs)
        finally:
            session.opener.stream_ended()


class TolerantSession(ClientSession):
    """The SDK's session for a connection.

    Args:
        opener: The `McpSession` that opened it.
        callbacks: The SDK's further arguments.

    Attributes:
        output_schemas: The output schemas of the listed tools, as the server wrote them.
        routing: The arguments of the listed tools that are repeated in HTTP headers.
        has_alternative: Whether the older handshake can take the place of `server/discover`.
    """

    def __init__(
        self, read_stream: Any, write_stream: Any, *, opener: SessionOpener, **callbacks: Any
    ) -> None:
        self.opener = opener
        self.repairs = Repairs(
            self, opener.name, opener.context.redact, opener.connection.field_ignored
        )
        self.output_schemas: dict[str, dict[str, Any] | None] = {}
        self.routing = Routing()
        self.has_alternative = False
        dispatcher = _RepairingDispatcher(read_stream, write_stream, self)
        super().__init__(dispatcher=dispatcher, **callbacks)

    def declared(self, capabilities: Mapping[str, Any], *, modern: bool) -> dict[str, Any]:
        """Choose which of the session's capabilities are declared to the server.

        The session has all, for other programs' clients, whose own are declared with their calls.
        Sampling and roots are declared in a handshake, if the config permits them: later versions
        deprecate them. Of the extensions, a handshake has only apps.

        Args:
            capabilities: What the SDK would declare.
            modern: Whether the connection is one without a handshake.
        """
        declared = {**capabilities}
        sampling, roots = declared.pop("sampling", None), declared.pop("roots", None)
        if modern:
            return declared
        config = self.opener.config
        if config is not None and config.sampling and sampling is not None:
            declared["sampling"] = {}
        if config is not None and config.roots and roots is not None:
            # They never change, so `listChanged` is left out.
            declared["roots"] = {}
        extensions = declared.pop("extensions", {})
        if APPS_EXTENSION in extensions:
            declared["extensions"] = {APPS_EXTENSION: extensions[APPS_EXTENSION]}
        return declared

    async def answered(
        self, result: mcp_types.Result, send: Callable[..., Awaitable[Any]], **arguments: Any
    ) -> mcp_types.Result:
        """Return the result of a request, after answering what the server asks instead of giving it.

        The request is sent again with the answers, by one of this session's methods.

        See https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/mrtr.
        """
        wait = STATE_SECONDS
        for _ in range(MAX_ROUNDS):
            if not isinstance(result, InputRequiredResult):
                return result
            responses: dict[str, Any] | None = None
            if result.input_requests:
                responses = await self._responses(result.input_requests)
                wait = STATE_SECONDS
            else:
                await asyncio.sleep(wait)
                wait = min(wait * 2, MAX_STATE_SECONDS)
            result = await send(
                **arguments,
                allow_input_required=True,
                input_responses=responses,
                request_state=result.request_state,
            )
        if isinstance(result, InputRequiredResult):
            raise MCPError(
                INTERNAL_ERROR, f"it gave no result after {MAX_ROUNDS} repeated requests"
            )
        return result

    async def _responses(self, requests: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a server's questions, all at the same time. If one is refused, the others are
        withdrawn.
        """
        try:
            async with asyncio.TaskGroup() as group:
                answers = {}
                for key, request in requests.items():
                    answers[key] = group.create_task(self._response(key, request))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return {key: answer.result() for key, answer in answers.items()}

    async def _response(self, key: str, request: Any) -> Any:
        undeclared = isinstance(
            request, mcp_types.CreateMessageRequest | mcp_types.ListRootsRequest
        )
        if undeclared and ASKER.get() is None:
            # Only another program's client declares them, for its own calls.
            raise MCPError(INVALID_REQUEST, f"{request.method} is not supported in this version")
        meta = request.params.meta if request.params else None
        context = ClientRequestContext(session=self, request_id=key, meta=meta)
        answer = await self.dispatch_input_request(context, request)
        if isinstance(answer, ErrorData):
            raise MCPError.from_error_data(answer)
        return answer

    async def validate_tool_result(self, name: str, result: mcp_types.CallToolResult) -> None:
        """Do nothing in place of the SDK's check.

        It would block the event loop for as long as the server's schema takes. `OutputCheck` does
        it in a worker process.
        """

    async def list_tools(
        self, *, params: mcp_types.PaginatedRequestParams | None = None
    ) -> mcp_types.ListToolsResult:
        """List one page of tools as the SDK does, but validate them slice by slice.

        A long list does not hold the event loop, and an invalid tool does not invalidate the
        others.
        """
        first = params is None or params.cursor is None
        if first:
            self.repairs.begin_listing()
        page = await self.send_request(mcp_types.ListToolsRequest(params=params), ToolsPage)
        await self.repairs.read_tools(page)
        self.output_schemas.update({tool.name: tool.output_schema for tool in page.tools})
        if self.protocol_version in MODERN_PROTOCOL_VERSIONS:
            for name in self.routing.read(page, first=first):
                self.repairs.leave_out(name, "its x-mcp-header annotations are not valid")
        return page

    async def list_skills(
        self, *, params: mcp_types.PaginatedRequestParams | None = None
    ) -> ListSkillsResult:
        """List one page of skills."""
        cursor = params.cursor if params is not None else None
        return await self.send_request(
            ListSkillsRequest(params=ListSkillsParams(cursor=cursor)), ListSkillsResult
        )

    async def get_skill(self, uri: str) -> MCPSkill:
        """Fetch one entry of the list of skills."""
        request = GetSkillRequest(params=GetSkillParams(uri=uri))
        return (await self.send_request(request, GetSkillResult)).skill
