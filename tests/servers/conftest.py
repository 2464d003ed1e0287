"""Servers to connect to, and a look at the processes that they leave."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from kit import waiting
from kit.processes import marked, new_mark
from kit.raw_server import raw_config

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.server_manager import ServerManager


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """Waits until a condition holds; fails after so many seconds."""
    return waiting.until


@pytest.fixture
def mark() -> str:
    """A text in the environment of every server of one test."""
    return new_mark()


@pytest.fixture
def processes(mark: str) -> Callable[[], list[str]]:
    """The command lines of all living processes that carry the mark of this test."""
    if not Path("/proc/self/environ").exists():
        pytest.skip("processes are counted through /proc")
    return lambda: [process.command for process in marked(mark)]


@pytest.fixture
def raw(mark: str) -> Callable[..., ServerConfig]:
    """Makes the config of a raw server: its plan as keywords, fields of the config in `config`."""
    return lambda config=None, **plan: ServerConfig.model_validate(
        raw_config(mark, config=config, **plan)
    )


@pytest_asyncio.fixture
async def opened() -> AsyncIterator[Callable[..., Any]]:
    """Makes connections and server managers that are closed when the test ends."""
    opened: list[Connection | ServerManager] = []

    def keep(thing: Connection | ServerManager) -> Connection | ServerManager:
        opened.append(thing)
        return thing

    yield keep
    await asyncio.gather(*(thing.close() for thing in opened))


HTTP_SERVER = """
import socket, sys
import jsonschema  # otherwise the first call imports it
import uvicorn
from fastmcp import FastMCP, Context

server = FastMCP("remote", version="3.1")

@server.tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

@server.tool
async def slow(ctx: Context) -> str:
    import asyncio
    await asyncio.sleep(30)
    return "late"

listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
app = server.http_app(transport=sys.argv[1], path=sys.argv[2] or None)
uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=0)).run(sockets=[listener])
"""


@asynccontextmanager
async def _http_server(
    transport: str, path: str = ""
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HTTP_SERVER, transport, path),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            port = int(await process.stdout.readline())
        yield f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}", process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
def http_server() -> Callable[
    ..., AbstractAsyncContextManager[tuple[str, asyncio.subprocess.Process]]
]:
    """Starts a real FastMCP server on the loopback, perhaps at another path; gives its usual
    address and its process.
    """
    return _http_server
