"""What a model reads of a tool's result."""

from __future__ import annotations

import json
from typing import Any, Literal

from casual_mcp_nb.types.content import ContentPart, ToolResult

ResultFormat = Literal["result", "function_result", "function_args_result"]

NO_ERROR_TEXT = "the tool reported an error without text"


def result_text(result: ToolResult) -> str:
    """The text of a result: its text parts and notes on the others, in order; the structured content as JSON where there is no
    text. A failed result begins with `Error:`.
    """
    text = "\n".join(filter(None, map(_words, result.content)))
    if not text and result.structured is not None:
        text = json.dumps(result.structured, ensure_ascii=False, default=str)
    if result.is_error:
        text = text or NO_ERROR_TEXT
        return text if text.lower().startswith("error") else f"Error: {text}"
    return text


def _words(part: ContentPart) -> str:
    if part.kind == "text" or not part.uri:
        return part.text
    return f"{part.text} ({part.uri})" if part.text else part.uri


def format_result(text: str, style: ResultFormat, name: str, arguments: dict[str, Any] | str) -> str:
    """Put the tool's name, and its arguments, before a result's text.

    Args:
        text: The result's text.
        style: `result`: the text alone; `function_result`: `name → text`; `function_args_result`: `name(a=1) → text`.
        name: The tool's name on the wire.
        arguments: The call's arguments.
    """
    if style == "result":
        return text
    if style == "function_result":
        return f"{name} → {text}"
    shown = arguments if isinstance(arguments, str) else ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    return f"{name}({shown}) → {text}"


def cut_text(text: str, limit: int) -> str:
    """`text`, or its beginning and end with a note of the full size where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    note = f"\n[… cut: {head + tail:,} of {len(text):,} characters are shown …]\n"
    return f"{text[:head]}{note}{text[len(text) - tail :]}"


def encodable(text: str) -> str:
    """`text` with lone surrogates written out, so that it can be sent as UTF-8; everything else reaches the model unharmed."""
    return text.encode("utf-8", "backslashreplace").decode()
