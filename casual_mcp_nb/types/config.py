"""The config file as a value: clients, models, servers, toolsets and discovery.

The format is casual-mcp's `casual_mcp_config.json`. Reading a file, `mcpServers` and the keys of other MCP hosts, `${NAME}`
and `.env` are the business of `casual_mcp_nb.config`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    StrictBool,
    field_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from casual_mcp_nb.errors import closest, did_you_mean
from casual_mcp_nb.types.prices import PriceTable
from casual_mcp_nb.types.secret import can_be_masked, certain, masked, option_secrets, revealed, url_secrets

Provider = Literal["openai", "openai-responses", "anthropic", "ollama", "litellm", "offline", "replay"]
Transport = Literal["stdio", "http", "streamable-http", "sse", "in-process"]
Approval = Literal["never", "destructive", "always"]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False, le=86_400)]


_MAY_HOLD_SECRETS = ("command", "args", "cwd", "url", "base_url")


@dataclass(frozen=True)
class Origin:
    """Where a config came from: given as the validation context, and kept beside the fields, never among them.

    Args:
        path: The file; None for a config made in Python.
        sensitive: Values of variables that were put into fields which are not secret by their type.
        notes: What the person should know about how the file was read.
        key_variable: Of a client whose key does not stand in the config: the variable that it was taken from.
    """

    # Two configs that say the same are equal, wherever they came from.
    path: Path | None = field(default=None, compare=False)
    sensitive: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    key_variable: str | None = field(default=None, compare=False)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    _origin: Origin = PrivateAttr(default=Origin())

    def model_post_init(self, context: Any, /) -> None:
        if isinstance(context, Origin):
            self._origin = context


class _Reached(_Strict):
    """A thing at an address, which can hold the value of a variable: shown and dumped with that value masked."""

    @field_serializer(*_MAY_HOLD_SECRETS, check_fields=False)
    def _dumped(self, value: Any) -> Any:
        return self._hidden(value)

    def __iter__(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]
        for name, value in super().__iter__():
            yield name, self._hidden(value) if name in _MAY_HOLD_SECRETS else value

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, self._hidden(value) if name in _MAY_HOLD_SECRETS else value

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._hidden(item) for item in value)
        return masked(value, self._secrets()) if isinstance(value, str) else value

    def secrets(self) -> frozenset[str]:
        """Every value to mask in text; those too short or too common to be told from other text are left out."""
        return frozenset(value for value in self._secrets() if can_be_masked(value))

    def certain_secrets(self) -> frozenset[str]:
        """Those of `secrets` that are no mere settings: what is masked in the results of tools too, where a time zone or a year
        out of `env` may stand rightly."""
        return frozenset(filter(can_be_masked, self._certain_secrets()))

    def _secrets(self) -> set[str]:
        """Every value that is, or can hold, a secret, whatever its length."""
        return set(self._origin.sensitive)

    def _certain_secrets(self) -> set[str]:
        return {value for value in self._origin.sensitive if certain("", value)}


def _as_text(value: Any) -> Any:
    """Numbers and booleans as they are written, since hosts take them in `env` and `headers`."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_SecretText = Annotated[SecretStr, BeforeValidator(_as_text)]


class ClientConfig(_Reached):
    """How a model provider is reached.

    Args:
        provider: Which one.
        base_url: Another address than the provider's own.
        api_key: The key. Without it `{CLIENT_NAME}_API_KEY` is looked up, then the provider's own variable.
        timeout: Seconds until an answer must be there, or its first piece where it is streamed, all attempts together; then the
            longest silence in a stream.
        max_retries: How often a request that can succeed later is made again.
        requests_per_minute: Limit over all chats of this client; None for no limit.
        tokens_per_minute: Limit over all chats of this client; None for no limit.
        prompt_caching: Whether requests are marked for the provider's cache; Anthropic's caches nothing else, others need none.
    """

    provider: Provider
    base_url: str | None = None
    api_key: SecretStr | None = None
    timeout: _Seconds = 60.0
    max_retries: int = Field(default=2, ge=0, le=20)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
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
        """This client with a key from an environment variable."""
        made = self.model_copy(update={"api_key": SecretStr(key)})
        made._origin = replace(self._origin, key_variable=variable)
        return made

    def _secrets(self) -> set[str]:
        return super()._secrets() | revealed([self.api_key]) | url_secrets(self.base_url)

    def _certain_secrets(self) -> set[str]:
        return super()._certain_secrets() | revealed([self.api_key]) | url_secrets(self.base_url)


class ModelConfig(_Strict):
    """A model of a client.

    Args:
        client: Name of the client in the config.
        model: The provider's name of the model.
        template: File in `prompt-templates/` that makes the system prompt.
        temperature: Sampling temperature; None for the provider's default. OpenAI's reasoning models refuse one, so they are
            sent none.
        max_tokens: Limit of an answer in tokens, thinking included; None for the provider's default.
        reasoning_effort: How much it thinks before it answers; None for the provider's default.
        thinking_tokens: Budget of its thinking in tokens, at least 1,024, for models that take one (Anthropic's before 4.6).
        context_window: How many tokens the model can read; None when not known. Ollama is told it, and holds that much memory.
    """

    client: str
    model: str
    template: str | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    context_window: int | None = Field(default=None, ge=1)
    reasoning_effort: ReasoningEffort | None = None
    thinking_tokens: int | None = Field(default=None, ge=1_024)

    @model_validator(mode="after")
    def _room_for_the_answer(self) -> ModelConfig:
        if self.thinking_tokens and self.max_tokens and self.max_tokens <= self.thinking_tokens:
            raise ValueError("max_tokens includes thinking_tokens and must be more than them")
        return self


class ServerConfig(_Reached):
    """An MCP server: a command (stdio), a url (HTTP or SSE), or one that ships with the package (bundled).

    Args:
        command: Program to start.
        args: Its arguments; of a bundled server, the server's own options.
        env: Variables for it, beside the short list that every server gets.
        cwd: Folder to start it in.
        url: Address of a remote server.
        headers: HTTP headers for it.
        auth: A bearer token, or `oauth`.
        transport: `http` (the same as `streamable-http`) or `sse` for a url; `stdio` or `in-process` for a bundled server.
        bundled: Name of a server that ships with the package.
        defer_loading: Whether its tools are found by search instead of being sent with each request.
        init_timeout: Limit for starting and listing, in seconds.
        call_timeout: Limit of a call in seconds; progress starts it anew, up to `total_timeout`.
        total_timeout: Limit of a call in seconds, whatever progress it reports.
        approval: Whether a person is asked before a call: `never`, for `destructive` tools, or `always`.
        pin_tools: Whether a tool whose definition changes while it is in use is not offered until a person accepts the change.
    """

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, _SecretText] = Field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, _SecretText] = Field(default_factory=dict)
    auth: SecretStr | None = None
    transport: Transport | None = None
    bundled: str | None = None
    defer_loading: StrictBool = False
    init_timeout: _Seconds = 20.0
    call_timeout: _Seconds = 60.0
    total_timeout: _Seconds = 600.0
    approval: Approval | None = None
    pin_tools: StrictBool = False

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> ServerConfig:
        problem = server_problem(self.__dict__)
        if problem:
            raise ValueError(problem)
        return self

    def _secrets(self) -> set[str]:
        named = revealed([*self.env.values(), *self.headers.values(), self.auth])
        return super()._secrets() | _with_tokens(named) | self._given_away()

    def _certain_secrets(self) -> set[str]:
        settings = {**self.env, **self.headers}
        named = {value for name, secret in settings.items() if certain(name, value := secret.get_secret_value())}
        return super()._certain_secrets() | _with_tokens(named | revealed([self.auth])) | self._given_away()

    def _given_away(self) -> set[str]:
        return url_secrets(self.url) | set(option_secrets(self.args))


def _with_tokens(values: set[str]) -> set[str]:
    """ "Bearer x" is a secret as a whole, and so is x."""
    return values | {value.split()[-1] for value in values if value.strip()}


_FIELDS_OF_ANOTHER_WAY = {
    "command": ("headers", "auth"),
    "url": ("args", "env", "cwd"),
    "bundled": ("headers", "auth"),
}
_TRANSPORTS: dict[str, tuple[Transport, ...]] = {
    "command": ("stdio",),
    "url": ("http", "streamable-http", "sse"),
    "bundled": ("stdio", "in-process"),
}


def server_problem(fields: Mapping[str, Any]) -> str | None:
    """Why the fields of a server do not go together, or None; values are never part of the reason."""
    given = [way for way in _TRANSPORTS if fields.get(way)]
    if len(given) != 1:
        return f"needs exactly one of command, url and bundled, found {' and '.join(given) or 'none of them'}"
    way = given[0]
    stray = [name for name in _FIELDS_OF_ANOTHER_WAY[way] if fields.get(name)]
    if stray:
        return f"{' and '.join(stray)} cannot be used with {way}"
    if fields.get("transport") not in (None, *_TRANSPORTS[way]):
        return f"transport with {way} is one of {', '.join(_TRANSPORTS[way])}"
    if way == "url" and not str(fields["url"]).startswith(("http://", "https://")):
        return "url must start with http:// or https://"
    return None


class ExcludeSpec(_Strict):
    """All tools of a server but these."""

    exclude: tuple[str, ...]


class ToolSetConfig(_Strict):
    """A named choice of tools.

    Args:
        description: What it is for.
        servers: For each server `true` (all its tools), a list of tool names, or `{"exclude": [names]}`. A server that is not
            named is out.
    """

    description: str = ""
    servers: dict[str, StrictBool | tuple[str, ...] | ExcludeSpec] = Field(default_factory=dict)


class DiscoveryConfig(_Strict):
    """How deferred tools are found.

    Args:
        enabled: Whether tools of servers with `defer_loading` are hidden behind the search tool.
        defer_all: Defer every server.
        max_search_results: How many tools one search finds at most.
        strategy: How they are found: by `search`, or by `browse`, which looks through categories and loads and unloads by name.
        manifest_max_tokens: What the manifest may cost at most, in estimated tokens; over it its lines shorten.
        max_active_tools: How many tools may be loaded at a time by browsing.
    """

    enabled: StrictBool = False
    defer_all: StrictBool = False
    max_search_results: int = Field(default=5, ge=1)
    strategy: Literal["search", "browse"] = "search"
    manifest_max_tokens: int = Field(default=2_000, ge=1)
    max_active_tools: int = Field(default=20, ge=1)


class Config(_Strict):
    """Everything that a session starts from.

    Args:
        clients: Model providers by name.
        models: Models by name; the first one is the default.
        servers: MCP servers by name.
        tool_sets: Toolsets by name.
        tool_discovery: Discovery.
        prices: What models cost, by their names here or the provider's names; for estimates of the cost.
    """

    clients: dict[str, ClientConfig] = Field(default_factory=dict)
    models: dict[str, ModelConfig] = Field(default_factory=dict)
    servers: dict[str, ServerConfig] = Field(default_factory=dict)
    tool_sets: dict[str, ToolSetConfig] = Field(default_factory=dict)
    tool_discovery: DiscoveryConfig = Field(default_factory=DiscoveryConfig)
    prices: PriceTable = Field(default_factory=dict)

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

    def secrets(self) -> frozenset[str]:
        """Every value to mask in text: keys, headers, server environment, credentials in addresses, and what variables put
        into commands, arguments and addresses. Values too short or too common to be told from other text are left out."""
        return frozenset(value for thing in self._reached() for value in thing.secrets())

    def certain_secrets(self) -> frozenset[str]:
        """Those of `secrets` that are no mere settings of servers: what is masked also in the results of tools."""
        return frozenset(value for thing in self._reached() for value in thing.certain_secrets())

    def _reached(self) -> list[_Reached]:
        return [*self.clients.values(), *self.servers.values()]


def unknown_references(
    clients: Collection[str], models: Mapping[str, Any], servers: Collection[str], tool_sets: Mapping[str, Any]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """The key paths of models and toolsets that name a client or server which does not exist, each with the reason.

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
