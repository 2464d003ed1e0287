from __future__ import annotations

import asyncio
import sqlite3
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp.client import Client
from mcp.client.subscriptions import listen

from casual_mcp_nb.bundled import build
from casual_mcp_nb.bundled import sqlite_server as _database
from casual_mcp_nb.isolation._statement import statement


@pytest.fixture
def shop() -> Iterator[object]:
    server = build("sqlite")
    yield server
    server.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my data?.db"
    connection = sqlite3.connect(path)
    connection.executescript(
        "CREATE TABLE t (a TEXT, b BLOB); INSERT INTO t VALUES ('x', x'00ff'), (NULL, NULL);"
        "CREATE TABLE gone (x); CREATE VIEW broken AS SELECT x FROM gone; DROP TABLE gone;"
    )
    connection.close()
    return path


async def test_the_sample_shop_is_listed_and_described(call, shop) -> None:
    tables = {table["name"]: table for table in (await call(shop, "list_tables"))["tables"]}

    assert list(tables) == ["customers", "order_items", "orders", "products"]
    assert [tables[name]["rows"] for name in ("customers", "orders", "products")] == [12, 40, 12]
    described = await call(shop, "describe_table", table="orders")
    assert described["foreign_keys"] == [
        {"column": "customer_id", "table": "customers", "referenced_column": "id"}
    ]
    assert described["columns"][0] == {
        "name": "id",
        "type": "INTEGER",
        "required": False,
        "primary_key": True,
    }


async def test_the_sample_shop_is_always_the_same(call) -> None:
    sql = "SELECT sum(quantity * price) FROM order_items JOIN products ON products.id = product_id"
    first, second = build("sqlite"), build("sqlite")

    assert (await call(first, "query", sql=sql))["rows"] == (await call(second, "query", sql=sql))[
        "rows"
    ]
    first.close()
    second.close()


async def test_a_query_returns_rows_and_says_when_there_are_more(call, shop) -> None:
    sql = "SELECT name FROM customers WHERE city = ? ORDER BY name"
    answer = await call(shop, "query", sql=sql, parameters=["Oslo"])
    assert answer == {
        "columns": ["name"],
        "rows": [["Ada Berg"], ["Lena Novak"]],
        "row_count": 2,
        "truncated": False,
    }
    assert (await call(shop, "query", sql="SELECT * FROM orders", max_rows=5))["truncated"] is True


async def test_a_summary_says_how_many_rows_each_group_and_table_has(
    call, shop, file: Path
) -> None:
    counted = await call(shop, "count_rows", table="orders", by="status")
    assert (
        counted["summary"]
        == "orders has 40 rows: 23 with status 'shipped', 9 with status 'returned', 8 with status"
        " 'open'."
    )
    assert "products (12 rows)" in (await call(shop, "list_tables"))["summary"]
    rows = await call(
        build("sqlite", ["--database", str(file), "--read-only"]), "count_rows", table="t", by="a"
    )
    assert "1 with a 'x'" in rows["summary"]
    assert "1 without a" in rows["summary"]


async def test_a_statement_changes_the_database_for_the_next_query(call, refused, shop) -> None:
    changed = await call(shop, "execute", sql="DELETE FROM order_items WHERE order_id = 1")
    assert changed["rows_changed"] > 0
    left = await call(shop, "query", sql="SELECT count(*) FROM order_items WHERE order_id = 1")
    assert left["rows"] == [[0]]
    assert "FOREIGN KEY" in await refused(shop, "execute", sql="DELETE FROM customers")


async def test_a_file_is_used_and_can_be_opened_without_the_tool_that_changes_it(
    call, refused, file: Path
) -> None:
    server = build("sqlite", ["--database", str(file), "--read-only"])

    assert {table["name"] for table in (await call(server, "list_tables"))["tables"]} == {
        "t",
        "broken",
    }
    rows = await call(server, "query", sql="SELECT * FROM t")
    assert rows["rows"] == [["x", "<2 bytes>"], [None, None]]
    assert "Unknown tool" in await refused(server, "execute", sql="DELETE FROM t")
    await call(
        build("sqlite", ["--database", str(file)]), "execute", sql="DELETE FROM t WHERE a = 'x'"
    )
    assert (await call(server, "query", sql="SELECT count(*) FROM t"))["rows"] == [[1]]


@pytest.mark.parametrize(
    ("tool", "sql", "fragment"),
    [
        ("query", "DELETE FROM orders", "Not permitted"),
        ("query", "WITH x AS (SELECT 1) INSERT INTO customers SELECT 1, 2, 3, 4", "Not permitted"),
        ("query", "CREATE TABLE x (y)", "Not permitted"),
        ("query", "PRAGMA query_only = OFF", "Not permitted"),
        ("query", "ATTACH 'FILE' AS x", "Not permitted"),
        ("query", "SELECT 1; SELECT 2", "one statement"),
        ("query", "SELECT load_extension('x')", "Not permitted"),
        ("query", "SELEC 1", "syntax error"),
        ("query", "", "returns no rows"),
        ("query", "SELECT * FROM order", "syntax error"),
        ("query", "SELECT * FROM nowhere", "no such table"),
        ("query", "SELECT ?", "SQLite:"),
        ("query", "SELECT zeroblob(1000000000)", "too big"),
        ("execute", "ATTACH 'FILE' AS x", "Not permitted"),
        ("execute", "VACUUM INTO 'FILE'", "SQLite|Not permitted"),
        ("execute", "PRAGMA writable_schema = ON", "Not permitted"),
    ],
)
async def test_a_statement_that_leaves_its_limits_is_refused(
    refused, shop, tmp_path: Path, tool: str, sql: str, fragment: str
) -> None:
    database = tmp_path / "made.db"
    text = await refused(shop, tool, sql=sql.replace("FILE", str(database)))

    assert any(part in text for part in fragment.split("|"))
    assert not database.exists()


async def test_a_query_without_end_is_stopped(
    refused, shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_database, "SECONDS", 0.5)
    text = await refused(
        shop,
        "query",
        sql="WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n",
    )

    assert "0.5 seconds" in text


async def test_a_huge_result_is_cut(call, shop) -> None:
    sql = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
        " hex(zeroblob(100000)) FROM n"
    )
    result = await call(shop, "query", sql=sql, max_rows=1000)

    assert result["truncated"] is True
    assert 10 < result["row_count"] < 1000
    assert result["rows"][0][0].endswith("... (200000 characters)")


async def test_an_unknown_table_is_answered_with_the_closest(refused, shop) -> None:
    assert "Closest: orders" in await refused(shop, "describe_table", table="order")


async def test_rows_are_listed_and_found_in_any_case(call, shop) -> None:
    result = await call(shop, "list_rows", table="customers", containing="oSLO")
    assert [row["name"] for row in result["rows"]] == ["Ada Berg", "Lena Novak"]
    assert result["rows"][0] == {
        "id": 1,
        "name": "Ada Berg",
        "email": "ada@example.com",
        "city": "Oslo",
    }
    listed = await call(shop, "list_rows", table="orders", max_rows=3)
    assert (listed["row_count"], listed["truncated"]) == (3, True)
    assert (await call(shop, "list_rows", table="orders", containing="%"))["rows"] == []


async def test_rows_are_counted_for_each_value_with_the_name_of_the_row_it_refers_to(
    call, shop
) -> None:
    assert (await call(shop, "count_rows", table="customers"))["count"] == 12
    counted = await call(shop, "count_rows", table="orders", by="customer_id")
    assert counted["groups"][0] == {"customer_id": 8, "name": "Hugo Jansen", "count": 8}
    assert sum(group["count"] for group in counted["groups"]) == counted["count"] == 40
    assert set((await call(shop, "count_rows", table="orders", by="status"))["groups"][0]) == {
        "status",
        "count",
    }


def server_with(path: Path, script: str) -> object:
    """A server for a new database."""
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    return build("sqlite", ["--database", str(path)])


async def test_letters_outside_ascii_are_found_in_any_case(call, tmp_path: Path) -> None:
    server = server_with(
        tmp_path / "data.db",
        "CREATE TABLE t (x); INSERT INTO t VALUES ('École'), ('ÉCOLE'), ('Straße'), (7), (NULL),"
        " (x'00ff');",
    )
    found = await call(server, "list_rows", table="t", containing="école")
    assert [row["x"] for row in found["rows"]] == ["École", "ÉCOLE"]
    assert (await call(server, "list_rows", table="t", containing="é 7"))["rows"] == []
    assert len((await call(server, "list_rows", table="t", containing="strAße"))["rows"]) == 1


async def test_a_group_keeps_its_value_beside_a_name_and_a_count(call, tmp_path: Path) -> None:
    server = server_with(
        tmp_path / "data.db",
        """
        CREATE TABLE doctors (id INTEGER PRIMARY KEY, doctor TEXT);
        CREATE TABLE visits (doctor INTEGER REFERENCES doctors (id), count INTEGER);
        CREATE TABLE staff (id INTEGER PRIMARY KEY, name TEXT, boss REFERENCES staff (id));
        CREATE TABLE sizes (id INTEGER PRIMARY KEY, count TEXT);
        CREATE TABLE boxes (size INTEGER REFERENCES sizes (id));
        INSERT INTO doctors VALUES (1, 'Ann');
        INSERT INTO visits VALUES (1, 5), (1, 5);
        INSERT INTO staff VALUES (1, 'Ada', NULL), (2, 'Bo', 1), (3, 'Cy', 1), (4, 'Di', 1);
        INSERT INTO sizes VALUES (3, 'three');
        INSERT INTO boxes VALUES (3);
        """,
    )

    async def first(table: str, by: str) -> dict[str, object]:
        return (await call(server, "count_rows", table=table, by=by))["groups"][0]

    assert await first("visits", "doctor") == {"doctor": 1, "doctors.doctor": "Ann", "count": 2}
    assert await first("visits", "count") == {"count": 5, "row_count": 2}
    assert await first("boxes", "size") == {"size": 3, "count": "three", "row_count": 1}
    assert await first("staff", "boss") == {"boss": 1, "name": "Ada", "count": 3}


async def test_the_figures_of_a_column_are_those_of_its_numbers(call, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "data.db")
    connection.executescript(
        "CREATE TABLE t (x); INSERT INTO t VALUES (1), (2.0), (2), ('none'), (NULL), (x'00');"
    )
    connection.close()
    figures = await call(
        build("sqlite", ["--database", str(tmp_path / "data.db")]),
        "summarize_column",
        table="t",
        column="x",
    )

    assert (figures["minimum"], figures["maximum"], figures["sum"]) == (1, "<1 bytes>", 5)
    assert figures["average"] == pytest.approx(5 / 3)
    assert (figures["values"], figures["different_values"], figures["empty"]) == (5, 4, 1)


@pytest.mark.parametrize(
    ("tool", "arguments", "fragment"),
    [
        ("count_rows", {"table": "product"}, "Closest: products"),
        ("list_rows", {"table": 'orders" --'}, "Closest: orders"),
        ("count_rows", {"table": "orders", "by": "state"}, "Closest: status"),
        (
            "summarize_column",
            {"table": "orders", "column": "price"},
            "Valid: id, customer_id, ordered_on, status",
        ),
    ],
)
async def test_an_unknown_name_is_answered_with_the_valid_ones(
    refused, shop, tool: str, arguments: dict[str, str], fragment: str
) -> None:
    assert fragment in await refused(shop, tool, **arguments)


async def test_a_view_without_end_is_stopped(
    call, refused, shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE"
        " i < 0"
    )
    await call(shop, "execute", sql=f"CREATE VIEW endless AS {endless}")
    monkeypatch.setattr(_database, "SECONDS", 0.5)
    for tool in ("list_rows", "count_rows"):
        assert "0.5 seconds" in await refused(shop, tool, table="endless")


async def test_the_definitions_name_the_tables_and_change_with_them(shop) -> None:
    def choices(listed: object) -> dict[str, list[str]]:
        tools = {tool.name: tool.input_schema["properties"] for tool in listed.tools}
        return {
            "table": tools["list_rows"]["table"]["enum"],
            "column": tools["summarize_column"]["column"]["enum"],
        }

    async with Client(shop) as client, listen(client.session, tools_list_changed=True) as changes:
        before = choices(await client.list_tools())
        await client.call_tool("execute", {"sql": 'CREATE TABLE "a ""b""" ("x y")'})
        await asyncio.wait_for(anext(changes), 10)
        after = choices(await client.list_tools())
        rows = await client.call_tool("list_rows", {"table": 'a "b"', "containing": "x"})

    assert before["table"] == ["customers", "order_items", "orders", "products"]
    assert after["table"] == ['a "b"', *before["table"]]
    assert after["column"] == ["x y", *before["column"]]
    assert rows.structured_content["rows"] == []


async def test_many_tables_are_not_all_named(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "many.db")
    connection.executescript("".join(f"CREATE TABLE t{number} (x);" for number in range(101)))
    connection.close()
    async with Client(build("sqlite", ["--database", str(tmp_path / "many.db")])) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}

    assert "enum" not in tools["list_rows"].input_schema["properties"]["table"]
    assert tools["summarize_column"].input_schema["properties"]["column"]["enum"] == ["x"]
    assert "Tables:" not in tools["query"].description


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
LONG = "hex(zeroblob(2400000))"
"""Nearly five million characters."""
HALF = f"substr({LONG}, 2500000) || 'x'"


def size_of(file: Path) -> int:
    return file.stat().st_size


@pytest.mark.defect("G4")
async def test_a_statement_cannot_grow_the_file_beyond_its_limit(
    call, refused, shop, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_database, "MAX_GROWTH", 3_000_000)
    monkeypatch.setattr(_database, "MAX_SAMPLE", 3_000_000)
    size, server = size_of(file), build("sqlite", ["--database", str(file)])
    for opened in (server, shop):
        text = await refused(
            opened,
            "execute",
            sql=f"CREATE TABLE big AS {ENDLESS} SELECT randomblob(1000000) FROM n",
        )
        assert "full" in text
        assert "big" not in [
            table["name"] for table in (await call(opened, "list_tables"))["tables"]
        ]
    await call(server, "execute", sql="CREATE TABLE big AS SELECT randomblob(1000000)")
    assert size < size_of(file) < size + 3_100_000
    server.close()


@pytest.mark.defect("G4")
@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT count(*) FROM (SELECT {LONG} || i AS b FROM n ORDER BY b LIMIT -1 OFFSET 1)",
        f"SELECT count(DISTINCT {LONG} || i) FROM n",
    ],
)
async def test_a_statement_has_bounded_memory_and_writes_no_temporary_files(
    refused, shop, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    monkeypatch.setattr(_database, "SECONDS", 60.0)
    assert "too much memory" in await refused(shop, "query", sql=ENDLESS + sql)


@pytest.mark.defect("G4")
@pytest.mark.parametrize(
    "operation",
    [
        f"instr({LONG}, substr({LONG}, 2500000) || 'x')",
        f"replace({LONG}, substr({LONG}, 2500000) || 'x', '')",
    ],
)
async def test_a_single_operation_without_end_is_stopped(
    call, refused, shop, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setattr(_database, "SECONDS", 0.3)
    monkeypatch.setattr(_database, "_GRACE", 0.2)
    sql = f"SELECT sum({operation}) FROM orders, customers, products"
    assert "0.3 seconds" in await refused(shop, "query", sql=sql)
    monkeypatch.undo()
    assert (await call(shop, "count_rows", table="orders"))["count"] == 40


@pytest.mark.defect("G4")
async def test_a_change_that_is_killed_leaves_the_file_as_it_was(
    call, refused, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = build("sqlite", ["--database", str(file)])
    await call(
        server, "execute", sql=f"INSERT INTO t {ENDLESS} SELECT i, zeroblob(1000) FROM n LIMIT 5000"
    )
    monkeypatch.setattr(_database, "SECONDS", 0.3)
    monkeypatch.setattr(_database, "_GRACE", 0.2)
    sql = f"UPDATE t SET a = CASE WHEN rowid < 4900 THEN 'changed' ELSE instr({LONG}, {HALF}) END"
    assert "stopped after" in await refused(server, "execute", sql=sql)
    monkeypatch.undo()
    assert (await call(server, "query", sql="SELECT count(*) FROM t WHERE a = 'changed'"))[
        "rows"
    ] == [[0]]
    server.close()


@pytest.mark.defect("F26")
@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT ?1, ?2, ?1", [["a", "b", "a"]]),
        ("SELECT ?, ?", [["a", "b"]]),
        ("SELECT ?, ? || '?1'", [["a", "b?1"]]),
        ("SELECT ?2, ?1", [["b", "a"]]),
    ],
)
async def test_parameters_are_bound_by_position_and_by_number_on_every_python(
    call, shop, sql: str, rows: list
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job = {
            "uri": "file::memory:",
            "write": True,
            "guard": True,
            "sql": sql,
            "parameters": ["a", "b"],
            "seconds": 5,
        }
        assert statement({**job, "growth": 0, "max_rows": 9, "max_cell": 99})["rows"] == rows
    assert (await call(shop, "query", sql=sql, parameters=["a", "b"]))["rows"] == rows
