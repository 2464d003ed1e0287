"""A connection to an MCP server: connect, list and call its tools, reconnect after a crash,
close.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.content import OnProgress, ToolResult
from casual_mcp_nb.base.limits import MAX_DEPTH, is_too_deep
from casual_mcp_nb.base.mcp import SAMPLING_METHOD, TASKS_EXTENSION
from casual_mcp_nb.base.secret import Secrets
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tool import MAX_TOOLS_ON_LOOP, Restriction, Risk, ToolSpec, for_models
from casual_mcp_nb.base.wire import Messages, ServerLog, Wire
from casual_mcp_nb.errors import ToolCallError, UsageError, shown
from casual_mcp_nb.isolation.worker import Worker
from casual_mcp_nb.servers._errors import no_answer, root_cause
from casual_mcp_nb.servers.askers import RunningCalls
from casual_mcp_nb.servers.calls import CallRepeatable, OutputCheck, ServerCalls
from casual_mcp_nb.servers.convert import read_listing
from casual_mcp_nb.servers.deadlines import CallDeadlines, CallLimits
from casual_mcp_nb.servers.handlers import Handlers
from casual_mcp_nb.servers.lifecycle import Lifecycle, StartSlots
from casual_mcp_nb.servers.listing import DEFAULT_TTL, ToolListing
from casual_mcp_nb.servers.logs import LogBuffer, keep_out_of_log, logger
from casual_mcp_nb.servers.redaction import Redactor, secrets_of, shown_address
from casual_mcp_nb.servers.resources import ServerResources
from casual_mcp_nb.servers.server_requests import ServerRequests
from casual_mcp_nb.servers.tasks import OnTask, ServerTasks
from casual_mcp_nb.servers.transport import Unusable
from casual_mcp_nb.servers.wire import WireLog

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from mcp_types import Tool

    from casual_mcp_nb.servers.mcp_session import McpSession


MAX_INSTRUCTIONS = 10_000


class Connection:
    """A connection to one server.

    Each connect opens a new session, owned by one task. A dead one is reopened once on next use.

    Args:
        on_change: Called whenever the status or the tools changed.
    """

    def __init__(
        self,
        name: str,
        config: ServerConfig | None = None,
        *,
        server: FastMCP[Any] | Unusable | None = None,
        handlers: Handlers | None = None,
        running_calls: RunningCalls | None = None,
        on_change: Callable[[], None] = ignore,
        cache_ttl: float | None = DEFAULT_TTL,
        secrets: Collection[str] = (),
        worker: Worker | None = None,
        slots: StartSlots | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.listing = ToolListing(self._fetch, cache_ttl, self._lifetime)
        self._limits = CallLimits.of(config)
        self._secrets = secrets_of(config).union(secrets)
        self._redact = Redactor(
            (config.high_confidence_secrets() if config else Secrets()).union(secrets)
        )
        keep_out_of_log(self._secrets)
        self.log = LogBuffer(name, self._secrets)
        self.wire = WireLog(name, self._secrets)
        self._handlers = handlers or Handlers()
        self._on_change = on_change
        self._own_worker = Worker() if worker is None else None
        self._list_until: float | None = None
        self._left_out: Mapping[str, str] = {}
        self.deadlines = CallDeadlines()
        self.server_requests = ServerRequests(
            name,
            config,
            self._handlers,
            running_calls or RunningCalls(),
            self.log,
            self._redact,
            self.deadlines,
        )
        self.sign_in = self._handlers.sign_in
        self.shows_apps = self._handlers.shows_apps(config)
        self._lifecycle = Lifecycle(
            name, config, server, self._limits.init, self, self._secrets, slots or StartSlots()
        )
        self.resources = ServerResources(
            name,
            self._lifecycle,
            self._limits,
            self.deadlines,
            self._redact,
            self._secrets,
            cache_ttl,
            self.changed,
        )
        self._log_level: str | None = None
        self._setting_level: asyncio.Task[None] | None = None
        self._restoring: asyncio.Task[None] | None = None
        self._listing_again: asyncio.Task[None] | None = None
        self._calls = ServerCalls(
            name,
            config is not None,
            self._lifecycle,
            self._limits,
            self.server_requests,
            OutputCheck(worker or self._own_worker or Worker(), self._redact, self._limits.call),
            self._redact,
            self._secrets,
            self.deadlines,
            self._repeatable,
        )

    @property
    def status(self) -> ServerStatus:
        """The server's state, tools, and self-description."""
        lifecycle, failure = self._lifecycle, self.listing.last_error
        session, error = lifecycle.session, lifecycle.error
        if error is None and failure is not None and lifecycle.state == "ready":
            error = f"its tools could not be listed: {root_cause(failure, self._secrets)}"
        state = lifecycle.state
        if state == "ready" and failure is not None and not self.listing.listed:
            state = "unlisted"
        tokens = 0
        if self.tools:
            tokens = self.listing.tokens
        left_out: Mapping[str, str] = {}
        if self.listing.listed:
            left_out = self._left_out
        status = ServerStatus(
            name=self.name,
            state=state,
            error=error,
            tools=len(self.tools),
            tokens=tokens,
            seconds=lifecycle.seconds,
            transport=lifecycle.mode.transport,
            address=shown_address(self.config, self._secrets),
            deprecated=self._deprecated(),
            instructions=self.instructions,
            notes=lifecycle.notes,
            app_only=self._restricted("app only"),
            task_only=self._restricted("task only"),
            apps=tuple(tool.name for tool in for_models(self.tools) if tool.app),
            left_out=left_out,
            specs=self.tools,
        )
        if session is None:
            return status
        return self._with_session(status, session)

    def _restricted(self, restriction: Restriction) -> tuple[str, ...]:
        """List the tools that no model is offered for one reason."""
        return tuple(tool.name for tool in self.tools if tool.restriction == restriction)

    def _with_session(self, status: ServerStatus, session: McpSession) -> ServerStatus:
        """Add what is known of a session to the status."""
        info, hint = session.server_info, session.tools_hint
        return replace(
            status,
            stderr_tail=session.stderr_tail,
            protocol_version=info.protocol_version,
            agreed=info.agreed,
            list_seconds=self._lifetime(None) if hint.ttl_ms else None,
            list_scope=hint.scope,
            version=info.version,
            capabilities=info.capabilities,
            extensions=info.extensions,
            ignored=session.ignored_fields,
        )

    def _deprecated(self) -> tuple[str, ...]:
        """List what the server has used that MCP 2026-07-28 deprecates."""
        used = sorted(self.wire.deprecated)
        if self._lifecycle.mode.transport == "sse":
            used.insert(0, "HTTP+SSE")
        return tuple(used)

    @property
    def instructions(self) -> str:
        """The server's instructions for its use, or empty while there is no session."""
        session = self._lifecycle.session
        if session:
            return session.server_info.instructions[:MAX_INSTRUCTIONS]
        return ""

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools as last listed. Empty if the server could not be started or is closed."""
        lifecycle = self._lifecycle
        usable = lifecycle.state in ("ready", "starting") or (
            lifecycle.state == "failed" and lifecycle.startable
        )
        if usable:
            return self.listing.items
        return ()

    @property
    def tools_version(self) -> str:
        """A hash of the tools as last listed."""
        return self.listing.version

    def read_log(self) -> ServerLog:
        """Read the server's last log lines."""
        return self.log.read()

    def read_messages(self, tool: str | None = None) -> Messages:
        """List the last messages to and from the server, or only those about one tool."""
        return self.wire.read(tool)

    def read_wire(self) -> Wire:
        """List the last messages to and from the server, with the HTTP exchanges that carried
        them.
        """
        return self.wire.wire()

    @property
    def settled(self) -> bool:
        """Whether the server is ready, or its start has failed, so that `ensure` has nothing to
        wait for.
        """
        lifecycle = self._lifecycle
        return lifecycle.alive or (lifecycle.state == "failed" and not lifecycle.startable)

    @property
    def fresh(self) -> bool:
        """Whether `refresh` has nothing to list."""
        return self.listing.fresh or not self._lifecycle.alive

    def set_log_level(self, level: str) -> None:
        """Ask for log messages from this severity on, in this session and later ones, if the server
        supports it.

        In the version without a handshake, each call includes it instead.
        """
        self._log_level = level
        session = self._lifecycle.session
        if session is not None and session.alive:
            self._setting_level = asyncio.create_task(session.set_log_level(level))

    async def connect(self) -> None:
        """Start the server, do the handshake and list its tools, within `init_timeout`.

        Do nothing if it is ready.

        A listing that fails leaves it `unlisted`, and the status has the reason. It is tried again
        once, with a separate limit. A caller that is cancelled ends the start.
        """
        await self._lifecycle.connect()

    async def ensure(self) -> None:
        """Connect a server that was never started or has died since.

        Wait for a start in progress. Otherwise, do nothing.

        Only `connect` and `reconnect` try again after a failure.
        """
        await self._lifecycle.ensure()

    async def reconnect(self) -> None:
        """End the session, if there is one, and open a new one."""
        await self._lifecycle.reconnect()

    async def close(self) -> None:
        """End the session and all its processes, in at most 5 seconds.

        Closing twice is harmless.
        """
        self.tasks.close()
        await self._lifecycle.close()
        if self._own_worker is not None:
            self._own_worker.close()

    async def disconnect(self) -> None:
        """End the session and all its processes until the next use."""
        await self._lifecycle.disconnect()

    def abandon(self) -> None:
        """Mark as closed, in a forked child: the process and the streams are the parent's."""
        self._lifecycle.abandon()

    async def list_tools(self) -> list[ToolSpec]:
        """List the server's tools, from the cache if it is fresh."""
        await self._lifecycle.ensure()
        try:
            return list(await self.refresh())
        except Exception as error:
            text = (
                f"Server {shown(self.name)} did not list its tools:"
                f" {root_cause(error, self._secrets)}."
            )
            raise ToolCallError(text, server=self.name, retryable=True) from None

    async def refresh(self, force: bool = False) -> tuple[ToolSpec, ...]:
        """List a server's tools if the cache is stale and it is ready.

        Otherwise, return the last known ones.

        Raises:
            ClosedError: The connection is closed.
        """
        self._lifecycle.check_open()
        if not self._lifecycle.alive:
            return self.tools
        tools, error = self.listing.items, self.listing.last_error
        try:
            listed = await self.listing.get(force)
            if self._lifecycle.alive or not self._lifecycle.startable:
                return listed
            # The server has lost the session. The next one begins with a listing.
            await self._lifecycle.ensure()
            return self.tools
        finally:
            if tools is not self.listing.items or error != self.listing.last_error:
                self.changed()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        on_task: OnTask | None = None,
    ) -> ToolResult:
        """Call a tool.

        The call is repeated once if the server has forgotten the session: then it has not run.
        Unless the tool is declared destructive, it is also repeated if it failed because it asked
        the person a question, which this server can do only after the older handshake.

        Cancelling the caller cancels the request at the server and leaves the connection usable.

        A call that the server makes a task is waited for. With `on_task`, only for `task_wait`
        seconds: the task continues then.
        """
        arguments = dict(arguments)
        if is_too_deep(arguments):
            raise UsageError(
                f"The arguments of {shown(name)} are nested more than {MAX_DEPTH} levels deep.",
                tool=name,
            )
        try:
            return await self._calls.send_call(name, arguments, on_progress, meta, on_task)
        except CallRepeatable:
            pass
        return await self._calls.send_call(name, arguments, on_progress, meta, on_task, again=True)

    @property
    def tasks(self) -> ServerTasks:
        """The server's tasks that are followed."""
        return self._calls.tasks

    def _repeatable(self, name: str) -> bool:
        """Check whether a call that failed at its question may be repeated. Everything that it did
        before the question is then done twice.
        """
        return not any(tool.name == name and tool.risk is Risk.DESTRUCTIVE for tool in self.tools)

    async def session_opened(self, deadline: float) -> None:
        """List the tools within the remaining start time.

        A failed listing does not fail the server.
        """
        self._list_until = deadline
        self.listing.invalidate()
        try:
            await self.listing.get()
        except Exception as error:
            logger.warning(
                "Server %s did not list its tools: %s",
                shown(self.name),
                root_cause(error, self._secrets),
            )
            self._listing_again = asyncio.create_task(self._list_again())
        finally:
            self._list_until = None
        self.resources.invalidate()
        if self._log_level is not None:
            self.set_log_level(self._log_level)
        self.tasks.wake()
        session = self._lifecycle.session
        if session is not None and self.resources.subscriptions.all:
            self._restoring = asyncio.create_task(self.resources.subscriptions.restore(session))

    async def _list_again(self) -> None:
        with contextlib.suppress(Exception):
            await self.refresh(force=True)
            # A turn that waited for the start began without these tools.
            await self._handlers.listed_late()
            self.changed()

    async def _fetch(self) -> list[ToolSpec]:
        session = self._lifecycle.session
        if session is None or not session.alive:
            raise ConnectionError("it is not connected")
        start = asyncio.get_running_loop().time()
        try:
            until = self._list_until or start + self._limits.init
            async with self.deadlines.within(until):
                listed = await session.all_tools()
        except TimeoutError:
            setting = ""
            if self.config:
                setting = f"servers.{self.name}.init_timeout"
            raise ConnectionError(no_answer(f"{self._limits.init:g} s", setting)) from None
        except Exception as error:
            if not self._list_until:
                await session.fate(error, start)
            raise
        invalid = session.invalid_tools
        if len(listed) < MAX_TOOLS_ON_LOOP:
            return self._converted(listed, invalid)
        return await asyncio.to_thread(self._converted_many, listed, invalid)

    def _lifetime(self, own: float | None) -> float | None:
        session = self._lifecycle.session
        if session is None:
            return own
        return session.tools_hint.lifetime(own, reports_changes=session.reports_changes("tools"))

    def _converted(self, listed: Sequence[Tool], invalid: Mapping[str, str]) -> list[ToolSpec]:
        tools, left_out = read_listing(listed, self.name)
        session = self._lifecycle.session
        if (
            session is not None
            and session.modern
            and TASKS_EXTENSION in session.server_info.extensions
        ):
            # The restriction is from an older version, whose tasks this client does not have.
            tools = list(map(_without_task_restriction, tools))
        if not self.shows_apps:
            # A server may name them nevertheless.
            tools = list(map(_without_app, tools))
        left_out = {**invalid, **left_out}
        self._left_out = {
            self._redact(name): self._redact(reason) for name, reason in left_out.items()
        }
        return list(map(self._redact.tool, tools))

    def _converted_many(self, listed: Sequence[Tool], invalid: Mapping[str, str]) -> list[ToolSpec]:
        """Convert many tools on another thread.

        Hash them too if the cache compares them: both would block the event loop.
        """
        tools = self._converted(listed, invalid)
        if self.listing.listed:
            for tool in (*self.listing.items, *tools):
                _ = tool.digest
        return tools

    async def tools_changed(self) -> None:
        """See `SessionConnection`."""
        self.listing.invalidate()
        self.changed()

    def offers_changed(self) -> None:
        """See `SessionConnection`."""
        self.resources.changed()

    def resource_updated(self, uri: str) -> None:
        """See `SessionConnection`."""
        self.resources.subscriptions.updated(uri)

    def learn(self, secrets: Collection[str]) -> None:
        """See `SessionConnection`."""
        self._redact.learn(secrets)
        self.wire.redact.learn(secrets)

    def field_ignored(self, text: str) -> None:
        """See `SessionConnection`."""
        self.server_requests.warn(text)

    def request_refused(self, method: str) -> None:
        """See `SessionConnection`."""
        if (
            method == SAMPLING_METHOD
            and self._handlers.sampling is not None
            and self.config is not None
            and self.config.sampling
        ):
            # Its handler said why.
            return
        text = (
            f"The server requested {shown(self._redact(method))} and was refused: there is no"
            " handler for it."
        )
        self.server_requests.warn(text)

    def changed(self) -> None:
        """See `SessionConnection`."""
        try:
            self._on_change()
        except Exception:
            logger.exception("The handler for changes of servers failed.")


def _without_task_restriction(tool: ToolSpec) -> ToolSpec:
    if tool.restriction == "task only":
        return replace(tool, restriction=None)
    return tool


def _without_app(tool: ToolSpec) -> ToolSpec:
    if tool.app:
        return replace(tool, app="")
    return tool
