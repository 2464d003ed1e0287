"""Decide which tools are loaded and which are deferred."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from casual_mcp_nb.types.selection import Mode
from casual_mcp_nb.types.tool import ToolSpec

MAX_MARKED = 10
"""How many of its tools a server can keep loaded by marking them: it does not pay for them."""


def partition_tools(
    tools: Iterable[ToolSpec],
    modes: Mapping[str, Mode],
    *,
    discovery: bool,
    defer_all: bool = False,
    always_loaded: Collection[str] = (),
) -> tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]]:
    """Split tools into loaded ones, sent with every request, and deferred ones, found by search.

    Args:
        tools: The tools that the toolset includes.
        modes: `loaded`, `deferred` or `off` for each server; the default is loaded.
        discovery: Whether deferring is enabled.
        defer_all: Defer the loaded servers too.
        always_loaded: Servers that `defer_all` leaves loaded, and tools (`server:tool`) that are always loaded. So are the
            first few of a server that it marks so itself.

    Returns:
        Loaded and deferred tools, each in the order given. Tools of servers that are off, and tools with a `restriction`, are
        in neither.
    """
    loaded: list[ToolSpec] = []
    deferred: list[ToolSpec] = []
    marked = Counter[str]()
    for tool in tools:
        mode = modes.get(tool.server, "loaded")
        if mode != "off" and tool.restriction is None:
            hidden = discovery and (mode == "deferred" or (defer_all and tool.server not in always_loaded))
            if hidden and tool.always_load:
                marked[tool.server] += 1
                hidden = marked[tool.server] > MAX_MARKED
            hidden = hidden and str(tool.tool_name) not in always_loaded
            (deferred if hidden else loaded).append(tool)
    return tuple(loaded), tuple(deferred)
