"""HTTP between the SDK and a server: bodies are limited, and failures are recorded with their status.

See https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2
from fastmcp.client.transports import SSETransport, StreamableHttpTransport
from fastmcp.client.transports.base import ClientTransport, TransportOptions
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.guarded_http import GuardedTransport
from casual_mcp_nb.base.named_address import AddressGuard
from casual_mcp_nb.base.patient_import import CERTIFICATES
from casual_mcp_nb.base.proxies import named_variables
from casual_mcp_nb.base.secret import revealed_by_name
from casual_mcp_nb.servers._errors import CLOSED, refuses_session, says_nothing, status_text
from casual_mcp_nb.servers.handlers import OWN_REQUEST, PersonToAsk
from casual_mcp_nb.servers.message_limits import (
    BYTE_ORDER_MARK,
    MAX_MESSAGE_BYTES,
    MAX_SSE_MESSAGE_BYTES,
    LineLimit,
    id_of,
    reply,
)
from casual_mcp_nb.servers.wire import SENT, WireLog, exchange_of

CONNECT_SECONDS = 30.0
FAILURE_SECONDS = 2.0
MAX_FAILURE_BYTES = 64 * 1024
MAX_REPAIRED_BYTES = 512 * 1024
MAX_BODY_TEXT = 2_000
MAX_ENDPOINT = 16_384
_HEAD = 40
_MESSAGE_START = 200
_SESSION_HEADER = "mcp-session-id"
_ENDPOINT = re.compile(rb"(?:^|\n)event:\s*endpoint\r?\ndata:([^\r\n]*)\r?\n")
BROKEN = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)
CLOSED_IN_CALL = f"{CLOSED}. It is not repeated, as it may have had an effect"


def http_transport(
    config: ServerConfig, kind: str, monitor: ResponseMonitor, person: PersonToAsk | None = None
) -> ClientTransport:
    """Create the transport to a remote server. The monitor sees every response."""
    with named_variables():
        verify = _tls(*map(os.environ.get, CERTIFICATES))

    def make_client(
        headers: Any = None, timeout: Any = None, auth: Any = None, **_: Any
    ) -> httpx2.AsyncClient:
        # A call's time limit cuts a silent stream; the client's own limit only frees what was
        # forgotten.
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=config.total_timeout)
        transport = None
        with named_variables():
            if config.is_found:
                transport = GuardedTransport(AddressGuard(), verify, proxies=True)
            return _Client(
                monitor,
                headers=headers,
                timeout=timeout,
                auth=auth,
                verify=verify,
                follow_redirects=True,
                transport=transport,
            )

    def make_guarded(guard: AddressGuard) -> httpx2.AsyncClient:
        transport = GuardedTransport(guard, verify, proxies=True)
        return httpx2.AsyncClient(
            transport=transport, event_hooks={"response": [monitor]}, timeout=CONNECT_SECONDS
        )

    transport = SSETransport if kind == "sse" else HttpTransport
    headers = revealed_by_name(config.headers)
    auth: Any = config.auth.get_secret_value() if config.auth else None
    if auth == "oauth":
        from casual_mcp_nb.servers.sign_in import SignIn

        auth = SignIn(
            config, person or PersonToAsk("the server"), client=make_guarded, began=monitor.forget
        )
    return transport(config.url or "", headers=headers, auth=auth, httpx_client_factory=make_client)


@cache
def _tls(*_variables: str | None) -> ssl.SSLContext:
    """Create the SSL context shared by all clients, because loading the certificates is slow.

    Variables can change it.
    """
    return httpx2.create_ssl_context()


@dataclass
class ResponseMonitor:
    """Watches HTTP responses: limits their bodies, and records the last error, which the SDK
    reports without its status.

    Attributes:
        in_session: Whether the server has given this connection a session, which it can lose.
    """

    sse: bool = False
    failure: tuple[int, float] | None = None
    failure_body: str = ""
    broken: Callable[[str | None], None] = ignore
    wire: WireLog | None = None
    in_session: bool = False

    async def __call__(self, response: httpx2.Response) -> None:
        """Inspect a response before its body is read."""
        self._record(response.request, response)
        await _give_type(response)
        _bound(response, self, self._check_endpoint(response))
        if response.status_code < 400 or OWN_REQUEST in response.request.extensions:
            return
        if response.request.method == "GET" and not self.sse:
            # The stream for the server's own messages is optional, and most servers refuse it.
            return
        # Read here, because the SDK reads it only if it is JSON.
        body = await _start_of_body(response)
        self.failure = (response.status_code, asyncio.get_running_loop().time())
        self.failure_body = body[:MAX_BODY_TEXT].decode("utf-8", "replace")
        if _SESSION_HEADER in response.request.headers and refuses_session(
            response.status_code, self.failure_body
        ):
            # As the specification would have it, which is what the SDK understands.
            response.status_code = 404
            response.headers["content-type"] = "text/plain"
        if self.sse and response.request.method == "POST":
            # The SDK silently stops sending after the first refused message.
            self.broken(None)

    def forget(self) -> None:
        """Forget the last error, because a sign-in begins, whose outcome counts."""
        self.failure = None

    async def sending(self, request: httpx2.Request) -> None:
        """Record a request that carries a message: its response may never come."""
        self.in_session = self.in_session or _SESSION_HEADER in request.headers
        if _carries_message(request):
            self._record(request, None)

    def _record(self, request: httpx2.Request, response: httpx2.Response | None) -> None:
        if self.wire is None:
            return
        status: int | None = None
        headers: Sequence[tuple[bytes, bytes]] = ()
        if response is not None:
            status, headers = response.status_code, response.headers.raw
            registers = request.extensions.get(OWN_REQUEST) == "registration"
            if registers and response.is_success:
                self.wire.deprecated.add("dynamic client registration")
        carried = None
        # The requests for a token are sent in the same context.
        if _carries_message(request):
            carried = SENT.get()
        exchange = exchange_of(
            request.method, str(request.url), status, request.headers.raw, headers
        )
        self.wire.add_http(carried, exchange)

    def explain(self, reason: str, start: float, redact: Callable[[str], str] = str) -> str:
        """Describe the last HTTP error since `start`, if it is more informative than `reason`.

        Otherwise, return `reason`.
        """
        status = self.status_since(start)
        if status is None:
            return reason
        if status in (401, 403) or says_nothing(reason):
            return status_text(status, redact(self.failure_body))
        return reason

    def status_since(self, start: float) -> int | None:
        """Find the last status from 400 on since a time on the loop's clock."""
        if self.failure is not None and self.failure[1] >= start:
            return self.failure[0]
        return None

    def _check_endpoint(self, response: httpx2.Response) -> Callable[[bytes], None]:
        """Create a function that checks the endpoint in an `sse` stream: with another origin, the
        SDK waits forever.
        """
        head = b""

        def check_chunk(chunk: bytes) -> None:
            nonlocal head
            if len(head) > MAX_ENDPOINT or _ENDPOINT.search(head):
                return
            head += chunk
            if match := _ENDPOINT.search(head):
                here = _origin(str(response.request.url))
                there = _origin(
                    urljoin(str(response.request.url), match[1].decode("utf-8", "replace").strip())
                )
                if here != there:
                    self.broken(
                        f"it sends messages to {there}, which is another origin than its own,"
                        f" {here}"
                    )

        if self.sse and response.request.method == "GET":
            return check_chunk
        return ignore


class _Client(httpx2.AsyncClient):
    """A client in which a broken connection fails only its own request.

    The SDK would end the whole session.
    """

    def __init__(self, monitor: ResponseMonitor, **options: Any) -> None:
        super().__init__(
            event_hooks={"request": [monitor.sending], "response": [monitor]}, **options
        )
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
    """fastmcp's transport without the SDK's limit of 1 MB per event."""

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncIterator[ClientSession]:
        """Open the session."""
        assert self.httpx_client_factory is not None
        options = transport_options or TransportOptions()
        async with (
            self.httpx_client_factory(headers=dict(self.headers), auth=self.auth) as client,
            streamable_http_client(self.url, http_client=client, max_sse_event_size=None) as (
                read,
                write,
            ),
            options.session_class(read, write, **session_kwargs) as session,
        ):
            yield session


class _Bounded(httpx2.AsyncByteStream):
    """A response's decoded body, with oversized messages replaced by errors.

    It stops at an endless one.
    """

    def __init__(
        self, inner: httpx2.Response, lines: LineLimit, check_chunk: Callable[[bytes], None]
    ) -> None:
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
        remainder = self._lines.feed(b"", final=True)
        if remainder and self._lines.whole:
            yield _one_answer(remainder, self._inner.request)
        elif remainder:
            yield remainder + b"\n\n"

    async def aclose(self) -> None:
        await self._inner.aclose()


def _one_answer(body: bytes, request: httpx2.Request) -> bytes:
    """Repair an answer in JSON that would leave its request without one: a list of it, or an error
    without an id.
    """
    in_list = body.lstrip()[:1] == b"["
    request_id = _request_id(request)
    if request_id is None or len(body) > MAX_REPAIRED_BYTES or not (in_list or b'"error"' in body):
        return body
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return body
    if isinstance(answer, list) and len(answer) == 1:
        answer = answer[0]
    elif isinstance(answer, list):
        return body
    if isinstance(answer, dict) and "error" in answer and answer.get("id") is None:
        answer["id"] = request_id
    elif not in_list:
        return body
    return json.dumps(answer).encode()


_TYPES = ("application/json", "text/event-stream")
_NO_BODY = (202, 204)
_FIELD = re.compile(rb"(?:data|event|id|retry)?:")


async def _give_type(response: httpx2.Response) -> None:
    """Give an answer the type that its body has, if it declares neither of the two: many gateways
    send text/plain.
    """
    declared = response.headers.get("content-type", "").lower().startswith(_TYPES)
    if (
        declared
        or not response.is_success
        or response.status_code in _NO_BODY
        or _request_id(response.request) is None
    ):
        return
    inner = httpx2.Response(
        response.status_code,
        headers=response.headers,
        stream=response.stream,
        request=response.request,
    )
    chunks = inner.aiter_bytes()
    head = b""
    async for chunk in chunks:
        head += chunk
        if len(head.strip()) > len(b"event:") or len(head) > MAX_BODY_TEXT:
            break
    start = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if start[:1] in (b"{", b"["):
        response.headers["content-type"] = _TYPES[0]
    elif _FIELD.match(start):
        response.headers["content-type"] = _TYPES[1]
    response.stream = _Begun(head, chunks, inner)
    response.headers.pop("content-encoding", None)


class _Begun(httpx2.AsyncByteStream):
    """A body of which the beginning was read."""

    def __init__(self, head: bytes, chunks: AsyncIterator[bytes], inner: httpx2.Response) -> None:
        self._head = head
        self._chunks = chunks
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._head
        async for chunk in self._chunks:
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _start_of_body(response: httpx2.Response) -> bytes:
    """Read the part of an HTTP error's body that arrives in time, and leave only that for later
    readers.
    """
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


def _bound(
    response: httpx2.Response, monitor: ResponseMonitor, check_chunk: Callable[[bytes], None]
) -> None:
    limit = MAX_SSE_MESSAGE_BYTES if monitor.sse else MAX_MESSAGE_BYTES
    stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    lines = LineLimit(
        limit,
        b"data: " if stream else b"",
        whole=not stream,
        request_id=_request_id(response.request),
    )
    if monitor.sse and stream:
        lines.on_endless = monitor.broken
    inner = httpx2.Response(
        response.status_code,
        headers=response.headers,
        stream=response.stream,
        request=response.request,
    )
    response.stream = _Bounded(inner, lines, check_chunk)
    # Decoded by `inner`, so that decoded bytes are counted.
    response.headers.pop("content-encoding", None)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"[:200]


def _carries_message(request: httpx2.Request) -> bool:
    return b'"jsonrpc"' in _start_of_message(request)[:_HEAD]


def _request_id(request: httpx2.Request) -> int | None:
    """Parse the JSON-RPC request id from an HTTP request's body."""
    return id_of(_start_of_message(request).decode("utf-8", "replace"), "")


def _start_of_message(request: httpx2.Request) -> bytes:
    """Read the start of a POST request's body. Empty for other requests, and for a stream.

    The body of a request that follows a redirect is there, but httpx has not read it.
    """
    if request.method != "POST" or not isinstance(request.stream, httpx2.ByteStream):
        return b""
    return request.read()[:_MESSAGE_START]
