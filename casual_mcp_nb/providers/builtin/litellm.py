"""Provider for LiteLLM, which reaches about a hundred providers, as a casual-llm client."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.secret import redacted
from casual_mcp_nb.providers._clients import (
    ContentFiltered,
    InvalidResponse,
    OwnClient,
    ended_early,
    headers_of,
    key_of,
    missing,
    part_at,
)
from casual_mcp_nb.providers._messages import built, refuse_addresses
from casual_mcp_nb.providers._options import unsent_to_reasoning
from casual_mcp_nb.providers.builtin.openai import Parts, Reading, offer, read, request_for
from casual_mcp_nb.providers.registry import OnText, ProviderAdapter, ProviderSpec

if TYPE_CHECKING:
    from casual_llm import ChatMessage, ChatOptions, LLMClient

    from casual_mcp_nb.base.config import ClientConfig
    from casual_mcp_nb.conversation.step import ModelResponse

WIRE = "litellm"
# On import, LiteLLM would fetch a price table and load a .env file into the environment; later, a
# table of headers.
_QUIET = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_MODE": "PRODUCTION",
}
# LiteLLM's error names before the provider's message, and its advice after it.
_OWN_WORDS = re.compile(
    r"^(?:(?:litellm\.)?\w+(?:Error|Exception|Timeout)(?:: | - ))+|\. Handle with `litellm\.\w+`\.$"
)
_UNREADABLE = re.compile(r"invalid response|\bjson\b", re.IGNORECASE)
_UNREACHED = re.compile(r"connect|payload is not completed|timed? ?out", re.IGNORECASE)


class LiteLLMClient(OwnClient):
    """A casual-llm client that uses LiteLLM, which manages its own connections.

    Args:
        api_key: The key. By default, LiteLLM reads the model provider's key from the environment.
        base_url: A URL to use in place of the provider's own. There, a model name without a
            provider uses OpenAI's format.
    """

    def __init__(
        self,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 60.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.litellm = quiet_litellm()
        self.client = _Address(api_key, base_url, dict(headers or {}))
        self.timeout = timeout
        self.system_message_handling: str | None = None

    def _build_request_kwargs(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        from casual_llm import OpenAIClient

        request: dict[str, Any] = OpenAIClient._build_request_kwargs(self, *args, **kwargs)  # type: ignore[arg-type]
        return request

    async def _complete(self, request: dict[str, Any]) -> Any:
        address = self.client
        own: dict[str, Any] = {}
        if address.base_url and "/" not in request["model"]:
            own["custom_llm_provider"] = "openai"
        headers = {**address.headers, **(request.pop("extra_headers", None) or {})}
        if headers:
            own["extra_headers"] = headers
        with _translated():
            return await self.litellm.acompletion(
                **request,
                **own,
                api_key=address.api_key,
                base_url=address.base_url,
                timeout=self.timeout,
                num_retries=0,
                max_retries=0,
            )

    async def ask(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> ModelResponse:
        """Make a request without streaming."""
        request = await built(_request, self, model, messages, options)
        answer = read(await self._complete(request), model, _READING)
        # LiteLLM reports missing usage as zeros.
        usage = answer.usage
        if usage is not None and not usage.prompt_tokens and not usage.completion_tokens:
            return replace(answer, usage=None)
        return answer

    async def stream(
        self, model: str, messages: list[ChatMessage], options: ChatOptions, on_text: OnText
    ) -> ModelResponse:
        """Make a streaming request."""
        request = await built(_request, self, model, messages, options, stream=True)
        parts = Parts(model, _READING, request.get("tools") or ())
        async with aclosing(await self._complete(request)) as chunks:
            with _translated():
                async for chunk in chunks:
                    on_text(parts.add(chunk))
        # LiteLLM invents a finish reason and usage if the provider sent none.
        if chunks.received_finish_reason is None:
            raise ended_early("without a reason for its end", anything=parts.anything)
        answer = parts.answer()
        if not any(getattr(chunk, "usage", None) for chunk in chunks.chunks):
            answer = replace(answer, usage=None)
        return answer


@dataclass
class _Address:
    api_key: str | None = field(repr=False)
    base_url: str | None
    headers: dict[str, str] = field(default_factory=dict, repr=False)

    async def close(self) -> None:
        """Do nothing, because LiteLLM owns the connections."""


class LiteLLMError(Exception):
    """LiteLLM's message about a failed request."""

    def __init__(self, text: str, status: int | None, headers: Mapping[str, str] | None) -> None:
        super().__init__(text)
        self.status_code = status
        self.response = SimpleNamespace(
            headers={str(name).lower(): value for name, value in dict(headers or {}).items()}
        )


def quiet_litellm() -> Any:
    """Import LiteLLM without any network request and without its printed advice on errors."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import litellm

    litellm.suppress_debug_info = True
    return litellm


# These accept OpenAI's own format, including image URLs.
_TAKE_ADDRESSES = ("openai", "azure", "openrouter")


def _request(
    client: LiteLLMClient,
    model: str,
    messages: list[ChatMessage],
    options: ChatOptions,
    **more: Any,
) -> dict[str, Any]:
    provider, slash, _ = model.partition("/")
    takes_addresses = bool(client.client.base_url)
    if slash:
        takes_addresses = provider in _TAKE_ADDRESSES
    if not takes_addresses:
        refuse_addresses(messages, "LiteLLM would fetch the image URL from this machine")
    request = request_for(client, model, messages, options, WIRE, **more)
    sent: list[dict[str, object]] = request["messages"]
    for message in sent:
        if message["role"] == "assistant" and not message["content"]:
            # LiteLLM would replace an empty text with its own words.
            message["content"] = None
    return request


def _reasoning(message: object) -> dict[str, Any]:
    """Collect reasoning and its signatures, which are sent back in LiteLLM's message fields."""
    fields: dict[str, Any] = {}
    for name in ("reasoning_content", "thinking_blocks", "reasoning_details"):
        value = getattr(message, name, None)
        if value:
            fields[name] = value
    return fields


def _signature(call: object) -> dict[str, Any]:
    """Find Gemini's signature of a call. LiteLLM's other provider fields are read-only."""
    signature = part_at(call, "provider_specific_fields.thought_signature")
    if not signature:
        return {}
    return {"provider_specific_fields": {"thought_signature": signature}}


_READING = Reading(wire=WIRE, of_message=_reasoning, of_call=_signature)


@contextmanager
def _translated() -> Iterator[None]:
    """Raise LiteLLM's errors as types and messages like those of other SDKs."""
    failure = None
    try:
        yield
    except Exception as error:
        failure = _failure(getattr(error, "original_exception", None) or error)
    if failure is not None:
        # Raised outside the handler, because the frames of LiteLLM's error hold the key.
        raise failure


def _keys_of_the_environment() -> list[str]:
    """List the secrets that LiteLLM may have sent by itself, and a provider may echo."""
    return [
        value for name, value in os.environ.items() if name.endswith(("_KEY", "_TOKEN", "_SECRET"))
    ]


def _failure(error: Exception) -> Exception:
    kind = type(error).__name__
    own_text = _OWN_WORDS.sub("", str(error).partition("\nTraceback")[0])
    text = redacted(own_text, _keys_of_the_environment())
    headers = getattr(error, "litellm_response_headers", None)
    status = getattr(error, "status_code", None)
    if kind == "ContentPolicyViolationError":
        return ContentFiltered(text)
    if kind == "ContextWindowExceededError":
        return LiteLLMError(f"context_length_exceeded: {text}", status, headers)
    if kind == "Timeout":
        return TimeoutError(text)
    # LiteLLM also reports connection failures and unreadable answers as server errors.
    came_from_nobody = kind == "APIConnectionError" or (status == 500 and not headers)
    if came_from_nobody and _UNREACHED.search(text):
        return ConnectionError(text)
    if kind == "APIConnectionError" or not isinstance(status, int):
        return InvalidResponse(text)
    if came_from_nobody and _UNREADABLE.search(text):
        return InvalidResponse(text)
    return LiteLLMError(text, status, headers)


def _client() -> type[Any]:
    return LiteLLMClient


def _build(name: str, config: ClientConfig) -> LLMClient:
    try:
        quiet_litellm()
    except ImportError as error:
        raise missing(name, "litellm") from error
    return LiteLLMClient(key_of(config), config.base_url, config.timeout, headers_of(config))


SPEC = ProviderSpec(
    name=WIRE,
    about="about a hundred providers through LiteLLM",
    position=50,
    build=_build,
    adapter=ProviderAdapter(offer, ask=LiteLLMClient.ask, stream=LiteLLMClient.stream, name=WIRE),
    client=_client,
    sdk="litellm",
    unsent=unsent_to_reasoning,
    takes_thinking_tokens=True,
    chat_messages=True,
    renames_max_tokens=True,
)
