"""Check everything that a session needs.

Nothing is started or changed, and only model servers here are asked.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from casual_mcp_nb.base.config import Config, EmbeddingConfig, other_python
from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.base.prices import price_of
from casual_mcp_nb.base.status import Check, CheckStatus, Diagnosis, Servers, ServerStatus
from casual_mcp_nb.base.tokens import Budget
from casual_mcp_nb.bundled import BUNDLED, available
from casual_mcp_nb.config.environment import read_environment
from casual_mcp_nb.conversation.event import Notice
from casual_mcp_nb.discovery.toolsets import unknown_servers
from casual_mcp_nb.doors import in_words_of, pip_install
from casual_mcp_nb.errors import UsageError, closest, install, shown
from casual_mcp_nb.notebook.caller import notebook_shell, shell
from casual_mcp_nb.notebook.models import clients_of
from casual_mcp_nb.notebook.nested import is_nested_asyncio
from casual_mcp_nb.own_tools.toolbox import NOTEBOOK
from casual_mcp_nb.providers.registry import (
    RunningServer,
    client_variable,
    homes_of,
    is_home_address,
    running_servers,
    spec_of,
    specs,
    window_of,
)


@dataclass(frozen=True)
class ModelAtHand:
    """A model that could be used.

    Attributes:
        source: The model server that runs here, or the variable with a provider's key.
        reason: Why it can be used, as the end of a sentence that begins with the source.
        model: Its argument for `Session.quick`.
    """

    source: str
    reason: str
    model: str


@dataclass(frozen=True)
class EmbeddedTools:
    """How far a session's search by meaning is.

    Attributes:
        model: The embedding model, or None for a function of the person's.
        label: What it is called.
        problem: Why it does not work, or empty.
        done: How many tools have vectors.
        count: How many tools there are.
    """

    model: EmbeddingConfig | None
    label: str
    problem: str
    done: int
    count: int


def models_at_hand(
    variables: Mapping[str, str], running: Iterable[RunningServer] | None = None
) -> list[ModelAtHand]:
    """Find one model per model server that runs here, then one per provider whose key is set.

    Args:
        variables: The environment.
        running: The model servers that run here, or None to look for them.
    """
    if running is None:
        running = running_servers()
    return [*map(_local, running), *_by_key(variables)]


def hint_of(models: Iterable[ModelAtHand]) -> str:
    """Write a sentence on the first model, with the line that uses it in the demo.

    Empty if there is none.
    """
    for model in models:
        return in_words_of(
            f"{model.source} {model.reason}. To use it: %mcp demo --model {model.model}"
        )
    return ""


def _local(running: RunningServer) -> ModelAtHand:
    names = ", ".join(running.models[:3])
    more = ""
    if len(running.models) > 3:
        more = f" and {len(running.models) - 3} more"
    return ModelAtHand(
        running.server.title,
        f"runs here with {names}{more}",
        f"{running.server.name}:{running.models[0]}",
    )


def _by_key(variables: Mapping[str, str]) -> Iterator[ModelAtHand]:
    for spec in specs().values():
        if spec.example_model and spec.key_variable and variables.get(spec.key_variable):
            reason = "is set"
            if spec.sdk is not None and not _version(spec.sdk):
                reason = f"is set. {install(spec.sdk)}"
            yield ModelAtHand(spec.key_variable, reason, f"{spec.name}:{spec.example_model}")


_PACKAGES = (
    "casual-mcp-nb",
    "casual-llm",
    "fastmcp",
    "mcp",
    "pydantic",
    "ipython",
    "ipykernel",
    "ipywidgets",
    "jupyterlab",
)
_NEEDED = ("casual-llm", "fastmcp", "mcp", "pydantic", "ipython")
_LAUNCHERS = {
    "npx": "Install Node.js from nodejs.org: it brings npx.",
    "node": "Install Node.js from nodejs.org.",
    "uvx": "Install uv: pip install uv.",
    "docker": "Install Docker and start it.",
}


def diagnose(
    config: Config,
    servers: Servers,
    templates: Sequence[str],
    notices: Iterable[Notice],
    budget: Budget,
    embedded: EmbeddedTools | None = None,
) -> Diagnosis:
    """Report which parts work, which do not, and how to fix them.

    Args:
        config: The config.
        servers: The servers as they are now.
        templates: The names of the prompt templates that were found.
        notices: What the config says about tools that cannot be followed.
        budget: What deferring saves.
        embedded: How far the search by meaning is, or None without one.
    """
    return Diagnosis(
        (
            *_kernel(),
            *_packages(),
            *_sdks(config),
            *_commands(config),
            *_config(config),
            *_keys(config),
            *_models_at_hand(config),
            *_windows(config),
            *_prices(config),
            *_bundled(config),
            *_servers(config, servers),
            *_notices(notices),
            *_hidden_modules(config, servers),
            *_interpreters(config, servers),
            *_tool_sets(config, servers),
            *_deferring(budget),
            *_embedding(config, embedded),
            *_templates(config, templates),
        )
    )


def _kernel() -> Iterator[Check]:
    part = "Kernel"
    yield Check(part, "Python", "ok", f"{platform.python_version()} on {platform.system()}")
    if shell() is None:
        yield Check(part, "notebook", "ok", "none: this is a plain Python program")
    else:
        place = "IPython in a terminal"
        if notebook_shell():
            place = "a Jupyter kernel"
        yield Check(part, "notebook", "ok", place)
    if is_nested_asyncio():
        advice = "Restart the kernel to remove the patch, unless your own cells need it."
        yield Check(part, "asyncio", "warn", "patched by nest-asyncio", advice)


def _packages() -> Iterator[Check]:
    for name in _PACKAGES:
        installed = _version(name)
        if installed:
            yield Check("Packages", name, "ok", installed)
            continue
        verdict: CheckStatus = "warn"
        if name in _NEEDED:
            verdict = "fail"
        advice = ""
        if name != "casual-mcp-nb":
            advice = f"Run: {pip_install(name)}"
        yield Check("Packages", name, verdict, "not installed", advice)


def _sdks(config: Config) -> Iterator[Check]:
    used = {spec_of(client.provider).sdk for client in config.clients.values()}
    for name in sorted({spec.sdk for spec in specs().values() if spec.sdk}):
        installed = _version(name)
        if installed:
            yield Check("Model SDKs", name, "ok", installed)
        elif name in used:
            yield Check(
                "Model SDKs", name, "fail", "not installed, but the config uses it", install(name)
            )
        else:
            yield Check("Model SDKs", name, "ok", "not installed, and not used")


def _commands(config: Config) -> Iterator[Check]:
    used = {server.command for server in config.servers.values() if server.command}
    for name, advice in _LAUNCHERS.items():
        if shutil.which(name):
            yield Check("Commands", name, "ok", "found")
        elif name in used:
            yield Check("Commands", name, "fail", "not found, but a server needs it", advice)
    for server in config.servers.values():
        if not server.command or server.command in _LAUNCHERS:
            continue
        if not shutil.which(server.command):
            # As dumped, because a variable in it can be a secret.
            name = str(dict(server)["command"])
            yield Check(
                "Commands",
                name,
                "fail",
                "not found, but a server needs it",
                "Install it, or give its full path.",
            )


def _config(config: Config) -> Iterator[Check]:
    where = "made in Python"
    if config.path:
        where = config.path.name
    size = f"{count(len(config.servers), 'server')}, {count(len(config.models), 'model')}"
    yield Check("Config", "source", "ok", f"{where}: {size}")
    for note in config.notes:
        yield Check("Config", "note", "warn", note)
    if not config.models:
        advice = "Add a model, or choose one: --model openai:gpt-4.1."
        yield Check("Config", "models", "warn", "none: the offline planner answers", advice)


def _keys(config: Config) -> Iterator[Check]:
    for client in clients_of(config):
        variable = client_variable(client.name)
        settings = config.clients[client.name]
        homes = homes_of(settings.key_variable)
        if client.key == "not set":
            advice = f"Set {variable} in the environment or in .env, and start the session again."
            verdict: CheckStatus = "warn"
            if client.models:
                verdict = "fail"
            yield Check("Keys", client.name, verdict, client.key, advice)
        elif homes and not is_home_address(settings.base_url, homes):
            problem = (
                f"set, from {settings.key_variable}, and sent to the client's base_url, which is"
                " not the provider's"
            )
            places = dict.fromkeys([variable, f"clients.{client.name}.api_key"])
            places.pop(settings.key_variable or "", None)
            advice = (
                f"Set {' or '.join(places)} to a key for that address, or to any text if it needs"
                " none."
            )
            yield Check("Keys", client.name, "warn", problem, advice)
        else:
            yield Check("Keys", client.name, "ok", client.key)


def _models_at_hand(config: Config) -> Iterator[Check]:
    """List the language models that could be used, if the config has none."""
    if any(spec_of(client.provider).is_language_model for client in config.clients.values()):
        return
    for at_hand in models_at_hand(read_environment(config.folder)):
        yield Check(
            "Models",
            at_hand.source,
            "ok",
            at_hand.reason,
            f"To use it: %mcp demo --model {at_hand.model}",
        )


def _windows(config: Config) -> Iterator[Check]:
    for name, model in config.models.items():
        client = config.clients[model.client]
        spec = spec_of(client.provider)
        if spec.window_note and model.context_window is None:
            problem = f"context_window is not set: {spec.window_note}"
            advice = (
                f"Set models.{name}.context_window to a number of tokens that the model can read"
                " and your memory can hold."
            )
            yield Check("Models", name, "warn", problem, advice)
        if spec.is_language_model and window_of(model, client) is None:
            problem = (
                "context_window is neither set nor known: when a conversation is too long,"
                f" {spec.overflow}"
            )
            yield Check(
                "Models",
                name,
                "warn",
                problem,
                f"Set models.{name}.context_window to the tokens that it can read.",
            )


def _prices(config: Config) -> Iterator[Check]:
    if not config.prices:
        return
    for name, model in config.models.items():
        if not spec_of(config.clients[model.client].provider).is_language_model:
            continue
        price = price_of(config.prices, name, model.model)
        if price is None:
            advice = f"Add {name} to the price table: input and output per million tokens."
            yield Check("Prices", name, "warn", "no price, so its cost is unknown", advice)
        elif price.cached_input is None:
            note = "no cached_input, so tokens from the cache cost as much as others"
            advice = (
                f"Add cached_input to {name} in the price table, if its provider has a price for"
                " tokens from the cache."
            )
            yield Check("Prices", name, "ok", note, advice)


def _bundled(config: Config) -> Iterator[Check]:
    """Check which bundled servers of the config lack an extra or an account.

    The bundled servers that the config does not use, and that would lack one, are one line.
    """
    used = {server.bundled for server in config.servers.values()}
    # The config may give a server its credentials in its environment.
    with_environment = {server.bundled for server in config.servers.values() if server.env}
    unused = []
    for name, why in available().missing.items():
        if name in with_environment:
            continue
        if name not in used:
            unused.append(name)
        elif BUNDLED[name].missing():
            yield Check(
                "Bundled servers", name, "fail", f"{why.reason}, but the config uses it", why.remedy
            )
    if unused:
        advice = "%mcp add NAME starts one, or says which sign-in it needs."
        yield Check("Bundled servers", "not used", "ok", ", ".join(unused), advice)


def _notices(notices: Iterable[Notice]) -> Iterator[Check]:
    for notice in notices:
        yield Check("Servers", notice.server or "", "warn", notice.text, "Correct the name there.")


def _servers(config: Config, servers: Servers) -> Iterator[Check]:
    for name, status in servers.items():
        server = config.servers.get(name)
        if name in config.unusable:
            advice = "Correct its entry in the config."
            yield Check("Servers", name, "fail", config.unusable[name], advice)
        elif server is not None and not server.enabled and status.state == "closed":
            yield Check(
                "Servers",
                name,
                "ok",
                "disabled in the config, so not started",
                f"To use it: %mcp load {name}",
            )
        else:
            yield server_check(status)
        for note in status.notes:
            yield Check("Servers", name, "warn", note)
        if status.left_out:
            names = ", ".join(map(shown, list(status.left_out)[:12]))
            problem = (
                f"{len(status.left_out):,} of its tools cannot be used as it lists them: {names}"
            )
            yield Check("Servers", name, "warn", problem, f"To see why: %mcp doctor {name}")
        if status.ignored:
            fields = ", ".join(map(shown, list(status.ignored)[:12]))
            problem = (
                f"{count(len(status.ignored), 'field')} of its messages are not valid, and left out"
                f" or replaced: {fields}"
            )
            yield Check("Servers", name, "warn", problem, f"To see why: %mcp servers {name}")
        if status.task_only:
            names = ", ".join(map(shown, status.task_only[:12]))
            problem = (
                "ready, but these tools run only as tasks, which this client does not support:"
                f" {names}"
            )
            yield Check("Servers", status.name, "warn", problem, "The model is not offered them.")
        if server is not None and server.transport == "sse":
            advice = "Ask its provider for a streamable HTTP address, and leave out the transport."
            yield Check("Servers", name, "warn", "its transport, sse, is deprecated by MCP", advice)


def _tool_sets(config: Config, servers: Servers) -> Iterator[Check]:
    """Find servers that toolsets name and that do not exist.

    The name may be misspelt, or the program may add the server later.
    """
    existing = {*servers, NOTEBOOK}
    for name, tool_set in config.tool_sets.items():
        for server, hint in unknown_servers(tool_set, existing).items():
            misspelt = bool(closest(server, existing))
            problem = f"there is no server {shown(server)}"
            if misspelt:
                yield Check("Toolsets", name, "fail", problem, hint)
            else:
                advice = "Add it with session.servers.add before the toolset is used."
                yield Check("Toolsets", name, "warn", problem, advice)


def _deferring(budget: Budget) -> Iterator[Check]:
    """Check whether deferring pays, over a whole turn and not only in its first request."""
    if budget.saved is None:
        return
    share = f"{abs(budget.saved):.0%} of the input of a turn with one search and one call"
    if budget.saved > 0:
        yield Check("Discovery", "deferring", "ok", f"saves {share}")
    else:
        problem = (
            f"costs {abs(budget.saved):.0%} more input than every tool loaded, in a turn with one"
            " search and one call"
        )
        yield Check(
            "Discovery",
            "deferring",
            "warn",
            problem,
            "To load all: session.selection.discovery = False",
        )


def _embedding(config: Config, tools: EmbeddedTools | None) -> Iterator[Check]:
    """Check the model for search by meaning, without asking or downloading it."""
    if tools is None:
        return
    part, name = "Discovery", f"search by meaning ({tools.label})"
    model, folder = tools.model, None
    if model is not None and model.local:
        from casual_mcp_nb.discovery.meaning import local_folder

        try:
            folder = local_folder(model, config.folder)
        except UsageError as error:
            yield Check(part, name, "fail", str(error))
            return
    elif model is not None and spec_of(config.clients[model.client or ""].provider).embed is None:
        names = ", ".join(spec.name for spec in specs().values() if spec.embed)
        problem = f"client {shown(model.client or '')} has no embedding models here"
        yield Check(
            part, name, "fail", problem, f"Name a client of one of these providers: {names}."
        )
        return
    if tools.problem:
        yield Check(part, name, "warn", tools.problem, "A later search tries it again.")
    elif tools.count:
        advice = ""
        if tools.done < tools.count:
            advice = "Until all have one, search ranks by words."
        yield Check(
            part, name, "ok", f"{tools.done:,} of {count(tools.count, 'tool')} have vectors", advice
        )
    elif model is not None and model.local:
        where = "to be downloaded by the first search"
        if folder:
            where = "on this computer"
        yield Check(part, name, "ok", f"{where}, not loaded yet")
    else:
        yield Check(
            part,
            name,
            "ok",
            "not asked yet",
            "It is asked once servers are connected and tools are deferred.",
        )


def _hidden_modules(config: Config, servers: Servers) -> Iterator[Check]:
    """Find files beside a Python server that keep it from starting.

    They have the name of a standard library module, which they shadow.
    """
    for name, status in servers.items():
        server = config.servers.get(name)
        if server is None or status.state != "failed":
            continue
        if "python" not in Path(server.command or "").name:
            continue
        folder = Path(server.cwd or ".")
        for word in server.args:
            if word.endswith(".py"):
                folder = (folder / word).parent
                break
        files: list[str] = []
        for file in sorted(folder.glob("*.py")):
            if file.stem in sys.stdlib_module_names:
                files.append(file.name)
        if files:
            problem = f"{', '.join(files[:5])} in {folder}, shadows a standard library module"
            advice = f'Rename it, or put "-P" first in the "args" of {name}, so Python ignores the folder.'
            yield Check("Servers", name, "warn", problem, advice)


def _interpreters(config: Config, servers: Servers) -> Iterator[Check]:
    """Find servers that run with another Python than this one."""
    for name, status in servers.items():
        server = config.servers.get(name)
        other = None
        if server is not None and status.state != "ready":
            other = other_python(server)
        if server is None or other is None:
            continue
        problem = f"{server.command} is {other}, not this session's Python, {sys.executable}"
        advice = (
            f'To run it with the packages installed here, write in the entry of {name}: "command":'
            f" {json.dumps(sys.executable)}"
        )
        yield Check("Servers", name, "warn", problem, advice)


def server_check(status: ServerStatus) -> Check:
    """Check whether a server works."""
    match status.state:
        case "failed":
            return Check(
                "Servers",
                status.name,
                "fail",
                f"failed: {status.error or 'reason unknown'}",
                f"Fix it, then: %mcp reconnect {status.name}",
            )
        case "ready" if status.error is None:
            text = f"ready, {status.tools} tools"
            if status.protocol_version:
                text += f", protocol {status.protocol_version}"
            return Check("Servers", status.name, "ok", text)
        case "ready" | "unlisted":
            return Check(
                "Servers",
                status.name,
                "warn",
                f"connected, but {status.error}",
                f"%mcp reconnect {status.name}",
            )
        case "starting" | "closed" if status.seconds is None:
            return Check(
                "Servers", status.name, "ok", "not connected yet", "To connect it: %mcp servers"
            )
        case _:
            return Check(
                "Servers", status.name, "warn", status.state, f"%mcp reconnect {status.name}"
            )


def _templates(config: Config, templates: Sequence[str]) -> Iterator[Check]:
    if templates:
        yield Check("Templates", "found", "ok", ", ".join(templates))
    else:
        yield Check("Templates", "found", "warn", "none")
    names = {template.removesuffix(".j2") for template in templates}
    for name, model in config.models.items():
        if model.template and model.template.removesuffix(".j2") not in names:
            advice = "Put it into prompt-templates/ beside the config file."
            yield Check(
                "Templates", model.template, "fail", f"not found, but model {name} uses it", advice
            )


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
