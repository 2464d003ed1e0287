"""Provider for Ollama's chat API."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from casual_mcp_nb.providers._calls import call_of, next_number
from casual_mcp_nb.providers._clients import (
    InvalidResponse,
    Reported,
    answer_of,
    builds_requests,
    class_of_casual_llm,
    ended_early,
    headers_of,
    key_of,
    need,
    part_at,
    usage_of,
)
from casual_mcp_nb.providers._messages import built, parts_with_fields, refuse_addresses
from casual_mcp_nb.providers.builtin.openai import Piece, conversation, give_back, text_in
from casual_mcp_nb.providers.registry import (
    OnText,
    ProviderAdapter,
    ProviderSpec,
    function_tools_param,
    no_options,
)

if TYPE_CHECKING:
    from casual_llm import AssistantToolCall, ChatMessage, ChatOptions, LLMClient, OllamaClient

    from casual_mcp_nb.base.config import ClientConfig
    from casual_mcp_nb.conversation.step import ModelResponse

_T = TypeVar("_T")
WIRE = "ollama"
NUM_CTX = "num_ctx"
"""The option for the context window in tokens.

Without it, the server silently cuts longer prompts to its default.
"""


async def ask(
    client: OllamaClient, model: str, messages: list[ChatMessage], options: ChatOptions
) -> ModelResponse:
    """Make a request without streaming."""
    from ollama import ResponseError

    request, headers = await built(_request, client, model, messages, options)
    # The SDK's `chat` parses the tools into its own class, which drops unknown keywords: $ref,
    # anyOf, limits.
    response = await client.client._client.post("/api/chat", json=request, headers=headers)
    try:
        response.raise_for_status()
    except Exception as error:
        # Its text is the server's reason, where httpx's is only the status.
        raise ResponseError(response.text, response.status_code) from error
    whole = _read(response.json(), response.text)
    answer = _Streamed()
    answer.add(whole.message)
    return _answer(model, messages, answer, whole)


def _read(part: object, sent: str) -> Piece:
    """Read one object of an answer.

    Not with the SDK's class, which refuses what other servers with Ollama's API send: arguments as
    text, and content in parts.
    """
    if not isinstance(part, dict) or not isinstance(part.get("message"), dict):
        raise InvalidResponse(sent)
    calls = part["message"].get("tool_calls") or []
    if not isinstance(calls, list) or not all(map(_is_call, calls)):
        raise InvalidResponse(sent)
    return Piece(part)


def _is_call(call: object) -> bool:
    return isinstance(call, dict) and isinstance(call.get("function"), dict)


async def stream(
    client: OllamaClient,
    model: str,
    messages: list[ChatMessage],
    options: ChatOptions,
    on_text: OnText,
) -> ModelResponse:
    """Make a streaming request."""
    request, headers = await built(_request, client, model, messages, options, stream=True)
    answer = _Streamed()
    # Read here, because the SDK fails on an error that is not a string and on a line that is not an
    # object.
    async with client.client._client.stream(
        "POST", "/api/chat", json=request, headers=headers
    ) as response:
        if response.is_error:
            await response.aread()
            response.raise_for_status()
        lines = response.aiter_lines()
        async for line in lines:
            part = json.loads(line)
            if isinstance(part, dict) and "error" in part:
                raise Reported(part["error"], part.get("status_code") or part.get("StatusCode"))
            last = _read(part, line)
            answer.add(last.message)
            on_text(answer.text[-1], response)
            if last.done:
                # To the end, so that the connection can be reused, but without waiting for a server
                # that never ends.
                with suppress(Exception):
                    async with asyncio.timeout(0.1):
                        await anext(lines, None)
                return _answer(model, messages, answer, last)
    raise ended_early(
        "without its end mark",
        anything=any(answer.text) or any(answer.thinking) or bool(answer.calls),
    )


@dataclass
class _Streamed:
    text: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: list[Piece] = field(default_factory=list)

    def add(self, piece: Piece) -> None:
        self.text.append(text_in(piece.content))
        self.thinking.append(text_in(piece.thinking))
        self.calls += piece.tool_calls or ()


def _request(
    client: OllamaClient,
    model: str,
    messages: list[ChatMessage],
    options: ChatOptions,
    *,
    stream: bool = False,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Build a request's body, and its additional headers."""
    # casual-llm would fetch it, from whatever URL it is.
    refuse_addresses(messages, "Ollama does not accept image URLs")
    sent = conversation(client, model, messages, WIRE)
    request = _without_waiting(client._build_request_kwargs(model, sent, options, stream=stream))
    give_back(client, model, sent, request["messages"], WIRE)
    if NUM_CTX in request:
        # casual-llm puts unknown fields next to the options.
        request["options"][NUM_CTX] = request.pop(NUM_CTX)
    messages_sent: list[dict[str, object]] = request["messages"]
    for message in messages_sent:
        if message["role"] == "tool":
            message["tool_name"] = message.get("name")
    headers = request.pop("extra_headers", None) or {}
    more = dict(request.pop("extra_body", None) or {})
    if isinstance(more.get("options"), dict):
        more["options"] = {**request["options"], **more["options"]}
    return {**request, **more}, headers


def _without_waiting(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never waits: casual-llm's would only for image addresses, which are
    refused.
    """
    try:
        work.send(None)
    except StopIteration as end:
        result: _T = end.value
        return result
    raise RuntimeError("Converting a conversation for Ollama waited for something.")


def _answer(
    model: str, messages: list[ChatMessage], answer: _Streamed, last: Piece
) -> ModelResponse:
    tool_calls: list[AssistantToolCall] = []
    for number, call in enumerate(answer.calls, next_number(messages)):
        function = call.function
        tool_calls.append(call_of(call.id or f"call_{number}", function.name, function.arguments))
    # Templates of models that think between calls, such as gpt-oss and qwen3, restore its position.
    thinking = "".join(answer.thinking)
    fields = {"thinking": thinking} if thinking else {}
    parts = parts_with_fields("".join(answer.text), fields, [{} for _ in tool_calls])
    return answer_of(
        parts,
        tool_calls,
        wire=WIRE,
        model=model,
        usage=usage_of(last, _COUNTS),
        reason=last.done_reason,
    )


_COUNTS = {"prompt_tokens": "prompt_eval_count", "completion_tokens": "eval_count"}


_LEVELS = {
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_ORDER = ("low", "medium", "high", "max")

_shown: WeakKeyDictionary[OllamaClient, dict[str, Mapping[str, Any]]] = WeakKeyDictionary()


async def _facts_of(client: OllamaClient, model: str) -> Mapping[str, Any]:
    """Request `/api/show` for a model, once per client, or empty if the server does not answer."""
    models = _shown.setdefault(client, {})
    if model not in models:
        try:
            response = await client.client._client.post("/api/show", json={"model": model})
            response.raise_for_status()
            facts = response.json()
        except Exception:
            # If this is not just an old server, the chat request fails too, and reports it.
            return {}
        models[model] = facts if isinstance(facts, dict) else {}
    return models[model]


def _thinks(facts: Mapping[str, Any]) -> bool | None:
    """Check whether a model can think. Return None if the server does not say so."""
    values = _values(facts)
    if values is not None:
        return any(value is not False for value in values)
    capabilities = facts.get("capabilities")
    return "thinking" in capabilities if isinstance(capabilities, list) else None


def _values(facts: Mapping[str, Any]) -> list[object] | None:
    """Read what the server lists as values for `think`, or None if it lists none."""
    values = part_at(facts, "thinking.values")
    return values if isinstance(values, list) else None


def _levels(facts: Mapping[str, Any]) -> list[str]:
    values = _values(facts)
    if values is not None:
        return sorted((value for value in values if value in _ORDER), key=_ORDER.index)
    if str(part_at(facts, "details.family")).replace("-", "") == "gptoss":
        return ["low", "medium", "high"]
    return []


def _build(name: str, config: ClientConfig) -> LLMClient:
    need(name, "ollama")
    from casual_llm import OllamaClient
    from ollama import AsyncClient

    assert OllamaClient is not None
    address = {"host": config.base_url} if config.base_url else {}
    ollama = OllamaClient(**address, timeout=config.timeout)
    key, headers = key_of(config), headers_of(config)
    if key is not None and not any(name.lower() == "authorization" for name in headers):
        # Also for the placeholder: without a header, the SDK sends OLLAMA_API_KEY to any URL.
        headers["Authorization"] = f"Bearer {key}"
    if headers:
        ollama.client = AsyncClient(host=ollama.host, timeout=config.timeout, headers=headers)
    client: LLMClient = builds_requests(ollama)
    return client


async def _think(client: OllamaClient, model: str, effort: str) -> bool | str | None:
    facts = await _facts_of(client, model)
    if _thinks(facts) is False:
        return None
    levels = _levels(facts)
    if effort == "none":
        # A model that only has levels cannot turn thinking off.
        values = _values(facts)
        can_turn_off = not levels or (values is not None and False in values)
        return False if can_turn_off else levels[0]
    if not levels:
        return True
    if effort in levels:
        return effort
    wanted = _LEVELS[effort]
    return wanted if wanted in levels else levels[-1]


# https://ollama.com/library: families of models with open weights. `-latest` is how the APIs of
# their makers write names.
_FAMILIES = re.compile(
    r"(?!.*-latest$)(?:code)?(?:llama|mistral|mixtral|qwen|qwq|gemma|phi|deepseek-(?:r|v|coder)|gpt-oss|granite|olmo|smollm|devstral)"
    r"[\w.-]*(?::[\w.-]+)?",
    re.IGNORECASE,
)


async def _embed(client: OllamaClient, model: str, texts: list[str]) -> Any:
    return (await client.client.embed(model=model, input=texts)).embeddings


SPEC = ProviderSpec(
    name=WIRE,
    about="models on your own machine, and Ollama's cloud",
    position=40,
    build=_build,
    adapter=ProviderAdapter(function_tools_param, ask=ask, stream=stream, name=WIRE),
    client=partial(class_of_casual_llm, "OllamaClient"),
    sdk="ollama",
    key_variable="OLLAMA_API_KEY",
    homes=("ollama.com", "localhost", "127.0.0.1", "::1"),
    names=_FAMILIES,
    needs_key=False,
    api="Ollama's API",
    lacking=("tool_choice", "parallel_tool_calls"),
    choose_tools=no_options,
    offers_none=True,
    effort=no_options,
    think=_think,
    window_option=NUM_CTX,
    window_note="Ollama's server silently cuts a longer prompt at its own num_ctx",
    overflow="Ollama cuts it silently",
    chat_messages=True,
    embed=_embed,
)
