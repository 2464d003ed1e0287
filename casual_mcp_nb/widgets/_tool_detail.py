"""All that is known of one tool, as JSON."""

from __future__ import annotations

from typing import Any

from casual_mcp_nb.display.schema import pretty
from casual_mcp_nb.display.text import clean, cut
from casual_mcp_nb.types.tool import ToolChange, ToolSpec
from casual_mcp_nb.widgets._fields import fields_of

MAX_TEXT = 20_000


def tool_detail(tool: ToolSpec, change: ToolChange | None) -> dict[str, Any]:
    """One tool: its names, description, claims, price, parameters with their form fields, schemas as text.

    Args:
        tool: The tool.
        change: How the server has changed it, if it has; then `change` has the difference and whether that blocks it.
    """
    card: dict[str, Any] = {
        "name": _text(tool.name, 500),
        "wire_name": tool.wire_name,
        "server": _text(tool.server, 500),
        "title": _text(tool.title or "", 500),
        "description": _text(tool.description),
        "badges": list(tool.annotations.badges) if tool.annotations else [],
        "destructive": tool.destructive,
        "tokens": tool.tokens,
        "fields": fields_of(tool),
        "schema": _text(pretty(tool.input_schema)),
    }
    if tool.output_schema is not None:
        card["result_schema"] = _text(pretty(tool.output_schema))
    if change is not None:
        card["change"] = {"diff": _text(change.diff), "blocked": change.blocked}
    return card


def _text(text: str, limit: int = MAX_TEXT) -> str:
    return cut(clean(text), limit)
