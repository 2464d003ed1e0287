"""A tool's result as text for the model: never a template, and cut where it is too long."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.limits import is_large
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.base.whole_result import json_of, repeats, texts_of
from casual_mcp_nb.conversation.event import CallStatus
from casual_mcp_nb.conversation.step import EMPTY_RESULT, ToolCall

NO_ERROR_TEXT = "the tool reported an error without text"

STRUCTURED = "Structured content:"
"""The heading above structured content that differs from the text."""

_LARGE = 100_000

MAX_CHARACTERS_PER_TOKEN = 4
"""How many characters of a text to look at for each token of a limit. Few texts have more in one
token.
"""


def result_text(result: ToolResult) -> str:
    """Format a result as text: its text parts and notes on the others, in order, then the
    structured content as JSON.

    Leaves out structured content that only repeats the text, as servers should send it in both
    forms. See
    https://modelcontextprotocol.io/specification/2025-11-25/server/tools#structured-content. A
    failed result begins with `Error:`. An empty one has a note that it is empty.
    """
    text = texts_of(result)
    if result.structured is not None and not repeats(text, result.structured):
        structured = json_of(result.structured)
        text = f"{text}\n{STRUCTURED}\n{structured}" if text.strip() else structured
    if result.is_error:
        text = text if text.strip() else NO_ERROR_TEXT
        return text if text.lower().startswith("error") else f"Error: {text}"
    return text if text.strip() else EMPTY_RESULT


async def result_text_async(result: ToolResult) -> str:
    """Compute `result_text`, on another thread where the result is so large that it would hold the
    event loop.
    """
    if result.structured is None:
        return result_text(result)
    large = sum([len(part.text) for part in result.content]) > _LARGE or is_large(result.structured)
    return await asyncio.to_thread(result_text, result) if large else result_text(result)


async def with_result(call: ToolCall, result: ToolResult) -> ToolCall:
    """Give a call that no model made its result.

    It does not keep what only an app gets, nor a table's rows, which are for large results.
    """
    text = await result_text_async(result)
    status: CallStatus = "error" if result.is_error else "ok"
    if result.rows is not None or result.meta is not None:
        result = replace(result, rows=None, meta=None)
    return replace(call, status=status, result=text, original=result)


def characters_within(text: str, tokens: int) -> int:
    """Count how many characters from a text's start fit in an estimated number of tokens."""
    # By the estimate no character is more than a token, and few texts have more than four
    # characters in one.
    length = min(len(text), tokens * MAX_CHARACTERS_PER_TOKEN)
    if length <= tokens:
        return length
    estimated = estimate_tokens(text[:length])
    return length if estimated <= tokens else max(1, length * tokens // estimated)


def cut_result(result: ToolResult, characters: int) -> ToolResult:
    """Cut a result's texts to a total length in characters, and drop its structured content."""
    remaining = []
    for part in result.content:
        if len(part.text) > characters:
            part = replace(part, text=part.text[:characters])
        characters -= len(part.text)
        if part.text or part.data or part.uri:
            remaining.append(part)
    return replace(result, content=tuple(remaining), structured=None)
