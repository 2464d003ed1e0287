"""Toolsets made from the ticked tools."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from casual_mcp_nb.toolsets import filter_tools
from casual_mcp_nb.types.config import ExcludeSpec, ToolSetConfig
from casual_mcp_nb.types.selection import Selection
from casual_mcp_nb.types.tool import Catalog, ToolName, ToolSpec

Rule = bool | tuple[str, ...] | ExcludeSpec


def rule_for(tools: Sequence[ToolSpec], included: Set[ToolName]) -> Rule:
    """Find the shortest rule that includes exactly the tools `included` of a server.

    A tool that the server adds later is included only by the rules "all" and "all but some".
    """
    inside = tuple(tool.name for tool in tools if tool.tool_name in included)
    outside = tuple(tool.name for tool in tools if tool.tool_name not in included)
    if not outside:
        return True
    return ExcludeSpec(exclude=outside) if len(outside) < len(inside) else inside


def with_tools(tool_set: ToolSetConfig, tools: Collection[ToolSpec], catalog: Catalog) -> ToolSetConfig:
    """Add these tools to a toolset."""
    included = {tool.tool_name for tool in filter_tools(catalog, tool_set)} | {tool.tool_name for tool in tools}
    changed = {tool.server for tool in tools}
    rules = {server: rule_for(catalog.by_server[server], included) for server in changed}
    return tool_set.model_copy(update={"servers": {**tool_set.servers, **rules}})


def toolset_from_selection(
    selection: Selection, tool_set: ToolSetConfig | None, catalog: Catalog, off: Set[ToolName]
) -> ToolSetConfig:
    """Combine the toolset, the servers and the single tools of a selection into one toolset.

    Args:
        selection: What the person chose.
        tool_set: The toolset in use.
        catalog: All tools.
        off: The tools that were excluded one by one.
    """
    included = {tool.tool_name for tool in filter_tools(catalog, tool_set)} - off
    in_use = {server: tools for server, tools in catalog.by_server.items() if selection.servers.get(server) != "off"}
    rules = {server: rule_for(tools, included) for server, tools in in_use.items()}
    description = tool_set.description if tool_set else ""
    return ToolSetConfig(description=description, servers={server: rule for server, rule in rules.items() if rule != ()})
