"""The whole of a tool's result as one text: what it says in texts and as structured content."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from casual_mcp_nb.base.content import ContentPart, ToolResult

_CONSTANT = re.compile(r"NaN|Infinity")


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
    texts = texts_of(result)
    structured = json_of(result.structured)
    if not texts.strip() or _lists(result.structured, len(result.content)):
        return structured, ""
    if repeats(texts, result.structured):
        return texts, ""
    return (structured, texts) if len(structured) >= len(texts) else (texts, structured)


def _lists(structured: Any, parts: int) -> bool:
    """Check whether structured content is one list with as many items as there are parts, since
    some servers send a text for each item.
    """
    if parts <= 1 or not isinstance(structured, Mapping) or len(structured) != 1:
        return False
    items = next(iter(structured.values()))
    return isinstance(items, list) and len(items) == parts


def repeats(text: str, structured: Any) -> bool:
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


def json_of(structured: Any) -> str:
    """Convert structured content to JSON, which has no infinite numbers, and none for NaN."""
    try:
        return json.dumps(structured, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        return to_json(structured, inf_nan_mode="strings", fallback=str).decode()


def texts_of(result: ToolResult) -> str:
    """Join a result's texts, and the notes on its other parts, in order."""
    return "\n".join(filter(None, map(_part_text, result.content)))


def _part_text(part: ContentPart) -> str:
    if part.kind == "text" or not part.uri:
        return part.text
    return f"{part.text} ({part.uri})" if part.text else part.uri
