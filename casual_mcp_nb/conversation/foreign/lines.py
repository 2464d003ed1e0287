"""Read the JSON objects of a foreign file in bounded memory. What is not understood is counted."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import IO, Any

from pydantic_core import from_json

from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.errors import shown

Fields = dict[str, Any]
"""An object of JSON."""
MAX_LINE = 16 * 1024 * 1024
"""How long a line may be, or a document of several lines. A longer one is counted and not parsed."""
_BEGIN = re.compile(r"[^\s,]")
_MAX_KINDS = 20
_MAX_COUNT = 10**15


NOT_JSON = "not valid JSON"
TOO_LONG = f"over {MAX_LINE // 1024**2} MB"


class Unread(Counter[str]):
    """How many lines and other records of each kind were not understood."""

    def add(self, kind: object) -> None:
        """Count one of some kind."""
        name = shown(str(kind), 40)
        if name not in self and len(self) >= _MAX_KINDS:
            name = "others"
        self[name] += 1

    def __str__(self) -> str:
        named = ", ".join(f"{kind} ({number:,})" for kind, number in self.most_common())
        return f"Not understood, and left out: {count(self.total(), 'record')}: {named}."


def read_objects(file: IO[bytes], unread: Unread, most: int | None = None) -> Iterator[Fields]:
    """Yield the JSON objects in a file: one from each line, or those of a whole document.

    Args:
        file: The file.
        unread: Counts the lines that hold none.
        most: Stop after so many bytes of lines. None reads the whole file.
    """
    first = file.readline(MAX_LINE).strip()
    file.seek(0)
    values = _values_of_lines(file, unread, most)
    if first == b"{" or first.startswith(b"["):
        values = _values_of_document(file, unread)
    for value in values:
        if isinstance(value, dict):
            yield value
        else:
            unread.add(NOT_JSON)


def _values_of_lines(file: IO[bytes], unread: Unread, most: int | None) -> Iterator[Any]:
    while line := file.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            unread.add(TOO_LONG)
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE)
        elif not line.isspace():
            yield parsed(line)
        if most is not None and file.tell() >= most:
            return


def _values_of_document(file: IO[bytes], unread: Unread) -> Iterator[Any]:
    """Yield the values of a document: one, those of a list, or several in a row."""
    text, end = file.read(MAX_LINE + 1).decode("utf-8", "replace"), 0
    if len(text) > MAX_LINE:
        unread.add(TOO_LONG)
        return
    while (begin := _BEGIN.search(text, end)) is not None:
        try:
            value, end = json.JSONDecoder().raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            yield None
            return
        yield from value if isinstance(value, list) else [value]


def parsed(text: bytes | str) -> Any:
    """Parse JSON, or return None if it is not valid."""
    try:
        return from_json(text)
    except ValueError:
        pass
    try:
        # This one also takes lone surrogates, which JavaScript writes.
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def seconds_of(value: object) -> float | None:
    """Read a time as ISO 8601, in seconds since 1970. None, if it is none."""
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def tokens_in(fields: Fields, *names: str) -> int | None:
    """Read a number of tokens, by the first of these names that has one."""
    for name in names:
        value = fields.get(name)
        if type(value) is int and 0 <= value < _MAX_COUNT:
            return value
    return None


def object_in(fields: object, name: str) -> Fields:
    """Read an object. An empty one, if there is none."""
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if isinstance(value, dict) else {}


def text_in(fields: object, *names: str) -> str:
    """Read a text, by the first of these names that has one. Empty, if none has."""
    if isinstance(fields, dict):
        for name in names:
            value = fields.get(name)
            if isinstance(value, str) and value:
                return value
    return ""


def objects_in(value: object) -> list[Fields]:
    """List the objects in a list. A text is a text part."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        return []
    return [each for each in value if isinstance(each, dict)]
