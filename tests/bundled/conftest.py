"""Calls of tools through a real in-memory client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest
from fastmcp import Client

from casual_mcp_nb.bundled import build

Call = Callable[..., Awaitable[Any]]


async def _result(server: Any, tool: str, arguments: dict[str, Any]) -> Any:
    if isinstance(server, str):
        with closing(build(server)) as built:
            return await _result(built, tool, arguments)
    async with Client(server) as client:
        return await client.call_tool(tool, arguments, raise_on_error=False)


@pytest.fixture
def call() -> Call:
    """Call a tool of a server (or of the name of one) and return its structured result, `result` unwrapped."""

    async def run(server: Any, tool: str, **arguments: Any) -> Any:
        answer = await _result(server, tool, arguments)
        assert not answer.is_error, answer.content
        content = answer.structured_content
        return content["result"] if list(content) == ["result"] else content

    return run


@pytest.fixture
def refused() -> Call:
    """Call a tool that must answer with an error and return the error's text."""

    async def run(server: Any, tool: str, **arguments: Any) -> str:
        answer = await _result(server, tool, arguments)
        assert answer.is_error, answer.structured_content
        text: str = answer.content[0].text
        assert len(text) < 700
        return text

    return run
