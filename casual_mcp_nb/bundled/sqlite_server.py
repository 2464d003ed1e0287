"""The `sqlite` server: inspect and change an SQLite database."""

from __future__ import annotations

import argparse
import re
import shutil
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Protocol

from anyio import from_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from pydantic import Field, WithJsonSchema

from casual_mcp_nb.bundled._sample_shop import fill
from casual_mcp_nb.bundled._server import FunctionServer, closest, counted, destroys, reads
from casual_mcp_nb.isolation.worker import GaveUp, Worker

SECONDS = 5.0
"""Time limit for one tool's statements together."""
MAX_ROWS = 1000
MAX_GROWTH = 100_000_000
MAX_SAMPLE = 50_000_000
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
    """A statement's result.

    Iterating over it yields its rows, each shortened; without columns it has none.
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
        """The rows with their column names."""
        return [dict(zip(self.columns or (), row, strict=True)) for row in self.rows]


class Database:
    """A database file, or the sample shop in a temporary one."""

    def __init__(self, file: str | None) -> None:
        self._lock = threading.Lock()
        self._worker = Worker()
        self._sample = file is None
        if file is None:
            self._path = _sample_file(self)
        elif Path(file).is_file():
            self._path = Path(file).resolve()
        else:
            raise ValueError(f"the database file does not exist: {file}")

    def close(self) -> None:
        """End the process, and delete the sample."""
        self._worker.close()
        if self._sample:
            shutil.rmtree(self._path.parent, ignore_errors=True)

    @contextmanager
    def schema(self) -> Iterator[sqlite3.Connection]:
        """Open a connection in this process, for our own statements about tables and columns, as at
        the start.

        Raises:
            ToolError: The file cannot be read.
        """
        uri = f"{self._path.as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=2)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise ToolError(f"The database cannot be opened: {error}.") from error

    @contextmanager
    def connect(self, *, write: bool = False, guard: bool = True) -> Iterator[DatabaseConnection]:
        """Open the database for one tool; only our own statements run without the guard."""
        with self._lock:
            yield DatabaseConnection(self, write, guard)

    def run(
        self,
        sql: str,
        parameters: Sequence[Any] | Mapping[str, Any],
        seconds: float,
        *,
        write: bool,
        guard: bool,
        max_rows: int,
        max_cell: int,
    ) -> Result:
        """Run a statement, while no other one runs; `_statement.statement` has what the arguments
        mean.
        """
        growth = MAX_GROWTH
        if self._sample:
            growth = max(0, MAX_SAMPLE - self._path.stat().st_size)
        job = {
            "uri": self._path.as_uri(),
            "sql": sql,
            "parameters": dict(parameters) if isinstance(parameters, Mapping) else list(parameters),
            "seconds": seconds,
            "growth": growth,
            "write": write,
            "guard": guard,
            "max_rows": max_rows,
            "max_cell": max_cell,
        }
        try:
            answer = self._worker.run("statement", job, seconds + _GRACE)
        except GaveUp as error:
            if write:
                # A process that was killed leaves a journal, which only a connection that may write
                # can roll back.
                rollback = {**job, "sql": "SELECT 1 FROM sqlite_master", "parameters": []}
                with suppress(GaveUp):
                    self._worker.run("statement", rollback, SECONDS)
            text = str(error)
            if "took more" in text:
                text = "interrupted"
            raise ToolError(_explained(text)) from None
        if "error" in answer:
            raise ToolError(_explained(answer["error"]))
        return Result(**answer)


class DatabaseConnection:
    """The database for one tool's statements, which share its time.

    With `guard`, they have the rights of untrusted statements.
    """

    def __init__(self, database: Database, write: bool, guard: bool) -> None:
        self._database, self._write, self._guard = database, write, guard
        self._deadline = time.monotonic() + SECONDS

    def execute(
        self,
        sql: str,
        parameters: Sequence[Any] | Mapping[str, Any] = (),
        max_rows: int = MAX_ROWS,
        *,
        whole: bool = False,
    ) -> Result:
        """Run a statement; `whole` returns values as long as a definition in the schema can be."""
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise ToolError(_explained("interrupted"))
        return self._database.run(
            sql,
            parameters,
            seconds,
            write=self._write,
            guard=self._guard,
            max_rows=max_rows,
            max_cell=_MAX_DEFINITION if whole else _CELL_CHARACTERS,
        )


def _sample_file(owner: Database) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="casual-mcp-nb-"))
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    path = folder.resolve() / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        # Nobody else has the file yet, so nothing waits for the disk.
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = MEMORY")
        fill(connection)
    return path


def _explained(text: str) -> str:
    if "interrupted" in text:
        return f"The statement was stopped after {SECONDS:g} seconds."
    if "not authorized" in text or "prohibited" in text:
        return (
            "Not permitted here. query only reads (SELECT); no tool attaches files or runs PRAGMA."
        )
    if "too much memory" in text or "ended early" in text:
        return (
            "The statement was stopped: it needs too much memory. Read or change fewer rows in one"
            " statement."
        )
    if "disk is full" in text:
        return (
            "SQLite: database or disk is full. This statement adds too much to the database. Change"
            " fewer rows."
        )
    return f"SQLite: {text}."


_MAX_OUTLINE = 600
_MAX_SAID = 20
"""How many tables or groups a summary names."""
_MAX_VALUE = 40
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
    parser.add_argument(
        "--database", metavar="FILE", help="an SQLite file (default: a sample shop)"
    )
    parser.add_argument(
        "--read-only", action="store_true", help="leave out the tool that changes the database"
    )


def build(database: str | None = None, read_only: bool = False) -> FunctionServer:
    """Build the server. Without a database, it has a sample shop, which is forgotten at the end."""
    opened = Database(database)
    tools = Tables(opened)
    # Small models write wrong SQL more often than wrong arguments, and the offline planner writes
    # none, so what is asked most has tools beside `query`.
    registered = reads(
        tools.list_tables,
        tools.describe_table,
        tools.list_rows,
        tools.count_rows,
        tools.summarize_column,
        tools.query,
    )
    if not read_only:
        registered += destroys(tools.execute)
    with opened.schema() as connection:
        tools.outline(connection, registered)
    what = "An SQLite database."
    if database is None:
        what = "A sample shop: customers, products, orders."
    server = FunctionServer("sqlite", what, registered, on_close=opened.close)
    server.resource(
        "sqlite://schema",
        name="schema",
        description="The SQL that defines the tables",
        mime_type="text/plain",
    )(tools.definitions)
    server.prompt(name="explore", description="Ask for an overview of one table")(explore)
    return server


def explore(table: Annotated[str, Field(description="A table of the database")]) -> str:
    """Write the message of the prompt."""
    return (
        f"What is in the table {table}? Describe its columns, show a few rows, and say how many"
        " there are."
    )


class Tables:
    """The tools for one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tools: Sequence[Tool] = ()
        self._columns: dict[str, list[str]] = {}

    def outline(self, connection: Statements, tools: Sequence[Tool]) -> bool:
        """Name the tables and columns in the tools' definitions, if there are few: it saves a model
        one step.

        Returns:
            Whether they have changed.
        """
        before, self._tools = self._columns, tools
        self._columns = {name: _column_names(connection, name) for name in _names(connection)}
        columns = list(dict.fromkeys(chain.from_iterable(self._columns.values())))
        # No value from the data is here: a model sees one only after a call, which can be refused.
        choices = {"table": list(self._columns), "column": columns, "by": ["", *columns]}
        outline = "; ".join(f"{name} ({', '.join(own)})" for name, own in self._columns.items())
        for tool in tools:
            if tool.name == "query":
                tool.description = tool.description.partition(" Tables: ")[0]
                if 0 < len(outline) <= _MAX_OUTLINE:
                    tool.description += f" Tables: {outline}."
            for name, schema in tool.parameters["properties"].items():
                schema.pop("enum", None)
                if 0 < len(choices.get(name, ())) <= _MAX_CHOICES:
                    schema["enum"] = choices[name]
        return self._columns != before

    def definitions(self) -> str:
        """Read the SQL that defines the tables and views."""
        with self._database.connect(guard=False) as connection:
            rows = connection.execute(
                "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name", whole=True
            )
        return "\n\n".join(f"{sql};" for [sql] in rows)

    def list_tables(self) -> dict[str, Any]:
        """List the tables and views of the database with their columns and the number of rows."""
        tables: list[dict[str, Any]] = []
        said = []
        with self._database.connect(guard=False) as connection:
            for name, kind in _names(connection).items():
                rows, size = None, "view"
                if kind == "table":
                    rows = _count(connection, name)
                    size = counted(rows, "row")
                columns = _column_names(connection, name)
                tables.append({"name": name, "kind": kind, "columns": columns, "rows": rows})
                said.append(f"{name} ({size})")
        listed = ", ".join(said[:_MAX_SAID]) or "none"
        more = ", …" if len(said) > _MAX_SAID else ""
        return {
            "summary": f"The database has {counted(len(tables), 'table')}: {listed}{more}.",
            "tables": tables,
        }

    def describe_table(self, table: Table) -> dict[str, Any]:
        """Show the columns, foreign keys and SQL definition of a table."""
        with self._reading(table) as connection:
            [[definition]] = connection.execute(
                "SELECT sql FROM sqlite_master WHERE name = ?", (table,), whole=True
            )
            columns = _columns(connection, table)
            references = []
            for own, other, key in _references(connection, table):
                references.append({"column": own, "table": other, "referenced_column": key})
        summary = (
            f"{table} has {counted(len(columns), 'column')}:"
            f" {', '.join(column['name'] for column in columns)}."
        )
        return {
            "summary": summary,
            "table": table,
            "columns": columns,
            "foreign_keys": references,
            "sql": definition,
        }

    def list_rows(
        self,
        table: Table,
        containing: Annotated[
            str,
            Field(description="Only rows with this text in a cell, in any case", max_length=1000),
        ] = "",
        max_rows: MaxRows = 20,
    ) -> dict[str, Any]:
        """List the rows of a table, or those that contain a text: find what has a name, a place or
        a status.
        """
        # Several times as fast, but it folds ASCII letters only.
        fold = "lower" if containing.isascii() else "casefold"
        with self._reading(table) as connection:
            conditions = [":text = ''"]
            for name in _column_names(connection, table):
                conditions.append(f"instr({fold}({_quoted(name)}), {fold}(:text))")
            sql = f"SELECT * FROM {_quoted(table)} WHERE {' OR '.join(conditions)}"
            result = connection.execute(sql, {"text": containing}, max_rows)
        match = f" contain {containing!r}" if containing else ""
        more = "The first " if result.truncated else ""
        summary = f"{more}{counted(len(result.rows), 'row')} of {table}{match}."
        return {
            "summary": summary,
            "rows": result.records,
            "row_count": len(result.rows),
            "truncated": result.truncated,
        }

    def count_rows(
        self,
        table: Table,
        by: Annotated[str, Field(description="Column: count the rows for each of its values")] = "",
    ) -> dict[str, Any]:
        """Count the rows of a table: how many there are in all, and how many with each value of a
        column.
        """
        with self._reading(table, by) as connection:
            count = _count(connection, table)
            if not by:
                return {"summary": f"{table} has {counted(count, 'row')}.", "count": count}
            own = _quoted(by)
            label, label_sql = _label(connection, table, by)
            # A group is returned as an object, whose keys must differ.
            count_name = "count" if "count" not in (by, label) else "row_count"
            sql = (
                f"SELECT {own}{label_sql}, count(*) AS {count_name} FROM {_quoted(table)} GROUP BY"
                f" {own}"
            )
            groups = connection.execute(f"{sql} ORDER BY count(*) DESC, {own}")
        sizes = ", ".join(_group(row, by) for row in groups.rows[:_MAX_SAID])
        more = ", …" if len(groups.rows) > _MAX_SAID or groups.truncated else ""
        summary = f"{table} has {counted(count, 'row')}: {sizes or 'none'}{more}."
        return {
            "summary": summary,
            "count": count,
            "groups": groups.records,
            "truncated": groups.truncated,
        }

    def summarize_column(self, table: Table, column: Column) -> dict[str, Any]:
        """Show the minimum, maximum, sum (the total) and average of a table's column, and how many
        values it has.
        """
        with self._reading(table, column) as connection:
            name = _quoted(column)
            numbers = f"FILTER (WHERE typeof({name}) IN ('integer', 'real'))"
            figures = {
                "minimum": f"min({name})",
                "maximum": f"max({name})",
                "sum": f"sum({name}) {numbers}",
                "average": f"avg({name}) {numbers}",
                "values": f"count({name})",
                "different_values": f"count(DISTINCT {name})",
                "empty": f"count(*) - count({name})",
            }
            [row] = connection.execute(
                f"SELECT {', '.join(figures.values())} FROM {_quoted(table)}"
            )
        values = dict(zip(figures, row, strict=True))
        summary = f"{table}.{column}: minimum {values['minimum']}, maximum {values['maximum']}"
        for figure in ("sum", "average"):
            if values[figure] is not None:
                summary += f", {figure} {values[figure]:,.12g}"
        return {"summary": f"{summary}.", **values}

    def query(
        self,
        sql: Annotated[str, Field(description="One SELECT statement in SQLite's SQL")],
        parameters: Parameters = (),
        max_rows: MaxRows = 100,
    ) -> dict[str, Any]:
        """Answer questions about the data with a SELECT statement in SQL: how many, which, the most
        or least, averages, costs.

        Returns columns and rows; changes nothing.
        """
        with self._database.connect() as connection:
            result = connection.execute(sql, parameters, max_rows)
        if result.columns is None:
            raise ToolError("The statement returns no rows; query takes one SELECT statement.")
        return {
            "columns": result.columns,
            "rows": result.rows,
            "row_count": len(result.rows),
            "truncated": result.truncated,
        }

    def execute(
        self,
        context: Context[Any, Any],
        sql: Annotated[
            str, Field(description="One INSERT, UPDATE, DELETE, CREATE, ALTER or DROP statement")
        ],
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
        """Open a connection to read a table; the table, and the column if there is one, are
        checked.
        """
        with self._database.connect(guard=False) as connection:
            tables = list(_names(connection))
            if table not in tables:
                raise ToolError(f"There is no table {table[:60]!r}. {closest(table, tables)}")
            if column:
                columns = _column_names(connection, table)
                if column not in columns:
                    hint = closest(column, columns)
                    raise ToolError(f"{table} has no column {column[:60]!r}. {hint}")
            yield connection


def _names(connection: Statements) -> dict[str, str]:
    """List the tables and views by name, with `table` or `view`."""
    rows = connection.execute(
        "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE"
        " 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    )
    return {str(name): str(kind) for name, kind in rows}


def _columns(connection: Statements, table: str) -> list[dict[str, Any]]:
    try:
        columns = list(connection.execute(f"PRAGMA table_info({_quoted(table)})"))
    except (sqlite3.OperationalError, ToolError):
        # A view on a dropped table has no columns; the other tables are still usable.
        return []
    return [
        {"name": name, "type": kind, "required": bool(required), "primary_key": bool(key)}
        for _, name, kind, required, _, key in columns
    ]


def _column_names(connection: Statements, table: str) -> list[str]:
    return [column["name"] for column in _columns(connection, table)]


def _references(connection: Statements, table: str) -> list[tuple[str, str, str | None]]:
    """Read a table's foreign keys: the column, the other table and its column; None for its primary
    key.
    """
    return [
        (key[3], key[2], key[4])
        for key in connection.execute(f"PRAGMA foreign_key_list({_quoted(table)})")
    ]


def _label(connection: Statements, table: str, column: str) -> tuple[str, str]:
    """Build a further column for a query: the first text in the row to which a foreign key refers.

    Returns:
        Its name and its SQL, or two empty texts.
    """
    for own, other, key in _references(connection, table):
        columns = _columns(connection, other)
        primary = [each["name"] for each in columns if each["primary_key"]]
        texts = [each["name"] for each in columns if re.search("TEXT|CHAR", each["type"], re.I)]
        if own == column and texts and len(primary) == 1 and key in (None, *primary):
            name = texts[0] if texts[0] != column else f"{other}.{texts[0]}"
            # The other table can be this one.
            sql = (
                f", (SELECT referenced.{_quoted(texts[0])} FROM {_quoted(other)} AS referenced WHERE"
                f" referenced.{_quoted(primary[0])} = {_quoted(table)}.{_quoted(column)})"
                f" AS {_quoted(name)}"
            )
            return name, sql
    return "", ""


def _group(row: Sequence[Any], by: str) -> str:
    """Write how many rows have a value. The value comes first, and the count last."""
    value, count = row[0], row[-1]
    if value is None:
        return f"{count:,} without {by}"
    text = repr(value[:_MAX_VALUE]) if isinstance(value, str) else str(value)[:_MAX_VALUE]
    return f"{count:,} with {by} {text}"


def _count(connection: Statements, table: str) -> int:
    [[count]] = connection.execute(f"SELECT count(*) FROM {_quoted(table)}")
    return int(count)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
