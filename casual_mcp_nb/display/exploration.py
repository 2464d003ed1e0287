"""The picture of an explorer: servers, budget, toolsets and manifest in one display."""

from __future__ import annotations

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.servers import failures, server_table
from casual_mcp_nb.display.session import offered_words, tool_set_words
from casual_mcp_nb.display.tools import manifest_view, tool_sets_view
from casual_mcp_nb.display.view import Bar, Block, Cell, Column, DisplayLimits, KeyValues, Section, Table, View, fraction
from casual_mcp_nb.types.config import ToolSetConfig
from casual_mcp_nb.types.selection import Selection
from casual_mcp_nb.types.session import ExplorerSnapshot


def exploration_view(exploration: ExplorerSnapshot, limits: DisplayLimits) -> View:
    """Return what the model sees of each server, what that costs, and what it reads about the rest."""
    selection, manifest = exploration.selection, exploration.manifest
    tool_set = "custom" if isinstance(selection.tool_set, ToolSetConfig) else selection.tool_set
    off = list(selection.tools_off)
    facts: list[tuple[str, Cell]] = [
        ("First call", words.tokens(exploration.tokens, "estimated")),
        ("With nothing deferred", words.tokens(exploration.undeferred_tokens, "estimated")),
        ("Saved by deferral", words.saving(exploration.tokens, exploration.undeferred_tokens)),
        ("Toolset", tool_set_words(tool_set)),
        ("Discovery", _discovery(selection)),
    ]
    if off:
        facts.append(("Single tools off", ", ".join(off[: limits.rows])))
    blocks: list[Block] = [
        KeyValues(tuple(facts)),
        Section("Servers", (_servers(exploration, limits), *failures(exploration.servers, limits))),
    ]
    if manifest.text:
        blocks.append(Section("Manifest", manifest_view(manifest, limits).blocks, fold="closed"))
    if exploration.tool_sets:
        blocks.append(Section("Toolsets", tool_sets_view(exploration.tool_sets, limits).blocks, fold="closed"))
    sent = offered_words(exploration.offered, manifest.tools, selection.strategy)
    note = f"{sent} sent at once, {words.count(manifest.tools, 'tool')} to be found"
    return View("exploration", "What the model is shown", tuple(blocks), note=note)


def _discovery(selection: Selection) -> str:
    if not selection.discovery:
        return "off: nothing is deferred"
    how = f"on, by {selection.strategy}; a search finds at most {words.count(selection.max_search_results, 'tool')}"
    return f"{how}; every server is deferred" if selection.defer_all else how


def _servers(exploration: ExplorerSnapshot, limits: DisplayLimits) -> Table:
    table = server_table(exploration.servers, limits)
    most = max(exploration.prices.values(), default=0)
    rows = tuple(
        (*row, _price(exploration.prices.get(name, 0), most))
        for row, name in zip(table.rows, exploration.servers, strict=False)
    )
    return Table((*table.columns, Column("In the first call")), rows, table.hidden)


def _price(tokens: int, most: int) -> Bar:
    return Bar(words.number(tokens), fraction(tokens, most) if tokens else None)
