"""Turn a turn's events into OpenTelemetry's spans and metrics.

Importing this package does not import OpenTelemetry. A new `OpenTelemetry` does. The names are
those of https://github.com/open-telemetry/semantic-conventions-genai: `gen_ai.*`, and `mcp.*` for
calls that servers run. Other names begin with `casual_mcp_nb.`.

Spans are made of the events, with the times that the trace has: spans around the calls in the engine
would be a second bookkeeping, and would have to be right for stops, retries, nested calls and replays
again. Events are emitted in the task that does the work, so a span becomes the current one there, and
the spans of the MCP SDK and of instrumented provider SDKs are its children.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from casual_mcp_nb.base.iterables import drop_none
from casual_mcp_nb.base.secret import redacted
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.event import (
    SYNTHETIC,
    UNKNOWN,
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    ModelRetry,
    ModelWait,
    QuestionAnswered,
    QuestionAsked,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolsSearched,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import MissingDependencyError, install

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram, Meter, MeterProvider
    from opentelemetry.trace import Span, SpanKind, Tracer, TracerProvider

    from casual_mcp_nb.base.config import ModelConfig


MAX_TEXT = 4_000
MAX_MESSAGES = 50
"""How many of a request's messages are recorded: the last ones."""
MAX_JSON = 100_000
"""How many characters a list of items may have. If it has more, its first items are left out, so
that the rest stays JSON.
"""


@dataclass(frozen=True)
class Content:
    """Writes content for attributes, without secrets.

    Args:
        mask: Masks the secrets in a text.
    """

    mask: Callable[[str], str]

    def text(self, text: str) -> str:
        """Cut a long text to its beginning."""
        # Masked first, because half a secret would not be recognized.
        masked = self.mask(text)
        if len(masked) <= MAX_TEXT:
            return masked
        return f"{masked[:MAX_TEXT]} [...]"

    def messages(self, messages: Sequence[ChatMessage], finish_reason: str | None = None) -> str:
        """Format messages as JSON, without system messages.

        Args:
            messages: The messages, of which the last ones are kept.
            finish_reason: Why a model's answer ended, for answers.
        """
        sent = [message for message in messages if message.role != "system"]
        items: list[dict[str, Any]] = []
        for message in sent[-MAX_MESSAGES:]:
            item = self._message(message)
            if finish_reason is not None:
                item["finish_reason"] = finish_reason
            items.append(item)
        return _fitting(items)

    def instructions(self, messages: Iterable[ChatMessage]) -> str:
        """Format the system messages as JSON."""
        parts: list[dict[str, Any]] = []
        for message in messages:
            if message.role == "system":
                parts += self._texts(message.content)
        return _fitting(parts)

    def definitions(self, definitions: Iterable[Mapping[str, Any]]) -> str:
        """Format the tool definitions as JSON."""
        items: list[dict[str, Any]] = []
        for definition in definitions:
            description = self.text(definition["description"])
            items.append({"type": "function", **definition, "description": description})
        return self.mask(_fitting(items))

    def arguments(self, arguments: dict[str, Any] | str) -> str:
        """Format a call's arguments as JSON. Arguments that are no JSON are already a text."""
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False, default=str)
        return self.text(arguments)

    def _message(self, message: ChatMessage) -> dict[str, Any]:
        if message.role == "tool":
            answer = {
                "type": "tool_call_response",
                "id": message.tool_call_id,
                "response": self.text(str(message.content)),
            }
            return {"role": "tool", "parts": [answer]}
        parts = self._texts(message.content)
        if message.role == "assistant":
            for call in message.tool_calls or ():
                item = {
                    "type": "tool_call",
                    "id": call.id,
                    "name": call.function.name,
                    "arguments": self.text(call.function.arguments),
                }
                parts.append(item)
        return {"role": message.role, "parts": parts}

    def _texts(self, content: Any) -> list[dict[str, Any]]:
        """Convert content parts. An image is only mentioned."""
        if isinstance(content, str):
            content = [content]
        items: list[dict[str, Any]] = []
        for part in content or ():
            if isinstance(part, str):
                text = part
            elif part.type == "text":
                text = part.text
            else:
                text = f"[{part.type}]"
            if text:
                items.append({"type": "text", "content": self.text(text)})
        return items


def _fitting(items: list[Any]) -> str:
    """Format a list as JSON, without its first items if it is too long."""
    written = [json.dumps(item, ensure_ascii=False, default=str) for item in items]
    size = sum(map(len, written))
    while written and size > MAX_JSON:
        size -= len(written.pop(0))
    return f"[{', '.join(written)}]"


PROVIDERS = {"openai-responses": "openai", "gemini": "gcp.gemini", "google-genai": "gcp.gemini"}
"""The conventions' names for providers that have another one here."""

_REQUEST_OPTIONS = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "max_tokens": "gen_ai.request.max_tokens",
    "seed": "gen_ai.request.seed",
    "stop": "gen_ai.request.stop_sequences",
}
_DURATIONS = (
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.28,
    2.56,
    5.12,
    10.24,
    20.48,
    40.96,
    81.92,
)
_TOKENS = tuple(4**power for power in range(14))
_TOOL_ERRORS = {
    "error": "tool_error",
    "timeout": "timeout",
    "denied": "denied",
    "unknown": "unknown",
}

Attributes = dict[str, Any]


@dataclass(frozen=True)
class Instruments:
    """The metrics, with the buckets that the conventions recommend."""

    tokens: Histogram
    chat: Histogram
    tool: Histogram
    agent: Histogram

    @classmethod
    def of(cls, meter: Meter) -> Self:
        """Create a meter's instruments."""

        def durations(name: str, text: str) -> Histogram:
            return meter.create_histogram(
                name, "s", text, explicit_bucket_boundaries_advisory=_DURATIONS
            )

        return cls(
            meter.create_histogram(
                "gen_ai.client.token.usage",
                "{token}",
                "Number of input and output tokens used.",
                explicit_bucket_boundaries_advisory=_TOKENS,
            ),
            durations("gen_ai.client.operation.duration", "GenAI operation duration."),
            durations("gen_ai.execute_tool.duration", "Duration of a tool call."),
            durations("gen_ai.invoke_agent.duration", "Duration of a turn."),
        )


@dataclass(frozen=True)
class TelemetrySink:
    """Where spans and metrics go, and what they include.

    Attributes:
        agent: The agent's name in the spans.
        content: Writes messages, definitions, arguments and results, or None to leave them out.
        mask: Masks the secrets in a text.
        model_of: Returns a model in the config by its name, or None.
        conversation_id: Returns the conversation's id, or None.
    """

    tracer: Tracer
    instruments: Instruments
    agent: str
    content: Content | None
    mask: Callable[[str], str]
    model_of: Callable[[str], ModelConfig | None]
    conversation_id: Callable[[], str | None]


@dataclass
class _Open:
    """A span that has not ended.

    Attributes:
        span: The span.
        began: When it began, in seconds since the turn's beginning.
        before: The context to return to at its end.
        labels: The attributes of its metric.
        first_text: When the first text arrived, for a model call.
    """

    span: Span
    began: float
    before: Context
    labels: Attributes
    first_text: float | None = None


class TurnSpans:
    """One turn's spans.

    A span is current in the task that emitted its event. Work in that task, such as a request to an
    MCP server, becomes its child.
    """

    def __init__(self, recording: TelemetrySink, started: TurnStarted) -> None:
        from opentelemetry import context
        from opentelemetry.trace import SpanKind

        self._recording = recording
        self._began = time.time() - started.at
        if started.began is not None:
            self._began = started.began
        self._recorded = started.recorded
        self._steps: dict[int, _Open] = {}
        self._calls: dict[str, _Open] = {}
        self._usage = Counter[str]()
        model = recording.model_of(started.model)
        name = started.model
        if model is not None:
            name = model.model
        self._model = recording.mask(name)
        provider = started.provider or "_OTHER"
        self._common: Attributes = {"gen_ai.provider.name": PROVIDERS.get(provider, provider)}
        if self._model:
            self._common["gen_ai.request.model"] = self._model
        labels = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": recording.agent,
            **self._common,
        }
        attributes = {
            **labels,
            "casual_mcp_nb.discovery": started.discovery,
            "casual_mcp_nb.deferred": started.deferred,
        }
        conversation_id = recording.conversation_id()
        if conversation_id:
            attributes["gen_ai.conversation.id"] = conversation_id
        if recording.content is not None:
            attributes["gen_ai.input.messages"] = recording.content.messages(started.messages)
        self._turn = self._open(
            f"invoke_agent {recording.agent}",
            SpanKind.INTERNAL,
            attributes,
            labels,
            started.at,
            context.get_current(),
        )

    def add(self, event: Event) -> bool:
        """Record an event. Return whether it was the last one."""
        if getattr(event, "step", self._recorded) < self._recorded:
            # The step was taken over from another turn, so no model was asked for it.
            return False
        match event:
            case StepStarted():
                self._step_started(event)
            case TextDelta():
                step = self._steps.get(event.step)
                if step is not None and step.first_text is None:
                    step.first_text = event.at
            case ModelRetry():
                reason = self._recording.mask(event.reason)[:200]
                retry = {"seconds": event.seconds, "reason": reason, "attempt": event.attempt}
                self._happened(self._steps.get(event.step), "retry", event.at, retry)
            case ModelWait():
                reason = self._recording.mask(event.reason)[:200]
                wait = {"seconds": event.seconds, "reason": reason}
                self._happened(self._steps.get(event.step), "wait", event.at, wait)
            case StepFinished():
                self._step_finished(event)
            case ToolStarted():
                self._tool_started(event)
            case ApprovalAsked():
                self._happened(self._calls.get(event.call_id), "approval.asked", event.at)
            case ApprovalAnswered():
                self._happened(self._calls.get(event.call_id), "approval.answered", event.at)
            case QuestionAsked():
                question: Attributes = {"kind": event.kind}
                if event.server:
                    question["server"] = event.server
                self._happened(self._turn, "question.asked", event.at, question)
            case QuestionAnswered():
                self._happened(self._turn, "question.answered", event.at)
            case ToolFinished():
                self._tool_finished(event)
            case ToolsSearched():
                search = {
                    "found": len(event.rows),
                    "loaded": sum(row.newly_loaded for row in event.rows),
                    "offered": event.offered,
                    "ranked_by": event.ranked_by,
                    "call.id": event.call_id,
                }
                self._happened(self._turn, "tools.searched", event.at, search)
            case TurnFinished():
                self._turn_finished(event)
                return True
        return False

    def abandon(self) -> None:
        """End all spans now, because no further event will come."""
        for open_span in (*self._calls.values(), *self._steps.values(), self._turn):
            open_span.span.end()

    def _open(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        labels: Attributes,
        at: float,
        parent: Context,
    ) -> _Open:
        from opentelemetry import context, trace

        span = self._recording.tracer.start_span(
            name, parent, kind, attributes, start_time=self._nanoseconds(at)
        )
        before = context.get_current()
        # The engine runs each call in a separate task, where this stays until the call ends.
        context.attach(trace.set_span_in_context(span, before))
        return _Open(span, at, before, labels)

    def _close(
        self, open_span: _Open, at: float, instrument: Histogram, error: str | None, text: str = ""
    ) -> None:
        from opentelemetry import context
        from opentelemetry.trace import Status, StatusCode, set_span_in_context

        labels = open_span.labels
        if error is not None:
            labels = {**labels, "error.type": error}
            open_span.span.set_attribute("error.type", error)
            open_span.span.set_status(Status(StatusCode.ERROR, text or None))
        instrument.record(
            max(0.0, at - open_span.began), labels, context=set_span_in_context(open_span.span)
        )
        open_span.span.end(self._nanoseconds(at))
        # Not `detach`, which logs an error if a call ends in another task than it began in.
        context.attach(open_span.before)

    def _happened(
        self,
        open_span: _Open | None,
        name: str,
        at: float,
        attributes: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Add an event to a span. Do nothing if the span has ended."""
        if open_span is None:
            return
        named: Attributes = {}
        for key, value in attributes.items():
            if isinstance(value, str):
                value = self._recording.mask(value)
            named[f"casual_mcp_nb.{key}"] = value
        open_span.span.add_event(f"casual_mcp_nb.{name}", named, self._nanoseconds(at))

    def _within(self, open_span: _Open) -> Context:
        from opentelemetry import trace

        return trace.set_span_in_context(open_span.span)

    def _nanoseconds(self, at: float) -> int:
        return int((self._began + at) * 1_000_000_000)

    def _step_started(self, event: StepStarted) -> None:
        from opentelemetry.trace import SpanKind

        labels = {"gen_ai.operation.name": "chat", **self._common}
        attributes = {
            **labels,
            "casual_mcp_nb.step": event.step,
            "casual_mcp_nb.tools": len(event.request.tools),
        }
        options = event.request.options
        for option, name in _REQUEST_OPTIONS.items():
            if options.get(option) is not None:
                attributes[name] = options[option]
        content = self._recording.content
        if content is not None:
            attributes["gen_ai.input.messages"] = content.messages(event.request.messages)
            attributes["gen_ai.system_instructions"] = content.instructions(event.request.messages)
            attributes["gen_ai.tool.definitions"] = content.definitions(event.request.tools)
        name = f"chat {self._model}".rstrip()
        self._steps[event.step] = self._open(
            name, SpanKind.CLIENT, attributes, labels, event.at, self._within(self._turn)
        )

    def _step_finished(self, event: StepFinished) -> None:
        step = self._steps.pop(event.step, None)
        if step is None:
            return
        counts = _counts(event.usage)
        self._usage.update(counts)
        step.span.set_attributes(counts)
        reason = event.finish_reason
        if reason is not None:
            step.span.set_attribute("gen_ai.response.finish_reasons", [reason])
        if event.response_id is not None:
            step.span.set_attribute("gen_ai.response.id", event.response_id)
        if step.first_text is not None:
            step.span.set_attribute(
                "gen_ai.response.time_to_first_chunk", step.first_text - step.began
            )
        content = self._recording.content
        if content is not None:
            answer = content.messages([event.message], reason or "stop")
            step.span.set_attribute("gen_ai.output.messages", answer)
        # The conventions count only what the provider reports.
        if event.usage is not None and event.usage.origin == "reported":
            within = self._within(step)
            for kind in ("input", "output"):
                count = counts.get(f"gen_ai.usage.{kind}_tokens")
                if count is not None:
                    labels = {**step.labels, "gen_ai.token.type": kind}
                    self._recording.instruments.tokens.record(count, labels, context=within)
        self._close(step, event.at, self._recording.instruments.chat, None)

    def _tool_started(self, event: ToolStarted) -> None:
        from opentelemetry.trace import SpanKind

        name = event.wire_name
        if not name and event.tool.server == SYNTHETIC:
            name = event.tool.tool
        name = self._recording.mask(name or UNKNOWN)
        labels = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
        }
        attributes = {**labels, "gen_ai.tool.call.id": event.call_id}
        attributes["casual_mcp_nb.server"] = self._recording.mask(event.tool.server)
        if event.tool.server not in (SYNTHETIC, UNKNOWN, "notebook"):
            attributes["mcp.method.name"] = "tools/call"
        content = self._recording.content
        if content is not None:
            attributes["gen_ai.tool.call.arguments"] = content.arguments(event.arguments)
        around = self._calls.get(event.parent or "", self._turn)
        self._calls[event.call_id] = self._open(
            f"execute_tool {name}",
            SpanKind.INTERNAL,
            attributes,
            labels,
            event.at,
            self._within(around),
        )

    def _tool_finished(self, event: ToolFinished) -> None:
        call = self._calls.pop(event.call_id, None)
        if call is None:
            return
        call.span.set_attribute("casual_mcp_nb.status", event.status)
        error = _TOOL_ERRORS.get(event.status)
        text = ""
        content = self._recording.content
        if content is not None:
            text = content.text(event.text)
            call.span.set_attribute("gen_ai.tool.call.result", text)
        self._close(call, event.at, self._recording.instruments.tool, error, text)

    def _turn_finished(self, event: TurnFinished) -> None:
        error = None
        if event.status == "failed":
            # The text begins with the error's class name.
            error = self._recording.mask(event.error or "").partition(":")[0] or "_OTHER"
        content = self._recording.content
        text = ""
        if error is not None and event.error and content is not None:
            text = content.text(event.error)
        instruments = self._recording.instruments
        for call in self._calls.values():
            self._close(call, event.at, instruments.tool, error)
        for step in self._steps.values():
            step.span.set_attribute("casual_mcp_nb.status", event.status)
            self._close(step, event.at, instruments.chat, error, text)
        self._turn.span.set_attributes({**self._usage, "casual_mcp_nb.status": event.status})
        self._close(self._turn, event.at, instruments.agent, error, text)


def _counts(usage: TokenUsage | None) -> dict[str, int]:
    if usage is None:
        return {}
    counts = {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
    return drop_none(counts)


SCOPE = "casual_mcp_nb"


class OpenTelemetry:
    """Turns conversations into spans and metrics: `session.observe(OpenTelemetry())`.

    A turn is a span `invoke_agent`. It contains a span `chat {model}` for each model call and
    `execute_tool {tool}` for each tool call, with the trace's times. MCP servers get the call
    span's context, in `_meta`. A failing exporter does not affect turns. A slow one should be
    behind a `BatchSpanProcessor`, as it is by default in the SDK's own setup.

    Args:
        content: Whether messages, system prompts, definitions, arguments and results are recorded:
            cut, with the config's secrets masked.
        tracer_provider: Makes the spans, or None for the global one.
        meter_provider: Makes the metrics, or None for the global one.
        agent: The agent's name in the spans.

    Raises:
        MissingDependencyError: OpenTelemetry's API is not installed.
    """

    def __init__(
        self,
        *,
        content: bool = False,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        agent: str = "casual-mcp-nb",
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ModuleNotFoundError:
            raise MissingDependencyError(
                "This needs opentelemetry-api, which is not installed.", hint=install("otel")
            ) from None
        try:
            ours = version("casual-mcp-nb")
        except PackageNotFoundError:
            ours = ""
        self._tracer = trace.get_tracer(SCOPE, ours, tracer_provider)
        self._instruments = Instruments.of(metrics.get_meter(SCOPE, ours, meter_provider))
        self._content = content
        self._agent = agent

    def listener(
        self,
        model_of: Callable[[str], ModelConfig | None] = lambda name: None,
        secrets: Callable[[], Collection[str]] = tuple,
        conversation_id: Callable[[], str | None] = lambda: None,
    ) -> TurnListener:
        """Create a listener for the turn events.

        Args:
            model_of: Returns a model from the config by its name, for the provider's name.
            secrets: Returns the values to mask.
            conversation_id: Returns the conversation's id.
        """

        def mask(text: str) -> str:
            return redacted(text, secrets())

        content = None
        if self._content:
            content = Content(mask)
        sink = TelemetrySink(
            tracer=self._tracer,
            instruments=self._instruments,
            agent=self._agent,
            content=content,
            mask=mask,
            model_of=model_of,
            conversation_id=conversation_id,
        )
        return TurnListener(sink)


class TurnListener:
    """Follows turns, several of which may run at the same time."""

    def __init__(self, recording: TelemetrySink) -> None:
        self._recording = recording
        self._running: dict[int, TurnSpans] = {}
        self._closed = False

    def __call__(self, turn: Turn, event: Event) -> None:
        """Record an event."""
        if isinstance(event, TurnStarted):
            if not self._closed:
                self._running[id(turn)] = TurnSpans(self._recording, event)
            return
        spans = self._running.get(id(turn))
        if spans is not None and spans.add(event):
            self._running.pop(id(turn), None)

    def close(self) -> None:
        """End the spans of turns that are still running. Nothing more is recorded."""
        self._closed = True
        while self._running:
            self._running.popitem()[1].abandon()
