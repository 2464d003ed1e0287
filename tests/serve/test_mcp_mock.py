"""A recorded session as a mock MCP server: no server is started, and errors for other calls list
the recorded ones.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import PromptReference, TextContent

from casual_mcp_nb import Session
from casual_mcp_nb.cli.app import main

pytestmark = pytest.mark.defect("K2")


def shop() -> tuple[FastMCP[Any], list[str]]:
    """A server with a tool, a resource, a template and a prompt, and the items that were sold at
    it.
    """
    server: FastMCP[Any] = FastMCP("shop")
    sold: list[str] = []

    @server.tool(annotations={"destructiveHint": True})
    def sell(item: str, pieces: int = 1) -> dict[str, Any]:
        """Sell an item."""
        sold.append(item)
        return {"sold": item, "pieces": pieces}

    @server.tool
    def count() -> int:
        """Count the items."""
        return 7

    @server.resource("shop://opening-hours")
    def opening_hours() -> str:
        """When it is open."""
        return "9 to 5"

    @server.resource("shop://items/{name}")
    def item(name: str) -> str:
        """About an item."""
        return f"About {name}"

    @server.prompt
    def greet(name: str) -> str:
        """Greet a customer."""
        return f"Greet {name}."

    return server, sold


@pytest.fixture
def cassette(tmp_path: Path) -> Path:
    """A recorded session in which everything at the shop was used."""
    path = tmp_path / "shop.json"
    server, sold = shop()
    with (
        Session({}, in_process={"shop": server}, quiet=True) as session,
        session.cassettes.use(path, "all"),
    ):
        session.tools.call("shop:sell", item="lamp", pieces=2)
        session.resources.list()
        session.prompts.list()
        session.resources.read("shop://opening-hours")
        session.resources.read("shop://items/lamp")
        session.prompts.get("greet", name="Ada")
    assert sold == ["lamp"]
    return path


@asynccontextmanager
async def mocked(cassette: Path, way: str, mode: str) -> AsyncIterator[Client]:
    """A client of the mock, over standard input and output or over HTTP, with the names of the
    recorded server.
    """
    if way == "stdio":
        command = [
            "-m",
            "casual_mcp_nb",
            "serve",
            "mcp",
            "--cassette",
            str(cassette),
            "--plain-names",
        ]
        # Nothing of the environment: no key, no config.
        there = StdioServerParameters(
            command=sys.executable,
            args=command,
            cwd=cassette.parent,
            env={"PATH": os.environ["PATH"]},
        )
        async with Client(stdio_client(there), mode=mode) as client:
            yield client
    else:
        async with Session.quick(cassette=cassette, pace=0, quiet=True, store=None) as session:
            endpoint = await session.serve.mcp_async(plain_names=True, approval="host")
            async with Client(endpoint.url, mode=mode) as client:
                yield client


@pytest.mark.slow
@pytest.mark.parametrize(("way", "mode"), [("stdio", "auto"), ("http", "auto"), ("http", "legacy")])
async def test_a_mock_answers_what_was_recorded(cassette: Path, way: str, mode: str) -> None:
    async with mocked(cassette, way, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert sorted(tools) == ["count", "sell"]
        assert tools["sell"].annotations.destructive_hint is True
        assert [each.uri for each in (await client.list_resources()).resources] == [
            "shop://opening-hours"
        ]
        assert [
            each.uri_template
            for each in (await client.list_resource_templates()).resource_templates
        ] == ["shop://items/{name}"]
        assert [each.name for each in (await client.list_prompts()).prompts] == ["greet"]

        for _ in range(2):
            sold = await client.call_tool("sell", {"item": "lamp", "pieces": 2})
            assert sold.structured_content == {"sold": "lamp", "pieces": 2}
        assert (await client.read_resource("shop://opening-hours")).contents[0].text == "9 to 5"
        assert (await client.read_resource("shop://items/lamp")).contents[0].text == "About lamp"
        assert (await client.get_prompt("greet", {"name": "Ada"})).messages[
            0
        ].content.text == "Greet Ada."
        completed = await client.complete(
            PromptReference(name="greet"), {"name": "name", "value": "A"}
        )
        assert completed.completion.values == []

        other = await client.call_tool("sell", {"item": "lamp", "pieces": 3})
        assert other.is_error
        assert all(line in _text(other) for line in ('-  "pieces": 2', '+  "pieces": 3'))
        never = await client.call_tool("count", {})
        assert never.is_error
        assert "shop:sell" in _text(never)
        with pytest.raises(MCPError, match="Ada"):
            await client.get_prompt("greet", {"name": "Grace"})
        with pytest.raises(MCPError, match="opening-hours"):
            await client.read_resource("shop://items/chair")


def test_nothing_but_the_recording_answers(
    cassette: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "mcp", str(tmp_path / "config.json"), "--cassette", str(cassette)]) != 0
    assert main(["serve", "mcp", "--demo", "--cassette", str(cassette)]) != 0
    assert main(["serve", "mcp", "--cassette", str(tmp_path / "nothing.json")]) != 0
    assert "nothing.json" in capsys.readouterr().err


def _text(result: Any) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))
