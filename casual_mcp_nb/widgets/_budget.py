"""What the first call costs, and which part of it is whose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from casual_mcp_nb.display import format as words
from casual_mcp_nb.engine.view import ToolView
from casual_mcp_nb.types.tool import ToolSpec


def budget_of(view: ToolView) -> dict[str, Any]:
    """The price of what a conversation starts with, in estimated tokens.

    Returns:
        `total`; `servers`: the part of each whose tools are loaded; `finder`: the search tool, or those for browsing;
        `manifest`.
    """
    return {
        "total": view.first_call_tokens,
        "servers": _by_server(view.loaded),
        "finder": view.search_tool_tokens,
        "manifest": view.manifest_tokens,
    }


def undeferred_budget_of(view: ToolView) -> dict[str, Any]:
    """The same with nothing deferred."""
    return {"total": view.undeferred_tokens, "servers": _by_server((*view.loaded, *view.deferred)), "finder": 0, "manifest": 0}


def verdict(view: ToolView) -> dict[str, Any]:
    """What deferral saves, in words, and whether it costs more than it saves."""
    price, without = view.first_call_tokens, view.undeferred_tokens
    if not view.deferred:
        return {"text": "Nothing is deferred.", "worse": False}
    ending = " than with nothing deferred" if price < without else ""
    return {"text": f"{words.saving(price, without)}{ending}", "worse": price > without}


def _by_server(tools: Iterable[ToolSpec]) -> dict[str, int]:
    prices: Counter[str] = Counter()
    for tool in tools:
        prices[tool.server] += tool.tokens
    return dict(prices)
