"""Provider for OpenAI's chat completions, which many other servers support too.

Messages in the chat completions format, which Ollama's resembles. Convert the conversation for a
request, and collect an answer's extra fields.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from casual_mcp_nb.providers._calls import StreamedCalls, call_of
from casual_mcp_nb.providers._clients import (
    InvalidResponse,
    answer_of,
    as_sent,
    class_of_casual_llm,
    embed_over_openai,
    ended_early,
    over_openai,
    part_at,
    read_stream,
    usage_of,
)
from casual_mcp_nb.providers._messages import (
    CHAT_IDS,
    MISTRAL_IDS,
    after_results,
    built,
    in_strict_order,
    kept_fields,
    merged,
    parts_with_fields,
)
from casual_mcp_nb.providers._options import (
    REASONING,
    SIGNATURE,
    Learned,
    learned,
    messages_for,
    thinks,
    token_field_of,
    unsent_to_reasoning,
)
from casual_mcp_nb.providers._streamed_fields import StreamedFields
from casual_mcp_nb.providers.registry import (
    Definitions,
    ModelLimits,
    OnText,
    ProviderAdapter,
    ProviderSpec,
    function_tools_param,
    name_in,
)

if TYPE_CHECKING:
    from casual_llm import AssistantToolCall, ChatOptions, OpenAIClient
    from casual_llm.messages import ChatMessage
    from openai import AsyncStream
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.chat.chat_completion_chunk import Choice

    from casual_mcp_nb.base.tokens import TokenUsage
    from casual_mcp_nb.conversation.step import ModelResponse


# What Gemini accepts as the signature of another model's call.
_ANY_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}


def conversation(
    client: object, model: str, messages: Sequence[ChatMessage], wire: str
) -> list[ChatMessage]:
    """Convert the messages to the form that this model accepts."""
    facts = learned(client, model)
    ids = MISTRAL_IDS if facts.mistral_ids else CHAT_IDS
    sent = list(after_results(messages_for(client, model, messages, wire, ids)))
    return in_strict_order(sent) if facts.strict_order else merged(sent)


def give_back(
    client: object,
    model: str,
    sent: Sequence[ChatMessage],
    built: Sequence[dict[str, Any]],
    wire: str,
) -> None:
    """Add this model's extra fields to `built`, which casual-llm built from the messages that are
    `sent`.
    """
    facts = learned(client, model)
    answers_sent = [message for message in sent if message.role == "assistant"]
    answers_built = [message for message in built if message["role"] == "assistant"]
    for message, answer in zip(answers_sent, answers_built, strict=True):
        own = kept_fields(message, wire, model)
        answer |= _allowed(own.message, facts)
        for call, fields in zip(answer.get("tool_calls") or (), own.calls, strict=True):
            call |= _allowed(fields, facts)
        if REASONING in facts.stand_ins:
            answer.setdefault(REASONING, "")
        # Of parallel calls, Gemini signs only the first.
        if SIGNATURE in facts.stand_ins and answer.get("tool_calls"):
            answer["tool_calls"][0].setdefault("extra_content", _ANY_SIGNATURE)


def _allowed(fields: Mapping[str, Any], facts: Learned) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in facts.refused_fields}


def text_in(content: Any) -> str:
    """Extract the text from an answer's content: a string or, with Mistral's thinking models,
    thoughts and texts in a list.
    """
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return content or ""
    texts: list[str] = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
    return "".join(texts)


WIRE = "openai"


def offer(tools: Definitions) -> dict[str, Any]:
    """Convert the definitions to request arguments."""
    if not tools:
        return {}
    return {**function_tools_param(tools), "tool_choice": "auto"}


async def ask(
    client: OpenAIClient, model: str, messages: list[ChatMessage], options: ChatOptions
) -> ModelResponse:
    """Make a request without streaming."""
    request = await built(request_for, client, model, messages, options)
    return read(await _sent(client, request), model)


async def stream(
    client: OpenAIClient,
    model: str,
    messages: list[ChatMessage],
    options: ChatOptions,
    on_text: OnText,
) -> ModelResponse:
    """Make a streaming request. A server that answers in one piece is handled too."""
    from openai.types.chat import ChatCompletion

    request = await built(request_for, client, model, messages, options, stream=True)
    chunks = Chunks(await _sent(client, request))
    parts = Parts(model, tools=request.get("tools") or (), at_end=lambda: chunks.at_end)
    return await read_stream(
        chunks, on_text, parts, ChatCompletion.construct, partial(read, model=model)
    )


async def _sent(client: OpenAIClient, request: Mapping[str, Any]) -> Any:
    """Send a request as it is.

    The SDK's `create` would first fit each of forty arguments to its type.
    """
    from openai import AsyncStream
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

    options = {
        field: request[name] for name, field in _OF_THE_SDK.items() if request.get(name) is not None
    }
    return await client.client.post(
        "/chat/completions",
        body={name: value for name, value in request.items() if name not in _OF_THE_SDK},
        options=cast("Any", {**options, "security": {"bearer_auth": True}}),
        cast_to=ChatCompletion,
        stream=bool(request.get("stream")),
        stream_cls=AsyncStream[ChatCompletionChunk],
    )


# The arguments of `create` that are not part of the body, and what the SDK calls them within.
_OF_THE_SDK = {
    "extra_headers": "headers",
    "extra_query": "params",
    "extra_body": "extra_json",
    "timeout": "timeout",
}


class Piece:
    """An object in a chunk: its fields are attributes, None where they are missing.

    `model_extra` has those that OpenAI lacks. The SDK's own class takes 60 µs for each chunk, which
    is mostly one token. This takes 6.
    """

    __slots__ = ("_fields", "_standard")

    def __init__(self, fields: dict[str, Any], standard: frozenset[str] = frozenset()) -> None:
        self._fields = fields
        self._standard = standard

    @property
    def model_extra(self) -> dict[str, Any]:
        """The fields that OpenAI does not have."""
        return {name: value for name, value in self._fields.items() if name not in self._standard}

    def __getattr__(self, name: str) -> Any:
        value = self._fields.get(name)
        standard = _STANDARD_FIELDS.get(name)
        if standard is None:
            return value
        if isinstance(value, list):
            return [Piece(each, standard) for each in value if isinstance(each, dict)]
        if not isinstance(value, dict):
            return None
        return [Piece(value, standard)] if name == "tool_calls" else Piece(value, standard)


_OF_MESSAGES = frozenset(("audio", "content", "function_call", "refusal", "role", "tool_calls"))
# The objects of a chunk by the field that has them, and the fields of those whose other fields are
# kept.
_STANDARD_FIELDS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(
        ("choices", "function", "usage", "prompt_tokens_details", "completion_tokens_details"),
        frozenset(),
    ),
    "delta": _OF_MESSAGES,
    "message": _OF_MESSAGES,
    "tool_calls": frozenset(("function", "id", "index", "type")),
}


class Chunks:
    """An answer's chunks, read until the server ends it.

    The SDK leaves its stream at the end mark, inside four generators, each of which a task on the
    loop then closes.
    """

    def __init__(self, stream: AsyncStream[ChatCompletionChunk]) -> None:
        self._stream = stream
        self.response: Any = stream.response
        self.at_end = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.close()

    async def __aiter__(self) -> AsyncIterator[Piece]:
        from openai import APIError

        limit = asyncio.timeout(None)
        try:
            async with limit:
                async for event in self._stream._iter_events():
                    if limit.when() is not None:
                        continue
                    if event.data.startswith("[DONE]"):
                        self.at_end = True
                        limit.reschedule(asyncio.get_running_loop().time() + _END_SECONDS)
                        continue
                    chunk = event.json()
                    if isinstance(chunk, dict):
                        if error := chunk.get("error"):
                            text = part_at(error, "message")
                            raise APIError(
                                str(text or "the stream failed"), self.response.request, body=error
                            )
                        yield Piece(chunk)
        except Exception:
            # The answer is complete: how its connection ends does not matter.
            if limit.when() is None:
                raise


_END_SECONDS = 0.1
"""How long a server may take to end its answer after the end mark."""


def request_for(
    client: Any,
    model: str,
    messages: list[ChatMessage],
    options: ChatOptions,
    wire: str = WIRE,
    **more: Any,
) -> dict[str, Any]:
    """Adapt casual-llm's request for the messages to this model, with the state that it needs back.

    Sampling options are not sent to reasoning models, which refuse them.
    """
    sent = conversation(client, model, messages, wire)
    request: dict[str, Any] = client._build_request_kwargs(model, sent, options, **more)
    give_back(client, model, sent, request["messages"], wire)
    facts = learned(client, model)
    if "stream" in more and "stream_options" not in facts.fields_left_out:
        request.setdefault("stream_options", {"include_usage": True})
    field = token_field_of(facts, model)
    if "max_tokens" in request and field != "max_tokens":
        request[field] = request.pop("max_tokens")
    return request


def unknown_fields(part: object) -> dict[str, Any]:
    """Collect the fields that OpenAI lacks in a message, call or chunk: thinking, signatures."""
    extra: Mapping[str, object] = getattr(part, "model_extra", None) or {}
    # The index is only for merging a stream.
    return {name: value for name, value in extra.items() if value is not None and name != "index"}


@dataclass(frozen=True)
class Reading:
    """What to keep of an answer for its provider.

    Args:
        wire: The provider's format, as in `ProviderState`.
        of_message: Collects the fields to keep of a message, or of a chunk.
        of_call: Collects those of a call.
    """

    wire: str
    of_message: Callable[[Any], dict[str, Any]]
    of_call: Callable[[Any], dict[str, Any]]


_READING = Reading(wire=WIRE, of_message=unknown_fields, of_call=unknown_fields)


def read(response: ChatCompletion, model: str, reading: Reading = _READING) -> ModelResponse:
    """Parse the response in a completion."""
    if not getattr(response, "choices", None):
        raise InvalidResponse(as_sent(response))
    choice = response.choices[0]
    message = choice.message
    tool_calls = _calls_in(message)
    if not tool_calls and choice.finish_reason == "tool_calls":
        # A gateway that puts text and calls of one answer into two choices.
        for other in response.choices[1:]:
            tool_calls = tool_calls or _calls_in(other.message)
    calls = [call_of(call.id, call.function.name, call.function.arguments) for call in tool_calls]
    text = text_in(message.content) or getattr(message, "refusal", None) or ""
    fields = reading.of_message(message)
    if isinstance(message.content, list):
        fields["content"] = message.content
    parts = parts_with_fields(text, fields, [reading.of_call(call) for call in tool_calls])
    return answer_of(
        parts,
        calls,
        wire=reading.wire,
        model=model,
        usage=usage_of(response.usage, _COUNTS),
        reason=choice.finish_reason,
    )


def _calls_in(message: Any) -> list[Any]:
    """List a message's calls. No other type than functions is offered."""
    calls = [
        call for call in message.tool_calls or () if getattr(call, "function", None) is not None
    ]
    legacy = getattr(message, "function_call", None)
    if not calls and legacy is not None:
        calls = [Piece({"function": _plain_function(legacy)})]
    return calls


_COUNTS = {
    "prompt_tokens": "prompt_tokens",
    "completion_tokens": "completion_tokens",
    "cached_tokens": "prompt_tokens_details.cached_tokens",
    "reasoning_tokens": "completion_tokens_details.reasoning_tokens",
    "cache_write_tokens": "prompt_tokens_details.cache_write_tokens",
}


@dataclass
class Parts:
    """A streamed response under construction.

    Args:
        tools: The tools in the request.
        at_end: Returns whether the server has marked the answer's end.
    """

    model: str
    reading: Reading = _READING
    tools: Sequence[Mapping[str, Any]] = ()
    at_end: Callable[[], bool] = lambda: False
    text: list[str] = field(default_factory=list)
    fields: StreamedFields = field(default_factory=StreamedFields)
    usage: TokenUsage | None = None
    reason: str | None = None
    _has_reason: bool = False
    _choice: object = None

    def __post_init__(self) -> None:
        tools = self.tools
        self.calls = StreamedCalls(lambda: set(map(name_in, tools)))

    def add(self, chunk: ChatCompletionChunk | Piece) -> str:
        """Add a chunk. Return the text in it."""
        self.usage = usage_of(getattr(chunk, "usage", None), _COUNTS) or self.usage
        text = ""
        # Some servers send chunks without the field.
        choices: list[Choice] = getattr(chunk, "choices", None) or []
        for choice in choices:
            if self._choice is None:
                self._choice = choice.index
            if choice.index not in (None, self._choice):
                # Only one answer was requested.
                continue
            self.reason = choice.finish_reason or self.reason
            self._has_reason = choice.finish_reason is not None
            delta = choice.delta
            if delta is None and not self.anything:
                # Some gateways stream an answer that they have whole.
                delta = getattr(choice, "message", None)
            if delta is None:
                continue
            text += self._added(delta)
        self.text.append(text)
        return text

    def _added(self, delta: Any) -> str:
        new = self.reading.of_message(delta)
        if isinstance(delta.content, list):
            new["content"] = [*delta.content]
            if "content" not in self.fields and any(self.text):
                # So far, its content came as plain text.
                new["content"].insert(0, {"type": "text", "text": "".join(self.text)})
        elif delta.content and "content" in self.fields:
            new["content"] = [{"type": "text", "text": delta.content}]
        self.fields.add(new)
        for position, part in enumerate(delta.tool_calls or ()):
            self.calls.add(part, position).add(self.reading.of_call(part))
        if legacy := getattr(delta, "function_call", None):
            self.calls.add(Piece({"function": _plain_function(legacy)}), 0)
        return text_in(delta.content) or getattr(delta, "refusal", None) or ""

    @property
    def anything(self) -> bool:
        """Whether any part of an answer has arrived."""
        return any(self.text) or bool(self.calls or self.fields)

    def answer(self) -> ModelResponse:
        """Assemble the complete response."""
        # Some gateways say no reason, or an empty one, to the end.
        ended = (
            self.reason is not None
            or self.at_end()
            or (self._has_reason and self.calls.are_whole())
        )
        if not ended or not (self.reason or self.anything):
            raise ended_early("without a reason for its end", anything=self.anything)
        calls: list[AssistantToolCall] = []
        of_calls: list[dict[str, Any]] = []
        for made, fields in self.calls.whole():
            calls.append(made)
            of_calls.append(fields.whole())
        parts = parts_with_fields("".join(self.text), self.fields.whole(), of_calls)
        return answer_of(
            parts,
            calls,
            wire=self.reading.wire,
            model=self.model,
            usage=self.usage,
            reason=self.reason,
        )


def _plain_function(function: Any) -> dict[str, Any]:
    if isinstance(function, dict):
        return function
    return {
        "name": getattr(function, "name", None),
        "arguments": getattr(function, "arguments", None),
    }


_CLIENT = partial(class_of_casual_llm, "OpenAIClient")

# https://platform.openai.com/docs/models
MAX_TOOLS = 128
"""How many tools a request may have. Https://github.com/openai/openai-openapi/pull/76."""
MODELS = {
    "gpt-5.6": ModelLimits(1_050_000, 128_000),
    "gpt-5.5": ModelLimits(1_050_000, 128_000),
    "gpt-5.4": ModelLimits(1_050_000, 128_000),
    "gpt-5.4-mini": ModelLimits(400_000, 128_000),
    "gpt-5.4-nano": ModelLimits(400_000, 128_000),
    "gpt-5.2": ModelLimits(400_000, 128_000),
    "gpt-5.1": ModelLimits(400_000, 128_000),
    "gpt-5": ModelLimits(400_000, 128_000),
    "gpt-5-chat": ModelLimits(128_000, 16_384),
    "gpt-4.1": ModelLimits(1_047_576, 32_768),
    "gpt-4o": ModelLimits(128_000, 16_384),
    "gpt-4-turbo": ModelLimits(128_000, 4_096),
    "gpt-4": ModelLimits(8_192, 8_192),
    "gpt-3.5-turbo": ModelLimits(16_385, 4_096),
    "o4-mini": ModelLimits(200_000, 100_000),
    "o3": ModelLimits(200_000, 100_000),
    "o1": ModelLimits(200_000, 100_000),
}

SPEC = ProviderSpec(
    name=WIRE,
    about="OpenAI's chat completions, and every compatible server",
    position=10,
    build=partial(over_openai, kind=_CLIENT),
    adapter=ProviderAdapter(offer, ask=ask, stream=stream, name=WIRE),
    client=_CLIENT,
    sdk="openai",
    key_variable="OPENAI_API_KEY",
    homes=("openai.com",),
    names=re.compile(r"(?:gpt-(?!oss)|chatgpt-|codex-|o\d)[\w.-]*", re.IGNORECASE),
    reasons_with="openai-responses",
    example_model="gpt-4.1",
    models=MODELS,
    max_tools=MAX_TOOLS,
    thinks=thinks,
    unsent=unsent_to_reasoning,
    chat_messages=True,
    renames_max_tokens=True,
    counted_by_tiktoken=True,
    embed=embed_over_openai,
    first_used=("chat.completions",),
)
