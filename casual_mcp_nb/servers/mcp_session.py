"""One live session with a server: opened once, closed once, never reopened."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import math
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

from fastmcp.client.transports.base import TransportOptions
from mcp import ClientSession
from mcp.client.subscriptions import listen
from mcp_types import (
    EmptyResult,
    Implementation,
    PaginatedRequestParams,
    PingRequest,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ServerCapabilities,
    SetLevelRequest,
    SetLevelRequestParams,
    Tool,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from casual_mcp_nb.base.config import Protocol, ServerConfig
from casual_mcp_nb.base.mcp import (
    APP_MIME_TYPE,
    APPS_EXTENSION,
    SKILLS_EXTENSION,
    TASKS_EXTENSION,
)
from casual_mcp_nb.base.status import Agreement
from casual_mcp_nb.servers._errors import (
    CLOSED,
    error_text,
    is_answer,
    is_forgotten,
    says_session_is_lost,
)
from casual_mcp_nb.servers._sdk_session import TolerantSession
from casual_mcp_nb.servers._task_messages import TASK_CLAIM
from casual_mcp_nb.servers.askers import ASKER, ForwardedRequest, forwarded_to
from casual_mcp_nb.servers.convert import CacheHint
from casual_mcp_nb.servers.http_transport import ResponseMonitor
from casual_mcp_nb.servers.logs import logger
from casual_mcp_nb.servers.message_limits import input_of
from casual_mcp_nb.servers.negotiation import Negotiation, patience
from casual_mcp_nb.servers.pages import all_pages
from casual_mcp_nb.servers.process import POLL_SECONDS, end_group, process_ended, signal_group
from casual_mcp_nb.servers.redaction import clean
from casual_mcp_nb.servers.session_life import SessionLife, SessionState
from casual_mcp_nb.servers.session_protocols import SessionConnection
from casual_mcp_nb.servers.transport import TransportContext

MAX_EXTENSIONS = 20
ListKind = Literal["tools", "resources", "prompts"]
"""A list of a server, whose changes it may report. Skills change with the `resources`."""
_LISTS: tuple[ListKind, ...] = ("tools", "resources", "prompts")


@dataclass(frozen=True)
class ServerInfo:
    """A server's information about itself from the handshake, redacted.

    See https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#initialization.
    """

    protocol_version: str | None = None
    agreed: Agreement = ""
    version: str | None = None
    instructions: str = ""
    capabilities: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()

    @classmethod
    def of(cls, session: ClientSession, redact: Callable[[str], str]) -> ServerInfo:
        """Read it from a session after the handshake."""
        info, capabilities = session.server_info, session.server_capabilities
        agreed: Agreement = "handshake"
        if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            agreed = "discover"
        version = None
        if info is not None:
            version = clean(redact(f"{info.name} {info.version}".strip()))[:200]
        extensions: list[str] = []
        if capabilities is not None:
            extensions = list(capabilities.extensions or ())[:MAX_EXTENSIONS]
        return cls(
            protocol_version=session.protocol_version,
            agreed=agreed,
            version=version,
            instructions=redact(session.instructions or ""),
            capabilities=_names(capabilities),
            extensions=tuple(clean(redact(str(name)))[:100] for name in extensions),
        )


def _names(capabilities: Any) -> tuple[str, ...]:
    """List the declared capabilities by name, without extensions, whose names servers invent."""
    fields = type(capabilities).model_fields if capabilities is not None else ()
    names = (name for name in fields if name not in ("experimental", "extensions"))
    return tuple(name for name in names if getattr(capabilities, name) is not None)


MAX_TOOLS = 20_000
CLOSE_SECONDS = 4.5
GRACE_SECONDS = 0.5
"""How long a server may take to exit by itself before its process group gets SIGTERM."""
KILL_SECONDS = 0.5
"""Time from SIGTERM to SIGKILL. The SDK would do the same after a longer wait."""
WATCH_SECONDS = 0.25
PING_SECONDS = 5.0
"""How long a server may take to answer whether it still knows a session.

Without an answer, it is believed to.
"""
OTHERS_SECONDS = 2.0
"""How long calls in a lost session are waited for: each is refused too, unless it ran before the
session was lost.
"""
SessionFate = Literal["alive", "forgotten", "broken"]
"""What became of a session in which a request failed.

- `alive`: it can be used further.
- `forgotten`: the server no longer knows the session, and has not acted on the request.
- `broken`: it has ended, and the server may have acted on the request.
"""
LAST_ANSWER_SECONDS = 2.0
"""How long to wait for the last answer of a process that has ended, and for the end of its stdout."""


class McpSession:
    """An open session of the SDK, and the task that owns it.

    The task opens the session, waits until it ends, and cleans up. `on_lost` is called once if the
    session ended without being closed.

    Attributes:
        connection: The connection that it belongs to.
        sdk: The SDK's session. There is none before the handshake.
        negotiation: How it agrees with the server on a protocol version.
    """

    sdk: TolerantSession

    def __init__(
        self,
        name: str,
        context: TransportContext,
        connection: SessionConnection,
        on_lost: Callable[[McpSession], None],
        protocol: Protocol,
        limit: float,
        config: ServerConfig | None = None,
    ) -> None:
        self.name = name
        self.context = context
        self.connection = connection
        self.config = config
        self.server_info = ServerInfo()
        self.broken_reason: str | None = None
        self.negotiation = Negotiation(
            patience(limit, over_http=context.http is not None), connection.deadlines
        )
        self.stray_output: str | None = None
        self.strayed_at = -math.inf
        self.tools_hint = CacheHint()
        self._on_lost = on_lost
        # The older transport cannot carry the newer versions.
        only_legacy = protocol == "auto" and context.transport.legacy_only
        self._protocol: Protocol = "legacy" if only_legacy else protocol
        self._capabilities: ServerCapabilities | None = None
        self._life = SessionLife()
        self._closing: asyncio.Task[None] | None = None
        if context.http is not None:
            context.http.broken = self.give_up
            context.http.wire = connection.wire
        if context.lines is not None:
            context.lines.on_endless = self.give_up
        self._task = asyncio.create_task(self._run(), name=f"mcp {name}")

    @property
    def alive(self) -> bool:
        """Whether calls can be made."""
        if self._life.state is not SessionState.LIVE:
            return False
        stderr = self.context.stderr
        # Its last output may not have been read yet.
        return stderr is None or stderr.pid is None or not process_ended(stderr.pid)

    @property
    def _pid(self) -> int | None:
        # It arrives on stderr a moment after the start.
        if self.context.stderr:
            return self.context.stderr.pid
        return None

    @property
    def stderr_tail(self) -> str:
        """The server's last lines on stderr, cleaned and redacted."""
        if self.context.stderr:
            return self.context.stderr.tail()
        return ""

    async def open(self) -> None:
        """Wait until the handshake has ended."""
        await self._life.wait_for_handshake()

    async def ask(
        self, send: Callable[..., Awaitable[Any]], about: str, /, **arguments: Any
    ) -> Any:
        """Send a request in whose answer the server can ask something first.

        Args:
            send: A method of the SDK's session.
            about: The tool, prompt or URI that the request is about.
            arguments: The method's arguments.

        Returns:
            The result, or None if the request is another program's, which gets the questions.
        """
        forwarded = self.forwarded(about)
        if forwarded is not None:
            return await forwarded.send(send, self.context.redact, **arguments)
        first = await send(**arguments, allow_input_required=True)
        return await self.sdk.answered(first, send, **arguments)

    def forwarded(self, about: str) -> ForwardedRequest | None:
        """Find this task's request if it is another program's and goes on to it as it is."""
        if not self.modern:
            return None
        return forwarded_to(self.name, about)

    async def list_page(self, field: str, cursor: str | None) -> Any:
        """List one page of `tools`, `resources`, `resource_templates`, `prompts` or `skills`."""
        list_page = getattr(self.sdk, f"list_{field}")
        return await list_page(params=PaginatedRequestParams(cursor=cursor) if cursor else None)

    async def all_tools(self) -> list[Tool]:
        """List the server's tools, and remember its caching hint."""
        tools, self.tools_hint = await all_pages(
            partial(self.list_page, "tools"), "tools", server=self.name, most=MAX_TOOLS
        )
        return tools

    @property
    def invalid_tools(self) -> dict[str, str]:
        """Tools in the last listing whose definition is not valid, each with the reason.

        Neither is redacted.
        """
        return dict(self.sdk.repairs.left_out)

    @property
    def ignored_fields(self) -> dict[str, str]:
        """Fields of the server's messages that are left out or replaced, each with the reason."""
        fields: dict[str, str] = {}
        if self._life.state is SessionState.LIVE:
            for noted in self.sdk.repairs.ignored.values():
                fields.update(noted)
        return fields

    def output_schema(self, tool: str) -> dict[str, Any] | None:
        """Look up a tool's output schema as the server wrote it, or None if it declares none or was
        not listed.
        """
        return self.sdk.output_schemas.get(tool)

    def give_up(self, reason: str | None = None) -> None:
        """End the session because it is broken, although its stream is still open."""
        self.broken_reason = self.broken_reason or reason
        self._cancel_handshake()
        self.stream_ended()

    def stream_ended(self) -> None:
        """End the session, because its message stream has ended."""
        if self._life.end() is SessionState.LIVE:
            self._on_lost(self)

    def _cancel_handshake(self) -> None:
        if self._life.in_handshake:
            self._task.cancel()

    async def fate(self, error: Exception, start: float) -> SessionFate:
        """Find out what became of the session after a request failed, and end it unless it is
        alive.

        Servers lose their sessions when they restart. Few say so as the specification has it, and
        some answer every later request with the same HTTP error, so a session in which a request
        got one is pinged.

        Args:
            error: The request's failure.
            start: When the request was made, on the loop's clock.
        """
        fate = await self._fate(error, start)
        if fate == "forgotten" and self.connection.deadlines:
            await asyncio.wait({self.connection.deadlines.until_empty()}, timeout=OTHERS_SECONDS)
        if fate != "alive":
            reason = None
            if is_answer(error) or is_forgotten(error):
                reason = self.context.explain(clean(error_text(error, self.context.redact)), start)
            self.give_up(reason)
        return fate

    async def _fate(self, error: Exception, start: float) -> SessionFate:
        http = self.context.http
        if http is None or not http.in_session:
            if is_answer(error):
                return "alive"
            return "broken"
        if is_forgotten(error):
            return "forgotten"
        if not is_answer(error):
            return "broken"
        named = says_session_is_lost(str(error))
        if not named and http.status_since(start) is None:
            return "alive"
        if await self._is_known(http):
            return "alive"
        if named:
            return "forgotten"
        return "broken"

    async def _is_known(self, http: ResponseMonitor) -> bool:
        """Ask whether the server still knows the session."""
        start = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(PING_SECONDS):
                await self.sdk.send_request(PingRequest(), EmptyResult)
        except TimeoutError:
            return True
        except Exception as error:
            refused = http.status_since(start) is not None or says_session_is_lost(str(error))
            return is_answer(error) and not refused
        return True

    async def close(self, grace: float = GRACE_SECONDS) -> None:
        """End the session and all its processes, in at most 5 seconds.

        Continues when the caller is cancelled.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(grace))
        await asyncio.shield(self._closing)

    async def _run(self) -> None:
        # The caller for whom this session is opened makes only the first call in it.
        ASKER.set(None)
        watch = asyncio.create_task(self._watch_process())
        try:
            async with self._connected() as session:
                await self.negotiation.agree(session, self._protocol)
                self.sdk = session
                self._capabilities = session.server_capabilities
                self.server_info = ServerInfo.of(session, self.context.redact)
                if self.context.stderr is not None:
                    self.context.stderr.close_writer()
                self._life.handshake_done()
                subscription = asyncio.create_task(self._subscribe())
                try:
                    await self._life.wait_until_over()
                finally:
                    subscription.cancel()
        except asyncio.CancelledError:
            pass
        except Exception as error:
            if not self._life.fail(error):
                logger.debug("A session ended with: %s", error_text(error, self.context.redact))
        finally:
            watch.cancel()
            self._life.fail(ConnectionError(CLOSED))
            stderr = self.context.stderr
            if stderr is not None:
                stderr.close_writer()
                # A server's children survive its clean exit.
                if stderr.pid is not None:
                    await end_group(stderr.pid)
                await stderr.wait_end(0.3)
            self.context.release()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[TolerantSession]:
        """Open the transport, with a session on it."""
        transport = self.context.transport
        session_class: Any = partial(TolerantSession, opener=self)
        extensions: dict[str, Any] = {TASKS_EXTENSION: {}, SKILLS_EXTENSION: {}}
        if self.connection.shows_apps:
            extensions[APPS_EXTENSION] = {"mimeTypes": [APP_MIME_TYPE]}
        async with transport.connect_session(
            transport_options=TransportOptions(session_class=session_class),
            message_handler=self._on_message,
            client_info=Implementation(name="casual-mcp-nb", version=_package_version()),
            # Since 2026-07-28, a server logs nothing without it.
            log_level="debug",
            extensions=extensions,
            result_claims={TASKS_EXTENSION: [TASK_CLAIM]},
            **self.connection.server_requests.callbacks,
        ) as session:
            assert isinstance(session, TolerantSession)
            yield session

    async def _watch_process(self) -> None:
        # The stream ends after the last answer, unless a child keeps the server's stdout open.
        stderr = self.context.stderr
        while stderr is not None:
            await asyncio.sleep(WATCH_SECONDS)
            if stderr.pid is not None and process_ended(stderr.pid):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LAST_ANSWER_SECONDS):
                        await self._life.wait_until_over()
                self.give_up()
                return

    async def _close(self, grace: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CLOSE_SECONDS
        self._life.end()
        self._cancel_handshake()
        await asyncio.wait({self._task}, timeout=grace)
        terminated_at: float | None = None
        while not self._task.done() and loop.time() < deadline:
            terminated_at = self._signal(terminated_at, loop.time())
            await asyncio.wait({self._task}, timeout=POLL_SECONDS)
        if not self._task.done():
            logger.warning(
                "A server could not be closed within %s s; its session is abandoned.", CLOSE_SECONDS
            )
            self._task.cancel()

    def _signal(self, terminated_at: float | None, now: float) -> float | None:
        """Send SIGTERM, or SIGKILL if that was long ago. Return when SIGTERM was sent."""
        if self._pid is None:
            return None
        if terminated_at is None:
            signal_group(self._pid, signal.SIGTERM)
            return now
        if now - terminated_at > KILL_SECONDS:
            signal_group(self._pid, signal.SIGKILL)
        return terminated_at

    async def set_log_level(self, level: str) -> None:
        """Ask for log messages from this severity on, if the server supports it.

        It need not answer.
        """
        if self.modern or "logging" not in self.server_info.capabilities:
            return
        request = SetLevelRequest(params=SetLevelRequestParams(level=level))  # type: ignore[arg-type]
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.sdk.send_request(request, EmptyResult)

    def has_extension(self, name: str) -> bool:
        """Check whether the server declares a protocol extension, on a connection that has
        extensions.
        """
        capabilities = self._capabilities
        return self.modern and capabilities is not None and name in (capabilities.extensions or {})

    def reports_changes(self, kind: ListKind) -> bool:
        """Check whether the server reports changes to a list."""
        return bool(getattr(getattr(self._capabilities, kind, None), "list_changed", False))

    @property
    def modern(self) -> bool:
        """Whether it notifies only subscribers about changes: since 2026-07-28."""
        return self.server_info.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def _subscribe(self) -> None:
        if not self.modern:
            return
        if any(map(self.reports_changes, _LISTS)):
            with contextlib.suppress(Exception):
                async with listen(
                    self.sdk,
                    tools_list_changed=self.reports_changes("tools"),
                    resources_list_changed=self.reports_changes("resources"),
                    prompts_list_changed=self.reports_changes("prompts"),
                ):
                    await self._life.wait_until_over()

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            await self.connection.tools_changed()
        elif isinstance(message, ResourceListChangedNotification | PromptListChangedNotification):
            self.connection.offers_changed()
        elif isinstance(message, ResourceUpdatedNotification):
            self.connection.resource_updated(str(message.params.uri))

    async def unreadable(self, error: Exception) -> None:
        """Keep the first output that is no message, which programs print by mistake."""
        if isinstance(error, ValidationError):
            self.strayed_at = asyncio.get_running_loop().time()
            if not self.stray_output:
                self.stray_output = clean(self.context.redact(input_of(error)))[:200]


@cache
def _package_version() -> str:
    # Reading the metadata takes a millisecond, for each connection.
    try:
        return importlib.metadata.version("casual-mcp-nb")
    except importlib.metadata.PackageNotFoundError:
        return "0"
