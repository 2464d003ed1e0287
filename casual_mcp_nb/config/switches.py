"""Apply the disabled entries of a host's file outside a server's entry, so that nothing disabled there is enabled here.

- Gemini CLI: `mcp.allowed`, `mcp.excluded`, `allowMCPServers`, `excludeMCPServers`
- Claude Code: `disabledMcpServers`, `disabledMcpjsonServers`, `permissions.deny` with `mcp__server__tool`
- opencode: `tools` with `false`, `permission` with `deny`, both for patterns of `server_tool`
- Zed: `context_servers` in the agent profile that is the default
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any


@dataclass
class Switches:
    """The servers and tools that a file disables.

    Args:
        off: Names of disabled servers.
        only: Names of the only enabled servers; None for all.
        denied: Patterns that match the combined name of a server and a tool.
        tools: Disabled tools by server.
    """

    off: set[str] = field(default_factory=set)
    only: set[str] | None = None
    denied: list[str] = field(default_factory=list)
    tools: dict[str, list[str]] = field(default_factory=dict)

    def apply(self, name: str, server: dict[str, Any]) -> None:
        """Disable the server and tools in an entry, already in our format, that the file disables elsewhere."""
        tools = [*self.tools.get(name, ()), *self._denied_tools(name)]
        if name in self.off or (self.only is not None and name not in self.only) or "*" in tools:
            server["enabled"] = False
        if tools and "*" not in tools:
            exclude(server, tools)

    def _denied_tools(self, name: str) -> Iterable[str]:
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
        for pattern in self.denied:
            for prefix in (f"mcp__{plain}__", f"mcp_{plain}_", f"{plain}__", f"{plain}_"):
                if pattern in (prefix.rstrip("_"), f"{prefix.rstrip('_')}*") or _covers(pattern, prefix):
                    yield "*"
                elif pattern.startswith(prefix):
                    yield pattern.removeprefix(prefix)
                else:
                    continue
                break


def exclude(server: dict[str, Any], tools: Iterable[str]) -> None:
    """Remove tools from a server's entry, whichever of its two lists it uses."""
    tools = [str(tool) for tool in tools]
    included = server.get("include_tools")
    if isinstance(included, list):
        server["include_tools"] = [name for name in included if not any(fnmatchcase(str(name), tool) for tool in tools)]
    else:
        before = server.get("exclude_tools")
        server["exclude_tools"] = list(dict.fromkeys([*(before if isinstance(before, list) else ()), *tools]))


def switches_of(data: Mapping[str, Any]) -> Switches:
    """Collect the servers and tools that a file in its host's format disables.

    Args:
        data: The file as plain objects.
    """
    switches = Switches()
    mcp, permissions = _object(data, "mcp"), _object(data, "permissions")
    for names in (mcp.get("allowed"), data.get("allowMCPServers")):
        if isinstance(names, list):
            switches.only = {str(name) for name in names}
    off = (
        mcp.get("excluded"),
        *(data.get(key) for key in ("excludeMCPServers", "disabledMcpServers", "disabledMcpjsonServers")),
    )
    switches.off = {str(name) for names in off if isinstance(names, list) for name in names}
    deny = permissions.get("deny")
    switches.denied = [str(rule) for rule in deny if str(rule).startswith("mcp_")] if isinstance(deny, list) else []
    switches.denied += [name for name, switch in _object(data, "tools").items() if switch is False]
    switches.denied += [name for name, switch in _object(data, "permission").items() if switch == "deny"]
    _read_profile(switches, _object(data, "agent"))
    return switches


def _read_profile(switches: Switches, agent: Mapping[str, Any]) -> None:
    profile = _object(_object(agent, "profiles"), str(agent.get("default_profile", "write")))
    servers = _object(profile, "context_servers")
    for name in servers:
        tools = _object(_object(servers, name), "tools")
        switches.tools[name] = [tool for tool, on in tools.items() if on is False]
    if profile.get("enable_all_context_servers") is False:
        switches.only = {name for name in servers if any(_object(_object(servers, name), "tools").values())}


def _covers(pattern: str, prefix: str) -> bool:
    """Check whether a pattern matches every name with that prefix."""
    return "*" in pattern and all(fnmatchcase(f"{prefix}{name}", pattern) for name in ("a", "Zz9", "q_r-s.t"))


def _object(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}
