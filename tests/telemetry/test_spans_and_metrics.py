"""Turns as spans and metrics, read from the SDK's in-memory exporters."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from casual_llm.messages import AssistantMessage
from fastmcp import Context, FastMCP
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from casual_mcp_nb import (
    ModelRetry,
    ModelWait,
    OpenTelemetry,
    Request,
    Session,
    StepFinished,
    StepStarted,
    ToolContext,
    Trace,
    Turn,
    TurnFinished,
    TurnStarted,
    scripted_model,
)
from casual_mcp_nb.base.tokens import TokenParts, TokenUsage
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.errors import MissingDependencyError, RateLimitError, install
from casual_mcp_nb.providers.scripted import call, calls

SECRET = "s3cret-t0ken-of-the-desk"


def desk(seen: list[Any]) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("desk")

    @server.tool
    async def lamp(on: bool, ctx: Context) -> str:
        """Switch the lamp."""
        meta = ctx.request_context.meta if ctx.request_context else None
        seen.append(dict(meta) if meta else {})
        return f"on with {SECRET}" if on else "off"

    @server.tool
    async def broken() -> str:
        """Fail."""
        raise ValueError("no bulb")

    @server.tool
    async def slow(ctx: Context) -> str:
        """Never end."""
        await ctx.report_progress(1, 2)
        await asyncio.Event().wait()
        return ""

    return server


class Recorded:
    """The exporters, and an observer that writes to them."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        meters = MeterProvider([self.reader])
        self.observer = OpenTelemetry(tracer_provider=tracers, meter_provider=meters, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def points(self) -> dict[str, list[Any]]:
        data = self.reader.get_metrics_data()
        scopes = [
            scope
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
        ]
        return {
            metric.name: list(metric.data.data_points)
            for scope in scopes
            for metric in scope.metrics
        }


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def session(seen: list[Any]) -> Iterator[Session]:
    config: dict[str, Any] = {
        "clients": {"desk": {"provider": "openai", "api_key": SECRET}},
        "models": {"small": {"client": "desk", "model": "gpt-5.4-mini"}},
        "servers": {"math": {"bundled": "math", "transport": "in-process", "defer_loading": True}},
        "tool_discovery": {"enabled": True},
    }
    with Session.from_config(config, in_process={"desk": desk(seen)}, store=None) as opened:
        yield opened


def within(parent: ReadableSpan, child: ReadableSpan) -> bool:
    assert child.start_time is not None
    assert child.end_time is not None
    return (
        child.parent is not None
        and child.parent.span_id == parent.context.span_id
        and (parent.start_time or 0) <= child.start_time <= child.end_time <= (parent.end_time or 0)
    )


def answered(text: str) -> ModelResponse:
    return ModelResponse(AssistantMessage(content=text), usage=TokenUsage(90, 12, cached_tokens=40))


def test_a_turn_is_a_tree_of_spans_with_its_times(session: Session, seen: list[Any]) -> None:
    recorded = Recorded()
    model = scripted_model(
        call("search_tools", query="add two numbers"),
        calls(call("math__add", a=1, b=2), call("desk__lamp", on=True), call("desk__broken")),
        "Done.",
    )
    with session.observe(recorded.observer):
        turn = session.chat("Hello", model=model, temperature=0.5, echo="none")
    session.chat("Again", model=scripted_model("Unheard."), echo="none")

    (root,) = recorded.named("invoke_agent casual-mcp-nb")
    assert root.parent is None
    assert root.kind is SpanKind.INTERNAL
    assert root.status.status_code is StatusCode.UNSET
    chats = recorded.named("chat scripted")
    tools = [span for span in recorded.spans if span.name.startswith("execute_tool ")]
    assert len(chats) == 3
    assert all(within(root, span) for span in (*chats, *tools))
    assert {span.name.removeprefix("execute_tool ") for span in tools} == {
        "search_tools",
        "math__add",
        "desk__lamp",
        "desk__broken",
    }
    assert len(recorded.spans) == 8
    assert len({span.context.trace_id for span in recorded.spans}) == 1
    seconds = ((root.end_time or 0) - (root.start_time or 0)) / 1e9
    assert seconds == pytest.approx(turn.trace.of(TurnFinished)[0].at, abs=1e-3)

    first = chats[0].attributes or {}
    assert chats[0].kind is SpanKind.CLIENT
    assert first["gen_ai.operation.name"] == "chat"
    assert first["gen_ai.provider.name"] == "scripted"
    assert first["gen_ai.request.temperature"] == 0.5
    lamp = recorded.named("execute_tool desk__lamp")[0].attributes or {}
    assert lamp["mcp.method.name"] == "tools/call"
    assert lamp["casual_mcp_nb.server"] == "desk"
    assert lamp["gen_ai.tool.call.id"] in {
        made.id for step in turn.steps for made in step.tool_calls
    }
    assert "mcp.method.name" not in (
        recorded.named("execute_tool search_tools")[0].attributes or {}
    )
    broken = recorded.named("execute_tool desk__broken")[0]
    assert (broken.attributes or {})["error.type"] == "tool_error"
    assert broken.status.status_code is StatusCode.ERROR
    searched = next(event for event in root.events if event.name == "casual_mcp_nb.tools.searched")
    assert (searched.attributes or {})["casual_mcp_nb.loaded"]

    # The server of the call got the context of its span.
    of_the_lamp = recorded.named("execute_tool desk__lamp")[0].context
    assert seen[0]["traceparent"].split("-")[1] == f"{of_the_lamp.trace_id:032x}"
    assert seen[0]["traceparent"].split("-")[2] == f"{of_the_lamp.span_id:016x}"

    # No content was asked for.
    written = json.dumps([dict(span.attributes or {}) for span in recorded.spans], default=str)
    assert "Hello" not in written
    assert SECRET not in written


def test_metrics_and_usage_have_the_conventions_buckets(session: Session) -> None:
    recorded = Recorded()
    session.observe(recorded.observer)
    session.chat("Hello", model=scripted_model(answered("Hi.")), echo="none")
    points = recorded.points()
    assert set(points) == {
        "gen_ai.client.token.usage",
        "gen_ai.client.operation.duration",
        "gen_ai.invoke_agent.duration",
    }
    tokens = {
        point.attributes["gen_ai.token.type"]: point
        for point in points["gen_ai.client.token.usage"]
    }
    assert {kind: point.sum for kind, point in tokens.items()} == {"input": 90, "output": 12}
    assert tokens["input"].explicit_bounds[:4] == (1, 4, 16, 64)
    (duration,) = points["gen_ai.client.operation.duration"]
    assert duration.explicit_bounds[0] == 0.01
    assert duration.attributes["gen_ai.operation.name"] == "chat"
    usage = recorded.named("invoke_agent casual-mcp-nb")[0].attributes or {}
    assert usage["gen_ai.usage.cache_read.input_tokens"] == 40
    assert usage["gen_ai.usage.input_tokens"] == 90


def test_content_is_there_on_request_masked_and_bounded(session: Session) -> None:
    recorded = Recorded(content=True)
    session.observe(recorded.observer)
    model = scripted_model(call("desk__lamp", on=True), f"It is on, {SECRET}.")
    session.chat("Light! " + "x" * 3_990 + SECRET, model=model, system="Be kind.", echo="none")
    chats = recorded.named("chat scripted")
    first, last = chats[0].attributes or {}, chats[1].attributes or {}
    said = json.loads(str(first["gen_ai.input.messages"]))
    assert [message["role"] for message in said] == ["user"]
    assert said[0]["parts"][0]["content"].startswith("Light!")
    assert len(said[0]["parts"][0]["content"]) < 4_050
    assert json.loads(str(first["gen_ai.system_instructions"]))[0]["content"].startswith("Be kind.")
    assert {tool["name"] for tool in json.loads(str(first["gen_ai.tool.definitions"]))} >= {
        "desk__lamp",
        "search_tools",
    }
    assert json.loads(str(last["gen_ai.output.messages"]))[0]["parts"][0]["content"].startswith(
        "It is on, "
    )
    lamp = recorded.named("execute_tool desk__lamp")[0].attributes or {}
    assert json.loads(str(lamp["gen_ai.tool.call.arguments"])) == {"on": True}
    assert str(lamp["gen_ai.tool.call.result"]).startswith("on with ")
    written = json.dumps([dict(span.attributes or {}) for span in recorded.spans], default=str)
    assert SECRET not in written
    assert SECRET[:10] not in written


def test_a_failed_turn_says_its_error(session: Session) -> None:
    recorded = Recorded()
    session.observe(recorded.observer)
    turn = session.chat("Hello", model=scripted_model(RateLimitError("Slow down.")), echo="none")
    assert turn.status == "failed"
    for name in ("invoke_agent casual-mcp-nb", "chat scripted"):
        (span,) = recorded.named(name)
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "RateLimitError"
    assert (
        recorded.points()["gen_ai.client.operation.duration"][0].attributes["error.type"]
        == "RateLimitError"
    )


async def test_a_stopped_turn_ends_all_its_spans(session: Session) -> None:
    recorded = Recorded()
    session.observe(recorded.observer)
    events = session.stream("Hello", model=scripted_model(call("desk__slow"), "Never."))
    async for event in events:
        if type(event).__name__ == "ToolProgress":
            break
    await events.aclose()
    (slow,) = recorded.named("execute_tool desk__slow")
    (root,) = recorded.named("invoke_agent casual-mcp-nb")
    assert (slow.attributes or {})["casual_mcp_nb.status"] == "stopped"
    assert (root.attributes or {})["casual_mcp_nb.status"] == "stopped"
    assert root.status.status_code is StatusCode.UNSET
    assert within(root, slow)


def test_a_nested_call_is_in_the_span_of_the_call_that_made_it(session: Session) -> None:
    recorded = Recorded()
    session.observe(recorded.observer)

    @session.tool
    def twice(number: int, tools: ToolContext) -> str:
        """Double a number."""
        return tools.call_tool("math:add", a=number, b=number).result

    session.chat("Hello", model=scripted_model(call("notebook__twice", number=2), "4"), echo="none")
    (outer,) = recorded.named("execute_tool notebook__twice")
    (inner,) = recorded.named("execute_tool math__add")
    assert within(outer, inner)
    assert "mcp.method.name" not in (outer.attributes or {})


def test_retries_are_events_and_closing_ends_what_is_open() -> None:
    recorded = Recorded()
    listener = recorded.observer.listener()
    turn = Turn(Trace())
    for event in (
        TurnStarted((), "small", provider="gemini", began=1_000.0),
        StepStarted(0, Request((), (), TokenParts()), at=0.5),
        ModelRetry(0, 1, 2.5, "overloaded", at=1.0),
        ModelWait(0, 3.0, "requests_per_minute", at=2.0),
    ):
        listener(turn, event)
    listener.close()
    listener(turn, StepFinished(0, AssistantMessage(content="late")))
    listener(Turn(Trace()), TurnStarted((), "small"))
    (chat,) = recorded.named("chat small")
    assert [event.name for event in chat.events] == ["casual_mcp_nb.retry", "casual_mcp_nb.wait"]
    assert (chat.events[0].attributes or {})["casual_mcp_nb.attempt"] == 1
    assert chat.events[0].timestamp == 1_001_000_000_000
    assert (chat.attributes or {})["gen_ai.provider.name"] == "gcp.gemini"
    assert len(recorded.spans) == 2


def test_steps_of_another_turn_are_not_recorded_again() -> None:
    recorded = Recorded()
    listener = recorded.observer.listener()
    turn = Turn(Trace())
    listener(turn, TurnStarted((), "small", recorded=1))
    listener(turn, StepStarted(0, Request((), (), TokenParts())))
    listener(turn, StepFinished(0, AssistantMessage(content="before")))
    listener(turn, TurnFinished("done", at=1.0))
    assert [span.name for span in recorded.spans] == ["invoke_agent casual-mcp-nb"]


class Failing(SpanExporter):
    """An exporter that always raises."""

    def export(self, spans: Any) -> SpanExportResult:
        raise RuntimeError("no collector")


def test_an_exporter_that_fails_costs_no_turn(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(Failing()))
    session.observe(OpenTelemetry(tracer_provider=tracers, meter_provider=MeterProvider()))
    turn = session.chat("Hello", model=scripted_model("Hi."), echo="none")
    assert turn.answer == "Hi."


def test_without_opentelemetry_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingDependencyError) as raised:
        OpenTelemetry()
    assert raised.value.hint == install("otel")


def test_without_a_provider_nothing_is_recorded_and_nothing_fails(session: Session) -> None:
    with session.observe(OpenTelemetry()):
        assert session.chat("Hello", model=scripted_model("Hi."), echo="none").answer == "Hi."
