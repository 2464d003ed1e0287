"""Call one server's tools within time limits, check results against the output schema, and describe failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.schema import fits_plainly
from casual_mcp_nb.base.secret import Secrets
from casual_mcp_nb.errors import ToolCallError, shown
from casual_mcp_nb.isolation.worker import GaveUp, Worker
from casual_mcp_nb.servers._errors import (
    Redactor,
    died_error,
    is_answer,
    is_forgotten,
    refused_error,
    root_cause,
    timeout_error,
)
from casual_mcp_nb.servers.convert import has_structured, is_small, result_from_mcp
from casual_mcp_nb.servers.handlers import Handlers
from casual_mcp_nb.servers.lifecycle import cannot_ask
from casual_mcp_nb.servers.running_calls import CallDeadline, CallDeadlines, CallLimits, CallTimeout, OnProgress, forwarded_to

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from casual_mcp_nb.servers.lifecycle import Lifecycle
    from casual_mcp_nb.servers.mcp_session import McpSession


CHECK_SECONDS = 2.0
MAX_REASON = 500


class OutputCheck:
    """Checks the results of one server. A check has a time limit."""

    def __init__(self, worker: Worker, redact: Callable[[str], str], seconds: float) -> None:
        self._worker = worker
        self._redact = redact
        self._seconds = min(seconds, CHECK_SECONDS)
        self._given_up: dict[str, str] = {}

    async def problem(self, schema: Any, value: Any) -> tuple[str, bool]:
        """Describe the mismatch between a value and the schema, and tell whether the value is invalid.

        A message for a valid one says why it was not checked; without a mismatch it is empty.
        """
        if fits_plainly(schema, value):
            return "", False
        key = json.dumps(schema)
        if key not in self._given_up:
            try:
                answer = await self._worker.call("validate", {"schema": key, "value": value}, self._seconds)
            except GaveUp as gave_up:
                # A schema that took too long once is not tried again: each call would wait for it.
                self._given_up[key] = str(gave_up)
            else:
                if answer is None:
                    return "", False
                if "invalid" in answer:
                    return f"The tool's own output schema is not valid: {self._redact(answer['invalid'])[:MAX_REASON]}", True
                reason = f"at {self._redact(answer['path'])}: {self._redact(answer['message'])}"[:MAX_REASON]
                return f"The structured content does not fit the tool's own output schema: {reason}", True
        return f"The structured content was not checked against the tool's own output schema: {self._given_up[key]}.", False


class CallRepeatable(Exception):
    """A call may be made again: its server had forgotten the session, or can ask its question after the older handshake."""


@dataclass
class ServerCalls:
    """Calls the tools of one server.

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

    async def run(
        self,
        name: str,
        arguments: dict[str, Any],
        on_progress: OnProgress | None,
        meta: Mapping[str, Any] | None,
        again: bool = False,
    ) -> ToolResult:
        """Call a tool once, see `Connection.call`. CallRepeatable is a failure after which it may be called again, now."""
        if self.lifecycle.requested_mode is not None and not self.deadlines:
            # The change waits for other running calls, because it would end them.
            await self.lifecycle.change_mode()
        lifecycle = self.lifecycle
        session = lifecycle.session if lifecycle.alive else None
        if session is None:
            session = await lifecycle.ensure()
        from mcp_types import CallToolResult

        start = asyncio.get_running_loop().time()
        try:
            with CallDeadline(self.limits, self.deadlines) as deadline:

                async def reset_and_report(progress: float, total: float | None, message: str | None) -> None:
                    deadline.reset()
                    if on_progress is not None:
                        on_progress(progress, total, session.context.redact(message) if message else message)

                client: Any = session.client
                given: dict[str, Any] = {"name": name, "arguments": arguments, "meta": dict(meta) if meta else None}
                request = {**given, "progress_callback": reset_and_report}
                forwarded = forwarded_to(self.server, name)
                if forwarded is not None and session.modern:
                    raw = await forwarded.send(client.session.send_call, self.redact, **request)
                    if raw is None:
                        return ToolResult()
                else:
                    raw = await client.session.send_call(**request, allow_input_required=True, allow_claimed=True)
                    if not isinstance(raw, CallToolResult):
                        # fastmcp answers a server's questions, and reads the results of extensions.
                        client.session.first_answer = raw
                        raw = await client.call_tool_mcp(**given, progress_handler=reset_and_report)
        except CallTimeout as limit:
            stray = session.stray_output if session.strayed_at >= start else None
            stalled = session.context.lines.stalled if session.context.lines else None
            if stalled is not None:
                # Later output would be read as part of that message.
                session.give_up(stalled)
            raise timeout_error(self.server, name, limit.seconds, limit.field, stray, stalled) from None
        except Exception as error:
            if not again and session.context.http and is_forgotten(error, session.context.http.status_since(start)):
                session.give_up()
                raise CallRepeatable from None
            if not again:
                await self._check_question(name, [root_cause(error, self.secrets)], session)
            failure = await self._failure(name, error, session, start)
        else:
            result = await self._converted(raw, session.output_schema(name))
            if not result.is_error:
                return result
            texts = [part.text for part in result.content]
            if not again:
                await self._check_question(name, texts, session)
            advice = self._advice(texts, session)
            return replace(result, content=(*result.content, ContentPart("text", advice))) if advice else result
        # Raised out here: as its context, the library's error would carry what the server sent, with secrets in it.
        raise failure

    async def _converted(self, raw: CallToolResult, schema: Any) -> ToolResult:
        """Check a result against its output schema, convert and redact it."""
        note, invalid = "", False
        if schema is not None and not raw.is_error:
            if has_structured(raw):
                note, invalid = await self.outputs.problem(schema, raw.structured_content)
            else:
                note, invalid = "The tool has an output schema, and its result has no structured content.", True
        # A large result would hold the event loop.
        result = self._redacted(raw) if is_small(raw) else await asyncio.to_thread(self._redacted, raw)
        if not note:
            return result
        return replace(result, content=(*result.content, ContentPart("text", note)), is_error=result.is_error or invalid)

    def _redacted(self, raw: CallToolResult) -> ToolResult:
        return self.redact.result(result_from_mcp(raw))

    async def _failure(self, tool: str, error: Exception, session: McpSession, start: float) -> ToolCallError:
        if not is_answer(error):
            session.give_up()
        reason = session.broken_reason or session.context.explain(root_cause(error, self.secrets), start)
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
            text = f"Tool {shown(tool)} asks a question, which this server cannot do on a connection of protocol {version}."
            self.handlers.warn(self.server, f"{text} It is connected by the older handshake, and the tool is called again.")
            if self.deadlines:
                # To reconnect would end the other calls that run.
                await self.deadlines.until_empty()
            raise CallRepeatable from None

    def _advice(self, texts: Iterable[str], session: McpSession) -> str:
        """Choose advice for a call that failed with these messages, if the protocol version was the cause."""
        version = session.server_info.protocol_version
        if not cannot_ask(texts, version):
            return ""
        problem = f"The tool asks a question, which this server cannot do on a connection of protocol {version}."
        if self.lifecycle.request_legacy_mode():
            advice = f"{problem} From the next call on it is connected by the older handshake, on which it can ask."
            self.handlers.warn(self.server, advice)
            return f"{advice} The tool's actions before its question are not undone."
        return f"{problem} Set servers.{self.server}.protocol to legacy." if self.configured else problem
