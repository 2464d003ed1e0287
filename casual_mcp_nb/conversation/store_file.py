"""The SQLite file of saved conversations: its tables, and their version."""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from pathlib import Path

from casual_mcp_nb.conversation.codec import NEWER, STORE
from casual_mcp_nb.errors import UsageError, shown

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
"""Migrations from each version to the next."""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, create it where it does not exist, and bring it to this version.

    A UsageError if it does not hold saved conversations, or comes from a later version.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Created first, because SQLite would let others read it.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    # Text that is not UTF-8 would make a whole query fail.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    try:
        _check(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        # A commit survives a crashed process without waiting for the disk.
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
        raise UsageError(
            f"{shown(path)} is another program's database.", hint="Give another path as store."
        )
    if problem := STORE.problem(shown(path), version):
        raise UsageError(problem, hint=f"{NEWER} Or give another path as store.")


def _migrate(connection: sqlite3.Connection) -> None:
    if _version(connection) == STORE.version:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have done it meanwhile.
        while (version := _version(connection)) < STORE.version:
            for statement in _MIGRATIONS[version].split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
