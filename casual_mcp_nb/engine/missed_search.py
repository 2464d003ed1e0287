"""Find out whether a model that called nothing should have looked for a tool."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from typing import TYPE_CHECKING

from casual_mcp_nb.discovery.text import MAX_QUERY, emphasis, readable, terms
from casual_mcp_nb.engine.view import ToolView
from casual_mcp_nb.types.tool import MAX_TOOLS_ON_LOOP, ToolSpec

if TYPE_CHECKING:
    from casual_mcp_nb.discovery.index import ToolSearchIndex

_LEAST_WORDS = 2
_LEAST_SHARE = 0.5


async def missed_tool(view: ToolView, prompt: str, loaded: Container[str]) -> ToolSpec | None:
    """Find the deferred tool that clearly fits a message; None if there is none, or too many tools to look for it now.

    A tool fits if it has at least two of the words that say something, and half of them all. That overlooks tools that have
    other words for the same, but says nothing of messages that are only talk.

    Args:
        view: What the model sees.
        prompt: The message.
        loaded: The wire names of the tools that the conversation has loaded already.
    """
    if not 0 < len(view.deferred) <= MAX_TOOLS_ON_LOOP or not prompt.strip():
        return None
    index = await view.searchable()
    return await asyncio.to_thread(_fitting, index, prompt[:MAX_QUERY], loaded)


def _fitting(index: ToolSearchIndex, prompt: str, loaded: Container[str]) -> ToolSpec | None:
    hit = next(iter(index.search(prompt, 1)), None)
    if hit is None or hit.tool.wire_name in loaded:
        return None
    words = {term for term in terms(readable(prompt)) if emphasis(term) == 1.0}
    matched = words.intersection(share.query_term or share.term for share in hit.explain().shares)
    return hit.tool if len(matched) >= max(_LEAST_WORDS, _LEAST_SHARE * len(words)) else None
