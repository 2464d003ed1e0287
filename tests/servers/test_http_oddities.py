"""Oddities of HTTP servers and gateways that do no harm, seen in public trackers until November
2026.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kit.mcp_http import McpHttp, event
from kit.scripted_http import Reply, Request

from casual_mcp_nb.base.callbacks import ignore
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.errors import ConnectError, ToolCallError, ToolTimeoutError
from casual_mcp_nb.servers._repairs import Repairs
from casual_mcp_nb.servers.connection import Connection

Opened = Callable[..., Any]
Raw = Callable[..., ServerConfig]

MARK = b"\xef\xbb\xbf"


class Odd(McpHttp):
    """A server whose healthy answers to messages are changed by a function of the request and the
    message, or None.
    """

    def __init__(self, change: Callable[[Request, Any], Reply | None], **fields: Any) -> None:
        super().__init__(**fields)
        self._change = change

    def _healthy(self, request: Request) -> Reply:
        healthy = super()._healthy(request)
        message = self._message(request.body) if isinstance(request.body, dict) else None
        changed = self._change(request, message)
        if changed is None:
            return healthy
        return Reply(changed.status, changed.body, {**healthy.headers, **changed.headers})


def _json(message: Any) -> bytes:
    return json.dumps(message).encode()


def _events(data: bytes) -> dict[str, str]:
    return {"content-type": "text/event-stream"}


def _stream(*pieces: bytes) -> Iterator[bytes]:
    return iter(pieces)


@pytest.mark.defect("M19")
@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("value", [2, 2.5, 0])
async def test_a_cursor_that_is_a_number_is_followed_and_sent_back_as_it_was(
    opened: Opened, transport: str, value: float
) -> None:
    class Paged(McpHttp):
        def _message(self, body: Any) -> dict[str, Any] | None:
            if body.get("method") != "tools/list":
                return super()._message(body)
            cursor = (body.get("params") or {}).get("cursor")
            name = "first" if cursor is None else "second"
            result: dict[str, Any] = {"tools": [{"name": name, "inputSchema": {"type": "object"}}]}
            if cursor is None:
                result["nextCursor"] = value
            return {"jsonrpc": "2.0", "id": body["id"], "result": result}

    with Paged(transport=transport) as server:
        connection = opened(Connection("remote", ServerConfig.model_validate(server.config())))
        await connection.connect()
        assert [tool.name for tool in connection.tools] == ["first", "second"]
        assert [
            (request.body.get("params") or {}).get("cursor")
            for request in server.received("tools/list")
        ] == [None, value]


def test_numbers_of_one_listing_are_not_those_of_another() -> None:
    session: Any = SimpleNamespace(protocol_version="2025-11-25")
    repairs = Repairs(session, "remote", str, ignore)
    repairs.repair("tools/list", {"tools": [], "nextCursor": 2})
    repairs.repair("resources/list", {"resources": [], "nextCursor": 50})
    assert repairs.numbers == {("tools/list", "2"): 2, ("resources/list", "50"): 50}


@pytest.mark.defect("M19")
@pytest.mark.parametrize("as_events", [False, True], ids=["json", "events"])
async def test_a_byte_order_mark_is_no_part_of_a_message(opened: Opened, as_events: bool) -> None:
    def marked(request: Request, message: Any) -> Reply | None:
        if message is None:
            return None
        if as_events:
            return Reply(body=_stream(MARK + event("message", message)))
        return Reply(body=MARK + _json(message))

    with Odd(marked) as server:
        await _works(opened, server)


@pytest.mark.defect("M19")
async def test_a_process_may_begin_its_output_with_a_byte_order_mark(
    opened: Opened, raw: Raw
) -> None:
    connection = opened(Connection("marked", raw(calls={"a": {"raw": _marked_answer()}})))
    await connection.connect()
    result = await connection.call("a", {})
    assert result.content[0].text == "marked"


def _marked_answer() -> str:
    # Written as latin-1, so byte by byte.
    result = {"content": [{"type": "text", "text": "marked"}]}
    return (
        MARK.decode("latin-1")
        + '{"jsonrpc": "2.0", "id": ID, "result": '
        + json.dumps(result)
        + "}\n"
    )


async def _works(opened: Opened, server: McpHttp, **fields: Any) -> Connection:
    """Connect to a server, call its tool, and close the connection without a complaint."""
    connection: Connection = opened(
        Connection("odd", ServerConfig.model_validate(server.config(call_timeout=5, **fields)))
    )
    await connection.connect()
    assert connection.status.error is None
    assert connection.status.notes == ()
    assert [tool.name for tool in connection.tools] == ["a"]
    assert (await connection.call("a", {})).content[0].text == "ok"
    return connection


def _notification(request: Request) -> bool:
    return request.method == "POST" and isinstance(request.body, dict) and "id" not in request.body


def _of_messages(make: Callable[[Any], Reply]) -> Callable[[Request, Any], Reply | None]:
    def change(request: Request, message: Any) -> Reply | None:
        return None if message is None else make(message)

    return change


def _of_notifications(reply: Callable[[], Reply]) -> Callable[[Request, Any], Reply | None]:
    def change(request: Request, message: Any) -> Reply | None:
        return reply() if _notification(request) else None

    return change


def _of_method(method: str, reply: Callable[[], Reply]) -> Callable[[Request, Any], Reply | None]:
    def change(request: Request, message: Any) -> Reply | None:
        return reply() if request.method == method else None

    return change


def _without_id(message: Any) -> Reply:
    return Reply(body={**message, "id": str(message["id"])})


def _refused_without_id(request: Request, message: Any) -> Reply | None:
    if message is None or "error" not in message:
        return None
    return Reply(body={**message, "id": None})


ODDITIES: dict[str, Callable[[Request, Any], Reply | None]] = {
    "a type with a charset, in capitals": _of_messages(
        lambda message: Reply(
            body=_json(message), headers={"content-type": "Application/JSON; Charset=UTF-8"}
        )
    ),
    "events with a charset": _of_messages(
        lambda message: Reply(
            body=_stream(event("message", message)),
            headers={"content-type": "text/event-stream;charset=UTF-8"},
        )
    ),
    "events without a name": _of_messages(
        lambda message: Reply(body=_stream(b"data: " + _json(message) + b"\n\n"))
    ),
    "events without a space": _of_messages(
        lambda message: Reply(body=_stream(b"data:" + _json(message) + b"\n\n"))
    ),
    "events without an end": _of_messages(
        lambda message: Reply(body=_stream(b"event: message\ndata: " + _json(message)))
    ),
    "events with carriage returns": _of_messages(
        lambda message: Reply(
            body=_stream(b"event: message\r\ndata: " + _json(message) + b"\r\n\r\n")
        )
    ),
    "events of several lines": _of_messages(
        lambda message: Reply(
            body=_stream(
                b"".join(
                    b"data: " + line + b"\n"
                    for line in json.dumps(message, indent=1).encode().split(b"\n")
                )
                + b"\n"
            )
        )
    ),
    "comments that keep the connection": _of_messages(
        lambda message: Reply(
            body=_stream(b": ping\n\n", b":\n\n", event("message", message), b": ping\n\n")
        )
    ),
    "events of other kinds": _of_messages(
        lambda message: Reply(
            body=_stream(event("ping", {}), event("heartbeat", "x"), event("message", message))
        )
    ),
    "empty data": _of_messages(
        lambda message: Reply(
            body=_stream(b"id: 1\nretry: 10\ndata:\n\n", event("message", message))
        )
    ),
    "a stream in gzip": _of_messages(
        lambda message: Reply(
            body=_stream(gzip.compress(event("message", message))),
            headers={"content-type": "text/event-stream", "content-encoding": "gzip"},
        )
    ),
    "json in gzip": _of_messages(
        lambda message: Reply(
            body=gzip.compress(_json(message)), headers={"content-encoding": "gzip"}
        )
    ),
    "ids as text": _of_messages(_without_id),
    "errors without an id": _refused_without_id,
    "an answer in a list": _of_messages(lambda message: Reply(body=[message])),
    "json as plain text": _of_messages(
        lambda message: Reply(body=_json(message), headers={"content-type": "text/plain"})
    ),
    "json without a type": _of_messages(
        lambda message: Reply(body=_json(message), headers={"content-type": ""})
    ),
    "events as plain text": _of_messages(
        lambda message: Reply(
            body=_stream(event("message", message)),
            headers={"content-type": "text/plain; charset=utf-8"},
        )
    ),
    "a created status": _of_messages(lambda message: Reply(201, message)),
    "json after line breaks that keep the connection": _of_messages(
        lambda message: Reply(
            body=_stream(b"\n", b"\n \n", _json(message)),
            headers={"content-type": "application/json"},
        )
    ),
    "202 with a body": _of_notifications(lambda: Reply(202, {"status": "accepted"})),
    "an empty 200 for notifications": _of_notifications(
        lambda: Reply(200, b"", {"content-type": "text/plain"})
    ),
    "204 for notifications": _of_notifications(lambda: Reply(204)),
    "json for notifications": _of_notifications(
        lambda: Reply(200, {"jsonrpc": "2.0", "id": None, "result": {}})
    ),
    "notifications refused": _of_notifications(lambda: Reply(400, "unknown")),
    "an end that is not allowed": _of_method("DELETE", lambda: Reply(405)),
    "an end that is unknown": _of_method("DELETE", lambda: Reply(404, "no such session")),
    "an end that fails": _of_method("DELETE", lambda: Reply(500)),
    "no stream of its own, by 404": _of_method("GET", lambda: Reply(404, "not found")),
    "no stream of its own, by 400": _of_method("GET", lambda: Reply(400, "no")),
    "no stream of its own, by a page": _of_method("GET", lambda: Reply(200, "<html>Hello</html>")),
    "the session's header in capitals": _of_messages(
        lambda message: Reply(body=message, headers={"MCP-SESSION-ID": "s", "X-Powered-By": "x"})
    ),
}


@pytest.mark.defect("M19")
@pytest.mark.parametrize("what", ODDITIES)
async def test_an_oddity_does_no_harm(opened: Opened, what: str) -> None:
    with Odd(ODDITIES[what]) as server:
        if what == "the session's header in capitals":
            server.session = "s"
        connection = await _works(opened, server)
        # What a gateway counts: one session.
        assert len(server.received("initialize")) == 1
        await connection.close()


@pytest.mark.defect("M19")
async def test_a_page_in_place_of_an_answer_is_still_refused(opened: Opened) -> None:
    with Odd(_of_messages(lambda message: Reply(200, "<html>Please sign in</html>"))) as server:
        connection = opened(Connection("odd", ServerConfig.model_validate(server.config())))
        with pytest.raises(ConnectError, match="text/html"):
            await connection.connect()


@pytest.mark.defect("M19")
@pytest.mark.parametrize(
    "reply",
    [Reply(200, b"", {"content-type": "text/plain"}), Reply(204), Reply(202), Reply(200, [])],
    ids=str,
)
async def test_an_answer_without_a_message_fails_its_call_at_once(
    opened: Opened, reply: Reply
) -> None:
    with McpHttp() as server:
        connection = opened(
            Connection("odd", ServerConfig.model_validate(server.config(call_timeout=30)))
        )
        await connection.connect()
        server.script(
            "tools/call",
            Reply(reply.status, reply.body if reply.body is not None else b"", reply.headers),
        )
        with pytest.raises(ToolCallError) as caught:
            await connection.call("a", {})
        assert not isinstance(caught.value, ToolTimeoutError)
        assert (await connection.call("a", {})).content[0].text == "ok"
