"""The tool that a model would have found, had it searched."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from typing import TYPE_CHECKING

from casual_mcp_nb.base.tool import MAX_TOOLS_ON_LOOP, ToolSpec
from casual_mcp_nb.discovery.text import MAX_QUERY, emphasis, readable, terms
from casual_mcp_nb.engine.tool_view import ToolView

if TYPE_CHECKING:
    from casual_mcp_nb.discovery.search_tools import ToolSearchIndex

_LEAST_WORDS = 2
_LEAST_SHARE = 0.5


async def missed_tool(view: ToolView, prompt: str, loaded: Container[str]) -> ToolSpec | None:
    """Find the deferred tool that clearly fits a message, or None if none does, or if there are too
    many tools to check now.

    A tool fits if it has at least two meaningful words, and half of them all. That overlooks tools
    with other words for the same thing, but ignores small talk.
    """
    if not 0 < len(view.deferred) <= MAX_TOOLS_ON_LOOP or not prompt.strip():
        return None
    index = await view.searchable()
    return await asyncio.to_thread(_fitting, index, prompt[:MAX_QUERY], loaded)


def _fitting(index: ToolSearchIndex, prompt: str, loaded: Container[str]) -> ToolSpec | None:
    hit = next(iter(index.search(prompt, 1)), None)
    if hit is None or hit.tool.wire_name in loaded:
        return None
    words = {
        term for term in terms(readable(prompt)) if emphasis(term) == 1.0 and not term.isdigit()
    }
    matched = words.intersection(share.query_term or share.term for share in hit.explain().shares)
    return hit.tool if len(matched) >= max(_LEAST_WORDS, _LEAST_SHARE * len(words)) else None
