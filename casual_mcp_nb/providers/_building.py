"""Build clients from their config, casual-llm's or our own."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.config import ClientConfig
from casual_mcp_nb.errors import AuthenticationError, MissingDependencyError, install, shown
from casual_mcp_nb.providers._answers import plain_usage
from casual_mcp_nb.providers.registry import key_variables

if TYPE_CHECKING:
    from casual_llm import ChatOptions, LLMClient, StreamChunk
    from casual_llm.messages import AssistantMessage, ChatMessage
    from casual_llm.usage import Usage

    from casual_mcp_nb.conversation.answers import ModelResponse
    from casual_mcp_nb.providers.registry import OnText


class OwnClient:
    """Base for clients that casual-llm's `Model` can use too. Subclasses implement the request."""

    async def ask(self, model: str, messages: list[ChatMessage], options: ChatOptions) -> ModelResponse:
        """Make a request without streaming."""
        raise NotImplementedError

    async def stream(self, model: str, messages: list[ChatMessage], options: ChatOptions, on_text: OnText) -> ModelResponse:
        """Make a streaming request."""
        raise NotImplementedError

    async def _chat(
        self, model: str, messages: list[ChatMessage], options: ChatOptions
    ) -> tuple[AssistantMessage, Usage | None]:
        answer = await self.ask(model, messages, options)
        return answer.message, plain_usage(answer.usage)

    async def _stream(self, model: str, messages: list[ChatMessage], options: ChatOptions) -> AsyncIterator[StreamChunk]:
        from casual_llm import StreamChunk

        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        def put_text(text: str, response: object = None, /) -> None:
            pieces.put_nowait(text)

        asking = asyncio.create_task(self.stream(model, messages, options, put_text))
        asking.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (text := await pieces.get()) is not None:
                if text:
                    yield StreamChunk(content=text)
            answer = await asking
        finally:
            asking.cancel()
            await asyncio.wait([asking])
        yield StreamChunk(content="", finish_reason=answer.finish_reason, usage=plain_usage(answer.usage))


_NO_KEY = "no-key-needed"


def key_places(name: str, provider: str) -> str:
    """Describe where a client's key is looked up."""
    return ", then ".join([f"clients.{name}.api_key of the config", *key_variables(name, provider)])


def key_of(config: ClientConfig) -> str | None:
    """Choose the key to pass to an SDK: with a `base_url` and no key, a placeholder, because local servers need none.

    It is never None with a `base_url`: the SDK would send the provider's key from the environment there.
    """
    if config.api_key is not None and config.api_key.get_secret_value():
        return config.api_key.get_secret_value()
    return _NO_KEY if config.base_url else None


def headers_of(config: ClientConfig) -> dict[str, str]:
    """Reveal a client's plain headers."""
    return {name: value.get_secret_value() for name, value in config.headers.items()}


def need(name: str, sdk: str, imported: str | None = None) -> None:
    """Import an SDK, by its name or from another module, or raise MissingDependencyError."""
    try:
        importlib.import_module(imported or sdk)
    except ImportError as error:
        raise missing(name, sdk) from error


def missing(name: str, sdk: str) -> MissingDependencyError:
    """Build the error for an SDK that is not installed."""
    return MissingDependencyError(f"Client {shown(name)} needs the package {sdk}.", hint=install(sdk))


def no_key(name: str, provider: str) -> AuthenticationError:
    """Build the error for a client without a key."""
    hint = (
        f"It was looked for in {key_places(name, provider)}. "
        f"Set {key_variables(name, provider)[-1]}, or write it to a .env file in this folder, and try again."
    )
    return AuthenticationError(f"Client {shown(name)} has no API key.", hint=hint, client=name)


def builds_requests(client: Any) -> Any:
    """Raise MissingDependencyError unless casual-llm's client builds requests without sending them."""
    if not isinstance(client, OwnClient) and not hasattr(client, "_build_request_kwargs"):
        release = version("casual-llm")
        text = f"casual-llm {release} builds the requests of {type(client).__name__} differently than expected here."
        raise MissingDependencyError(text, hint="Run: pip install 'casual-llm==0.8.*'")
    return client


def with_own_retries(client: Any, config: ClientConfig) -> LLMClient:
    """Have a client's SDK send the config's headers and not retry by itself: attempts are counted here."""
    sdk = builds_requests(client).client = client.client.with_options(max_retries=0, default_headers=headers_of(config))
    if config.base_url:
        # At the provider's own address the environment may add headers and ids; they are nobody else's business.
        sdk._custom_headers = headers_of(config)
        for name in ("organization", "project"):
            if hasattr(sdk, name):
                setattr(sdk, name, None)
    own: LLMClient = client
    return own


def over_openai(name: str, config: ClientConfig, kind: Callable[[], Any]) -> LLMClient:
    """Create a client that uses OpenAI's SDK. `kind` returns its class, which takes key, URL and timeout."""
    need(name, "openai")
    from openai import OpenAIError

    try:
        client = kind()(api_key=key_of(config), base_url=config.base_url, timeout=config.timeout)
    except OpenAIError as error:
        raise no_key(name, config.provider) from error
    return with_own_retries(client, config)


async def embed_over_openai(client: Any, model: str, texts: list[str]) -> Any:
    """Embed texts with a client that uses OpenAI's SDK. Many numbers are read on another thread."""
    response = await client.client.embeddings.with_raw_response.create(model=model, input=texts)
    rows = (await asyncio.to_thread(response.parse)).data
    return [row.embedding for row in sorted(rows, key=lambda row: row.index)]
