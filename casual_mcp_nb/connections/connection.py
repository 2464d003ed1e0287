"""One MCP server as a client sees it: connected, watched, called, made anew after a death, closed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.connections._deadlines import CallDeadlines, CallLimits, CallTimeout, OnProgress, limited_call
from casual_mcp_nb.connections._lifecycle import Hooks, Lifecycle
from casual_mcp_nb.connections._log import keep_out_of_log, logger
from casual_mcp_nb.connections._output import OutputCheck
from casual_mcp_nb.connections._reasons import died_error, no_answer, refused_error, root_cause, timeout_error
from casual_mcp_nb.connections._redactor import Redactor, secrets_of, shown_address
from casual_mcp_nb.connections._ways import cannot_ask
from casual_mcp_nb.connections.cache import DEFAULT_TTL, ToolCache
from casual_mcp_nb.connections.convert import (
    has_structured,
    is_answer,
    is_forgotten,
    is_small,
    result_from_mcp,
    tools_from_mcp,
)
from casual_mcp_nb.connections.handlers import Handlers, client_options, tell, tell_refused
from casual_mcp_nb.errors import ToolCallError, UsageError, shown
from casual_mcp_nb.isolation import Worker
from casual_mcp_nb.types.content import ContentPart, ToolResult
from casual_mcp_nb.types.nesting import MAX_DEPTH, is_too_deep
from casual_mcp_nb.types.secret import Secrets
from casual_mcp_nb.types.server import ServerConfig
from casual_mcp_nb.types.session import ServerStatus
from casual_mcp_nb.types.tool import ToolSpec

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from mcp_types import CallToolResult, Tool

    from casual_mcp_nb.connections._mcp_session import McpSession

MAX_INSTRUCTIONS = 10_000
MAX_TOOLS_ON_LOOP = 1_000


class _SessionForgotten(Exception):
    """The server does not know the session any more, and so has not run the call."""


class Connection:
    """One server. Each connect makes a new session, which one task owns; a dead one is made anew once, at its next use.

    Args:
        name: The server's name.
        config: Its config; None for a server that is handed in.
        server: A server that lives in this process.
        handlers: What the server may ask of us or tell us.
        cache_ttl: How long its list of tools is fresh, in seconds; None for ever.
        secrets: What is masked in all that it sends, beside the secrets of its own config.
        worker: The process in which results are checked; None for one of its own.
    """

    def __init__(
        self,
        name: str,
        config: ServerConfig | None = None,
        *,
        server: FastMCP[Any] | None = None,
        handlers: Handlers | None = None,
        cache_ttl: float | None = DEFAULT_TTL,
        secrets: Collection[str] = (),
        worker: Worker | None = None,
    ) -> None:
        self.name = name
        self.config = config
        self.cache = ToolCache(self._fetch, cache_ttl)
        self._handlers = handlers or Handlers()
        self._limits = CallLimits.of(config)
        self._secrets = secrets_of(config).union(secrets)
        self._mask = Redactor((config.high_confidence_secrets() if config else Secrets()).union(secrets))
        keep_out_of_log(self._secrets)
        self._own_worker = Worker() if worker is None else None
        self._outputs = OutputCheck(worker or self._own_worker or Worker(), self._mask, self._limits.call)
        self._list_until: float | None = None
        self._clocks = CallDeadlines()
        options = client_options(self._handlers, name, self._mask, self._clocks)
        hooks = Hooks(options, self._list_first, self._changed, self._tools_changed, self._refused)
        self._lifecycle = Lifecycle(name, config, server, self._limits.init, hooks, self._secrets)

    @property
    def status(self) -> ServerStatus:
        """How the server is now."""
        now, listing = self._lifecycle, self.cache.last_error
        link, error = now.link, now.error
        if error is None and listing is not None and now.state == "ready":
            error = f"its tools could not be listed: {root_cause(listing, self._secrets)}"
        return ServerStatus(
            name=self.name,
            state=now.state,
            error=error,
            stderr_tail=link.stderr_tail if link else "",
            tools=len(self.tools),
            tokens=self.cache.tokens if self.tools else 0,
            seconds=now.seconds,
            transport=now.way.transport,
            address=shown_address(self.config, self._secrets),
            protocol_version=link.greeting.protocol_version if link else None,
            version=link.greeting.version if link else None,
            instructions=link.greeting.instructions[:MAX_INSTRUCTIONS] if link else "",
            capabilities=link.greeting.capabilities if link else (),
            extensions=link.greeting.extensions if link else (),
            notes=now.notes,
            app_only=tuple(tool.name for tool in self.tools if tool.restriction == "app only"),
            task_only=tuple(tool.name for tool in self.tools if tool.restriction == "task only"),
        )

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools as last listed, unless the server could not be started or is closed."""
        now = self._lifecycle
        usable = now.state in ("ready", "starting") or (now.state == "failed" and now.startable)
        return self.cache.tools if usable else ()

    @property
    def settled(self) -> bool:
        """Whether `ensure` has nothing to wait for: the server is ready, or its start has failed.

        Raises:
            ClosedError: The connection was closed.
        """
        now = self._lifecycle
        return now.alive or (now.state == "failed" and not now.startable)

    @property
    def fresh(self) -> bool:
        """Whether `refresh` has nothing to list. Raises as `settled` does."""
        return self.cache.fresh or not self._lifecycle.alive

    async def connect(self) -> None:
        """Start the server, shake hands, and list its tools, within `init_timeout`. Nothing happens when it is ready.

        A listing that fails leaves it ready without tools; the status says why. A caller that is cancelled ends the start.

        Raises:
            ConnectError: It could not be connected; the message has the reason and the end of its stderr.
            ClosedError: The connection was closed.
        """
        await self._lifecycle.connect()

    async def ensure(self) -> None:
        """Connect what was never started or has died since; wait for a start that is under way; else do nothing.

        Raises:
            ConnectError: It could not be connected, now or before: only `connect` and `reconnect` try again after a failure.
            ClosedError: The connection was closed.
        """
        await self._lifecycle.ensure()

    async def reconnect(self) -> None:
        """End the session, if there is one, and make a new one.

        Raises:
            ConnectError: It could not be connected.
            ClosedError: The connection was closed.
        """
        await self._lifecycle.reconnect()

    async def close(self) -> None:
        """End the session and all its processes, in at most 5 seconds. Twice is harmless; use afterwards is an error."""
        await self._lifecycle.close()
        if self._own_worker is not None:
            self._own_worker.close()

    def abandon(self) -> None:
        """Count as closed, in a forked child: the process and the streams are the parent's."""
        self._lifecycle.abandon()

    async def list_tools(self) -> list[ToolSpec]:
        """The server's tools, from the cache while that is fresh.

        Raises:
            ConnectError: The server is not connected and could not be.
            ToolCallError: It did not list its tools, and there is no older list.
        """
        await self._lifecycle.ensure()
        try:
            return list(await self.refresh())
        except Exception as error:
            text = f"Server {shown(self.name)} did not list its tools: {root_cause(error, self._secrets)}."
            raise ToolCallError(text, server=self.name, retryable=True) from None

    async def refresh(self, force: bool = False) -> tuple[ToolSpec, ...]:
        """The tools of a server that is ready, listed anew where the cache is stale; of one that is not, the last known.

        Args:
            force: List anew in any case.

        Raises:
            Exception: What the listing failed with, when there is no older list.
        """
        if not self._lifecycle.alive:
            return self.tools
        version, error = self.cache.version, self.cache.last_error
        try:
            return await self.cache.get_tools(force)
        finally:
            if (version, error) != (self.cache.version, self.cache.last_error):
                self._changed()

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        on_progress: OnProgress | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Call a tool, once; a second time only where the server has forgotten the session and so cannot have run it.

        A caller that is cancelled cancels the request at the server and leaves the connection usable.

        Args:
            name: The tool's own name.
            arguments: Its arguments.
            on_progress: Called with progress, total and message each time the server reports progress.
            meta: Metadata for the server, sent as the request's `_meta`.

        Returns:
            The result, also one that the tool marks as an error.

        Raises:
            ToolTimeoutError: No result within `call_timeout` since the last progress, or within `total_timeout`.
            ToolCallError: The server died in the call, or answered with an error or with something unreadable.
            ConnectError: The server is not connected and could not be.
            UsageError: The arguments are nested too deep to be sent.
        """
        if is_too_deep(dict(arguments)):
            raise UsageError(f"The arguments of {shown(name)} are nested more than {MAX_DEPTH} levels deep.", tool=name)
        try:
            return await self._call_once(name, arguments, on_progress, meta)
        except _SessionForgotten:
            return await self._call_once(name, arguments, on_progress, meta, again=True)

    async def _call_once(
        self,
        name: str,
        arguments: Mapping[str, Any],
        on_progress: OnProgress | None,
        meta: Mapping[str, Any] | None,
        again: bool = False,
    ) -> ToolResult:
        if self._lifecycle.change_wished and not self._clocks:
            # With a call under way the change waits: it would end it.
            await self._lifecycle.change_way()
        link = await self._lifecycle.ensure()
        start = asyncio.get_running_loop().time()
        try:
            raw = await limited_call(link, self._limits, self._clocks, name, arguments, on_progress, meta)
        except CallTimeout as limit:
            stray = link.stray_output if link.strayed_at >= start else None
            stalled = link.route.lines.stalled if link.route.lines else None
            if stalled is not None:
                # What it sends next would be read as more of that message.
                link.give_up(stalled)
            raise timeout_error(self.name, name, limit.seconds, limit.field, stray, stalled) from None
        except Exception as error:
            if not again and link.route.http and is_forgotten(error, link.route.http.status_since(start)):
                link.give_up()
                raise _SessionForgotten from None
            failure = await self._call_error(name, error, link, start)
        else:
            result = await self._received(raw, link.output_schema(name))
            advice = self._advice((part.text for part in result.content), link) if result.is_error else ""
            return replace(result, content=(*result.content, ContentPart("text", advice))) if advice else result
        # Raised out here: as a context, the library's error would carry what the server said, with secrets in it.
        raise failure

    async def _received(self, raw: CallToolResult, schema: Any) -> ToolResult:
        """A result as a noun, checked against its output schema and masked. A large one is gone through on another thread."""
        note, breach = "", False
        if schema is not None and not raw.is_error:
            if has_structured(raw):
                note, breach = await self._outputs.breach(schema, raw.structured_content)
            else:
                note, breach = "The tool has an output schema, and its result has no structured content.", True
        result = self._noun(raw) if is_small(raw) else await asyncio.to_thread(self._noun, raw)
        if not note:
            return result
        return replace(result, content=(*result.content, ContentPart("text", note)), is_error=result.is_error or breach)

    def _noun(self, raw: CallToolResult) -> ToolResult:
        return self._mask.result(result_from_mcp(raw))

    async def _list_first(self, deadline: float) -> None:
        """List within what is left of the start's limit. What goes wrong here is no failure of the server."""
        self._list_until = deadline
        await self.cache.invalidate()
        try:
            await self.cache.get_tools()
        except Exception as error:
            logger.warning("Server %s did not list its tools: %s", shown(self.name), root_cause(error, self._secrets))
        finally:
            self._list_until = None

    async def _fetch(self) -> list[ToolSpec]:
        link = self._lifecycle.link
        if link is None or not link.alive:
            raise ConnectionError("it is not connected")
        try:
            async with asyncio.timeout_at(self._list_until or asyncio.get_running_loop().time() + self._limits.init):
                listed = await link.all_tools()
        except TimeoutError:
            setting = f"servers.{self.name}.init_timeout" if self.config else ""
            raise ConnectionError(no_answer(f"{self._limits.init:g} s", setting)) from None
        if len(listed) < MAX_TOOLS_ON_LOOP:
            return [self._mask.tool(tool) for tool in tools_from_mcp(listed, self.name)]
        return await asyncio.to_thread(_many_from_mcp, listed, self.name, self._mask)

    async def _call_error(self, tool: str, error: Exception, link: McpSession, start: float) -> ToolCallError:
        if not is_answer(error):
            link.give_up()
        reason = link.broken_by or link.route.better(root_cause(error, self._secrets), start)
        if link.alive:
            return refused_error(self.name, tool, reason, self._advice((reason,), link))
        if link.route.stderr is not None:
            await link.route.stderr.wait_end(0.3)
        return died_error(self.name, tool, reason, link.stderr_tail)

    def _advice(self, texts: Iterable[str], link: McpSession) -> str:
        """What to know of a call that failed with these texts, where the protocol is at fault; else nothing."""
        version = link.greeting.protocol_version
        if not cannot_ask(texts, version):
            return ""
        why = f"The tool asks a question, which this server cannot do on a connection of protocol {version}."
        if self._lifecycle.wish_for_questions():
            advice = f"{why} From the next call on it is connected by the older handshake, on which it can ask."
            tell(self._handlers, self.name, advice)
            return f"{advice} What the tool did before its question is not undone."
        return f"{why} Set servers.{self.name}.protocol to legacy." if self.config else why

    async def _tools_changed(self) -> None:
        await self.cache.invalidate()
        self._changed()

    def _refused(self, method: str) -> None:
        tell_refused(self._handlers, self.name, self._mask(method))

    def _changed(self) -> None:
        if self._handlers.changed is not None:
            try:
                self._handlers.changed()
            except Exception:
                logger.exception("The handler for changes of servers failed.")


def _many_from_mcp(listed: Sequence[Tool], server: str, mask: Redactor) -> list[ToolSpec]:
    """As `tools_from_mcp`, on another thread, with the hashes that the cache asks for next: both would hold the loop."""
    tools = [mask.tool(tool) for tool in tools_from_mcp(listed, server)]
    for tool in tools:
        _ = tool.digest
    return tools
