"""An SQLite file for untrusted statements: each runs in a process with limits on time, memory and the growth of the file."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from casual_mcp_nb.bundled._sample_shop import fill
from casual_mcp_nb.bundled._server import ToolError
from casual_mcp_nb.isolation.worker import GaveUp, Worker

SECONDS = 5.0
"""The time of one tool's statements together."""
MAX_ROWS = 1000
MAX_GROWTH = 100_000_000
"""How many bytes one statement may add to the file."""
MAX_SAMPLE = 50_000_000
"""How large the sample may become."""
_CELL_CHARACTERS = 2000
_MAX_DEFINITION = 50_000
_GRACE = 1.0
"""How many seconds after its time a statement is killed that cannot be interrupted."""


class Statements(Protocol):
    """Anything that executes statements: the database's process, or a plain connection."""

    def execute(self, sql: str, parameters: Any = (), /) -> Any:
        """Run a statement, and return its rows."""


@dataclass(frozen=True)
class Result:
    """The result of a statement. Iterating over it yields its rows.

    Args:
        columns: The names of the columns; None if the statement returns no rows.
        rows: The rows, each shortened.
        truncated: Whether there are more.
        changed: How many rows were changed.
        last_id: The id of the row that was inserted last.
    """

    columns: list[str] | None
    rows: list[list[Any]]
    truncated: bool
    changed: int
    last_id: int | None

    def __iter__(self) -> Iterator[list[Any]]:
        return iter(self.rows)

    @property
    def records(self) -> list[dict[str, Any]]:
        """The rows with the names of their columns."""
        return [dict(zip(self.columns or (), row, strict=True)) for row in self.rows]


class Database:
    """A database file, or the sample shop in a temporary one.

    Args:
        file: An existing SQLite file; None for the sample.

    Raises:
        ValueError: The file does not exist.
    """

    def __init__(self, file: str | None) -> None:
        self._lock = threading.Lock()
        self._worker = Worker()
        self._sample = file is None
        if file is not None and not Path(file).is_file():
            raise ValueError(f"the database file does not exist: {file}")
        self._path = Path(file).resolve() if file is not None else _sample_file(self)

    def close(self) -> None:
        """End the process, and delete the sample."""
        self._worker.close()
        if self._sample:
            shutil.rmtree(self._path.parent, ignore_errors=True)

    @contextmanager
    def schema(self) -> Iterator[sqlite3.Connection]:
        """Open a connection in this process, for our own statements about tables and columns as they were at the start.

        Raises:
            ToolError: The file cannot be read.
        """
        try:
            with closing(sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True, timeout=2)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise ToolError(f"The database cannot be opened: {error}.") from error

    @contextmanager
    def connect(self, *, write: bool = False, guard: bool = True) -> Iterator[DatabaseConnection]:
        """Open the database for one tool.

        Args:
            write: Allow changes.
            guard: Allow only what an untrusted statement may do; False for our own statements.
        """
        with self._lock:
            yield DatabaseConnection(self, write, guard)

    def run(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any], seconds: float, **options: Any) -> Result:
        """Run a statement, while no other one runs.

        Args:
            sql: The statement.
            parameters: The values of its placeholders, in order or by name.
            seconds: Its time.
            **options: Further fields of `_statement.statement`.

        Raises:
            ToolError: The statement is invalid or forbidden, or exceeds a limit; with SQLite's own message.
        """
        growth = max(0, MAX_SAMPLE - self._path.stat().st_size) if self._sample else MAX_GROWTH
        values = dict(parameters) if isinstance(parameters, Mapping) else list(parameters)
        job = {"uri": self._path.as_uri(), "sql": sql, "parameters": values, "seconds": seconds, "growth": growth, **options}
        try:
            answer = self._worker.run("statement", job, seconds + _GRACE)
        except GaveUp as error:
            if options["write"]:
                # A process that was killed leaves a journal, which only a connection that may write can roll back.
                with suppress(GaveUp):
                    self._worker.run("statement", {**job, "sql": "SELECT 1 FROM sqlite_master", "parameters": []}, SECONDS)
            raise ToolError(_explained("interrupted" if "took more" in str(error) else str(error))) from None
        if "error" in answer:
            raise ToolError(_explained(answer["error"]))
        return Result(**answer)


class DatabaseConnection:
    """The database for the statements of one tool, which share its time.

    Args:
        database: The database.
        write: Allow changes.
        guard: Allow only what an untrusted statement may do.
    """

    def __init__(self, database: Database, write: bool, guard: bool) -> None:
        self._database, self._write, self._guard = database, write, guard
        self._deadline = time.monotonic() + SECONDS

    def execute(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = (), max_rows: int = MAX_ROWS, *, whole: bool = False
    ) -> Result:
        """Run a statement.

        Args:
            sql: The statement.
            parameters: The values of its placeholders, in order or by name.
            max_rows: The most rows to return.
            whole: Return values as long as a definition in the schema can be.

        Raises:
            ToolError: See `Database.run`.
        """
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise ToolError(_explained("interrupted"))
        options = {"write": self._write, "guard": self._guard, "max_rows": max_rows}
        longest = _MAX_DEFINITION if whole else _CELL_CHARACTERS
        return self._database.run(sql, parameters, seconds, max_cell=longest, **options)


def _sample_file(owner: Database) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="casual-mcp-nb-"))
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    path = folder.resolve() / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        fill(connection)
    return path


def _explained(text: str) -> str:
    if "interrupted" in text:
        return f"The statement was stopped after {SECONDS:g} seconds."
    if "not authorized" in text or "prohibited" in text:
        return "Not permitted here. query only reads (SELECT); no tool attaches files or runs PRAGMA."
    if "too much memory" in text or "ended early" in text:
        return "The statement was stopped: it needs too much memory. Read or change fewer rows in one statement."
    if "disk is full" in text:
        return "SQLite: database or disk is full. The database may not grow further by this statement; change fewer rows."
    return f"SQLite: {text}."
