"""A look at everything that a session needs. Nothing is started, sent or changed."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from casual_mcp_nb.errors import shown
from casual_mcp_nb.notebook.shell import shell
from casual_mcp_nb.notebook.status import clients_of
from casual_mcp_nb.notebook.stderr_line import telling_line
from casual_mcp_nb.providers.registry import client_variable, homes_of, spec_of, specs
from casual_mcp_nb.types.diagnosis import Check, CheckStatus, Diagnosis
from casual_mcp_nb.types.prices import price_of
from casual_mcp_nb.types.session import ServerStatus

if TYPE_CHECKING:
    from casual_mcp_nb.notebook.session import Session
    from casual_mcp_nb.types.config import ClientConfig

_PACKAGES = ("casual-mcp-nb", "casual-llm", "fastmcp", "mcp", "pydantic", "ipython", "ipykernel", "ipywidgets", "jupyterlab")
_NEEDED = ("casual-llm", "fastmcp", "mcp", "pydantic", "ipython")
_LAUNCHERS = {
    "npx": "Install Node.js from nodejs.org: it brings npx.",
    "node": "Install Node.js from nodejs.org.",
    "uvx": "Install uv: pip install uv.",
    "docker": "Install Docker and start it.",
}


def diagnose(session: Session) -> Diagnosis:
    """What works, what does not, and what to do."""
    return Diagnosis(
        (
            *_kernel(),
            *_packages(),
            *_sdks(session),
            *_commands(session),
            *_config(session),
            *_keys(session),
            *_windows(session),
            *_prices(session),
            *_context_windows(session),
            *_servers(session),
            *_templates(session),
        )
    )


def _kernel() -> Iterator[Check]:
    part = "Kernel"
    yield Check(part, "Python", "ok", f"{platform.python_version()} on {platform.system()}")
    found = shell()
    if found is None:
        yield Check(part, "notebook", "ok", "none: this is a plain Python program")
    else:
        yield Check(part, "notebook", "ok", "a Jupyter kernel" if hasattr(found, "kernel") else "IPython in a terminal")
    asyncio = sys.modules.get("asyncio")
    if hasattr(asyncio, "_nest_patched"):
        advice = "Restart the kernel to be rid of it, unless your own cells need it."
        yield Check(part, "asyncio", "warn", "patched by nest-asyncio", advice)


def _packages() -> Iterator[Check]:
    for name in _PACKAGES:
        found = _version(name)
        verdict: CheckStatus = "ok" if found else "fail" if name in _NEEDED else "warn"
        advice = "" if found or name == "casual-mcp-nb" else f"Run: pip install {name}"
        yield Check("Packages", name, verdict, found or "not installed", advice)


def _sdks(session: Session) -> Iterator[Check]:
    used = {spec_of(client.provider).sdk for client in session.config.clients.values()}
    for name in sorted({spec.sdk for spec in specs().values() if spec.sdk}):
        found = _version(name)
        if found:
            yield Check("Model SDKs", name, "ok", found)
        elif name in used:
            yield Check("Model SDKs", name, "fail", "not installed, and the config uses it", f"Run: pip install {name}")
        else:
            yield Check("Model SDKs", name, "ok", "not installed, and not used")


def _commands(session: Session) -> Iterator[Check]:
    used = {server.command for server in session.config.servers.values() if server.command}
    for name, advice in _LAUNCHERS.items():
        if shutil.which(name):
            yield Check("Commands", name, "ok", "found")
        elif name in used:
            yield Check("Commands", name, "fail", "not found, and a server needs it", advice)
    for server in session.config.servers.values():
        if server.command and server.command not in _LAUNCHERS and not shutil.which(server.command):
            # As dumped, because a variable in it can be a secret.
            name = str(server.model_dump()["command"])
            yield Check("Commands", name, "fail", "not found, and a server needs it", "Install it, or give its whole path.")


def _config(session: Session) -> Iterator[Check]:
    config = session.config
    where = config.path.name if config.path else "made in Python"
    yield Check("Config", "source", "ok", f"{where}: {len(config.servers)} servers, {len(config.models)} models")
    for note in config.notes:
        yield Check("Config", "note", "warn", note)
    if not config.models:
        advice = 'Add a model; {"provider": "offline"} as a client needs no key.'
        yield Check("Config", "models", "warn", "there are none, so there is nobody to chat with", advice)


def _keys(session: Session) -> Iterator[Check]:
    for client in clients_of(session.config):
        variable = client_variable(client.name)
        config = session.config.clients[client.name]
        if client.key == "not set":
            advice = f"Set {variable} in the environment or in .env, and start the session anew."
            yield Check("Keys", client.name, "fail" if client.models else "warn", client.key, advice)
        elif homes_of(config.key_variable) and not _is_at_home(config):
            found = f"set, from {config.key_variable}, and sent to the client's base_url, which is not the provider's"
            places = dict.fromkeys([variable, f"clients.{client.name}.api_key"])
            places.pop(config.key_variable or "", None)
            advice = f"Set {' or '.join(places)} to a key for that address, or to any text where it needs none."
            yield Check("Keys", client.name, "warn", found, advice)
        else:
            yield Check("Keys", client.name, "ok", client.key)


def _is_at_home(client: ClientConfig) -> bool:
    """Whether the key from the provider's own variable goes to the provider."""
    homes = homes_of(client.key_variable)
    try:
        host = urlsplit(client.base_url or f"https://{homes[0]}").hostname or ""
    except ValueError:
        return False
    return host in homes or host.endswith(f".{homes[0]}")


def _windows(session: Session) -> Iterator[Check]:
    config = session.config
    for name, model in config.models.items():
        note = spec_of(config.clients[model.client].provider).window_note
        if note and model.context_window is None:
            found = f"context_window is not set: {note}"
            advice = f"Set models.{name}.context_window to what the model can read and your memory can hold."
            yield Check("Models", name, "warn", found, advice)


def _prices(session: Session) -> Iterator[Check]:
    config = session.config
    for name, model in config.models.items() if config.prices else ():
        spec = spec_of(config.clients[model.client].provider)
        if spec.is_language_model and price_of(config.prices, name, model.model) is None:
            advice = f"Add {name} to the price table: input and output per million tokens."
            yield Check("Prices", name, "warn", "no price, so its cost is not known", advice)


def _context_windows(session: Session) -> Iterator[Check]:
    for name, model in session.config.models.items():
        spec = spec_of(session.config.clients[model.client].provider)
        if spec.is_language_model and model.context_window is None:
            found = f"context_window is not set, so nothing is trimmed: when a conversation is too long, {spec.overflow}"
            yield Check("Models", name, "warn", found, f"Set models.{name}.context_window to the tokens that it can read.")


def _servers(session: Session) -> Iterator[Check]:
    for name, status in session.servers.items():
        config = session.config.servers.get(name)
        if config is not None and not config.enabled and status.state == "closed":
            yield Check("Servers", name, "ok", "disabled in the config, and not started", f"To use it: %mcp load {name}")
        else:
            yield _server(status)
        for note in status.notes:
            yield Check("Servers", name, "warn", note)
        if status.task_only:
            names = ", ".join(map(shown, status.task_only[:12]))
            found = f"ready, but these tools run only as tasks, which this client does not start: {names}"
            yield Check("Servers", status.name, "warn", found, "The model is not offered them.")
        if config is not None and config.transport == "sse":
            advice = "Ask its maker for an address of streamable HTTP, and leave out the transport."
            yield Check("Servers", name, "warn", "its transport, sse, is deprecated by MCP", advice)
    for notice in (*session.approval_problems, *session.exclusion_problems):
        yield Check("Servers", notice.server or "", "warn", notice.text, "Correct the name there.")
    yield from _hidden_modules(session)


def _hidden_modules(session: Session) -> Iterator[Check]:
    """The files that keep a Python server from starting: beside it, they take the place of the standard library's modules."""
    for name, status in session.servers.items():
        server = session.config.servers.get(name)
        if status.state != "failed" or server is None or "python" not in Path(server.command or "").name:
            continue
        script = next((word for word in server.args if word.endswith(".py")), "")
        folder = Path(server.cwd or ".", script).parent if script else Path(server.cwd or ".")
        files = sorted(file.name for file in folder.glob("*.py") if file.stem in sys.stdlib_module_names)
        if files:
            found = f"{', '.join(files[:5])} in {folder}, under the name of a standard module"
            advice = f'Rename it, or put "-P" first in servers.{name}.args, so that Python does not look there.'
            yield Check("Servers", name, "warn", found, advice)


def _server(status: ServerStatus) -> Check:
    match status.state:
        case "failed":
            line = telling_line(status.stderr_tail)
            found = f"failed: {status.error or 'no reason is known'}" + (f"; its stderr says: {line}" if line else "")
            return Check("Servers", status.name, "fail", found, f"Repair it, then: %mcp reconnect {status.name}")
        case "ready" if status.error is None:
            protocol = f", protocol {status.protocol_version}" if status.protocol_version else ""
            return Check("Servers", status.name, "ok", f"ready, {status.tools} tools{protocol}")
        case "ready":
            return Check("Servers", status.name, "warn", f"ready, but {status.error}", f"%mcp reconnect {status.name}")
        case "starting" | "closed" if status.seconds is None:
            return Check("Servers", status.name, "ok", "not connected yet", "It connects at its first use, or by: %mcp servers")
        case _:
            return Check("Servers", status.name, "warn", status.state, f"%mcp reconnect {status.name}")


def _templates(session: Session) -> Iterator[Check]:
    names = session.templates
    yield Check("Templates", "found", "ok" if names else "warn", ", ".join(names) or "none")
    for model, config in session.config.models.items():
        if config.template and config.template.removesuffix(".j2") not in {name.removesuffix(".j2") for name in names}:
            advice = "Put it into prompt-templates/ beside the config file."
            yield Check("Templates", config.template, "fail", f"not found, and model {model} uses it", advice)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
