"""Tells by its content whose session a file is, and reads it."""

from __future__ import annotations

import stat
from collections.abc import Container, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

from casual_mcp_nb.conversation.foreign import claude_code, codex
from casual_mcp_nb.conversation.foreign.claude_code import ClaudeCodeReader
from casual_mcp_nb.conversation.foreign.codex import CodexReader
from casual_mcp_nb.conversation.foreign.draft import Draft
from casual_mcp_nb.conversation.foreign.lines import Unread, read_lines
from casual_mcp_nb.conversation.foreign.turns import notes_on, turns_of
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import UsageError, shown

_FIRST_LINES = 30
_MAX_SUBAGENTS = 1_000
_HEAD = 1024 * 1024


def open_foreign(path: Path) -> tuple[list[Turn], tuple[str, ...]] | None:
    """Read the session of another agent, with those of its subagents.

    Returns:
        Its turns, and notes on how it was read. None if the file is not one.

    Raises:
        UsageError: The file cannot be read.
    """
    draft = read_foreign(path)
    if draft is None:
        return None
    notes = notes_on(draft)
    return turns_of(draft), notes


def read_foreign(path: Path, *, steps: int | None = None, most: int | None = None) -> Draft | None:
    """Collect the session of another agent.

    Args:
        path: The file.
        steps: How many model calls and tool calls are kept. None keeps `MAX_STEPS`.
        most: How many bytes of each file are read. None reads the whole files.

    Returns:
        None if the file is not one.
    """
    reader: ClaudeCodeReader | CodexReader
    match agent_of(path):
        case claude_code.AGENT:
            draft = Draft(claude_code.AGENT, "anthropic", steps=steps)
            reader = ClaudeCodeReader(draft)
            _read_into(draft, reader, path, most)
            for each in _subagents(path, reader.agents):
                _read_into(draft, reader, each, most)
        case codex.AGENT:
            draft = Draft(codex.AGENT, "openai", steps=steps)
            reader = CodexReader(draft)
            _read_into(draft, reader, path, most)
            reader.close()
        case _:
            return None
    draft.close()
    return draft


def agent_of(path: Path) -> str | None:
    """Tell by its first lines which agent wrote a file, or return None."""
    with opened(path) as file:
        for record in islice(read_lines(file, Unread(), _HEAD), _FIRST_LINES):
            if claude_code.is_claude_code(record):
                return claude_code.AGENT
            if codex.is_codex(record):
                return codex.AGENT
    return None


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


def _read_into(
    draft: Draft, reader: ClaudeCodeReader | CodexReader, path: Path, most: int | None
) -> None:
    with opened(path) as file:
        for record in read_lines(file, draft.unread, most):
            reader.read(record)


def _subagents(path: Path, agents: Container[str]) -> list[Path]:
    """Find the files of a session's subagents, by their place and name.

    They are in the session's folder or, of earlier versions, beside the session.
    """
    folder = path.with_suffix("") / "subagents"
    found = [each for each in folder.rglob("agent-*.jsonl") if not each.is_symlink()]
    if not path.name.startswith("agent-"):
        for each in path.parent.glob("agent-*.jsonl"):
            if each.stem.removeprefix("agent-") in agents and not each.is_symlink():
                found.append(each)
    return sorted(found)[:_MAX_SUBAGENTS]
