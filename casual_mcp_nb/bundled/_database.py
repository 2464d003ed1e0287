"""SQLite connections for untrusted statements: optionally read-only, limited in time and size."""

from __future__ import annotations

import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from casual_mcp_nb.bundled._sample_shop import fill
from casual_mcp_nb.bundled._server import ToolError

SECONDS = 5.0
_MAX_VALUE_BYTES = 5_000_000
_MAX_STATEMENT = 50_000

_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
# These access other files, or change database settings that outlive the statement.
_FORBIDDEN = frozenset({sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA})


class Database:
    """A database file, or the sample shop in memory.

    Args:
        file: An existing SQLite file; None for the sample.

    Raises:
        ValueError: The file does not exist.
    """

    def __init__(self, file: str | None) -> None:
        self._lock = threading.Lock()
        self._keeper: sqlite3.Connection | None = None
        if file is not None:
            if not Path(file).is_file():
                raise ValueError(f"the database file does not exist: {file}")
            self._uri = f"{Path(file).resolve().as_uri()}?mode="
            self._modes = ("ro", "rw")
            return
        # A shared in-memory database lives as long as one connection to it.
        self._uri = f"file:sample-{secrets.token_hex(8)}?cache=shared&mode="
        self._modes = ("memory", "memory")
        self._keeper = sqlite3.connect(self._uri + "memory", uri=True, check_same_thread=False)
        fill(self._keeper)

    def close(self) -> None:
        """Release the sample database."""
        if self._keeper is not None:
            self._keeper.close()

    @contextmanager
    def connect(self, *, write: bool = False, guard: bool = True) -> Iterator[sqlite3.Connection]:
        """Open a connection for one statement.

        Args:
            write: Allow changes.
            guard: Allow only what an untrusted statement may do; False for our own statements.

        Raises:
            ToolError: The statement is invalid, forbidden or too slow; with SQLite's own message.
        """
        with self._lock, closing(self._open(write)) as connection:
            if guard:
                connection.set_authorizer(_allow_writing if write else _allow_reading)
            started = time.monotonic()
            connection.set_progress_handler(lambda: time.monotonic() - started > SECONDS, 10_000)
            try:
                yield connection
            except (sqlite3.Error, sqlite3.Warning, OverflowError, ValueError) as error:
                raise ToolError(_explained(error)) from error

    def _open(self, write: bool) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self._uri + self._modes[write], uri=True, isolation_level=None, timeout=2)
        except sqlite3.Error as error:
            raise ToolError(f"The database cannot be opened: {error}.") from error
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _MAX_STATEMENT)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.execute("PRAGMA foreign_keys = ON")
        if not write:
            connection.execute("PRAGMA query_only = ON")
        return connection


def _allow_reading(action: int, *_details: object) -> int:
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _allow_writing(action: int, *_details: object) -> int:
    return sqlite3.SQLITE_DENY if action in _FORBIDDEN else sqlite3.SQLITE_OK


def _explained(error: Exception) -> str:
    text = str(error)
    if "interrupted" in text:
        return f"The statement was stopped after {SECONDS:g} seconds."
    if "not authorized" in text or "prohibited" in text:
        return "Not permitted here. query only reads (SELECT); no tool attaches files or runs PRAGMA."
    return f"SQLite: {text}."
