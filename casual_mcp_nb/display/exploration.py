"""A static view of the explorer: servers, budget, toolsets and manifest in one display."""

from __future__ import annotations

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.servers import failures, server_table
from casual_mcp_nb.display.session import discovery_words, offered_words, turn_section
from casual_mcp_nb.display.tools import manifest_view, tool_sets_view
from casual_mcp_nb.display.turn import tool_set_words
from casual_mcp_nb.display.view import Bar, Block, Cell, Column, DisplayLimits, KeyValues, Section, Table, View, fraction
from casual_mcp_nb.types.config import ToolSetConfig
from casual_mcp_nb.types.selection import Selection
from casual_mcp_nb.types.session import ExplorerSnapshot


def exploration_view(exploration: ExplorerSnapshot, limits: DisplayLimits) -> View:
    """Show the model's view of each server, its cost, and the manifest of the rest."""
    selection, manifest = exploration.selection, exploration.manifest
    tool_set = "Custom (unsaved)" if isinstance(selection.tool_set, ToolSetConfig) else selection.tool_set
    off = list(selection.tools_off)
    facts: list[tuple[str, Cell]] = [
        ("Tool definitions in the first request", words.tokens(exploration.tokens, "estimated")),
        ("If every tool were loaded", words.tokens(exploration.undeferred_tokens, "estimated")),
        ("Toolset", tool_set_words(tool_set)),
        ("Discovery", _discovery(selection)),
    ]
    if off:
        facts.append(("Tools turned off", ", ".join(off[: limits.rows])))
    blocks: list[Block] = [
        KeyValues(tuple(facts)),
        *turn_section(exploration.budget),
        Section("Servers", (_servers(exploration, limits), *failures(exploration.servers, limits))),
    ]
    if manifest.text:
        blocks.append(Section("Manifest", manifest_view(manifest, limits).blocks, fold="closed"))
    if exploration.tool_sets:
        blocks.append(Section("Toolsets", tool_sets_view(exploration.tool_sets, limits).blocks, fold="closed"))
    sent = offered_words(exploration.offered, manifest.tools, selection.strategy)
    note = f"{sent} loaded, {manifest.tools:,} searchable"
    return View("exploration", "What the model sees", tuple(blocks), note=note)


def _discovery(selection: Selection) -> str:
    if not selection.discovery:
        return discovery_words(selection)
    how = f"{discovery_words(selection)}, by {selection.strategy}, up to {words.count(selection.max_search_results, 'result')}"
    return f"{how}; every server deferred" if selection.defer_all else how


def _servers(exploration: ExplorerSnapshot, limits: DisplayLimits) -> Table:
    table = server_table(exploration.servers, limits)
    most = max(exploration.prices.values(), default=0)
    rows = tuple(
        (*row, _price(exploration.prices.get(name, 0), most))
        for row, name in zip(table.rows, exploration.servers, strict=False)
    )
    return Table((*table.columns, Column("Tokens in the first request")), rows, table.hidden)


def _price(tokens: int, most: int) -> Bar:
    return Bar(words.about(tokens, "estimated") if tokens else "0", fraction(tokens, most) if tokens else None)
