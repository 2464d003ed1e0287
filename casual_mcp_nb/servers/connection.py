"""A connection to an MCP server: connect, list and call its tools, reconnect after a crash,
close.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.content import ContentPart, OnProgress, ToolResult
from casual_mcp_nb.base.limits import MAX_DEPTH, is_too_deep
from casual_mcp_nb.base.mcp import METHOD, TASKS_EXTENSION, Messages, ServerLog, Wire
from casual_mcp_nb.base.schema import fits_plainly
from casual_mcp_nb.base.secret import Secrets
from casual_mcp_nb.base.status import ServerStatus
from casual_mcp_nb.base.tool import MAX_TOOLS_ON_LOOP, Risk, ToolSpec
from casual_mcp_nb.errors import ToolCallError, UsageError, shown
from casual_mcp_nb.isolation.worker import GaveUp, Worker
from casual_mcp_nb.servers._errors import (
    Redactor,
    died_error,
    no_answer,
    refused_error,
    root_cause,
    secrets_of,
    shown_address,
    timeout_error,
)
from casual_mcp_nb.servers.convert import has_structured, is_small, read_listing, result_from_mcp
from casual_mcp_nb.servers.handlers import (
    CallDeadline,
    CallDeadlines,
    CallLimits,
    CallTimeout,
    Handlers,
    Hooks,
    client_options,
    forwarded_to,
)
from casual_mcp_nb.servers.lifecycle import Lifecycle, StartSlots, cannot_ask
from casual_mcp_nb.servers.logs import LogBuffer, keep_out_of_log, logger
from casual_mcp_nb.servers.resources import ServerResources
from casual_mcp_nb.servers.tasks import OnTask, ServerTasks
from casual_mcp_nb.servers.transport import Unusable
from casual_mcp_nb.servers.wire import WireLog

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from mcp_types import CallToolResult, Tool

    from casual_mcp_nb.servers._sdk_session import CreatedTask
    from casual_mcp_nb.servers.lifecycle import Lifecycle
    from casual_mcp_nb.servers.mcp_session import McpSession


CHECK_SECONDS = 2.0
MAX_REASON = 500


class OutputCheck:
    """Checks one server's results. A check has a time limit."""

    def __init__(self, worker: Worker, redact: Callable[[str], str], seconds: float) -> None:
        self._worker = worker
        self._redact = redact
        self._seconds = min(seconds, CHECK_SECONDS)
        self._given_up: dict[str, str] = {}

    async def problem(self, schema: Any, value: Any) -> tuple[str, bool]:
        """Describe the mismatch between a value and the schema, and tell whether the value is
        invalid.

        For a valid one, a message explains why it was not checked. Without a mismatch it is empty.
        """
        if fits_plainly(schema, value):
            return "", False
        key = json.dumps(schema)
        if key not in self._given_up:
            try:
                answer = await self._worker.call(
                    "validate", {"schema": key, "value": value}, self._seconds
                )
            except GaveUp as gave_up:
                # A schema that took too long once is not tried again: each call would wait for it.
                self._given_up[key] = str(gave_up)
            else:
                if answer is None:
                    return "", False
                if "invalid" in answer:
                    return (
                        (
                            "The tool's own output schema is not valid:"
                            f" {self._redact(answer['invalid'])[:MAX_REASON]}"
                        ),
                        True,
                    )
                reason = f"at {self._redact(answer['path'])}: {self._redact(answer['message'])}"[
                    :MAX_REASON
                ]
                return (
                    f"The structured content does not fit the tool's own output schema: {reason}",
                    True,
                )
        return (
            (
                "The structured content was not checked against the tool's own output schema:"
                f" {self._given_up[key]}."
            ),
            False,
        )


class CallRepeatable(Exception):
    """A call may be made again: its server had forgotten the session, or can ask its question after
    the older handshake.
    """


@dataclass
class ServerCalls:
    """Calls one server's tools.

    See https://modelcontextprotocol.io/specification/2025-11-25/server/tools#calling-tools.
    """

    server: str
    configured: bool
    lifecycle: Lifecycle
    limits: CallLimits
    handlers: Handlers
    outputs: OutputCheck
    redact: Redactor
    secrets: Secrets
    deadlines: CallDeadlines = field(default_factory=CallDeadlines)
    repeatable: Callable[[str], bool] = lambda name: True

    def __post_init__(self) -> None:
        self.tasks = ServerTasks(
            self.server,
            self.lifecycle,
            self.limits,
            self.handlers,
            self.redact,
            self.secrets,
            self._converted,
        )

    async def run(
        self,
        name: str,
        arguments: dict[str, Any],
        on_progress: OnProgress | None,
        meta: Mapping[str, Any] | None,
        on_task: OnTask | None = None,
        again: bool = False,
    ) -> ToolResult:
        """Call a tool once, see `Connection.call`.

        CallRepeatable means that it may be called again immediately.
        """
        if self.lifecycle.requested_mode is not None and not self.deadlines:
            # The change waits for other running calls, because it would end them.
            await self.lifecycle.change_mode()
        lifecycle = self.lifecycle
        session = lifecycle.session if lifecycle.alive else None
        if session is None:
            session = await lifecycle.ensure()
        from mcp_types import CallToolResult

        from casual_mcp_nb.servers._sdk_session import created_in

        start = asyncio.get_running_loop().time()
        try:
            with CallDeadline(self.limits, self.deadlines) as deadline:

                async def reset_and_report(
                    progress: float, total: float | None, message: str | None
                ) -> None:
                    deadline.reset()
                    if on_progress is not None:
                        on_progress(
                            progress, total, session.context.redact(message) if message else message
                        )

                client: Any = session.client
                given: dict[str, Any] = {
                    "name": name,
                    "arguments": arguments,
                    "meta": dict(meta) if meta else None,
                }
                request = {**given, "progress_callback": reset_and_report}
                forwarded = forwarded_to(self.server, name)
                if forwarded is not None and session.modern:
                    raw = await forwarded.send(client.session.send_call, self.redact, **request)
                    if raw is None:
                        return ToolResult()
                else:
                    raw = await client.session.send_call(
                        **request, allow_input_required=True, allow_claimed=True
                    )
                    if not isinstance(raw, CallToolResult) and created_in(raw) is None:
                        # fastmcp answers a server's questions, and reads extensions' results.
                        client.session.first_answer = raw
                        raw = await client.call_tool_mcp(**given, progress_handler=reset_and_report)
        except CallTimeout as limit:
            stray = session.stray_output if session.strayed_at >= start else None
            stalled = session.context.lines.stalled if session.context.lines else None
            if stalled is not None:
                # Later output would be read as part of it.
                session.give_up(stalled)
            raise timeout_error(
                self.server, name, limit.seconds, limit.field, stray, stalled
            ) from None
        except Exception as error:
            fate = await session.fate(error, start)
            if fate == "forgotten" and not again:
                raise CallRepeatable from None
            if not again:
                await self._check_question(name, [root_cause(error, self.secrets)], session)
            failure = await self._failure(name, error, session, start)
        else:
            if (created := created_in(raw)) is not None:
                return await self._as_task(name, created, on_task)
            result = await self._converted(raw, session.output_schema(name))
            if not result.is_error:
                return result
            texts = [part.text for part in result.content]
            if not again:
                await self._check_question(name, texts, session)
            advice = self._advice(texts, session)
            return (
                replace(result, content=(*result.content, ContentPart("text", advice)))
                if advice
                else result
            )
        # Raised out here: as its context, the library's error would carry what the server sent,
        # with secrets in it.
        raise failure

    async def _as_task(self, name: str, created: CreatedTask, on_task: OnTask | None) -> ToolResult:
        """Return the result of a call that became a task, see `ServerTasks.call`."""
        try:
            return await self.tasks.call(name, created, on_task)
        except TimeoutError:
            raise timeout_error(
                self.server, name, self.limits.total, "total_timeout", None, None
            ) from None

    async def _converted(self, raw: CallToolResult, schema: Any) -> ToolResult:
        """Check a result against its output schema, convert and redact it."""
        note, invalid = "", False
        if schema is not None and not raw.is_error:
            if has_structured(raw):
                note, invalid = await self.outputs.problem(schema, raw.structured_content)
            else:
                note, invalid = (
                    "The tool has an output schema, and its result has no structured content.",
                    True,
                )
        # A large result would hold the event loop.
        result = (
            self._redacted(raw) if is_small(raw) else await asyncio.to_thread(self._redacted, raw)
        )
        if not note:
            return result
        return replace(
            result,
            content=(*result.content, ContentPart("text", note)),
            is_error=result.is_error or invalid,
        )

    def _redacted(self, raw: CallToolResult) -> ToolResult:
        return self.redact.result(result_from_mcp(raw))

    async def _failure(
        self, tool: str, error: Exception, session: McpSession, start: float
    ) -> ToolCallError:
        reason = session.broken_reason or session.context.explain(
            root_cause(error, self.secrets), start
        )
        if session.alive:
            return refused_error(self.server, tool, reason, self._advice((reason,), session))
        if session.context.stderr is not None:
            await session.context.stderr.wait_end(0.3)
        return died_error(self.server, tool, reason, session.stderr_tail)

    async def _check_question(self, tool: str, texts: Sequence[str], session: McpSession) -> None:
        """Have the call repeated after the older handshake, if its question needs that."""
        if self.handlers.elicitation is None or not self.repeatable(tool):
            return
        version = session.server_info.protocol_version
        if cannot_ask(texts, version) and self.lifecycle.request_legacy_mode():
            text = (
                f"Tool {shown(tool)} asks a question, which this server cannot do on a connection"
                f" of protocol {version}."
            )
            self.handlers.warn(
                self.server,
                f"{text} It is connected by the older handshake, and the tool is called again.",
            )
            if self.deadlines:
                # To reconnect would end the other calls that run.
                await self.deadlines.until_empty()
            raise CallRepeatable from None

    def _advice(self, texts: Iterable[str], session: McpSession) -> str:
        """Choose advice for a call that failed with these messages, if the protocol version was the
        cause.
        """
        version = session.server_info.protocol_version
        if not cannot_ask(texts, version):
            return ""
        problem = (
            "The tool asks a question, which this server cannot do on a connection of protocol"
            f" {version}."
        )
        if self.lifecycle.request_legacy_mode():
            advice = (
                f"{problem} From the next call on it is connected by the older handshake, on which"
                " it can ask."
            )
            self.handlers.warn(self.server, advice)
            return f"{advice} The tool's actions before its question are not undone."
        return (
            f"{problem} Set servers.{self.server}.protocol to legacy."
            if self.configured
            else problem
        )


DEFAULT_TTL = 30.0
RETRY_SECONDS = 30.0


class ToolCache:
    """Caches a listing.

    Its `lifetime` turns the TTL into that of the last listing, for servers that declare one. Tools
    that did not change keep their version and stay the same objects, however often they are listed.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Sequence[ToolSpec]]],
        ttl_seconds: float | None = DEFAULT_TTL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self.ttl = ttl_seconds
        self.lifetime: Callable[[float | None], float | None] = lambda own: own
        self._clock = clock
        self._lock = asyncio.Lock()
        self._stale_at = -math.inf
        self._invalidations = 0
        self._fetches = 0
        self.listed = False
        self._tokens: int | None = None
        self.tools: tuple[ToolSpec, ...] = ()
        self._version: str | None = None
        self.last_error: Exception | None = None

    async def get_tools(self, force_refresh: bool = False) -> tuple[ToolSpec, ...]:
        """List the tools, again only if the cache has expired.

        Concurrent callers share one listing. If it fails and there is no older one, it is tried
        again after the TTL or 30 seconds, whichever is shorter.
        """
        fetches = self._fetches
        if force_refresh or not self.fresh:
            async with self._lock:
                if fetches == self._fetches or not self.fresh:
                    invalidations = self._invalidations
                    ttl = self.ttl
                    try:
                        tools = await self._fetch()
                        ttl = self.lifetime(ttl)
                        version = _version(tools) if self.listed else None
                        if version is None or version != self.version:
                            self.tools, self._version = tuple(tools), version
                            self._tokens = None
                        self.listed = True
                        self.last_error = None
                    except Exception as error:
                        self.last_error = error
                        ttl = RETRY_SECONDS if ttl is None else min(ttl, RETRY_SECONDS)
                    self._fetches += 1
                    if invalidations == self._invalidations:
                        self._stale_at = math.inf if ttl is None else self._clock() + ttl
        if not self.listed and self.last_error is not None:
            raise self.last_error.with_traceback(None)
        return self.tools

    async def invalidate(self) -> None:
        """Make the next use list the tools again, even during a listing, which may already be out
        of date.
        """
        self._invalidations += 1
        self._stale_at = -math.inf

    @property
    def fresh(self) -> bool:
        """Whether the cache is fresh."""
        return self._clock() < self._stale_at

    @property
    def version(self) -> str:
        """A hash of the tools, computed when first needed: a single listing needs none."""
        if self._version is None:
            self._version = _version(self.tools)
        return self._version

    @property
    def tokens(self) -> int:
        """Estimated tokens for all definitions that a model can be offered, counted once per
        version.
        """
        if self._tokens is None:
            self._tokens = sum(tool.tokens for tool in self.tools if tool.restriction is None)
        return self._tokens


def _version(tools: Sequence[ToolSpec]) -> str:
    return hashlib.sha256("".join(tool.digest for tool in tools).encode()).hexdigest()[:16]


MAX_INSTRUCTIONS = 10_000


class Connection:
    """A connection to one server.

    Each connect opens a new session, owned by one task. A dead one is reopened once on next use.
    """

    def __init__(
        self,
        name: str,
        config: ServerConfig | None = None,
        *,
        server: FastMCP[Any] | Unusable | None = None,
        handlers: Handlers | None = None,
        cache_ttl: float | None = DEFAULT_TTL,
        secrets: Collection[str] = (),
        worker: Worker | None = None,
        slots: StartSlots | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.cache = ToolCache(self._fetch, cache_ttl)
        self.cache.lifetime = self._lifetime
        self._limits = CallLimits.of(config)
        self._secrets = secrets_of(config).union(secrets)
        self._redact = Redactor(
            (config.high_confidence_secrets() if config else Secrets()).union(secrets)
        )
        keep_out_of_log(self._secrets)
        self.log = LogBuffer(name, self._secrets)
        self.wire = WireLog(name, self._secrets)
        self._handlers = _also_logged(handlers or Handlers(), self.log)
        self._own_worker = Worker() if worker is None else None
        self._list_until: float | None = None
        self._left_out: Mapping[str, str] = {}
        self._deadlines = deadlines = CallDeadlines()
        options = client_options(self._handlers, name, config, self._redact, deadlines)
        hooks = Hooks(
            options,
            self._list_first,
            self._changed,
            self._tools_changed,
            lambda: self.resources.changed(),
            lambda uri: self.resources.subscriptions.updated(uri),
            self._refused,
            self.wire,
            self.log.stderr,
            deadlines,
            self._handlers.sign_in,
            (self._redact, self.wire.redact),
            self._handlers.shows_apps(config),
            self._warn,
        )
        self._lifecycle = Lifecycle(
            name, config, server, self._limits.init, hooks, self._secrets, slots or StartSlots()
        )
        self.resources = ServerResources(
            name,
            self._lifecycle,
            self._limits,
            deadlines,
            self._redact,
            self._secrets,
            cache_ttl,
            self._changed,
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
            self._handlers,
            OutputCheck(worker or self._own_worker or Worker(), self._redact, self._limits.call),
            self._redact,
            self._secrets,
            deadlines,
            self._repeatable,
        )

    @property
    def status(self) -> ServerStatus:
        """The server's state, tools, and self-description."""
        lifecycle, listing = self._lifecycle, self.cache.last_error
        session, error = lifecycle.session, lifecycle.error
        if error is None and listing is not None and lifecycle.state == "ready":
            error = f"its tools could not be listed: {root_cause(listing, self._secrets)}"
        unlisted = lifecycle.state == "ready" and listing is not None and not self.cache.listed
        return ServerStatus(
            name=self.name,
            state="unlisted" if unlisted else lifecycle.state,
            error=error,
            stderr_tail=session.stderr_tail if session else "",
            tools=len(self.tools),
            tokens=self.cache.tokens if self.tools else 0,
            seconds=lifecycle.seconds,
            transport=lifecycle.mode.transport,
            address=shown_address(self.config, self._secrets),
            protocol_version=session.server_info.protocol_version if session else None,
            agreed=session.server_info.agreed if session else "",
            list_seconds=self._lifetime(None) if session and session.tools_hint.ttl_ms else None,
            list_scope=session.tools_hint.scope if session else "",
            deprecated=self._deprecated(),
            version=session.server_info.version if session else None,
            instructions=self.instructions,
            capabilities=session.server_info.capabilities if session else (),
            extensions=session.server_info.extensions if session else (),
            notes=lifecycle.notes,
            app_only=tuple(tool.name for tool in self.tools if tool.restriction == "app only"),
            task_only=tuple(tool.name for tool in self.tools if tool.restriction == "task only"),
            apps=tuple(tool.name for tool in self.tools if tool.app and tool.restriction is None),
            left_out=self._left_out if self.cache.listed else {},
            ignored=session.ignored_fields if session else {},
            specs=self.tools,
        )

    def _deprecated(self) -> tuple[str, ...]:
        """List what the server has used that MCP 2026-07-28 deprecates."""
        transport = ("HTTP+SSE",) if self._lifecycle.mode.transport == "sse" else ()
        return (*transport, *sorted(self.wire.deprecated))

    @property
    def instructions(self) -> str:
        """The server's instructions for its use, or empty while there is no session."""
        session = self._lifecycle.session
        return session.server_info.instructions[:MAX_INSTRUCTIONS] if session else ""

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools as last listed. Empty if the server could not be started or is closed."""
        lifecycle = self._lifecycle
        usable = lifecycle.state in ("ready", "starting") or (
            lifecycle.state == "failed" and lifecycle.startable
        )
        return self.cache.tools if usable else ()

    @property
    def tools_version(self) -> str:
        """A hash of the tools as last listed."""
        return self.cache.version

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
        """Whether `refresh` has nothing to list. Raises the same errors as `settled`."""
        cache = self.cache
        # As `cache.fresh`: each step of a turn asks each server.
        return cache._clock() < cache._stale_at or not self._lifecycle.alive

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
        """
        if not self._lifecycle.alive:
            return self.tools
        tools, error = self.cache.tools, self.cache.last_error
        try:
            listed = await self.cache.get_tools(force)
            if self._lifecycle.alive or not self._lifecycle.startable:
                return listed
            # The server has lost the session. The next one begins with a listing.
            await self._lifecycle.ensure()
            return self.tools
        finally:
            if tools is not self.cache.tools or error != self.cache.last_error:
                self._changed()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
        on_task: OnTask | None = None,
    ) -> ToolResult:
        """Call a tool once.

        A second time only if the first cannot have run, or failed at a question.

        The call is repeated if the server has forgotten the session. Unless the tool is declared
        destructive, it is also repeated if it asked the person a question that this server can ask
        only after the older handshake.

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
            return await self._calls.run(name, arguments, on_progress, meta, on_task)
        except CallRepeatable:
            pass
        return await self._calls.run(name, arguments, on_progress, meta, on_task, again=True)

    @property
    def tasks(self) -> ServerTasks:
        """The server's tasks that are followed."""
        return self._calls.tasks

    def _repeatable(self, name: str) -> bool:
        """Check whether a call that failed at its question may be repeated: everything it did
        before is done twice.
        """
        return not any(tool.name == name and tool.risk is Risk.DESTRUCTIVE for tool in self.tools)

    async def _list_first(self, deadline: float) -> None:
        """List the tools within the remaining start time.

        A failed listing does not fail the server.
        """
        self._list_until = deadline
        await self.cache.invalidate()
        try:
            await self.cache.get_tools()
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
            # Whoever waited for the start has taken what was listed by then.
            if self._handlers.listed_late is not None:
                await self._handlers.listed_late()
                self._changed()

    async def _fetch(self) -> list[ToolSpec]:
        session = self._lifecycle.session
        if session is None or not session.alive:
            raise ConnectionError("it is not connected")
        start = asyncio.get_running_loop().time()
        try:
            until = self._list_until or start + self._limits.init
            async with self._deadlines.within(until):
                listed = await session.all_tools()
        except TimeoutError:
            setting = f"servers.{self.name}.init_timeout" if self.config else ""
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
            # Without the extension, tools that run only as tasks are those of an older version,
            # whose tasks are no more.
            tools = [
                replace(tool, restriction=None) if tool.restriction == "task only" else tool
                for tool in tools
            ]
        if not self._handlers.shows_apps(self.config):
            # A server may name them nevertheless.
            tools = [replace(tool, app="") if tool.app else tool for tool in tools]
        left_out = {**invalid, **left_out}
        self._left_out = {
            self._redact(name): self._redact(reason) for name, reason in left_out.items()
        }
        return [self._redact.tool(tool) for tool in tools]

    def _converted_many(self, listed: Sequence[Tool], invalid: Mapping[str, str]) -> list[ToolSpec]:
        """Convert many tools on another thread.

        Hash them too if the cache compares them: both would block the event loop.
        """
        tools = self._converted(listed, invalid)
        if self.cache.listed:
            for tool in (*self.cache.tools, *tools):
                _ = tool.digest
        return tools

    async def _tools_changed(self) -> None:
        await self.cache.invalidate()
        self._changed()

    def _warn(self, text: str) -> None:
        self._handlers.warn(self.name, text)

    def _refused(self, method: str) -> None:
        if (
            method == METHOD
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
        self._warn(text)

    def _changed(self) -> None:
        if self._handlers.changed is not None:
            try:
                self._handlers.changed()
            except Exception:
                logger.exception("The handler for changes of servers failed.")


def _also_logged(handlers: Handlers, log: LogBuffer) -> Handlers:
    def on_log(server: str, level: str, text: str) -> None:
        log.add(level, text)
        if handlers.log is not None:
            handlers.log(server, level, text)

    return replace(handlers, log=on_log)
