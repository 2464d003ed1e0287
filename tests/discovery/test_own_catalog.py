"""Discovery over a catalog that somebody else implements: tools in a SQLite database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from casual_mcp_nb import Case, evaluate
from casual_mcp_nb.base.tool import Catalog, ToolCatalog, ToolName, ToolSpec
from casual_mcp_nb.discovery.manifest import generate_manifest
from casual_mcp_nb.discovery.search_tools import SearchToolsTool, ToolSearchIndex
from casual_mcp_nb.experiments.lint import lint

pytestmark = pytest.mark.defect("H9")

TOOLS = [
    ToolSpec(
        "math",
        "add",
        "Add two numbers.",
        {"type": "object", "properties": {"a": {"type": "number"}}},
    ),
    ToolSpec("mail", "send", "Send a mail to somebody."),
    ToolSpec("mail", "search", "Search the mailbox for mails."),
    ToolSpec("calendar", "create_event", "Create an event in the calendar."),
]


class SqliteCatalog:
    """Tools in a table; nothing of them is kept in memory."""

    def __init__(self) -> None:
        self.database = sqlite3.connect(":memory:")
        self.database.execute(
            "CREATE TABLE tools (server TEXT, name TEXT, description TEXT, schema TEXT, wire TEXT"
            " UNIQUE)"
        )
        rows = [
            (t.server, t.name, t.description, json.dumps(t.input_schema), t.wire_name)
            for t in Catalog(TOOLS)
        ]
        self.database.executemany("INSERT INTO tools VALUES (?, ?, ?, ?, ?)", rows)

    def __len__(self) -> int:
        return int(self.database.execute("SELECT count(*) FROM tools").fetchone()[0])

    def __iter__(self) -> Iterator[ToolSpec]:
        return map(
            self._tool, self.database.execute("SELECT * FROM tools ORDER BY rowid").fetchall()
        )

    def get(self, name: str | ToolName, /) -> ToolSpec | None:
        query = "SELECT * FROM tools WHERE wire = ?1 OR server || ':' || name = ?1"
        row = self.database.execute(query, {"1": str(name)}).fetchone()
        return self._tool(row) if row else None

    def _tool(self, row: tuple[str, str, str, str, str]) -> ToolSpec:
        server, name, description, schema, wire = row
        return ToolSpec(server, name, description, json.loads(schema), wire_name=wire)


@pytest.fixture
def catalog() -> Iterator[SqliteCatalog]:
    catalog = SqliteCatalog()
    yield catalog
    catalog.database.close()


def test_both_are_catalogs(catalog: ToolCatalog) -> None:
    built_in: ToolCatalog = Catalog(TOOLS)
    assert isinstance(catalog, ToolCatalog)
    assert isinstance(built_in, ToolCatalog)
    assert list(catalog) == list(built_in)
    for name in ("math__add", "mail:send", ToolName("mail", "send"), "nothing"):
        assert catalog.get(name) == built_in.get(name)


@pytest.mark.parametrize(
    "arguments",
    [
        {"query": "add numbers"},
        {"server_name": "mail"},
        {"tool_names": ["mail:send", "nothing"]},
        {"query": "zzz"},
    ],
)
async def test_a_search_finds_the_same_as_in_memory(catalog: ToolCatalog, arguments: Any) -> None:
    own, built_in = [
        await SearchToolsTool(tools).execute(arguments) for tools in (catalog, Catalog(TOOLS))
    ]
    assert own == built_in


async def test_manifest_index_evaluation_and_lint_read_it_too(catalog: ToolCatalog) -> None:
    built_in = Catalog(TOOLS)
    assert generate_manifest(catalog) == generate_manifest(built_in)
    assert SearchToolsTool(catalog).definition == SearchToolsTool(built_in).definition
    own, other = (ToolSearchIndex(tools).search("create an event") for tools in (catalog, built_in))
    assert [(hit.tool, hit.score) for hit in own] == [(hit.tool, hit.score) for hit in other]
    cases = [Case("create an event", (frozenset({ToolName("calendar", "create_event")}),))]
    assert repr(evaluate(catalog, cases)) == repr(evaluate(built_in, cases))
    assert lint(catalog).findings == lint(built_in).findings
