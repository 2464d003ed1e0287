"""A config from a few words: `openai:gpt-4.1`, and servers as a person types them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeGuard, Union

from casual_mcp_nb.base.config import BARE_PYTHON, ClientConfig, Config, ServerConfig
from casual_mcp_nb.base.config_base import RequestOptions
from casual_mcp_nb.base.ip_addresses import host_in, is_this_computer
from casual_mcp_nb.base.iterables import by_name
from casual_mcp_nb.bundled import BUNDLED
from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.config.loader import load_config
from casual_mcp_nb.errors import ConfigError, UnknownNameError, UsageError, closest, shown
from casual_mcp_nb.providers import registry
from casual_mcp_nb.providers._clients import missing, no_key, unknown_model
from casual_mcp_nb.providers.registry import client_variable, spec_of, specs

if TYPE_CHECKING:
    from fastmcp import FastMCP


ServerLike = Union[str, Mapping[str, Any], ServerConfig, "FastMCP[Any]"]
"""A server as a person gives it: a text, a config entry, or an in-process FastMCP server."""

BUNDLED_PREFIX = "bundled:"
_EXAMPLES = (
    "Give a command such as npx -y @modelcontextprotocol/server-memory, an address such as"
    " https://example.com/mcp, or "
)
_ADDRESSES = ("http://", "https://")
_LOCAL_ADDRESS = re.compile(r"(?:localhost|127(?:\.\d+){3}|\[::1\]):\d+/\S*", re.IGNORECASE)
"""An address on this computer as people write it, without `http://`. Without a path, it is a site,
which is asked for its servers.
"""
_VARIABLE = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_RUNNERS = frozenset(
    {"bun", "bunx", "deno", "docker", "dnx", "fastmcp", "node", "npm", "npx"}
    | {"pipx", "pnpm", "podman", "uv", "uvx"}
)
SCRIPTS = {".py": "python", ".js": "node"}
"""What runs a server's file, by how its name ends."""
_FETCHERS = frozenset({"bunx", "dnx", "docker", "npx", "pipx", "pnpm", "podman", "uvx"})
"""What may fetch a server before it starts it, and the seconds that this may take."""
_SECONDS_TO_FETCH = 120
_NOTHING_DONE = "Nothing was started or changed."
_SUBCOMMANDS = frozenset({"dlx", "exec", "run", "tool", "x"})
_SAYS_LITTLE = frozenset({"api", "mcp", "server", "www"})


def is_in_process(spec: object) -> TypeGuard[FastMCP[Any]]:
    """Check whether a server is an in-process object."""
    if isinstance(spec, str | Mapping | ServerConfig):
        # The class is imported when it is first read, which would hold a loop.
        return False
    # Whoever has such a server has imported its class.
    module = sys.modules.get("fastmcp")
    return module is not None and isinstance(spec, module.FastMCP)


def read_server(
    spec: str | Mapping[str, Any] | ServerConfig,
    name: str | None = None,
    *,
    taken: Collection[str] = (),
    environ: Mapping[str, str] | None = None,
) -> tuple[str, ServerConfig]:
    """Parse a server into its name and config, from a text, see `server_fields`, or a config entry.

    Without a name, an unused one is made from the text. A UsageError if the text's meaning is
    unclear, or an entry has no name.
    """
    if isinstance(spec, ServerConfig):
        return checked_name(name), spec
    if isinstance(spec, str):
        suggestion, fields = server_fields(spec)
        name = name or unused(suggestion, taken)
    elif isinstance(spec, Mapping):
        fields = dict(spec)
    else:
        raise UsageError(
            f"A {type(spec).__name__} is not a server.",
            hint=f"{_EXAMPLES}the fields of a config's entry.",
        )
    name = checked_name(name)
    config = load_config({"servers": {name: fields}}, environ=environ).servers.get(name)
    if config is None:
        raise ConfigError("A variable of this entry is not set.", key=f"servers.{name}")
    return name, config


def server_fields(text: str) -> tuple[str, dict[str, Any]]:
    """Read a server as a person types it: a name for it, and its fields as in a config.

    It is an address (`https://…`, or `localhost:8000/mcp`), a bundled server (`time`, or
    `bundled:files --root .`), or a command line (`npx -y …`), before which variables can be set
    (`TOKEN=… npx …`). A file of Python or JavaScript alone (`server.py`) is run by `python` or
    `node`. Quotes around the whole are taken off. In a command line, `python` and `python3` are this
    process's interpreter, which has the packages that the person installed here, and a command that
    is not on PATH, such as `fastmcp`, is the one beside it, unless a PATH is set. What is fetched
    first, as by `npx`, gets more time to start. A UsageError never contains the text, which can hold
    a secret.
    """
    text = unquoted(text)
    if _LOCAL_ADDRESS.fullmatch(text):
        text = f"http://{text}"
    if text.startswith(_ADDRESSES):
        return _name_in_address(text), {"url": text}
    if text.startswith("{"):
        raise UsageError(
            "This is an entry of a config.", hint="In Python: session.servers.add(name, {…})."
        )
    words = _words(text)
    env: dict[str, str] = {}
    while words and (match := _VARIABLE.fullmatch(words[0])):
        env[match["name"]] = match["value"]
        words = words[1:]
    if not words:
        raise UsageError(
            "Which server?", hint=f"{_EXAMPLES}the name of a bundled server: {', '.join(BUNDLED)}."
        )
    runner = SCRIPTS.get(PurePath(words[0]).suffix)
    if runner is not None and not _is_command(words[0]):
        words = [runner, *words]
    command, args = words[0], words[1:]
    found = _found(command)
    bundled = command.removeprefix(BUNDLED_PREFIX)
    fields: dict[str, Any] = {"args": args}
    if env:
        fields["env"] = env
    if bundled in BUNDLED:
        return bundled, {"bundled": bundled, **fields}
    if bundled != command or (not args and not env and found is None):
        kind = "bundled server" if bundled != command else "command or bundled server"
        close = closest(bundled, BUNDLED, 1)
        hint = f"Did you mean {close[0]}?" if close else f"Bundled servers: {', '.join(BUNDLED)}."
        raise UsageError(f"There is no {kind} {shown(bundled)}.", hint=hint)
    name = _name_in_command(words)
    if "PATH" not in env:
        if command in BARE_PYTHON and sys.executable:
            command = sys.executable
        elif found is not None and not _is_command(command):
            command = found
    if PurePath(command).stem in _FETCHERS:
        fields["init_timeout"] = _SECONDS_TO_FETCH
    return name, {"command": command, **fields}


def _found(command: str) -> str | None:
    """Find a command on PATH, or else where the packages of this process put theirs: a notebook's
    server need not have that folder on its PATH.
    """
    command = os.path.expanduser(command)
    beside = os.path.dirname(sys.executable or "")
    found = shutil.which(command)
    if found is None and beside:
        found = shutil.which(command, path=beside)
    return found


def unquoted(text: str) -> str:
    """Take off quotes around a whole text, as a person puts them around a command in a shell.

    The path of a program or of a file keeps them.
    """
    text = text.strip()
    try:
        words = _words(text)
    except UsageError:
        return text
    if len(words) != 1 or words[0] == text:
        return text
    if _is_command(words[0]) or os.path.isfile(os.path.expanduser(words[0])):
        return text
    return words[0].strip()


def check_command(text: str) -> None:
    """Check that a server's command as a person types it exists, and the file that it runs, before
    anything is closed or added for it.
    """
    _, fields = server_fields(text)
    command, env = fields.get("command", ""), fields.get("env", {})
    first = next(iter(fields.get("args", ())), "")
    file = Path(os.path.abspath(os.path.expanduser(first)))
    runner = SCRIPTS.get(PurePath(first).suffix)
    # Where to look is known only when variables are filled in.
    is_run = runner is not None and PurePath(command).stem.startswith(runner)
    if is_run and "$" not in first and not file.is_file():
        close: Sequence[str] = ()
        with suppress(OSError):
            close = closest(file.name, os.listdir(file.parent), 1)
        hint = f"Did you mean {shown(close[0])}? " if close else ""
        raise UsageError(
            f"There is no file {shown(file.name)} in {shown(str(file.parent))}.",
            hint=f"{hint}{_NOTHING_DONE}",
        )
    if command and "$" not in command and "PATH" not in env and _found(command) is None:
        hint = ""
        close = closest(command, BARE_PYTHON | _FETCHERS, 1)
        if close:
            hint = f"Did you mean {shown(close[0])}? "
        elif runner is not None or (first and _found(first) is not None):
            hint = "A server's name is an option: --name NAME, before its command. "
        raise UsageError(
            f"The command {shown(command)} was not found.", hint=f"{hint}{_NOTHING_DONE}"
        )


def _is_command(word: str) -> bool:
    return shutil.which(os.path.expanduser(word)) is not None


def _words(text: str) -> list[str]:
    windows = os.name == "nt"
    try:
        words = shlex.split(text, posix=not windows)
    except ValueError as error:
        raise UsageError(f"The command line cannot be read: {str(error).lower()}.") from None
    # Only there a backslash belongs to a path, and then the quotes stay.
    if windows:
        return [word.strip("\"'") for word in words]
    return words


def checked_name(name: str | None) -> str:
    """Validate a server's name."""
    if not isinstance(name, str) or not name.strip():
        raise UsageError(
            "The server needs a name.",
            hint="For example: session.servers.add('docs', …), or servers={'docs': …}.",
        )
    return name.strip()


def in_process_name(server: FastMCP[Any], name: str | None, taken: Collection[str]) -> str:
    """Validate an in-process server's name, or make one from its own."""
    if name is None:
        return unused(_short_name(server.name) or "server", taken)
    return checked_name(name)


def unused(name: str, taken: Collection[str]) -> str:
    """Make a name that is not taken: it gets a number where it is."""
    if name not in taken:
        return name
    numbered = (f"{name}-{number}" for number in count(2))
    return next(each for each in numbered if each not in taken)


def _name_in_address(address: str) -> str:
    host = host_in(address)
    labels = host.split(".")
    if len(labels) < 2 or labels[-1].isdigit():
        return "local" if is_this_computer(host) else "remote"
    return _short_name(*(label for label in labels[:-1] if label not in _SAYS_LITTLE)) or "remote"


def _name_in_command(words: list[str]) -> str:
    """Find the package's name or script in a command line, without the parts that every server's
    name has.
    """
    names = [word for word in words if not _is_of_runner(word)]
    telling = [name for name in names if re.search("mcp|server", name, re.IGNORECASE)]
    last = re.split(r"[/\\]", (telling or names or words[:1])[0])[-1]
    return _short_name(re.sub(r"(?<=.)[@=:].*|\.(?:py|m?js|ts|exe|sh)$", "", last)) or "server"


def _is_of_runner(word: str) -> bool:
    """Check whether a word is a runner of packages, or one of its options or subcommands."""
    program = PurePath(word).name.lower().removesuffix(".exe")
    if word.startswith("-") or word in _SUBCOMMANDS:
        return True
    return program in _RUNNERS or program.startswith("py")


def _short_name(*texts: str) -> str:
    parts = re.findall("[a-z0-9]+", " ".join(texts).lower())
    return "-".join([part for part in parts if part not in _SAYS_LITTLE] or parts)[:40].strip("-")


OFFLINE = "offline:planner"
"""The model if none is given."""
OTHER_ADDRESS = "quick"
"""The client for a model at another address than its provider's.

Its key comes from `QUICK_API_KEY` alone.
"""

_CHAT = "-chat"
"""Behind a provider's name: its chat completions, even for models that reason."""


def _as_given(name: str | None, server: Any, taken: Collection[str]) -> tuple[str | None, Any]:
    return name, server


def quick_config(
    model: str | None = None,
    servers: Mapping[str, ServerLike] | Iterable[ServerLike] = (),
    *,
    base_url: str | None = None,
    environ: Mapping[str, str] | None = None,
    resolve: Callable[[str | None, Any, Collection[str]], tuple[str | None, Any]] = _as_given,
) -> tuple[Config, dict[str, FastMCP[Any]]]:
    """Build a config from a model and servers, and collect the in-process servers.

    For the model see `model_sections`. Servers are given by name, as for `read_server` or
    in-process, or alone: names are then made from texts, and in-process servers have one. `resolve`
    gets each name and server with the taken names first, and may replace both.
    """
    variables = read_environment(environ=environ)
    config = load_config(
        model_sections(model, base_url=base_url, environ=variables), environ=variables
    )
    read: dict[str, ServerConfig] = {}
    in_process: dict[str, FastMCP[Any]] = {}
    entries: Iterable[tuple[str | None, Any]]
    if isinstance(servers, Mapping):
        entries = servers.items()
    elif isinstance(servers, str):
        entries = [(None, servers)]
    else:
        entries = [(None, server) for server in servers]
    for given, entry in entries:
        taken = {*read, *in_process}
        name, spec = resolve(given, entry, taken)
        if is_in_process(spec):
            in_process[in_process_name(spec, name, taken)] = spec
        else:
            name, server = read_server(spec, name, taken=taken, environ=variables)
            read[name] = server
    return config.model_copy(update={"servers": read}), in_process


def model_sections(
    model: str | None, *, base_url: str | None = None, environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Build the config sections `clients` and `models` for one model, such as `openai:gpt-4.1` or
    `ollama:qwen3:8b`.

    It can name a model server on this computer, such as `lmstudio:qwen3-4b`, or only a well-known
    model, such as `claude-sonnet-5`. With `openai:`, reasoning models use the Responses API, unless
    it is written `openai-chat:`. None is the offline planner. Errors name the closest provider, a
    missing key's variable, or the command that installs a missing SDK.
    """
    variables = read_environment(environ=environ)
    sections = _sections(model or OFFLINE, base_url, variables)
    for name, client in load_config(sections, environ=variables).clients.items():
        _check(name, client)
    return sections


def _sections(model: str, base_url: str | None, variables: Mapping[str, str]) -> dict[str, Any]:
    local = by_name(registry.LOCAL_SERVERS)
    provider, name, is_chat = _read(model, local)
    client_name, settings = provider, {"provider": provider}
    if not spec_of(provider).name:
        settings = {"provider": local[provider].provider, "base_url": local[provider].base_url}
    if not name:
        raise UsageError(
            f"Which model of {provider}?", hint=f"Write it behind the provider: {provider}:NAME."
        )
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
    return {
        "clients": {client_name: settings},
        "models": {name: {"client": client_name, "model": name}},
    }


def with_model(config: Config, model: str) -> Config:
    """Copy a config with a model as its first one, which is the default.

    Args:
        config: The config.
        model: One of the config's models, or one as for `model_sections`, which has this text as
            its name in the copy. A client of the config with the provider's name is used for it.

    Raises:
        UnknownNameError: There is no such model in the config, and no such provider.
        UsageError: The text names a provider without its model.
        ProviderError: The provider's key or its SDK is missing.
    """
    if model in config.models:
        return config.model_copy(update={"models": {model: config.models[model], **config.models}})
    if ":" not in model and config.models:
        raise unknown_model(model, config.models)
    variables = read_environment(config.folder)
    sections = _sections(model, None, variables)
    (entry,) = sections["models"].values()
    added = load_config({**sections, "models": {model: entry}}, environ=variables)
    config = config.with_models(added)
    _check(entry["client"], config.clients[entry["client"]])
    return config


def _read(model: str, local: Collection[str]) -> tuple[str, str, bool]:
    """Parse a model into its provider, its own name, and whether to use chat completions in any
    case.
    """
    provider, _, name = model.partition(":")
    # Checked first: listing all providers reads every installed package's metadata.
    if spec_of(provider).name or provider in local:
        return provider, name, False
    chat = provider.removesuffix(_CHAT)
    if chat != provider and spec_of(chat).reasons_with:
        return chat, name, True
    owners = []
    for spec in specs().values():
        if spec.names is not None and spec.names.fullmatch(model):
            owners.append(spec.name)
    if len(owners) == 1:
        return owners[0], model, False
    if owners:
        ways = " or ".join(f"{owner}:{model}" for owner in owners)
        raise UsageError(f"Several providers have a model {shown(model)}.", hint=f"Write {ways}.")
    known = [*specs(), *local]
    error = UnknownNameError("provider", provider, known)
    if name:
        raise error
    # Most likely a model name alone.
    hint = (
        f"{error.hint} No provider is known for this model's name. Write PROVIDER:MODEL, such as"
        " openai:gpt-4.1."
    )
    raise UnknownNameError("provider", provider, known, hint=hint)


def _check(name: str, client: ClientConfig) -> None:
    spec = spec_of(client.provider)
    if spec.sdk is not None:
        try:
            version(spec.sdk)
        except PackageNotFoundError:
            raise missing(name, spec.sdk) from None
    if spec.needs_key and spec.key_variable and client.key_state == "not set":
        raise no_key(name, client.provider)
