"""An HTTP server on 127.0.0.1 in a thread of its own: status, headers, body, delay, cut, reset and
silence for each request.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Request:
    """A request as it arrived: header names in lower case, the body as JSON where it is JSON."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any

    @property
    def streams(self) -> bool:
        """Whether a model is asked for a stream: by a field of the body, or with Google by the
        path.
        """
        return bool(self.body.get("stream")) or ":streamGenerateContent" in self.path


@dataclass(frozen=True)
class Reply:
    """How a request is answered.

    Args:
        status: The HTTP status.
        body: Bytes, a text, a value to be sent as JSON, or an iterator of bytes that is sent piece
            by piece; None where the server that plays it should fill in what a healthy one would
            answer.
        headers: More headers; `content-type` is chosen by the kind of the body unless it is here.
        delay: Seconds before anything is sent.
        cut: The connection is closed after so many bytes of the body, though more are announced.
        reset: The connection is reset instead of an answer.
        silent: Nothing is sent until the server is stopped.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: int | None = None
    reset: bool = False
    silent: bool = False


class ScriptedHttp:
    """A server that asks `answer` how to reply to each request.

    Use it as a context manager, or `start` and `stop`.

    Args:
        answer: Gives the reply to a request; called on the thread of that request.
    """

    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        self.seen: list[Request] = []
        self.stopped = threading.Event()
        self._answer = answer
        self._scheme = "http"
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    @property
    def url(self) -> str:
        """The address, without a slash at its end."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Answer over TLS only. Call it before `start`."""
        self._scheme = "https"
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def start(self) -> Self:
        """Begin to answer."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End every request that is under way, and the server."""
        self.stopped.set()
        self._server.shutdown()
        self._thread.join(5)
        self._server.server_close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def reply_to(self, request: Request) -> Reply:
        """Note a request and find its reply."""
        self.seen.append(request)
        reply = self._answer(request)
        self.stopped.wait(None if reply.silent else reply.delay)
        return reply


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, owner: ScriptedHttp) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.owner = owner

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away, as many tests have one."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_one(self) -> None:
        self.close_connection = True
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.server.owner.reply_to(Request(self.command, self.path, headers, _parsed(data)))
        if reply.reset or reply.silent:
            self._reset()
        else:
            self._send(reply)

    do_GET = do_POST = do_DELETE = handle_one

    def _send(self, reply: Reply) -> None:
        body, kind = _encoded(reply.body)
        headers = {
            "content-type": kind,
            "connection": "close",
            **{k.lower(): v for k, v in reply.headers.items()},
        }
        if isinstance(body, bytes):
            headers.setdefault("content-length", str(len(body)))
        self.send_response(reply.status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in [body[: reply.cut]] if isinstance(body, bytes) else body:
            self.wfile.write(piece)
            self.wfile.flush()

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data) if data else None
    except ValueError:
        return data


def _encoded(body: Any) -> tuple[bytes | Iterator[bytes], str]:
    if body is None:
        return b"", "text/plain"
    if isinstance(body, bytes):
        return body, "application/json"
    if isinstance(body, str):
        return body.encode(), "text/html"
    if isinstance(body, Iterator):
        return body, "text/event-stream"
    return json.dumps(body).encode(), "application/json"
