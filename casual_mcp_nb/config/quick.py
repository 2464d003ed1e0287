"""A config from a few words: `openai:gpt-4.1`, and servers as a person types them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.config.server_entry import ServerLike, checked_name, is_in_process, read_server
from casual_mcp_nb.errors import UnknownNameError, UsageError, shown
from casual_mcp_nb.providers import local_servers
from casual_mcp_nb.providers._building import missing, no_key
from casual_mcp_nb.providers.registry import client_variable, spec_of, specs
from casual_mcp_nb.types.config import ClientConfig, Config
from casual_mcp_nb.types.options import RequestOptions
from casual_mcp_nb.types.server import ServerConfig

if TYPE_CHECKING:
    from fastmcp import FastMCP

OFFLINE = "offline:planner"
"""The model where none is given."""
OTHER_ADDRESS = "quick"
"""The client of a model at another address than its provider's; its key is looked for in `QUICK_API_KEY` alone."""

_CHAT = "-chat"
"""Behind a provider's name: its chat completions, also for models that reason."""


def quick_config(
    model: str | None = None,
    servers: Mapping[str, ServerLike] | Iterable[str] = (),
    *,
    base_url: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Config, dict[str, FastMCP[Any]]]:
    """Build the config of a model and servers, and collect the servers that live in this process.

    Args:
        model: As for `model_sections`; None for the offline planner.
        servers: Servers by name, as for `read_server` or of this process; or texts, whose servers get their names from them.
        base_url: As for `model_sections`.
        environ: Variables by name; None for the process's environment and `.env`.

    Raises:
        UsageError: The model or a server cannot be understood.
        ConfigError: An entry of a server is wrong.
        ProviderError: The key of the model's provider, or its SDK, is missing.
    """
    variables = read_environment(environ=environ)
    config = load_config(model_sections(model, base_url=base_url, environ=variables), environ=variables)
    read: dict[str, ServerConfig] = {}
    in_process: dict[str, FastMCP[Any]] = {}
    entries: Any = servers.items() if isinstance(servers, Mapping) else ((None, text) for text in _texts(servers))
    for name, spec in entries:
        if is_in_process(spec):
            in_process[checked_name(name)] = spec
        else:
            name, server = read_server(spec, name, taken=read, environ=variables)
            read[name] = server
    return config.model_copy(update={"servers": read}), in_process


def model_sections(
    model: str | None, *, base_url: str | None = None, environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Build the sections `clients` and `models` of a config for one model.

    Args:
        model: Provider and model, such as `openai:gpt-4.1` or `ollama:qwen3:8b`, or a model server on this computer, such as
            `lmstudio:qwen3-4b`; or a name that one provider is known by, such as `claude-sonnet-4-5`. With `openai:`, a model
            that reasons is asked through the Responses API, unless it is written `openai-chat:`. None for the offline planner.
        base_url: Another address than the provider's own.
        environ: Variables by name; None for the process's environment and `.env`.

    Raises:
        UsageError: There is no such provider; the message has the closest names.
        AuthenticationError: Its key is not set; the message names the variable.
        MissingDependencyError: Its SDK is not installed; the message has the command that installs it.
    """
    variables = read_environment(environ=environ)
    local = {server.name: server for server in local_servers.LOCAL_SERVERS}
    provider, name, is_chat = _read(model or OFFLINE, local)
    client_name, settings = provider, {"provider": provider}
    if not spec_of(provider).name:
        settings = {"provider": local[provider].provider, "base_url": local[provider].base_url}
    if not name:
        raise UsageError(f"Which model of {provider}?", hint=f"Write it behind the provider: {provider}:NAME.")
    if base_url is not None:
        client_name, settings = OTHER_ADDRESS, {**settings, "base_url": base_url}
    reasoning = spec_of(spec_of(provider).reasons_with or "")
    # The SDK reads the variable: at another address, few servers have more than chat completions.
    at_home = "base_url" not in settings and not variables.get(f"{provider.upper()}_BASE_URL")
    if reasoning.name and at_home and not is_chat and reasoning.thinks(name, RequestOptions()):
        settings["provider"] = reasoning.name
    if "base_url" in settings and not variables.get(client_variable(client_name)):
        # The provider's own key belongs to the provider, not to this address.
        settings["api_key"] = "none"
    sections = {"clients": {client_name: settings}, "models": {name: {"client": client_name, "model": name}}}
    _check(client_name, load_config(sections, environ=variables).clients[client_name])
    return sections


def _read(model: str, local: Collection[str]) -> tuple[str, str, bool]:
    """Parse a model into its provider, its own name, and whether to use chat completions in any case.

    Raises:
        UsageError: There is no such provider; or none is written, and none or several are known by the name of the model.
    """
    provider, _, name = model.partition(":")
    # Asked first: the list of all providers reads the metadata of every installed package.
    if spec_of(provider).name or provider in local:
        return provider, name, False
    chat = provider.removesuffix(_CHAT)
    if chat != provider and spec_of(chat).reasons_with:
        return chat, name, True
    owners = [spec.name for spec in specs().values() if spec.names is not None and spec.names.fullmatch(model)]
    if len(owners) == 1:
        return owners[0], model, False
    if owners:
        ways = " or ".join(f"{owner}:{model}" for owner in owners)
        raise UsageError(f"Several providers have a model {shown(model)}.", hint=f"Write {ways}.")
    error = UnknownNameError("provider", provider, [*specs(), *local])
    if name:
        raise error
    # Most likely the name of a model alone.
    hint = f"{error.hint} No provider is known by the name of this model: write PROVIDER:MODEL, such as openai:gpt-4.1."
    raise UnknownNameError("provider", provider, [*specs(), *local], hint=hint)


def _check(name: str, client: ClientConfig) -> None:
    spec = spec_of(client.provider)
    if spec.sdk is not None:
        try:
            version(spec.sdk)
        except PackageNotFoundError:
            raise missing(name, spec.sdk) from None
    if spec.needs_key and spec.key_variable and client.key_state == "not set":
        raise no_key(name, client.provider)


def _texts(servers: Iterable[str]) -> Iterable[str]:
    return [servers] if isinstance(servers, str) else servers
