"""Run one SQL statement on an SQLite file. Runs in the worker process, without the package.

The memory limit is for the whole process, which the worker has to itself. Temporary files are kept
in memory, so nothing is written beside the database and its journal.
"""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing, suppress
from typing import Any

HEAP = 256 * 1024 * 1024
"""Memory limit for SQLite: https://www.sqlite.org/pragma.html#pragma_hard_heap_limit."""
_MAX_VALUE_BYTES = 5_000_000
_MAX_STATEMENT = 50_000
_MAX_CHARACTERS = 200_000
"""The most characters in all rows. One row is always returned."""

_READING = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
# These access other files, or change database settings that outlive the statement.
_FORBIDDEN = frozenset({sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA})
_NUMBERED = re.compile(r"\?\d")


def statement(argument: dict[str, Any]) -> dict[str, Any]:
    """Run a statement.

    Args:
        argument: `uri`, the database; `write`, whether changes are allowed; `guard`, whether the
            statement is untrusted (others also have the function `casefold`); `sql` and
            `parameters`; `seconds`; `growth`, how many bytes the file may grow; `max_rows`; and
            `max_cell`, how many characters of a value are returned.

    Returns:
        `columns` (None if the statement returns none), `rows`, `truncated`, `changed` (how many
        rows) and `last_id`, or `error`, SQLite's message.
    """
    try:
        with closing(_opened(argument)) as connection:
            cursor = _executed(connection, argument["sql"], argument["parameters"])
            facts = {"changed": max(cursor.rowcount, 0), "last_id": cursor.lastrowid}
            if not cursor.description:
                return {"columns": None, "rows": [], "truncated": False, **facts}
            rows, truncated = _rows(cursor, argument["max_rows"], argument["max_cell"])
            columns = [column[0] for column in cursor.description]
            return {"columns": columns, "rows": rows, "truncated": truncated, **facts}
    except (sqlite3.Error, sqlite3.Warning, OverflowError, ValueError) as error:
        return {"error": str(error)}


def _opened(argument: dict[str, Any]) -> sqlite3.Connection:
    mode = "rw" if argument["write"] else "ro"
    connection = sqlite3.connect(
        f"{argument['uri']}?mode={mode}", uri=True, isolation_level=None, timeout=2
    )
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _MAX_STATEMENT)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    for pragma in (f"hard_heap_limit = {HEAP}", "temp_store = MEMORY", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")
    if argument["write"]:
        pages, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "page_size")
        )
        connection.execute(f"PRAGMA max_page_count = {pages + argument['growth'] // size}")
    else:
        connection.execute("PRAGMA query_only = ON")
    if argument["guard"]:
        allow = _allow_writing if argument["write"] else _allow_reading
        connection.set_authorizer(allow)
    else:
        connection.create_function("casefold", 1, _casefold, deterministic=True)
    deadline: float = time.monotonic() + argument["seconds"]
    # A single operation on long values is not interrupted: the worker is killed a little later.

    def is_late() -> bool:
        return time.monotonic() > deadline

    connection.set_progress_handler(is_late, 10_000)
    return connection


def _executed(connection: sqlite3.Connection, sql: str, parameters: Any) -> sqlite3.Cursor:
    if isinstance(parameters, list) and _NUMBERED.search(sql):
        # Python reads `?1` as a name, for which it takes no sequence from 3.14 on.
        numbered = {str(number): value for number, value in enumerate(parameters, 1)}
        with suppress(sqlite3.ProgrammingError):
            return connection.execute(sql, numbered)
    return connection.execute(sql, parameters)


def _rows(cursor: sqlite3.Cursor, limit: int, max_cell: int) -> tuple[list[list[Any]], bool]:
    """Fetch the rows, each shortened, and check whether there are more than fit."""
    rows: list[list[Any]] = []
    characters = 0
    for row in cursor:
        cells = [_cell(value, max_cell) for value in row]
        characters += sum(len(str(value)) for value in cells)
        if len(rows) == limit or (rows and characters > _MAX_CHARACTERS):
            return rows, True
        rows.append(cells)
    return rows, False


def _cell(value: Any, longest: int) -> Any:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]}... ({len(value)} characters)"
    return value


def _casefold(value: Any) -> str | None:
    """Make text comparable in any case. SQLite's own `lower` changes only ASCII letters."""
    if value is None:
        return None
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return str(value).casefold()


def _allow_reading(action: int, *_details: object) -> int:
    if action in _READING:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _allow_writing(action: int, *_details: object) -> int:
    if action in _FORBIDDEN:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
