"""Convert other MCP hosts' config files to our own format without changing their meaning.

The hosts are in `host_table`, what their entries have in `host_servers`. A registry's `server.json`
is in `registry_entry`, a config of casual-mcp before 1.0 in `legacy`. To convert a file for good,
see `migration`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.limits import is_too_deep
from casual_mcp_nb.config.document import ConfigProblem, KeyPath, dotted, list_in, object_in
from casual_mcp_nb.config.environment import Input
from casual_mcp_nb.config.host_servers import AdaptedConfig, adapt_server, servers_in, switches_of
from casual_mcp_nb.config.host_table import host_of
from casual_mcp_nb.config.legacy import is_legacy
from casual_mcp_nb.config.registry_entry import servers_of
from casual_mcp_nb.errors import closest, did_you_mean, shown

MAX_DEPTH = 64
_MAX_IN_A_NOTE = 8
_SPELLINGS = frozenset({"mcpservers", "contextservers"})
_WAYS = frozenset({"command", "url", "serverUrl", "httpUrl"})
_OF_SETTINGS = frozenset({"servers", "mcpServers", "inputs", "allowed", "excluded"})
_FILE_KEYS = frozenset({"$schema", "namespace_tools"})


_OUR_SECTIONS = frozenset({"clients", "models", "tool_sets", "tool_discovery"})
_APPLIED = frozenset(
    {
        "agent",
        "allowMCPServers",
        "disabledMcpServers",
        "disabledMcpjsonServers",
        "excludeMCPServers",
        "permission",
        "permissions",
    }
    | {"projects", "tools"}
)
"""Keys that `switches_of` and `_of_projects` read."""
_MAY_BE_MEANT = re.compile(r"mcp|server|tool", re.IGNORECASE)


def has_our_sections(data: Mapping[str, Any]) -> bool:
    """Check whether a file has a section that only we have. Some hosts have a list of models."""
    return any(
        isinstance(data.get(section), Mapping) and data[section] for section in _OUR_SECTIONS
    )


def is_of_host(data: Mapping[str, Any], file: Path) -> bool:
    """Check whether a file belongs to another host: to its format, or by its name if the format
    could be ours too.

    A file with a section that only we have is ours, wherever its servers are.
    """
    if has_our_sections(data):
        return False
    return (
        _is_named_as_hosts(file)
        or isinstance(data.get("inputs"), list)
        or adapt(data, file).of_host
    )


def _is_named_as_hosts(file: Path | None) -> bool:
    return file is not None and (
        host_of(file) is not None or file.suffix.casefold() in (".yaml", ".yml")
    )


def adapt(source: Mapping[str, Any], file: Path | None = None) -> AdaptedConfig:
    """Collect the servers from wherever a host keeps them, rename its keys to ours, and drop keys
    that only hosts use.
    """
    if is_too_deep(dict(source), MAX_DEPTH):
        return AdaptedConfig(
            {}, problems=[ConfigProblem((), f"nested more than {MAX_DEPTH} levels deep")]
        )
    data: dict[str, Any] = {str(key): _copied(value) for key, value in source.items()}
    adapted = AdaptedConfig(data)
    if is_legacy(data):
        named = shlex.quote(str(file)) if file else "FILE"
        command = f"casual-mcp-nb migrate-config {named}"
        text = (
            "each must name a client. casual-mcp before 1.0 had the provider here. To convert the"
            " file: "
        )
        adapted.problem(("models",), text + command)
        del data["models"]
    of_known_host = _is_named_as_hosts(file) and not has_our_sections(data)
    adapted.of_host = of_known_host
    of_project = _of_projects(adapted)
    switches = switches_of(data)
    _take_inputs(adapted, data)
    data.pop("inputs", None)
    _take_registry_entry(adapted)
    sections = _sections(adapted, of_project)
    _ignore_file_keys(adapted, of_known_host)
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
    if isinstance(value, list | tuple):
        return [_copied(item) for item in value]
    return value


def _take_inputs(adapted: AdaptedConfig, section: Mapping[str, Any]) -> None:
    inputs = list_in(section, "inputs")
    adapted.inputs += [Input.of(each) for each in inputs if isinstance(each, dict)]


def _take_registry_entry(adapted: AdaptedConfig) -> None:
    """Replace a `server.json` by the server it describes."""
    data = adapted.data
    listed = list_in(data, "packages") or list_in(data, "remotes")
    if not isinstance(data.get("name"), str) or not listed:
        return
    # The file is on this computer, so that it may name an address here.
    ways = list(servers_of(data, "", None, local=True))
    usable = [way for way in ways if not way.problem]
    status = data.get("status")
    data.clear()
    adapted.of_host = True
    data["mcpServers"] = {}
    if not usable:
        reasons = "; ".join(dict.fromkeys(way.problem for way in ways))
        adapted.problem(
            (), f"none of its packages or remotes can be used here: {reasons or 'it lists none'}"
        )
        return
    server = usable[0]
    data["mcpServers"][server.short_name] = dict(server.entry)
    adapted.inputs += server.inputs
    adapted.notes += server.notes
    if server.optional:
        adapted.notes.append(
            f"{server.short_name}: {', '.join(server.optional)} optional and not set."
        )
    if len(ways) > 1:
        adapted.notes.append(
            f"{server.short_name} can be reached in {len(ways)} ways. The first usable one is used."
        )
    if status == "deprecated":
        adapted.notes.append(f"{server.short_name} is deprecated.")


def _of_projects(adapted: AdaptedConfig) -> list[tuple[KeyPath, Any]]:
    """Find the servers that Claude Code keeps for the project in the working directory.

    They precede its other ones.
    """
    data = adapted.data
    folder = str(Path.cwd())
    found = object_in(data, "projects")
    projects = {name: each for name, each in found.items() if isinstance(each, dict)}
    with_servers = {
        name: each["mcpServers"]
        for name, each in projects.items()
        if isinstance(each.get("mcpServers"), dict)
    }
    if "mcpServers" not in data and not any(with_servers.values()):
        return []
    adapted.of_host = adapted.of_host or not has_our_sections(data)
    elsewhere = {
        name: servers for name, servers in with_servers.items() if servers and name != folder
    }
    if elsewhere:
        adapted.notes.append(
            f"{_servers_of_projects(elsewhere)} Start in a project's folder to use its servers."
        )
    if folder not in projects:
        return []
    project, others = projects[folder], data.get("mcpServers")
    servers = project.get("mcpServers")
    if isinstance(servers, dict) and isinstance(others, dict):
        data["mcpServers"] = {
            name: server for name, server in others.items() if name not in servers
        }
    both = [*list_in(data, "disabledMcpServers"), *list_in(project, "disabledMcpServers")]
    data["disabledMcpServers"] = both
    return [(("projects", folder, "mcpServers"), servers)]


def _servers_of_projects(projects: Mapping[str, Mapping[str, Any]]) -> str:
    shown_first = list(projects.items())[:_MAX_IN_A_NOTE]
    texts = [
        f"{shown(Path(folder))} ({', '.join(map(shown, list(servers)[:_MAX_IN_A_NOTE]))})"
        for folder, servers in shown_first
    ]
    more = ""
    if len(projects) > len(texts):
        more = f" and {len(projects) - len(texts)} more"
    return f"The servers of other projects are not used: {', '.join(texts)}{more}."


def _sections(
    adapted: AdaptedConfig, of_project: list[tuple[KeyPath, Any]]
) -> list[tuple[KeyPath, Any]]:
    """Remove and return every server section under another host's key, with its key path."""
    data = adapted.data
    sections: list[tuple[KeyPath, Any]] = [*of_project]
    for key in list(data):
        spelling = re.sub(r"[^a-z]", "", key.rpartition(".")[2].casefold())
        if spelling in _SPELLINGS or key == "mcp.servers":
            sections.append(((key,), data.pop(key)))
    if _is_of_goose(object_in(data, "extensions")):
        sections.append((("extensions",), data.pop("extensions")))
    if isinstance(data.get("mcp"), dict):
        sections += _in_settings(adapted, data.pop("mcp"))
    if not sections and "servers" not in data and _is_all_servers(data):
        sections = [((), {name: data.pop(name) for name in list(data) if name not in _FILE_KEYS})]
    adapted.of_host = adapted.of_host or bool(sections)
    return sections


def _in_settings(adapted: AdaptedConfig, mcp: dict[str, Any]) -> list[tuple[KeyPath, Any]]:
    """Find the servers below `mcp`: in a section (VS Code, marimo, opencode 2), or by name
    (opencode).
    """
    _take_inputs(adapted, mcp)
    sections: list[tuple[KeyPath, Any]] = [
        (("mcp", key), mcp[key]) for key in ("servers", "mcpServers") if key in mcp
    ]
    named = {
        name: entry for name, entry in mcp.items() if name not in _OF_SETTINGS and _is_server(entry)
    }
    ignored = [name for name in mcp if name not in _OF_SETTINGS and name not in named]
    if ignored:
        adapted.notes.append(f"mcp: {', '.join(dotted((name,)) for name in ignored)} ignored.")
    if named:
        sections.append((("mcp",), named))
    return sections


def _is_of_goose(extensions: Mapping[str, Any]) -> bool:
    entries = [entry for entry in extensions.values() if isinstance(entry, dict)]
    return any({"cmd", "uri", "type"} & entry.keys() for entry in entries)


def _is_server(entry: Any) -> bool:
    return isinstance(entry, dict) and bool({*_WAYS, "type", "enabled", "disabled"} & entry.keys())


def _is_all_servers(data: Mapping[str, Any]) -> bool:
    """Check whether a file contains only servers by name, as fastmcp accepts it."""
    entries = [value for key, value in data.items() if key not in _FILE_KEYS]
    return bool(entries) and all(
        isinstance(entry, dict) and _WAYS & entry.keys() for entry in entries
    )


def _ignore_file_keys(adapted: AdaptedConfig, of_known_host: bool) -> None:
    """Drop keys that belong to other programs. In a host's own file, that means every unknown key.

    A host has hundreds of settings that have nothing to do with servers. Only those are noted that
    could have.
    """
    data, keys = adapted.data, Config.model_fields.keys()
    if adapted.of_host:
        for section in _OUR_SECTIONS & data.keys():
            if not isinstance(data[section], Mapping):
                del data[section]
    ignored = [key for key in data if key in _FILE_KEYS or (adapted.of_host and key not in keys)]
    for key in ignored:
        del data[key]
    every = has_our_sections(data)
    meant = [
        key
        for key in ignored
        if key != "$schema" and key not in _APPLIED and (every or _MAY_BE_MEANT.search(key))
    ]
    suggested = () if of_known_host else keys
    words = [_word(key, suggested) for key in meant]
    if words:
        more = ""
        if len(words) > _MAX_IN_A_NOTE:
            more = f" and {len(words) - _MAX_IN_A_NOTE} more"
        are = "is" if len(words) == 1 else "are"
        adapted.notes.append(f"{', '.join(words[:_MAX_IN_A_NOTE])}{more} {are} ignored.")


def _word(key: str, keys: Iterable[str]) -> str:
    near = closest(key, keys, 1, cutoff=0.85)
    word = dotted((key,))
    return f"{word} ({did_you_mean(near, near)})" if near else word


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
                adapted.problems.append(
                    ConfigProblem((*path, key), f"the same server in {first} and in {dotted(path)}")
                )
            else:
                ours[name] = server
                adapted.written["servers", name] = (*path, key)


def _by_name(section: Any) -> list[tuple[str | int, str, Any]] | None:
    """List each server's key, name and entry in a section: an object, or a list of named
    servers.
    """
    if isinstance(section, dict):
        return [(name, name, server) for name, server in section.items()]
    if section is None:
        return []
    if not isinstance(section, list):
        return None
    entries: list[tuple[str | int, str, Any]] = []
    for index, each in enumerate(section):
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            return None
        entry = dict(each)
        entries.append((index, entry.pop("name"), entry))
    return entries
