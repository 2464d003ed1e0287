"""A server as the widgets show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.text import clean, cut, first
from casual_mcp_nb.errors import ConnectError, shown
from casual_mcp_nb.types.selection import Mode, Selection
from casual_mcp_nb.types.session import ServerStatus
from casual_mcp_nb.types.tool import ToolSpec

_MAX_REASON = 2_000
_MAX_TAIL = 4_000
_MAX_ALERT = 300


def server_row(status: ServerStatus, selection: Selection, effective: Mode, inside: Sequence[ToolSpec]) -> dict[str, Any]:
    """One server; `mode` is what was chosen, `effective` what it comes to.

    Args:
        status: How the server is.
        selection: What was chosen.
        effective: The mode that this comes to.
        inside: Its tools that the selection lets through; `inside` and `tokens` of the row count these alone.
    """
    row: dict[str, Any] = {
        "state": status.state,
        "mode": selection.servers.get(status.name, "loaded"),
        "effective": effective,
        "tools": status.tools,
        "inside": len(inside),
        "tokens": sum(tool.tokens for tool in inside),
        "all_tokens": status.tokens,
        "transport": status.transport,
    }
    if status.error:
        row["error"] = cut(clean(status.error), _MAX_REASON)
        row["tail"] = cut(clean(status.stderr_tail), _MAX_TAIL)
    return row if status.seconds is None else {**row, "seconds": words.seconds(status.seconds)}


def not_connected(status: ServerStatus) -> ConnectError:
    """The error in few words: the whole reason stands with the server."""
    reason = (status.stderr_tail.strip() or status.error or "no reason is known").splitlines()[-1]
    text = f"Server {shown(status.name)} could not be connected: {first(clean(reason), _MAX_ALERT)}"
    return ConnectError(text, server=status.name)
