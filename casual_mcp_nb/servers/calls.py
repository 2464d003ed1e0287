"""Call one server's tools: the request, its result and what its failures mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from casual_mcp_nb.base.content import OnProgress, ToolResult
from casual_mcp_nb.base.schema import fits_plainly
from casual_mcp_nb.base.secret import Secrets
from casual_mcp_nb.errors import ToolCallError, ToolTimeoutError, shown
from casual_mcp_nb.isolation.worker import GaveUp, Worker
from casual_mcp_nb.servers._errors import died_error, refused_error, root_cause, timeout_error
from casual_mcp_nb.servers.convert import has_structured, is_small, result_from_mcp, with_note
from casual_mcp_nb.servers.deadlines import CallDeadline, CallDeadlines, CallLimits, CallTimeout
from casual_mcp_nb.servers.lifecycle import Lifecycle, cannot_ask
from casual_mcp_nb.servers.redaction import Redactor
from casual_mcp_nb.servers.server_requests import ServerRequests
from casual_mcp_nb.servers.tasks import OnTask, ServerTasks

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from casual_mcp_nb.servers._task_messages import CreatedTask
    from casual_mcp_nb.servers.mcp_session import McpSession

CHECK_SECONDS = 2.0

MAX_REASON = 500


class OutputNote(NamedTuple):
    """What a model has to know of a result that does not fit its tool's output schema, or that was
    not checked.

    Args:
        text: The note.
        failed: Whether the call counts as failed.
    """

    text: str
    failed: bool


NO_STRUCTURED = OutputNote(
    "The tool has an output schema, and its result has no structured content.", True
)


class OutputCheck:
    """Checks one server's results. A check has a time limit."""

    def __init__(self, worker: Worker, redact: Callable[[str], str], seconds: float) -> None:
        self._worker = worker
        self._redact = redact
        self._seconds = min(seconds, CHECK_SECONDS)
        self._given_up: dict[str, str] = {}

    async def note(self, schema: Any, value: Any) -> OutputNote | None:
        """Compare a value with the schema. Return None if it fits."""
        if fits_plainly(schema, value):
            return None
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
                return self._mismatch(answer)
        return OutputNote(
            "The structured content was not checked against the tool's own output schema:"
            f" {self._given_up[key]}.",
            False,
        )

    def _mismatch(self, answer: Mapping[str, Any] | None) -> OutputNote | None:
        if answer is None:
            return None
        if "invalid" in answer:
            reason = self._redact(answer["invalid"])[:MAX_REASON]
            return OutputNote(f"The tool's own output schema is not valid: {reason}", True)
        reason = f"at {self._redact(answer['path'])}: {self._redact(answer['message'])}"
        return OutputNote(
            "The structured content does not fit the tool's own output schema:"
            f" {reason[:MAX_REASON]}",
            True,
        )


class CallRepeatable(Exception):
    """A call may be made again: its server had forgotten the session, or can ask its question after
    the older handshake.
    """


@dataclass
class ServerCalls:
    """Calls one server's tools.

    See https://modelcontextprotocol.io/specification/2025-11-25/server/tools#calling-tools.

    Args:
        configured: Whether the server has an entry in a config, which advice can name.
        outputs: Checks results against the tools' output schemas.
        deadlines: Those of the server's running calls.
        repeatable: Checks whether a call of a tool may be made again after it failed at a question.
    """

    server: str
    configured: bool
    lifecycle: Lifecycle
    limits: CallLimits
    server_requests: ServerRequests
    outputs: OutputCheck
    redact: Redactor
    secrets: Secrets
    deadlines: CallDeadlines
    repeatable: Callable[[str], bool]

    def __post_init__(self) -> None:
        self.tasks = ServerTasks(
            self.server,
            self.lifecycle,
            self.limits,
            self.server_requests,
            self.redact,
            self.secrets,
            self._converted,
        )

    async def send_call(
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
        session = await self._session()
        start = asyncio.get_running_loop().time()
        try:
            raw = await self._request(session, name, arguments, on_progress, meta)
        except CallTimeout as limit:
            raise self._timed_out(session, name, limit, start) from None
        except Exception as error:
            fate = await session.fate(error, start)
            if fate == "forgotten" and not again:
                raise CallRepeatable from None
            if not again:
                await self._check_question(name, [root_cause(error, self.secrets)], session)
            failure = await self._failure(name, error, session, start)
        else:
            return await self._result(session, name, raw, on_task, again)
        # Raised out here: as its context, the library's error would carry what the server sent,
        # with secrets in it.
        raise failure

    async def _session(self) -> McpSession:
        """Get the session for a call, and open one if there is none."""
        if self.lifecycle.requested_mode is not None and not self.deadlines:
            # The change waits for other running calls, because it would end them.
            await self.lifecycle.change_mode()
        session = self.lifecycle.session
        if session is None or not self.lifecycle.alive:
            return await self.lifecycle.ensure()
        return session

    async def _request(
        self,
        session: McpSession,
        name: str,
        arguments: dict[str, Any],
        on_progress: OnProgress | None,
        meta: Mapping[str, Any] | None,
    ) -> Any:
        """Send a call within its time limits, and answer what the server asks before its result.

        Returns:
            The result, or the task that the call became, or None if the caller's client has to
            answer something first.
        """
        async with CallDeadline(self.limits, self.deadlines) as deadline:

            async def reset_and_report(
                progress: float, total: float | None, message: str | None
            ) -> None:
                deadline.reset()
                if on_progress is not None:
                    on_progress(
                        progress, total, session.context.redact(message) if message else message
                    )

            send = partial(
                session.sdk.call_tool,
                name,
                arguments,
                meta=dict(meta) if meta else None,
                progress_callback=reset_and_report,
                allow_claimed=True,
            )
            if session.forwarded(name) is not None:
                return await session.ask(send, name)
            # Most servers ask nothing, so the way there is short.
            raw = await send(allow_input_required=True)
            return await session.sdk.answered(raw, send)

    def _timed_out(
        self, session: McpSession, tool: str, limit: CallTimeout, start: float
    ) -> ToolTimeoutError:
        stray = session.stray_output if session.strayed_at >= start else None
        stalled = session.context.lines.stalled if session.context.lines else None
        if stalled is not None:
            # Later output would be read as part of it.
            session.give_up(stalled)
        return timeout_error(self.server, tool, limit.seconds, limit.field, stray, stalled)

    async def _result(
        self, session: McpSession, name: str, raw: Any, on_task: OnTask | None, again: bool
    ) -> ToolResult:
        """Read the answer to a call, see `_request`. A failure gets advice if there is some."""
        from casual_mcp_nb.servers._task_messages import CreatedTask

        if raw is None:
            return ToolResult()
        if isinstance(raw, CreatedTask):
            return await self._as_task(name, raw, on_task)
        result = await self._converted(raw, session.output_schema(name))
        if not result.is_error:
            return result
        texts = [part.text for part in result.content]
        if not again:
            await self._check_question(name, texts, session)
        advice = self._advice(texts, session)
        return with_note(result, advice) if advice else result

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
        note: OutputNote | None = None
        if schema is not None and not raw.is_error:
            note = NO_STRUCTURED
            if has_structured(raw):
                note = await self.outputs.note(schema, raw.structured_content)
        # A large result would hold the event loop.
        result = (
            self._redacted(raw) if is_small(raw) else await asyncio.to_thread(self._redacted, raw)
        )
        return result if note is None else with_note(result, note.text, failed=note.failed)

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
        if not self.server_requests.can_ask or not self.repeatable(tool):
            return
        version = session.server_info.protocol_version
        if cannot_ask(texts, version) and self.lifecycle.request_legacy_mode():
            text = (
                f"Tool {shown(tool)} asks a question, which this server cannot do on a connection"
                f" of protocol {version}."
            )
            self.server_requests.warn(
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
            self.server_requests.warn(advice)
            return f"{advice} The tool's actions before its question are not undone."
        if self.configured:
            return f"{problem} Set servers.{self.server}.protocol to legacy."
        return problem
