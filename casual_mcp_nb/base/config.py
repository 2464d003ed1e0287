"""The config file as pydantic models: clients, models, servers, toolsets and discovery.

The format is casual-mcp's `casual_mcp_config.json`. `casual_mcp_nb.config` handles files,
`mcpServers` and other hosts' keys, `${NAME}` and `.env`.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    JsonValue,
    SecretStr,
    StrictBool,
    model_validator,
)
from pydantic_core import PydanticCustomError

from casual_mcp_nb.base.config_base import (
    Argument,
    BaseConfig,
    Headers,
    HeaderText,
    RemoteConfig,
    RequestOptions,
    Seconds,
    Stripped,
    Variables,
    Written,
)
from casual_mcp_nb.base.iterables import all_are, attributes, drop_none
from casual_mcp_nb.base.model_options import DeliverySetting
from casual_mcp_nb.base.prices import PriceTable
from casual_mcp_nb.base.secret import (
    Secrets,
    certain,
    option_secrets,
    revealed,
    revealed_by_name,
    url_secrets,
    with_tokens,
)
from casual_mcp_nb.errors import closest, did_you_mean, shown

Discovery = bool | Literal["auto"]
"""Whether deferred tools are hidden behind the search tool.

`auto` decides by the size of all definitions.
"""
Strategy = Literal["search", "browse"]
"""How the model finds deferred tools: by searching for words, or by browsing categories."""


@dataclass(frozen=True)
class Limit:
    """How a limit is presented to people: its name in displays and next to its control, its unit,
    and an explanation.
    """

    label: str
    unit: str
    help: str


class DiscoveryOptions(BaseModel):
    """Options for finding deferred tools.

    Each option is declared only here. It is a key in a config's `tool_discovery`, a field in
    `Selection`, and a name for `%mcp option`. One with a `Limit` also has a row in the selection's
    display and a control in the explorer.

    Args:
        defer_all: Whether every loaded server counts as deferred.
        max_search_results: How many tools one search returns at most. 1 or more.
        max_search_tokens: How many definition tokens one search loads at most, estimated. One tool
            can always be loaded.
        strategy: How to find them: by `search`, or by `browse`, which lists categories and loads
            and unloads tools by name.
        manifest_max_tokens: Maximum manifest size in estimated tokens. Above it, lines get shorter.
        max_active_tools: How many tools browsing keeps loaded at most. 1 or more.
        max_active_tokens: How many tokens their definitions take at most, estimated. One tool can
            always be loaded.
        delivery: How the model gets the tools that were found: as `definitions` in the request, by
            its provider (`native`), or through `call_tool` (`bridge`). With `code`, it calls all
            tools as functions, in programs that it writes. `auto` is `native` for models that are
            known to support it, else `definitions`.
        direct_calls: Whether a deferred tool that the model calls before it has searched for it is
            loaded, and run if the arguments fit its schema. For small models it always is.
        auto_threshold: With `auto` discovery, tools are deferred if their definitions take more
            than this percentage of the model's context window.
    """

    defer_all: StrictBool = False
    max_search_results: Annotated[
        int, Limit("Max results", "tool", "Each tool that a search returns costs its definition")
    ] = Field(default=5, ge=1)
    max_search_tokens: Annotated[
        int,
        Limit(
            "Max size of a search",
            "estimated token",
            "Tools beyond it are named in the answer and not loaded",
        ),
    ] = Field(default=20_000, ge=1)
    strategy: Strategy = "search"
    manifest_max_tokens: Annotated[
        int,
        Limit(
            "Max manifest size",
            "estimated token",
            "Above it the lines of the manifest are shortened",
        ),
    ] = Field(default=2_000, ge=1)
    max_active_tools: Annotated[
        int,
        Limit(
            "Max tools loaded by browsing", "tool", "Beyond it the model has to unload a tool first"
        ),
    ] = Field(default=20, ge=1)
    max_active_tokens: Annotated[
        int,
        Limit(
            "Max size of tools loaded by browsing",
            "estimated token",
            "Beyond it the model has to unload a tool first",
        ),
    ] = Field(default=20_000, ge=1)
    delivery: DeliverySetting = "auto"
    direct_calls: StrictBool = False
    auto_threshold: float = Field(default=5, gt=0, le=100)

    def discovery_options(self) -> dict[str, object]:
        """Collect the options by name."""
        return attributes(self, DiscoveryOptions.model_fields)


def option_limits() -> Iterator[tuple[str, Limit]]:
    """Yield the name and the `Limit` of each option that has one."""
    for name, field in DiscoveryOptions.model_fields.items():
        for item in field.metadata:
            if isinstance(item, Limit):
                yield name, item


REGISTRY = "https://registry.modelcontextprotocol.io"
"""The official registry of MCP servers."""

Transport = Literal["stdio", "http", "streamable-http", "sse", "in-process"]
Protocol = Literal["auto", "legacy", "2026-07-28"]
Approval = Literal["never", "destructive", "always"]
"""When a call needs approval: never, for tools that can destroy something, or always."""

OTHER_TOOLS = "*"
"""The key in a mapping of policies that applies to all other tools."""


def checked_approval(value: Any) -> Any:
    """Check a policy, or a mapping of tool names to policies.

    A ValueError names the valid words, and the tool.
    """
    policies = get_args(Approval)
    words = ", ".join(policies)
    if value is None or value in policies:
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"must be one of {words}, or an object that maps tool names to these")
    for tool, policy in value.items():
        if not isinstance(tool, str) or policy not in policies:
            raise ValueError(f"the policy of tool {shown(str(tool))} must be one of {words}")
    return dict(value)


MIN_RESULT_TOKENS = 100


def _enough_for_a_head(tokens: int) -> int:
    if 0 < tokens < MIN_RESULT_TOKENS:
        raise ValueError(f"must be {MIN_RESULT_TOKENS} or more, or 0 for no limit")
    return tokens


ResultTokens = Annotated[int, Field(ge=0), AfterValidator(_enough_for_a_head)]
"""A limit on results in tokens, or 0 for none."""

Policies = Annotated[Approval | dict[str, Approval], BeforeValidator(checked_approval)]
"""A server's policy, or policies by tool name."""


def _as_description(value: Any) -> Any:
    return {"description": value} if isinstance(value, str) else value


class ToolTexts(BaseConfig):
    """Texts that the model reads in place of the server's own.

    Args:
        description: The description, or None for the server's.
        parameters: Parameter descriptions, by name.
        written_for: The hash of the definition for which they were written, see `ToolSpec.meaning`,
            or None for the first that a session sees. When the server changes it, the texts are
            left out until somebody accepts the change.
    """

    description: str | None = None
    parameters: dict[str, str] = Field(default_factory=dict)
    written_for: str | None = None

    @property
    def texts(self) -> dict[str, Any]:
        """Those that are set."""
        texts = {"description": self.description, "parameters": self.parameters}
        return {name: value for name, value in texts.items() if value}


Grant = Literal["authorization_code", "client_credentials", "jwt_bearer", "identity_assertion"]
"""How a token is obtained: a person signs in, or a program with its credentials, a workload's
token, or a person's ID token.
"""


class SignInConfig(BaseConfig):
    """How to sign in to a server with `auth: "oauth"`.

    Nothing of it is needed where the server registers its clients.

    Args:
        client_id: The id of a client that you have registered with the authorization server.
        client_secret: Its secret.
        client_metadata_url: The address of your client's metadata document, used as its id where
            the authorization server supports that. It must list the redirect address,
            `http://127.0.0.1/callback` with any port.
        issuer: The only authorization server to sign in at. Otherwise, the server chooses one.
        scopes: Scopes to request besides those that the server names.
        browser: `here` opens a browser on this computer, `elsewhere` only shows the address. `auto`
            chooses.
        callback_port: The port of the redirect address, or None for any free one.
        grant: How a token is obtained: `authorization_code` is a person in a browser, the others
            need nobody.
        private_key: With `client_credentials`, the private key (PEM) that signs the client's
            assertion, instead of a secret.
        signing_algorithm: Its algorithm.
        assertion: With `jwt_bearer`, the workload's token. With `identity_assertion`, the person's
            ID token.
        idp_token_url: With `identity_assertion`, where the identity provider exchanges that token.
        idp_client_id: The client's id at the identity provider.
    """

    client_id: str | None = None
    client_secret: HeaderText | None = None
    client_metadata_url: Stripped | None = None
    issuer: Stripped | None = None
    scopes: tuple[str, ...] = ()
    browser: Literal["auto", "here", "elsewhere"] = "auto"
    callback_port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    grant: Grant = "authorization_code"
    private_key: SecretStr | None = None
    signing_algorithm: str = "ES256"
    assertion: SecretStr | None = None
    idp_token_url: Stripped | None = None
    idp_client_id: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> SignInConfig:
        needed = {
            "authorization_code": (),
            "client_credentials": ("client_id",),
            "jwt_bearer": ("assertion",),
            "identity_assertion": ("client_id", "client_secret", "assertion", "idp_token_url"),
        }[self.grant]
        missing = [name for name in needed if not getattr(self, name)]
        if self.grant == "client_credentials" and not (self.client_secret or self.private_key):
            missing.append("client_secret or private_key")
        if missing:
            raise ValueError(f"grant {self.grant} needs {', '.join(missing)}")
        here = ("http://127.0.0.1", "http://localhost", "http://[::1]")
        beginnings = {
            "client_metadata_url": ("https://",),
            "issuer": ("https://", *here),
            "idp_token_url": ("https://", *here),
        }
        for name, allowed in beginnings.items():
            value = getattr(self, name)
            if value is not None and not value.startswith(allowed):
                raise ValueError(f"{name} must start with https://")
        return self

    @property
    def secrets(self) -> set[str]:
        """The values that are never shown."""
        return revealed([self.client_secret, self.private_key, self.assertion])

    @property
    def facts(self) -> dict[str, Any]:
        """The settings that decide access, without secrets."""
        facts = self.model_dump(mode="python", exclude_defaults=True)
        for name, value in facts.items():
            if isinstance(value, SecretStr):
                facts[name] = "set"
        return facts


BARE_PYTHON = frozenset({"python", "python3"})
"""An interpreter by name only: which one it is, PATH decides."""


class ServerConfig(RemoteConfig):
    """An MCP server: a command (stdio), a url (HTTP or SSE), or one that ships with the package
    (bundled).

    Args:
        command: Program to start.
        args: Its arguments. For a bundled server, the server's options.
        env: Environment variables in addition to the few that every server gets.
        cwd: Working directory.
        url: A remote server's URL.
        headers: HTTP headers for it.
        auth: A bearer token, or `oauth`.
        sign_in: How to sign in with `oauth`, where the defaults do not suffice.
        transport: `http` (the same as `streamable-http`) or `sse` for a url; `stdio` or
            `in-process` for a bundled server.
        protocol: How to negotiate the protocol version: `auto` asks the server and falls back to
            the older handshake, `legacy` starts with that handshake (2025-11-25 and before),
            `2026-07-28` accepts only that version.
        bundled: The name of a bundled server.
        enabled: Whether it is used. A disabled server is not started unless the user turns it on.
        defer_loading: Whether its tools are found by search instead of being sent with each
            request.
        always_load: Whether it stays loaded with `defer_all`, or the names of tools that stay
            loaded even if it is deferred.
        include_tools: The only tools to use, by name or pattern (`read_*`), or None for all. The
            server's apps use no others either.
        exclude_tools: Tools not to use, by name or pattern. Neither a model nor an app calls them.
        descriptions: Its tools' other descriptions, by tool: a text, or `{"description": …,
            "parameters": {name: text}}`.
        instructions: Whether its instructions go into the system prompt.
        init_timeout: Time limit in seconds for starting it and listing its tools.
        call_timeout: Time limit per call in seconds. Restarts on every progress message, up to
            `total_timeout`.
        total_timeout: Time limit per call in seconds, despite progress messages.
        task_wait: How many seconds a call waits if the server makes it a task. After that, the task
            continues by itself, and the model gets its result later.
        approval: When a call needs approval: `never`, for `destructive` tools, `always`, or a
            mapping from tool names to these, with `*` for all others. None: see
            `casual_mcp_nb.engine.consent`.
        max_result_tokens: Maximum result length in estimated tokens. 0 means no limit, None
            `tool_results.max_tokens`.
        pin_tools: Whether a tool whose definition changes during use is blocked until the user
            accepts the change.
        roots: Folders that it is told about on request, as its roots. Deprecated in MCP: only
            before version 2026-07-28.
        sampling: Whether it may ask for the model's answers, each of which the person allows.
            Deprecated in the same way.
        apps: Whether its apps are shown, and declared to it as supported. None: as the config's
            `apps`.
    """

    command: Stripped | None = None
    args: tuple[Argument, ...] = ()
    env: Variables = Field(default_factory=dict)
    cwd: str | None = None
    url: Stripped | None = None
    headers: Headers = Field(default_factory=dict)
    auth: HeaderText | None = None
    sign_in: SignInConfig | None = None
    transport: Transport | None = None
    protocol: Protocol = "auto"
    bundled: str | None = None
    enabled: StrictBool = True
    defer_loading: StrictBool = False
    always_load: StrictBool | tuple[str, ...] = False
    include_tools: tuple[str, ...] | None = None
    exclude_tools: tuple[str, ...] = ()
    descriptions: dict[str, Annotated[ToolTexts, BeforeValidator(_as_description)]] = Field(
        default_factory=dict
    )
    instructions: StrictBool = True
    init_timeout: Seconds = 20.0
    call_timeout: Seconds = 60.0
    total_timeout: Seconds = 600.0
    task_wait: Annotated[float, Field(ge=0, allow_inf_nan=False, le=86_400)] = 5.0
    approval: Policies | None = None
    max_result_tokens: ResultTokens | None = None
    pin_tools: StrictBool = False
    roots: tuple[str, ...] = ()
    sampling: StrictBool = False
    apps: StrictBool | None = None

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> ServerConfig:
        problem = server_problem(self.__dict__)
        if problem:
            raise ValueError(problem)
        return self

    @property
    def is_found(self) -> bool:
        """Whether a public catalog or registry named its address, which therefore has to be
        public.
        """
        return self._origin.found

    @property
    def file(self) -> Path | None:
        """The config file that it was read from, or None."""
        return self._origin.path

    def offers(self, tool: str) -> bool:
        """Check whether `include_tools` and `exclude_tools` allow a tool."""
        named = self.include_tools if self.include_tools is not None else ("*",)
        return _named(tool, named) and not _named(tool, self.exclude_tools)

    def _secrets(self, *, sure: bool = False) -> set[str]:
        secrets = super()._secrets(sure=sure) | self._named_secrets()
        secrets |= with_tokens(revealed([self.auth]) | _values({**self.env, **self.headers}, sure))
        return secrets | (self.sign_in.secrets if self.sign_in else set())

    def _named_secrets(self) -> set[str]:
        return url_secrets(self.url) | set(option_secrets(self.args))


def other_python(server: ServerConfig) -> str | None:
    """Find the interpreter that runs a server, if PATH decides which one and it is not this
    process's: packages that are installed here may be missing there.
    """
    if server.command not in BARE_PYTHON or not sys.executable:
        return None
    path = None
    if "PATH" in server.env:
        path = server.env["PATH"].get_secret_value()
    found = shutil.which(server.command, path=path)
    if found is None or Path(found).parent == Path(sys.executable).parent:
        return None
    return found


def _values(settings: Mapping[str, SecretStr], sure: bool) -> set[str]:
    """Collect the values of headers or variables, all or only those that are surely secrets."""
    values = revealed_by_name(settings)
    return {value for name, value in values.items() if not sure or certain(name, value)}


def _named(tool: str, patterns: tuple[str, ...]) -> bool:
    return any(tool == pattern or fnmatchcase(tool, pattern) for pattern in patterns)


_FIELDS_OF_ANOTHER_WAY = {
    "command": ("headers", "auth", "sign_in"),
    "url": ("args", "env", "cwd"),
    "bundled": ("headers", "auth", "sign_in"),
}
_TRANSPORTS: dict[str, tuple[Transport, ...]] = {
    "command": ("stdio",),
    "url": ("http", "streamable-http", "sse"),
    "bundled": ("stdio", "in-process"),
}


def server_problem(fields: Mapping[str, Any]) -> str | None:
    """Explain why a server's fields conflict, or return None. The text never contains values."""
    given = [way for way in _TRANSPORTS if fields.get(way)]
    if len(given) != 1:
        return (
            "needs exactly one of command, url and bundled, found"
            f" {' and '.join(given) or 'none of them'}"
        )
    way = given[0]
    stray = [name for name in _FIELDS_OF_ANOTHER_WAY[way] if fields.get(name)]
    if stray:
        return f"{' and '.join(stray)} cannot be used with {way}"
    auth = fields.get("auth")
    if isinstance(auth, SecretStr):
        auth = auth.get_secret_value()
    if fields.get("sign_in") and auth != "oauth":
        return 'sign_in needs "auth": "oauth"'
    if fields.get("transport") not in (None, *_TRANSPORTS[way]):
        return f"transport with {way} is one of {', '.join(_TRANSPORTS[way])}"
    if fields.get("include_tools") is not None and fields.get("exclude_tools"):
        return "include_tools and exclude_tools cannot be used together"
    if fields.get("always_load") is True and fields.get("defer_loading"):
        return (
            "always_load and defer_loading cannot be used together: name the tools that stay loaded"
            " in always_load"
        )
    if way == "url" and not str(fields["url"]).strip().startswith(("http://", "https://")):
        return "url must start with http:// or https://"
    return None


class ClientConfig(RemoteConfig):
    """How to reach a model provider.

    Args:
        provider: The provider's name, which `casual_mcp_nb.providers` checks.
        base_url: A URL to use instead of the provider's own.
        api_key: The API key. The default is `{CLIENT_NAME}_API_KEY`, then the provider's own
            variable.
        timeout: Seconds until the answer, or a stream's first chunk, for all attempts together.
            Then the longest pause within a stream.
        max_retries: How often a request that failed temporarily is retried.
        requests_per_minute: Limit over all chats of this client, or None for no limit.
        tokens_per_minute: Limit over all chats of this client, or None for no limit.
        headers: HTTP headers for each request, such as those that identify an application to a
            gateway. Their values are secrets.
        prompt_caching: Whether to mark requests for the provider's cache. Anthropic's caches only
            marked requests. Others need no mark. Writing to it costs a quarter more, reading from
            it a tenth.
        cache_diagnostics: Whether to ask the provider why its cache was missed. The default, None,
            asks Anthropic, and OpenAI's Responses API from GPT-5.6 on, at their own addresses.
        native_deferral: Whether the provider loads deferred tools itself (`delivery` of
            `tool_discovery`). The default, None, follows from the model's name. With a `base_url`
            that is not the provider's, the gateway is tried once.
        cassette: A cassette file, for the provider `replay`. Relative to the config's folder.
    """

    provider: str
    base_url: Stripped | None = None
    api_key: HeaderText | None = None
    timeout: Seconds = 60.0
    max_retries: int = Field(default=2, ge=0, le=20)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    headers: Headers = Field(default_factory=dict)
    prompt_caching: StrictBool = True
    cache_diagnostics: StrictBool | None = None
    native_deferral: StrictBool | None = None
    cassette: str | None = None

    @property
    def cassette_path(self) -> Path:
        """The path to `cassette`."""
        path = Path(self.cassette or "").expanduser()
        if self._origin.path is None:
            return path
        return self._origin.path.parent / path

    @property
    def key_state(self) -> Literal["set", "not set"]:
        """Whether there is an API key. Nothing else about it is ever shown."""
        return "set" if self.api_key and self.api_key.get_secret_value() else "not set"

    @property
    def key_variable(self) -> str | None:
        """The environment variable that the key came from, or None if it is in the config, or
        missing.
        """
        return self._origin.key_variable

    def with_key(self, key: str, variable: str) -> ClientConfig:
        """Copy this client with a key from an environment variable."""
        client = self.model_copy(update={"api_key": SecretStr(key)})
        written = {**self._origin.written, ("api_key",): Written(None, SecretStr(key))}
        client._origin = replace(self._origin, key_variable=variable, written=written)
        return client

    def _secrets(self, *, sure: bool = False) -> set[str]:
        secrets = super()._secrets(sure=sure) | with_tokens(_values(self.headers, sure))
        return secrets | revealed([self.api_key]) | self._named_secrets()

    def _named_secrets(self) -> set[str]:
        return url_secrets(self.base_url)


def _by_name(value: Any) -> Any:
    if isinstance(value, list | tuple) and all_are(value, str):
        return {name: {} for name in value}
    if not isinstance(value, Mapping):
        raise ValueError("must be a list of names, or an object with the settings of each")
    return value


class ModelConfig(RequestOptions):
    """A client's model, with the `RequestOptions` for each request to it.

    Args:
        client: The client name in the config.
        model: The provider's name of the model.
        template: File in `prompt-templates/` that generates the system prompt.
        thinking_tokens: Token budget for thinking, at least 1,024, for models that accept one
            (Anthropic's before 4.6).
        context_window: Context window in tokens. None looks it up, for providers' current models.
            Ollama reserves memory for that many.
        hosted_tools: Tools that the provider runs itself, such as `web_search`: names, or the
            provider's parameters by name. The provider decides on their rights, and charges for
            them.
        repair_calls: Whether to run calls that the model writes as text, as small models do, with
            the same consent as any other.
        small: Whether it is a small model, which is told to answer after each result, gets more
            explanations, and has more of its calls repaired. None finds out: a model whose written
            calls are run is a small one.
    """

    client: str
    model: str
    template: str | None = None
    context_window: int | None = Field(default=None, ge=1)
    thinking_tokens: int | None = Field(default=None, ge=1_024)
    hosted_tools: Annotated[dict[str, dict[str, JsonValue]], BeforeValidator(_by_name)] = Field(
        default_factory=dict
    )
    repair_calls: StrictBool = False
    small: StrictBool | None = None

    @model_validator(mode="after")
    def _room_for_the_answer(self) -> ModelConfig:
        if self.thinking_tokens and self.max_tokens and self.max_tokens <= self.thinking_tokens:
            raise ValueError("max_tokens includes thinking_tokens and must be larger")
        return self


class ExcludeSpec(BaseConfig):
    """All tools on a server except these."""

    exclude: tuple[str, ...]


class ToolSetConfig(BaseConfig):
    """A named set of tools.

    Args:
        description: Its purpose.
        servers: For each server `true` (all its tools), a list of tool names, or `{"exclude":
            [names]}`. Unnamed servers are excluded. In-process servers can be named too, and
            `notebook`, which has a notebook's functions. It binds a server's apps as well: a list
            leaves them the server's tools that are only for apps, and `exclude` can name those.
    """

    description: str = ""
    servers: dict[str, StrictBool | tuple[str, ...] | ExcludeSpec] = Field(default_factory=dict)


class EmbeddingConfig(BaseConfig):
    """The embedding model by which search compares meanings: `client` and `model`, or `local`.

    It gets tool names and descriptions, and search queries.

    Args:
        client: A client name from the config.
        model: The provider's name for the embedding model.
        local: A folder with a model, relative to the config's folder, or a model's name on this
            computer.
        download: Whether a `local` model that is not on this computer is downloaded from Hugging
            Face.
        timeout: How long a search waits for the model, in seconds. Then it ranks by words.
    """

    client: str | None = None
    model: str | None = None
    local: str | None = None
    download: StrictBool = False
    timeout: Seconds = 2.0

    @model_validator(mode="after")
    def _one_model(self) -> EmbeddingConfig:
        if self.local and not (self.client or self.model):
            return self
        if self.local or not (self.client and self.model):
            raise ValueError("needs either client and model, or local")
        if self.download:
            raise ValueError("download can only be used with local")
        return self

    @property
    def label(self) -> str:
        """Its name for displays."""
        return self.local or f"{self.model} of client {self.client}"


class DiscoveryConfig(DiscoveryOptions, BaseConfig):
    """The initial discovery options, which a selection can change.

    Args:
        enabled: Whether tools are hidden behind the search tool if their server has
            `defer_loading`. `auto` does so only if all definitions take more than `auto_threshold`
            percent of the model's context window. If no server has `defer_loading`, every one is
            deferred then, except those with `always_load`.
        embedding: The model by which search compares meanings too, or None to search by words only.
        learn: Whether searches learn from the saved conversations: tools gain by earlier questions
            after which they were called.
    """

    enabled: StrictBool | Literal["auto"] = False
    embedding: EmbeddingConfig | None = None
    learn: StrictBool = False


class ToolResultsConfig(BaseConfig):
    """Limits on tool results.

    Args:
        max_tokens: Maximum result length in estimated tokens, or 0 for no limit. A longer result is
            kept as a value: the model reads its head and shape, and can read on, search and query
            it. A server's `max_result_tokens` replaces this.
    """

    max_tokens: ResultTokens = 4_000


Dollars = Annotated[float, Field(gt=0, allow_inf_nan=False)]
TokenLimit = Annotated[int, Field(ge=1)]
Period = Literal["turn", "conversation", "day"]
"""What a spend limit is for. A day begins at midnight on this computer."""
PERIODS: tuple[Period, ...] = get_args(Period)
LimitKind = Literal["max_cost", "max_total_tokens"]


Most = TypeVar("Most")


class PeriodLimits(BaseConfig, Generic[Most]):
    """A limit for each period, or None for no limit.

    Args:
        turn: In one turn.
        conversation: In one conversation, also after it was resumed.
        day: In one day, by all sessions that save conversations in the same file.
    """

    turn: Most | None = None
    conversation: Most | None = None
    day: Most | None = None


class CostLimits(PeriodLimits[Dollars]):
    """The most that requests to models may cost, in US dollars."""


class TotalTokenLimits(PeriodLimits[TokenLimit]):
    """The most tokens that requests to models may take, input and output together."""


class SpendLimits(BaseConfig):
    """Limits on what requests to models take. One that could pass a limit is not sent.

    Args:
        max_cost: US dollars for each `turn`, `conversation` and `day`. All models that are asked
            need a price.
        max_total_tokens: Tokens for each `turn`, `conversation` and `day`.
    """

    max_cost: CostLimits = Field(default_factory=CostLimits)
    max_total_tokens: TotalTokenLimits = Field(default_factory=TotalTokenLimits)

    def of(self, period: Period) -> dict[LimitKind, float]:
        """Collect a period's limits, by what they count."""
        limits: dict[LimitKind, float | None] = {
            "max_cost": getattr(self.max_cost, period),
            "max_total_tokens": getattr(self.max_total_tokens, period),
        }
        return drop_none(limits)

    @cached_property
    def given(self) -> bool:
        """Whether there is a limit."""
        return any(map(self.of, PERIODS))

    def replaced(self, period: Period, limits: Mapping[str, float | None]) -> SpendLimits:
        """Copy the limits with other ones for a period. None ends one."""
        values = self.model_dump()
        for kind, limit in limits.items():
            values[kind][period] = limit
        return SpendLimits.model_validate(values)


class Config(BaseConfig):
    """A session's complete config.

    Args:
        clients: Model providers by name.
        models: Models by name. The first one is the default.
        servers: MCP servers by name.
        tool_sets: Toolsets by name.
        tool_discovery: Discovery.
        prices: Prices for cost estimates, by the model's name here or at the provider.
        tool_results: Limits on tool results.
        limits: Limits on what requests to models take.
        strict: Whether every call asks unless its policy was set to `never`, a changed tool is
            blocked until the change is accepted, and this file itself must be accepted before
            anything starts.
        store: The file in which conversations are saved, in the config's folder. False for none.
        registry: The address of the registry in which `%mcp add` and `%mcp find` look up names.
        apps: Whether apps of servers are shown (MCP Apps), unless a server's own `apps` overrides
            it.
    """

    clients: dict[str, ClientConfig] = Field(default_factory=dict)
    models: dict[str, ModelConfig] = Field(default_factory=dict)
    servers: dict[str, ServerConfig] = Field(default_factory=dict)
    tool_sets: dict[str, ToolSetConfig] = Field(default_factory=dict)
    tool_discovery: DiscoveryConfig = Field(default_factory=DiscoveryConfig)
    prices: PriceTable = Field(default_factory=dict)
    tool_results: ToolResultsConfig = Field(default_factory=ToolResultsConfig)
    limits: SpendLimits = Field(default_factory=SpendLimits)
    strict: StrictBool = False
    store: Literal[False] | Annotated[str, Field(min_length=1)] | None = None
    registry: Annotated[
        str, Field(pattern=r"^(https://|http://(localhost|127\.0\.0\.1|\[::1\])[:/])[^\s?#]*$")
    ] = REGISTRY
    apps: StrictBool = True

    __reduce_ex__ = RemoteConfig.__reduce_ex__

    @model_validator(mode="before")
    @classmethod
    def _of_casual_mcp(cls, data: Any) -> Any:
        """Accept a dump from casual-mcp itself: no discovery is None there, and one key has no
        effect.
        """
        if not isinstance(data, Mapping):
            return data
        unset = {"namespace_tools"}
        if data.get("tool_discovery") is None:
            unset.add("tool_discovery")
        return {key: value for key, value in data.items() if key not in unset}

    @model_validator(mode="after")
    def _names_exist(self) -> Config:
        problems = list(unknown_clients(self.clients, self.models, self.tool_discovery.embedding))
        if problems:
            lines = "\n".join(f"{'.'.join(path)}: {reason}" for path, reason in problems)
            raise PydanticCustomError("unknown_reference", "{lines}", {"lines": lines})
        return self

    @property
    def path(self) -> Path | None:
        """The file that this was read from, or None for a config made in Python."""
        return self._origin.path

    @property
    def folder(self) -> Path | None:
        """That file's folder, which relative paths are relative to, and where templates are looked
        up first.
        """
        return self.path.parent if self.path else None

    @property
    def recalled(self) -> str:
        """The saved session that this was read from, or empty. See `recalled_from`."""
        return self._origin.recalled

    def recalled_from(self, session: str) -> Config:
        """Copy the config as one that was saved with a session's conversation: the person is asked
        before its servers start, as with a file.
        """
        recalled = self.model_copy()
        recalled._origin = replace(self._origin, recalled=session)
        return recalled

    def with_servers(self, other: Config, *, found: Collection[str] = ()) -> Config:
        """Copy the config with another one's servers, except for names that it has itself.

        Args:
            other: The other config.
            found: Those of its servers that a catalog or a registry named.
        """
        added = {name: server for name, server in other.servers.items() if name not in self.servers}
        for name, server in added.items():
            server._origin = replace(server._origin, found=name in found)
        return self._joined(other, servers={**self.servers, **added})

    def with_models(self, other: Config) -> Config:
        """Copy the config with another one's models before its own, and with their clients.

        Where both have a name, this config's entry stays.
        """
        return self._joined(
            other,
            clients={**other.clients, **self.clients},
            models={**other.models, **self.models},
        )

    def model_named(self, name: str) -> str | None:
        """Find the model that a name means, which may be from another config.

        Args:
            name: A name in `models`, or one of a model's `common_names`.
        """
        if name in self.models:
            return name
        for own, entry in self.models.items():
            provider = self.clients[entry.client].provider
            if name in common_names(entry.model, entry.client, provider):
                return own
        return None

    def _joined(self, other: Config, **sections: Mapping[str, RemoteConfig]) -> Config:
        merged = self.model_copy(update=sections)
        merged._origin = replace(
            self._origin,
            sensitive=self._origin.sensitive | other._origin.sensitive,
            variables={**other._origin.variables, **self._origin.variables},
        )
        return merged

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks about how the file was read: ignored keys, servers that were left out."""
        return self._origin.notes

    def with_notes(self, *notes: str) -> Config:
        """Copy the config with further remarks."""
        noted = self.model_copy()
        noted._origin = replace(self._origin, notes=(*self._origin.notes, *notes))
        return noted

    @property
    def unusable(self) -> Mapping[str, str]:
        """The servers of another host's file that cannot be used, each with the reason.

        They are not in `servers`.
        """
        return self._origin.unusable

    def variables_of(self, section: str, name: str) -> tuple[str, ...]:
        """List the environment variables whose values were inserted into an entry.

        Args:
            section: `clients`, `models` or `servers`.
            name: The entry.
        """
        return self._origin.variables.get((section, name), ())

    def secrets(self) -> Secrets:
        """Collect every value to mask in text.

        These are keys, headers, servers' environments, credentials in URLs, and values that
        variables inserted into commands, arguments and URLs. Values too short or too common to
        distinguish from other text are left out.
        """
        return Secrets().union(*map(RemoteConfig.secrets, self._reached()))

    def high_confidence_secrets(self) -> Secrets:
        """Collect only those `secrets` that are not just server settings.

        They are also masked in tool results.
        """
        return Secrets().union(*map(RemoteConfig.high_confidence_secrets, self._reached()))

    def _reached(self) -> list[RemoteConfig]:
        return [*self.clients.values(), *self.models.values(), *self.servers.values()]


def common_names(model: str, client: str, provider: str) -> tuple[str, ...]:
    """List the names that any session may have for a model: `planner` and `offline:planner`.

    Args:
        model: What the provider calls it.
        client: The client's name.
        provider: The client's provider.
    """
    return (model, f"{client}:{model}", f"{provider}:{model}")


def unknown_clients(
    clients: Collection[str], models: Mapping[str, Any], embedding: Any = None
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the key path for each model that names a missing client, with the reason.

    Models, and the `embedding` in `tool_discovery`, can be plain objects as in a file. Malformed
    ones are skipped. Servers in toolsets are checked on use, since some exist only in the process.
    """
    entries = {("models", name): model for name, model in models.items()}
    entries["tool_discovery", "embedding"] = embedding
    for path, entry in entries.items():
        if isinstance(entry, Mapping):
            client = entry.get("client")
        else:
            client = getattr(entry, "client", None)
        if isinstance(client, str) and client not in clients:
            yield (
                (*path, "client"),
                f"there is no such client. {did_you_mean(closest(client, clients), clients)}",
            )
