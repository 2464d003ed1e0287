"""Previews of a payload, made where the function ran: tables as rows, figures as pictures, other values as text."""

from __future__ import annotations

import io
import reprlib
from collections.abc import Iterable, Iterator
from typing import Any

from casual_mcp_nb.types.payload import PayloadPreview

MAX_PREVIEWS = 5
MAX_ROWS = 10
MAX_COLUMNS = 8
MAX_CELL = 80
MAX_TEXT = 500
MAX_PICTURE = 20_000
"""Bytes of a picture; a larger one is made smaller."""
_PIXELS = (560, 360, 200)
_INCHES = 6.4
_MAX_DOTS_PER_INCH = 100


def previews_of(payload: Any, drawn: Iterable[bytes] | None = None) -> tuple[PayloadPreview, ...]:
    """Build the previews of a payload; several, for a list of tables and figures.

    Args:
        payload: The payload.
        drawn: The pictures in the result's content, if they show the payload; None if the content is something else.
    """
    pictures = None if drawn is None else iter(drawn)
    if isinstance(payload, list) and payload and all(is_table(each) or can_save(each) for each in payload[:MAX_PREVIEWS]):
        more = len(payload) - MAX_PREVIEWS
        previews = tuple(_preview(each, pictures) for each in payload[:MAX_PREVIEWS])
        return (*previews, PayloadPreview(f"{more:,} more")) if more > 0 else previews
    return (_preview(payload, pictures),)


def is_table(value: Any) -> bool:
    """Check whether a value is a DataFrame, of pandas, polars or another library."""
    return hasattr(value, "shape") and hasattr(value, "head") and hasattr(value, "columns")


def can_save(value: Any) -> bool:
    """Check whether a value is a matplotlib figure or a Pillow image."""
    return callable(getattr(value, "savefig", None)) or type(value).__module__.startswith("PIL.")


def figure_of(value: Any) -> Any:
    """Find the figure or image to draw for a value: itself, or of axes, an array of axes or another artist their figure.

    None for anything else.
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
            return _table(value)
        if can_save(value):
            return PayloadPreview(type(value).__name__, picture=_picture(value, next(pictures or iter(()), None)))
        return PayloadPreview(_what(value), text=_text(value) if pictures is None else "")
    except Exception:
        # Whatever an object does when it is looked at, the call succeeded.
        return PayloadPreview(type(value).__name__)


def _table(table: Any) -> PayloadPreview:
    count, names = int(table.shape[0]), list(table.columns)
    head = table.head(MAX_ROWS)
    columns = [_index(head), *((str(name), _column(head, index)) for index, name in enumerate(names[:MAX_COLUMNS]))]
    visible = [(name, cells) for name, cells in columns if cells is not None]
    rows = zip(*([_cell(value) for value in cells] for _, cells in visible), strict=True)
    what = f"{type(table).__name__}, {_count(count, 'row')}, {_count(len(names), 'column')}"
    return PayloadPreview(what, tuple(name[:MAX_CELL] for name, _ in visible), tuple(rows), max(0, count - MAX_ROWS))


def _index(head: Any) -> tuple[str, list[Any] | None]:
    """Read the name and the values of an index; None where it only numbers the rows."""
    index = getattr(head, "index", None)
    if index is None or callable(index) or type(index).__name__ == "RangeIndex":
        return "", None
    return str(index.name or ""), list(index)


def _column(head: Any, index: int) -> list[Any]:
    # Columns of pandas can share a name.
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
    """Yield a figure or an image as PNG, smaller each time."""
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
