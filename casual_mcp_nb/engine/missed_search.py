"""Find the tool that fits a message, if the model answered without a search for it."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from casual_mcp_nb.base.tool import MAX_TOOLS_ON_LOOP, ToolSpec
from casual_mcp_nb.conversation.step import text_of
from casual_mcp_nb.discovery.text import MAX_QUERY, emphasis, readable, terms
from casual_mcp_nb.engine.tool_view import ToolView

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.discovery.search_tools import ToolSearchIndex

_LEAST_WORDS = 2
_LEAST_SHARE = 0.5
"""How many of a message's meaningful words a tool must have to fit it, and which share of them."""


def last_prompt(messages: Sequence[ChatMessage]) -> str:
    """Find the text of the person's last message, or an empty one if there is none."""
    for message in reversed(messages):
        if message.role == "user":
            return text_of(message.content)
    return ""


async def missed_tool(
    view: ToolView, messages: Sequence[ChatMessage], loaded: Container[str]
) -> ToolSpec | None:
    """Find the deferred tool that clearly fits the person's last message.

    A tool fits if it has at least two of the message's meaningful words, and at least half of them.
    That overlooks tools with other words for the same thing, but ignores small talk.

    Returns:
        The tool, or None if none fits, or if there are too many to check in time.
    """
    if not 0 < len(view.deferred) <= MAX_TOOLS_ON_LOOP:
        return None
    prompt = last_prompt(messages)
    if not prompt.strip():
        return None
    index = await view.searchable()
    return await asyncio.to_thread(_fitting, index, prompt[:MAX_QUERY], loaded)


def _fitting(index: ToolSearchIndex, prompt: str, loaded: Container[str]) -> ToolSpec | None:
    hit = next(iter(index.search(prompt, 1)), None)
    if hit is None or hit.tool.wire_name in loaded:
        return None
    words = {term for term in terms(readable(prompt)) if _is_meaningful(term)}
    matched = words.intersection(share.query_term or share.term for share in hit.explain().shares)
    if len(matched) < max(_LEAST_WORDS, _LEAST_SHARE * len(words)):
        return None
    return hit.tool


def _is_meaningful(term: str) -> bool:
    return emphasis(term) == 1.0 and not term.isdigit()
