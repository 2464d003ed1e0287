"""Variants of the SDK's client session and transports that tolerate servers' local protocol errors.

Messages that the SDK would refuse as a whole are repaired first: a listing with one invalid tool
loses only that tool, a result with one unknown part keeps the others. The session also reports when
its stream ends, which fastmcp's client does not. At the end are the messages of the extension for
tasks, which the SDK does not have.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal, Self

import mcp_types
from fastmcp.client.transports.base import ClientTransport, TransportOptions
from fastmcp.skills.models import MCPSkill
from mcp import ClientSession, MCPError
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    REQUEST_TIMEOUT,
    CallToolResult,
    JSONRPCError,
    JSONRPCNotification,
    Request,
    RequestParams,
    Result,
)
from mcp_types.methods import INPUT_REQUIRED_METHODS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json, to_jsonable_python

from casual_mcp_nb.base.mcp import APP_MIME_TYPE, APPS_EXTENSION, TASKS_EXTENSION
from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers._errors import CONNECTION_CLOSED, answer_to_unreadable, clean
from casual_mcp_nb.servers.convert import (
    MAX_LEFT_OUT,
    UNKNOWN_CONTENT_META,
    has_few_values,
    warn_left_out,
)
from casual_mcp_nb.servers.handlers import ASKER, CallDeadlines
from casual_mcp_nb.servers.logs import logger
from casual_mcp_nb.servers.usable import (
    Budget,
    Unusable,
    as_text_block,
    block_kinds,
    check_whole,
    fits_all,
    fitted,
    item_kinds,
    notification_kinds,
    request_kinds,
    result_kinds,
    usable,
)
from casual_mcp_nb.servers.wire import SENT, WireLog

DiscoverFailure = Literal["silent", "ended"]
"""How a server failed to answer `server/discover`: it did not answer in time, or its process ended.
"""

MAX_PARTS = 1_000
MAX_LISTED = 2_000
MAX_PROGRESS = 2**63
FEW_PARTS = 50
"""Content up to this many parts is validated as a whole first.

Of more, the SDK's parser could list too much that is wrong.
"""
_MAX_REASON = 200
SLICE = 500
"""How many listed tools are validated at a time, to block the event loop for at most about 40 ms.
"""

_LISTINGS: Mapping[str, tuple[str, type[BaseModel]]] = {
    "resources/list": ("resources", mcp_types.Resource),
    "resources/templates/list": ("resourceTemplates", mcp_types.ResourceTemplate),
    "prompts/list": ("prompts", mcp_types.Prompt),
    "skills/list": ("skills", MCPSkill),
}
"""The listings besides tools, with their item types."""


class _Recorded:
    def __init__(self, stream: Any, wire: WireLog) -> None:
        self._stream = stream
        self._wire = wire

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> Any:
        return await self._stream.__aexit__(*error)


class _Received(_Recorded):
    """A message stream that is recorded as it arrives. An unreadable answer becomes an error."""

    @property
    def last_context(self) -> Any:
        """The sender's context, which in-process streams have."""
        return getattr(self._stream, "last_context", None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return self._noted(await self._stream.__anext__())

    async def receive(self) -> Any:
        return self._noted(await self._stream.receive())

    def _noted(self, item: Any) -> Any:
        reply = answer_to_unreadable(item) if isinstance(item, ValidationError) else None
        if reply:
            item = SessionMessage(JSONRPCError.model_validate(reply))
        if isinstance(item, SessionMessage):
            _bound_progress(item.message)
            self._wire.add("received", item.message, self.last_context)
        return item


def _bound_progress(message: Any) -> None:
    """Bound the numbers of a progress notification.

    The SDK makes floats of them, and JSON has integers that none can hold.
    """
    if not isinstance(message, JSONRPCNotification) or message.method != "notifications/progress":
        return
    for name, value in (message.params or {}).items():
        if isinstance(value, int) and abs(value) > MAX_PROGRESS and message.params is not None:
            message.params[name] = MAX_PROGRESS


class _Sent(_Recorded):
    async def send(self, item: Any) -> None:
        token = SENT.set(self._wire.add("sent", item.message))
        try:
            await self._stream.send(item)
        finally:
            SENT.reset(token)


class _Dispatcher(JSONRPCDispatcher[Any]):
    session: _TolerantSession

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        if method == "server/discover" and opts is not None:
            # The SDK's own limit, 10 s, is less than some servers need to wake up.
            opts = {name: value for name, value in opts.items() if name != "timeout"}
        asker = ASKER.get()
        if (
            asker is not None
            and method in INPUT_REQUIRED_METHODS
            and self.session.protocol_version in MODERN_PROTOCOL_VERSIONS
        ):
            # What the server may ask and log depends on who calls it.
            params = {**(params or {}), "_meta": {**(params or {}).get("_meta", {}), **asker.meta}}
        if params is not None and params.get("cursor") in self.session.numbers:
            params = {**params, "cursor": self.session.numbers[params["cursor"]]}
        answer = await super().send_raw_request(method, params, opts, **kwargs)
        return self.session.repair(method, answer, str((params or {}).get("name") or ""))

    async def run(self, on_request: Any, on_notify: Any, *args: Any, **kwargs: Any) -> None:
        session = self.session

        async def answer(context: Any, method: str, params: Mapping[str, Any] | None) -> Any:
            try:
                kinds = request_kinds(method, session.protocol_version)
                return await on_request(context, method, session.usable_part(method, kinds, params))
            except MCPError:
                session.on_refused(method)
                raise

        async def note(context: Any, method: str, params: Mapping[str, Any] | None) -> None:
            kinds = notification_kinds(method, session.protocol_version)
            await on_notify(context, method, session.usable_part(method, kinds, params))

        try:
            await super().run(answer, note, *args, **kwargs)
        finally:
            self.session.on_closed()


class _TolerantSession(ClientSession):
    """A session with fields that its transport sets.

    Attributes:
        discover_seconds: How long to wait for an answer to `server/discover` before the older
            handshake is tried as well, or None to wait as long as the connection does.
        on_discover_failure: Called when the server ended instead of answering that, or did not
            answer in time.
        on_closed: Called once when the message stream has ended, whoever ended it.
        on_refused: Called with the method when a server's request was answered with an error.
        on_ignored: Called once for each field that is ignored because it is not valid, with what is
            told to the person.
    """

    server_name: str
    allows_sampling: bool
    has_roots: bool
    shows_apps: bool
    discover_seconds: float | None
    on_discover_failure: Callable[[DiscoverFailure], None]
    on_closed: Callable[[], None]
    on_refused: Callable[[str], None]
    on_ignored: Callable[[str], None]
    elicit: Callable[..., Awaitable[Any]] | None
    wire: WireLog
    deadlines: CallDeadlines
    redact: Callable[[str], str]

    def __init__(self, read_stream: Any, write_stream: Any, **kwargs: Any) -> None:
        dispatcher = _Dispatcher(_Received(read_stream, self.wire), _Sent(write_stream, self.wire))
        dispatcher.session = self
        if kwargs.get("elicitation_callback") is not None and self.elicit is not None:
            kwargs["elicitation_callback"] = _elicitation_callback(self.elicit)
        self.output_schemas: dict[str, dict[str, Any] | None] = {}
        self.left_out: dict[str, str] = {}
        self.ignored: dict[str, dict[str, str]] = {}
        self._told: set[tuple[str, str]] = set()
        self.first_answer: Any = None
        self.numbers: dict[str, float] = {}
        self._handshake: asyncio.Task[mcp_types.InitializeResult] | None = None
        self._page: dict[str, Any] = {"tools": []}
        self._routed: set[str] = set()
        super().__init__(dispatcher=dispatcher, **kwargs)

    def _build_capabilities(self, version: str) -> mcp_types.ClientCapabilities:
        """Declare sampling (texts only) and roots (that never change) only to versions that have
        not deprecated them.

        Handlers are always set, for other programs' clients. A handshake declares what the config
        permits. Apps are declared to all versions unless they are turned off, skills and tasks to
        those without a handshake.
        """
        declared = super()._build_capabilities(version)
        old = version not in MODERN_PROTOCOL_VERSIONS
        roots = mcp_types.RootsCapability() if old and declared.roots and self.has_roots else None
        sampling = (
            mcp_types.SamplingCapability()
            if old and declared.sampling and self.allows_sampling
            else None
        )
        others = {} if old else declared.extensions or {}
        extensions = {
            **others,
            **({APPS_EXTENSION: {"mimeTypes": [APP_MIME_TYPE]}} if self.shows_apps else {}),
        }
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

    async def send_discover(self, version: str) -> dict[str, Any]:
        """Send `server/discover` as the SDK does.

        If there is no answer for a while, try the older handshake as well.

        The server may be one that ignores what it does not know, or one that is still waking up and
        answers later. Whichever is answered first is used. A handshake that is refused says
        nothing: a server without it refuses it immediately.
        """
        asked = asyncio.create_task(super().send_discover(version))
        try:
            if not await self._answered(asked):
                self._handshake = asyncio.create_task(super().initialize())
                await asyncio.wait({asked, self._handshake}, return_when=asyncio.FIRST_COMPLETED)
                if not asked.done() and self._handshake.exception() is None:
                    self.on_discover_failure("silent")
                    raise MCPError(REQUEST_TIMEOUT, "no answer to server/discover")
            answer = await asked
        except MCPError as error:
            if str(error) == CONNECTION_CLOSED:
                self.on_discover_failure("ended")
            raise
        except asyncio.CancelledError:
            self._give_up_handshake()
            raise
        finally:
            asked.cancel()
        self._give_up_handshake()
        return answer

    async def _answered(self, asked: asyncio.Task[Any]) -> bool:
        """Wait for an answer to `server/discover`. Return whether there is one in time."""
        if self.discover_seconds is None:
            await asyncio.wait({asked})
            return True
        with contextlib.suppress(TimeoutError):
            async with self.deadlines.within(
                asyncio.get_running_loop().time() + self.discover_seconds
            ):
                await asyncio.wait({asked})
        return asked.done()

    def _give_up_handshake(self) -> None:
        if self._handshake is not None:
            self._handshake.cancel()
            # Nobody reads its error, which asyncio would log.
            self._handshake.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def initialize(self) -> mcp_types.InitializeResult:
        """Do the older handshake, unless it was begun while `server/discover` had no answer."""
        handshake, self._handshake = self._handshake, None
        if handshake is None:
            return await super().initialize()
        try:
            return await handshake
        finally:
            handshake.cancel()

    send_call = ClientSession.call_tool
    """The SDK's own method. fastmcp would add a span to the SDK's, which also passes the trace on.
    """

    async def call_tool(self, *args: Any, **kwargs: Any) -> Any:
        """Send the request for fastmcp, unless its answer is there already."""
        answer, self.first_answer = self.first_answer, None
        return await super().call_tool(*args, **kwargs) if answer is None else answer

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
        if params is None or params.cursor is None:
            self.left_out = {}
            self.ignored.pop("tools/list", None)
        result = await super().list_tools(params=params)
        page, self._page = self._page, {"tools": []}
        result.next_cursor = page.get("nextCursor")
        for start in range(0, len(page["tools"]), SLICE):
            result.tools += self._valid_tools(page, page["tools"][start : start + SLICE])
            await asyncio.sleep(0)
        self.output_schemas.update({tool.name: tool.output_schema for tool in result.tools})
        complete = (params is None or params.cursor is None) and result.next_cursor is None
        # It drops tools with wrong `x-mcp-header`s and remembers the others', for servers that
        # route by headers.
        absorb = getattr(self, "_absorb_tool_listing", None)
        if absorb is None:
            return result
        # It walks each schema twice, and few have such a header. A tool that had one may have it no
        # more.
        mentioned = self.protocol_version in MODERN_PROTOCOL_VERSIONS and _mentions_headers(
            page["tools"]
        )
        routed = [
            tool
            for tool in result.tools
            if tool.name in self._routed or (mentioned and _mentions_headers(tool.input_schema))
        ]
        self._routed = {tool.name for tool in routed}.union(() if complete else self._routed)
        absorbed = {
            id(tool)
            for tool in absorb(result.model_copy(update={"tools": routed}), complete=complete).tools
        }
        dropped = {id(tool): tool.name for tool in routed if id(tool) not in absorbed}
        for name in dropped.values():
            self._leave_out(name, "its x-mcp-header annotations are not valid")
        result.tools = [tool for tool in result.tools if id(tool) not in dropped]
        return result

    def repair(self, method: str, raw: dict[str, Any], name: str = "") -> dict[str, Any]:
        """Replace or leave out parts of an answer that the SDK would refuse.

        `name` is the requested tool or prompt, by which the person finds what is noted.
        """
        place = f"{name}()" if name else ""
        if "nextCursor" in raw:
            raw = self._with_text_cursor(raw)
        if method == "tools/list":
            if not isinstance(raw.get("tools"), list):
                raise MCPError(INTERNAL_ERROR, "its answer to tools/list contains no list of tools")
            page = self._usable_result(method, {**raw, "tools": []}, place)
            # `list_tools` continues with it before anything else can run. With a cursor the SDK
            # keeps the tools that it knows.
            self._page, cursor = {**page, "tools": raw["tools"]}, page.get("nextCursor")
            return {**page, "nextCursor": "" if cursor is None else cursor}
        if method in _LISTINGS:
            raw = self._only_valid(method, raw)
        elif method == "prompts/get" and isinstance(raw.get("messages"), list):
            raw = {
                **raw,
                "messages": [
                    self._known_message(each, place) for each in raw["messages"][:MAX_PARTS]
                ],
            }
        elif method == "tools/call":
            return self._usable_call(raw, place)
        return self._usable_result(method, raw, place)

    def usable_part(self, method: str, kinds: list[Any], value: Any, place: str = "") -> Any:
        """Leave out of a server's request or notification what is optional and not valid.

        Otherwise it stays as it is.
        """
        # Where much of a large value does not fit, the SDK's parser would list all of that.
        if has_few_values(value) and fits_all(kinds, value):
            return value
        try:
            value, ignored = usable(kinds, value, place)
        except Unusable:
            return value
        self._note_ignored(method, ignored)
        return value

    def _usable_result(self, method: str, raw: dict[str, Any], place: str) -> dict[str, Any]:
        if raw.get("resultType") not in (None, "complete", "input_required"):
            # It belongs to an extension.
            return raw
        kinds = result_kinds(method, self.protocol_version, raw)
        result: dict[str, Any] = self.usable_part(method, kinds, raw, place)
        return result

    def _with_text_cursor(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Write a cursor that is a number as text. The server gets the number back."""
        cursor = raw.get("nextCursor")
        if not isinstance(cursor, int | float) or isinstance(cursor, bool):
            return raw
        self.numbers = {str(cursor): cursor}
        return {**raw, "nextCursor": str(cursor)}

    def _only_valid(self, method: str, raw: dict[str, Any]) -> dict[str, Any]:
        """Drop resources or prompts from a page that cannot be used: each would invalidate all
        others.
        """
        key, own_kind = _LISTINGS[method]
        items = raw.get(key)
        if not isinstance(items, list):
            raise MCPError(INTERNAL_ERROR, f"its answer to {method} contains no list")
        if len(items) > MAX_LISTED:
            logger.warning(
                "Server %s: the first %d of the %s in one page are kept.",
                shown(self.server_name),
                MAX_LISTED,
                key,
            )
        kinds = (
            [own_kind] if own_kind is MCPSkill else item_kinds(method, self.protocol_version, key)
        )
        valid = []
        ignored: dict[str, str] = {}
        budget = Budget()
        for item in items[:MAX_LISTED]:
            name = str((item.get("name") or item.get("uri")) if isinstance(item, dict) else item)
            try:
                item, ignored_here = usable(kinds, item, name, budget)
                check_whole(kinds, item, name)
            except Unusable as problem:
                reason = self._reason(problem, name)
                warn_left_out(self.server_name, self.redact(name), reason, own_kind.__name__)
            else:
                ignored.update(ignored_here)
                valid.append(item)
        self._note_ignored(method, ignored)
        return {**raw, key: valid}

    def _valid_tools(self, page: dict[str, Any], tools: list[Any]) -> list[mcp_types.Tool]:
        """Drop listed tools whose definition cannot be used, and fields that are not valid from the
        others.
        """
        part = {**page, "tools": tools}
        kinds = result_kinds("tools/list", self.protocol_version, part)
        if not any(map(_is_costly, tools)) and (read := fitted(kinds, part)) is not None:
            # The SDK's own type is the last.
            result: mcp_types.ListToolsResult = read[-1]
            return result.tools
        budget = Budget()
        valid: list[mcp_types.Tool] = []
        kinds = item_kinds("tools/list", self.protocol_version, "tools")
        for tool in tools:
            name = str(tool.get("name") if isinstance(tool, dict) else tool)
            try:
                definition, ignored = usable(kinds, tool, name, budget)
            except Unusable as problem:
                reason = f"its definition is not valid: {self._reason(problem, name)}"
                self._leave_out(name, reason)
                warn_left_out(self.server_name, self.redact(name), reason)
            else:
                self._note_ignored("tools/list", ignored)
                valid.append(mcp_types.Tool.model_validate(definition, by_name=False))
        return valid

    def _reason(self, problem: Unusable, name: str) -> str:
        where = problem.place.removeprefix(name).lstrip(".")
        return self.redact(f"{where}: {problem.reason}" if where else problem.reason)[:_MAX_REASON]

    def _leave_out(self, name: str, reason: str) -> None:
        if len(self.left_out) < MAX_LEFT_OUT:
            self.left_out.setdefault(name[:_MAX_REASON], reason)

    def _note_ignored(self, method: str, ignored: Mapping[str, str]) -> None:
        """Note what was ignored of a message, and tell it the first time."""
        noted = self.ignored.setdefault(method, {})
        for place, problem in ignored.items():
            where, reason = clean(self.redact(place)), clean(self.redact(problem))[:_MAX_REASON]
            if where in noted or len(noted) >= MAX_LEFT_OUT:
                continue
            noted[where] = reason
            if (method, where) not in self._told and len(self._told) < MAX_LEFT_OUT:
                self._told.add((method, where))
                self.on_ignored(
                    f"{shown(where)} of its {method} is not valid, so it is left out or replaced:"
                    f" {reason}"
                )

    def _usable_call(self, raw: dict[str, Any], place: str) -> dict[str, Any]:
        """Make a tool's result usable: parts that cannot be read are replaced, and its other odd
        fields are left out.
        """
        content = raw.get("content")
        if isinstance(content, list) and len(content) > MAX_PARTS:
            left_out = (
                f"[{len(content) - MAX_PARTS:,} more parts of this result are left out, and at most"
                f" {MAX_PARTS:,} are kept]"
            )
            content = [*content[:MAX_PARTS], {"type": "text", "text": left_out}]
            raw = {**raw, "content": content}
        kinds = result_kinds("tools/call", self.protocol_version, raw)
        has_few_parts = not isinstance(content, list) or len(content) <= FEW_PARTS
        if has_few_parts and fits_all(kinds, raw):
            return raw
        if isinstance(content, list):
            blocks = [self._known_block("tools/call", block, place) for block in content]
            raw = {**raw, "content": blocks}
            if any(_is_replacement(block) for block in blocks):
                raw["isError"] = True
        result = self._usable_result("tools/call", raw, place)
        structured = raw.get("structuredContent")
        if (
            structured is not None
            and "structuredContent" not in result
            and not result.get("content")
        ):
            # It is all that the tool answered.
            result = {**result, "content": [as_text_block(structured)]}
        return result

    def _known_message(self, message: Any, place: str) -> Any:
        if not isinstance(message, dict):
            return message
        return {
            **message,
            "content": self._known_block("prompts/get", message.get("content"), place),
        }

    def _known_block(self, method: str, block: Any, place: str) -> Any:
        """Leave out of a part what is not valid, or replace the part if nothing of it can be
        used.
        """
        if isinstance(block, str):
            return {"type": "text", "text": block}
        try:
            known, ignored = usable(block_kinds(self.protocol_version), block, f"{place}.content[]")
        except Unusable:
            return _replacement(block, self.redact)
        self._note_ignored(method, ignored)
        return known


def _elicitation_callback(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Answer a server's questions by a handler as fastmcp defines it, in place of fastmcp's own
    callback.

    That one would build a type from the form and validate the answer against the server's schema on
    the event loop, which both can hold for as long as the server likes. The server checks what it
    gets.
    """

    async def answer(context: Any, params: Any) -> Any:
        if not has_few_values(getattr(params, "requested_schema", None)):
            return mcp_types.ErrorData(
                code=INVALID_PARAMS, message="the form is too large to be shown"
            )
        try:
            result = await handler(params.message, None, params, context)
            if not isinstance(result, mcp_types.ElicitResult):
                return mcp_types.ElicitResult(action="accept", content=to_jsonable_python(result))
            return mcp_types.ElicitResult(
                action=result.action, content=to_jsonable_python(result.content)
            )
        except Exception as error:
            return mcp_types.ErrorData(code=INTERNAL_ERROR, message=str(error))

    return answer


def _is_costly(tool: Any) -> bool:
    """Check whether so much of a tool's schemas can be wrong that the SDK's parser would take long
    to list it.
    """
    schemas = (tool.get("inputSchema"), tool.get("outputSchema")) if isinstance(tool, dict) else ()
    properties = [schema.get("properties") for schema in schemas if isinstance(schema, dict)]
    return any(isinstance(each, dict | list) and len(each) > MAX_LISTED for each in properties)


def _mentions_headers(tools: Any) -> bool:
    """Check whether listed tools, or the schema of one, can have an `x-mcp-header`."""
    try:
        return b'"x-mcp-header"' in to_json(tools)
    except ValueError:
        return True


def _replacement(block: Any, redact: Callable[[str], str]) -> dict[str, Any]:
    kind = redact(str(block.get("type"))) if isinstance(block, dict) else type(block).__name__
    text = f"a part of the result cannot be read: content of type {shown(kind)}"
    return {"type": "text", "text": text, "_meta": {UNKNOWN_CONTENT_META: kind}}


def _is_replacement(block: Any) -> bool:
    meta = block.get("_meta")
    return isinstance(meta, dict) and UNKNOWN_CONTENT_META in meta


class TolerantTransport(ClientTransport):
    """A fastmcp transport with tolerant sessions, which report when they end.

    If the config sets a protocol version, the session negotiates it, where fastmcp just assumes it.
    See `_TolerantSession`.
    """

    def __init__(self, inner: ClientTransport, protocol: str, **members: Any) -> None:
        self._inner = inner
        self._discovers = protocol in MODERN_PROTOCOL_VERSIONS
        self.legacy_only = inner.legacy_only
        members = {
            name: staticmethod(value) if callable(value) else value
            for name, value in members.items()
        }
        self._options = TransportOptions(
            session_class=type("TolerantSession", (_TolerantSession,), members)
        )

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncIterator[ClientSession]:
        """Open the inner transport with a tolerant session."""
        async with self._inner.connect_session(
            transport_options=self._options, **session_kwargs
        ) as session:
            if self._discovers:
                await session.discover()
            yield session

    async def close(self) -> None:
        """Close the inner transport."""
        await self._inner.close()  # type: ignore[no-untyped-call]

    def get_session_id(self) -> str | None:
        """Read the inner transport's session id, if it has one."""
        return self._inner.get_session_id()


class CreatedTask(Result):
    """The answer to a call that became a task.

    Its fields are checked by `ServerTasks`, because a server may write anything.
    """

    model_config = ConfigDict(populate_by_name=True)

    result_type: Literal["task"] = Field(alias="resultType")
    task_id: Any = Field(default=None, alias="taskId")
    status: Any = None
    status_message: Any = Field(default=None, alias="statusMessage")
    poll_interval_ms: Any = Field(default=None, alias="pollIntervalMs")


class TaskAnswer(Result):
    """The answer to `tasks/get`."""

    model_config = ConfigDict(populate_by_name=True)

    task_id: Any = Field(default=None, alias="taskId")
    status: Any = None
    status_message: Any = Field(default=None, alias="statusMessage")
    poll_interval_ms: Any = Field(default=None, alias="pollIntervalMs")
    result: Any = None
    error: Any = None
    input_requests: Any = Field(default=None, alias="inputRequests")


class TaskParams(RequestParams):
    """The task that a request is about."""

    model_config = ConfigDict(populate_by_name=True)

    task_id: str = Field(serialization_alias="taskId")


class UpdateParams(TaskParams):
    """The answers to a task's questions."""

    input_responses: dict[str, Any] = Field(serialization_alias="inputResponses")


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    """Asks for a task's state."""

    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams


class UpdateTask(Request[UpdateParams, Literal["tasks/update"]]):
    """Answers a task's questions."""

    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateParams


class CancelTask(Request[TaskParams, Literal["tasks/cancel"]]):
    """Cancels a task."""

    name_param: ClassVar[str | None] = "taskId"
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams


class TaskInCall(CallToolResult):
    """A task in place of a result, for fastmcp, which gets one after a question of the server."""

    created: CreatedTask = Field(exclude=True)


class TasksExtension(ClientExtension):
    """Declares that calls may become tasks, and leaves such an answer to whoever made the call."""

    identifier = TASKS_EXTENSION

    def claims(self) -> list[ResultClaim[Any]]:
        """Claim the answer that is a task."""

        async def resolve(created: CreatedTask, context: ClaimContext) -> CallToolResult:
            return TaskInCall(content=[], created=created)

        return [ResultClaim(result_type="task", model=CreatedTask, resolve=resolve)]


def created_in(answer: Any) -> CreatedTask | None:
    """Find the task in the answer to a call, or None if it is a result."""
    if isinstance(answer, TaskInCall):
        return answer.created
    return answer if isinstance(answer, CreatedTask) else None
