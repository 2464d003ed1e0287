"""Models of the config file: clients, models, servers, toolsets and discovery.

The format is casual-mcp's `casual_mcp_config.json`. `casual_mcp_nb.config` handles files, `mcpServers` and the keys of other
MCP hosts, `${NAME}` and `.env`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, SecretStr, StrictBool, model_validator
from pydantic_core import PydanticCustomError

from casual_mcp_nb.errors import closest, did_you_mean
from casual_mcp_nb.types.base_config import BaseConfig, HeaderName, HeaderText, RemoteConfig, Seconds, Written
from casual_mcp_nb.types.discovery_options import DiscoveryOptions
from casual_mcp_nb.types.options import RequestOptions
from casual_mcp_nb.types.prices import PriceTable
from casual_mcp_nb.types.secret import Secrets, certain, revealed, url_secrets, with_tokens
from casual_mcp_nb.types.server import ResultTokens, ServerConfig


class ClientConfig(RemoteConfig):
    """How to reach a model provider.

    Args:
        provider: The provider's name, which `casual_mcp_nb.providers` checks.
        base_url: A URL to use instead of the provider's own.
        api_key: The API key. The default is `{CLIENT_NAME}_API_KEY`, then the provider's own variable.
        timeout: Seconds until the answer, or the first chunk of a stream, for all attempts together; then the longest pause
            within a stream.
        max_retries: How often a request that failed temporarily is retried.
        requests_per_minute: Limit over all chats of this client; None for no limit.
        tokens_per_minute: Limit over all chats of this client; None for no limit.
        headers: HTTP headers for each request, such as those that identify an application to a gateway. Their values are
            secrets.
        prompt_caching: Whether to mark requests for the provider's cache. Anthropic's caches only marked requests; others need
            no mark. Writing to it costs a quarter more, reading from it a tenth.
        cache_diagnostics: Whether to ask the provider why its cache was missed. The default, None, asks Anthropic, and OpenAI's
            Responses API from GPT-5.6 on, at their own addresses.
        native_deferral: Whether the provider loads deferred tools itself (`delivery` of `tool_discovery`). The default, None,
            follows from the model's name, and is false with a `base_url` that is not the provider's: set it for a gateway.
        cassette: The file with the answers, for the provider `replay`; relative to the config's folder.
    """

    provider: str
    base_url: str | None = None
    api_key: HeaderText | None = None
    timeout: Seconds = 60.0
    max_retries: int = Field(default=2, ge=0, le=20)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    headers: dict[HeaderName, HeaderText] = Field(default_factory=dict)
    prompt_caching: StrictBool = True
    cache_diagnostics: StrictBool | None = None
    native_deferral: StrictBool | None = None
    cassette: str | None = None

    @property
    def cassette_path(self) -> Path:
        """The file of `cassette`."""
        path = Path(self.cassette or "").expanduser()
        return self._origin.path.parent / path if self._origin.path else path

    @property
    def key_state(self) -> Literal["set", "not set"]:
        """Whether there is an API key. Nothing else about it is ever shown."""
        return "set" if self.api_key and self.api_key.get_secret_value() else "not set"

    @property
    def key_variable(self) -> str | None:
        """The environment variable that the key came from; None if it is in the config, or missing."""
        return self._origin.key_variable

    def with_key(self, key: str, variable: str) -> ClientConfig:
        """Copy this client with a key from an environment variable."""
        client = self.model_copy(update={"api_key": SecretStr(key)})
        written = {**self._origin.written, ("api_key",): Written(None, SecretStr(key))}
        client._origin = replace(self._origin, key_variable=variable, written=written)
        return client

    def _secrets(self) -> set[str]:
        headers = with_tokens(revealed(self.headers.values()))
        return super()._secrets() | revealed([self.api_key]) | headers | url_secrets(self.base_url)

    def _high_confidence_secrets(self) -> set[str]:
        named = {value for name, secret in self.headers.items() if certain(name, value := secret.get_secret_value())}
        return super()._high_confidence_secrets() | revealed([self.api_key]) | with_tokens(named) | url_secrets(self.base_url)


def _by_name(value: Any) -> Any:
    return {name: {} for name in value} if isinstance(value, list | tuple) else value


class ModelConfig(RequestOptions):
    """A model of a client, with the `RequestOptions` sent with each request to it.

    Args:
        client: Name of the client in the config.
        model: The provider's name of the model.
        template: File in `prompt-templates/` that generates the system prompt.
        thinking_tokens: Token budget for thinking, at least 1,024, for models that accept one (Anthropic's before 4.6).
        context_window: Size of the model's context window in tokens; None for what is known of the provider's current models.
            Ollama reserves memory for that many.
        hosted_tools: Tools that the provider runs itself, such as `web_search`: names, or the provider's parameters by name.
            The provider decides what they may do, and charges for them.
        repair_calls: Whether a call of an offered tool that the model writes as text, as small models do, is run like any
            other, with the same consent.
    """

    client: str
    model: str
    template: str | None = None
    context_window: int | None = Field(default=None, ge=1)
    thinking_tokens: int | None = Field(default=None, ge=1_024)
    hosted_tools: Annotated[dict[str, dict[str, JsonValue]], BeforeValidator(_by_name)] = Field(default_factory=dict)
    repair_calls: StrictBool = False

    @model_validator(mode="after")
    def _room_for_the_answer(self) -> ModelConfig:
        if self.thinking_tokens and self.max_tokens and self.max_tokens <= self.thinking_tokens:
            raise ValueError("max_tokens includes thinking_tokens and must be larger")
        return self


class ExcludeSpec(BaseConfig):
    """All tools of a server except these."""

    exclude: tuple[str, ...]


class ToolSetConfig(BaseConfig):
    """A named choice of tools.

    Args:
        description: What it is for.
        servers: For each server `true` (all its tools), a list of tool names, or `{"exclude": [names]}`. Servers that are not
            named are excluded. Also servers of the process, and `notebook`, which has the functions of a notebook.
    """

    description: str = ""
    servers: dict[str, StrictBool | tuple[str, ...] | ExcludeSpec] = Field(default_factory=dict)


class DiscoveryConfig(DiscoveryOptions, BaseConfig):
    """The initial discovery options, which a selection can change.

    Args:
        enabled: Whether tools of servers with `defer_loading` are hidden behind the search tool. `auto` does it only where all
            definitions take more than `auto_threshold` percent of the model's context window; if no server has
            `defer_loading`, every one is deferred then, except what has `always_load`.
    """

    enabled: StrictBool | Literal["auto"] = False


class ToolResultsConfig(BaseConfig):
    """Limits on tool results.

    Args:
        max_tokens: Maximum length of a result in estimated tokens; 0 for no limit. A longer one is kept as a value: the model
            reads its head and shape, and can read on, search and query it. A server's `max_result_tokens` replaces this.
    """

    max_tokens: ResultTokens = 4_000


class Config(BaseConfig):
    """The complete config of a session.

    Args:
        clients: Model providers by name.
        models: Models by name; the first one is the default.
        servers: MCP servers by name.
        tool_sets: Toolsets by name.
        tool_discovery: Discovery.
        prices: Prices for cost estimates, by the model's name here or at the provider.
        tool_results: Limits on tool results.
        strict: Whether every call asks unless its policy was set to `never`, a changed tool is blocked until the change is
            accepted, and this file itself must be accepted before anything starts.
        store: The file in which conversations are saved, in the folder of the config; false for none.
    """

    clients: dict[str, ClientConfig] = Field(default_factory=dict)
    models: dict[str, ModelConfig] = Field(default_factory=dict)
    servers: dict[str, ServerConfig] = Field(default_factory=dict)
    tool_sets: dict[str, ToolSetConfig] = Field(default_factory=dict)
    tool_discovery: DiscoveryConfig = Field(default_factory=DiscoveryConfig)
    prices: PriceTable = Field(default_factory=dict)
    tool_results: ToolResultsConfig = Field(default_factory=ToolResultsConfig)
    strict: StrictBool = False
    store: Literal[False] | Annotated[str, Field(min_length=1)] | None = None

    __reduce_ex__ = RemoteConfig.__reduce_ex__

    @model_validator(mode="before")
    @classmethod
    def _of_casual_mcp(cls, data: Any) -> Any:
        """Accept the output of casual-mcp's own `model_dump`: no discovery is None there, and one key has no effect."""
        if not isinstance(data, Mapping):
            return data
        unset = {"namespace_tools", *(["tool_discovery"] if data.get("tool_discovery") is None else [])}
        return {key: value for key, value in data.items() if key not in unset}

    @model_validator(mode="after")
    def _names_exist(self) -> Config:
        problems = list(unknown_clients(self.clients, self.models))
        if problems:
            lines = "\n".join(f"{'.'.join(path)}: {reason}" for path, reason in problems)
            raise PydanticCustomError("unknown_reference", "{lines}", {"lines": lines})
        return self

    @property
    def path(self) -> Path | None:
        """The file that this was read from; None for a config made in Python."""
        return self._origin.path

    @property
    def folder(self) -> Path | None:
        """The folder of that file, which relative paths are relative to, and where templates are looked up first."""
        return self.path.parent if self.path else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks about how the file was read: ignored keys, servers that were left out."""
        return self._origin.notes

    def variables_of(self, section: str, name: str) -> tuple[str, ...]:
        """List the environment variables whose values were inserted into an entry.

        Args:
            section: `clients`, `models` or `servers`.
            name: The entry.
        """
        return self._origin.variables.get((section, name), ())

    def secrets(self) -> Secrets:
        """Collect every value to mask in text.

        These are keys, headers, servers' environments, credentials in URLs, and values that variables inserted into commands,
        arguments and URLs. Values too short or too common to distinguish from other text are left out.
        """
        return Secrets(value for thing in self._reached() for value in thing.secrets())

    def high_confidence_secrets(self) -> Secrets:
        """Collect those of `secrets` that are not just settings of servers; they are also masked in tool results."""
        return Secrets(value for thing in self._reached() for value in thing.high_confidence_secrets())

    def _reached(self) -> list[RemoteConfig]:
        return [*self.clients.values(), *self.models.values(), *self.servers.values()]


def unknown_clients(clients: Collection[str], models: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the key paths of models that name a client which does not exist, each with the reason.

    The servers that toolsets name are checked when these are used: some exist only in the process.

    Args:
        clients: Names of the clients.
        models: `ModelConfig`s by name, or plain objects as in a file; malformed ones are skipped.
    """
    for name, model in models.items():
        client = model.get("client") if isinstance(model, Mapping) else getattr(model, "client", None)
        if isinstance(client, str) and client not in clients:
            yield ("models", name, "client"), f"there is no such client. {did_you_mean(closest(client, clients), clients)}"
