"""What a model reads of a tool's result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from casual_mcp_nb.types.content import ContentPart, ToolResult
from casual_mcp_nb.types.nesting import is_large
from casual_mcp_nb.types.step import EMPTY_RESULT
from casual_mcp_nb.types.tokens import estimate_tokens

NO_ERROR_TEXT = "the tool reported an error without text"
STRUCTURED = "Structured content:"
"""What stands before structured content that differs from the text."""

_LARGE = 100_000
_MAX_CHARACTERS_PER_TOKEN = 4


def result_text(result: ToolResult) -> str:
    """The text of a result: its text parts and notes on the others, in order, then the structured content as JSON, unless the
    text is the same. A failed result begins with `Error:`; one that returned nothing says so.
    """
    text = "\n".join(filter(None, map(_words, result.content)))
    if result.structured is not None and not _says_the_same(text, result.structured):
        written = json.dumps(result.structured, ensure_ascii=False, default=str)
        text = f"{text}\n{STRUCTURED}\n{written}" if text.strip() else written
    if result.is_error:
        text = text if text.strip() else NO_ERROR_TEXT
        return text if text.lower().startswith("error") else f"Error: {text}"
    return text if text.strip() else EMPTY_RESULT


async def result_words(result: ToolResult) -> str:
    """`result_text`, on another thread where there is so much that it would hold the loop."""
    if result.structured is None:
        return result_text(result)
    large = sum(len(part.text) for part in result.content) > _LARGE or is_large(result.structured)
    return await asyncio.to_thread(result_text, result) if large else result_text(result)


def _says_the_same(text: str, structured: Any) -> bool:
    """Whether a text is only the JSON of the structured content, or of the one value in it: servers of FastMCP put a result
    that is not an object into `{"result": ...}`."""
    values = [structured]
    if isinstance(structured, Mapping) and len(structured) == 1:
        values += structured.values()
    if text in values or (not text and structured == {"result": None}):
        return True
    try:
        return json.loads(text) in values
    except (ValueError, RecursionError):
        return False


def _words(part: ContentPart) -> str:
    if part.kind == "text" or not part.uri:
        return part.text
    return f"{part.text} ({part.uri})" if part.text else part.uri


def characters_within(text: str, tokens: int) -> int:
    """How many characters from the beginning of a text take about so many tokens; its length where all of it does."""
    # No character takes more than a token by the estimate, and few texts have more than four characters in one.
    most = min(len(text), tokens * _MAX_CHARACTERS_PER_TOKEN)
    if most <= tokens:
        return most
    estimated = estimate_tokens(text[:most])
    return most if estimated <= tokens else max(1, most * tokens // estimated)


def cut_text(text: str, tokens: int, how_to_read_on: Callable[[int], str]) -> str:
    """`text`, or its beginning and end with a note of the full size where it takes more than so many tokens.

    Args:
        text: Any text.
        tokens: What it may take, by estimate.
        how_to_read_on: Says for the character at which the text was cut how the rest can be read.
    """
    limit = characters_within(text, tokens)
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    note = f"\n[… cut: {head + tail:,} of {len(text):,} characters are shown; {how_to_read_on(head)} …]\n"
    return f"{text[:head]}{note}{text[len(text) - tail :]}"


def encodable(text: str) -> str:
    """`text` with lone surrogates written out, so that it can be sent as UTF-8; everything else reaches the model unharmed."""
    return text.encode("utf-8", "backslashreplace").decode()
