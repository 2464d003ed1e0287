"""Vectors in a file that all sessions of a user share, by text hash."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

logger = logging.getLogger(__name__)

Rows = NDArray[np.int8]
"""Vectors as one byte for each number."""

VERSION = 1
"""The version of the file's table, in SQLite's `user_version`. The first files have none."""
MAX_FILE_BYTES = 256_000_000
_DAY_MS = 86_400_000
_BUSY_SECONDS = 2.0
_AT_A_TIME = 500


def cache_path() -> Path:
    """Find the file for vectors, in the user's cache folder."""
    from platformdirs import user_cache_path

    return user_cache_path("casual_mcp_nb", appauthor=False) / "embeddings.db"


_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
    key BLOB PRIMARY KEY, space BLOB NOT NULL, used INTEGER NOT NULL, vector BLOB NOT NULL
) WITHOUT ROWID
"""


class VectorFile:
    """Vectors in an SQLite file that programs can share.

    The least recently used ones make room for others. Replaces a damaged file. Works without one
    that it cannot read or write, and leaves one of a later version as it is.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_FILE_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes

    def read(self, keys: Mapping[bytes, bytes]) -> dict[bytes, Rows]:
        """Read the stored vectors for some keys, each to be called by another key."""

        def select(connection: sqlite3.Connection) -> dict[bytes, Rows]:
            rows: dict[bytes, Rows] = {}
            old: list[bytes] = []
            damaged: list[bytes] = []
            # Neighbours are on the same page.
            ordered = sorted(keys)
            for start in range(0, len(ordered), _AT_A_TIME):
                some = ordered[start : start + _AT_A_TIME]
                marks = ",".join("?" * len(some))
                for key, used, vector in connection.execute(
                    f"SELECT key, used, vector FROM vectors WHERE key IN ({marks})", some
                ):
                    if not isinstance(used, int) or not isinstance(vector, bytes) or not vector:
                        damaged.append(key)
                        continue
                    rows[keys[key]] = np.frombuffer(vector, np.int8)
                    if used < now - _DAY_MS:
                        old.append(key)
            connection.executemany(
                "UPDATE vectors SET used = ? WHERE key = ?", [(now, key) for key in old]
            )
            # They are computed again.
            connection.executemany("DELETE FROM vectors WHERE key = ?", [(key,) for key in damaged])
            return rows

        now = int(time.time() * 1_000)
        if not keys or not self.path.exists():
            return {}
        return self._run(select) or {}

    def write(self, space: bytes, rows: Mapping[bytes, Rows]) -> None:
        """Add vectors."""

        def add(connection: sqlite3.Connection) -> None:
            now = int(time.time() * 1_000)
            values = [(key, space, now, row.tobytes()) for key, row in rows.items()]
            connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", values)
            connection.execute(f"PRAGMA user_version = {VERSION}")
            if _used_bytes(connection) > self._max_bytes:
                (count,) = connection.execute("SELECT count(*) FROM vectors").fetchone()
                oldest = (
                    "DELETE FROM vectors WHERE key IN (SELECT key FROM vectors ORDER BY used"
                    " LIMIT ?)"
                )
                connection.execute(oldest, (count // 4 + 1,))

        self._run(add)

    def forget(self, space: bytes) -> None:
        """Delete a model's vectors."""

        def delete(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM vectors WHERE space = ?", (space,))

        self._run(delete)

    def _run(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        for attempt in range(2):
            try:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Created first, because SQLite would let others read it.
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
                with (
                    closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS)) as connection,
                    connection,
                ):
                    # Text that is not UTF-8 would make a whole query fail.
                    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
                    (version,) = connection.execute("PRAGMA user_version").fetchone()
                    if version > VERSION:
                        logger.warning(
                            "%s is not used, since a later version of casual_mcp_nb wrote it."
                            " Update the package, or delete the file.",
                            self.path,
                        )
                        return None
                    connection.execute(_SCHEMA)
                    return work(connection)
            except sqlite3.DatabaseError as error:
                is_operational = isinstance(error, sqlite3.OperationalError)
                if is_operational and error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                    # Locked for long, or on a disk that is full. Otherwise, its table is another
                    # one.
                    logger.info("Embeddings cannot be cached in %s: %s", self.path, error)
                    return None
                if attempt:
                    return None
                logger.warning("%s is damaged, so it is created again.", self.path)
                with suppress(OSError):
                    self.path.unlink()
            except OSError as error:
                logger.info("Embeddings cannot be cached: %s", error)
                return None
        return None


def _used_bytes(connection: sqlite3.Connection) -> int:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int((pages - free) * size)
