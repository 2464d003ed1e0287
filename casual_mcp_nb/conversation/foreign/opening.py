"""Tells by its content whose session a file is, and reads it."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.conversation.foreign.claude_code import ClaudeCodeReader
from casual_mcp_nb.conversation.foreign.codex import CodexReader
from casual_mcp_nb.conversation.foreign.draft import Draft, Reader
from casual_mcp_nb.conversation.foreign.lines import MAX_LINE, Unread, parsed, read_objects
from casual_mcp_nb.conversation.foreign.otel import SpanReader
from casual_mcp_nb.errors import UsageError, shown

_SAVED = re.compile(rb'\s*\{\s*"format"')
"""How a conversation begins that was saved here. It may be large."""
_FIRST_OBJECTS = 30
_HEAD = 1024 * 1024
_NAMED_FIELDS = 8


_READERS: tuple[type[Reader], ...] = (ClaudeCodeReader, CodexReader, SpanReader)
_HINT = (
    "These can be opened: a .json file written by session.export, sessions of Claude Code and Codex,"
    " and spans of OpenTelemetry as JSON or JSON lines."
)


def check_saved(path: Path) -> None:
    """Check that a file can be a saved conversation: one JSON object, with a format.

    Raises:
        UsageError: It cannot. The error describes it.
    """
    with opened(path) as file:
        if _is_saved(file):
            return
        line = file.readline(MAX_LINE)
    first, has = parsed(line), "no JSON object"
    if first is None and line.startswith(b"{"):
        # It goes on in the next lines, as other programs write it.
        return
    if isinstance(first, dict):
        if "format" in first:
            # Other programs write the fields in any order.
            return
        names = ", ".join(shown(name, 40) for name in islice(first, _NAMED_FIELDS))
        has = f"{count(len(first), 'field')}: {names or 'none'}"
    raise UsageError(
        f"{shown(path)} is in no format that can be read. Its first line has {has}.",
        hint=_HINT,
    )


def _is_saved(file: IO[bytes]) -> bool:
    is_saved = _SAVED.match(file.read(100)) is not None
    file.seek(0)
    return is_saved


def read_foreign(path: Path, *, steps: int | None = None, most: int | None = None) -> Draft | None:
    """Collect the session of another agent.

    Args:
        path: The file.
        steps: How many model calls and tool calls are kept. None keeps `MAX_STEPS`.
        most: How many bytes of each file are read. None reads the whole files.

    Returns:
        None if the file is not one.
    """
    kind = reader_of(path)
    if kind is None:
        return None
    draft = Draft(kind.agent, kind.provider, steps=steps)
    reader = kind(draft)
    _read_into(reader, path, most)
    for each in reader.more_files(path):
        _read_into(reader, each, most)
    reader.close()
    return draft


def reader_of(path: Path) -> type[Reader] | None:
    """Tell by its beginning whose session a file is. None if it is not one."""
    with opened(path) as file:
        if not _is_saved(file):
            for record in islice(read_objects(file, Unread(), _HEAD), _FIRST_OBJECTS):
                for kind in _READERS:
                    if kind.can_read(record):
                        return kind
    return None


def is_session(path: Path) -> bool:
    """Check by its beginning whether a file is a saved conversation or a session of another agent."""
    with opened(path) as file:
        return _is_saved(file) or reader_of(path) is not None


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file. A UsageError if that fails, or it is something else, such as a pipe."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"{shown(path)} is not a file.")
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise UsageError(f"{shown(path)} cannot be read: {error.strerror}.") from None


def _read_into(reader: Reader, path: Path, most: int | None) -> None:
    with opened(path) as file:
        for record in read_objects(file, reader.draft.unread, most):
            reader.read(record)
