"""Create the fastmcp transport for a server's config: stdio and HTTP with limits and monitors.

HTTP between the SDK and a server: failures are recorded with their status, bodies are limited. See
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http.

Server processes are started, found again, forked where that is quicker, and ended as groups. Their
stderr is read.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import os
import re
import shutil
import signal
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urljoin, urlsplit

import httpx2
from fastmcp.client.transports import SSETransport, StreamableHttpTransport
from fastmcp.client.transports.base import ClientTransport, TransportOptions
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.guarded_http import GuardedTransport
from casual_mcp_nb.base.named_address import AddressGuard
from casual_mcp_nb.base.patient_import import CERTIFICATES
from casual_mcp_nb.base.proxies import named_variables
from casual_mcp_nb.base.secret import redacted
from casual_mcp_nb.errors import shown
from casual_mcp_nb.servers._errors import (
    BYTE_ORDER_MARK,
    CLOSED,
    MAX_MESSAGE_BYTES,
    MAX_SSE_MESSAGE_BYTES,
    LineLimit,
    Redactor,
    clean,
    id_of,
    refuses_session,
    reply,
    says_nothing,
    status_text,
)
from casual_mcp_nb.servers._launch import ANNOUNCEMENT
from casual_mcp_nb.servers.handlers import OWN_REQUEST, PersonToAsk
from casual_mcp_nb.servers.logs import ProbeNoise
from casual_mcp_nb.servers.wire import SENT, WireLog, exchange_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from fastmcp import FastMCP

POLL_SECONDS = 0.02
_POSIX = os.name == "posix"


def command_of(config: ServerConfig) -> list[str]:
    """Build a stdio server's command line: the config's own, or a bundled server's."""
    if config.bundled:
        from casual_mcp_nb.bundled import command

        return command(config.bundled, list(config.args))
    return [config.command or "", *config.args]


def launched(command: Sequence[str]) -> list[str]:
    """Prefix a command with the launcher, so that its process can be found and cannot outlive ours.

    Unchanged on Windows.
    """
    if not _POSIX:
        return list(command)
    return [
        sys.executable,
        "-I",
        "-S",
        str(Path(__file__).with_name("_launch.py")),
        str(os.getpid()),
        *command,
    ]


def environment_of(config: ServerConfig) -> dict[str, str]:
    """Collect the variables that a server gets in addition to the SDK's few (HOME, LOGNAME, PATH,
    SHELL, TERM, USER).
    """
    # FastMCP's banner would be the first thing that a person reads of a server that failed.
    variables = {"FASTMCP_SHOW_SERVER_BANNER": "false"}
    # A bundled server looks for the user's files where this process and the command line do.
    folder = os.environ.get("XDG_CONFIG_HOME") if config.bundled else None
    if folder:
        variables["XDG_CONFIG_HOME"] = folder
    return variables | {key: value.get_secret_value() for key, value in config.env.items()}


def why_not_startable(command: Sequence[str], config: ServerConfig) -> str | None:
    """Explain why the command cannot be started, or None if it can."""
    if config.bundled:
        from casual_mcp_nb.bundled.registry import bundled_server

        # Its process would only say so on its stderr, and end.
        if (missing := bundled_server(config.bundled).missing_libraries()) is not None:
            return f"{missing.reason} ({missing.remedy})"
    if config.cwd is not None and not Path(config.cwd).is_dir():
        return f"the folder {shown(config.cwd)} does not exist"
    if any("\0" in word for word in command):
        return "its command contains a NUL character"
    path = config.env["PATH"].get_secret_value() if "PATH" in config.env else None
    folder = config.cwd or "."
    program = str(Path(folder, command[0])) if os.sep in command[0] else command[0]
    if shutil.which(program, path=path):
        return None
    if Path(program).is_file():
        return f"the command {shown(command[0], 300)} is not executable"
    return (
        f"the command {shown(command[0], 300)} was not"
        f" found{_advice_for_command_line(command[0], path)}"
    )


def _advice_for_command_line(command: str, path: str | None) -> str:
    first, _, arguments = command.strip().partition(" ")
    if not arguments or shutil.which(first, path=path) is None:
        return ""
    return (
        f"; it is a whole command line: put {shown(first)} into command, and the words after it"
        " into args"
    )


def process_ended(pid: int) -> bool:
    """Check whether a child process has ended, even if it has not been waited for."""
    if not hasattr(os, "waitid"):
        # macOS before Python 3.13; a process that ended counts as running until asyncio has waited
        # for it.
        return not _reached(os.kill, pid, 0)
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def signal_group(pid: int, number: int) -> bool:
    """Send a signal to a process group. Return False if it has no members left."""
    return _POSIX and _reached(os.killpg, pid, number)


def _reached(send: Callable[[int, int], None], pid: int, number: int) -> bool:
    try:
        send(pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # A zombie on macOS, or another user's process, which we cannot end.
    return True


_GRACE_SECONDS = 0.3


async def end_group(pid: int) -> None:
    """End whatever is left in a process group: SIGTERM, then SIGKILL after a short time."""
    if not signal_group(pid, signal.SIGTERM):
        return
    for _ in range(round(_GRACE_SECONDS / POLL_SECONDS)):
        await asyncio.sleep(POLL_SECONDS)
        if not signal_group(pid, 0):
            return
    signal_group(pid, signal.SIGKILL)


KEPT_BYTES = 32 * 1024
TAIL_LINES = 20
LINE_LENGTH = 500


class StderrLog:
    """Reads a server's stderr.

    A thread drains the pipe, so that a server that writes a lot never blocks.

    Attributes:
        pid: The server's process id, as the launcher announced it, or None until then.
        file: The write end, for the server's process.
        on_chunk: Called on the thread with each chunk of output, and with nothing at the end.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.pid: int | None = None
        self.on_chunk: Callable[[bytes], None] = ignore
        self._secrets = frozenset(secrets)
        self._tail = b""
        self._cut = False
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        read, write = os.pipe()
        self.file: TextIO = os.fdopen(write, "w", encoding="utf-8")
        threading.Thread(target=self._read, args=(read,), name="mcp-stderr", daemon=True).start()

    def tail(self, lines: int = TAIL_LINES) -> str:
        """Read the last lines, cleaned and redacted, each cut to 500 characters."""
        text = redacted(self._tail.decode("utf-8", "replace"), self._secrets)
        if self._cut:
            # The first line may begin within a secret, which would then not be recognised.
            text = text.partition("\n")[2] or text[max(map(len, self._secrets), default=0) :]
        noise = ProbeNoise()
        cleaned: list[str] = []
        for line in clean(text).strip("\n").split("\n"):
            cleaned += noise.keep(line)
        cleaned += noise.rest()
        return "\n".join(line[:LINE_LENGTH] for line in cleaned[-lines:])

    def close_writer(self) -> None:
        """Close our copy of the write end.

        The log then ends when the last process closes its own.
        """
        with contextlib.suppress(OSError):
            self.file.close()

    async def wait_end(self, seconds: float) -> None:
        """Wait until everything has been read, with a time limit."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()

    def _read(self, fd: int) -> None:
        head: bytes | None = b""
        while chunk := _read_chunk(fd):
            if head is not None:
                head += chunk
                if len(head) < len(ANNOUNCEMENT) + 20 and b"\n" not in head:
                    continue
                chunk, head = self._without_announcement(head), None
            self._keep(chunk)
        os.close(fd)
        self._keep(head or b"")
        self.on_chunk(b"")
        # The loop may be gone: the interpreter is ending and nobody waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ended.set)

    def _keep(self, chunk: bytes) -> None:
        tail = self._tail + chunk
        self._cut = self._cut or len(tail) > KEPT_BYTES
        self._tail = tail[-KEPT_BYTES:]
        if chunk:
            self.on_chunk(chunk)

    def _without_announcement(self, head: bytes) -> bytes:
        line, _, remainder = head.partition(b"\n")
        number = line.removeprefix(ANNOUNCEMENT)
        if number == line or not number.isdigit():
            return head
        self.pid = int(number)
        return remainder


def _read_chunk(fd: int) -> bytes:
    try:
        return os.read(fd, 65_536)
    except OSError:
        return b""


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
        with named_variables():
            transport = (
                GuardedTransport(AddressGuard(), verify, proxies=True) if config.is_found else None
            )
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
    headers = {key: value.get_secret_value() for key, value in config.headers.items()}
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
        if self.wire is not None:
            status, headers = (
                (response.status_code, response.headers.raw) if response is not None else (None, ())
            )
            exchange = exchange_of(
                request.method, str(request.url), status, request.headers.raw, headers
            )
            if (
                request.extensions.get(OWN_REQUEST) == "registration"
                and response is not None
                and response.is_success
            ):
                self.wire.deprecated.add("dynamic client registration")
            # The requests for a token are sent in the same context.
            self.wire.add_http(SENT.get() if _carries_message(request) else None, exchange)

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
        if remainder := self._lines.feed(b"", final=True):
            yield (
                _one_answer(remainder, self._inner.request)
                if self._lines.whole
                else remainder + b"\n\n"
            )

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
    """Read the start of a request's body.

    Empty if it is a stream, or if the request is none that carries messages.

    A request that follows a redirect has its body, but httpx has not read it.
    """
    if request.method != "POST" or not isinstance(request.stream, httpx2.ByteStream):
        return b""
    return request.read()[:_MESSAGE_START]


ENCODING = "casual_mcp_nb_lines"
"""A codec for UTF-8 in lines with limited length: encoding is all that the SDK's stdout reader lets
us set.
"""

STDOUT_LINES: ContextVar[LineLimit | None] = ContextVar("STDOUT_LINES", default=None)
"""The filter for decoders created in this context: the SDK creates them, and passes no arguments.
"""


class _Decoder(codecs.IncrementalDecoder):
    """Decodes whole lines only, which also spares the SDK's reader its growing buffer."""

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(errors)
        self._lines = STDOUT_LINES.get() or LineLimit(MAX_MESSAGE_BYTES)

    def decode(self, input: ReadableBuffer, final: bool = False) -> str:
        return self._lines.feed(bytes(input)).decode("utf-8", self.errors)


def _search(name: str) -> codecs.CodecInfo | None:
    if name != ENCODING:
        return None
    utf_8 = codecs.lookup("utf-8")
    return codecs.CodecInfo(utf_8.encode, utf_8.decode, incrementaldecoder=_Decoder, name=ENCODING)


codecs.register(_search)


class StdioTransport(ClientTransport):
    """A server process.

    Bytes that are not UTF-8 become U+FFFD. fastmcp's own transport would stop reading forever.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        stderr: TextIO,
        lines: LineLimit,
    ) -> None:
        program, *args = command
        self._parameters = StdioServerParameters(
            command=program,
            args=args,
            env=dict(env),
            cwd=cwd,
            encoding=ENCODING,
            encoding_error_handler="replace",
        )
        self._stderr = stderr
        self._lines = lines

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncIterator[ClientSession]:
        """Start the process. It ends with the session."""
        options = transport_options or TransportOptions()
        STDOUT_LINES.set(self._lines)
        async with (
            stdio_client(self._parameters, errlog=self._stderr) as (read, write),
            options.session_class(read, write, **session_kwargs) as session,
        ):
            yield session


@dataclass(frozen=True)
class Unusable:
    """What a session has of a server whose entry cannot be used: the reason.

    It takes the place of a server in this process.
    """

    reason: str


class NotStartable(Exception):
    """The transport cannot even be tried. The message has the reason."""


# No repr, because the transports' reprs show their full URL.
@dataclass(repr=False)
class TransportContext:
    """A transport to a server, with its filters and monitors.

    `release` is called when it has been closed.
    """

    transport: ClientTransport
    stderr: StderrLog | None = None
    lines: LineLimit | None = None
    http: ResponseMonitor | None = None
    release: Callable[[], None] = ignore
    redact: Redactor = field(default_factory=Redactor)

    def explain(self, reason: str, start: float) -> str:
        """Explain a failure by its reason, or the HTTP error behind it.

        See `ResponseMonitor.explain`.
        """
        if self.http:
            return self.http.explain(reason, start, self.redact)
        return reason


def transport_kind(config: ServerConfig | None) -> str:
    """Classify the transport: `stdio`, `http`, `sse` or `in-process`."""
    if config is None:
        return "in-process"
    if config.url:
        if config.transport == "sse":
            return "sse"
        return "http"
    return config.transport or "stdio"


async def open_transport(
    kind: str,
    config: ServerConfig | None,
    server: FastMCP[Any] | Unusable | None,
    secrets: Collection[str],
    person: PersonToAsk | None = None,
) -> TransportContext:
    """Call `make_transport`, on another thread if it builds a bundled server or loads
    certificates.
    """
    if config is not None and kind != "stdio":
        return await asyncio.to_thread(make_transport, kind, config, server, secrets, person)
    return make_transport(kind, config, server, secrets)


def make_transport(
    kind: str,
    config: ServerConfig | None,
    server: FastMCP[Any] | Unusable | None,
    secrets: Collection[str],
    person: PersonToAsk | None = None,
) -> TransportContext:
    """Create the transport to a server, a new one for each session.

    Raises NotStartable if its command or folder does not exist, or the bundled server cannot be
    built.
    """
    if config is None or kind == "in-process":
        context = _in_process(config, server)
    else:
        context = _stdio(config, secrets) if kind == "stdio" else _http(config, kind, person)
    context.redact = Redactor(secrets)
    return context


def _in_process(
    config: ServerConfig | None, server: FastMCP[Any] | Unusable | None
) -> TransportContext:
    from fastmcp.client.transports import FastMCPTransport

    if isinstance(server, Unusable):
        raise NotStartable(f"its entry cannot be used: {server.reason}")
    if server is not None:
        return TransportContext(FastMCPTransport(server))
    from casual_mcp_nb.bundled import BUNDLED, build

    entry = BUNDLED.get(config.bundled or "") if config else None
    if entry is not None and entry.credentials is not None:
        raise NotStartable(
            f"{entry.name} reads credentials, which only its own process may have: leave out its"
            " transport"
        )
    try:
        built = build(config.bundled or "", list(config.args)) if config else None
    except ValueError as error:
        raise NotStartable(str(error)) from error
    if built is None:
        raise NotStartable("it has neither a config nor a server object")
    return TransportContext(FastMCPTransport(built), release=built.close)


def _stdio(config: ServerConfig, secrets: Collection[str]) -> TransportContext:
    try:
        command = command_of(config)
    except ValueError as error:
        raise NotStartable(str(error)) from error
    reason = why_not_startable(command, config)
    if reason is not None:
        raise NotStartable(reason)
    stderr = StderrLog(secrets)
    lines = LineLimit(MAX_MESSAGE_BYTES)
    transport = StdioTransport(
        launched(command), environment_of(config), config.cwd, stderr.file, lines
    )
    return TransportContext(transport, stderr, lines)


def _http(config: ServerConfig, kind: str, person: PersonToAsk | None) -> TransportContext:
    monitor = ResponseMonitor(sse=kind == "sse")
    return TransportContext(http_transport(config, kind, monitor, person), http=monitor)
