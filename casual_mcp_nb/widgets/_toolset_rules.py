"""Toolsets from what is ticked."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set

from casual_mcp_nb.toolsets import filter_tools
from casual_mcp_nb.types.config import ExcludeSpec, ToolSetConfig
from casual_mcp_nb.types.selection import Selection
from casual_mcp_nb.types.tool import Catalog, ToolName, ToolSpec

Rule = bool | tuple[str, ...] | ExcludeSpec


def rule_for(tools: Sequence[ToolSpec], kept: Set[ToolName]) -> Rule:
    """What lets exactly `kept` of a server's tools through, in the shortest way; a tool that the server gets later is only in
    where all are, or all but some."""
    inside = tuple(tool.name for tool in tools if tool.tool_name in kept)
    outside = tuple(tool.name for tool in tools if tool.tool_name not in kept)
    if not outside:
        return True
    return ExcludeSpec(exclude=outside) if len(outside) < len(inside) else inside


def with_tools(tool_set: ToolSetConfig, tools: Collection[ToolSpec], catalog: Catalog) -> ToolSetConfig:
    """A toolset that lets these tools through too."""
    kept = {tool.tool_name for tool in filter_tools(catalog, tool_set)} | {tool.tool_name for tool in tools}
    changed = {tool.server for tool in tools}
    rules = {server: rule_for(catalog.by_server[server], kept) for server in changed}
    return tool_set.model_copy(update={"servers": {**tool_set.servers, **rules}})


def toolset_from_selection(
    selection: Selection, tool_set: ToolSetConfig | None, catalog: Catalog, off: Set[ToolName]
) -> ToolSetConfig:
    """The toolset that says by itself what toolset, servers and single tools of a selection let through together.

    Args:
        selection: What the person chose.
        tool_set: The toolset in force.
        catalog: All tools.
        off: The tools that are taken out one by one.
    """
    kept = {tool.tool_name for tool in filter_tools(catalog, tool_set)} - off
    in_use = {server: tools for server, tools in catalog.by_server.items() if selection.servers.get(server) != "off"}
    rules = {server: rule_for(tools, kept) for server, tools in in_use.items()}
    description = tool_set.description if tool_set else ""
    return ToolSetConfig(description=description, servers={server: rule for server, rule in rules.items() if rule != ()})
