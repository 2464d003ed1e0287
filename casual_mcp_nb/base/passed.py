"""Results that a model passes to a tool by their handles: the value goes from tool to tool, and only
the handle is read, asked about and recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from casual_mcp_nb.base.limits import read_json

RESULT = "$result"
"""The key under which an argument has a handle in place of a value."""

PATH = "path"
"""The key beside it, with which the argument is a part of the result."""

_MAX_TEXT = 1_000


class PassedResult(NamedTuple):
    """A large result, or a part of one, that a call passes to its tool.

    Args:
        handle: The result's handle.
        path: Which part of it, or empty for all.
        server: The server that it came from.
        what: Its kind and size, such as `table of 20,000 rows, 3 columns`.
        size: Its length as text, in characters.
        head: How that text begins.
    """

    handle: str
    path: str
    server: str
    what: str
    size: int
    head: str


class FilledArguments(dict[str, Any]):
    """A call's arguments with the values of the results that it passes. Only the tool gets them.

    Args:
        values: The arguments for the tool.
        written: The arguments as the model wrote them. Records and questions have these.
        passed: The results.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        written: dict[str, Any],
        passed: Iterable[PassedResult],
    ) -> None:
        super().__init__(values)
        self.written = written
        self.passed = tuple(passed)


def as_written(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's arguments as the model wrote them."""
    return arguments.written if isinstance(arguments, FilledArguments) else dict(arguments)


def handles_passed(value: object) -> Iterator[str]:
    """Yield the handles in arguments."""
    parts: Iterable[Any] = ()
    if passed := handle_in(value):
        yield passed[0]
    elif isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list):
        parts = value
    for part in parts:
        yield from handles_passed(part)


def handle_in(value: object) -> tuple[str, str] | None:
    """Read the handle and the path in an argument, or None if it is something else.

    It is an object with no other keys, or its JSON, which models write for a parameter that takes
    only text. A handle begins with `r_`.
    """
    if isinstance(value, str) and value[:1] == "{" and len(value) <= _MAX_TEXT:
        value = read_json(value)
    if not isinstance(value, dict) or not value.keys() <= {RESULT, PATH}:
        return None
    handle = value.get(RESULT)
    if not isinstance(handle, str) or not handle.startswith("r_"):
        return None
    return handle, str(value.get(PATH) or "")
