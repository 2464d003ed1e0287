"""HTTP between the SDK and a server: failures are remembered with their status, bodies are bounded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2
from fastmcp.client.transports import SSETransport, StreamableHttpTransport
from fastmcp.client.transports.base import ClientTransport, TransportOptions
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from casual_mcp_nb.connections._messages import MAX_MESSAGE_BYTES, MAX_SSE_MESSAGE_BYTES, LineLimit, id_of, reply
from casual_mcp_nb.connections.convert import CLOSED, says_nothing, status_text
from casual_mcp_nb.types.server import ServerConfig

CONNECT_SECONDS = 30.0
FAILURE_SECONDS = 2.0
"""How long the body of an HTTP error may take."""
MAX_FAILURE_BYTES = 64 * 1024
MAX_SAID = 2_000
MAX_ENDPOINT = 16_384
_ENDPOINT = re.compile(rb"(?:^|\n)event:\s*endpoint\r?\ndata:([^\r\n]*)\r?\n")
BROKEN = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
CLOSED_IN_CALL = f"{CLOSED}; it is not repeated by itself, as it may have had an effect"


def http_transport(config: ServerConfig, kind: str, watch: ResponseMonitor) -> ClientTransport:
    """The transport to a remote server.

    Args:
        config: The server's config.
        kind: `http` or `sse`.
        watch: Sees every answer.
    """

    def make_client(headers: Any = None, timeout: Any = None, auth: Any = None, **_: Any) -> httpx2.AsyncClient:
        # A silent stream is cut by the limit of its call; the client's own limit only frees what was forgotten.
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=config.total_timeout)
        return _Client(watch, headers=headers, timeout=timeout, auth=auth, follow_redirects=True)

    make = SSETransport if kind == "sse" else HttpTransport
    headers = {key: value.get_secret_value() for key, value in config.headers.items()}
    auth = config.auth.get_secret_value() if config.auth else None
    return make(config.url or "", headers=headers, auth=auth, httpx_client_factory=make_client)


@dataclass
class ResponseMonitor:
    """Looks at each HTTP answer: bounds its body, and remembers the last error, which the SDK reports without its status.

    Args:
        sse: Whether the transport is `sse`.
        failure: The last status of 400 or more, and the time on the loop's clock.
        said: The start of that answer's body.
        broken: Called when the session cannot go on, with the reason where it is known.
    """

    sse: bool = False
    failure: tuple[int, float] | None = None
    said: str = ""
    broken: Callable[[str | None], None] = field(default=lambda _reason: None)

    async def __call__(self, response: httpx2.Response) -> None:
        """Look at an answer before its body is read."""
        _bound(response, self, self._check_endpoint(response))
        if response.status_code < 400:
            return
        # Read here, since the SDK reads it only where it is JSON.
        body = await _beginning(response)
        self.failure = (response.status_code, asyncio.get_running_loop().time())
        self.said = body[:MAX_SAID].decode("utf-8", "replace")
        if self.sse and response.request.method == "POST":
            # The SDK stops sending at the first message that is refused, and tells nobody.
            self.broken(None)

    def better(self, reason: str, start: float, mask: Callable[[str], str] = str) -> str:
        """The last HTTP error since a time on the loop's clock, in words, where it says more than `reason` does."""
        status = self.status_since(start)
        if status is None:
            return reason
        return status_text(status, mask(self.said)) if status in (401, 403) or says_nothing(reason) else reason

    def status_since(self, start: float) -> int | None:
        """The last status of 400 or more since a time on the loop's clock."""
        return self.failure[0] if self.failure is not None and self.failure[1] >= start else None

    def _check_endpoint(self, response: httpx2.Response) -> Callable[[bytes], None]:
        """What looks for the endpoint in the stream of the transport `sse`: at one of another origin the SDK waits for ever."""
        head = b""

        def look(chunk: bytes) -> None:
            nonlocal head
            if len(head) > MAX_ENDPOINT or _ENDPOINT.search(head):
                return
            head += chunk
            if found := _ENDPOINT.search(head):
                here = _origin(str(response.request.url))
                there = _origin(urljoin(str(response.request.url), found[1].decode("utf-8", "replace").strip()))
                if here != there:
                    self.broken(f"it sends messages to {there}, which is another origin than its own, {here}")

        return look if self.sse and response.request.method == "GET" else lambda _chunk: None


class _Client(httpx2.AsyncClient):
    """A client in which a connection that breaks costs the request on it; the SDK would end the whole session."""

    def __init__(self, watch: ResponseMonitor, **options: Any) -> None:
        super().__init__(event_hooks={"response": [watch]}, **options)
        self._watch = watch

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            return await super().send(request, **options)
        except BROKEN:
            asked = _asked(request)
            if self._watch.sse:
                self._watch.broken(None)
            if self._watch.sse or asked is None:
                raise
            return httpx2.Response(200, json=reply(asked, CLOSED_IN_CALL), request=request)


class HttpTransport(StreamableHttpTransport):
    """fastmcp's transport, without the SDK's limit of 1 MB for an event."""

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
    """The decoded body of a response, with messages that are too large replaced by an error; it ends at one without an end."""

    def __init__(self, inner: httpx2.Response, lines: LineLimit, look: Callable[[bytes], None]) -> None:
        self._inner = inner
        self._lines = lines
        self._look = look

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner.aiter_bytes():
                self._look(chunk)
                if complete := self._lines.feed(chunk):
                    yield complete
                if self._lines.endless:
                    break
        except BROKEN:
            asked = _asked(self._inner.request)
            if asked is None or not self._lines.whole:
                raise
            yield json.dumps(reply(asked, CLOSED_IN_CALL)).encode()
            return
        if rest := self._lines.feed(b"", final=True):
            yield rest if self._lines.whole else rest + b"\n\n"

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _beginning(response: httpx2.Response) -> bytes:
    """Read the body of an HTTP error as far as it comes soon, and leave only that for those who read it next."""
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


def _bound(response: httpx2.Response, watch: ResponseMonitor, look: Callable[[bytes], None]) -> None:
    limit = MAX_SSE_MESSAGE_BYTES if watch.sse else MAX_MESSAGE_BYTES
    stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    lines = LineLimit(limit, b"data: " if stream else b"", whole=not stream, asked=_asked(response.request))
    if watch.sse and stream:
        lines.on_endless = watch.broken
    inner = httpx2.Response(response.status_code, headers=response.headers, stream=response.stream, request=response.request)
    response.stream = _Bounded(inner, lines, look)
    # It is decoded by `inner`, so that what is counted is what is kept.
    response.headers.pop("content-encoding", None)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"[:200]


def _asked(request: httpx2.Request) -> int | None:
    """The id of the JSON-RPC request that is the content of an HTTP request."""
    return id_of(request.content[:200].decode("utf-8", "replace"), "") if request.method == "POST" else None
