"""Which tools the model sees at once, and which it has to find."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from casual_mcp_nb.types.selection import Mode
from casual_mcp_nb.types.tool import ToolSpec


def partition_tools(
    tools: Iterable[ToolSpec],
    modes: Mapping[str, Mode],
    *,
    discovery: bool,
    defer_all: bool = False,
    always_loaded: Collection[str] = (),
) -> tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]]:
    """Divide tools into those that are offered at once and those that are found by search.

    Args:
        tools: The tools that the toolset lets through.
        modes: `loaded`, `deferred` or `off` for each server; one that is not named is loaded.
        discovery: Whether anything is deferred at all.
        defer_all: Defer the loaded servers too.
        always_loaded: Servers that `defer_all` leaves loaded.

    Returns:
        Loaded and deferred, each in the order given. A tool of a server that is off is in neither, and no more is one with a
        `restriction`.
    """
    loaded: list[ToolSpec] = []
    deferred: list[ToolSpec] = []
    for tool in tools:
        mode = modes.get(tool.server, "loaded")
        if mode != "off" and tool.restriction is None:
            hidden = discovery and (mode == "deferred" or (defer_all and tool.server not in always_loaded))
            (deferred if hidden else loaded).append(tool)
    return tuple(loaded), tuple(deferred)
