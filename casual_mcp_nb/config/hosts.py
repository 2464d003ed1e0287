"""Convert other MCP hosts' config files to our own format without changing their meaning.

Each host's format, and where it is documented:

- Claude Desktop, Claude Code (`.mcp.json`, `~/.claude.json`), Cursor, Windsurf, Cline, Roo Code, fastmcp: `mcpServers`
  (https://code.claude.com/docs/en/mcp, https://cursor.com/docs/mcp, https://docs.windsurf.com/windsurf/cascade/mcp,
  `fastmcp.mcp_config`)
- VS Code: `servers` with `inputs` in `mcp.json`, `mcp.servers` in `settings.json`
  (https://code.visualstudio.com/docs/copilot/reference/mcp-configuration)
- Gemini CLI: `mcpServers`, and `mcp.allowed` / `mcp.excluded` (https://geminicli.com/docs/tools/mcp-server)
- Copilot CLI: `mcpServers` with `tools`, `deferTools`
  (https://docs.github.com/en/copilot/how-tos/copilot-cli/customize-copilot/add-mcp-servers)
- Zed: `context_servers` (https://zed.dev/docs/ai/mcp)
- opencode: `mcp`, since version 2 `mcp.servers` (https://opencode.ai/docs/mcp-servers, https://opencode.ai/v2/docs/mcp-servers)
- jupyter-ai: a list `mcp_servers` (https://jupyter-ai.readthedocs.io/en/latest/users, `.jupyter/mcp_settings.json`); Codex:
  tables `mcp_servers`
- marimo: `[mcp.mcpServers.NAME]` in `marimo.toml` (`marimo._config.config.MCPConfig`)
- a registry's `server.json`: see `registry`
- casual-mcp before 1.0: models that name a provider and an endpoint, which `casual-mcp-nb migrate-config` makes clients of

A file can be converted for good as well, with references in place of secrets.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.limits import is_too_deep
from casual_mcp_nb.base.secret import Secrets, can_be_masked, certain, option_secrets, url_secrets
from casual_mcp_nb.config.document import (
    ConfigProblem,
    Document,
    KeyPath,
    dotted,
    parse_document,
    plain_json,
    raise_problems,
    read_text,
)
from casual_mcp_nb.config.environment import Input, workspace_of
from casual_mcp_nb.config.host_servers import ENV_FILE, AdaptedConfig, adapt_server, servers_in, switches_of
from casual_mcp_nb.errors import closest, did_you_mean
from casual_mcp_nb.providers.registry import client_variable

_RUNTIMES = {"npm": "npx", "pypi": "uvx", "oci": "docker", "nuget": "dnx"}
_PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_.-]+)\}")


class RegistryEntry:
    """The first supported way to reach the server: a package to start, or a remote URL.

    The name is without the namespace before it. `server` is the equivalent entry in `mcpServers`, if a way is supported,
    `inputs` the values that its placeholders need, and `notes` the omitted parts.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.name = re.sub(r"[^A-Za-z0-9_-]+", "-", str(data["name"]).rpartition("/")[2]).strip("-") or "server"
        self.inputs: list[Input] = []
        self.notes: list[str] = []
        packages = [each for each in _objects(data.get("packages")) if _starts(each)]
        remotes = [each for each in _objects(data.get("remotes")) if _text(each, "url")]
        self.server = self._package(packages[0]) if packages else self._remote(remotes[0]) if remotes else None
        if len(packages) + len(remotes) > 1:
            self.notes.append(
                f"{self.name} offers {len(packages) + len(remotes)} packages and remotes. The first usable one is used."
            )
        if _text(data, "status") == "deprecated":
            self.notes.append(f"{self.name} is deprecated.")

    def _package(self, package: Mapping[str, Any]) -> dict[str, Any]:
        kind, identifier, version = (_text(package, key) for key in ("registryType", "identifier", "version"))
        env = self._named(package, "environmentVariables")
        before = list(self._arguments(package, "runtimeArguments"))
        after = list(self._arguments(package, "packageArguments"))
        command = _text(package, "runtimeHint") or _RUNTIMES[kind]
        match kind:
            case "npm":
                args = [*_missing("-y", before), *before, f"{identifier}@{version}" if version else identifier, *after]
            case "pypi":
                args = [*before, f"{identifier}=={version}" if version else identifier, *after]
            case "nuget":
                package_id = f"{identifier}@{version}" if version else identifier
                args = [*before, package_id, *_missing("--yes", before), *(["--", *after] if after else [])]
            case _:
                tagged = ":" in identifier.rpartition("/")[2] or "@" in identifier or not version
                passed = [word for name in env for word in ("-e", name)]
                image = identifier if tagged else f"{identifier}:{version}"
                args = ["run", "-i", "--rm", *passed, *before, image, *after]
        return {"command": command, "args": args, "env": env}

    def _remote(self, remote: Mapping[str, Any]) -> dict[str, Any]:
        transport = _text(remote, "type") or _text(remote, "transportType")
        return {
            "url": self._filled(_text(remote, "url"), remote),
            "headers": self._named(remote, "headers"),
            **({"transport": transport} if transport else {}),
        }

    def _named(self, where: Mapping[str, Any], key: str) -> dict[str, str]:
        values: dict[str, str] = {}
        for each in _objects(_get(where, key)):
            name, value = _text(each, "name"), self._value(each, _text(each, "name"))
            if value is None:
                self.notes.append(f"{self.name}: {name} is optional and not set.")
            else:
                values[name] = value
        return values

    def _arguments(self, where: Mapping[str, Any], key: str) -> Iterator[str]:
        for each in _objects(_get(where, key)):
            name = _text(each, "name")
            value = self._value(each, _text(each, "valueHint") or name.lstrip("-"))
            if value is None:
                self.notes.append(f"{self.name}: the argument {name or _text(each, 'valueHint')} is optional and not set.")
            else:
                yield from filter(None, (name, value))

    def _value(self, each: Mapping[str, Any], name: str) -> str | None:
        """Choose the value in the file, or its default. A required one without either becomes an input."""
        for key in ("value", "default"):
            if isinstance(value := _get(each, key), str | int | float):
                return self._filled(str(value), each)
        return self._input(each, name) if _get(each, "isRequired") else None

    def _filled(self, text: str, where: Mapping[str, Any]) -> str:
        """Replace the placeholders `{name}` in a string, escaping it so that it is not expanded again."""
        variables = _get(where, "variables")
        entries = variables if isinstance(variables, Mapping) else {}

        def fill(match: re.Match[str]) -> str:
            entry = entries.get(match[1])
            return (self._value(entry, match[1]) or "") if isinstance(entry, Mapping) else match[0]

        return _PLACEHOLDER.sub(fill, text.replace("${", "$${"))

    def _input(self, entry: Mapping[str, Any], name: str) -> str:
        choices = _get(entry, "choices")
        options = tuple(map(str, choices)) if isinstance(choices, list) else ()
        secret = bool(_get(entry, "isSecret"))
        self.inputs.append(Input(name, str(_get(entry, "description") or ""), secret, options=options))
        return f"${{input:{name}}}"


def _get(where: Mapping[str, Any], key: str) -> Any:
    """Read a field by its present name or the older one in snake_case."""
    older = re.sub(r"(?<=[a-z])([A-Z])", lambda match: f"_{match[1].lower()}", key)
    return where.get(key, where.get(older))


def _text(where: Mapping[str, Any], key: str) -> str:
    value = _get(where, key)
    return value if isinstance(value, str) else ""


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _starts(package: Mapping[str, Any]) -> bool:
    """Check whether it can be started here: a supported package type, over stdio."""
    transport = package.get("transport")
    speaks = transport.get("type", "stdio") if isinstance(transport, Mapping) else "stdio"
    return _text(package, "registryType") in _RUNTIMES and speaks == "stdio"


def _missing(option: str, args: list[str]) -> list[str]:
    return [] if option in args else [option]


MAX_DEPTH = 64
_MAX_IN_A_NOTE = 8
_SPELLINGS = frozenset({"mcpservers", "contextservers"})
_WAYS = frozenset({"command", "url", "serverUrl", "httpUrl"})
_OF_SETTINGS = frozenset({"servers", "mcpServers", "inputs", "allowed", "excluded"})
_FILE_KEYS = frozenset({"$schema", "namespace_tools"})


_LEGACY_CLIENT = {"provider": "provider", "endpoint": "base_url"}
_LEGACY_MODEL = ("client", "model", "template", "temperature")


def is_legacy(data: Mapping[str, Any]) -> bool:
    """Check whether a config is from casual-mcp before 1.0: it has no clients, and models with a `provider`."""
    models = data.get("models")
    named = isinstance(models, Mapping) and any(isinstance(each, Mapping) and "provider" in each for each in models.values())
    return named and not data.get("clients")


def migrate_legacy_config(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Migrate a config from casual-mcp before 1.0 to clients, one per provider and endpoint, or None if it is not one."""
    if not is_legacy(data):
        return None
    clients: dict[str, dict[str, Any]] = {}
    models: dict[str, Any] = {}
    for name, model in data["models"].items():
        if not isinstance(model, Mapping) or "provider" not in model:
            models[name] = model
            continue
        client = {key: model[old] for old, key in _LEGACY_CLIENT.items() if model.get(old)}
        provider = str(model["provider"])
        names = (provider, *(f"{provider}-{number}" for number in range(2, len(data["models"]) + 2)))
        chosen = next(each for each in names if clients.get(each, client) == client)
        clients[chosen] = client
        models[name] = {"client": chosen} | {key: model[key] for key in _LEGACY_MODEL if key in model}
    return {**data, "models": models, "clients": clients}


def dropped_fields(data: Mapping[str, Any]) -> list[KeyPath]:
    """List the models' keys that `migrate_legacy_config` drops."""
    models = data["models"].items() if is_legacy(data) else ()
    keys = {*_LEGACY_CLIENT, *_LEGACY_MODEL}
    return [("models", name, key) for name, model in models if isinstance(model, Mapping) for key in model if key not in keys]


_FILES_OF_HOSTS = frozenset({"mcp.json", ".mcp.json"})
_OUR_SECTIONS = frozenset({"clients", "models", "tool_sets", "tool_discovery"})


def is_of_host(data: Mapping[str, Any], file: Path) -> bool:
    """Check whether a file belongs to another host: to its format, or by its name if the format could be ours too.

    A file with a section that only we have is ours, wherever its servers are.
    """
    if any(data.get(section) for section in _OUR_SECTIONS):
        return False
    return file.name.lower() in _FILES_OF_HOSTS or isinstance(data.get("inputs"), list) or adapt(data, file).of_host


def adapt(source: Mapping[str, Any], file: Path | None = None) -> AdaptedConfig:
    """Collect the servers from wherever a host keeps them, rename its keys to ours, and drop keys that only hosts use."""
    if is_too_deep(dict(source), MAX_DEPTH):
        return AdaptedConfig({}, problems=[ConfigProblem((), f"nested more than {MAX_DEPTH} levels deep")])
    data: dict[str, Any] = {str(key): _copied(value) for key, value in source.items()}
    adapted = AdaptedConfig(data)
    if is_legacy(data):
        command = f"casual-mcp-nb migrate-config {shlex.quote(str(file)) if file else 'FILE'}"
        text = "each must name a client. casual-mcp before 1.0 had the provider here. To convert the file: "
        adapted.problem(("models",), text + command)
        del data["models"]
    of_project = _of_project(data)
    switches = switches_of(data)
    _take_inputs(adapted, data.pop("inputs", None))
    _take_registry_entry(adapted)
    sections = _sections(adapted, of_project)
    _ignore_file_keys(adapted)
    _merge(adapted, sections)
    if data.get("tool_discovery", ...) is None:
        del data["tool_discovery"]
    for name, server in servers_in(data):
        adapt_server(adapted, name, server)
        switches.apply(name, server)
    return adapted


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list | tuple) else value


def _take_inputs(adapted: AdaptedConfig, inputs: Any) -> None:
    adapted.inputs += [Input.of(each) for each in inputs if isinstance(each, dict)] if isinstance(inputs, list) else []


def _take_registry_entry(adapted: AdaptedConfig) -> None:
    """Replace a `server.json` by the server it describes."""
    data = adapted.data
    ways = [data.get("packages"), data.get("remotes")]
    if not isinstance(data.get("name"), str) or not any(isinstance(way, list) and way for way in ways):
        return
    entry = RegistryEntry(data)
    for key in list(data):
        del data[key]
    adapted.of_host = True
    adapted.inputs += entry.inputs
    adapted.notes += entry.notes
    if entry.server is None:
        adapted.problem((), "none of its packages or remotes can be used here (npm, pypi, oci or nuget over stdio, or a url)")
    data["mcpServers"] = {entry.name: entry.server} if entry.server else {}


def _of_project(data: dict[str, Any]) -> list[tuple[KeyPath, Any]]:
    """Find the servers that Claude Code keeps for the project in the working directory. They precede its other ones."""
    projects, folder = data.get("projects"), str(Path.cwd())
    project = projects.get(folder) if isinstance(projects, dict) and "mcpServers" in data else None
    if not isinstance(project, dict):
        return []
    servers, others = project.get("mcpServers"), data["mcpServers"]
    if isinstance(servers, dict) and isinstance(others, dict):
        data["mcpServers"] = {name: server for name, server in others.items() if name not in servers}
    data["disabledMcpServers"] = [name for part in (data, project) for name in _listed(part.get("disabledMcpServers"))]
    return [(("projects", folder, "mcpServers"), servers)]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _sections(adapted: AdaptedConfig, of_project: list[tuple[KeyPath, Any]]) -> list[tuple[KeyPath, Any]]:
    """Remove and return every server section under another host's key, with its key path."""
    data = adapted.data
    sections: list[tuple[KeyPath, Any]] = [*of_project]
    for key in list(data):
        spelling = re.sub(r"[^a-z]", "", key.rpartition(".")[2].casefold())
        if spelling in _SPELLINGS or key == "mcp.servers":
            sections.append(((key,), data.pop(key)))
    if isinstance(data.get("mcp"), dict):
        sections += _in_settings(adapted, data.pop("mcp"))
    if not sections and "servers" not in data and _is_all_servers(data):
        sections = [((), {name: data.pop(name) for name in list(data) if name not in _FILE_KEYS})]
    adapted.of_host = adapted.of_host or bool(sections)
    return sections


def _in_settings(adapted: AdaptedConfig, mcp: dict[str, Any]) -> list[tuple[KeyPath, Any]]:
    """Find the servers below `mcp`: in a section (VS Code, marimo, opencode 2), or by name (opencode)."""
    _take_inputs(adapted, mcp.get("inputs"))
    sections: list[tuple[KeyPath, Any]] = [(("mcp", key), mcp[key]) for key in ("servers", "mcpServers") if key in mcp]
    named = {name: entry for name, entry in mcp.items() if name not in _OF_SETTINGS and _is_server(entry)}
    ignored = [name for name in mcp if name not in _OF_SETTINGS and name not in named]
    if ignored:
        adapted.notes.append(f"mcp: {', '.join(map(_word, ignored))} ignored.")
    return [*sections, (("mcp",), named)] if named else sections


def _is_server(entry: Any) -> bool:
    return isinstance(entry, dict) and bool({*_WAYS, "type", "enabled", "disabled"} & entry.keys())


def _is_all_servers(data: Mapping[str, Any]) -> bool:
    """Check whether a file contains only servers by name, as fastmcp accepts it."""
    entries = [value for key, value in data.items() if key not in _FILE_KEYS]
    return bool(entries) and all(isinstance(entry, dict) and _WAYS & entry.keys() for entry in entries)


def _ignore_file_keys(adapted: AdaptedConfig) -> None:
    """Drop keys that belong to other programs. In a host's own file, that means every unknown key."""
    keys = Config.model_fields.keys()
    ignored = [key for key in adapted.data if key in _FILE_KEYS or (adapted.of_host and key not in keys)]
    for key in ignored:
        del adapted.data[key]
    words = [word for key in ignored if key != "$schema" for word in [_word(key, keys if key not in _FILE_KEYS else ())]]
    if words:
        more = f" and {len(words) - _MAX_IN_A_NOTE} more are" if len(words) > _MAX_IN_A_NOTE else " are" if words[1:] else " is"
        adapted.notes.append(f"{', '.join(words[:_MAX_IN_A_NOTE])}{more} ignored.")


def _word(key: str, keys: Any = ()) -> str:
    near = closest(key, keys, 1)
    return f"{dotted((key,))}{f' ({did_you_mean(near, near)})' if near else ''}"


def _merge(adapted: AdaptedConfig, sections: list[tuple[KeyPath, Any]]) -> None:
    if not sections:
        if isinstance(adapted.data.get("servers"), list):
            sections = [(("servers",), adapted.data.pop("servers"))]
        else:
            return
    ours = adapted.data.setdefault("servers", {})
    for path, theirs in sections:
        entries = _by_name(theirs)
        if entries is None:
            adapted.problems.append(ConfigProblem(path, "must be an object"))
        for key, name, server in entries or ():
            if not isinstance(ours, dict):
                return
            if name in ours:
                first = dotted(adapted.as_written(("servers", name))[:-1]) or "the file"
                adapted.problems.append(ConfigProblem((*path, key), f"the same server in {first} and in {dotted(path)}"))
            else:
                ours[name] = server
                adapted.written["servers", name] = (*path, key)


def _by_name(section: Any) -> list[tuple[str | int, str, Any]] | None:
    """List each server's key, name and entry in a section: an object, or a list of named servers."""
    if isinstance(section, dict):
        return [(name, name, server) for name, server in section.items()]
    if isinstance(section, list) and all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in section):
        return [
            (index, each["name"], {key: value for key, value in each.items() if key != "name"})
            for index, each in enumerate(section)
        ]
    return [] if section is None else None


_ORDER = ("clients", "models", "servers", "tool_sets", "tool_discovery")
_INPUT = re.compile(r"\$\{input:([^}:]+)(?::[^}]*)?\}")
_WORKSPACE = re.compile(r"\$\{(workspaceFolderBasename|workspaceFolder|workspaceRoot|cwd)\}")
_INDENT = re.compile(r'\n([ \t]+)"')
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)")
_HARMLESS_HEADERS = frozenset({"accept", "accept-encoding", "accept-language", "content-type", "user-agent"})


@dataclass(frozen=True)
class MigratedConfig:
    """A config in our own format, and the old file's secrets.

    `notes` are the parts that were ignored, left out or lost. `variables` maps each environment variable that replaces a secret
    to the secret's key.
    """

    data: dict[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Secrets = field(default_factory=Secrets, repr=False)
    source: Document = field(default_factory=lambda: Document({}), repr=False)
    of_host: bool = False
    indent: str = "  "

    @property
    def text(self) -> str:
        """The config as a file's text."""
        return f"{json.dumps(self.data, indent=self.indent, ensure_ascii=False)}\n"

    @property
    def references(self) -> frozenset[str]:
        """The environment variables that it refers to."""
        return frozenset(_REFERENCE.findall(self.text))


def is_legacy_file(path: Path) -> bool:
    """Check whether a file is a config from casual-mcp before 1.0, see `is_legacy`."""
    return is_legacy(_read(path.resolve()).data)


def migrated_in_place(path: Path) -> MigratedConfig:
    """Convert a config from casual-mcp before 1.0 in place: only `clients` and `models` change, and secrets stay."""
    path = path.resolve()
    document, text = _read(path), read_text(path)
    indent = _INDENT.search(text)
    new = MigratedConfig(
        migrate_legacy_config(document.data) or document.data,
        (*_lost_fields(document.data), *_lost_comments(path)),
        secrets=migrated(path, path.parent).secrets,
        source=document,
    )
    return replace(new, indent=indent[1]) if indent else new


def migrated(path: Path, folder: Path) -> MigratedConfig:
    """Convert a config file from casual-mcp, another host, or our own. Nothing is looked up, and nobody is asked.

    In the new file, which will be in `folder`, relative paths mean the same. It is not validated yet, see `check_config`.
    """
    path = path.resolve()
    document = _read(path)
    adapted = adapt(migrate_legacy_config(document.data) or document.data)
    problems = [*document.problems, *adapted.problems]
    raise_problems(problems, path=str(path), locate=document.locate)
    notes = [*adapted.notes, *_lost_fields(document.data)]
    variables = _Variables()
    defined = {each.id: each for each in adapted.inputs}

    def reference(match: re.Match[str]) -> str:
        return variables.ask(defined.get(match[1], Input(match[1])))

    # VS Code's inputs are not kept: environment variables take their place.
    adapted.data.update(_mapped(adapted.data, lambda text: _INPUT.sub(reference, text)))
    for name, server in servers_in(adapted.data):
        _hide_in_server(server, ("servers", name), variables)
    for section in ("clients", "models"):
        entries = adapted.data.get(section)
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            if isinstance(entry, dict):
                _hide_in_model(entry, (section, name), variables)
    if folder.resolve() != path.parent.resolve():
        notes += _moved(adapted, path.parent, folder)
    if not adapted.data.get("models"):
        notes.append("It has no models, so it is for tools only until you add clients and models.")
    moved = {new: at for new, old in adapted.written.items() if (at := document.locate(old))}
    source = replace(document, positions={**document.positions, **moved})
    data = {key: adapted.data[key] for key in [*_ORDER, *adapted.data] if key in adapted.data}
    return MigratedConfig(data, (*notes, *_lost_comments(path)), variables.where, variables.secrets, source, adapted.of_host)


def _read(path: Path) -> Document:
    return parse_document(read_text(path), path)


def _lost_fields(data: Mapping[str, Any]) -> list[str]:
    lost = ", ".join(map(dotted, dropped_fields(data)))
    return [f"Not kept: {lost}."] if lost else []


def _lost_comments(path: Path) -> list[str]:
    text = read_text(path)
    comments = path.suffix.casefold() != ".toml" and plain_json(text).split() != text.split()
    return ["Comments in the old file are not copied."] if comments else []


class _Variables:
    """Names the environment variables that replace secrets. Its repr shows no values."""

    def __init__(self) -> None:
        self.where: dict[str, str] = {}
        self._values: dict[str, str] = {}

    def __repr__(self) -> str:
        return "<variables>"

    @property
    def secrets(self) -> Secrets:
        return Secrets(self._values.values())

    def reference(self, value: str, at: KeyPath, *names: str) -> str:
        """Choose the reference that replaces a secret: the first name that does not hold another one."""
        numbered = (f"{names[-1]}_{number}" for number in range(2, 10_000))
        for name in map(_variable, (*names, *numbered)):
            if self._values.setdefault(name, value) == value:
                self.where.setdefault(name, dotted(at))
                return f"${{{name}}}"
        raise AssertionError("There are not that many secrets in a config.")

    def ask(self, wanted: Input) -> str:
        self.where.setdefault(wanted.variable, f"inputs: {wanted.id}")
        return f"${{{wanted.variable}}}"


def _variable(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").upper() or "SECRET"
    return name if _NAME.fullmatch(text) is None or text != text.upper() else text


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _hide_in_server(server: dict[str, Any], at: KeyPath, variables: _Variables) -> None:
    name = str(at[1])
    env = _object(server, "env")
    for key, value in env.items():
        if isinstance(value, str) and value and "${" not in value and certain(key, value):
            env[key] = variables.reference(value, (*at, "env", key), key, f"{name}_{key}")
    _hide_in_headers(server.get("headers"), (*at, "headers"), name, variables)
    auth = server.get("auth")
    if isinstance(auth, str) and auth not in ("", "oauth") and "${" not in auth:
        server["auth"] = variables.reference(auth, (*at, "auth"), f"{name}_TOKEN")
    args = server.get("args")
    if isinstance(args, list) and all(isinstance(arg, str) for arg in args):
        server["args"] = _without(args, set(option_secrets(args)), (*at, "args"), f"{name}_SECRET", variables)
    if isinstance(server.get("command"), str):
        (server["command"],) = _without(
            [server["command"]], set(option_secrets([server["command"]])), (*at, "command"), f"{name}_SECRET", variables
        )
    _hide_in_address(server, "url", at, variables)


def _hide_in_model(entry: dict[str, Any], at: KeyPath, variables: _Variables) -> None:
    name, key = str(at[1]), entry.get("api_key")
    if isinstance(key, str) and key and "${" not in key:
        entry["api_key"] = variables.reference(key, (*at, "api_key"), client_variable(name))
    for headers in ("headers", "extra_headers"):
        _hide_in_headers(entry.get(headers), (*at, headers), name, variables)
    body = _object(entry, "extra_body")
    for field_name, value in body.items():
        if isinstance(value, str) and "${" not in value and certain(field_name, value):
            body[field_name] = variables.reference(value, (*at, "extra_body", field_name), f"{name}_{field_name}")
    _hide_in_address(entry, "base_url", at, variables)


def _object(entry: dict[str, Any], key: str) -> dict[str, Any]:
    value = entry.get(key)
    return value if isinstance(value, dict) else {}


def _hide_in_headers(headers: Any, at: KeyPath, name: str, variables: _Variables) -> None:
    for header, value in headers.items() if isinstance(headers, dict) else ():
        harmless = header.casefold() in _HARMLESS_HEADERS
        if not isinstance(value, str) or not value or "${" in value or harmless:
            continue
        scheme, _, secret = value.rpartition(" ")
        of_sign_in = header.casefold() == "authorization"
        reference = variables.reference(secret, (*at, header), f"{name}_{'TOKEN' if of_sign_in else header}")
        headers[header] = f"{scheme} {reference}" if scheme else reference


def _hide_in_address(entry: dict[str, Any], key: str, at: KeyPath, variables: _Variables) -> None:
    if isinstance(entry.get(key), str):
        (entry[key],) = _without([entry[key]], url_secrets(entry[key]), (*at, key), f"{at[1]}_SECRET", variables)


def _without(texts: list[str], secrets: set[str], at: KeyPath, name: str, variables: _Variables) -> list[str]:
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        if "${" not in secret and any(_holds(text, secret) for text in texts):
            reference = variables.reference(secret, at, name)
            texts = [text.replace(secret, reference) if _holds(text, secret) else text for text in texts]
    return texts


def _holds(text: str, secret: str) -> bool:
    """Check whether a secret is in a text. A short one could be part of any word, so it must be the whole text."""
    return secret in text if can_be_masked(secret) else text == secret


def _moved(adapted: AdaptedConfig, old: Path, new: Path) -> list[str]:
    """Make relative paths mean the same in another folder. List the files that the person has to move."""
    before = workspace_of(old)
    changed: list[str] = []

    def workspace(match: re.Match[str]) -> str:
        return before.name if match[1].endswith("Basename") else str(before)

    def absolute(value: Any, base: Path) -> Any:
        if not isinstance(value, str) or not value or value.startswith(("/", "~", "${")) or Path(value).is_absolute():
            return value
        changed.append(value)
        return str((base / value).resolve())

    if before.resolve() != workspace_of(new).resolve():
        adapted.data.update(_mapped(adapted.data, lambda text: _WORKSPACE.sub(workspace, text)))
    for _, server in servers_in(adapted.data):
        if "cwd" in server:
            server["cwd"] = absolute(server["cwd"], old)
        if ENV_FILE in server:
            server[ENV_FILE] = absolute(server[ENV_FILE], before)
        if isinstance(server.get("roots"), list):
            server["roots"] = [absolute(root, old) for root in server["roots"]]
        command = server.get("command")
        if isinstance(command, str) and ("/" in command or "\\" in command):
            server["command"] = absolute(command, old)
    for section, key in (("clients", "cassette"), ("", "prices")):
        entries = adapted.data.get(section) if section else {"": adapted.data}
        for entry in entries.values() if isinstance(entries, dict) else ():
            if isinstance(entry, dict) and isinstance(entry.get(key), str):
                entry[key] = absolute(entry[key], old)
    notes = [f"Relative paths were made absolute: {len(changed)}."] if changed else []
    if (old / ".env").is_file():
        notes.append("The new file does not read the .env beside the old one. Copy the variables that it needs.")
    models = adapted.data.get("models")
    if isinstance(models, dict) and any(isinstance(each, dict) and each.get("template") for each in models.values()):
        notes.append("Its models use templates: copy the folder prompt-templates/ to the new file.")
    return notes
