"""Views of tools: all of them, one as a card, the manifest, the toolsets."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.format import SUMMARY
from casual_mcp_nb.display.schema import parameters, pretty
from casual_mcp_nb.display.text import first
from casual_mcp_nb.display.view import (
    Block,
    Cell,
    DisplayLimits,
    Fold,
    KeyValues,
    Name,
    Section,
    Status,
    Table,
    Tags,
    TextBlock,
    View,
    columns,
)
from casual_mcp_nb.types.config import ExcludeSpec
from casual_mcp_nb.types.session import Manifest, Tools, ToolSets, not_connected
from casual_mcp_nb.types.tool import ToolSpec

_TOOL_COLUMNS = columns("Tool", "Mode", "Behaviour", "Tokens #", "Description")


def tools_view(tools: Tools, limits: DisplayLimits) -> View:
    """Show the tools of each server, with the cost of each."""
    groups = tools.catalog.by_server
    unconnected = _unconnected(tools.unconnected)
    if not groups:
        return View("tools", "Tools", unconnected or (TextBlock("None."),))
    each = max(2, limits.rows // len(groups))
    fold: Fold = "open" if len(tools) <= limits.rows else "closed"
    visible = list(itertools.islice(groups.items(), limits.rows))
    blocks = [_server_section(tools, name, group, each, fold) for name, group in visible]
    if len(groups) > len(visible):
        blocks.append(Section(f"{words.count(len(groups) - len(visible), 'server')} more", ()))
    price = words.tokens(_price(tools), "estimated")
    note = f"{words.count(len(tools), 'tool')} of {words.count(len(groups), 'server')}, {price}"
    return View("tools", "Tools", (*unconnected, *blocks), note=note)


def _unconnected(servers: Sequence[str]) -> tuple[TextBlock, ...]:
    return (TextBlock(not_connected(servers)),) if servers else ()


def _server_section(tools: Tools, server: str, group: Sequence[ToolSpec], limit: int, fold: Fold) -> Section:
    rows = tuple(
        (
            Name(tool.name),
            tool.restriction or ("excluded by config" if tool.tool_name in tools.excluded else tools.mode(tool)),
            behaviour(tool),
            "" if tool.restriction else words.about(tool.tokens, "estimated"),
            first(tool.description, SUMMARY),
        )
        for tool in group[:limit]
    )
    note = f"{words.count(len(group), 'tool')}, {words.tokens(_price(group), 'estimated')}"
    return Section(server, (Table(_TOOL_COLUMNS, rows, len(group) - len(rows)),), note=note, fold=fold)


def _price(tools: Iterable[ToolSpec]) -> int:
    """Add up the cost of the tools that a model can be offered."""
    return sum(tool.tokens for tool in tools if tool.restriction is None)


def behaviour(tool: ToolSpec) -> Tags:
    """Describe the tool's behaviour as the server claims it."""
    return Tags(tool.annotations.badges if tool.annotations else ())


def tool_view(tool: ToolSpec, limits: DisplayLimits) -> View:
    """Show one tool."""
    rows = parameters(tool.input_schema)
    facts: list[tuple[str, Cell]] = [("Name for the model", Name(tool.wire_name))]
    if tool.title:
        facts.append(("Title", tool.title))
    if tool.restriction is not None:
        facts.append(("For the model", f"never offered: {tool.restriction}"))
    if behaviour(tool).words:
        facts.append(("Behaviour", behaviour(tool)))
    facts.append(("Tokens", words.tokens(tool.tokens, "estimated")))
    table = Table(columns("Parameter", "Type", "Required", "Description"), rows)
    blocks: list[Block] = [
        KeyValues(tuple(facts)),
        Section("Description", (TextBlock(tool.description or "None."),)),
        Section("Parameters", (table if rows else TextBlock("None."),)),
        Section("Schema", (TextBlock(pretty(tool.input_schema), code=True),), fold="closed"),
    ]
    if tool.output_schema is not None:
        blocks.append(Section("Result schema", (TextBlock(pretty(tool.output_schema), code=True),), fold="closed"))
    return View("tool", str(tool.tool_name), tuple(blocks))


def manifest_view(manifest: Manifest, limits: DisplayLimits) -> View:
    """Show the manifest exactly as the model reads it, and its cost next to that of the tools it lists."""
    unconnected = _unconnected(manifest.unconnected)
    if not manifest.text:
        return View("manifest", "Manifest", unconnected or (TextBlock("Nothing is deferred, so there is no manifest."),))
    finder = (("search_tools itself", words.tokens(manifest.finder_tokens, "estimated")),) if manifest.finder_tokens else ()
    price = (
        ("Manifest", words.tokens(manifest.tokens, "estimated")),
        *finder,
        ("Full definitions", words.tokens(manifest.undeferred_tokens, "estimated")),
    )
    text = TextBlock(manifest.text, code=True, limit=limits.document)
    blocks: tuple[Block, ...] = (*unconnected, KeyValues(price), Section("As the model reads it", (text,)))
    return View("manifest", "Manifest", blocks, note=words.count(manifest.tools, "deferred tool"))


def tool_sets_view(tool_sets: ToolSets, limits: DisplayLimits) -> View:
    """Show the toolsets, which one is in use, and the tools that each includes."""
    mark = Status("✗ does not fit", "bad") if tool_sets.problem else Status("● in use", "busy")
    rows: list[tuple[Cell, ...]] = [
        (
            Name(name),
            mark if name == tool_sets.selected else "",
            "" if tool_sets.unconnected else words.number(tool_sets.sizes.get(name)),
            tool_set.description,
            rule_words(tool_set.servers),
        )
        for name, tool_set in itertools.islice(tool_sets.items(), limits.rows)
    ]
    table = Table(columns("Toolset", "State", "Tools #", "Description", "Includes"), tuple(rows), len(tool_sets) - len(rows))
    blocks: list[Block] = [*_unconnected(tool_sets.unconnected), table if rows else TextBlock("None.")]
    if tool_sets.problem:
        blocks.insert(0, TextBlock(f"The selected toolset cannot be applied, so no turn can start. {tool_sets.problem}"))
    in_use = "none" if tool_sets.problem else "all tools" if tool_sets.selected is None else tool_sets.selected
    return View("toolsets", "Toolsets", tuple(blocks), note=f"in use: {in_use}")


def rule_words(servers: Mapping[str, Any]) -> str:
    """Describe the tools that a toolset includes, such as `math: all; files: all but write_file; time: now`."""
    return "; ".join(f"{server}: {_rule(rule)}" for server, rule in servers.items()) or "nothing"


def _rule(rule: object) -> str:
    match rule:
        case True:
            return "all"
        case ExcludeSpec(exclude=names):
            return f"all but {', '.join(names)}"
        case tuple() | list():
            return ", ".join(rule) or "none"
        case _:
            return "none"
