"""Anthropic's messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.providers._answers import (
    CutShort,
    Definitions,
    Say,
    UnusableAnswer,
    as_sent,
    call_of,
    finished,
    message_of,
    taken_by,
    usage_of,
    whole_body,
    with_object_arguments,
)

if TYPE_CHECKING:
    from casual_llm import ChatMessage, ChatOptions

    from casual_mcp_nb.providers.base import ModelAnswer
    from casual_mcp_nb.types.tokens import TokenUsage

_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens_details")


def offer(tools: Definitions) -> dict[str, Any]:
    """The definitions as arguments of a request."""
    offered = [{"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in tools]
    return {"tools": offered, "tool_choice": {"type": "auto"}} if offered else {}


async def ask(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelAnswer:
    """One request that is answered in one piece."""
    create = client.client.messages.create
    return _read(await create(**_request(client, model, messages, options)))


async def stream(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions, say: Say) -> ModelAnswer:
    """One request that is answered piece by piece; a server that answers it in one piece is read too.

    Raises:
        CutShort: The end mark is missing.
    """
    from anthropic.types import Message

    create = client.client.messages.create
    # The SDK's own `messages.stream` parses arguments on the way, broken ones included.
    async with await create(**_request(client, model, messages, options), stream=True) as events:
        whole = await whole_body(events.response)
        if whole is not None:
            return _read(Message.construct(**whole) if isinstance(whole, dict) else whole)
        parts = _Parts()
        async for event in events:
            say(parts.take(event))
    return parts.answer()


def _request(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions) -> dict[str, Any]:
    request = client._build_request_kwargs(model, with_object_arguments(messages), options)
    return taken_by(client.client.messages.create, request)


def _read(response: Any) -> ModelAnswer:
    if not isinstance(getattr(response, "content", None), list):
        raise UnusableAnswer(as_sent(response))
    text = "".join(block.text for block in response.content if block.type == "text")
    calls = [call_of(block.id, block.name, block.input) for block in response.content if block.type == "tool_use"]
    return finished(message_of(text, calls), _usage(_counts(response.usage)), response.stop_reason)


def _counts(usage: Any) -> dict[str, Any]:
    return {name: value for name in _COUNTS if (value := getattr(usage, name, None)) is not None}


def _usage(counts: dict[str, Any]) -> TokenUsage | None:
    fresh = counts.get("input_tokens")
    read = counts.get("cache_read_input_tokens")
    # Anthropic counts what was read from and written to the cache apart from the rest of the request.
    prompt = None if fresh is None else fresh + (read or 0) + counts.get("cache_creation_input_tokens", 0)
    thinking = getattr(counts.get("output_tokens_details"), "thinking_tokens", None)
    return usage_of(prompt, counts.get("output_tokens"), read, thinking)


@dataclass
class _Block:
    kind: str
    id: str | None = None
    name: str = ""
    given: Any = None
    pieces: list[str] = field(default_factory=list)


@dataclass
class _Parts:
    """A streamed answer as far as it has come."""

    blocks: dict[int, _Block] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    ended: bool = False

    def take(self, event: Any) -> str:
        """Take an event; the text in it comes back."""
        match event.type:
            case "message_start":
                self.counts |= _counts(getattr(event.message, "usage", None))
            case "content_block_start":
                return self._start(event.index, event.content_block)
            case "content_block_delta":
                return self._add(event.index, event.delta)
            case "message_delta":
                self.reason = event.delta.stop_reason or self.reason
                self.counts |= _counts(getattr(event, "usage", None))
            case "message_stop":
                self.ended = True
        return ""

    def _start(self, index: int, block: Any) -> str:
        if block.type == "tool_use":
            self.blocks[index] = _Block("tool_use", block.id, block.name, block.input)
            return ""
        text = block.text if block.type == "text" else ""
        self.blocks[index] = _Block(block.type, pieces=[text])
        return text or ""

    def _add(self, index: int, delta: Any) -> str:
        block = self.blocks.setdefault(index, _Block("text"))
        if delta.type == "text_delta":
            block.pieces.append(delta.text)
            return str(delta.text)
        if delta.type == "input_json_delta":
            block.pieces.append(delta.partial_json)
        return ""

    def answer(self) -> ModelAnswer:
        if not self.ended or self.reason is None:
            raise CutShort("The stream ended without its end mark.")
        blocks = [self.blocks[index] for index in sorted(self.blocks)]
        text = "".join("".join(block.pieces) for block in blocks if block.kind == "text")
        calls = [
            call_of(block.id, block.name, "".join(block.pieces) or block.given) for block in blocks if block.kind == "tool_use"
        ]
        return finished(message_of(text, calls), _usage(self.counts), self.reason)
