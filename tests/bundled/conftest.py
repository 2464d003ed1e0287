"""Calls of tools through a real in-memory client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

# Here, because the first import takes long, and a test's loop would be held by it.
import google_auth_oauthlib.flow  # noqa: F401
import httpx2
import pytest
from fastmcp import Client
from kit.google import Google

from casual_mcp_nb.bundled import build
from casual_mcp_nb.bundled.google_account import Account, SignIn

Call = Callable[..., Awaitable[Any]]


async def _result(server: Any, tool: str, arguments: dict[str, Any]) -> Any:
    if isinstance(server, str):
        with closing(build(server)) as built:
            return await _result(built, tool, arguments)
    async with Client(server) as client:
        return await client.call_tool(tool, arguments, raise_on_error=False)


@pytest.fixture
def call() -> Call:
    """Call a tool of a server (or of the name of one) and return its structured result, `result`
    unwrapped.
    """

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


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for the settings of the user."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


@pytest.fixture
def google(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Google]:
    """A Google on the loopback, which speaks plain HTTP, and waits between attempts that take no
    time.
    """
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    monkeypatch.setattr("googleapiclient.http.random.random", lambda: 0.0)
    with Google() as server:
        yield server


@pytest.fixture
def sign_in(google: Google, tmp_path: Path) -> Callable[..., Account]:
    """Sign in with these grants, through a browser that follows the redirect."""

    def run(*grants: str) -> Account:
        flow = SignIn(google.client_file(tmp_path / "client.json"), grants, "http://127.0.0.1:1/")
        return flow.finish(httpx2.get(flow.address).headers["location"])

    return run
