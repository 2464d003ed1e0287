from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from casual_mcp_nb.connections import Connection
from casual_mcp_nb.errors import ConnectError, ToolCallError, ToolTimeoutError
from casual_mcp_nb.types.config import ServerConfig

Opened = Callable[..., Any]

KINDS = ["http", "sse"]


def _remote(url: str, transport: str, **fields: Any) -> ServerConfig:
    return ServerConfig.model_validate({"url": url, "transport": transport, "init_timeout": 5, **fields})


@asynccontextmanager
async def _answering(reply: bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives every request the same answer, or none; gives its address and the requests."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            requests.append(await reader.readuntil(b"\r\n\r\n"))
            if reply is None:
                await reader.read()
            else:
                writer.write(reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://me:hunter2@127.0.0.1:{port}/mcp?key=s3cret-query", requests


def _http(status: str, body: bytes = b"", kind: str = "text/plain") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("transport", KINDS)
async def test_a_remote_server_is_listed_called_limited_and_missed(
    opened: Opened, http_server: Callable[..., Any], transport: str
) -> None:
    async with http_server(transport) as (url, process):
        connection = opened(Connection("remote", _remote(url, transport, call_timeout=0.7)))
        await connection.connect()
        status = connection.status
        assert (status.state, status.transport, status.address, status.tools) == ("ready", transport, url, 2)
        assert status.version == "remote 3.1"
        assert (await connection.call("add", {"a": 1, "b": 2})).structured == {"result": 3}
        start = time.monotonic()
        with pytest.raises(ToolTimeoutError):
            await connection.call("slow", {})
        assert time.monotonic() - start < 2
        assert (await connection.call("add", {"a": 2, "b": 2})).structured == {"result": 4}
        process.kill()
        await process.wait()
        async with asyncio.timeout(5):
            with pytest.raises((ToolCallError, ConnectError)):
                await connection.call("add", {"a": 1, "b": 2})
            with pytest.raises(ConnectError, match="cannot be reached"):
                await connection.call("add", {"a": 1, "b": 2})
        assert connection.status.state == "failed"


@pytest.mark.fault(12)
@pytest.mark.parametrize("transport", KINDS)
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (_http("401 Unauthorized"), "HTTP 401: the credentials were not accepted"),
        (_http("403 Forbidden"), "HTTP 403: the credentials were not accepted"),
        (_http("404 Not Found"), "HTTP 404"),
        (_http("500 Oops", b"s3cret-header"), "HTTP 500"),
        (_http("200 OK", b"<html>Welcome</html>", "text/html"), "text/html"),
    ],
)
async def test_a_refusal_is_said_with_status_and_address_and_without_credentials(
    opened: Opened, transport: str, reply: bytes, reason: str
) -> None:
    async with _answering(reply) as (url, requests):
        headers = {"Authorization": "Bearer s3cret-header"}
        connection = opened(Connection("remote", _remote(url, transport, headers=headers)))
        with pytest.raises(ConnectError) as caught:
            await connection.connect()
        text = f"{caught.value} {connection.status.error}"
        assert reason in text
        assert connection.status.address in text
        assert connection.status.address.startswith("http://127.0.0.1:")
        assert not any(secret in text for secret in ("hunter2", "s3cret"))
        assert requests


@pytest.mark.fault(13)
@pytest.mark.parametrize("transport", KINDS)
async def test_a_remote_server_that_stays_silent_is_failed_at_its_limit(opened: Opened, transport: str) -> None:
    async with _answering(None) as (url, _):
        connection = opened(Connection("remote", _remote(url, transport, init_timeout=0.7)))
        start = time.monotonic()
        with pytest.raises(ConnectError, match=r"no answer in 0\.7 s"):
            await connection.connect()
        assert time.monotonic() - start < 3


async def test_a_bearer_token_and_headers_are_sent(opened: Opened) -> None:
    async with _answering(_http("500 Oops")) as (url, requests):
        config = _remote(url, "http", auth="t0ken", headers={"X-Lesson": "7"})
        with pytest.raises(ConnectError):
            await opened(Connection("remote", config)).connect()
        head = requests[0].lower()
        assert b"authorization: bearer t0ken" in head
        assert b"x-lesson: 7" in head


@asynccontextmanager
async def _failing_once(reply: bytes) -> AsyncIterator[str]:
    """A small MCP server over HTTP whose first tool call gets this reply, and every later one a proper result."""
    failed = False

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            size = int(head.partition("content-length:")[2].partition("\r\n")[0] or 0)
            writer.write(answer(json.loads(await reader.readexactly(size) or b"{}")))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def answer(message: dict[str, Any]) -> bytes:
        nonlocal failed
        method = message.get("method")
        if method == "tools/call" and not failed:
            failed = True
            return reply
        results = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}},
            "tools/list": {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "ok"}]},
        }
        if method not in results:
            return _http("202 Accepted") if "id" not in message else _http("404 Not Found")
        body = {"jsonrpc": "2.0", "id": message["id"], "result": results[method]}
        response = _http("200 OK", json.dumps(body).encode(), "application/json")
        return response.replace(b"Connection: close", b"Mcp-Session-Id: 1\r\nConnection: close")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


REFUSED_BODY = b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32602, "message": "x must be even"}}'


@pytest.mark.fault(33)
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        pytest.param(_http("500 Oops"), "HTTP 500", id="500"),
        pytest.param(_http("401 Unauthorized"), "HTTP 401: the credentials were not accepted", id="401"),
        pytest.param(_http("404 Not Found"), "HTTP 404", id="session forgotten"),
        pytest.param(_http("400 Bad", REFUSED_BODY, "application/json"), "x must be even", id="json-rpc"),
        pytest.param(b"", "the connection was closed", id="reset"),
        pytest.param(
            _http("200 OK", b": hello\n\n", "text/event-stream"),
            "ended without a response",
            id="cut stream",
            marks=pytest.mark.fault(36),
        ),
    ],
)
async def test_a_call_that_fails_over_http_says_why_and_the_next_one_works(opened: Opened, reply: bytes, reason: str) -> None:
    async with _failing_once(reply) as url:
        connection = opened(Connection("remote", _remote(url, "http", call_timeout=3)))
        await connection.connect()
        with pytest.raises(ToolCallError) as caught:
            await connection.call("a", {})
        assert reason in str(caught.value)
        assert (await connection.call("a", {})).content[0].text == "ok"
        assert connection.status.state == "ready"
