"""The file of saved conversations: its tables, and connections to it.

A conversation's messages and tool definitions are saved once each, in `parts`; events refer to them by number, as in the files
that `types.record` describes. `conversations` repeats sums of its turns, so that a list of thousands is read quickly.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from casual_mcp_nb.errors import UsageError, shown

VERSION = 1
BUSY_SECONDS = 10.0
"""How long to wait for another process that is writing."""

_SCHEMA = """
CREATE TABLE conversations (
    id TEXT PRIMARY KEY, title TEXT NOT NULL, status TEXT NOT NULL DEFAULT 'active',
    created TEXT NOT NULL, changed TEXT NOT NULL, changed_at REAL NOT NULL, head TEXT NOT NULL,
    writes INTEGER NOT NULL DEFAULT 0,
    turns INTEGER NOT NULL DEFAULT 0, tokens INTEGER, estimated INTEGER, cost REAL, currency TEXT
);
CREATE INDEX by_change ON conversations (status, changed_at DESC);
CREATE TABLE parts (
    conversation TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE,
    kind TEXT NOT NULL, number INTEGER NOT NULL, json TEXT NOT NULL,
    PRIMARY KEY (conversation, kind, number)
) WITHOUT ROWID;
CREATE TABLE events (
    conversation TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE,
    turn INTEGER NOT NULL, number INTEGER NOT NULL, json TEXT NOT NULL,
    PRIMARY KEY (conversation, turn, number)
) WITHOUT ROWID;
CREATE TABLE turns (
    conversation TEXT NOT NULL REFERENCES conversations ON DELETE CASCADE,
    number INTEGER NOT NULL, tokens INTEGER, estimated INTEGER, cost REAL, currency TEXT, fields TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (conversation, number)
) WITHOUT ROWID;
"""

_MIGRATIONS: dict[int, str] = {0: _SCHEMA}
"""What brings a file of a version to the next one."""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, create it where it does not exist, and bring it to this version.

    Raises:
        UsageError: It is not a file of saved conversations, or one of a later version.
        sqlite3.Error: It cannot be opened or written.
        OSError: Its folder cannot be created.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Created first, because SQLite would let others read it.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _check(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        # A commit survives the end of the process without waiting for the disk.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection)
    if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise UsageError(f"{shown(path)} is another program's database.", hint="Give another path as store.")
    if version > VERSION:
        raise UsageError(
            f"{shown(path)} has version {version}, and this package reads versions up to {VERSION}.",
            hint="A later version of casual_mcp_nb wrote it: update the package, or give another path as store.",
        )


def _migrate(connection: sqlite3.Connection) -> None:
    if _version(connection) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it meanwhile.
        while (version := _version(connection)) < VERSION:
            for statement in _MIGRATIONS[version].split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
