"""What the attributes of a span mean: the conventions for generative AI of today and of before, and
the names of libraries that have their own.

A value is JSON text, a list of objects, or spread over attributes with a number in their name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.foreign.lines import Fields, objects_in, text_in
from casual_mcp_nb.conversation.foreign.messages import Message, from_text, messages_in
from casual_mcp_nb.conversation.foreign.otel_spans import Kind, Span
from casual_mcp_nb.conversation.foreign.usage import usage_in

_MAX_DEPTH = 8
_MESSAGE_EVENT = re.compile(r"gen_ai\.(?:(system|user|assistant|tool)\.message|choice)")
_KINDS = (
    "gen_ai.operation.name",
    "openinference.span.kind",
    "langfuse.observation.type",
    "langsmith.span.kind",
    "traceloop.span.kind",
    "llm.request.type",
    "ai.operationId",
)
_VALUES: dict[str, Kind] = {
    **dict.fromkeys(("chat", "completion", "generate_content", "generation", "llm"), "model"),
    **dict.fromkeys(("ai.generatetext.dogenerate", "ai.streamtext.dostream"), "model"),
    "text_completion": "model",
    **dict.fromkeys(("execute_tool", "tool", "ai.toolcall"), "tool"),
    **dict.fromkeys(("agent", "invoke_agent", "ai.generatetext", "ai.streamtext"), "agent"),
    # No part of a conversation.
    **dict.fromkeys(("chain", "create_agent", "embedding", "embeddings", "evaluator"), "other"),
    **dict.fromkeys(("event", "guardrail", "invoke_workflow", "reranker", "retrieval"), "other"),
    **dict.fromkeys(("retriever", "span", "task", "workflow"), "other"),
}
_NAMES: tuple[tuple[str, Kind], ...] = (
    ("agent run", "agent"),
    ("invoke_agent", "agent"),
    ("chat ", "model"),
    ("running ", "other"),
)
"""How the names of spans begin that do not say their kind otherwise."""

CONVERSATION = (
    "gen_ai.conversation.id",
    "session.id",
    "langfuse.session.id",
    "langsmith.trace.session_id",
    "traceloop.association.properties.session_id",
)
PROVIDER = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "ai.model.provider")
MODEL = (
    "gen_ai.response.model",
    "gen_ai.request.model",
    "langfuse.observation.model.name",
    "llm.model_name",
    "ai.model.id",
)
FINISH = ("gen_ai.response.finish_reasons", "ai.response.finishReason")
_ANY_INPUT = ("langfuse.observation.input", "traceloop.entity.input", "input.value")
_ANY_OUTPUT = ("langfuse.observation.output", "traceloop.entity.output", "output.value")
INPUT = (
    "gen_ai.input.messages",
    "pydantic_ai.all_messages",
    "gen_ai.prompt",
    "llm.input_messages",
    "ai.prompt.messages",
    "ai.prompt",
    *_ANY_INPUT,
)
OUTPUT = (
    "gen_ai.output.messages",
    "gen_ai.completion",
    "llm.output_messages",
    "final_result",
    "ai.response.text",
    *_ANY_OUTPUT,
)
MORE_OUTPUT = ("ai.response.toolCalls",)
SYSTEM = ("gen_ai.system_instructions",)
DEFINITIONS = ("gen_ai.tool.definitions", "llm.tools", "llm.request.functions", "ai.prompt.tools")
PARAMETERS = "model_request_parameters"
_REQUESTS = (
    (PARAMETERS, "function_tools"),
    ("gen_ai.prompt", "tools"),
    ("langfuse.observation.input", "tools"),
    ("input.value", "tools"),
)
TOOL_NAME = ("gen_ai.tool.name", "tool.name", "traceloop.entity.name", "ai.toolCall.name")
TOOL_SERVER = ("casual_mcp_nb.server", "mcp.server.name")
CALL_ID = ("gen_ai.tool.call.id", "tool_call.id", "ai.toolCall.id")
ARGUMENTS = (
    "gen_ai.tool.call.arguments",
    "tool_arguments",
    "ai.toolCall.args",
    "gen_ai.prompt",
    *_ANY_INPUT,
)
RESULT = (
    "gen_ai.tool.call.result",
    "tool_response",
    "ai.toolCall.result",
    "gen_ai.completion",
    *_ANY_OUTPUT,
)
_USAGE_DETAILS = ("langfuse.observation.usage_details", "langsmith.metadata.usage_metadata")
_USAGE = re.compile(r"\A(?:gen_ai\.usage|llm\.token_count|llm\.usage|ai\.usage)\.")


def value_of(attributes: Fields, names: Iterable[str]) -> Any:
    """Read the first of these attributes that is there, even if it is spread over `name.0.field`.

    JSON text is parsed.
    """
    for name in names:
        value = attributes.get(name)
        if value is None:
            value = _spread(attributes, f"{name}.")
        value = from_text(value)
        if value not in (None, "", [], {}):
            return value
    return None


def _spread(attributes: Fields, prefix: str) -> Any:
    """Put attributes together whose names are paths that begin with a number."""
    fields: Fields = {}
    for name, value in attributes.items():
        path = name.removeprefix(prefix)
        if path != name and path[:1].isdecimal():
            fields[path] = value
    return _nested(fields, _MAX_DEPTH)


def _nested(fields: Fields, depth: int) -> Any:
    """Put fields together whose names are paths. Numbers in these are those of a list's items."""
    groups: dict[str, Fields] = {}
    for path, value in fields.items():
        name, _, rest = path.partition(".")
        groups.setdefault(name, {})[rest] = value
    values: Fields = {}
    for name, inner in groups.items():
        values[name] = inner.get("")
        if depth and "" not in inner:
            values[name] = _nested(inner, depth - 1)
    if values and all(map(str.isdecimal, values)):
        # As numbers, which Python does not read beyond 4,300 digits.
        return [values[name] for name in sorted(sorted(values), key=len)]
    return values


def kind_of(span: Span) -> Kind | None:
    """Tell what a span is about. None if that is not known."""
    attributes, name = span.attributes, span.name.lower()
    for each in _KINDS:
        kind = _VALUES.get(text_in(attributes, each).lower())
        if kind is not None:
            return kind
    if text_in(attributes, *TOOL_NAME):
        return "tool"
    for beginning, kind in _NAMES:
        if name.startswith(beginning):
            return kind
    if text_in(attributes, *MODEL) and usage_of(attributes) is not None:
        return "model"
    return None


def messages_of(span: Span, names: Sequence[str], role: str) -> Iterator[Message]:
    """Yield the messages in one of these attributes, or else in events: one for each message."""
    value = value_of(span.attributes, names)
    if value is not None:
        yield from messages_in(value, role)
        return
    for fields in (*span.events, *objects_in(value_of(span.attributes, ("events",)))):
        found = _MESSAGE_EVENT.fullmatch(text_in(fields, "event.name"))
        if found is not None and (found[1] is None) == (role == "assistant"):
            content = value_of(fields, ("gen_ai.event.content",))
            yield from messages_in(content or fields, found[1] or role)


def usage_of(attributes: Fields) -> TokenUsage | None:
    """Read the tokens of an answer, or return None if there are no numbers."""
    fields = {_USAGE.sub("", name): value for name, value in attributes.items()}
    return usage_in(fields | _object(attributes, *_USAGE_DETAILS))


def definitions_in(attributes: Fields) -> Any:
    """Find the definitions: in an attribute of their own, or in one with the whole request."""
    value = value_of(attributes, DEFINITIONS)
    for name, field in _REQUESTS:
        if value is None:
            value = _object(attributes, name).get(field)
    return value


def _object(attributes: Fields, *names: str) -> Fields:
    value = value_of(attributes, names)
    return value if isinstance(value, dict) else {}
