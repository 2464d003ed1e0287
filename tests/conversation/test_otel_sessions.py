"""Spans of OpenTelemetry as conversations: in the ways in which several libraries write them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
)
from fastmcp import FastMCP
from google.protobuf.json_format import MessageToJson
from kit.json_lines import spoiled, write
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from casual_mcp_nb import Conversation, OpenTelemetry, Session, ToolContext, scripted_model
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.foreign import otel
from casual_mcp_nb.conversation.step import ModelResponse

SECRET = "sk-abcdefghijk1234567890"
Spans = list[dict[str, Any]]


def span(id: str, parent: str, second: float, name: str, **attributes: Any) -> dict[str, Any]:
    """A span of a second. In its attributes, `__` is a dot."""
    return {
        "traceId": "t1",
        "spanId": id,
        "parentSpanId": parent,
        "name": name,
        "startTimeUnixNano": str(int((1_767_323_045 + second) * 1e9)),
        "endTimeUnixNano": str(int((1_767_323_046 + second) * 1e9)),
        "attributes": {key.replace("__", "."): value for key, value in attributes.items()},
    }


def value(plain: Any) -> dict[str, Any]:
    match plain:
        case bool():
            return {"boolValue": plain}
        case int():
            return {"intValue": str(plain)}
        case list():
            return {"arrayValue": {"values": [value(each) for each in plain]}}
        case dict():
            return {"kvlistValue": {"values": pairs(plain)}}
    return {"stringValue": plain}


def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value(each)} for key, each in attributes.items()]


def otlp(spans: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lines of OTLP, the last span first."""
    lines = []
    for each in reversed(list(spans)):
        scoped = {
            "scope": {"name": "x"},
            "spans": [{**each, "attributes": pairs(each["attributes"])}],
        }
        lines.append({"resourceSpans": [{"resource": {}, "scopeSpans": [scoped]}]})
    return lines


def load(path: Path, spans: Iterable[dict[str, Any]]) -> Conversation:
    return Conversation.load(write(path / "spans.jsonl", otlp(spans)))


# Each of these is: the agent is asked for the weather, calls a tool, and answers. The first answer
# takes 100 and 10 tokens, of which 40 are cached, the second 120 and 5.

ASKED = [{"role": "user", "parts": [{"type": "text", "content": "Weather in Oslo?"}]}]
CALLED = [
    {
        "role": "assistant",
        "parts": [
            {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Oslo"}}
        ],
        "finish_reason": "tool_call",
    }
]
TOLD = [
    {
        "role": "user",
        "parts": [{"type": "tool_call_response", "id": "c1", "name": "weather", "result": "Rain"}],
    }
]
SAID = [{"role": "assistant", "parts": [{"type": "text", "content": "It rains."}]}]
DEFINITION = {
    "type": "function",
    "name": "weather",
    "description": "The weather.",
    "parameters": {},
}


def usage(read: int, written: int, cached: int | None = None) -> dict[str, Any]:
    counts = {"gen_ai.usage.input_tokens": read, "gen_ai.usage.output_tokens": written}
    if cached is not None:
        counts["gen_ai.usage.cache_read.input_tokens"] = cached
    return counts


def by_the_conventions(text: Callable[[Any], Any]) -> Spans:
    chat = {"gen_ai__operation__name": "chat", "gen_ai__request__model": "m-1"}
    tools = {"gen_ai__tool__definitions": text([DEFINITION])}
    return [
        span(
            "a", "", 0, "invoke_agent x", gen_ai__operation__name="invoke_agent", **usage(220, 15)
        ),
        span(
            *("b", "a", 1, "chat m-1"),
            **chat,
            **tools,
            **usage(100, 10, 40),
            gen_ai__system_instructions=text([{"type": "text", "content": "Be brief."}]),
            gen_ai__input__messages=text(ASKED),
            gen_ai__output__messages=text(CALLED),
        ),
        span(
            *("c", "a", 2, "execute_tool weather"),
            gen_ai__operation__name="execute_tool",
            gen_ai__tool__name="weather",
            gen_ai__tool__call__id="c1",
            gen_ai__tool__call__arguments=text({"city": "Oslo"}),
            gen_ai__tool__call__result="Rain",
        ),
        span(
            *("d", "a", 3, "chat m-1"),
            **chat,
            **tools,
            **usage(120, 5),
            gen_ai__input__messages=text([*ASKED, *CALLED, *TOLD]),
            gen_ai__output__messages=text(SAID),
        ),
    ]


def as_json_text() -> Spans:
    return by_the_conventions(json.dumps)


def as_structured_values() -> Spans:
    return by_the_conventions(lambda value: value)


def pydantic_ai_with_events() -> Spans:
    asked = {"event.name": "gen_ai.user.message", "role": "user", "content": "Weather in Oslo?"}
    system = {"event.name": "gen_ai.system.message", "role": "system", "content": "Be brief."}
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    calls = {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    told = {"event.name": "gen_ai.tool.message", "role": "tool", "id": "c1", "content": "Rain"}
    called = {"event.name": "gen_ai.choice", "index": 0, "message": calls}
    said = {"role": "assistant", "content": "It rains."}
    parameters = json.dumps({"function_tools": [DEFINITION]})
    chat = {
        "gen_ai__operation__name": "chat",
        "gen_ai__request__model": "m-1",
        "model_request_parameters": parameters,
    }
    first = [system, asked, called]
    second = [
        *(system, asked, {"event.name": "gen_ai.assistant.message", **calls}, told),
        {"event.name": "gen_ai.choice", "index": 0, "message": said},
    ]
    return [
        span("a", "", 0, "agent run", agent_name="x", **usage(220, 15)),
        span("b", "a", 1, "chat m-1", **chat, **usage(100, 10, 40), events=json.dumps(first)),
        span("w", "a", 2, "running 1 tool", tools=["weather"]),
        span(
            *("c", "w", 2, "running tool"),
            gen_ai__tool__name="weather",
            gen_ai__tool__call__id="c1",
            tool_arguments='{"city": "Oslo"}',
            tool_response="Rain",
        ),
        span("d", "a", 3, "chat m-1", **chat, **usage(120, 5), events=json.dumps(second)),
    ]


def messages_as_events() -> Spans:
    spans = as_json_text()
    for each in (spans[1], spans[3]):
        attributes = each["attributes"]
        names = ("gen_ai.input.messages", "gen_ai.output.messages")
        content = {name: attributes.pop(name) for name in names}
        each["events"] = [
            {
                "name": "gen_ai.client.inference.operation.details",
                "attributes": pairs(content),
            }
        ]
    return spans


def langsmith() -> Spans:
    def kwargs(kind: str, **fields: Any) -> dict[str, Any]:
        id = ["langchain", "schema", "messages", kind]
        return {"lc": 1, "type": "constructor", "id": id, "kwargs": {"type": kind, **fields}}

    def completion(message: dict[str, Any], text: str) -> str:
        return json.dumps({"generations": [[{"text": text, "message": message}]]})

    calls = [{"name": "weather", "args": {"city": "Oslo"}, "id": "c1", "type": "tool_call"}]
    called = kwargs("ai", content="", tool_calls=calls)
    asked = [kwargs("system", content="Be brief."), kwargs("human", content="Weather in Oslo?")]
    told = kwargs("tool", content="Rain", tool_call_id="c1")
    model = {"langsmith__span__kind": "llm", "gen_ai__request__model": "m-1"}
    tools = [{"type": "function", "function": DEFINITION}]
    return [
        span("a", "", 0, "graph", langsmith__span__kind="chain"),
        span(
            *("b", "a", 1, "ChatOpenAI"),
            **model,
            **usage(100, 10),
            langsmith__metadata__usage_metadata='{"input_token_details": {"cache_read": 40}}',
            gen_ai__prompt=json.dumps({"messages": [asked], "tools": tools}),
            gen_ai__completion=completion(called, ""),
        ),
        span(
            *("c", "a", 2, "weather"),
            langsmith__span__kind="tool",
            gen_ai__tool__name="weather",
            gen_ai__prompt=json.dumps({"city": "Oslo"}),
            gen_ai__completion=json.dumps({"output": "Rain"}),
        ),
        span(
            *("d", "a", 3, "ChatOpenAI"),
            **model,
            **usage(120, 5),
            gen_ai__prompt=json.dumps({"messages": [[*asked, called, told]], "tools": tools}),
            gen_ai__completion=completion(kwargs("ai", content="It rains."), "It rains."),
        ),
    ]


def langfuse() -> Spans:
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    called = {"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]}
    asked = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Oslo?"},
    ]
    told = {"role": "tool", "tool_call_id": "c1", "content": "Rain"}
    model = {
        "langfuse__observation__type": "generation",
        "langfuse__observation__model__name": "m-1",
    }
    tools = [{"type": "function", "function": DEFINITION}]
    first = {"input": 60, "output": 10, "input_cached_tokens": 40, "total": 110}
    details = {"prompt_tokens_details": {"cached_tokens": 0}}
    second = {"prompt_tokens": 120, "completion_tokens": 5, "total_tokens": 125, **details}
    return [
        span("a", "", 0, "x", langfuse__observation__type="agent"),
        span(
            *("b", "a", 1, "generation"),
            **model,
            langfuse__observation__usage_details=json.dumps(first),
            langfuse__observation__input=json.dumps({"tools": tools, "messages": asked}),
            langfuse__observation__output=json.dumps(called),
        ),
        span(
            *("c", "a", 2, "weather"),
            langfuse__observation__type="tool",
            langfuse__observation__input='{"city": "Oslo"}',
            langfuse__observation__output="Rain",
        ),
        span(
            *("d", "a", 3, "generation"),
            **model,
            langfuse__observation__usage_details=json.dumps(second),
            langfuse__observation__input=json.dumps(
                {"tools": tools, "messages": [*asked, called, told]}
            ),
            langfuse__observation__output=json.dumps({"role": "assistant", "content": "It rains."}),
        ),
    ]


def openinference() -> Spans:
    def flat(name: str, number: int, **fields: Any) -> dict[str, Any]:
        prefix = f"llm.{name}_messages.{number}.message"
        return {f"{prefix}.{key.replace('__', '.')}": each for key, each in fields.items()}

    call = "tool_calls__0__tool_call__"
    called = {
        "role": "assistant",
        f"{call}id": "c1",
        f"{call}function__name": "weather",
        f"{call}function__arguments": '{"city": "Oslo"}',
    }
    asked = {
        **flat("input", 0, role="system", content="Be brief."),
        **flat("input", 1, role="user", content="Weather in Oslo?"),
    }
    model = {"openinference__span__kind": "LLM", "llm__model_name": "m-1"}
    tools = {"llm.tools.0.tool.json_schema": json.dumps({"function": DEFINITION})}

    def tokens(read: int, written: int) -> dict[str, int]:
        return {"llm.token_count.prompt": read, "llm.token_count.completion": written}

    return [
        span("r", "", 0, "main", openinference__span__kind="CHAIN"),
        span("a", "r", 0, "x", openinference__span__kind="AGENT", **tokens(220, 15)),
        span(
            *("b", "a", 1, "llm"),
            **model,
            **tools,
            **tokens(100, 10),
            **asked,
            **flat("output", 0, **called),
            llm__token_count__prompt_details__cache_read=40,
        ),
        span(
            *("c", "a", 2, "weather"),
            openinference__span__kind="TOOL",
            tool__name="weather",
            input__value='{"city": "Oslo"}',
            output__value="Rain",
        ),
        span(
            *("d", "a", 3, "llm"),
            **model,
            **tools,
            **tokens(120, 5),
            **asked,
            **flat("input", 2, **called),
            **flat("input", 3, role="tool", content="Rain", tool_call_id="c1"),
            **flat("output", 0, role="assistant", content="It rains."),
        ),
    ]


def openllmetry() -> Spans:
    asked = {
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.prompt.1.role": "user",
        "gen_ai.prompt.1.content": "Weather in Oslo?",
    }
    call = {"id": "c1", "name": "weather", "arguments": '{"city": "Oslo"}'}
    model = {
        "llm.request.type": "chat",
        "gen_ai.request.model": "m-1",
        "llm.request.functions.0.name": "weather",
        "llm.request.functions.0.description": "The weather.",
    }

    def calls(prefix: str) -> dict[str, str]:
        return {f"{prefix}.tool_calls.0.{key}": each for key, each in call.items()}

    def tokens(read: int, written: int) -> dict[str, int]:
        return {"gen_ai.usage.prompt_tokens": read, "gen_ai.usage.completion_tokens": written}

    return [
        span("a", "", 0, "x.agent", traceloop__span__kind="agent"),
        span(
            *("b", "a", 1, "openai.chat"),
            **model,
            **tokens(100, 10),
            **asked,
            **{"gen_ai.completion.0.role": "assistant", **calls("gen_ai.completion.0")},
            gen_ai__usage__cache_read_input_tokens=40,
        ),
        span(
            *("c", "a", 2, "weather.tool"),
            traceloop__span__kind="tool",
            traceloop__entity__name="weather",
            traceloop__entity__input='{"city": "Oslo"}',
            traceloop__entity__output="Rain",
        ),
        span(
            *("d", "a", 3, "openai.chat"),
            **model,
            **tokens(120, 5),
            **asked,
            **{"gen_ai.prompt.2.role": "assistant", **calls("gen_ai.prompt.2")},
            **{"gen_ai.prompt.3.role": "tool", "gen_ai.prompt.3.content": "Rain"},
            **{"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "It rains."},
        ),
    ]


def vercel() -> Spans:
    call = {"toolCallId": "c1", "toolName": "weather", "args": '{"city": "Oslo"}'}
    asked = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Weather in Oslo?"}]},
    ]
    told = [
        {"role": "assistant", "content": [{"type": "tool-call", **call}]},
        {
            "role": "tool",
            "content": [{"type": "tool-result", "toolCallId": "c1", "result": "Rain"}],
        },
    ]
    model = {
        "ai__operationId": "ai.generateText.doGenerate",
        "gen_ai__request__model": "m-1",
        "ai__prompt__tools": [json.dumps(DEFINITION)],
    }
    return [
        span("a", "", 0, "ai.generateText", ai__operationId="ai.generateText", **usage(220, 15)),
        span(
            *("b", "a", 1, "ai.generateText.doGenerate"),
            **model,
            **usage(100, 10, 40),
            ai__prompt__messages=json.dumps(asked),
            ai__response__toolCalls=json.dumps([{"toolCallType": "function", **call}]),
        ),
        span(
            *("c", "a", 2, "ai.toolCall"),
            ai__operationId="ai.toolCall",
            ai__toolCall__name="weather",
            ai__toolCall__id="c1",
            ai__toolCall__args='{"city": "Oslo"}',
            ai__toolCall__result="Rain",
        ),
        span(
            *("d", "a", 3, "ai.generateText.doGenerate"),
            **model,
            **usage(120, 5),
            ai__prompt__messages=json.dumps([*asked, *told]),
            ai__response__text="It rains.",
        ),
    ]


SHAPES = [
    as_json_text,
    as_structured_values,
    messages_as_events,
    pydantic_ai_with_events,
    langsmith,
    langfuse,
    openinference,
    openllmetry,
    vercel,
]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_way_of_writing_it_is_the_same_turn(
    tmp_path: Path, shape: Callable[[], Spans]
) -> None:
    conversation = load(tmp_path, shape())
    (turn,) = conversation
    assert (turn.prompt, turn.answer, turn.started.model) == (
        "Weather in Oslo?",
        "It rains.",
        "m-1",
    )
    counts = [(step.usage.prompt_tokens, step.usage.completion_tokens) for step in turn.steps]
    assert counts == [(100, 10), (120, 5)]
    assert conversation.stats.tokens.cached_tokens == 40
    (tool,) = turn.tool_calls
    assert (tool.tool, tool.arguments) == (ToolName("agent", "weather"), {"city": "Oslo"})
    assert (tool.status, tool.result, tool.seconds) == ("ok", "Rain", 1.0)
    system, asked = turn.steps[0].request.messages
    assert (system.content, asked.content) == ("Be brief.", "Weather in Oslo?")
    assert [each["name"] for each in turn.steps[0].request.tools] == ["weather"]
    assert len(conversation.repairs) == 1
    assert conversation.usage.of(ToolName("agent", "weather")).requests == 2


# OpenLLMetry writes no id with a result.
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape is not openllmetry])
def test_the_result_is_known_without_the_span_of_the_tool(
    tmp_path: Path, shape: Callable[[], Spans]
) -> None:
    (turn,) = load(tmp_path, [each for each in shape() if each["spanId"] != "c"])
    assert [(call.status, call.result) for call in turn.tool_calls] == [("ok", "Rain")]


# Our own.


@pytest.fixture
def recorded() -> Iterator[tuple[Session, InMemorySpanExporter]]:
    desk: FastMCP[Any] = FastMCP("desk")

    @desk.tool
    async def broken() -> str:
        """Fail."""
        raise ValueError("no bulb")

    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    config = {"servers": {"math": {"bundled": "math", "transport": "in-process"}}}
    config["servers"]["math"]["defer_loading"] = True
    config["tool_discovery"] = {"enabled": True}
    with Session(config, in_process={"desk": desk}, store=None, quiet=True) as session:

        @session.tool
        async def twice(context: ToolContext) -> str:
            """Add twice."""
            await context.call_tool("math:add", a=1, b=2)
            return "added"

        with session.observe(OpenTelemetry(tracer_provider=tracers, content=True)):
            yield session, exporter


def answer(tokens: int, **fields: Any) -> ModelResponse:
    return ModelResponse(AssistantMessage(**fields), TokenUsage(tokens, 12, cached_tokens=40))


def calls(name: str, tokens: int, **arguments: Any) -> ModelResponse:
    function = AssistantToolCallFunction(name=name, arguments=json.dumps(arguments))
    call = AssistantToolCall(id=f"id of {name}", function=function)
    return answer(tokens, content="", tool_calls=[call])


def as_otlp(spans: Iterable[ReadableSpan]) -> str:
    return MessageToJson(encode_spans(list(spans)), indent=None)


def as_lines_of_otlp(spans: Iterable[ReadableSpan]) -> str:
    return "".join(f"{as_otlp([each])}\n" for each in spans)


def as_an_sdk_writes_them(spans: Iterable[ReadableSpan]) -> str:
    return "\n".join(each.to_json() for each in spans)


def as_a_list(spans: Iterable[ReadableSpan]) -> str:
    return f"[{','.join(each.to_json(indent=None) for each in spans)}]"


def test_what_this_package_exports_is_the_same_conversation_again(
    recorded: tuple[Session, InMemorySpanExporter], tmp_path: Path
) -> None:
    session, exporter = recorded
    model = scripted_model(
        calls("search_tools", 90, query="add two numbers"),
        calls("math__add", 100, a=1, b=2),
        calls("notebook__twice", 110),
        calls("desk__broken", 120),
        answer(130, content="Three."),
        answer(140, content="You are welcome."),
    )
    for text in ("Add 1 and 2.", "Thanks."):
        session.chat(text, model=model, echo="none")
    for number, form in enumerate((as_otlp, as_lines_of_otlp, as_an_sdk_writes_them, as_a_list)):
        path = tmp_path / f"{number}.json"
        path.write_text(form(exporter.get_finished_spans()), encoding="utf-8")
        again = Conversation.load(path)
        assert [turn.prompt for turn in again] == ["Add 1 and 2.", "Thanks."]
        for turn, before in zip(again, session.turns, strict=True):
            assert turn.answer == before.answer
            assert [step.usage for step in turn.steps] == [step.usage for step in before.steps]
            assert list(map(_facts, turn.tool_calls)) == list(map(_facts, before.tool_calls))
            sent = [[each["name"] for each in step.request.tools] for step in turn.steps]
            assert sent == [[each["name"] for each in step.request.tools] for step in before.steps]
        assert again[0].tool_calls[0].search is not None
        assert again.usage.calls == session.tools.usage().calls


def _facts(tool: Any) -> Any:
    return tool.id, tool.tool, tool.arguments, tool.status, list(map(_facts, tool.nested))


# What else spans can be.


def test_a_subagent_is_nested_in_the_call_that_started_it(tmp_path: Path) -> None:
    first, called, tool, last = as_json_text()
    spans = [
        *(first, called, tool),
        span("e", "c", 2.1, "invoke_agent y", gen_ai__operation__name="invoke_agent"),
        span(
            *("f", "e", 2.2, "chat m-2"),
            **usage(7, 3),
            gen_ai__operation__name="chat",
            gen_ai__request__model="m-2",
            gen_ai__output__messages=json.dumps(CALLED),
        ),
        span("g", "e", 2.3, "execute_tool weather", gen_ai__tool__name="weather"),
        last,
    ]
    conversation = load(tmp_path, spans)
    (turn,) = conversation
    (outer,) = turn.tool_calls
    assert [call.tool.tool for call in outer.nested] == ["weather"]
    assert len(turn.steps) == 3
    assert conversation.stats.tokens.total_tokens == 235 + 10


def test_an_answer_that_two_libraries_recorded_counts_once(tmp_path: Path) -> None:
    spans = as_json_text()
    inner = {**spans[3], "spanId": "e", "parentSpanId": "d"}
    (turn,) = conversation = load(tmp_path, [*spans, inner])
    assert conversation.stats.tokens.total_tokens == 235
    assert (len(turn.steps), turn.answer) == (2, "It rains.")


def test_models_without_an_agent_are_turns_by_their_messages(tmp_path: Path) -> None:
    chats = [{**each, "parentSpanId": ""} for each in as_json_text() if each["name"] == "chat m-1"]
    later = {**chats[0], "spanId": "z", "startTimeUnixNano": "1767323099000000000"}
    first, second = load(tmp_path, [*chats, later])
    assert (first.answer, len(first.steps)) == ("It rains.", 2)
    # A request without earlier messages belongs to another conversation.
    assert len(second.steps[0].request.messages) == 2
    assert second.notices


@pytest.mark.parametrize("who_says", ["agent", "model"])
def test_conversations_by_their_id_come_one_after_the_other(tmp_path: Path, who_says: str) -> None:
    spans: Spans = []
    for number, conversation in enumerate("ABA"):
        turn = span(f"a{number}", "", 10 * number, "invoke_agent x")
        (model,) = as_json_text()[1:2]
        model |= {"spanId": f"b{number}", "parentSpanId": f"a{number}"}
        model |= {"startTimeUnixNano": turn["startTimeUnixNano"]}
        told = turn if who_says == "agent" else model
        told["attributes"]["gen_ai.conversation.id"] = conversation
        spans += [turn, model]
    turns = load(tmp_path, spans)
    began = [turn.started.began for turn in turns]
    assert [round(at - began[0]) for at in began if at and began[0]] == [0, 20, 10]
    assert [len(turn.steps[0].request.messages) for turn in turns] == [2, 5, 2]


def test_an_agent_whose_models_are_not_recorded_is_an_answer(tmp_path: Path) -> None:
    agent = span(
        *("a", "", 0, "invoke_agent x"),
        **usage(9, 4),
        gen_ai__request__model="m-1",
        gen_ai__input__messages=json.dumps(ASKED),
        gen_ai__output__messages=json.dumps(SAID),
    )
    (turn,) = conversation = load(tmp_path, [agent])
    assert (turn.prompt, turn.answer) == ("Weather in Oslo?", "It rains.")
    assert (turn.started.model, turn.seconds) == ("m-1", 1.0)
    assert conversation.stats.tokens.total_tokens == 13


def test_an_error_of_a_model_or_an_agent_is_one_notice(tmp_path: Path) -> None:
    failed = {"status": {"code": 2, "message": "The model is overloaded."}}
    spans = as_json_text()
    alone = {**spans[1], "parentSpanId": "", **failed}
    agent = span("a", "", 0, "invoke_agent x", gen_ai__input__messages=json.dumps(ASKED)) | failed
    for rows in ([alone], [agent], [{**spans[0], **failed}, *spans[1:]]):
        (turn,) = load(tmp_path, rows)
        assert [notice.text for notice in turn.notices] == ["The model is overloaded."]


def test_other_spans_are_counted_and_their_children_are_found(tmp_path: Path) -> None:
    spans = [*as_json_text(), span("h", "a", 1, "GET /weather")]
    spans[1]["parentSpanId"] = "h"
    conversation = load(tmp_path, spans)
    assert len(conversation) == 1
    assert "'GET /weather' (1)" in "\n".join(conversation.repairs)


@pytest.mark.parametrize("most", [20, 0])
def test_the_tokens_of_what_is_not_kept_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    spans = as_json_text()
    for number in range(50):
        spans.append({**spans[3], "spanId": f"more {number}"})
    monkeypatch.setattr(otel, "_MAX_SPANS", most)
    conversation = load(tmp_path, spans)
    assert conversation.stats.tokens.total_tokens == 110 + 51 * 125
    assert sum(len(turn.steps) for turn in conversation) == most + 1


def test_secrets_are_masked_and_errors_are_shown(tmp_path: Path) -> None:
    spans = as_json_text()
    spans[2]["attributes"]["gen_ai.tool.call.result"] = f"Rain, says {SECRET}"
    spans[2]["status"] = {"code": "STATUS_CODE_ERROR", "message": SECRET}
    spans[0]["status"] = {"code": 2, "message": f"failed with {SECRET}"}
    conversation = load(tmp_path, spans)
    assert SECRET not in conversation.to_json()
    assert conversation[0].tool_calls[0].status == "error"
    assert len(conversation[0].notices) == 1
    spans[2]["attributes"]["gen_ai.tool.call.id"] = SECRET
    spans.append(span("h", "a", 1, f"GET /weather?key={SECRET}"))
    conversation = load(tmp_path, spans)
    assert SECRET not in conversation.to_json()
    assert "GET /weather" in "".join(conversation.repairs)
    assert SECRET not in "".join(conversation.repairs)


@pytest.mark.parametrize(
    "wrong", [None, 0, [], {}, [[]], "", 10**30, {"type": [1]}, "[{}]", "[]", "--5", "7" * 5_000]
)
def test_a_field_of_another_type_is_no_error(tmp_path: Path, wrong: Any) -> None:
    rows = [row for spans in (as_json_text(), as_structured_values()) for row in otlp(spans)]
    conversation = Conversation.load(
        write(
            tmp_path / "s.jsonl", [*rows, *(each for row in rows for each in spoiled(row, wrong))]
        )
    )
    assert Conversation.from_json(conversation.to_json()).repairs == ()


def test_attributes_that_nobody_writes_are_no_error(tmp_path: Path) -> None:
    spans = as_json_text()
    spans[1]["attributes"]["gen_ai.response.finish_reasons"] = "[]"
    del spans[1]["attributes"]["gen_ai.input.messages"]
    for digits in ("0", "7" * 5_000):
        spans[1]["attributes"][f"gen_ai.prompt.{digits}.content"] = "Weather?"
    assert load(tmp_path, spans)[0].answer == "It rains."


def test_calls_in_calls_end_somewhere(tmp_path: Path) -> None:
    tools = [as_json_text()[0]]
    for number in range(1_500):
        parent = f"t{number - 1}" if number else "a"
        tools.append(
            span(
                f"t{number}",
                parent,
                number,
                "execute_tool x",
                gen_ai__operation__name="execute_tool",
            )
        )
    conversation = load(tmp_path, tools)
    assert Conversation.from_json(conversation.to_json()).repairs == ()
    assert conversation[0].tool_calls[0].name


def test_a_prompt_and_an_answer_can_be_in_two_events(tmp_path: Path) -> None:
    chat = span("a", "", 0, "chat m-1", gen_ai__operation__name="chat")
    chat["events"] = [
        {"name": "gen_ai.content.prompt", "attributes": pairs({"gen_ai.prompt": "How many?"})},
        {"name": "gen_ai.content.completion", "attributes": pairs({"gen_ai.completion": "Three."})},
    ]
    (turn,) = load(tmp_path, [chat])
    assert (turn.prompt, turn.answer) == ("How many?", "Three.")


def test_a_call_can_be_a_part_of_the_content(tmp_path: Path) -> None:
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    part = {"type": "function", "id": "c1", "function": function}
    said = json.dumps([{"role": "assistant", "content": [part]}])
    chat = span("a", "", 0, "chat x", gen_ai__output__messages=said)
    (call,) = load(tmp_path, [chat])[0].tool_calls
    assert (call.id, call.tool.tool, call.arguments) == ("c1", "weather", {"city": "Oslo"})


@pytest.mark.parametrize("said", ['{"answer": 42}', "[1, 2]", "It rains."])
def test_an_answer_that_is_json_is_an_answer(tmp_path: Path, said: str) -> None:
    messages = {
        "gen_ai__input__messages": json.dumps([{"role": "user", "content": "What?"}]),
        "gen_ai__output__messages": json.dumps([{"role": "assistant", "content": said}]),
    }
    chat = span("s1", "", 0, "chat x", gen_ai__operation__name="chat", **messages)
    assert load(tmp_path / "spans.json", [chat])[0].answer == said


def test_what_is_too_much_for_one_answer_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "_MAX_TOOLS", 2)
    monkeypatch.setattr(otel, "_MAX_TOOLSETS", 1)
    (call,) = CALLED[0]["parts"]
    many = [{**call, "id": f"c{number}"} for number in range(otel._MAX_CALLS + 5)]
    spans: Spans = []
    for number, offered in enumerate(([DEFINITION], [DEFINITION] * 3)):
        answer = span(
            *(f"a{number}", "", number, "chat m-1"),
            gen_ai__operation__name="chat",
            gen_ai__tool__definitions=json.dumps(offered),
            gen_ai__output__messages=json.dumps([{**CALLED[0], "parts": many}]),
        )
        spans.append(answer)
    conversation = load(tmp_path, spans)
    calls = [len(step.tool_calls) for turn in conversation for step in turn.steps]
    assert calls == [otel._MAX_CALLS] * 2
    _, _, left_out = conversation.repairs[-1].rstrip(".").partition(": ")
    assert set(left_out.split(", ")) == {"10 calls", "1 tool", "1 toolset"}
