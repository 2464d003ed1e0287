"""Provider for OpenAI's chat completions, which many other servers support too."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from casual_mcp_nb.providers._answers import (
    InvalidResponse,
    answer_of,
    as_sent,
    call_of,
    ended_early,
    read_stream,
    taken_by,
    usage_of,
)
from casual_mcp_nb.providers._building import over_openai
from casual_mcp_nb.providers._chat_messages import StreamedFields, conversation, give_back, text_in
from casual_mcp_nb.providers._history import built
from casual_mcp_nb.providers._learned import learned
from casual_mcp_nb.providers._provider_state import parts_with_fields
from casual_mcp_nb.providers._refused_options import token_field_of
from casual_mcp_nb.providers._thinking import thinks, unsent_to_reasoning
from casual_mcp_nb.providers.spec import Definitions, ModelLimits, OnText, ProviderAdapter, ProviderSpec
from casual_mcp_nb.types.time_limit import TimeLimit

if TYPE_CHECKING:
    from casual_llm import ChatMessage, ChatOptions, OpenAIClient
    from openai import AsyncStream
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageFunctionToolCall
    from openai.types.chat.chat_completion_chunk import Choice, ChoiceDelta, ChoiceDeltaToolCall

    from casual_mcp_nb.types.model_response import ModelResponse
    from casual_mcp_nb.types.tokens import TokenUsage


WIRE = "openai"


def offer(tools: Definitions) -> dict[str, Any]:
    """Convert the definitions to request arguments."""
    if not tools:
        return {}
    return {"tools": [{"type": "function", "function": dict(tool)} for tool in tools], "tool_choice": "auto"}


async def ask(client: OpenAIClient, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelResponse:
    """Make a request without streaming."""
    create = client.client.chat.completions.create
    request = await built(messages, lambda: request_for(client, model, messages, options))
    return read(await create(**taken_by(create, request)), model)


async def stream(
    client: OpenAIClient, model: str, messages: list[ChatMessage], options: ChatOptions, on_text: OnText
) -> ModelResponse:
    """Make a streaming request; a server that answers in one piece is handled too."""
    from openai.types.chat import ChatCompletion

    create = client.client.chat.completions.create
    request = await built(messages, lambda: request_for(client, model, messages, options, stream=True))
    if "stream_options" not in learned(client, model).options.fields_left_out:
        request.setdefault("stream_options", {"include_usage": True})
    chunks = Chunks(await create(**taken_by(create, request)))
    return await read_stream(chunks, on_text, Parts(model), ChatCompletion.construct, partial(read, model=model))


class Chunks:
    """The chunks of an answer, read until the server ends it.

    The SDK leaves its stream at the end mark, in the middle of four generators, each of which a task of the loop then closes.

    Args:
        stream: The SDK's stream.

    Attributes:
        response: The server's response.
    """

    def __init__(self, stream: AsyncStream[ChatCompletionChunk]) -> None:
        self._stream = stream
        self.response: Any = stream.response

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.close()

    async def __aiter__(self) -> AsyncIterator[ChatCompletionChunk]:
        from openai import APIError
        from openai.types.chat import ChatCompletionChunk

        limit = TimeLimit(None)
        try:
            with limit:
                async for event in self._stream._iter_events():
                    if limit.deadline is not None:
                        continue
                    if event.data.startswith("[DONE]"):
                        limit.move(asyncio.get_running_loop().time() + _END_SECONDS)
                        continue
                    chunk = event.json()
                    if isinstance(chunk, dict):
                        if error := chunk.get("error"):
                            text = error.get("message") if isinstance(error, dict) else None
                            raise APIError(str(text or "the stream failed"), self.response.request, body=error)
                        yield ChatCompletionChunk.construct(**chunk)
        except Exception:
            # The answer is complete: how its connection ends does not matter.
            if limit.deadline is None:
                raise


_END_SECONDS = 0.1
"""How long a server may take to end its answer after the end mark."""


def request_for(
    client: Any, model: str, messages: list[ChatMessage], options: ChatOptions, wire: str = WIRE, **more: Any
) -> dict[str, Any]:
    """Adapt casual-llm's request for the messages to this model, with the state that it needs back.

    Sampling options are not sent to reasoning models, which refuse them.
    """
    sent = conversation(client, model, messages, wire)
    request: dict[str, Any] = client._build_request_kwargs(model, sent, options, **more)
    give_back(client, model, sent, request["messages"], wire)
    field = token_field_of(learned(client, model).options, model)
    if "max_tokens" in request and field != "max_tokens":
        request[field] = request.pop("max_tokens")
    return request


def unknown_fields(part: object) -> dict[str, Any]:
    """Collect the fields of a message, call or chunk that OpenAI does not have: thinking, signatures."""
    extra: Mapping[str, object] = getattr(part, "model_extra", None) or {}
    # The index is only for merging a stream.
    return {name: value for name, value in extra.items() if value is not None and name != "index"}


@dataclass(frozen=True)
class Reading:
    """Which parts of an answer are kept for its provider.

    Args:
        wire: The wire format.
        of_message: Returns the fields of a message, or of a chunk.
        of_call: Returns the fields of a call, or of a chunk.
    """

    wire: str
    of_message: Callable[[Any], dict[str, Any]]
    of_call: Callable[[Any], dict[str, Any]]


_READING = Reading(WIRE, unknown_fields, unknown_fields)


def read(response: ChatCompletion, model: str, reading: Reading = _READING) -> ModelResponse:
    """Parse the response in a completion.

    Args:
        response: The completion.
        model: The model.
        reading: Which parts to keep for its provider.

    Raises:
        InvalidResponse: It contains no choice.
    """
    if not getattr(response, "choices", None):
        raise InvalidResponse(as_sent(response))
    choice = response.choices[0]
    message = choice.message
    # No other type is offered.
    tool_calls = cast("list[ChatCompletionMessageFunctionToolCall]", message.tool_calls or [])
    calls = [call_of(call.id, call.function.name, call.function.arguments) for call in tool_calls]
    text = text_in(message.content) or getattr(message, "refusal", None) or ""
    fields = reading.of_message(message)
    if isinstance(message.content, list):
        fields["content"] = message.content
    parts = parts_with_fields(text, fields, [reading.of_call(call) for call in tool_calls])
    return answer_of(reading.wire, model, parts, calls, _usage(response.usage), choice.finish_reason)


def _usage(usage: CompletionUsage | None) -> TokenUsage | None:
    prompt_details = getattr(usage, "prompt_tokens_details", None)
    completion_details = getattr(usage, "completion_tokens_details", None)
    return usage_of(
        getattr(usage, "prompt_tokens", None),
        getattr(usage, "completion_tokens", None),
        getattr(prompt_details, "cached_tokens", None),
        getattr(completion_details, "reasoning_tokens", None),
        getattr(prompt_details, "cache_write_tokens", None),
    )


@dataclass
class _Call:
    id: str | None = None
    name: str = ""
    arguments: str = ""
    fields: StreamedFields = field(default_factory=StreamedFields)


def _is_another(part: ChoiceDeltaToolCall, call: _Call) -> bool:
    """Check whether a chunk without an id starts a new call, because the previous one is complete."""
    if part.id or part.function is None or not part.function.name or not call.arguments:
        return False
    try:
        json.loads(call.arguments)
    except (ValueError, RecursionError):
        return False
    return True


@dataclass
class Parts:
    """A streamed response under construction.

    Args:
        model: The model.
        reading: Which parts to keep for its provider.
    """

    model: str
    reading: Reading = _READING
    text: list[str] = field(default_factory=list)
    fields: StreamedFields = field(default_factory=StreamedFields)
    calls: list[_Call] = field(default_factory=list)
    usage: TokenUsage | None = None
    reason: str | None = None
    _by_index: dict[int | None, _Call] = field(default_factory=dict)

    def add(self, chunk: ChatCompletionChunk) -> str:
        """Add a chunk; return the text in it."""
        self.usage = _usage(getattr(chunk, "usage", None)) or self.usage
        text = ""
        # Some servers send chunks without the field.
        choices: list[Choice] = getattr(chunk, "choices", None) or []
        for choice in choices:
            self.reason = choice.finish_reason or self.reason
            delta = choice.delta
            if delta is None:
                continue
            text += text_in(delta.content) or getattr(delta, "refusal", None) or ""
            self._take_fields(delta)
            for part in delta.tool_calls or ():
                self._take_call(part)
        self.text.append(text)
        return text

    def _take_fields(self, delta: ChoiceDelta) -> None:
        new = self.reading.of_message(delta)
        if isinstance(delta.content, list):
            before = "".join(self.text) if "content" not in self.fields else ""
            new["content"] = [*([{"type": "text", "text": before}] if before else []), *delta.content]
        elif delta.content and "content" in self.fields:
            new["content"] = [{"type": "text", "text": delta.content}]
        self.fields.add(new)

    def _take_call(self, part: ChoiceDeltaToolCall) -> None:
        call = self._by_index.get(part.index)
        # Some servers number all calls 0 and distinguish them by id, or only by a new name; others repeat both with each chunk.
        if call is None or (part.id and call.id and part.id != call.id) or _is_another(part, call):
            call = self._by_index[part.index] = _Call()
            self.calls.append(call)
        repeated = call.id is not None and part.id == call.id
        call.id = call.id or part.id
        call.fields.add(self.reading.of_call(part))
        if part.function is not None:
            call.name += "" if repeated else part.function.name or ""
            call.arguments += part.function.arguments or ""

    @property
    def anything(self) -> bool:
        """Whether any part of an answer has arrived."""
        return any(self.text) or bool(self.calls or self.fields)

    def answer(self) -> ModelResponse:
        """Assemble the complete response.

        Raises:
            StreamTruncated: There was no finish reason.
        """
        if self.reason is None:
            raise ended_early("without a reason for its end", anything=self.anything)
        calls = [call_of(call.id, call.name, call.arguments) for call in self.calls]
        of_calls = [call.fields.whole() for call in self.calls]
        parts = parts_with_fields("".join(self.text), self.fields.whole(), of_calls)
        return answer_of(self.reading.wire, self.model, parts, calls, self.usage, self.reason)


def _client() -> type[Any] | None:
    import casual_llm

    return casual_llm.OpenAIClient


# https://platform.openai.com/docs/models
MAX_TOOLS = 128
"""How many tools a request may have; https://github.com/openai/openai-openapi/pull/76."""
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
    build=lambda name, config: over_openai(name, config, _client),
    adapter=ProviderAdapter(offer, ask, stream, WIRE),
    client=_client,
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
    first_used=("chat.completions",),
)
