"""What a function returned, as a tool's result: text and images for the model, the value itself for the person."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from casual_mcp_nb.toolbox.previews import can_save, is_table, previews_of
from casual_mcp_nb.types.content import ContentPart, TableRows, ToolResult
from casual_mcp_nb.types.image import media_type_of

MAX_ROWS = 20
MAX_COLUMNS = 20
MAX_CELLS = 1_000_000
"""How many values of a table can be asked about."""
_RECORDS: Mapping[str, Any] = {"orient": "records", "date_format": "iso", "default_handler": str}
_MAX_CELL = 100


@dataclass(frozen=True)
class ToolOutput:
    """A result in two forms: one for the model, one for the person.

    Args:
        content: What the model reads: a text, anything that has a JSON form, a table, a figure, or several of these in a list.
        payload: Any object. It stays in this process: it is shown, it is on `turn.payloads`, and no model and no file gets it.
    """

    content: Any = None
    payload: Any = None


def with_result(call: Callable[[], Any], is_async: bool) -> Callable[[], Any]:
    """Return a function that does a call and returns its result; it draws figures on the thread that runs it.

    Args:
        call: Does the call.
        is_async: Whether it returns something to await.
    """

    async def awaited() -> ToolResult:
        return result_of(await call())

    return awaited if is_async else lambda: result_of(call())


def result_of(value: Any) -> ToolResult:
    """Return what a function returned as the result of a tool, with what displays show of its payload."""
    result = _result_of(value)
    if result.payload is None or result.previews:
        return result
    apart = isinstance(value, ToolOutput) and value.payload is not None and value.payload is not value.content
    drawn = None if apart else [part.data for part in result.content if part.data is not None]
    return replace(result, previews=previews_of(result.payload, drawn))


def _result_of(value: Any) -> ToolResult:
    """Return what a function returned as the result of a tool.

    Tables become their first rows with their shape, figures and images become PNG, and are the payload too. All else becomes
    text or JSON; what has no JSON form becomes its `repr`, and is the payload.
    """
    match value:
        case ToolResult():
            return value
        case ToolOutput():
            inner = _result_of(value.content)
            payload = inner.payload if value.payload is None else value.payload
            return replace(inner, payload=payload)
        case str():
            return ToolResult((ContentPart("text", value),))
        case int() | float():
            return ToolResult((ContentPart("text", str(value)),))
        case None:
            return ToolResult()
        case list() if value and all(_is_rich(each) or isinstance(each, str) for each in value) and any(map(_is_rich, value)):
            parts = [_result_of(each) for each in value]
            content = tuple(part for each in parts for part in each.content)
            return ToolResult(content, payload=[each.payload for each in parts if each.payload is not None])
    if is_table(value):
        return ToolResult((ContentPart("text", _table(value)),), payload=value, rows=_rows(value))
    if (picture := _picture(value)) is not None:
        return ToolResult((picture,), payload=value)
    return _json(value)


def _is_rich(value: Any) -> bool:
    return is_table(value) or can_save(value)


def _table(table: Any) -> str:
    """Return the beginning of a DataFrame (pandas, polars, …) as text, below its shape."""
    rows, columns = table.shape[0], len(table.columns)
    head = table.head(MAX_ROWS)
    if columns > MAX_COLUMNS:
        head = head[list(table.columns)[:MAX_COLUMNS]]
    text = head.to_string(max_colwidth=_MAX_CELL) if hasattr(head, "to_string") else str(head)
    shown = "" if rows <= MAX_ROWS else f", the first {MAX_ROWS} rows below"
    cut = "" if columns <= MAX_COLUMNS else f", {MAX_COLUMNS} of its columns"
    return f"Table with {rows:,} rows and {columns:,} columns{shown}{cut}:\n{text}"


def _rows(table: Any) -> TableRows | None:
    """Return all rows of a table; None where the text has them all, and where they are too many or have no JSON form."""
    rows, columns = table.shape[0], len(table.columns)
    if (rows <= MAX_ROWS and columns <= MAX_COLUMNS) or rows * columns > MAX_CELLS:
        return None
    try:
        # polars; pandas has the other.
        json = table.write_json() if hasattr(table, "write_json") else _with_index(table).to_json(**_RECORDS)
    except Exception:
        # Such as two columns of one name.
        return None
    return TableRows(f"table of {rows:,} rows, {columns:,} columns", json)


def _with_index(table: Any) -> Any:
    return table.reset_index() if any(name is not None for name in table.index.names) else table


def _picture(value: Any) -> ContentPart | None:
    if isinstance(value, bytes | bytearray):
        data = bytes(value)
    elif can_save(value):
        buffer = io.BytesIO()
        save = getattr(value, "savefig", None) or value.save
        save(buffer, format="PNG")
        data = buffer.getvalue()
    else:
        return None
    kind = media_type_of(data)
    if kind is None:
        return ContentPart("unknown", f"{len(data):,} bytes")
    return ContentPart("image", f"{kind}, {len(data):,} bytes", mime_type=kind, data=data)


def _json(value: Any) -> ToolResult:
    from pydantic_core import to_json, to_jsonable_python

    try:
        structured = to_jsonable_python(value)
    except ValueError:
        return ToolResult((ContentPart("text", repr(value)),), payload=value)
    text = to_json(structured, indent=2).decode()
    return ToolResult((ContentPart("text", text),), structured=structured if isinstance(structured, dict) else None)
