"""The config file as a value: clients, models, servers, toolsets and discovery.

The format is casual-mcp's `casual_mcp_config.json`. Reading a file, `mcpServers` and the keys of other MCP hosts, `${NAME}`
and `.env` are the business of `casual_mcp_nb.config`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, StrictBool, model_validator
from pydantic_core import PydanticCustomError

from casual_mcp_nb.errors import closest, did_you_mean
from casual_mcp_nb.types.base_config import BaseConfig, HeaderName, HeaderText, RemoteConfig, Seconds
from casual_mcp_nb.types.discovery_options import DiscoveryOptions
from casual_mcp_nb.types.options import RequestOptions
from casual_mcp_nb.types.prices import PriceTable
from casual_mcp_nb.types.secret import Secrets, certain, revealed, url_secrets, with_tokens
from casual_mcp_nb.types.server import ServerConfig


class ClientConfig(RemoteConfig):
    """How a model provider is reached.

    Args:
        provider: Which one, by its name. Whether there is such a one is known to `casual_mcp_nb.providers`.
        base_url: Another address than the provider's own.
        api_key: The key. Without it `{CLIENT_NAME}_API_KEY` is looked up, then the provider's own variable.
        timeout: Seconds until an answer must be there, or its first piece where it is streamed, all attempts together; then the
            longest silence in a stream.
        max_retries: How often a request that can succeed later is made again.
        requests_per_minute: Limit over all chats of this client; None for no limit.
        tokens_per_minute: Limit over all chats of this client; None for no limit.
        headers: HTTP headers for each request, such as those by which a gateway knows an application. Their values are secrets.
        prompt_caching: Whether requests are marked for the provider's cache; Anthropic's caches nothing else, others need none.
    """

    provider: str
    base_url: str | None = None
    api_key: HeaderText | None = None
    timeout: Seconds = 60.0
    max_retries: int = Field(default=2, ge=0, le=20)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    headers: dict[HeaderName, HeaderText] = Field(default_factory=dict)
    prompt_caching: StrictBool = False

    @property
    def key_state(self) -> Literal["set", "not set"]:
        """Whether there is an API key: all that is ever shown of it."""
        return "set" if self.api_key and self.api_key.get_secret_value() else "not set"

    @property
    def key_variable(self) -> str | None:
        """The environment variable that the key was taken from; None where it stands in the config, or there is none."""
        return self._origin.key_variable

    def with_key(self, key: str, variable: str) -> ClientConfig:
        """Return this client with a key from an environment variable."""
        made = self.model_copy(update={"api_key": SecretStr(key)})
        made._origin = replace(self._origin, key_variable=variable)
        return made

    def _secrets(self) -> set[str]:
        headers = with_tokens(revealed(self.headers.values()))
        return super()._secrets() | revealed([self.api_key]) | headers | url_secrets(self.base_url)

    def _high_confidence_secrets(self) -> set[str]:
        named = {value for name, secret in self.headers.items() if certain(name, value := secret.get_secret_value())}
        return super()._high_confidence_secrets() | revealed([self.api_key]) | with_tokens(named) | url_secrets(self.base_url)


class ModelConfig(RequestOptions):
    """A model of a client; what goes with each request to it is as of `RequestOptions`.

    Args:
        client: Name of the client in the config.
        model: The provider's name of the model.
        template: File in `prompt-templates/` that makes the system prompt.
        thinking_tokens: Budget of its thinking in tokens, at least 1,024, for models that take one (Anthropic's before 4.6).
        context_window: How many tokens the model can read; None when not known. Ollama is told it, and holds that much memory.
    """

    client: str
    model: str
    template: str | None = None
    context_window: int | None = Field(default=None, ge=1)
    thinking_tokens: int | None = Field(default=None, ge=1_024)

    @model_validator(mode="after")
    def _room_for_the_answer(self) -> ModelConfig:
        if self.thinking_tokens and self.max_tokens and self.max_tokens <= self.thinking_tokens:
            raise ValueError("max_tokens includes thinking_tokens and must be more than them")
        return self


class ExcludeSpec(BaseConfig):
    """All tools of a server but these."""

    exclude: tuple[str, ...]


class ToolSetConfig(BaseConfig):
    """A named choice of tools.

    Args:
        description: What it is for.
        servers: For each server `true` (all its tools), a list of tool names, or `{"exclude": [names]}`. A server that is not
            named is out.
    """

    description: str = ""
    servers: dict[str, StrictBool | tuple[str, ...] | ExcludeSpec] = Field(default_factory=dict)


class DiscoveryConfig(DiscoveryOptions, BaseConfig):
    """How deferred tools are found at first; a selection changes it.

    Args:
        enabled: Whether tools of servers with `defer_loading` are hidden behind the search tool.
    """

    enabled: StrictBool = False


class ToolResultsConfig(BaseConfig):
    """How much of a tool's result a model reads.

    Args:
        max_tokens: Length of a result in tokens, by estimate. Of a longer one the model reads the beginning and the end, and
            can read on.
    """

    max_tokens: int = Field(default=10_000, ge=100)


class Config(BaseConfig):
    """Everything that a session starts from.

    Args:
        clients: Model providers by name.
        models: Models by name; the first one is the default.
        servers: MCP servers by name.
        tool_sets: Toolsets by name.
        tool_discovery: Discovery.
        prices: What models cost, by their names here or the provider's names; for estimates of the cost.
        tool_results: How much of a tool's result a model reads.
    """

    clients: dict[str, ClientConfig] = Field(default_factory=dict)
    models: dict[str, ModelConfig] = Field(default_factory=dict)
    servers: dict[str, ServerConfig] = Field(default_factory=dict)
    tool_sets: dict[str, ToolSetConfig] = Field(default_factory=dict)
    tool_discovery: DiscoveryConfig = Field(default_factory=DiscoveryConfig)
    prices: PriceTable = Field(default_factory=dict)
    tool_results: ToolResultsConfig = Field(default_factory=ToolResultsConfig)

    __reduce_ex__ = RemoteConfig.__reduce_ex__

    @model_validator(mode="after")
    def _names_exist(self) -> Config:
        problems = list(unknown_references(self.clients, self.models, self.servers, self.tool_sets))
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
        """The folder of that file: what relative paths are relative to, and where templates are looked for first."""
        return self.path.parent if self.path else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the person should know about how the file was read: keys that were ignored, servers that were left out."""
        return self._origin.notes

    def secrets(self) -> Secrets:
        """Return every value to mask in text.

        These are keys, headers, the environment of servers, credentials in addresses, and what variables put into commands,
        arguments and addresses. Values too short or too common to be told from other text are left out.
        """
        return Secrets(value for thing in self._reached() for value in thing.secrets())

    def high_confidence_secrets(self) -> Secrets:
        """Return those of `secrets` that are more than settings of servers; they are masked in the results of tools too."""
        return Secrets(value for thing in self._reached() for value in thing.high_confidence_secrets())

    def _reached(self) -> list[RemoteConfig]:
        return [*self.clients.values(), *self.models.values(), *self.servers.values()]


def unknown_references(
    clients: Collection[str], models: Mapping[str, Any], servers: Collection[str], tool_sets: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Return the key paths of models and toolsets that name a client or server which does not exist, each with the reason.

    Args:
        clients: Names of the clients.
        models: `ModelConfig`s by name, or objects as a file has them; what is malformed is passed over.
        servers: Names of the servers.
        tool_sets: `ToolSetConfig`s by name, or objects as a file has them.
    """
    for name, model in models.items():
        client = _field(model, "client")
        if isinstance(client, str) and client not in clients:
            yield ("models", name, "client"), f"there is no such client. {did_you_mean(closest(client, clients), clients)}"
    for name, tool_set in tool_sets.items():
        chosen = _field(tool_set, "servers")
        for server in chosen if isinstance(chosen, Mapping) else ():
            if server not in servers:
                hint = did_you_mean(closest(str(server), servers), servers)
                yield ("tool_sets", name, "servers", str(server)), f"there is no such server. {hint}"


def _field(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
