"""Lists the sessions of other agents on this computer. It only reads, and not all of a large file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from casual_mcp_nb.base.displayable import DisplayableList
from casual_mcp_nb.conversation.foreign.opening import read_foreign
from casual_mcp_nb.errors import UsageError

LISTED = 50
"""How many sessions are listed, the newest ones."""
_READ = 4 * 1024 * 1024
_MOST_FILES = 100_000


@dataclass(frozen=True)
class ForeignSession:
    """A session of another agent.

    Args:
        path: Its file.
        agent: The agent's name.
        title: Its title, or its first words.
        changed: When its file was changed.
        turns: How many turns it has.
        calls: How many tool calls its models made.
        tokens: How many tokens it reports.
        unread: How many lines were not understood.
        whole: Whether the file was read to its end. If not, it has more of all these.
    """

    path: Path
    agent: str
    title: str
    changed: datetime
    turns: int
    calls: int
    tokens: int
    unread: int
    whole: bool = True


@dataclass(frozen=True)
class ForeignSessions(DisplayableList[ForeignSession], items="sessions"):
    """Sessions of other agents, the newest first. `total` includes those beyond the limit."""

    sessions: tuple[ForeignSession, ...] = ()
    total: int = 0


def find_foreign_sessions(limit: int = LISTED) -> ForeignSessions:
    """Find the sessions of Claude Code and Codex on this computer.

    Args:
        limit: How many are listed.
    """
    files: list[tuple[float, int, Path]] = []
    for path in islice(_files(), _MOST_FILES):
        with suppress(OSError):
            status = path.stat()
            files.append((status.st_mtime, status.st_size, path))
    files.sort(reverse=True)
    sessions = [_session(path, changed, size) for changed, size, path in files[:limit]]
    return ForeignSessions(tuple(filter(None, sessions)), len(files))


def _files() -> Iterator[Path]:
    claude = _folder("CLAUDE_CONFIG_DIR", ".claude")
    for path in (claude / "projects").glob("*/*.jsonl"):
        # Those of subagents belong to a session.
        if not path.name.startswith("agent-"):
            yield path
    codex = _folder("CODEX_HOME", ".codex")
    for folder in ("sessions", "archived_sessions"):
        yield from (codex / folder).rglob("rollout-*.jsonl")


def _folder(variable: str, name: str) -> Path:
    given = os.environ.get(variable)
    return Path(given).expanduser() if given else Path.home() / name


def _session(path: Path, changed: float, size: int) -> ForeignSession | None:
    """Read a session without keeping any of it. None if the file is not one."""
    try:
        draft = read_foreign(path, steps=0, most=_READ)
    except UsageError:
        return None
    if draft is None:
        return None
    return ForeignSession(
        path,
        draft.agent,
        draft.title,
        datetime.fromtimestamp(changed).astimezone(),
        draft.more_turns + len(draft.turns),
        draft.calls,
        draft.usage.total_tokens or 0,
        draft.unread.total(),
        size <= _READ,
    )
