"""View of the tools that are served to other programs."""

from __future__ import annotations

import json

from casual_mcp_nb.display.view import DisplayLimits, KeyValues, Status, TextBlock, View
from casual_mcp_nb.types.counts import count
from casual_mcp_nb.types.served import ServedTools


def served_tools_view(served: ServedTools, _limits: DisplayLimits) -> View:
    """Show the address of the tools, and the entry for the config of another host."""
    mark = Status("○ ended", "quiet") if served.closed else Status("● serving", "good")
    tools = f"{count(served.offered, 'tool')} listed"
    if served.deferred:
        tools += f", {count(served.deferred, 'tool')} more by search"
    rows = (
        ("Address", served.url),
        ("Tools", tools),
        ("Token", "needed" if served.has_token else "not needed: only this computer reaches it"),
        ("Clients", str(served.clients)),
    )
    config = TextBlock(json.dumps(served.host_config, indent=2, ensure_ascii=False), "In another MCP host", code=True)
    return View("served-tools", "Tools as one MCP server", (KeyValues(rows), config), mark=mark)
