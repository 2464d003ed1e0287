"""Provider for Anthropic's Messages API."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.iterables import present
from casual_mcp_nb.conversation.event import HostedCall
from casual_mcp_nb.conversation.step import without_cards
from casual_mcp_nb.errors import shown
from casual_mcp_nb.providers._calls import call_of
from casual_mcp_nb.providers._clients import (
    InvalidResponse,
    added_usage,
    answer_of,
    as_sent,
    class_of_casual_llm,
    claude_defers,
    ended_early,
    first_found,
    hosted_call,
    key_of,
    miss_of,
    need,
    no_key,
    parsed,
    part_at,
    read_stream,
    taken_by,
    usage_of,
    with_own_retries,
)
from casual_mcp_nb.providers._messages import (
    ANTHROPIC_IDS,
    Part,
    built,
    data_of,
    images,
    label_of,
    parts_of,
)
from casual_mcp_nb.providers._options import learned, messages_for
from casual_mcp_nb.providers.registry import (
    Definitions,
    ModelLimits,
    OnText,
    ProviderAdapter,
    ProviderSpec,
)

if TYPE_CHECKING:
    from anthropic.types import (
        ContentBlock,
        Message,
        MessageDeltaUsage,
        RawContentBlockDelta,
        RawMessageStreamEvent,
        Usage,
    )
    from casual_llm import (
        AnthropicClient,
        AssistantToolCall,
        ChatMessage,
        ChatOptions,
        ImageContent,
        LLMClient,
        ToolResultMessage,
    )

    from casual_mcp_nb.base.config import ClientConfig
    from casual_mcp_nb.base.config_base import RequestOptions
    from casual_mcp_nb.base.model_options import ReasoningEffort
    from casual_mcp_nb.base.tokens import CacheMiss, TokenUsage
    from casual_mcp_nb.conversation.step import ModelResponse

WIRE = "anthropic"


def offer(tools: Definitions) -> dict[str, Any]:
    """Convert the definitions to request arguments."""
    offered = [
        {
            "name": tool["name"],
            "description": tool["description"],
            "input_schema": tool["parameters"],
        }
        for tool in tools
    ]
    return {"tools": offered, "tool_choice": {"type": "auto"}} if offered else {}


# The first deferred definition changes the beginning of what the model is shown. This one is in all
# requests, so a definition that is found later changes nothing there.
_PLACEHOLDER = {
    "name": "placeholder_for_deferred_tools",
    "description": "Never loaded.",
    "input_schema": {"type": "object", "properties": {}},
    "defer_loading": True,
}


def offer_found(tools: Definitions, found_tools: Definitions) -> dict[str, Any]:
    """Convert the definitions to request arguments, those found last and as deferred."""
    if not tools:
        # At least one must not be deferred.
        return offer(found_tools)
    offered = offer(tools)
    deferred = [{**tool, "defer_loading": True} for tool in offer(found_tools).get("tools", ())]
    return {**offered, "tools": [*offered["tools"], _PLACEHOLDER, *deferred]}


async def ask(
    client: AnthropicClient, model: str, messages: list[ChatMessage], options: ChatOptions
) -> ModelResponse:
    """Make a request without streaming."""
    create = client.client.messages.create
    # With an explicit timeout, the SDK does not refuse requests with potentially long answers.
    timeout = client.client.timeout
    request = {"timeout": timeout, **await built(_request, client, model, messages, options)}

    async def once(request: dict[str, Any]) -> Message:
        message: Message = await create(**taken_by(create, request))
        return message

    return await _to_its_end(request, once, model)


async def stream(
    client: AnthropicClient,
    model: str,
    messages: list[ChatMessage],
    options: ChatOptions,
    on_text: OnText,
) -> ModelResponse:
    """Make a streaming request. A server that answers in one piece is handled too."""
    from anthropic.types import Message

    create = client.client.messages.create

    async def once(request: dict[str, Any]) -> Message:
        # The SDK's own `messages.stream` parses arguments as they arrive, including invalid ones.
        events = await create(**taken_by(create, request), stream=True)
        return await read_stream(events, on_text, _MessageStream(), Message.construct, _itself)

    request = await built(_request, client, model, messages, options)
    return await _to_its_end(request, once, model)


def _itself(whole: Message) -> Message:
    return whole


_MAX_PAUSES = 8


async def _to_its_end(
    request: dict[str, Any], once: Callable[[dict[str, Any]], Awaitable[Message]], model: str
) -> ModelResponse:
    """Make a request, and continue an answer that the provider pauses while its own tools work."""
    answers = [await once(request)]
    while getattr(answers[-1], "stop_reason", None) == "pause_turn" and len(answers) <= _MAX_PAUSES:
        begun: list[Part] = []
        for block in chain.from_iterable(answer.content for answer in answers):
            part = _part(block)
            if part and part["type"] != "call":
                begun.append(part)
        paused = {"role": "assistant", "content": begun}
        answers.append(await once({**request, "messages": [*request["messages"], paused]}))
    return _read(answers, model)


def _request(
    client: AnthropicClient, model: str, messages: list[ChatMessage], options: ChatOptions
) -> dict[str, Any]:
    sent = messages_for(client, model, messages, WIRE, ANTHROPIC_IDS)
    request = client._build_request_kwargs(model, sent, options)
    spoken = [message for message in sent if message.role != "system"]
    loaded_by_message = _deferred_in(request, spoken)
    for converted, message, names in zip(
        request["messages"], spoken, loaded_by_message, strict=True
    ):
        if message.role == "assistant":
            parts = parts_of(message, WIRE, model)
            converted["content"] = [
                part if isinstance(part, dict) else _tool_use(part) for part in parts
            ]
        elif message.role == "tool":
            converted["content"] = _references(message, names) if names else _result(message)
    request["messages"] = _taking_turns(request["messages"])
    takes_marks = "cache_control" not in learned(client, model).fields_left_out
    if takes_marks and getattr(client, "prompt_caching", True):
        _mark_for_cache(request)
    return request


def _deferred_in(request: dict[str, Any], messages: Sequence[ChatMessage]) -> list[list[str]]:
    """Find the deferred tools that each message loads.

    A tool that no message loads is not deferred after all.
    """
    tools = request.get("tools", ())
    deferred = {tool["name"] for tool in tools if _is_deferred(tool)}
    loaded_by_message = first_found(messages, deferred)
    stranded = deferred.difference([_PLACEHOLDER["name"]], *loaded_by_message)
    if stranded:
        loaded = [
            {**tool, "defer_loading": False} if tool["name"] in stranded else tool for tool in tools
        ]
        request["tools"] = sorted(loaded, key=_is_deferred)
    return loaded_by_message


def _is_deferred(tool: Mapping[str, Any]) -> bool:
    return bool(tool.get("defer_loading"))


def _references(message: ToolResultMessage, names: Sequence[str]) -> list[dict[str, Any]]:
    """Convert a search's result: references, which must be alone in it, and its text after all
    results in the message.
    """
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": references}
    return [result, _text(without_cards(message.content, names))]


def _tool_use(call: AssistantToolCall) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.function.name,
        "input": json.loads(call.function.arguments),
    }


def _result(message: ToolResultMessage) -> list[dict[str, Any]]:
    """Convert a call's result.

    A failed one has only text: "content cannot be empty if `is_error` is true".
    """
    result: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id,
        "content": message.content,
    }
    shown = list(map(_image, images(message)))
    if getattr(message, "failed", False):
        failed = {**result, "content": message.content or "Error", "is_error": True}
        if not shown:
            return [failed]
        return [failed, _text(label_of(message)), *shown]
    if shown and message.content.strip():
        result["content"] = [_text(message.content), *shown]
    elif shown:
        result["content"] = shown
    return [result]


def _text(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


def _image(image: ImageContent) -> dict[str, Any]:
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": image.media_type, "data": data_of(image)},
    }


def _taking_turns(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge consecutive messages with the same role, and drop empty text, which the API refuses.

    Results from parallel calls must be in one message, before any user text: a model that gets them
    separately stops making parallel calls.
    """
    joined: list[dict[str, Any]] = []
    for message in messages:
        content = []
        for block in message["content"]:
            if block["type"] != "text" or str(block["text"]).strip():
                content.append(block)
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = {**message, "content": [*joined[-1]["content"], *content]}
        elif content or message["role"] == "user":
            joined.append({**message, "content": content})
    for message in joined:
        message["content"] = sorted(message["content"], key=_is_no_result) or [_text("(nothing)")]
    return joined


def _is_no_result(block: Mapping[str, object]) -> bool:
    return block["type"] != "tool_result"


_MARK = {"type": "ephemeral"}


def _mark_for_cache(request: dict[str, Any]) -> None:
    """Mark the ends of the parts to cache: tools, system prompt, the conversation of the request
    before, and that of this one.

    Each part can stay the same while the next one changes: a tool found by search changes
    everything after it. The cache looks back only 20 blocks from a mark, and many parallel calls
    with their results are more than that, so the end of the request before, which is the last
    message before the last answer, keeps its mark. A request may have at most four marks. The cache
    skips a deferred tool, which must have none.
    """
    messages = request["messages"]
    answers = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    before = []
    if answers and answers[-1] > 0:
        before = messages[answers[-1] - 1]["content"]
    tools = request.get("tools") or []
    loaded = max(
        (number for number, tool in enumerate(tools) if not _is_deferred(tool)), default=None
    )
    if loaded is not None:
        tools[loaded] = {**tools[loaded], "cache_control": dict(_MARK)}
    last = messages[-1]["content"] if messages else []
    for blocks in (request.get("system"), before, last):
        if blocks:
            blocks[-1] = {**blocks[-1], "cache_control": dict(_MARK)}


def _read(answers: Sequence[Message], model: str) -> ModelResponse:
    for answer in answers:
        if not isinstance(getattr(answer, "content", None), list):
            raise InvalidResponse(as_sent(answer))
    content = list(chain.from_iterable(answer.content for answer in answers))
    calls: list[AssistantToolCall] = []
    for block in content:
        if block.type == "tool_use":
            # Compatible servers may omit fields.
            call_id, name = getattr(block, "id", None), getattr(block, "name", None)
            calls.append(call_of(call_id, name, getattr(block, "input", None)))
    parts = present(map(_part, content))
    last = answers[-1]
    response = answer_of(
        parts,
        calls,
        wire=WIRE,
        model=model,
        usage=reduce(added_usage, map(_usage, answers)),
        reason=last.stop_reason,
        response_id=getattr(last, "id", None),
    )
    return replace(response, hosted_calls=tuple(_hosted_calls(parts)))


def _hosted_calls(parts: Sequence[Part]) -> Iterator[HostedCall]:
    results: dict[object, Any] = {}
    for part in parts:
        if _is_hosted_result(part["type"]):
            results[part.get("tool_use_id")] = part.get("content")
    for part in parts:
        if part["type"] == "server_tool_use":
            result = results.get(part.get("id"))
            failed = isinstance(result, Mapping) and str(result.get("type")).endswith("_error")
            yield hosted_call(str(part.get("name")), part.get("input"), result, failed=failed)


def _is_hosted_result(kind: str) -> bool:
    return kind.endswith("_tool_result")


_CITED = "web_search_result_location"


def _part(block: ContentBlock) -> Part | None:
    match block.type:
        case "text":
            if not getattr(block, "text", None):
                return None
            text: Part = {**_text(block.text)}
            cited = [
                note.to_dict(exclude_none=True, warnings=False)
                for note in getattr(block, "citations", None) or ()
                if note.type == _CITED
            ]
            if cited:
                text["citations"] = cited
            return text
        case "tool_use":
            return {"type": "call"}
        case "thinking" if signature := getattr(block, "signature", None):
            return {"type": "thinking", "thinking": block.thinking, "signature": signature}
        case "redacted_thinking":
            return {"type": "redacted_thinking", "data": getattr(block, "data", None) or ""}
        case "server_tool_use":
            return {
                **block.to_dict(exclude_none=True, warnings=False),
                "input": parsed(getattr(block, "input", None)),
            }
        case kind if _is_hosted_result(kind):
            return block.to_dict(exclude_none=True, warnings=False)
    return None


_NOT_REASONS = ("previous_message_not_found", "unavailable")


def _miss(answer: Message) -> CacheMiss | None:
    kind = part_at(answer, "diagnostics.cache_miss_reason.type")
    if kind in _NOT_REASONS:
        return None
    tokens = part_at(answer, "diagnostics.cache_miss_reason.cache_missed_input_tokens")
    return miss_of(kind, tokens)


def _diagnose(client: object, model: str, before: str | None) -> dict[str, Any]:
    # Also without an earlier response: only what was sent with the field can be compared later.
    if not getattr(client, "prompt_caching", True):
        return {}
    return {"diagnostics": {"previous_message_id": before}}


_COUNTS = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "cached_tokens": "cache_read_input_tokens",
    "reasoning_tokens": "output_tokens_details.thinking_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}


def _usage(answer: Message) -> TokenUsage | None:
    usage = usage_of(answer.usage, _COUNTS, _miss(answer))
    if usage is None or usage.prompt_tokens is None:
        return usage
    # Anthropic counts tokens read from and written to the cache separately.
    cache = (usage.cached_tokens or 0) + (usage.cache_write_tokens or 0)
    return replace(usage, prompt_tokens=usage.prompt_tokens + cache)


_GROWING = {"text": "text", "thinking": "thinking", "tool_use": "input", "server_tool_use": "input"}
"""Each block type's streamed field."""


@dataclass
class _MessageStream:
    blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    pieces: dict[int, list[str]] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    ended: bool = False
    start: Message | None = None

    def add(self, event: RawMessageStreamEvent) -> str:
        """Add an event. Return the text in it."""
        match event.type:
            case "message_start":
                self.start = event.message
                self._count(getattr(event.message, "usage", None))
            case "content_block_start":
                self.blocks[event.index] = begun = event.content_block.to_dict()
                return str(begun.get("text") or "") if begun.get("type") == "text" else ""
            case "content_block_delta":
                return self._add(event.index, event.delta)
            case "message_delta":
                self.reason = event.delta.stop_reason or self.reason
                self._count(getattr(event, "usage", None))
            case "message_stop":
                self.ended = True
        return ""

    def _count(self, usage: Usage | MessageDeltaUsage | None) -> None:
        if usage is not None:
            self.usage |= usage.to_dict(exclude_none=True)

    def _add(self, index: int, delta: RawContentBlockDelta) -> str:
        block = self.blocks.setdefault(index, {"type": "text"})
        pieces = self.pieces.setdefault(index, [])
        match delta.type:
            case "text_delta":
                pieces.append(delta.text)
                return delta.text
            case "input_json_delta":
                pieces.append(delta.partial_json)
            case "thinking_delta":
                pieces.append(delta.thinking)
            case "signature_delta":
                block["signature"] = delta.signature
            case "citations_delta":
                block["citations"] = [
                    *(block.get("citations") or ()),
                    delta.citation.to_dict(warnings=False),
                ]
        return ""

    def answer(self) -> Message:
        from anthropic.types import Message

        if not self.ended or self.reason is None:
            raise ended_early("without its end mark", anything=bool(self.blocks))
        for index, pieces in self.pieces.items():
            block = self.blocks[index]
            name = _GROWING.get(block["type"])
            if name and pieces:
                begun = block.get(name)
                whole = "".join(pieces)
                if isinstance(begun, str):
                    whole = begun + whole
                block[name] = parsed(whole) if block["type"] == "server_tool_use" else whole
        content = [self.blocks[index] for index in sorted(self.blocks)]
        more = {name: getattr(self.start, name, None) for name in ("id", "diagnostics")}
        return Message.construct(content=content, usage=self.usage, stop_reason=self.reason, **more)


# https://platform.claude.com/docs/en/about-claude/models/overview, and the limits that the API
# reports when a request exceeds them.
_MODELS = {
    "claude-fable-5": ModelLimits(1_000_000, 128_000),
    "claude-opus-5": ModelLimits(1_000_000, 128_000),
    "claude-sonnet-5": ModelLimits(1_000_000, 128_000),
    "claude-opus-4-8": ModelLimits(1_000_000, 128_000),
    "claude-opus-4-7": ModelLimits(1_000_000, 128_000),
    "claude-opus-4-6": ModelLimits(1_000_000, 128_000),
    "claude-opus-4-5": ModelLimits(200_000, 64_000),
    "claude-opus-4": ModelLimits(200_000, 32_000),
    "claude-sonnet-4-6": ModelLimits(1_000_000, 128_000),
    "claude-sonnet-4": ModelLimits(200_000, 64_000),
    "claude-haiku-4-5": ModelLimits(200_000, 64_000),
    "claude-3-7-sonnet": ModelLimits(200_000, 64_000),
    "claude-3-5": ModelLimits(200_000, 8_192),
    "claude-3": ModelLimits(200_000, 4_096),
}


def _build(name: str, config: ClientConfig) -> LLMClient:
    need(name, "anthropic")
    from anthropic import AnthropicError
    from casual_llm import AnthropicClient

    assert AnthropicClient is not None
    try:
        client: Any = AnthropicClient(
            api_key=key_of(config), base_url=config.base_url, timeout=config.timeout
        )
    except AnthropicError as error:
        # Without a key, the SDK looks for its own profile; the cause says what is wrong with that.
        raise no_key(name, WIRE) from error
    if not any(
        getattr(client.client, way, None) for way in ("api_key", "auth_token", "credentials")
    ):
        raise no_key(name, WIRE)
    client.prompt_caching = config.prompt_caching
    return with_own_retries(client, config)


# https://platform.claude.com/docs/en/api/messages/create: models after Claude Opus 4.6 accept no
# temperature but 1.
_FIXED_TEMPERATURE = re.compile(
    r"claude-(?:opus-(?:4-[7-9]|[5-9])|(?:sonnet|haiku|fable|mythos)-[5-9])", re.IGNORECASE
)


def _notes(model: str, options: RequestOptions) -> list[str]:
    temperature = options.temperature
    if temperature is not None and temperature > 1:
        return ["Anthropic's models accept a temperature of 0 to 1."]
    if temperature not in (None, 1) and _FIXED_TEMPERATURE.search(model):
        return [
            f"Anthropic says that {shown(model)} takes no temperature but 1, so other values are"
            " left out if it refuses them."
        ]
    return []


def _choose_tools(options: RequestOptions) -> dict[str, Any]:
    choice, parallel = options.tool_choice or "auto", options.parallel_tool_calls
    kinds = {"auto": "auto", "none": "none", "required": "any"}
    value: dict[str, Any] = {"type": "tool", "name": choice}
    if choice in kinds:
        value = {"type": kinds[choice]}
    if parallel is not None and choice != "none":
        value["disable_parallel_tool_use"] = not parallel
    return {"tool_choice": value}


def _effort(effort: ReasoningEffort) -> dict[str, Any]:
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    return {
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low" if effort == "minimal" else effort},
    }


SPEC = ProviderSpec(
    name=WIRE,
    about="Anthropic's messages",
    position=30,
    build=_build,
    adapter=ProviderAdapter(offer, ask=ask, stream=stream, name=WIRE, offer_found=offer_found),
    client=partial(class_of_casual_llm, "AnthropicClient"),
    sdk="anthropic",
    key_variable="ANTHROPIC_API_KEY",
    homes=("anthropic.com",),
    names=re.compile(r"claude-[\w.-]+", re.IGNORECASE),
    example_model="claude-sonnet-5",
    api="Anthropic's API",
    lacking=("seed",),
    own_fields=("cache_control", "diagnostics"),
    notes=_notes,
    highest_temperature=(1, "Anthropic's models"),
    choose_tools=_choose_tools,
    effort=_effort,
    takes_thinking_tokens=True,
    models=_MODELS,
    needs_answer_limit=True,
    takes_format=False,
    first_used=("messages",),
    diagnose=_diagnose,
    defers=claude_defers,
    # https://platform.claude.com/docs/en/build-with-claude/prompt-caching: what invalidates the
    # cache.
    read_first=("parallel_tool_calls", "reasoning_effort", "tool_choice"),
    # The first version of each, which all models have; later ones can be named.
    hosted={
        "web_search": {"type": "web_search_20250305", "name": "web_search"},
        "web_fetch": {"type": "web_fetch_20250910", "name": "web_fetch"},
        "code_execution": {"type": "code_execution_20250825", "name": "code_execution"},
    },
)
