"""A scripted MCP server over streamable HTTP or SSE, without an MCP library: healthy, but for the
replies that it is given.
"""

from __future__ import annotations

import json
import queue
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from kit.scripted_http import Reply, Request, ScriptedHttp

Result = Mapping[str, Any]


class McpHttp(ScriptedHttp):
    """A server with tools; use it as a context manager.

    Args:
        results: Tool name -> the result of a call, or a function of the arguments that gives it. A
            tool that is not here answers "ok".
        tools: The listing; None for a plain tool for each of `results`, or one tool `a`.
        transport: `http` or `sse`.
        events: Whether streamable HTTP answers a call in an event stream, as most servers do,
            instead of plain JSON.
    """

    def __init__(
        self,
        results: Mapping[str, Result | Callable[[dict[str, Any]], Result]] | None = None,
        *,
        tools: list[Any] | None = None,
        transport: str = "http",
        events: bool = False,
    ) -> None:
        super().__init__(self._reply)
        self.results = dict(results or {})
        self.tools = tools or [
            {"name": name, "inputSchema": {"type": "object"}} for name in self.results or ["a"]
        ]
        self.transport = transport
        self.events = events
        self.session = uuid.uuid4().hex
        self._script: dict[str, list[Reply]] = {}
        self._streams: dict[str, queue.SimpleQueue[bytes | None]] = {}

    def config(self, **fields: Any) -> dict[str, Any]:
        """The fields of a server's config that reach this server."""
        path = "sse" if self.transport == "sse" else "mcp"
        return {
            "url": f"{self.url}/{path}",
            "transport": self.transport,
            "init_timeout": 5.0,
            **fields,
        }

    def script(self, what: str, *replies: Reply) -> None:
        """Give the next requests of a kind these replies, one each.

        Args:
            what: A method of MCP such as `tools/call`, or one of HTTP: `GET`, `DELETE`, `POST` (any
                message).
            replies: A reply whose `body` is None, with a status below 400, is filled in with the
                healthy answer.
        """
        self._script.setdefault(what, []).extend(replies)

    def forget_sessions(self) -> None:
        """Answer 404 to every session there is, as a server does that was started anew."""
        self.session = uuid.uuid4().hex

    def received(self, method: str) -> list[Request]:
        """The requests with this method of MCP."""
        return [request for request in self.seen if _method(request) == method]

    def _reply(self, request: Request) -> Reply:
        faults = self._script.get(_method(request)) or self._script.get(request.method)
        if request.method == "POST" and self.transport == "sse":
            return self._into_stream(request, faults.pop(0) if faults else None)
        healthy = self._healthy(request)
        if not faults:
            return healthy
        reply = faults.pop(0)
        if reply.body is not None or reply.status >= 400:
            return reply
        return Reply(
            **{**vars(reply), "body": healthy.body, "headers": {**healthy.headers, **reply.headers}}
        )

    def _healthy(self, request: Request) -> Reply:
        if request.method == "GET":
            return Reply(body=self._stream()) if self.transport == "sse" else Reply(405)
        if request.method == "DELETE":
            return Reply(200)
        session = request.headers.get("mcp-session-id")
        if session is not None and session != self.session:
            return Reply(404, "session not found")
        message = self._message(request.body)
        if message is None:
            return Reply(202)
        body = iter([event("message", message)]) if self.events else message
        return Reply(body=body, headers={"mcp-session-id": self.session})

    def _message(self, body: Any) -> dict[str, Any] | None:
        if "id" not in body or "method" not in body:
            return None
        results: dict[str, Callable[[], Result]] = {
            "initialize": lambda: {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "scripted", "version": "1"},
            },
            "tools/list": lambda: {"tools": self.tools},
            "tools/call": lambda: self._result(body["params"]),
            "ping": dict,
        }
        if body["method"] not in results:
            return {
                "jsonrpc": "2.0",
                "id": body["id"],
                "error": {"code": -32601, "message": "Method not found"},
            }
        return {"jsonrpc": "2.0", "id": body["id"], "result": results[body["method"]]()}

    def _result(self, params: dict[str, Any]) -> Result:
        result = self.results.get(params["name"], {"content": [{"type": "text", "text": "ok"}]})
        return result(params.get("arguments") or {}) if callable(result) else result

    def _into_stream(self, request: Request, fault: Reply | None) -> Reply:
        """A message over SSE: the answer comes on the stream, unless a fault takes its place."""
        if fault is not None and fault.status >= 400:
            return fault
        message = self._message(request.body) if fault is None or fault.body is None else None
        stream = self._streams.get(urlsplit(request.path).query)
        if stream is None:
            return Reply(404, "session not found")
        if fault is not None and fault.cut is not None:
            stream.put(None)
        elif fault is not None and fault.body is not None:
            stream.put(
                fault.body if isinstance(fault.body, bytes) else event("message", fault.body)
            )
        elif message is not None and not (fault and fault.silent):
            self.stopped.wait(fault.delay if fault else 0)
            stream.put(event("message", message))
        return Reply(202)

    def _stream(self) -> Iterator[bytes]:
        name, stream = uuid.uuid4().hex, queue.SimpleQueue[bytes | None]()
        self._streams[name] = stream
        yield event("endpoint", f"/messages?{name}")
        while not self.stopped.is_set():
            try:
                piece = stream.get(timeout=0.05)
            except queue.Empty:
                continue
            if piece is None:
                return
            yield piece


def event(kind: str, data: Any) -> bytes:
    """One event of a stream."""
    return (
        f"event: {kind}\ndata: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()
    )


def _method(request: Request) -> str:
    return str(request.body.get("method", "")) if isinstance(request.body, dict) else ""
