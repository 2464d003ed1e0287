"""The servers and tools that a host's file disables outside the servers' entries. Nothing that is
disabled there is enabled here.

- Gemini CLI: `mcp.allowed`, `mcp.excluded`, `allowMCPServers`, `excludeMCPServers`
- Claude Code: `disabledMcpServers`, `disabledMcpjsonServers`, `permissions.deny` with
  `mcp__server__tool`
- opencode: `tools` with `false`, `permission` with `deny`, both with patterns for `server_tool`
- Zed: `context_servers` in the agent profile that is the default
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from casual_mcp_nb.base.wire_names import plain_characters
from casual_mcp_nb.config.document import list_in, object_in


@dataclass
class Switches:
    """The servers and tools that a file disables.

    `only` are the only enabled servers, if it names them, and `denied` are patterns for combined
    server and tool names.
    """

    off: set[str] = field(default_factory=set)
    only: set[str] | None = None
    denied: list[str] = field(default_factory=list)
    tools: dict[str, list[str]] = field(default_factory=dict)

    def apply(self, name: str, server: dict[str, Any]) -> None:
        """Disable the server and tools in an entry, already in our format, that the file disables
        elsewhere.
        """
        tools = [*self.tools.get(name, ()), *self._denied_tools(name)]
        if name in self.off or (self.only is not None and name not in self.only) or "*" in tools:
            server["enabled"] = False
        if tools and "*" not in tools:
            exclude(server, tools)

    def _denied_tools(self, name: str) -> Iterable[str]:
        plain = plain_characters(name)
        for pattern in self.denied:
            for prefix in (f"mcp__{plain}__", f"mcp_{plain}_", f"{plain}__", f"{plain}_"):
                if pattern in (prefix.rstrip("_"), f"{prefix.rstrip('_')}*") or _covers(
                    pattern, prefix
                ):
                    yield "*"
                elif pattern.startswith(prefix):
                    yield pattern.removeprefix(prefix)
                else:
                    continue
                break


def exclude(server: dict[str, Any], tools: Iterable[str]) -> None:
    """Remove tools from a server's entry, whichever of its two lists it uses."""
    tools = list(map(str, tools))
    included = server.get("include_tools")
    if isinstance(included, list):
        for tool in tools:
            included = [name for name in included if not fnmatchcase(str(name), tool)]
        server["include_tools"] = included
    else:
        excluded = [*list_in(server, "exclude_tools"), *tools]
        server["exclude_tools"] = list(dict.fromkeys(excluded))


_OFF = ("excludeMCPServers", "disabledMcpServers", "disabledMcpjsonServers")
SWITCH_KEYS = frozenset({"agent", "allowMCPServers", "permission", "permissions", "tools", *_OFF})
"""The keys that `switches_of` reads, besides `mcp`."""


def switches_of(data: Mapping[str, Any]) -> Switches:
    """Collect the servers and tools that a file in its host's format disables."""
    mcp = object_in(data, "mcp")
    # No key can be read without being declared.
    data = {key: value for key, value in data.items() if key in SWITCH_KEYS}
    switches = Switches()
    for names in (mcp.get("allowed"), data.get("allowMCPServers")):
        if isinstance(names, list):
            switches.only = set(map(str, names))
    switches.off.update(map(str, list_in(mcp, "excluded")))
    for key in _OFF:
        switches.off.update(map(str, list_in(data, key)))
    rules = [str(rule) for rule in list_in(object_in(data, "permissions"), "deny")]
    switches.denied += [rule for rule in rules if rule.startswith("mcp_")]
    for name, switch in object_in(data, "tools").items():
        if switch is False:
            switches.denied.append(name)
    for name, switch in object_in(data, "permission").items():
        if switch == "deny":
            switches.denied.append(name)
    _read_profile(switches, object_in(data, "agent"))
    return switches


def _read_profile(switches: Switches, agent: Mapping[str, Any]) -> None:
    profile = object_in(object_in(agent, "profiles"), str(agent.get("default_profile", "write")))
    servers = object_in(profile, "context_servers")
    enabled: set[str] = set()
    for name in servers:
        tools = object_in(object_in(servers, name), "tools")
        switches.tools[name] = [tool for tool, on in tools.items() if on is False]
        if any(tools.values()):
            enabled.add(name)
    if profile.get("enable_all_context_servers") is False:
        switches.only = enabled


def _covers(pattern: str, prefix: str) -> bool:
    return "*" in pattern and all(
        fnmatchcase(f"{prefix}{name}", pattern) for name in ("a", "Zz9", "q_r-s.t")
    )
