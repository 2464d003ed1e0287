"""A function's return value as a tool's result: text and images for the model, the value itself for the person."""

from __future__ import annotations

import inspect
import io
import reprlib
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple, cast

from casual_mcp_nb.base.content import ContentPart, PayloadPreview, TableRows, ToolResult, media_type_of
from casual_mcp_nb.errors import ToolCallError
from casual_mcp_nb.own_tools.context import FunctionRunner

MAX_PREVIEWS = 5
PREVIEW_ROWS = 10
PREVIEW_COLUMNS = 8
MAX_CELL = 80
MAX_TEXT = 500
MAX_PICTURE = 20_000
"""Maximum picture size in bytes. A larger one is scaled down."""
_PIXELS = (560, 360, 200)
_INCHES = 6.4
_MAX_DOTS_PER_INCH = 100


def is_table(value: Any) -> bool:
    """Check whether a value is a DataFrame from pandas, polars or another library."""
    return hasattr(value, "shape") and hasattr(value, "head") and hasattr(value, "columns")


def can_save(value: Any) -> bool:
    """Check whether a value is a matplotlib figure or a Pillow image."""
    return callable(getattr(value, "savefig", None)) or type(value).__module__.startswith("PIL.")


def figure_of(value: Any) -> Any:
    """Find the figure or image to draw for a value: the value itself, or the figure of axes, axes arrays and other artists.

    Returns None for anything else.
    """
    if can_save(value):
        return value
    if type(value).__module__ == "numpy" and str(getattr(value, "dtype", "")) == "object" and value.size:
        value = value.flat[0]
    figure = getattr(value, "figure", None)
    return figure if callable(getattr(figure, "savefig", None)) else None


def _preview(value: Any, pictures: Iterator[bytes] | None) -> PayloadPreview:
    try:
        if is_table(value):
            return _table_preview(value)
        if can_save(value):
            return PayloadPreview(type(value).__name__, picture=_picture(value, next(pictures or iter(()), None)))
        return PayloadPreview(_what(value), text=_text(value) if pictures is None else "")
    except Exception:
        # Whatever an object does when it is looked at, the call succeeded.
        return PayloadPreview(type(value).__name__)


def _table_preview(table: Any) -> PayloadPreview:
    count, names = int(table.shape[0]), list(table.columns)
    head = table.head(PREVIEW_ROWS)
    columns = [_index(head), *((str(name), _column(head, index)) for index, name in enumerate(names[:PREVIEW_COLUMNS]))]
    visible = [(name, cells) for name, cells in columns if cells is not None]
    rows = zip(*([_cell(value) for value in cells] for _, cells in visible), strict=True)
    what = f"{type(table).__name__}, {_count(count, 'row')}, {_count(len(names), 'column')}"
    return PayloadPreview(what, tuple(name[:MAX_CELL] for name, _ in visible), tuple(rows), max(0, count - PREVIEW_ROWS))


def _index(head: Any) -> tuple[str, list[Any] | None]:
    """Read the name and an index's values, or None where it only numbers the rows."""
    index = getattr(head, "index", None)
    if index is None or callable(index) or type(index).__name__ == "RangeIndex":
        return "", None
    return str(index.name or ""), list(index)


def _column(head: Any, index: int) -> list[Any]:
    # pandas columns can share a name.
    return list(head.iloc[:, index] if hasattr(head, "iloc") else head[head.columns[index]])


def _cell(value: Any) -> str:
    text = str(value)
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}…"


def _picture(value: Any, drawn: bytes | None) -> bytes | None:
    if drawn is not None and len(drawn) <= MAX_PICTURE:
        return drawn
    for data in _saved(value):
        if len(data) <= MAX_PICTURE:
            return data
    return None


def _saved(value: Any) -> Iterator[bytes]:
    for pixels in _PIXELS:
        buffer = io.BytesIO()
        if hasattr(value, "savefig"):
            inches = max(value.get_size_inches()) if hasattr(value, "get_size_inches") else _INCHES
            value.savefig(buffer, format="PNG", dpi=min(_MAX_DOTS_PER_INCH, pixels / inches))
        else:
            smaller = value.copy()
            smaller.thumbnail((pixels, pixels))
            smaller.save(buffer, format="PNG")
        yield buffer.getvalue()


def _what(value: Any) -> str:
    name = type(value).__name__
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"{name}, shape {shape}"
    return f"{name}, {_count(len(value), 'item')}" if isinstance(value, list | tuple | dict | set) else name


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _count(number: int, singular: str) -> str:
    return f"{number:,} {singular}" if number == 1 else f"{number:,} {singular}s"


MAX_ROWS = 20
MAX_COLUMNS = 20
MAX_CELLS = 1_000_000
"""How many table cells a model can ask about."""
MAX_YIELDED = 100_000
"""How many values a generator can yield. One without an end would fill the memory."""
_RECORDS: Mapping[str, Any] = {"orient": "records", "date_format": "iso", "default_handler": str}
_MAX_CELL = 100


@dataclass(frozen=True)
class ToolOutput:
    """A result in two forms: one for the model, one for the person.

    Args:
        content: The result for the model: a text, anything with a JSON form, a table, a figure, or a list of these.
        payload: Any object. It stays in this process: it is shown and listed in `turn.payloads`, but no model or file gets it.
    """

    content: Any = None
    payload: Any = None


async def result_from(run: FunctionRunner, call: Callable[[], Any], is_async: bool) -> ToolResult:
    """Have a function run, and return its result. Figures are drawn on the thread that ran it.

    Generators are read to their end, and awaitables are awaited, even if a plain function returned them.
    """
    outcome = await run(lambda: _awaited(call()) if is_async else _read(call()), is_async)
    if not isinstance(outcome, _Unread):
        return cast("ToolResult", outcome)
    try:
        return cast("ToolResult", await run(lambda: _awaited(outcome.value), True))
    finally:
        if inspect.iscoroutine(outcome.value):
            # Where no loop was free to run it; else it has ended.
            outcome.value.close()


class _Unread(NamedTuple):
    """A plain function's return value that only a loop can read."""

    value: Any


async def _awaited(value: Any) -> ToolResult:
    if inspect.isawaitable(value):
        value = await value
    if isinstance(value, AsyncGenerator):
        async with aclosing(value):
            items = []
            async for item in value:
                items.append(item)
                _check_count(items)
        value = items
    return result_of(value)


def _read(value: Any) -> ToolResult | _Unread:
    return _Unread(value) if inspect.isawaitable(value) or isinstance(value, AsyncGenerator) else result_of(value)


def _check_count(items: list[Any]) -> None:
    if len(items) > MAX_YIELDED:
        raise ToolCallError(f"it yielded more than {MAX_YIELDED:,} values.", hint="End it earlier, or return a table.")


def result_of(value: Any) -> ToolResult:
    """Convert a function's return value to a tool's result, with previews of its payload for displays."""
    if isinstance(value, Generator | map | filter | zip):
        items = list(islice(value, MAX_YIELDED + 1))
        _check_count(items)
        value = items
    result = _result_of(value)
    if isinstance(value, ToolResult):
        return result
    returned = value
    if isinstance(value, ToolOutput):
        returned = value.content if value.payload is None else value.payload
    if result.payload is None:
        return replace(result, returned=(returned,))
    apart = isinstance(value, ToolOutput) and value.payload is not None and value.payload is not value.content
    # The pictures in the result's content, if they show the payload.
    pictures = None if apart else iter([part.data for part in result.content if part.data is not None])
    payload = result.payload
    several = isinstance(payload, list) and payload and all(is_table(each) or can_save(each) for each in payload[:MAX_PREVIEWS])
    payloads = payload if several else [payload]
    previews = [_preview(each, pictures) for each in payloads[:MAX_PREVIEWS]]
    if (more := len(payloads) - MAX_PREVIEWS) > 0:
        previews.append(PayloadPreview(f"{more:,} more"))
    return replace(result, returned=(returned,), previews=tuple(previews))


def _result_of(value: Any) -> ToolResult:
    """Convert a function's return value to a tool's result.

    Tables become their first rows with their shape, figures and images become PNG, and are the payload too. Axes become
    their figure. All else becomes text or JSON. A value without a JSON form becomes its `repr`, and is the payload.
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
    if (figure := figure_of(value)) is not None:
        return ToolResult((_drawn(figure),), payload=figure)
    if isinstance(value, bytes | bytearray):
        return ToolResult((_part(bytes(value)),), payload=value)
    return _json(value)


def _is_rich(value: Any) -> bool:
    return is_table(value) or figure_of(value) is not None


def _table(table: Any) -> str:
    """Format a DataFrame's first rows (pandas, polars, …) as text, below its shape."""
    rows, columns = table.shape[0], len(table.columns)
    head = table.head(MAX_ROWS)
    if columns > MAX_COLUMNS:
        head = head[list(table.columns)[:MAX_COLUMNS]]
    text = head.to_string(max_colwidth=_MAX_CELL) if hasattr(head, "to_string") else str(head)
    shown = "" if rows <= MAX_ROWS else f", the first {MAX_ROWS} rows below"
    cut = "" if columns <= MAX_COLUMNS else f", {MAX_COLUMNS} of its columns"
    return f"Table with {rows:,} rows and {columns:,} columns{shown}{cut}:\n{text}"


def _rows(table: Any) -> TableRows | None:
    """Convert a table's rows. None if the text has them all, or if they are too many or have no JSON form."""
    rows, columns = table.shape[0], len(table.columns)
    if (rows <= MAX_ROWS and columns <= MAX_COLUMNS) or rows * columns > MAX_CELLS:
        return None
    try:
        # polars; pandas has the other.
        json = table.write_json() if hasattr(table, "write_json") else _with_index(table).to_json(**_RECORDS)
    except Exception:
        # Such as two columns with one name.
        return None
    return TableRows(f"table of {rows:,} rows, {columns:,} columns", json)


def _with_index(table: Any) -> Any:
    return table.reset_index() if any(name is not None for name in table.index.names) else table


def _drawn(figure: Any) -> ContentPart:
    buffer = io.BytesIO()
    save = getattr(figure, "savefig", None) or figure.save
    save(buffer, format="PNG")
    return _part(buffer.getvalue())


def _part(data: bytes) -> ContentPart:
    kind = media_type_of(data)
    if kind is None:
        return ContentPart("unknown", f"{len(data):,} bytes")
    return ContentPart("image", f"{kind}, {len(data):,} bytes", mime_type=kind, data=data)


def _json(value: Any) -> ToolResult:
    from pydantic_core import from_json, to_json

    try:
        # JSON has no infinite numbers, and none for NaN.
        text = to_json(value, indent=2, inf_nan_mode="strings").decode()
    except Exception:
        # It has no JSON form, or fails when it is looked at; the call succeeded.
        return ToolResult((ContentPart("text", _repr(value)),), payload=value)
    structured = from_json(text) if text.startswith("{") else None
    return ToolResult((ContentPart("text", text),), structured=structured)


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__} object>"
