"""OpenAI's chat completions, which many other servers speak too."""

from __future__ import annotations

import json
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
)
from casual_mcp_nb.providers._thinking import is_reasoning_model

if TYPE_CHECKING:
    from casual_llm import ChatMessage, ChatOptions

    from casual_mcp_nb.providers.base import ModelAnswer
    from casual_mcp_nb.types.tokens import TokenUsage


def offer(tools: Definitions) -> dict[str, Any]:
    """The definitions as arguments of a request."""
    if not tools:
        return {}
    return {"tools": [{"type": "function", "function": dict(tool)} for tool in tools], "tool_choice": "auto"}


async def ask(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelAnswer:
    """One request that is answered in one piece."""
    create = client.client.chat.completions.create
    return read(await create(**taken_by(create, request_for(client, model, messages, options))))


async def stream(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions, say: Say) -> ModelAnswer:
    """One request that is answered piece by piece; a server that answers it in one piece is read too.

    Raises:
        CutShort: There was no reason for the end.
    """
    from openai.types.chat import ChatCompletion

    create = client.client.chat.completions.create
    request = request_for(client, model, messages, options, stream=True)
    request.setdefault("stream_options", {"include_usage": True})
    async with await create(**taken_by(create, request)) as chunks:
        whole = await whole_body(chunks.response)
        if whole is not None:
            return read(ChatCompletion.construct(**whole) if isinstance(whole, dict) else whole)
        parts = Parts()
        async for chunk in chunks:
            say(parts.take(chunk))
    return parts.answer()


def request_for(client: Any, model: str, messages: list[ChatMessage], options: ChatOptions, **more: Any) -> dict[str, Any]:
    """The request that casual-llm builds; a reasoning model is sent no sampling options, which it refuses."""
    request: dict[str, Any] = client._build_request_kwargs(model, messages, options, **more)
    if is_reasoning_model(model):
        for refused in ("temperature", "top_p"):
            request.pop(refused, None)
        if "max_tokens" in request:
            request["max_completion_tokens"] = request.pop("max_tokens")
    return request


def read(response: Any) -> ModelAnswer:
    """The answer in a completion.

    Raises:
        UnusableAnswer: There is none in it.
    """
    if not getattr(response, "choices", None):
        raise UnusableAnswer(as_sent(response))
    choice = response.choices[0]
    said = choice.message
    calls = [call_of(call.id, call.function.name, call.function.arguments) for call in said.tool_calls or ()]
    text = said.content or getattr(said, "refusal", None)
    return finished(message_of(text, calls), _usage(response.usage), choice.finish_reason)


def _usage(usage: Any) -> TokenUsage | None:
    prompt_details = getattr(usage, "prompt_tokens_details", None)
    completion_details = getattr(usage, "completion_tokens_details", None)
    return usage_of(
        getattr(usage, "prompt_tokens", None),
        getattr(usage, "completion_tokens", None),
        getattr(prompt_details, "cached_tokens", None),
        getattr(completion_details, "reasoning_tokens", None),
    )


@dataclass
class _Call:
    id: str | None = None
    name: str = ""
    arguments: str = ""


def _is_another(part: Any, call: _Call) -> bool:
    """Whether a piece without an id begins a call, as the one before it is complete."""
    if part.id or part.function is None or not part.function.name or not call.arguments:
        return False
    try:
        json.loads(call.arguments)
    except ValueError:
        return False
    return True


@dataclass
class Parts:
    """A streamed answer as far as it has come."""

    text: list[str] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    usage: TokenUsage | None = None
    reason: str | None = None
    _by_index: dict[int | None, _Call] = field(default_factory=dict)

    def take(self, chunk: Any) -> str:
        """Take a chunk; the text in it comes back."""
        self.usage = _usage(getattr(chunk, "usage", None)) or self.usage
        said = ""
        for choice in getattr(chunk, "choices", None) or ():
            self.reason = choice.finish_reason or self.reason
            delta = choice.delta
            if delta is None:
                continue
            said += delta.content or getattr(delta, "refusal", None) or ""
            for part in delta.tool_calls or ():
                self._take_call(part)
        self.text.append(said)
        return said

    def _take_call(self, part: Any) -> None:
        call = self._by_index.get(part.index)
        # Some servers number all calls 0 and tell them apart by id, or only by a new name; others repeat both with each piece.
        if call is None or (part.id and call.id and part.id != call.id) or _is_another(part, call):
            call = self._by_index[part.index] = _Call()
            self.calls.append(call)
        repeated = call.id is not None and part.id == call.id
        call.id = call.id or part.id
        if part.function is not None:
            call.name += "" if repeated else part.function.name or ""
            call.arguments += part.function.arguments or ""

    def answer(self) -> ModelAnswer:
        """The whole answer.

        Raises:
            CutShort: There was no reason for the end.
        """
        if self.reason is None:
            raise CutShort("The stream ended without a reason for its end.")
        calls = [call_of(call.id, call.name, call.arguments) for call in self.calls]
        return finished(message_of("".join(self.text), calls), self.usage, self.reason)
