"""HTTP between the SDK and a server: failures are recorded with their status, bodies are limited.

See https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2
from fastmcp.client.transports import SSETransport, StreamableHttpTransport
from fastmcp.client.transports.base import ClientTransport, TransportOptions
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from casual_mcp_nb.connections._errors import CLOSED, says_nothing, status_text
from casual_mcp_nb.connections._messages import MAX_MESSAGE_BYTES, MAX_SSE_MESSAGE_BYTES, LineLimit, id_of, reply
from casual_mcp_nb.types.server import ServerConfig

CONNECT_SECONDS = 30.0
FAILURE_SECONDS = 2.0
"""Time limit for reading the body of an HTTP error."""
MAX_FAILURE_BYTES = 64 * 1024
MAX_BODY_TEXT = 2_000
MAX_ENDPOINT = 16_384
_ENDPOINT = re.compile(rb"(?:^|\n)event:\s*endpoint\r?\ndata:([^\r\n]*)\r?\n")
BROKEN = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
CLOSED_IN_CALL = f"{CLOSED}; it is not repeated, as it may have had an effect"


def http_transport(config: ServerConfig, kind: str, monitor: ResponseMonitor) -> ClientTransport:
    """Create the transport to a remote server.

    Args:
        config: The server's config.
        kind: `http` or `sse`.
        monitor: Sees every response.
    """
    tls = _tls()

    def make_client(headers: Any = None, timeout: Any = None, auth: Any = None, **_: Any) -> httpx2.AsyncClient:
        # A silent stream is cut by the limit of its call; the client's own limit only frees what was forgotten.
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=config.total_timeout)
        return _Client(monitor, headers=headers, timeout=timeout, auth=auth, verify=tls, follow_redirects=True)

    transport = SSETransport if kind == "sse" else HttpTransport
    headers = {key: value.get_secret_value() for key, value in config.headers.items()}
    auth = config.auth.get_secret_value() if config.auth else None
    return transport(config.url or "", headers=headers, auth=auth, httpx_client_factory=make_client)


@cache
def _tls() -> ssl.SSLContext:
    """Create the SSL context shared by all clients, because loading the certificates is slow."""
    return httpx2.create_ssl_context()


@dataclass
class ResponseMonitor:
    """Watches HTTP responses: limits their bodies, and records the last error, which the SDK reports without its status.

    Args:
        sse: Whether the transport is `sse`.
        failure: The last status of 400 or more, and the time on the loop's clock.
        failure_body: The start of that response's body.
        broken: Called when the session cannot continue, with the reason if known.
    """

    sse: bool = False
    failure: tuple[int, float] | None = None
    failure_body: str = ""
    broken: Callable[[str | None], None] = field(default=lambda _reason: None)

    async def __call__(self, response: httpx2.Response) -> None:
        """Inspect a response before its body is read."""
        _bound(response, self, self._check_endpoint(response))
        if response.status_code < 400:
            return
        # Read here, because the SDK reads it only if it is JSON.
        body = await _start_of_body(response)
        self.failure = (response.status_code, asyncio.get_running_loop().time())
        self.failure_body = body[:MAX_BODY_TEXT].decode("utf-8", "replace")
        if self.sse and response.request.method == "POST":
            # The SDK silently stops sending after the first refused message.
            self.broken(None)

    def explain(self, reason: str, start: float, redact: Callable[[str], str] = str) -> str:
        """Describe the last HTTP error if it is more informative than `reason`; else return `reason`.

        Args:
            reason: The known reason of a failure.
            start: When the failed request began, on the loop's clock.
            redact: Hides secrets in a text.
        """
        status = self.status_since(start)
        if status is None:
            return reason
        return status_text(status, redact(self.failure_body)) if status in (401, 403) or says_nothing(reason) else reason

    def status_since(self, start: float) -> int | None:
        """Find the last status of 400 or more since a time on the loop's clock."""
        return self.failure[0] if self.failure is not None and self.failure[1] >= start else None

    def _check_endpoint(self, response: httpx2.Response) -> Callable[[bytes], None]:
        """Create a function that checks the endpoint in an `sse` stream: with one of another origin, the SDK waits forever."""
        head = b""

        def check_chunk(chunk: bytes) -> None:
            nonlocal head
            if len(head) > MAX_ENDPOINT or _ENDPOINT.search(head):
                return
            head += chunk
            if match := _ENDPOINT.search(head):
                here = _origin(str(response.request.url))
                there = _origin(urljoin(str(response.request.url), match[1].decode("utf-8", "replace").strip()))
                if here != there:
                    self.broken(f"it sends messages to {there}, which is another origin than its own, {here}")

        return check_chunk if self.sse and response.request.method == "GET" else lambda _chunk: None


class _Client(httpx2.AsyncClient):
    """A client in which a broken connection fails only its own request; the SDK would end the whole session."""

    def __init__(self, monitor: ResponseMonitor, **options: Any) -> None:
        super().__init__(event_hooks={"response": [monitor]}, **options)
        self._monitor = monitor

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            return await super().send(request, **options)
        except BROKEN:
            request_id = _request_id(request)
            if self._monitor.sse:
                self._monitor.broken(None)
            if self._monitor.sse or request_id is None:
                raise
            return httpx2.Response(200, json=reply(request_id, CLOSED_IN_CALL), request=request)


class HttpTransport(StreamableHttpTransport):
    """fastmcp's transport without the SDK's limit of 1 MB for an event."""

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncIterator[ClientSession]:
        """Open the session."""
        assert self.httpx_client_factory is not None
        options = transport_options or TransportOptions()
        async with (
            self.httpx_client_factory(headers=dict(self.headers), auth=self.auth) as client,
            streamable_http_client(self.url, http_client=client, max_sse_event_size=None) as (read, write),
            options.session_class(read, write, **session_kwargs) as session,
        ):
            yield session


class _Bounded(httpx2.AsyncByteStream):
    """The decoded body of a response, with oversized messages replaced by errors; it stops at an endless one."""

    def __init__(self, inner: httpx2.Response, lines: LineLimit, check_chunk: Callable[[bytes], None]) -> None:
        self._inner = inner
        self._lines = lines
        self._check_chunk = check_chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner.aiter_bytes():
                self._check_chunk(chunk)
                if complete := self._lines.feed(chunk):
                    yield complete
                if self._lines.endless:
                    break
        except BROKEN:
            request_id = _request_id(self._inner.request)
            if request_id is None or not self._lines.whole:
                raise
            yield json.dumps(reply(request_id, CLOSED_IN_CALL)).encode()
            return
        if remainder := self._lines.feed(b"", final=True):
            yield remainder if self._lines.whole else remainder + b"\n\n"

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _start_of_body(response: httpx2.Response) -> bytes:
    """Read as much of the body of an HTTP error as arrives in time, and leave only that for later readers."""
    body = b""
    stream = response.stream
    assert isinstance(stream, _Bounded)
    with contextlib.suppress(TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(FAILURE_SECONDS):
            async for chunk in stream:
                body += chunk
                if len(body) > MAX_FAILURE_BYTES:
                    break
    await stream.aclose()
    response.stream = httpx2.ByteStream(body[:MAX_FAILURE_BYTES])
    return body


def _bound(response: httpx2.Response, monitor: ResponseMonitor, check_chunk: Callable[[bytes], None]) -> None:
    limit = MAX_SSE_MESSAGE_BYTES if monitor.sse else MAX_MESSAGE_BYTES
    stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    lines = LineLimit(limit, b"data: " if stream else b"", whole=not stream, request_id=_request_id(response.request))
    if monitor.sse and stream:
        lines.on_endless = monitor.broken
    inner = httpx2.Response(response.status_code, headers=response.headers, stream=response.stream, request=response.request)
    response.stream = _Bounded(inner, lines, check_chunk)
    # Decoded by `inner`, so that decoded bytes are counted.
    response.headers.pop("content-encoding", None)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"[:200]


def _request_id(request: httpx2.Request) -> int | None:
    """Parse the id of the JSON-RPC request that is the content of an HTTP request."""
    return id_of(request.content[:200].decode("utf-8", "replace"), "") if request.method == "POST" else None
