from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.errors import ConnectError, ToolCallError, ToolTimeoutError
from casual_mcp_nb.servers.connection import Connection

Opened = Callable[..., Any]

KINDS = ["http", "sse"]


def _remote(url: str, transport: str, **fields: Any) -> ServerConfig:
    return ServerConfig.model_validate(
        {"url": url, "transport": transport, "init_timeout": 5, **fields}
    )


@asynccontextmanager
async def _answering(reply: bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives every request the same answer, or none; gives its address and the
    requests.
    """
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
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection:"
        " close\r\n\r\n"
    )
    return head.encode() + body


@pytest.mark.parametrize("transport", KINDS)
async def test_a_remote_server_is_listed_called_limited_and_missed(
    opened: Opened, http_server: Callable[..., Any], transport: str
) -> None:
    async with http_server(transport) as (url, process):
        connection = opened(Connection("remote", _remote(url, transport, call_timeout=0.7)))
        await connection.connect()
        status = connection.status
        assert (status.state, status.transport, status.address, status.tools) == (
            "ready",
            transport,
            url,
            2,
        )
        assert status.version == "remote 3.1"
        assert (await connection.call("add", {"a": 1, "b": 2})).structured == {"result": 3}
        with pytest.raises(ToolTimeoutError):
            await connection.call("slow", {})
        assert (await connection.call("add", {"a": 2, "b": 2})).structured == {"result": 4}
        process.kill()
        await process.wait()
        async with asyncio.timeout(30):
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
        (_http("403 Forbidden"), "HTTP 403: access was refused"),
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
async def test_a_remote_server_that_stays_silent_is_failed_at_its_limit(
    opened: Opened, transport: str
) -> None:
    async with _answering(None) as (url, _):
        connection = opened(Connection("remote", _remote(url, transport, init_timeout=0.7)))
        with pytest.raises(ConnectError, match=r"no answer in 0\.7 s"):
            await connection.connect()


async def test_a_bearer_token_and_headers_are_sent(opened: Opened) -> None:
    async with _answering(_http("500 Oops")) as (url, requests):
        config = _remote(url, "http", auth="t0ken", headers={"X-Lesson": "7"})
        with pytest.raises(ConnectError):
            await opened(Connection("remote", config)).connect()
        head = requests[0].lower()
        assert b"authorization: bearer t0ken" in head
        assert b"x-lesson: 7" in head
