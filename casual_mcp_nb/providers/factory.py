"""Create clients and models from a config. A client is created once and shared by its models."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ClientConfig, Config, EmbeddingConfig, ModelConfig
from casual_mcp_nb.base.config_base import RequestOptions
from casual_mcp_nb.base.limits import load
from casual_mcp_nb.base.prices import price_of
from casual_mcp_nb.base.proxies import odd_variable
from casual_mcp_nb.base.secret import redacted
from casual_mcp_nb.base.tokens import TokenUsage, estimate_tokens, sampled
from casual_mcp_nb.errors import (
    CasualMcpError,
    ProviderError,
    SpendLimitError,
    UnknownModelError,
    UsageError,
    shown,
)
from casual_mcp_nb.providers._bound_model import BoundModel, touch
from casual_mcp_nb.providers._clients import hosted_tools, key_places, unknown_model
from casual_mcp_nb.providers._options import chat_options, options_of
from casual_mcp_nb.providers._reading import watch_responses
from casual_mcp_nb.providers.builtin.replay import ReplayClient
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.limits import Retries, limits_of
from casual_mcp_nb.providers.registry import ANSWER_TOKENS, loggers, spec_of, specs, window_of
from casual_mcp_nb.providers.spending import Account, Charge, Spending

if TYPE_CHECKING:
    from casual_llm import ChatOptions, LLMClient, Model

    from casual_mcp_nb.cassettes.recorder import Recorder
    from casual_mcp_nb.cassettes.replayer import Replayer
    from casual_mcp_nb.discovery.meaning import EmbeddingModel
    from casual_mcp_nb.providers._offered import RefusedTools


# The URLs of tiktoken's vocabularies, which determine their names in its cache, and their hashes;
# otherwise it fetches them.
_SOURCE = "https://openaipublic.blob.core.windows.net/encodings/{name}.tiktoken"
_HASHES = {
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}


def counter_for(model: ChatModel) -> Callable[[str], int] | None:
    """Create a function that counts tokens as this model does, or None if that needs a network.

    OpenAI's are counted by tiktoken, if it is installed and its vocabulary is cached. The first
    call takes up to a second: call it on another thread.
    """
    if not spec_of(model.provider).counted_by_tiktoken:
        return None
    try:
        import tiktoken
        from tiktoken.registry import ENCODINGS

        name = tiktoken.encoding_name_for_model(model.model)
        encoding = ENCODINGS.get(name)
        if encoding is None and _is_here(name):
            encoding = tiktoken.get_encoding(name)
    except (ImportError, KeyError, ValueError, OSError):
        return None
    if encoding is None:
        return None
    encode = encoding.encode_ordinary

    def count(part: str) -> int:
        return len(encode(part))

    def counted(text: str) -> int:
        return round(sampled(text, count))

    return counted


def _is_here(name: str) -> bool:
    """Check whether tiktoken has this vocabulary in its cache, complete."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder is None:
        folder = os.path.join(tempfile.gettempdir(), "data-gym-cache")
    file = Path(folder) / hashlib.sha1(_SOURCE.format(name=name).encode()).hexdigest()
    if not folder or name not in _HASHES or not file.is_file():
        return False
    return hashlib.sha256(file.read_bytes()).hexdigest() == _HASHES[name]


class ModelFactory:
    """Creates a config's clients and models on first use.

    Args:
        config: The config, with its keys. This class does not read the environment.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._default = next(iter(config.models), None)
        self._clients: dict[str, LLMClient] = {}
        self._models: dict[str, Model] = {}
        self._bound: dict[str, ChatModel] = {}
        self._last_own: tuple[Model | None, ChatModel | None] = (None, None)
        self._making = threading.Lock()
        self.spending = Spending(config.limits)
        # Created once, so that closing and reopening does not reset the limits.
        self._limits = {name: limits_of(name, client) for name, client in config.clients.items()}

    def refused_tools(self, name: str) -> RefusedTools | None:
        """Look up which tools a model's provider was seen to refuse, or None if the model has not
        been used.
        """
        model = self._bound.get(name)
        return model.facts.refused_tools if model is not None else None

    def get_client(self, name: str) -> LLMClient:
        """Get the config's client with that name.

        Raises:
            UnknownNameError: There is none. The message suggests the closest names.
            UsageError: Its provider is not supported.
            MissingDependencyError: Its SDK is not installed.
            ProviderError: It has no key, or its SDK rejects its settings.
        """
        if name not in self._clients:
            if name not in self._config.clients:
                raise UnknownModelError("client", name, self._config.clients)
            config = self._config.clients[name]
            if not spec_of(config.provider).name:
                raise UsageError(
                    f"Client {shown(name)}: provider {shown(config.provider)} is not supported.",
                    hint=f"Supported are {', '.join(specs())}.",
                )
            self._clients[name] = _built(name, config)
            watch_responses(self._clients[name])
        return self._clients[name]

    @property
    def default(self) -> str | None:
        """The model used where none is named: the config's first one, unless another one was set.

        None if the config has no models.
        """
        return self._default

    @default.setter
    def default(self, name: str | None) -> None:
        if name is not None:
            self.check(name)
        self._default = name

    @property
    def window(self) -> int | None:
        """The default model's context window in tokens, or None if it is unknown."""
        model = self._config.models.get(self.default or "")
        return window_of(model, self._config.clients[model.client]) if model else None

    def check(self, name: str) -> None:
        """Raise an error if the config has no model with that name.

        Raises:
            UnknownNameError: It has none.
        """
        if name not in self._config.models:
            raise unknown_model(str(name), self._config.models)

    def get_model(self, name: str) -> Model:
        """Get the config's casual-llm model with that name.

        Raises the same errors as `get_client`.
        """
        if name not in self._models:
            from casual_llm import Model

            self.check(name)
            config = self._config.models[name]
            provider = self._config.clients[config.client].provider
            base = _options(config, provider)
            options = chat_options(spec_of(provider), base, options_of(base).overlaid(config), {})
            self._models[name] = Model(
                self.get_client(config.client), config.model, default_options=options
            )
        return self._models[name]

    def chat_model(self, name: str | Model | ChatModel | None = None) -> ChatModel:
        """Get the model for the engine.

        Args:
            name: A config model's name, a custom `casual_llm.Model`, a `ChatModel` (returned
                unchanged), or None for `default`.

        Raises:
            UsageError: The config has no model. Also raises the errors from `get_client`.
        """
        if isinstance(name, ChatModel):
            return name
        if name is not None and not isinstance(name, str):
            return self._own(name)
        if name is None:
            name = self.default
        if name is None:
            raise UsageError(
                "The config has no model.",
                hint=(
                    "Add one under 'models' of the config. Or choose one:"
                    " %mcp connect … --model openai:gpt-4.1."
                ),
            )
        if name not in self._bound:
            self._bound[name] = self._bind(name)
        return self._bound[name]

    def _own(self, model: Model) -> ChatModel:
        """Bind a model that the user created. The last one need not be bound again in each turn."""
        # An object that is only asked through its `chat` has none of these.
        has_options = getattr(model, "default_options", None) or getattr(
            model, "system_message_handling", None
        )
        last, bound = self._last_own
        if bound is not None and last is model and not has_options:
            is_unchanged = bound.client is getattr(model, "_client", None)
            if is_unchanged and bound.model == model.name:
                return bound
        bound = ChatModel.of(model)
        bound.price = price_of(self._config.prices, bound.name)
        # Options can be changed in place, so a model that has some is bound in each turn.
        self._last_own = (None, None) if has_options else (model, bound)
        return bound

    async def ready(self, name: str | Model | ChatModel | None = None) -> ChatModel:
        """Get the same model as `chat_model`, without blocking the caller's loop.

        A provider's first model imports its SDK, which takes seconds: casual-llm imports those of all
        its providers, and no part of it can be imported without that. A stand-in for the package that
        imports lazily would change `import casual_llm` for everything else in the notebook.
        """
        if isinstance(name, str) or name is None:
            if (name or self.default) not in self._bound:
                await asyncio.to_thread(self._first, name)
            return self.chat_model(name)
        model = self.chat_model(name)
        if not model.facts.touched:
            await asyncio.to_thread(touch, model.provider, model.client)
            model.facts.touched = True
        return model

    async def taped(
        self, name: str | Model | ChatModel | None, tape: Recorder | Replayer
    ) -> ChatModel:
        """Get the same model as `ready`, with a cassette that records its answers, or answers in
        its place.

        For a replayed model from the config, no client is created: it needs neither a key nor an
        SDK.
        """
        if not tape.replays or (name is not None and not isinstance(name, str)):
            return (await self.ready(name)).taped(tape)
        await load("casual_llm")
        if name is None:
            name = self.default or ""
        return self._bind(name, ReplayClient(tape)).taped(tape)

    def _first(self, name: str | None) -> None:
        with self._making:
            model = self.chat_model(name)
            touch(model.provider, model.client)

    def _bind(self, name: str, replay: ReplayClient | None = None) -> ChatModel:
        self.check(name)
        config = self._config.models[name]
        client = self._config.clients[config.client]
        llm_client: Any = replay or self.get_client(config.client)
        bound = ChatModel(
            llm_client,
            config.model,
            name=name,
            client_name=config.client,
            provider=client.provider,
            template=config.template,
            context_window=window_of(config, client),
            default_options=_options(config, client.provider),
            options=RequestOptions().overlaid(config),
            key_places=key_places(config.client, client.provider),
            timeout=client.timeout,
            retries=Retries(client.max_retries),
            # A function rather than the values, because the model can be shown.
            secrets=self._config.secrets,
            price=price_of(self._config.prices, name, config.model),
            limits=self._limits[config.client],
            native_deferral=client.native_deferral,
            hosted_tools=hosted_tools(spec_of(client.provider), config.hosted_tools),
            cache_diagnostics=client.cache_diagnostics,
            repair_calls=config.repair_calls,
            small=config.small,
        )
        if isinstance(llm_client, ReplayClient):
            return bound.taped(llm_client.tape)
        return bound

    def embedding_model(self, config: EmbeddingConfig) -> EmbeddingModel:
        """Make a config's embedding model.

        Not on an event loop: it imports an SDK, or reads a local model.

        Raises:
            UsageError: The provider has no embedding models, or the local one is not on this
                computer.
            MissingDependencyError: A package that it needs is not installed.
        """
        from casual_mcp_nb.discovery.meaning import EmbeddingModel, load_local

        if config.local:
            return load_local(config, self._config.folder)
        name, model = config.client or "", config.model or ""
        with self._making:
            client: Any = self.get_client(name)
        entry, limits = self._config.clients[name], self._limits[name]
        price = price_of(self._config.prices, model)
        # Its vectors serve all conversations.
        account = Account(self.spending, conversation=str)
        request = spec_of(entry.provider).embed
        if request is None:
            names = ", ".join(each.name for each in specs().values() if each.embed)
            raise UsageError(
                f"Client {shown(name)}: provider {entry.provider} has no embedding models here.",
                hint=f"These have: {names}.",
            )

        async def embed(texts: list[str], query: bool) -> Any:
            tokens = sum(map(estimate_tokens, texts))
            # What they cost is not reported: the estimate stays.
            await limits.turn(tokens, ignore)
            charge = Charge(account, model, price, lambda: tokens, 0)
            charge.usage = TokenUsage(tokens, 0)
            try:
                return await charge.counted(partial(request, client, model, texts))
            except SpendLimitError:
                raise
            except Exception as error:
                from casual_mcp_nb.providers._failures import embedding_failure

                bound = BoundModel(
                    client,
                    model,
                    client_name=name,
                    key_places=key_places(name, entry.provider),
                    timeout=entry.timeout,
                    secrets=self._config.secrets,
                )
                failure = embedding_failure(error, bound)
            # Raised outside the handler, because the frames of the SDK's error hold the key.
            raise failure

        # Without credentials and a query, which may be secret.
        at = urlsplit(entry.base_url or "")
        space = f"{entry.provider} {at.hostname}:{at.port}{at.path} {model}"
        return EmbeddingModel(config.label, embed, space, remote=True)

    async def close(self) -> None:
        """Close all clients' connections. They are created again on next use."""
        # At process exit no thread can be started, and the one that counts ends by itself.
        with suppress(RuntimeError):
            await asyncio.to_thread(self.spending.close)
        clients = list(self._clients.values())
        self._clients.clear()
        self._models.clear()
        self._bound.clear()
        self._last_own = (None, None)
        for client in clients:
            sdk = getattr(client, "client", None)
            if sdk is not None:
                await sdk.close()


def _built(name: str, config: ClientConfig) -> LLMClient:
    try:
        with _masked_logs(config.secrets()):
            return spec_of(config.provider).build(name, config)
    except CasualMcpError:
        raise
    except Exception as error:
        reason = redacted(f"{type(error).__name__}: {error}", config.secrets())[:300]
        hint = "Is its base_url right?"
        odd = odd_variable()
        if odd is not None:
            reason, hint = odd.problem, odd.remedy
    # Raised outside the handler, because the frames of the SDK's error hold the key.
    raise ProviderError(f"Client {shown(name)} cannot be made ({reason}).", hint=hint)


@contextmanager
def _masked_logs(secrets: Collection[str]) -> Iterator[None]:
    """Mask secrets in the log while a client is created."""

    def mask(record: logging.LogRecord) -> bool:
        record.msg, record.args = redacted(record.getMessage(), secrets), ()
        return True

    # A logger's filter does not see the records of its child loggers.
    making = [logging.getLogger(f"casual_llm.providers.{name}") for name in loggers()]
    for logger in making:
        logger.addFilter(mask)
    try:
        yield
    finally:
        for logger in making:
            logger.removeFilter(mask)


def _options(config: ModelConfig, provider: str) -> ChatOptions:
    from casual_llm import ChatOptions

    spec, budget = spec_of(provider), config.thinking_tokens
    extra: dict[str, Any] = {}
    most = None
    if budget is not None:
        if not spec.takes_thinking_tokens:
            problem = f"Model {shown(config.model)}: provider {provider} knows no thinking_tokens."
            raise UsageError(problem, hint="Set reasoning_effort instead.")
        extra["thinking"] = {"type": "enabled", "budget_tokens": budget}
        limits = spec.limits_of(config.model)
        most = budget + ANSWER_TOKENS
        if limits and limits.answer > budget:
            most = min(most, limits.answer)
    if spec.window_option is not None and config.context_window is not None:
        extra[spec.window_option] = config.context_window
    return ChatOptions(max_tokens=most, extra=extra)
