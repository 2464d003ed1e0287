"""A tool's result as text for the model: never a template, and cut where it is too long."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic_core import from_json, to_json

from casual_mcp_nb.base.content import ContentPart, ToolResult
from casual_mcp_nb.base.limits import is_large
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.conversation.event import CallStatus
from casual_mcp_nb.conversation.step import EMPTY_RESULT, ToolCall

NO_ERROR_TEXT = "the tool reported an error without text"

STRUCTURED = "Structured content:"
"""The heading above structured content that differs from the text."""

_LARGE = 100_000

_CONSTANT = re.compile(r"NaN|Infinity")

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
    text = "\n".join(filter(None, map(_part_text, result.content)))
    if result.structured is not None and not _repeats(text, result.structured):
        structured = _json(result.structured)
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


def _repeats(text: str, structured: Any) -> bool:
    """Check whether a text is only the structured content as JSON, or the one value in it.

    FastMCP's servers put a result that is not an object into `{"result": ...}`.
    """
    values = [structured]
    if isinstance(structured, Mapping) and len(structured) == 1:
        values += structured.values()
    if text in values or (not text and structured == {"result": None}):
        return True
    try:
        if isinstance(values[-1], int | float) and text == str(values[-1]):
            return True
        if json.loads(text) in values:
            return True
        # NaN equals nothing, and some servers write null for it in one of the two.
        if not _CONSTANT.search(text):
            return False
        nulls = json.loads(text, parse_constant=_null)
        for value in values:
            if from_json(to_json(value, inf_nan_mode="null", fallback=str)) == nulls:
                return True
    except (ValueError, RecursionError):
        pass
    return False


def _null(constant: str) -> None:
    """Read NaN and the infinite numbers as null."""


def _json(structured: Any) -> str:
    """Convert structured content to JSON, which has no infinite numbers, and none for NaN."""
    try:
        return json.dumps(structured, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        return to_json(structured, inf_nan_mode="strings", fallback=str).decode()


def _part_text(part: ContentPart) -> str:
    if part.kind == "text" or not part.uri:
        return part.text
    return f"{part.text} ({part.uri})" if part.text else part.uri


def characters_within(text: str, tokens: int) -> int:
    """Count how many characters from a text's start fit in an estimated number of tokens."""
    # By the estimate no character is more than a token, and few texts have more than four
    # characters in one.
    length = min(len(text), tokens * MAX_CHARACTERS_PER_TOKEN)
    if length <= tokens:
        return length
    estimated = estimate_tokens(text[:length])
    return length if estimated <= tokens else max(1, length * tokens // estimated)


def whole_of(result: ToolResult | None, text: str) -> tuple[str, str]:
    """Choose the larger one of a result's text and structured content, which the model reads page
    by page.

    Returns:
        The larger one, and the other one, which is empty if it says the same.
    """
    if result is not None and result.rows is not None:
        return result.rows.json, ""
    if result is None or result.structured is None:
        return text, ""
    part_text = "\n".join(filter(None, map(_part_text, result.content)))
    structured = _json(result.structured)
    if not part_text.strip() or _lists(result.structured, len(result.content)):
        return structured, ""
    if _repeats(part_text, result.structured):
        return part_text, ""
    return (structured, part_text) if len(structured) >= len(part_text) else (part_text, structured)


def _lists(structured: Any, parts: int) -> bool:
    """Check whether structured content is one list with as many items as there are parts, since
    some servers send a text for each item.
    """
    if parts <= 1 or not isinstance(structured, Mapping) or len(structured) != 1:
        return False
    items = next(iter(structured.values()))
    return isinstance(items, list) and len(items) == parts


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
