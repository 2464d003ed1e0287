"""Files of other MCP hosts, brought into our own form without changing what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from casual_mcp_nb.config.problems import KeyPath, Problem, dotted
from casual_mcp_nb.errors import closest, did_you_mean
from casual_mcp_nb.types.config import Config

_OTHER_NAMES = {"serverUrl": "url", "httpUrl": "url", "type": "transport", "transportType": "transport"}
_OTHER_TRANSPORTS = {"streamableHttp": "streamable-http", "streamable_http": "streamable-http"}
_HOST_KEYS = frozenset(
    {
        "alwaysAllow",
        "autoApprove",
        "description",
        "dev",
        "disabledTools",
        "envFile",
        "excludeTools",
        "gallery",
        "icon",
        "includeTools",
        "name",
        "timeout",
        "tools",
        "trust",
        "version",
        "watchPaths",
    }
)
_FILE_KEYS = frozenset({"$schema", "inputs", "namespace_tools"})


@dataclass
class Adapted:
    """A config in our own form.

    Args:
        data: The config as plain objects; none of them belongs to the caller.
        written: For key paths that moved, the path as it was written.
        notes: What was ignored or left out.
        problems: What could not be brought into our form.
    """

    data: dict[str, Any]
    written: dict[KeyPath, KeyPath] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def as_written(self, path: KeyPath) -> KeyPath:
        """The key path as the person wrote it."""
        for size in range(len(path), 0, -1):
            if path[:size] in self.written:
                return self.written[path[:size]] + path[size:]
        return path


def adapt(source: Mapping[str, Any]) -> Adapted:
    """Take `mcpServers` for `servers`, other hosts' names for ours, leave out disabled servers and keys that only hosts use.

    Args:
        source: The config as plain objects; it is left as it is.
    """
    adapted = Adapted(_copied(source))
    _ignore_file_keys(adapted)
    _merge_servers(adapted)
    if adapted.data.get("tool_discovery", ...) is None:
        del adapted.data["tool_discovery"]
    servers = adapted.data.get("servers")
    if isinstance(servers, dict):
        disabled = [
            name for name, server in servers.items() if isinstance(server, dict) and _adapt_server(adapted, name, server)
        ]
        _leave_out(adapted, servers, disabled)
    return adapted


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list | tuple) else value


def _ignore_file_keys(adapted: Adapted) -> None:
    """Drop keys that belong to other programs; in a host's own file that is every key that we do not know."""
    known = {*Config.model_fields, "mcpServers"}
    host_file = "mcpServers" in adapted.data
    for key in [key for key in adapted.data if key in _FILE_KEYS or (host_file and key not in known)]:
        del adapted.data[key]
        near = closest(key, known, 1) if key not in _FILE_KEYS else []
        if key != "$schema":
            adapted.notes.append(f"{dotted((key,))} is ignored.{' ' + did_you_mean(near, near) if near else ''}")


def _merge_servers(adapted: Adapted) -> None:
    if "mcpServers" not in adapted.data:
        return
    theirs = adapted.data.pop("mcpServers")
    ours = adapted.data.setdefault("servers", {})
    if not isinstance(theirs, dict):
        adapted.problems.append(Problem(("mcpServers",), "must be an object"))
        return
    if not isinstance(ours, dict):
        return
    for name, server in theirs.items():
        if name in ours:
            adapted.problems.append(Problem(("mcpServers", name), "the same server in servers and in mcpServers"))
        else:
            ours[name] = server
            adapted.written["servers", name] = ("mcpServers", name)


def _adapt_server(adapted: Adapted, name: str, server: dict[str, Any]) -> bool:
    """Bring one server into our form.

    Returns:
        Whether its file has it switched off.
    """
    at: KeyPath = adapted.as_written(("servers", name))
    disabled = [
        _flag(adapted, (*at, key), server.pop(key)) is off
        for key, off in (("disabled", True), ("enabled", False))
        if key in server
    ]
    for theirs, ours in _OTHER_NAMES.items():
        if theirs in server and ours not in server:
            server[ours] = server.pop(theirs)
            adapted.written["servers", name, ours] = (*at, theirs)
    transport = server.get("transport")
    if isinstance(transport, str):
        server["transport"] = _OTHER_TRANSPORTS.get(transport, transport)
    ignored = sorted(_HOST_KEYS & server.keys())
    for key in ignored:
        del server[key]
    if ignored:
        adapted.notes.append(f"{dotted(at)}: {', '.join(ignored)} ignored.")
    return any(disabled)


def _flag(adapted: Adapted, at: KeyPath, value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    adapted.problems.append(Problem(at, "must be true or false"))
    return None


def _leave_out(adapted: Adapted, servers: dict[str, Any], disabled: list[str]) -> None:
    """Take disabled servers out of the servers and out of the toolsets that name them."""
    for name in disabled:
        adapted.notes.append(f"{dotted(adapted.as_written(('servers', name)))} is disabled and left out.")
        del servers[name]
    tool_sets = adapted.data.get("tool_sets")
    for tool_set in tool_sets.values() if isinstance(tool_sets, dict) else ():
        chosen = tool_set.get("servers") if isinstance(tool_set, dict) else None
        if isinstance(chosen, dict):
            for name in disabled:
                chosen.pop(name, None)
