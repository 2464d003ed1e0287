"""The official conformance suite of MCP, run against a `Session`; `suite.py` prints the results as
a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance import suite
from kit.processes import MARK, new_mark, wait_gone

ROWS = suite.rows_of_page()
SERVER_ROWS = suite.server_rows_of_page()

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(suite.missing() is not None, reason=suite.missing() or ""),
]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with suite.clients() as place:
        yield place


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.defect("E3", "E4")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.scenario}-{row.version}")
def test_a_scenario_has_the_result_that_the_docs_say(
    row: suite.Row, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = new_mark()
    monkeypatch.setenv(MARK, mark)
    now, said = suite.run(row.scenario, row.version, place)
    print(now)
    assert now.result == row.result, said
    wait_gone(mark)


def test_every_scenario_outside_sign_in_passes_according_to_the_docs() -> None:
    assert [row.scenario for row in ROWS if not row.sign_in and row.result == "fails"] == []


def test_the_docs_have_every_scenario_of_the_suite() -> None:
    assert sorted((row.scenario, row.version) for row in ROWS) == sorted(suite.scenarios())


def test_the_docs_are_written_by_the_suite() -> None:
    assert suite.PAGE.read_text(encoding="utf-8") == suite.page(ROWS, SERVER_ROWS)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.defect("K1")
@pytest.mark.parametrize("version", suite.VERSIONS)
def test_nothing_fails_through_serve_mcp_that_the_server_behind_passes(version: str) -> None:
    direct, through = suite.run_servers(version)
    assert not suite.added_failures(direct, through)
    assert suite.server_rows(version, direct, through) == [
        row for row in SERVER_ROWS if row.version == version
    ]
