"""What requests to models have taken, counted in the file of saved conversations.

Each request is a row, from when it is reserved. Reservations are made in transactions, so that
kernels that use the same file do not reserve the same dollar twice. The table is created when it is
first needed, and earlier releases leave it alone.
"""

from __future__ import annotations

import math
import sqlite3
import time
import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from casual_mcp_nb.base.config import PERIODS, LimitKind, Period

LEASE_SECONDS = 1_800.0
"""How long a reservation counts whose process was killed. No answer may take longer."""
_TABLE = """
CREATE TABLE IF NOT EXISTS spending (
    id TEXT PRIMARY KEY, turn TEXT NOT NULL, conversation TEXT NOT NULL, day TEXT NOT NULL,
    tokens INTEGER NOT NULL, cost REAL, reserved_until REAL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS spending_by_turn ON spending (turn);
CREATE INDEX IF NOT EXISTS spending_by_conversation ON spending (conversation);
CREATE INDEX IF NOT EXISTS spending_by_day ON spending (day)
"""


@dataclass(frozen=True)
class Spent:
    """What requests took, or may take.

    Args:
        tokens: Input and output.
        cost: US dollars, without requests whose cost is not known.
        unpriced: How many requests these are.
        reserved: How many requests still run. They count as what was reserved for them.
    """

    tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0
    reserved: int = 0

    def of(self, kind: LimitKind) -> float:
        """Get what a kind of limit counts."""
        return self.cost if kind == "max_cost" else self.tokens


class SpendingFile(Protocol):
    """Where it is counted: a `ConversationStore`, or the memory of a session without one."""

    def counting(self) -> AbstractContextManager[sqlite3.Connection]:
        """Open a transaction."""


class SpendingInMemory:
    """Counts for one session, which saves nothing."""

    @cached_property
    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        # Not `__del__`: among garbage, the connection's own could run first, and warn.
        weakref.finalize(self, connection.close)
        create_table(connection)
        return connection

    def counting(self) -> AbstractContextManager[sqlite3.Connection]:
        """Nobody else counts here."""
        return nullcontext(self._connection)


def create_table(connection: sqlite3.Connection) -> None:
    """Create the table, unless the file has it."""
    for statement in _TABLE.split(";"):
        connection.execute(statement)


def spent_in(
    connection: sqlite3.Connection, period: Period, key: str, *, ended: bool = False
) -> Spent:
    """Add up what the requests in a turn, a conversation or a day took.

    Args:
        connection: The file.
        period: `turn`, `conversation`, or `day`.
        key: Which one.
        ended: Whether to leave out requests that still run.
    """
    now = time.time()
    if ended:
        now = math.inf
    (row,) = connection.execute(
        "SELECT total(tokens), total(cost), count(*) - count(cost), count(reserved_until)"
        f" FROM spending WHERE {period} = ? AND (reserved_until IS NULL OR reserved_until > ?)",
        (key, now),
    ).fetchall()
    tokens, cost, unpriced, reserved = row
    return Spent(int(tokens), cost, unpriced, reserved)


def carry_over(connection: sqlite3.Connection, id: str, former: str) -> None:
    """Count what a conversation took for another one that continues it, but for no other period."""
    create_table(connection)
    spent = spent_in(connection, "conversation", former, ended=True)
    if spent.tokens:
        keys: dict[Period, str] = {"conversation": id}
        write_request(connection, f"{former}>{id}", keys, spent.tokens, spent.cost)


def write_request(
    connection: sqlite3.Connection,
    id: str,
    keys: Mapping[Period, str],
    tokens: int,
    cost: float | None,
    *,
    reserved: bool = False,
) -> None:
    """Write what a request took, or what is reserved for it. Its cost is None if it has no price."""
    until = time.time() + LEASE_SECONDS if reserved else None
    belongs = [keys.get(period, "") for period in PERIODS]
    connection.execute(
        "INSERT OR REPLACE INTO spending VALUES (?, ?, ?, ?, ?, ?, ?)",
        (id, *belongs, tokens, cost, until),
    )
