"""The `sqlite` server: inspect and change an SQLite database."""

from __future__ import annotations

import argparse
import sqlite3
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from casual_mcp_nb.bundled._database import Database
from casual_mcp_nb.bundled._server import ToolError, ToolServer, closest, destroys, reads

MAX_ROWS = 1000
_CELL_CHARACTERS = 2000
_RESULT_CHARACTERS = 200_000
_MAX_OUTLINE = 600

Table = Annotated[str, Field(description="Name of the table, such as 'orders'")]
Parameters = Annotated[
    tuple[str | int | float | None, ...],
    Field(description="Values for the ? in the statement, in order", max_length=100),
    WithJsonSchema({"type": "array", "items": {"type": ["string", "number", "null"]}}),
]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the server's command line options."""
    parser.add_argument("--database", metavar="FILE", help="an SQLite file (default: a sample shop in memory)")
    parser.add_argument("--read-only", action="store_true", help="leave out the tool that changes the database")


def build(database: str | None = None, read_only: bool = False) -> ToolServer:
    """Build the server.

    Args:
        database: An existing SQLite file; None for the sample shop, which is forgotten at the end.
        read_only: Leave out the `execute` tool.

    Raises:
        ValueError: The file does not exist.
    """
    opened = Database(database)
    tools = Tables(opened)
    registered = reads(tools.list_tables, tools.describe_table, tools.query)
    registered[-1].description += tools.outline()
    if not read_only:
        registered += destroys(tools.execute)
    what = "A sample shop: customers, products, orders." if database is None else "An SQLite database."
    return ToolServer("sqlite", what, registered, on_close=opened.close)


class Tables:
    """The tools of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def outline(self) -> str:
        """Return the tables with their columns in one sentence, as far as it is short: it saves a model the step of looking."""
        with self._database.connect(guard=False) as connection:
            tables = [
                f"{name} ({', '.join(each['name'] for each in _columns(connection, name))})" for name in _names(connection)
            ]
        text = "; ".join(tables)
        return f" Tables: {text}." if text and len(text) <= _MAX_OUTLINE else ""

    def list_tables(self) -> dict[str, Any]:
        """List the tables and views of the database with their columns and the number of rows."""
        with self._database.connect(guard=False) as connection:
            tables = [
                {
                    "name": name,
                    "kind": kind,
                    "columns": [column["name"] for column in _columns(connection, name)],
                    "rows": _count(connection, name) if kind == "table" else None,
                }
                for name, kind in _names(connection).items()
            ]
        return {"tables": tables}

    def describe_table(self, table: Table) -> dict[str, Any]:
        """Show the columns, foreign keys and SQL definition of a table."""
        with self._database.connect(guard=False) as connection:
            names = _names(connection)
            if table not in names:
                raise ToolError(f"There is no table {table[:60]!r}. {closest(table, list(names))}")
            definition = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
            keys = connection.execute(f"PRAGMA foreign_key_list({_quoted(table)})").fetchall()
            columns = _columns(connection, table)
        references = [{"column": key[3], "table": key[2], "referenced_column": key[4]} for key in keys]
        return {"table": table, "columns": columns, "foreign_keys": references, "sql": definition}

    def query(
        self,
        sql: Annotated[str, Field(description="One SELECT statement in SQLite's SQL")],
        parameters: Parameters = (),
        max_rows: Annotated[int, Field(description="The most rows to return", ge=1, le=MAX_ROWS)] = 100,
    ) -> dict[str, Any]:
        """Answer questions about the data with a SELECT statement in SQL: how many, which, the most or least, averages, costs.

        Returns columns and rows; changes nothing.
        """
        with self._database.connect() as connection:
            cursor = connection.execute(sql, parameters)
            if cursor.description is None:
                raise ToolError("The statement returns no rows; query takes one SELECT statement.")
            columns = [column[0] for column in cursor.description]
            rows, truncated = _rows(cursor, max_rows)
        return {"columns": columns, "rows": rows, "row_count": len(rows), "truncated": truncated}

    def execute(
        self,
        sql: Annotated[str, Field(description="One INSERT, UPDATE, DELETE, CREATE, ALTER or DROP statement")],
        parameters: Parameters = (),
    ) -> dict[str, Any]:
        """Change the database with one SQL statement. Returns how many rows changed."""
        with self._database.connect(write=True) as connection:
            cursor = connection.execute(sql, parameters)
            if cursor.description is not None:
                cursor.fetchmany(MAX_ROWS)
        return {"rows_changed": max(cursor.rowcount, 0), "last_row_id": cursor.lastrowid}


def _names(connection: sqlite3.Connection) -> dict[str, str]:
    rows = connection.execute(
        "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' "
        "ESCAPE '\\' ORDER BY name"
    )
    return dict(rows.fetchall())


def _columns(connection: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    try:
        columns = connection.execute(f"PRAGMA table_info({_quoted(table)})").fetchall()
    except sqlite3.OperationalError:
        # A view of a dropped table has no columns; the other tables are still usable.
        return []
    return [
        {"name": name, "type": kind, "required": bool(required), "primary_key": bool(key)}
        for _, name, kind, required, _, key in columns
    ]


def _count(connection: sqlite3.Connection, table: str) -> int:
    count: int = connection.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()[0]
    return count


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _rows(cursor: sqlite3.Cursor, limit: int) -> tuple[list[list[Any]], bool]:
    """Return the rows, each shortened, and whether there are more than fit."""
    rows: list[list[Any]] = []
    characters = 0
    for row in cursor:
        shown = [_cell(value) for value in row]
        characters += sum(len(str(value)) for value in shown)
        if len(rows) == limit or (rows and characters > _RESULT_CHARACTERS):
            return rows, True
        rows.append(shown)
    return rows, False


def _cell(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, str) and len(value) > _CELL_CHARACTERS:
        return f"{value[:_CELL_CHARACTERS]}... ({len(value)} characters)"
    return value
