"""The `sqlite` server: inspect and change an SQLite database."""

from __future__ import annotations

import argparse
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any

from anyio import from_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from pydantic import Field, WithJsonSchema

from casual_mcp_nb.bundled._database import MAX_ROWS, Database, DatabaseConnection, Statements
from casual_mcp_nb.bundled._server import FunctionServer, ToolError, closest, destroys, reads

_MAX_OUTLINE = 600
_MAX_CHOICES = 100

Table = Annotated[str, Field(description="Name of the table")]
Column = Annotated[str, Field(description="Name of the column")]
MaxRows = Annotated[int, Field(description="The most rows to return", ge=1, le=MAX_ROWS)]
Parameters = Annotated[
    tuple[str | int | float | None, ...],
    Field(description="Values for the ? in the statement, in order", max_length=100),
    WithJsonSchema({"type": "array", "items": {"type": ["string", "number", "null"]}}),
]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the server's command line options."""
    parser.add_argument("--database", metavar="FILE", help="an SQLite file (default: a sample shop)")
    parser.add_argument("--read-only", action="store_true", help="leave out the tool that changes the database")


def build(database: str | None = None, read_only: bool = False) -> FunctionServer:
    """Build the server.

    Args:
        database: An existing SQLite file; None for the sample shop, which is forgotten at the end.
        read_only: Leave out the `execute` tool.

    Raises:
        ValueError: The file does not exist.
    """
    opened = Database(database)
    tools = Tables(opened)
    registered = reads(
        tools.list_tables, tools.describe_table, tools.list_rows, tools.count_rows, tools.summarize_column, tools.query
    )
    if not read_only:
        registered += destroys(tools.execute)
    with opened.schema() as connection:
        tools.outline(connection, registered)
    what = "A sample shop: customers, products, orders." if database is None else "An SQLite database."
    return FunctionServer("sqlite", what, registered, on_close=opened.close)


class Tables:
    """The tools of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tools: Sequence[Tool] = ()
        self._columns: dict[str, list[str]] = {}

    def outline(self, connection: Statements, tools: Sequence[Tool]) -> bool:
        """Name the tables and columns in the tools' definitions, as far as they are few: it saves a model the step of looking.

        Returns:
            Whether they are others than before.
        """
        before, self._tools = self._columns, tools
        self._columns = {name: [each["name"] for each in _columns(connection, name)] for name in _names(connection)}
        columns = list(dict.fromkeys(name for names in self._columns.values() for name in names))
        choices = {"table": list(self._columns), "column": columns, "by": ["", *columns]}
        text = "; ".join(f"{name} ({', '.join(names)})" for name, names in self._columns.items())
        for tool in tools:
            if tool.name == "query":
                outline = f" Tables: {text}." if text and len(text) <= _MAX_OUTLINE else ""
                tool.description = tool.description.partition(" Tables: ")[0] + outline
            for name, schema in tool.parameters["properties"].items():
                schema.pop("enum", None)
                if 0 < len(choices.get(name, ())) <= _MAX_CHOICES:
                    schema["enum"] = choices[name]
        return self._columns != before

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
        with self._reading(table) as connection:
            [[definition]] = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,), whole=True)
            columns = _columns(connection, table)
            references = [
                {"column": own, "table": other, "referenced_column": key} for own, other, key in _references(connection, table)
            ]
        return {"table": table, "columns": columns, "foreign_keys": references, "sql": definition}

    def list_rows(
        self,
        table: Table,
        containing: Annotated[str, Field(description="Only rows with this text in a cell, in any case", max_length=1000)] = "",
        max_rows: MaxRows = 20,
    ) -> dict[str, Any]:
        """List the rows of a table, or those that contain a text: find what has a name, a place or a status."""
        with self._reading(table) as connection:
            names = [_quoted(column["name"]) for column in _columns(connection, table)]
            cells = [":text = ''", *(f"instr(lower({name}), lower(:text))" for name in names)]
            sql = f"SELECT * FROM {_quoted(table)} WHERE {' OR '.join(cells)}"
            result = connection.execute(sql, {"text": containing}, max_rows)
        return {"rows": result.records, "row_count": len(result.rows), "truncated": result.truncated}

    def count_rows(
        self, table: Table, by: Annotated[str, Field(description="Column: count the rows for each of its values")] = ""
    ) -> dict[str, Any]:
        """Count the rows of a table: how many there are in all, and how many with each value of a column."""
        with self._reading(table, by) as connection:
            count = _count(connection, table)
            if not by:
                return {"count": count}
            own = _quoted(by)
            sql = f"SELECT {own}{_label(connection, table, by)}, count(*) AS count FROM {_quoted(table)} GROUP BY {own}"
            groups = connection.execute(f"{sql} ORDER BY count(*) DESC, {own}")
        return {"count": count, "groups": groups.records, "truncated": groups.truncated}

    def summarize_column(self, table: Table, column: Column) -> dict[str, Any]:
        """Show the minimum, maximum, sum (the total) and average of a table's column, and how many values it has."""
        with self._reading(table, column) as connection:
            name, numbers = _quoted(column), f"FILTER (WHERE typeof({_quoted(column)}) IN ('integer', 'real'))"
            figures = {
                "minimum": f"min({name})",
                "maximum": f"max({name})",
                "sum": f"sum({name}) {numbers}",
                "average": f"avg({name}) {numbers}",
                "values": f"count({name})",
                "different_values": f"count(DISTINCT {name})",
                "empty": f"count(*) - count({name})",
            }
            [row] = connection.execute(f"SELECT {', '.join(figures.values())} FROM {_quoted(table)}")
        return dict(zip(figures, row, strict=True))

    def query(
        self,
        sql: Annotated[str, Field(description="One SELECT statement in SQLite's SQL")],
        parameters: Parameters = (),
        max_rows: MaxRows = 100,
    ) -> dict[str, Any]:
        """Answer questions about the data with a SELECT statement in SQL: how many, which, the most or least, averages, costs.

        Returns columns and rows; changes nothing.
        """
        with self._database.connect() as connection:
            result = connection.execute(sql, parameters, max_rows)
        if result.columns is None:
            raise ToolError("The statement returns no rows; query takes one SELECT statement.")
        rows = {"rows": result.rows, "row_count": len(result.rows), "truncated": result.truncated}
        return {"columns": result.columns, **rows}

    def execute(
        self,
        context: Context[Any, Any],
        sql: Annotated[str, Field(description="One INSERT, UPDATE, DELETE, CREATE, ALTER or DROP statement")],
        parameters: Parameters = (),
    ) -> dict[str, Any]:
        """Change the database with one SQL statement. Returns how many rows changed."""
        with self._database.connect(write=True) as connection:
            done = connection.execute(sql, parameters)
        # The change is made, whether or not the tables can be read now.
        with suppress(ToolError), self._database.connect(guard=False) as connection:
            if self.outline(connection, self._tools):
                from_thread.run(context.notify_tools_changed)
                from_thread.run(context.session.send_tool_list_changed)
        return {"rows_changed": done.changed, "last_row_id": done.last_id}

    @contextmanager
    def _reading(self, table: str, column: str = "") -> Iterator[DatabaseConnection]:
        """Open a connection to read a table; the table, and the column if there is one, are checked."""
        with self._database.connect(guard=False) as connection:
            if table not in (names := list(_names(connection))):
                raise ToolError(f"There is no table {table[:60]!r}. {closest(table, names)}")
            if column and column not in (names := [each["name"] for each in _columns(connection, table)]):
                raise ToolError(f"{table} has no column {column[:60]!r}. {closest(column, names)}")
            yield connection


def _names(connection: Statements) -> dict[str, str]:
    rows = connection.execute(
        "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' "
        "ESCAPE '\\' ORDER BY name"
    )
    return {str(name): str(kind) for name, kind in rows}


def _columns(connection: Statements, table: str) -> list[dict[str, Any]]:
    try:
        columns = list(connection.execute(f"PRAGMA table_info({_quoted(table)})"))
    except (sqlite3.OperationalError, ToolError):
        # A view of a dropped table has no columns; the other tables are still usable.
        return []
    return [
        {"name": name, "type": kind, "required": bool(required), "primary_key": bool(key)}
        for _, name, kind, required, _, key in columns
    ]


def _references(connection: Statements, table: str) -> list[tuple[str, str, str | None]]:
    """Read the foreign keys of a table: the column, the other table and its column; None for its primary key."""
    return [(key[3], key[2], key[4]) for key in connection.execute(f"PRAGMA foreign_key_list({_quoted(table)})")]


def _label(connection: Statements, table: str, column: str) -> str:
    """Build a further column for a query, if any: the first text of the row to which a foreign key refers."""
    for own, other, key in _references(connection, table):
        columns = _columns(connection, other)
        primary = [each["name"] for each in columns if each["primary_key"]]
        texts = [each["name"] for each in columns if re.search("TEXT|CHAR", each["type"], re.I)]
        if own == column and texts and len(primary) == 1 and key in (None, *primary):
            row = f"{_quoted(other)}.{_quoted(primary[0])} = {_quoted(table)}.{_quoted(column)}"
            return f", (SELECT {_quoted(texts[0])} FROM {_quoted(other)} WHERE {row}) AS {_quoted(texts[0])}"
    return ""


def _count(connection: Statements, table: str) -> int:
    [[count]] = connection.execute(f"SELECT count(*) FROM {_quoted(table)}")
    return int(count)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
