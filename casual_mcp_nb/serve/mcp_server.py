"""A session's tools as one MCP server, whatever carries its messages.

It speaks the versions of MCP that begin with a handshake. What a client has found belongs to its connection, and what a person
is asked goes back over it; the version of 2026 has neither, and clients of it fall back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Protocol

import mcp_types as mcp
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.tool_client import ToolClient
from casual_mcp_nb.engine.view import ToolView
from casual_mcp_nb.errors import CasualMcpError
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.notebook.observers import Observers
from casual_mcp_nb.serve.mcp_questions import HostApproval, HostCall, allowed_by_host, approve
from casual_mcp_nb.serve.mcp_values import result_to_mcp, text_result, tool_to_mcp
from casual_mcp_nb.types.event import Notice
from casual_mcp_nb.types.selection import Selection
from casual_mcp_nb.types.tool import ToolSpec

logger = logging.getLogger(__name__)

NAME = "casual-mcp-nb"
PAGE = 1_000
"""How many tools a listing has before it continues on the next page."""
MAX_CALLS = 64
"""How many calls of one client run at a time."""
_HOST = "casual_mcp_nb"


class Tools(Protocol):
    """What is needed of a session's tools, see `ToolService`."""

    @property
    def selection(self) -> Selection:
        """What is offered."""

    async def view(self) -> ToolView:
        """Connect the servers."""

    async def relist(self) -> None:
        """List the tools again that servers have changed."""

    def current_view(self, selection: Selection) -> ToolView:
        """Return what a selection offers of the tools that are known now."""

    def client(self, options: TurnOptions, **asking: Any) -> ToolClient:
        """Return a client of these tools."""


class ToolServer:
    """Serves the tools of a session to clients of MCP; belongs to the engine's loop.

    Args:
        tools: The tools.
        observers: Tell of changes.
        engine: The thread of the loop.
        options: Which tools are offered, where they differ from the selection.
        approval: What is done where a policy requires approval of a call.

    Attributes:
        server: The SDK's server, for its transports.
    """

    def __init__(
        self,
        tools: Tools,
        observers: Observers,
        engine: EngineThread,
        options: TurnOptions,
        approval: HostApproval = "ask",
    ) -> None:
        self._tools = tools
        self._engine = engine
        self._options = options
        self._approval: HostApproval = approval
        self._hosts: set[_Host] = set()
        self._looking: asyncio.Task[None] | None = None
        self._changed_since = False
        self._ends: list[Callable[[], None]] = [observers.changes.add(self._changed), tools.selection.watch(self._changed)]
        self.server: Server[Any] = _Server(
            NAME,
            version=version(NAME),
            on_list_tools=self._list,
            on_call_tool=self._call,
            # Only the version that is not served asks for it.
            get_tool_input_schema=lambda _: None,
        )
        self.server.middleware.append(_after_a_handshake)

    @property
    def clients(self) -> int:
        """How many clients have listed or called tools and are still connected."""
        return len(self._hosts)

    def view(self) -> ToolView:
        """Return what is offered of the tools that are known now, before anybody has searched."""
        return self._tools.current_view(self._options.applied_to(self._tools.selection))

    def close(self) -> None:
        """Tell clients of no more changes; harmless if called twice."""
        while self._ends:
            self._ends.pop()()
        if self._looking is not None:
            self._looking.cancel()

    async def _list(self, context: ServerRequestContext[Any], params: mcp.PaginatedRequestParams | None) -> mcp.ListToolsResult:
        host = self._host(context)
        try:
            tools = await host.client.offered()
        except CasualMcpError as error:
            raise MCPError(mcp.INTERNAL_ERROR, str(error)) from None
        cursor = params.cursor if params else None
        if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
            raise MCPError(mcp.INVALID_PARAMS, "this cursor is not one of this server")
        start = int(cursor or 0)
        if not start:
            host.listed = host.told = _key(tools)
        more = str(start + PAGE) if len(tools) > start + PAGE else None
        return mcp.ListToolsResult(tools=list(map(tool_to_mcp, tools[start : start + PAGE])), next_cursor=more)

    async def _call(self, context: ServerRequestContext[Any], params: mcp.CallToolRequestParams) -> mcp.CallToolResult:
        host = self._host(context)
        if host.calls >= MAX_CALLS:
            return text_result(f"Error: at most {MAX_CALLS} calls run at a time. Call it again when another one has ended.")
        reports = _Reports(context.session)
        host.calls += 1
        try:
            outcome = await host.client.call(
                params.name,
                dict(params.arguments or {}),
                asker=HostCall(host, context, self._approval),
                on_progress=reports.add,
            )
            outdated = host.outdated()
            await reports.sent()
            if outdated:
                # Before the answer, and where it will be read, so that the tools are there when the model wants to call them.
                await context.session.send_notification(mcp.ToolListChangedNotification(), context.request_id)
            return result_to_mcp(outcome)
        except CasualMcpError as error:
            return text_result(f"Error: {error}")
        except Exception:
            logger.exception("A call of a host failed.")
            return text_result("Error: the call failed. The log of this server says why.")
        finally:
            host.calls -= 1
            reports.close()

    def _host(self, context: ServerRequestContext[Any]) -> _Host:
        """Return what is known of the client of a request."""
        # The SDK keeps what belongs to a connection there, and has no other way to it from a request.
        client_session = context.session
        connection: Connection = client_session._connection
        host: _Host | None = connection.state.get(_HOST)
        if host is None:
            client = self._tools.client(
                self._options, approver=approve, can_ask=lambda: True, how_to_allow=allowed_by_host, on_notice=_log
            )
            host = connection.state[_HOST] = _Host(client, connection)
            self._hosts.add(host)
            connection.exit_stack.callback(self._hosts.discard, host)
        return host

    def _changed(self) -> None:
        """Note a change; called on any thread, often."""
        self._engine.call_later(0, self._look)

    def _look(self) -> None:
        self._changed_since = True
        if self._hosts and self._ends and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        """Tell each client whose list is another one now."""
        while self._changed_since:
            self._changed_since = False
            try:
                await self._tools.relist()
            except CasualMcpError:
                return
            for host in tuple(self._hosts):
                if host.news():
                    host.tell()


class _Host:
    """A client that is connected.

    Args:
        client: Lists and calls tools for it.
        connection: Its connection.

    Attributes:
        listed: What it listed last; None before.
        told: What it was told of, or listed.
        calls: How many of its calls run now.
    """

    def __init__(self, client: ToolClient, connection: Connection) -> None:
        self.client = client
        self.listed: tuple[str, ...] | None = None
        self.told: tuple[str, ...] | None = None
        self.calls = 0
        self._connection = connection
        self._telling: asyncio.Task[None] | None = None

    def outdated(self) -> bool:
        """Return whether the list that it has is not the present one; a notification on its own stream may not arrive."""
        if self.listed is None or self.listed == (now := _key(self.client.known())):
            return False
        self.told = now
        return True

    def news(self) -> bool:
        """Return, once, whether there is another list than the one that it knows of."""
        return self.told != _key(self.client.known()) and self.outdated()

    def tell(self) -> None:
        """Send a notification; one that does not read gets no second one."""
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._connection.send_tool_list_changed())
            self._connection.exit_stack.callback(self._telling.cancel)


class _Reports:
    """Sends the progress of a call, in order."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._waiting: deque[tuple[float, float | None, str | None]] = deque(maxlen=100)
        self._sending: asyncio.Task[None] | None = None

    def add(self, progress: float, total: float | None, message: str | None) -> None:
        """Send a report; where they come faster than they are read, the oldest are left out."""
        self._waiting.append((progress, total, message))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def sent(self) -> None:
        """Wait until all are sent."""
        if self._sending is not None:
            await self._sending

    def close(self) -> None:
        """Send no more."""
        if self._sending is not None:
            self._sending.cancel()

    async def _send(self) -> None:
        while self._waiting:
            await self._session.report_progress(*self._waiting.popleft())


class _Server(Server[Any]):
    def create_initialization_options(self, *_args: Any, **_kwargs: Any) -> InitializationOptions:
        # The transport over HTTP gives no options.
        return super().create_initialization_options(NotificationOptions(tools_changed=True))


async def _after_a_handshake(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Refuse the version of MCP that has no handshake, by the error on which its clients begin one."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and ctx.request_id is not None:
        supported = {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": ctx.protocol_version}
        raise MCPError(mcp.UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", supported)
    return await call_next(ctx)


def _key(tools: tuple[ToolSpec, ...]) -> tuple[str, ...]:
    return tuple(tool.digest for tool in tools)


def _log(notice: Notice) -> None:
    logger.warning("%s", notice.text)
