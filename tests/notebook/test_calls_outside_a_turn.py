"""Which modes hold for calls that no turn makes: docs/ways.md has a table of them, and each cell of
it is tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.app_pages import app_server
from mcp import Client
from mcp_types import ToolAnnotations

from casual_mcp_nb import Session
from casual_mcp_nb.errors import ToolCallError
from casual_mcp_nb.notebook.tools import ProgramCalls

PAGE = Path(__file__).parents[2] / "docs" / "ways.md"
PATHS = ["your call", "a cell's program", "an app's call", "a tool over `serve`"]
MODES = ["stubs", "approval", "selection", "cassette", "result limit"]


def table() -> dict[str, dict[str, bool]]:
    """Read the page's table: for each path, whether each mode applies."""
    part = PAGE.read_text(encoding="utf-8").partition("## Calls outside a turn")[2]
    lines = [line for line in part.split("\n## ")[0].splitlines() if line.startswith("|")]
    head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    told = {}
    for row in rows:
        cells = dict(zip(head, row, strict=True))
        told[cells["path"]] = {mode: cells[mode].startswith("yes") for mode in MODES}
    return told


@pytest.fixture
def erased() -> list[str]:
    return []


@pytest.fixture
def server(erased: list[str]) -> FastMCP[Any]:
    server: FastMCP[Any] = app_server()

    @server.tool(annotations=ToolAnnotations(destructive_hint=True), output_schema=None)
    def wipe(size: int = 1) -> str:
        """Wipe a place."""
        erased.append("wiped")
        return "wiped" * size

    return server


@pytest.fixture
def session(server: FastMCP[Any]) -> Iterator[Session]:
    with Session({}, in_process={"places": server}, quiet=True, store=None) as session:
        yield session


def your_call(session: Session, arguments: dict[str, Any]) -> str:
    return session.tools.call("places:wipe", **arguments).result


def programs_call(session: Session, arguments: dict[str, Any]) -> str:
    with ProgramCalls().running():
        return your_call(session, arguments)


def apps_call(session: Session, arguments: dict[str, Any]) -> str:
    app = session.tools.app("places:show")
    made = session.parts.engine.submit(app.call_tool("wipe", arguments))[0]
    return str(made.result(30)["content"][0]["text"])


def served_call(session: Session, arguments: dict[str, Any]) -> str:
    endpoint = session.serve.mcp()

    async def work() -> Any:
        async with Client(endpoint.url, mode="legacy") as client:
            return await client.call_tool("places__wipe", arguments)

    try:
        result = asyncio.run(asyncio.wait_for(work(), 30))
    finally:
        endpoint.close()
    text = str(result.content[0].text)
    if result.is_error:
        raise ToolCallError(text)
    return text


CALLS: dict[str, Callable[[Session, dict[str, Any]], str]] = dict(
    zip(PATHS, (your_call, programs_call, apps_call, served_call), strict=True)
)


def is_refused(session: Session, path: str) -> bool:
    try:
        CALLS[path](session, {})
    except ToolCallError:
        return True
    return False


def test_the_table_has_each_path() -> None:
    assert list(table()) == PATHS


@pytest.mark.parametrize("path", PATHS)
def test_stubs_answer_as_the_table_says(session: Session, erased: list[str], path: str) -> None:
    session.consent.set_policy("places", "never")
    with session.tools.mock({"places:wipe": "STUB"}):
        stubbed = CALLS[path](session, {}) == "STUB"
    assert stubbed is (erased == []) is table()[path]["stubs"]


@pytest.mark.parametrize("path", PATHS)
def test_approval_is_needed_as_the_table_says(
    session: Session, erased: list[str], path: str
) -> None:
    async def deny(request: Any) -> bool:
        return False

    session.parts.chat.consent.approver = deny
    refused = is_refused(session, path)
    assert refused is (erased == []) is table()[path]["approval"]


@pytest.mark.parametrize("path", PATHS)
def test_a_server_that_is_off_is_called_as_the_table_says(
    session: Session, erased: list[str], path: str
) -> None:
    session.consent.set_policy("places", "never")
    if path == "an app's call":
        session.tools.app("places:show")
    session.selection.servers["places"] = "off"
    refused = is_refused(session, path)
    assert refused is (erased == []) is table()[path]["selection"]


@pytest.mark.parametrize("path", PATHS)
def test_a_large_result_is_shortened_as_the_table_says(session: Session, path: str) -> None:
    session.consent.set_policy("places", "never")
    size = 50_000
    whole = CALLS[path](session, {"size": size}) == "wiped" * size
    assert whole is not table()[path]["result limit"]


@pytest.mark.parametrize("path", PATHS)
def test_a_cassette_answers_as_the_table_says(
    session: Session, erased: list[str], path: str, tmp_path: Path
) -> None:
    file = tmp_path / "calls.json"
    session.consent.set_policy("places", "never")
    with session.cassettes.use(file):
        first = CALLS[path](session, {})
    erased.clear()
    with Session.quick(cassette=file) as replayed:
        replayed.consent.set_policy("places", "never")
        again = CALLS[path](replayed, {})
    assert (again == first and erased == []) is table()[path]["cassette"]
