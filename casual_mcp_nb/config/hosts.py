"""Convert other MCP hosts' config files to our own format without changing their meaning.

The hosts are in `host_table`, what their entries have in `host_servers`, and what they disable
outside the entries in `host_switches`. A registry's `server.json` is in `registry_entry`, a config
of casual-mcp before 1.0 in `legacy`. To convert a file for good, see `migration`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.base.limits import is_too_deep
from casual_mcp_nb.config.document import (
    ConfigProblem,
    KeyPath,
    dotted,
    list_in,
    mapped,
    object_in,
)
from casual_mcp_nb.config.host_servers import AdaptedConfig, adapt_server, servers_in
from casual_mcp_nb.config.host_switches import SWITCH_KEYS, Switches, switches_of
from casual_mcp_nb.config.host_table import host_of
from casual_mcp_nb.config.inputs import Input
from casual_mcp_nb.config.legacy import is_legacy
from casual_mcp_nb.config.registry_entry import FoundServer, servers_of
from casual_mcp_nb.errors import closest, did_you_mean, shown

MAX_DEPTH = 64
_MAX_IN_A_NOTE = 8
_SPELLINGS = frozenset({"mcpservers", "contextservers"})
"""Keys of sections with servers, in small letters: `mcpServers`, `mcp_servers`, `amp.mcpServers`."""
_WAYS = frozenset({"command", "url", "serverUrl", "httpUrl"})
"""Keys that say how a server is reached: `{"time": {"command": "uvx"}}`."""
_OF_SETTINGS = frozenset({"servers", "mcpServers", "inputs", "allowed", "excluded"})
"""Keys of `mcp` that are no server's name: `"mcp": {"servers": {}, "inputs": []}`."""
_FILE_KEYS = frozenset({"$schema", "namespace_tools"})
"""Keys of a file that have nothing to do with its servers."""
_OUR_SECTIONS = frozenset({"clients", "models", "tool_sets", "tool_discovery"})
_APPLIED = SWITCH_KEYS | {"projects"}
"""Keys that only hosts have, and that are used nevertheless."""
_MAY_BE_MEANT = re.compile(r"mcp|server|tool", re.IGNORECASE)

Section = tuple[KeyPath, Any]
"""A section with servers, with its key path in the file."""


@dataclass
class _HostFile(AdaptedConfig):
    """A file while it is converted. Its data is at first what has our format already.

    Args:
        switches: What it disables outside the servers' entries.
        sections: Its sections with servers, as its host wrote them.
    """

    switches: Switches = field(default_factory=Switches)
    sections: list[Section] = field(default_factory=list, repr=False)


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
    if has_our_sections(data) or is_too_deep(dict(data), MAX_DEPTH):
        return False
    if _is_named_as_hosts(file) or isinstance(data.get("inputs"), list):
        return True
    copied = mapped(data, str)
    if _ways_of_registry(copied) is not None:
        return True
    return bool(_sections_in(copied) or _servers_by_project(copied))


def _is_named_as_hosts(file: Path | None) -> bool:
    return file is not None and (
        host_of(file) is not None or file.suffix.casefold() in (".yaml", ".yml")
    )


def adapt(source: Mapping[str, Any], file: Path | None = None, *, folder: Path) -> AdaptedConfig:
    """Collect the servers from wherever a host keeps them, rename its keys to ours, and drop keys
    that only hosts use.

    Args:
        source: The file's contents, which stay as they are.
        file: The file.
        folder: The project whose servers are used, if the file keeps some for each project.
    """
    if is_too_deep(dict(source), MAX_DEPTH):
        return AdaptedConfig(
            {}, problems=[ConfigProblem((), f"nested more than {MAX_DEPTH} levels deep")]
        )
    data = mapped(source, str)
    adapted = _HostFile({}, inputs=_inputs_in(data), switches=switches_of(data))
    if is_legacy(data):
        adapted.problems.append(_legacy_problem(file))
        del data["models"]
    _read(adapted, data, file, str(folder))
    _merge(adapted)
    for name, server in servers_in(adapted.data):
        adapt_server(adapted, name, server)
        adapted.switches.apply(name, server)
    return adapted


def _legacy_problem(file: Path | None) -> ConfigProblem:
    named = "FILE"
    if file:
        named = shlex.quote(str(file))
    text = (
        "each must name a client. casual-mcp before 1.0 had the provider here. To convert the file:"
        f" casual-mcp-nb migrate-config {named}"
    )
    return ConfigProblem(("models",), text)


def _read(read: _HostFile, data: Mapping[str, Any], file: Path | None, here: str) -> None:
    """Read a file as its host wrote it. `here` is the folder of the project in use."""
    is_ours = has_our_sections(data)
    of_known_host = _is_named_as_hosts(file) and not is_ours
    elsewhere = {name: each for name, each in _servers_by_project(data).items() if name != here}
    if elsewhere:
        read.notes.append(
            f"{_servers_of_projects(elsewhere)} Start in a project's folder to use its servers."
        )
    ways = _ways_of_registry(data)
    if ways is not None:
        _read_registered(read, ways, data.get("status"))
    else:
        read.sections = _sections_in(data)
        read.notes += _ignored_settings(object_in(data, "mcp"))
    project = _project_in(data, here)
    if project is not None:
        path = ("projects", here, "mcpServers")
        read.sections = _preceded(read.sections, path, project.get("mcpServers"))
        read.switches.off.update(map(str, list_in(project, "disabledMcpServers")))
    read.of_host = bool(of_known_host or read.sections or (elsewhere and not is_ours))
    if not read.sections and isinstance(data.get("servers"), list):
        read.sections = [(("servers",), data["servers"])]
    if ways is None:
        # Otherwise, everything in the file describes that server.
        ignored = _read_rest(read, data)
        suggested = () if of_known_host else Config.model_fields.keys()
        read.notes += _ignored_keys(ignored, suggested, every=is_ours)


def _read_rest(read: _HostFile, data: Mapping[str, Any]) -> list[str]:
    """Keep what is in no section and ours. List the keys of other programs: in a host's own file,
    these are all others.
    """
    taken = {"inputs"}
    if isinstance(data.get("mcp"), dict):
        taken.add("mcp")
    for path, section in read.sections:
        taken.update(section if not path else [str(path[0])])
    ignored: list[str] = []
    for key, value in data.items():
        if key in taken:
            continue
        if key in _FILE_KEYS or (read.of_host and key not in Config.model_fields):
            ignored.append(key)
        elif not _is_of_another_kind(key, value, read.of_host):
            read.data[key] = value
    return ignored


def _is_of_another_kind(key: str, value: Any, of_host: bool) -> bool:
    """Check whether a key only looks like ours: some hosts have a list of models."""
    if key == "tool_discovery" and value is None:
        return True
    return of_host and key in _OUR_SECTIONS and not isinstance(value, Mapping)


def _inputs_in(data: Mapping[str, Any]) -> list[Input]:
    """Read the inputs, of the file itself and below `mcp`, as in VS Code's settings."""
    entries = [*list_in(data, "inputs"), *list_in(object_in(data, "mcp"), "inputs")]
    return list(map(Input.of, of_type(entries, dict)))


def _ways_of_registry(data: Mapping[str, Any]) -> list[FoundServer] | None:
    """List the ways to reach the server that a `server.json` describes, or return None for another
    file.
    """
    listed = list_in(data, "packages") or list_in(data, "remotes")
    if not isinstance(data.get("name"), str) or not listed:
        return None
    # The file is on this computer, so that it may name an address here.
    return list(servers_of(data, "", None, local=True))


def _read_registered(read: _HostFile, ways: Sequence[FoundServer], status: Any) -> None:
    """Choose the first usable way to reach a server of a `server.json`."""
    usable = [way for way in ways if not way.problem]
    if not usable:
        reasons = "; ".join(dict.fromkeys(way.problem for way in ways)) or "it lists none"
        text = f"none of its packages or remotes can be used here: {reasons}"
        read.problems.append(ConfigProblem((), text))
        read.sections = [(("mcpServers",), {})]
        return
    server = usable[0]
    read.sections = [(("mcpServers",), {server.short_name: dict(server.entry)})]
    read.inputs += server.inputs
    read.notes += server.notes
    if server.optional:
        read.notes.append(
            f"{server.short_name}: {', '.join(server.optional)} optional and not set."
        )
    if len(ways) > 1:
        read.notes.append(
            f"{server.short_name} can be reached in {len(ways)} ways. The first usable one is used."
        )
    if status == "deprecated":
        read.notes.append(f"{server.short_name} is deprecated.")


def _servers_by_project(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Find the servers that Claude Code keeps for projects, by folder:
    `"projects": {"/home/ada/shop": {"mcpServers": {}}}`.
    """
    servers = {}
    projects = object_in(data, "projects")
    for folder in projects:
        if of_project := object_in(object_in(projects, folder), "mcpServers"):
            servers[folder] = of_project
    return servers


def _project_in(data: Mapping[str, Any], folder: str) -> dict[str, Any] | None:
    """Find what Claude Code keeps for the project in a folder, or None if it keeps no servers."""
    project = object_in(data, "projects").get(folder)
    keeps_servers = "mcpServers" in data or _servers_by_project(data)
    return project if isinstance(project, dict) and keeps_servers else None


def _preceded(sections: Sequence[Section], path: KeyPath, servers: Any) -> list[Section]:
    """Put a project's servers before the others. They replace those of the same name."""
    preceded: list[Section] = [(path, servers)]
    for other, section in sections:
        if other == ("mcpServers",) and isinstance(servers, dict) and isinstance(section, dict):
            section = {name: entry for name, entry in section.items() if name not in servers}
        preceded.append((other, section))
    return preceded


def _servers_of_projects(projects: Mapping[str, Mapping[str, Any]]) -> str:
    texts = []
    for folder, servers in projects.items():
        names = ", ".join(map(shown, list(servers)[:_MAX_IN_A_NOTE]))
        texts.append(f"{shown(Path(folder))} ({names})")
    return f"The servers of other projects are not used: {_first_of(texts)}."


def _first_of(texts: Sequence[str]) -> str:
    listed = ", ".join(texts[:_MAX_IN_A_NOTE])
    if len(texts) > _MAX_IN_A_NOTE:
        listed = f"{listed} and {len(texts) - _MAX_IN_A_NOTE} more"
    return listed


def _sections_in(data: Mapping[str, Any]) -> list[Section]:
    """Find every section with servers under another host's key."""
    sections: list[Section] = []
    for key in data:
        spelling = re.sub(r"[^a-z]", "", key.rpartition(".")[2].casefold())
        if spelling in _SPELLINGS or key == "mcp.servers":
            sections.append(((key,), data[key]))
    if _is_of_goose(object_in(data, "extensions")):
        sections.append((("extensions",), data["extensions"]))
    mcp = object_in(data, "mcp")
    sections += [(("mcp", key), mcp[key]) for key in ("servers", "mcpServers") if key in mcp]
    named = _named_in_settings(mcp)
    if named:
        sections.append((("mcp",), named))
    if sections or "servers" in data:
        return sections
    rest = {key: value for key, value in data.items() if key not in {*_FILE_KEYS, "inputs"}}
    if isinstance(rest.get("mcp"), dict):
        del rest["mcp"]
    if _is_all_servers(rest):
        sections.append(((), rest))
    return sections


def _named_in_settings(mcp: Mapping[str, Any]) -> dict[str, Any]:
    """Find the servers by name below `mcp`, as opencode has them.

    VS Code, marimo and opencode 2 have them in a section there.
    """
    named = {}
    for name, entry in mcp.items():
        if name not in _OF_SETTINGS and _is_server(entry):
            named[name] = entry
    return named


def _ignored_settings(mcp: Mapping[str, Any]) -> list[str]:
    named = _named_in_settings(mcp)
    ignored = [name for name in mcp if name not in _OF_SETTINGS and name not in named]
    if not ignored:
        return []
    return [f"mcp: {', '.join(dotted((name,)) for name in ignored)} ignored."]


def _is_of_goose(extensions: Mapping[str, Any]) -> bool:
    entries = of_type(extensions.values(), dict)
    return any({"cmd", "uri", "type"} & entry.keys() for entry in entries)


def _is_server(entry: Any) -> bool:
    return isinstance(entry, dict) and bool({*_WAYS, "type", "enabled", "disabled"} & entry.keys())


def _is_all_servers(data: Mapping[str, Any]) -> bool:
    """Check whether there are only servers by name, as fastmcp accepts it."""
    return bool(data) and all(
        isinstance(entry, dict) and _WAYS & entry.keys() for entry in data.values()
    )


def _ignored_keys(ignored: Sequence[str], keys: Collection[str], every: bool) -> list[str]:
    """Name the keys that are ignored, with what of these keys may have been meant.

    A host has hundreds of settings that have nothing to do with servers. Unless `every` key is to
    be named, only those are that could have.
    """
    words = []
    for key in ignored:
        if key != "$schema" and key not in _APPLIED and (every or _MAY_BE_MEANT.search(key)):
            words.append(_word(key, keys))
    if not words:
        return []
    are = "is" if len(words) == 1 else "are"
    return [f"{_first_of(words)} {are} ignored."]


def _word(key: str, keys: Collection[str]) -> str:
    near = closest(key, keys, 1, cutoff=0.85)
    word = dotted((key,))
    if near:
        return f"{word} ({did_you_mean(near, near)})"
    return word


def _merge(adapted: _HostFile) -> None:
    if not adapted.sections:
        return
    ours = adapted.data.setdefault("servers", {})
    for path, theirs in adapted.sections:
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
