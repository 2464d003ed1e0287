"""A provider's description, and the registry for those that ship with the package or that others
add.

Importing this module does not import any SDK. A package adds a provider with an entry point in the
group `casual_mcp_nb.providers` that refers to a `ProviderSpec`.
"""

from __future__ import annotations

import http.client
import importlib
import json
import logging
import pkgutil
import queue
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib.metadata import entry_points
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config_base import TOOL_CHOICES, RequestOptions
from casual_mcp_nb.base.dialects import Dialect, dialect_of
from casual_mcp_nb.base.ip_addresses import host_in
from casual_mcp_nb.base.iterables import by_name, of_type, present
from casual_mcp_nb.base.model_options import ReasoningEffort
from casual_mcp_nb.errors import shown
from casual_mcp_nb.providers import builtin

if TYPE_CHECKING:
    from casual_llm import ChatOptions, LLMClient
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.base.config import ClientConfig, ModelConfig
    from casual_mcp_nb.conversation.step import ModelResponse


Definition = Mapping[str, Any]
"""A tool as it is offered: its `name`, `description` and `parameters`."""
Definitions = Sequence[Definition]


class OnText(Protocol):
    """Receives an answer's text as it arrives."""

    def __call__(self, text: str, response: object = None, /) -> None:
        """Receive the next chunk.

        Args:
            text: The chunk, empty if anything other than text has arrived.
            response: The HTTP response that it came in, whose total size is limited, too.
        """


@dataclass(frozen=True)
class ProviderAdapter:
    """Functions that make requests with one kind of client.

    Args:
        offer: Convert tool definitions to extra request arguments.
        ask: Make one request: client, model, messages and options to an answer.
        stream: The same, passing on text as it arrives, or None where that cannot be had with tool
            calls.
        name: The format, as stored with a provider's state, or empty where a client makes its own
            requests.
        offer_found: Convert definitions that are always loaded, and those that searches have found,
            to extra arguments for a request whose rendered beginning stays the same when more are
            found, or None where the provider cannot do that.
        dialect: What the provider takes of tools' definitions, or None for its line in
            `base/dialects.py`. Without either, it gets what all providers take, and a notice says
            so.
        is_own: Whether the client's requests are made by code that is not of this package, so that
            an unexpected error is a fault of that code.
    """

    offer: Callable[[Definitions], dict[str, Any]]
    ask: Callable[[Any, str, list[ChatMessage], ChatOptions], Awaitable[ModelResponse]]
    stream: (
        Callable[[Any, str, list[ChatMessage], ChatOptions, OnText], Awaitable[ModelResponse]]
        | None
    ) = None
    name: str = ""
    offer_found: Callable[[Definitions, Definitions], dict[str, Any]] | None = None
    dialect: Dialect | None = None
    is_own: bool = False


def name_in(tool: Definition) -> str:
    """Read the name in a definition in a provider's format.

    A tool that the provider runs itself may have none.
    """
    function = tool.get("function")
    if isinstance(function, Mapping):
        tool = function
    return str(tool.get("name") or "")


def plain_tools_param(tools: Definitions) -> dict[str, Any]:
    """Pass the definitions unchanged as request arguments, for a client that converts them
    itself.
    """
    if not tools:
        return {}
    return {"tools": list(map(copy, tools))}


def function_tools_param(tools: Definitions) -> dict[str, Any]:
    """Convert the definitions to request arguments in OpenAI's chat completions format."""
    if not tools:
        return {}
    return {"tools": [{"type": "function", "function": dict(tool)} for tool in tools]}


def choose_tools(options: RequestOptions) -> dict[str, Any]:
    """Convert tool choice and parallel calls to OpenAI's format."""
    choice, parallel = options.tool_choice, options.parallel_tool_calls
    arguments: dict[str, Any] = {}
    if parallel is not None:
        arguments["parallel_tool_calls"] = parallel
    if choice in TOOL_CHOICES:
        arguments["tool_choice"] = choice
    elif choice is not None:
        arguments["tool_choice"] = {"type": "function", "function": {"name": choice}}
    return arguments


def reasoning_effort(effort: ReasoningEffort) -> dict[str, Any]:
    """Convert the reasoning effort to OpenAI's format for chat completions."""
    return {"reasoning_effort": effort}


def no_options(*_: object) -> dict[str, Any]:
    """Return no arguments, for a provider that takes none of these options."""
    return {}


def _no_notes(model: str, options: RequestOptions) -> list[str]:
    return []


def _never(model: str) -> bool:
    return False


def _thinks_if_asked(model: str, options: RequestOptions) -> bool:
    return options.reasoning_effort not in (None, "none")


class ModelLimits(NamedTuple):
    """A model's context window, which includes its answer, and the most tokens in an answer."""

    window: int
    answer: int


ANSWER_TOKENS = 8_192
"""The answer limit if nobody has set one: the maximum cost of a model that does not stop."""
THOUGHT_AND_ANSWER_TOKENS = 32_768
"""The same where the model's thinking counts in the limit."""
MODELS_AS_OF = "2026-11"
"""When the providers' pages were read for `ProviderSpec.models`."""


@dataclass(frozen=True, kw_only=True)
class ProviderSpec:
    """A provider. The defaults suit a server compatible with OpenAI's chat completions.

    Args:
        name: Its name in a config, and the wire format in `ProviderState`.
        about: A short description, for lists of providers.
        position: Its position in lists of bundled providers.
        build: Returns the client for a name and its config.
        adapter: How to make requests with its client, or None if the client makes its own requests
            (it has `answer`).
        client: Its client's class, None if its SDK is missing. It identifies a custom client's
            provider.
        sdk: Its SDK's package, which is also our extra and, with `_`, its logger's name, or None if
            it needs none.
        key_variable: The environment variable for its key, looked up after the client's own.
        homes: The hosts that the key belongs to, the provider's own first.
        names: What its models' names look like, so that a name without a provider finds it, or
            None if the names tell nothing.
        reasons_with: The provider to use instead for a model that reasons, at this one's own
            address, where only `NAME:MODEL` is given. `NAME-chat:MODEL` stays with this one.
        example_model: A model that calls tools, for those who have not chosen one.
        needs_key: Whether it requires a key.
        is_language_model: Whether it is one, with a price, a window and an answer that can be
            extracted from.
        api: The API's name in notices about unsupported options.
        lacking: The options that it does not support.
        own_fields: The fields that we add to a request by ourselves, and leave out once a server
            has refused them.
        unsent: Further options that are not sent to a model, each with the reason.
        notes: Notices about a model's options.
        highest_temperature: Its maximum temperature if lower than others', with its models' name.
        choose_tools: The tool choice in its format.
        offers_none: Whether a request in which no tool may be called is sent without tools.
        effort: The reasoning effort in its format.
        think: Asks its server which value the argument `think` takes for an effort, or None if it
            cannot think.
        takes_thinking_tokens: Whether a thinking budget can be set.
        models: Its current models by the beginnings of their names, as read on `MODELS_AS_OF`. The
            longest one applies. It holds at the provider's own address: elsewhere a name tells
            nothing about a server's limits.
        needs_answer_limit: Whether every request must limit the answer.
        thinks: Whether a model thinks before it answers, by its name and options, and its thinking
            counts in that limit.
        window_option: The argument for a model's context window.
        window_note: The consequence of leaving it out.
        overflow: The fate of a conversation that is too long.
        takes_format: Whether it has a JSON mode.
        chat_messages: Whether its messages are in the chat completions format, with many servers'
            quirks.
        renames_max_tokens: Whether an answer's limit has a different name for some of its models.
        hosted: Tools that the provider runs itself: by name, their definitions' beginning.
        diagnose: Convert client, model and the previous response's id to the fields that ask why
            the cache was missed, or None where that is not possible.
        max_tools: How many tools a request may have at the provider's own address, or None if no
            limit is known.
        defers: Whether a model is known to load deferred tools itself, at the provider's own
            address.
        read_first: The options that its models read before the messages, so that changing one
            invalidates their cache.
        counted_by_tiktoken: Whether tiktoken has its vocabularies.
        embed: Convert client, model and texts to a vector for each, or None if it has no embedding
            models.
        first_used: Client attributes that its SDK imports on first access.
        warm_up: Makes its SDK build the classes that it would leave for the first answer.
    """

    name: str
    about: str
    build: Callable[[str, ClientConfig], LLMClient]
    position: int = 100
    adapter: ProviderAdapter | None = None
    client: Callable[[], type[Any] | None] = ignore
    sdk: str | None = None
    key_variable: str | None = None
    homes: tuple[str, ...] = ()
    names: re.Pattern[str] | None = None
    reasons_with: str | None = None
    example_model: str | None = None
    needs_key: bool = True
    is_language_model: bool = True
    api: str = "The provider's API"
    lacking: tuple[str, ...] = ()
    own_fields: tuple[str, ...] = ("stream_options",)
    unsent: Callable[[str, RequestOptions], dict[str, str]] = no_options
    notes: Callable[[str, RequestOptions], list[str]] = _no_notes
    highest_temperature: tuple[float, str] | None = None
    choose_tools: Callable[[RequestOptions], dict[str, Any]] = choose_tools
    offers_none: bool = False
    effort: Callable[[ReasoningEffort], dict[str, Any]] = reasoning_effort
    think: Callable[[Any, str, str], Awaitable[bool | str | None]] | None = None
    takes_thinking_tokens: bool = False
    models: Mapping[str, ModelLimits] = field(default_factory=dict)
    needs_answer_limit: bool = False
    thinks: Callable[[str, RequestOptions], bool] = _thinks_if_asked
    window_option: str | None = None
    window_note: str = ""
    overflow: str = "the provider refuses it first, and only then is it trimmed"
    takes_format: bool = True
    chat_messages: bool = False
    renames_max_tokens: bool = False
    hosted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    diagnose: Callable[[Any, str, str | None], dict[str, Any]] | None = None
    max_tools: int | None = None
    defers: Callable[[str], bool] = _never
    read_first: tuple[str, ...] = ("parallel_tool_calls", "reasoning_effort")
    counted_by_tiktoken: bool = False
    embed: Callable[[Any, str, list[str]], Awaitable[Any]] | None = None
    first_used: tuple[str, ...] = ()
    warm_up: Callable[[], None] = ignore

    def limits_of(self, model: str) -> ModelLimits | None:
        """Look up a model's limits by its name, or None if they are unknown."""
        name = model.rsplit("/", 1)[-1].rsplit("anthropic.", 1)[-1]
        longest = ""
        for start in self.models:
            # "gpt-5" is no beginning of "gpt-5.1", nor "o1" of "o10".
            begins = name == start or re.match(rf"{re.escape(start)}(?![0-9a-z.])", name)
            if begins and len(start) > len(longest):
                longest = start
        return self.models.get(longest)

    def answer_limit(self, model: str, options: RequestOptions) -> int:
        """Choose the answer limit where neither the person nor the config sets one.

        Never more than the model's own.
        """
        limits = self.limits_of(model)
        most = THOUGHT_AND_ANSWER_TOKENS if self.thinks(model, options) else ANSWER_TOKENS
        return min(most, limits.answer) if limits else most


GROUP = "casual_mcp_nb.providers"
_logger = logging.getLogger(GROUP)


@cache
def specs() -> Mapping[str, ProviderSpec]:
    """List every provider by name. Bundled providers cannot be replaced."""
    providers: dict[str, ProviderSpec] = {}
    for spec in (*_built_in().values(), *_added()):
        if providers.setdefault(spec.name, spec) is not spec:
            _logger.warning("There are two providers %s: the first one is used.", shown(spec.name))
    return MappingProxyType(providers)


@cache
def _built_in() -> Mapping[str, ProviderSpec]:
    modules = pkgutil.iter_modules(builtin.__path__, f"{builtin.__name__}.")
    bundled: list[ProviderSpec] = [importlib.import_module(module.name).SPEC for module in modules]
    return by_name(sorted(bundled, key=attrgetter("position")))


def _added() -> Iterator[ProviderSpec]:
    for entry in entry_points(group=GROUP):
        try:
            spec: Any = entry.load()
        except Exception as error:
            # A broken package does not affect the others.
            _logger.warning(
                "The provider %s cannot be loaded: %s", shown(entry.name), type(error).__name__
            )
            continue
        if isinstance(spec, ProviderSpec):
            yield spec
        else:
            _logger.warning("The provider %s is not a ProviderSpec.", shown(entry.name))


@lru_cache(maxsize=64)
def spec_of_kind(own: type[Any]) -> ProviderSpec | None:
    """Find the provider of a client by its class, or None for one that none of them has."""
    for spec in specs().values():
        kind = spec.client()
        # A class is None if its SDK is missing.
        if kind is not None and issubclass(own, kind):
            return spec
    return None


def spec_of(name: str) -> ProviderSpec:
    """Look up the provider with that name.

    For an unknown client, an OpenAI-compatible server's spec.
    """
    # Looking up entry points reads the metadata of every installed package.
    return _built_in().get(name) or specs().get(name, _UNKNOWN)


def _refuse(name: str, config: object) -> Any:
    raise NotImplementedError(f"There is no provider for client {shown(name)}.")


_UNKNOWN = ProviderSpec(name="", about="", build=_refuse)


def loggers() -> list[str]:
    """List all SDKs' logger names."""
    return sorted({spec.sdk.replace("-", "_") for spec in specs().values() if spec.sdk})


def client_variable(client: str) -> str:
    """Name the environment variable for one client's key.

    It is the client's name in upper case, with `_` for every character except A to Z and 0 to 9:
    `STRASSE_API_KEY` for `straße`.
    """
    return f"{re.sub(r'[^A-Z0-9]', '_', client.upper())}_API_KEY"


def key_variables(client: str, provider: str) -> tuple[str, ...]:
    """List the environment variables for a client's key. The first one that is set wins.

    The key is sent to the client's configured URL, even if it is from the provider's own variable.
    """
    own = spec_of(provider).key_variable
    variables = [client_variable(client)]
    if own:
        variables.append(own)
    return tuple(dict.fromkeys(variables))


def homes_of(variable: str | None) -> tuple[str, ...]:
    """List the hosts of the provider that this variable belongs to. Empty for any other one."""
    for spec in specs().values():
        if variable and spec.key_variable == variable:
            return spec.homes
    return ()


def is_home_address(address: str | None, homes: Sequence[str]) -> bool:
    """Check whether an address is on a provider's host, or on a host below one.

    None is the provider's own.
    """
    if not address:
        return bool(homes)
    return _is_below(host_in(address), homes)


def is_at_home(client: object, homes: Sequence[str]) -> bool:
    """Check whether a client's URL is on one of these hosts, or on a host below it."""
    return _is_below(host_of(client), homes)


def _is_below(host: str, homes: Sequence[str]) -> bool:
    return any(host == home or host.endswith(f".{home}") for home in homes)


def host_of(client: object) -> str:
    """Read the host in a client's URL, or empty if it is not known."""
    return host_in(raw_address_of(client))


def raw_address_of(client: object) -> str:
    """Read a client's URL as it is, perhaps with credentials, or empty if it is not known."""
    address = getattr(getattr(client, "client", None), "base_url", "")
    return str(address or getattr(client, "host", ""))


def window_of(model: ModelConfig, client: ClientConfig) -> int | None:
    """Look up a model's context window: the config's, or else that of its provider's table. None
    if neither has one.
    """
    if model.context_window is not None:
        return model.context_window
    spec = spec_of(client.provider)
    if not is_home_address(client.base_url, spec.homes):
        return None
    limits = spec.limits_of(model.model)
    return limits.window if limits else None


def max_tools_of(model: ModelConfig, client: ClientConfig) -> int | None:
    """Look up how many tools a request to a model may have, or None if no limit is known."""
    spec = spec_of(client.provider)
    return spec.max_tools if is_home_address(client.base_url, spec.homes) else None


def dialect_for(client: ClientConfig) -> Dialect | None:
    """Look up what a client's provider takes of tools, or None for a client that makes its own
    requests.
    """
    spec = spec_of(client.provider)
    if spec.adapter is None:
        return None
    if spec.adapter.dialect is not None:
        return spec.adapter.dialect
    at_home = is_home_address(client.base_url, spec.homes)
    return dialect_of(spec.adapter.name, host_in(client.base_url), at_home=at_home)


def not_sent(provider: str, model: str, options: RequestOptions) -> dict[str, str]:
    """List the options not sent to this model, judging by its provider and name, each with the
    reason.
    """
    spec = spec_of(provider)
    given = options.given()
    if spec.offers_none and options.tool_choice in ("auto", "none"):
        # `auto` is the default, and with `none` no tools are offered.
        given.pop("tool_choice")
    unsent: dict[str, str] = {}
    for name in spec.lacking:
        if name in given:
            unsent[name] = f"{spec.api} has no {name}: it is not sent."
    return unsent | spec.unsent(model, options)


def option_notes(provider: str, model: str, options: RequestOptions) -> list[str]:
    """Build the notices about a model's options before a request.

    Takes the same arguments as `not_sent`.
    """
    return [*not_sent(provider, model, options).values(), *spec_of(provider).notes(model, options)]


SECONDS = 0.2
"""How long to wait for all servers together: one that listens here answers in a few milliseconds.
"""
_MAX_BYTES = 1_000_000
_MAX_ENTRIES = 1_000
_MAX_MODELS = 20
_NAME = re.compile(r"[\w.:/@+-]{1,120}", re.ASCII)
_NO_CHAT = re.compile(r"embed|rerank|whisper", re.IGNORECASE)


@dataclass(frozen=True)
class LocalServer:
    """A kind of model server at its default address, with the provider that talks to it."""

    name: str
    title: str
    port: int
    provider: str = "openai"
    listing: str = "/v1/models"
    base: str = "/v1"

    @property
    def base_url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}{self.base}"


LOCAL_SERVERS = (
    LocalServer("ollama", "Ollama", 11434, provider="ollama", listing="/api/tags", base=""),
    LocalServer("lmstudio", "LM Studio", 1234),
    LocalServer("llamacpp", "llama.cpp", 8080),
    LocalServer("vllm", "vLLM", 8000),
)
"""Ollama's API lists models in `/api/tags` (https://docs.ollama.com/api).

The others have OpenAI's `/v1/models`.
"""


@dataclass(frozen=True)
class RunningServer:
    """A model server that answered, with its models' names. There is at least one."""

    server: LocalServer
    models: tuple[str, ...]


def running_servers() -> tuple[RunningServer, ...]:
    """Find the model servers that answer on this computer within `SECONDS`, only on 127.0.0.1 and
    without a key.
    """
    answers: queue.SimpleQueue[RunningServer] = queue.SimpleQueue()

    def look(server: LocalServer) -> None:
        answers.put(RunningServer(server, _models_of(server, SECONDS)))

    for server in LOCAL_SERVERS:
        # A thread for each, so that a slow server holds up neither the others nor the end of the
        # interpreter.
        threading.Thread(target=look, args=(server,), daemon=True).start()
    models: dict[LocalServer, RunningServer] = {}
    deadline = time.monotonic() + SECONDS
    with suppress(queue.Empty):
        while len(models) < len(LOCAL_SERVERS):
            answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            models[answer.server] = answer
    found = present(map(models.get, LOCAL_SERVERS))
    return tuple(answer for answer in found if answer.models)


def _models_of(server: LocalServer, seconds: float) -> tuple[str, ...]:
    """List a server's models. Empty where nothing like it answers."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=seconds)
    try:
        connection.request("GET", server.listing, headers={"Accept": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            return ()
        return _names_in(json.loads(response.read(_MAX_BYTES)))
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return ()
    finally:
        connection.close()


def _names_in(answer: Any) -> tuple[str, ...]:
    # Anything can listen on these ports: without a list of models, there are no names.
    if not isinstance(answer, dict):
        return ()
    lists = of_type((answer.get("models"), answer.get("data")), list)
    names: list[str] = []
    for entry in of_type(chain.from_iterable(lists[:1]), dict)[:_MAX_ENTRIES]:
        name = entry.get("name") or entry.get("id")
        if isinstance(name, str) and _NAME.fullmatch(name) and not _NO_CHAT.search(name):
            names.append(name)
    return tuple(names[:_MAX_MODELS])
