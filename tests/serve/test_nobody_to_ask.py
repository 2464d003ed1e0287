"""Each door keeps the rule of the safety guide's table for calls that nobody can be asked about."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastmcp import Client
from kit.flipping import DESTRUCTIVE, READ_ONLY, tool
from kit.obedient import Obedient, order
from kit.raw_server import raw_config

from casual_mcp_nb import Session
from casual_mcp_nb.cli.app import main

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "safety.md"
ALLOWED = "allowed with"
# The tool of the server `box` that a row is about.
ROWS = {
    "a tool declared destructive": "wipe",
    "a tool that declares nothing": "note",
    "a read-only tool": "read",
    "a tool that declares nothing, `destructive`": "set",
    "any tool, `always`": "held",
    "any tool, `never`": "free",
    "a tool that declares nothing, strict": "note",
    "a read-only tool, strict": "read",
    "any tool, `never`, strict": "free",
}
TOOLS = [
    tool("wipe", DESTRUCTIVE),
    tool("note"),
    tool("read", READ_ONLY),
    tool("set"),
    tool("held", READ_ONLY),
]
TOOLS.append(tool("free", DESTRUCTIVE))
NAMES = [each["name"] for each in TOOLS]
BOX = raw_config(
    config={"approval": {"set": "destructive", "held": "always", "free": "never"}}, tools=TOOLS
)
PROMPT = order("", *((f"box__{name}", {}) for name in NAMES))

Said = dict[str, str]
"""The text that a model or a host reads of each tool's call."""


def table() -> tuple[list[str], dict[str, list[str]]]:
    """The doors, and the rows by their first cell."""
    section = (
        GUIDE.read_text(encoding="utf-8")
        .partition("### Where no one can be asked")[2]
        .partition("\n### ")[0]
    )
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return lines[0][1:], {cells[0]: cells[1:] for cells in lines[2:]}


def script(config: dict[str, Any], _: Path) -> Said:
    with Session(config, quiet=True) as session:
        return _said(session.chat(PROMPT, echo="none").messages)


def command_line(config: dict[str, Any], folder: Path) -> Said:
    path = folder / "casual_mcp_config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    written, sys.stdout = sys.stdout, io.StringIO()
    try:
        assert main(["chat", PROMPT, "--config", str(path), "--trust", "--json"]) == 0
        events = [json.loads(line) for line in sys.stdout.getvalue().splitlines()]
    finally:
        sys.stdout = written
    return {
        each["tool"].partition(":")[2]: each["text"]
        for each in events
        if each["event"] == "ToolFinished"
    }


def http_service(config: dict[str, Any], _: Path) -> Said:
    with Session(config, quiet=True) as session, session.serve.http(port=0) as service:
        body = {"model": "small", "messages": [{"role": "user", "content": PROMPT}]}
        messages = httpx.post(f"{service.url}/chat", json=body, timeout=30).json()["messages"]
    return {
        each["name"].partition("__")[2]: each["content"]
        for each in messages
        if each["role"] == "tool"
    }


def mcp_host(config: dict[str, Any], _: Path) -> Said:
    async def call(url: str) -> Said:
        async with Client(url) as client:
            results = {
                name: await client.call_tool(f"box__{name}", {}, raise_on_error=False)
                for name in NAMES
            }
        return {name: result.content[0].text for name, result in results.items()}

    with Session(config, quiet=True) as session, session.serve.mcp() as endpoint:
        return asyncio.run(call(endpoint.url))


def _said(messages: list[Any]) -> Said:
    return {each.name.partition("__")[2]: each.content for each in messages if each.role == "tool"}


DOORS: dict[str, Callable[[dict[str, Any], Path], Said]] = {
    "script": script,
    "`chat` in a pipe or with `--json`": command_line,
    "HTTP service": http_service,
    "MCP host that cannot ask": mcp_host,
}


@pytest.fixture(scope="module")
def model() -> Iterator[Obedient]:
    with Obedient() as model:
        yield model


@pytest.mark.defect("F22")
def test_the_table_has_every_door_and_every_case() -> None:
    doors, rows = table()
    assert doors == list(DOORS)
    assert set(rows) == {*ROWS, ALLOWED}
    assert {cell for row in set(rows) - {ALLOWED} for cell in rows[row]} == {"denied", "runs"}


@pytest.mark.defect("F22")
@pytest.mark.parametrize("strict", [False, True], ids=["usual", "strict"])
@pytest.mark.parametrize("door", DOORS)
def test_a_door_does_what_the_table_says(
    door: str, strict: bool, model: Obedient, tmp_path: Path
) -> None:
    doors, rows = table()
    said = DOORS[door]({**model.config, "servers": {"box": BOX}, "strict": strict}, tmp_path)
    column = doors.index(door)
    expected = {
        ROWS[row]: cells[column]
        for row, cells in rows.items()
        if row in ROWS and row.endswith("strict") == strict
    }
    assert {
        name: "denied" if "not approved" in said[name] else "runs" for name in expected
    } == expected
    option = rows[ALLOWED][column].strip("`")
    assert option in said["wipe"]
    assert all(
        option.partition("=")[0] in said[name]
        for name, result in expected.items()
        if result == "denied"
    )


@pytest.mark.defect("F22")
@pytest.mark.parametrize("words", [["--allow", "box"]])
def test_what_a_denial_names_allows_the_call(
    words: list[str], model: Obedient, tmp_path: Path
) -> None:
    config = {**model.config, "servers": {"box": BOX}}
    with Session(config, quiet=True, approval={"box": {"wipe": "never"}}) as session:
        assert "not approved" not in _said(session.chat(PROMPT, echo="none").messages)["wipe"]
        with session.serve.http(port=0, approval={"box": {"wipe": "never"}}) as service:
            body = {
                "model": "small",
                "messages": [{"role": "user", "content": order("", ("box__wipe", {}))}],
            }
            assert (
                "not approved"
                not in httpx.post(f"{service.url}/chat", json=body, timeout=30).json()["response"]
            )
        with session.serve.mcp(approval="host") as endpoint:

            async def call() -> Any:
                async with Client(endpoint.url) as client:
                    return await client.call_tool("box__held", {}, raise_on_error=False)

            assert not asyncio.run(call()).is_error
    path = tmp_path / "casual_mcp_config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    written, sys.stdout = sys.stdout, io.StringIO()
    try:
        assert main(["chat", PROMPT, "--config", str(path), "--trust", "--json", *words]) == 0
        assert "not approved" not in sys.stdout.getvalue()
    finally:
        sys.stdout = written
