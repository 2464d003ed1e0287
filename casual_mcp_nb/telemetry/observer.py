"""The observer that makes spans and metrics of events."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from casual_mcp_nb.telemetry._content import Content
from casual_mcp_nb.telemetry._turn_spans import Instruments, TelemetrySink, TurnSpans
from casual_mcp_nb.types.event import Event, TurnStarted
from casual_mcp_nb.types.secret import redacted
from casual_mcp_nb.types.trace import Turn

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from casual_mcp_nb.types.config import ModelConfig

SCOPE = "casual_mcp_nb"


class OpenTelemetry:
    """Makes spans and metrics of turns: `session.observe(OpenTelemetry())`.

    A turn is a span `invoke_agent`; in it are a span `chat {model}` for each model call and `execute_tool {tool}` for each
    call of a tool, with the times of the trace. MCP servers get the context of the call's span, in `_meta`. An exporter that
    fails costs no turn; one that is slow should be behind a `BatchSpanProcessor`, as it is by default in the SDK's own setup.

    Args:
        content: Whether messages, system prompts, definitions, arguments and results are recorded: cut, with the secrets
            of the config masked.
        tracer_provider: Makes the spans; None for the global one.
        meter_provider: Makes the metrics; None for the global one.
        agent: The name of the agent in the spans.
    """

    def __init__(
        self,
        *,
        content: bool = False,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        agent: str = "casual-mcp-nb",
    ) -> None:
        from opentelemetry import metrics, trace

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
        """Create a listener for the events of turns.

        Args:
            model_of: Returns a model of the config by its name, for the provider's name of it.
            secrets: Returns the values to mask.
            conversation_id: Returns the id of the conversation.
        """

        def mask(text: str) -> str:
            return redacted(text, secrets())

        content = Content(mask) if self._content else None
        return TurnListener(
            TelemetrySink(self._tracer, self._instruments, self._agent, content, mask, model_of, conversation_id)
        )


class TurnListener:
    """Hears the events of turns, several of which may run at the same time.

    Args:
        recording: Where spans and metrics go, and what they hold.
    """

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
        """End the spans of the turns that are still running; nothing is recorded any more."""
        self._closed = True
        while self._running:
            self._running.popitem()[1].abandon()
