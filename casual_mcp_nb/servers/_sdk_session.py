"""The SDK's client session, tolerant of servers' local protocol errors.

Messages that the SDK would refuse as a whole are repaired first, see `_repairs.py`. The session
tells its opener when its stream ends, and answers what a server asks in place of a result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
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
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import INTERNAL_ERROR, INVALID_REQUEST, ErrorData, InputRequiredResult
from mcp_types.methods import INPUT_REQUIRED_METHODS, validate_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import to_json

from casual_mcp_nb.base.mcp import APP_MIME_TYPE, APPS_EXTENSION
from casual_mcp_nb.servers._repairs import Repairs
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


class _RepairingDispatcher(JSONRPCDispatcher[Any]):
    session: TolerantSession

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        if method == "server/discover" and opts is not None:
            # The SDK's own limit, 10 s, is less than some servers need to wake up.
            opts = {name: value for name, value in opts.items() if name != "timeout"}
        repairs = self.session.repairs
        asker = ASKER.get()
        if (
            asker is not None
            and method in INPUT_REQUIRED_METHODS
            and self.session.protocol_version in MODERN_PROTOCOL_VERSIONS
        ):
            # What the server may ask and log depends on who calls it.
            params = {**(params or {}), "_meta": {**(params or {}).get("_meta", {}), **asker.meta}}
        number = repairs.numbers.get((method, (params or {}).get("cursor") or ""))
        if number is not None:
            params = {**(params or {}), "cursor": number}
        answer = await super().send_raw_request(method, params, opts, **kwargs)
        return repairs.repair(method, answer, str((params or {}).get("name") or ""))

    async def run(self, on_request: Any, on_notify: Any, *args: Any, **kwargs: Any) -> None:
        session = self.session

        async def answer(context: Any, method: str, params: Mapping[str, Any] | None) -> Any:
            try:
                kinds = request_kinds(method, session.protocol_version)
                return await on_request(
                    context, method, session.repairs.usable_part(method, kinds, params)
                )
            except MCPError:
                session.opener.connection.request_refused(method)
                raise

        async def note(context: Any, method: str, params: Mapping[str, Any] | None) -> None:
            kinds = notification_kinds(method, session.protocol_version)
            await on_notify(context, method, session.repairs.usable_part(method, kinds, params))

        try:
            await super().run(answer, note, *args, **kwargs)
        finally:
            session.opener.stream_ended()


class TolerantSession(ClientSession):
    """The SDK's session for a connection.

    Args:
        opener: The `McpSession` that opened it.
        callbacks: The SDK's further arguments.

    Attributes:
        output_schemas: The output schemas of the listed tools, as the server wrote them.
        has_alternative: Whether the older handshake can take the place of `server/discover`.
    """

    def __init__(
        self, read_stream: Any, write_stream: Any, *, opener: SessionOpener, **callbacks: Any
    ) -> None:
        wire = opener.connection.wire
        dispatcher = _RepairingDispatcher(Received(read_stream, wire), Sent(write_stream, wire))
        dispatcher.session = self
        self.opener = opener
        self.repairs = Repairs(
            self, opener.name, opener.context.redact, opener.connection.field_ignored
        )
        self.output_schemas: dict[str, dict[str, Any] | None] = {}
        self.has_alternative = False
        self._routed: set[str] = set()
        self._told_of_headers = False
        super().__init__(dispatcher=dispatcher, **callbacks)

    def _build_capabilities(self, version: str) -> mcp_types.ClientCapabilities:
        """Declare sampling (texts only) and roots (that never change) only to versions that have
        not deprecated them.

        Handlers are always set, for other programs' clients. A handshake declares what the config
        permits. Apps are declared to all versions unless they are turned off, skills and tasks to
        those without a handshake.
        """
        declared = super()._build_capabilities(version)
        config = self.opener.config
        roots: mcp_types.RootsCapability | None = None
        sampling: mcp_types.SamplingCapability | None = None
        extensions: dict[str, dict[str, Any]] = {}
        if version in MODERN_PROTOCOL_VERSIONS:
            extensions.update(declared.extensions or {})
        elif config is not None:
            if declared.roots and config.roots:
                roots = mcp_types.RootsCapability()
            if declared.sampling and config.sampling:
                sampling = mcp_types.SamplingCapability()
        if self.opener.connection.shows_apps:
            extensions[APPS_EXTENSION] = {"mimeTypes": [APP_MIME_TYPE]}
        return declared.model_copy(
            update={"roots": roots, "sampling": sampling, "extensions": extensions or None}
        )

    async def dispatch_input_request(self, ctx: Any, request: Any) -> Any:
        """Refuse undeclared requests.

        Only another program's client can declare them, if its call caused the request.
        """
        undeclared = (
            isinstance(request, mcp_types.CreateMessageRequest | mcp_types.ListRootsRequest)
            and ASKER.get() is None
        )
        if undeclared and self.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return mcp_types.ErrorData(
                code=INVALID_REQUEST, message=f"{request.method} is not supported in this version"
            )
        return await super().dispatch_input_request(ctx, request)

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
                answers = {
                    key: group.create_task(self._response(key, request))
                    for key, request in requests.items()
                }
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return {key: answer.result() for key, answer in answers.items()}

    async def _response(self, key: str, request: Any) -> Any:
        meta = request.params.meta if request.params else None
        context = ClientRequestContext(session=self, request_id=key, meta=meta)
        answer = await self.dispatch_input_request(context, request)
        if isinstance(answer, ErrorData):
            raise MCPError.from_error_data(answer)
        return answer

    async def send_discover(self, version: str) -> dict[str, Any]:
        """Send `server/discover` as the SDK does."""
        answer = await super().send_discover(version)
        if self.has_alternative:
            # Every later answer is held to this, so the versions of a server that does not keep it
            # are of no use.
            validate_server_result("server/discover", version, answer)
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
        page = await self.send_request(
            mcp_types.ListToolsRequest(params=params), mcp_types.ListToolsResult
        )
        listed = await self.repairs.valid_tools(page)
        self.output_schemas.update({tool.name: tool.output_schema for tool in page.tools})
        self._note_headers(page, listed, complete=first and page.next_cursor is None)
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

    def _note_headers(
        self, page: mcp_types.ListToolsResult, listed: list[Any], *, complete: bool
    ) -> None:
        """Note the `x-mcp-header`s of a page's tools, for servers that route by headers, and drop
        tools whose headers are wrong.
        """
        absorb = getattr(self, "_absorb_tool_listing", None)
        # It walks each schema twice, and few have such a header. A tool that had one may have it no
        # more.
        mentioned = self.protocol_version in MODERN_PROTOCOL_VERSIONS and _mentions_headers(listed)
        if absorb is None:
            if mentioned and not self._told_of_headers:
                self._told_of_headers = True
                self.opener.connection.field_ignored(
                    f"Its x-mcp-header annotations have no effect with mcp {version('mcp')}, so a"
                    " gateway that routes by these headers may refuse calls. Install another"
                    " version of mcp."
                )
            return
        routed = [
            tool
            for tool in page.tools
            if tool.name in self._routed or (mentioned and _mentions_headers(tool.input_schema))
        ]
        if complete:
            self._routed.clear()
        self._routed.update(tool.name for tool in routed)
        absorbed = absorb(page.model_copy(update={"tools": routed}), complete=complete).tools
        kept = set(map(id, absorbed))
        dropped = {id(tool): tool.name for tool in routed if id(tool) not in kept}
        for name in dropped.values():
            self.repairs.leave_out(name, "its x-mcp-header annotations are not valid")
        page.tools = [tool for tool in page.tools if id(tool) not in dropped]


def _mentions_headers(tools: Any) -> bool:
    """Check whether listed tools, or the schema of one, can have an `x-mcp-header`."""
    try:
        return b'"x-mcp-header"' in to_json(tools)
    except ValueError:
        return True
