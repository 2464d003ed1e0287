"""HTTP servers that lose their sessions, as they do when they restart, and say so in many ways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kit.mcp_http import McpHttp
from kit.scripted_http import Reply, Request

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.errors import ConnectError, ResourceError, ToolCallError
from casual_mcp_nb.servers._errors import says_session_is_lost
from casual_mcp_nb.servers.connection import Connection

Opened = Callable[..., Any]


def _error(message: str, code: int = -32000) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}


class Forgetful(McpHttp):
    """A server that refuses each request in a session that it does not know with `refusal`, until
    it is down itself.
    """

    def __init__(self, refusal: Reply, **fields: Any) -> None:
        super().__init__(**fields)
        self.refusal = refusal
        self.down: Reply | None = None

    def _healthy(self, request: Request) -> Reply:
        if self.down is not None:
            return self.down
        session = request.headers.get("mcp-session-id")
        if request.method != "POST" or session in (None, self.session):
            return super()._healthy(request)
        body = self.refusal.body
        if isinstance(body, dict) and body.get("id", 0) is None and self.refusal.status == 200:
            body = {**body, "id": request.body.get("id")}
        return Reply(self.refusal.status, body, self.refusal.headers)


REFUSALS = {
    "the specification": Reply(404, "Session not found"),
    "the TypeScript SDK": Reply(404, _error("Session not found", -32001)),
    "404 with a code of its own": Reply(404, _error("Not Found: Unknown Mcp-Session-Id header")),
    "the Python SDK 1.x": Reply(400, "Bad Request: No valid session ID provided"),
    "examples of the TypeScript SDK": Reply(
        400, _error("Bad Request: No valid session ID or not an initialize request")
    ),
    "a store of sessions": Reply(400, _error("Bad Request: Server not initialized")),
    "a proxy with sign-in": Reply(401, _error("Unauthorized: unknown session")),
    "gone": Reply(410, ""),
    "a conflict": Reply(409, {"error": "The session has expired"}),
    "busy": Reply(503, {"error": {"message": "Unknown session ID"}}),
    "200 with an invalid request": Reply(200, _error("missing or invalid Mcp-Session-Id", -32600)),
    "200 with another error": Reply(200, _error("Session does not exist")),
}
"""Name -> how a request in a lost session is refused, so that it cannot have run."""


@pytest.mark.defect("M4")
@pytest.mark.parametrize("how", REFUSALS)
async def test_a_lost_session_is_renewed_and_the_request_made_again(
    opened: Opened, how: str
) -> None:
    with Forgetful(REFUSALS[how]) as server:
        connection = opened(Connection("remote", ServerConfig.model_validate(server.config())))
        await connection.connect()
        for use in (_call, _list_tools, _read):
            server.forget_sessions()
            before = len(server.received("initialize"))
            await use(connection)
            assert len(server.received("initialize")) == before + 1
            assert connection.status.state == "ready"
            assert connection.status.error is None


async def _call(connection: Connection) -> None:
    result = await connection.call("a", {})
    assert result.content[0].text == "ok"


async def _list_tools(connection: Connection) -> None:
    tools = await connection.refresh(force=True)
    assert [tool.name for tool in tools] == ["a"]


async def _read(connection: Connection) -> None:
    # The server does not know the method, in a new session.
    with pytest.raises(ResourceError, match="Method not found"):
        await connection.resources.read("file:///a")


@pytest.mark.defect("M4")
@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 502, 503])
async def test_a_session_that_is_refused_without_words_is_renewed_at_the_next_use(
    opened: Opened, status: int
) -> None:
    with Forgetful(Reply(status, "no")) as server:
        connection = opened(Connection("remote", ServerConfig.model_validate(server.config())))
        await connection.connect()
        server.forget_sessions()
        with pytest.raises(ToolCallError, match=f"HTTP {status}"):
            await connection.call("a", {})
        # The call may have run.
        assert len(server.received("tools/call")) == 1
        assert connection.status.state == "failed"
        assert f"HTTP {status}" in (connection.status.error or "")
        await _call(connection)
        assert connection.status.state == "ready"
        assert len(server.received("initialize")) == 2


@pytest.mark.defect("M4")
@pytest.mark.parametrize(
    "reply",
    [
        Reply(500),
        Reply(400, _error("x must be even")),
        Reply(400, _error("session_id is required", -32602)),
        Reply(403),
    ],
    ids=str,
)
async def test_a_session_that_is_alive_is_kept_whatever_becomes_of_a_call(
    opened: Opened, reply: Reply
) -> None:
    with McpHttp() as server:
        connection = opened(Connection("remote", ServerConfig.model_validate(server.config())))
        await connection.connect()
        server.script("tools/call", reply)
        with pytest.raises(ToolCallError):
            await connection.call("a", {})
        assert len(server.received("ping")) == 1
        await _call(connection)
        assert len(server.received("initialize")) == 1


@pytest.mark.defect("M4")
async def test_a_tool_may_speak_of_sessions_of_its_own(opened: Opened) -> None:
    class Sessions(McpHttp):
        def _message(self, body: Any) -> dict[str, Any] | None:
            if body["method"] != "tools/call":
                return super()._message(body)
            return {**_error("Session not found: 7"), "id": body["id"]}

    with Sessions() as server:
        connection = opened(Connection("remote", ServerConfig.model_validate(server.config())))
        await connection.connect()
        with pytest.raises(ToolCallError, match="Session not found: 7"):
            await connection.call("a", {})
        assert len(server.received("tools/call")) == 1
        assert len(server.received("initialize")) == 1
        assert connection.status.state == "ready"


@pytest.mark.defect("M4")
async def test_calls_at_the_same_time_are_all_made_again(opened: Opened) -> None:
    with Forgetful(Reply(400, "No valid session ID provided")) as server:
        connection = opened(Connection("remote", ServerConfig.model_validate(server.config())))
        await connection.connect()
        server.forget_sessions()
        server.script(
            "tools/call",
            Reply(404, "session not found"),
            Reply(404, "session not found", delay=0.3),
        )
        await asyncio.gather(*(_call(connection) for _ in range(3)))
        assert len(server.received("initialize")) == 2
        assert len(server.received("tools/call")) == 6


@pytest.mark.defect("M4")
async def test_a_server_that_is_down_for_a_while_is_tried_again_at_each_use(opened: Opened) -> None:
    with Forgetful(Reply(404, "session not found")) as server:
        connection = opened(Connection("remote", ServerConfig.model_validate(server.config())))
        await connection.connect()
        server.down = Reply(503, "restarting")
        server.forget_sessions()
        with pytest.raises(ToolCallError, match="HTTP 503"):
            await connection.call("a", {})
        for _ in range(2):
            with pytest.raises(ConnectError, match="HTTP 503"):
                await connection.call("a", {})
            assert connection.status.state == "failed"
            assert [tool.name for tool in connection.tools] == ["a"]
        server.down = None
        await _call(connection)
        assert connection.status.state == "ready"


@pytest.mark.defect("M4")
@pytest.mark.parametrize(
    "text",
    [
        "No valid session ID provided",
        "no session ID or not initialization request",
        "Bad Request: Mcp-Session-Id header is required",
        "Not Found: Session has been terminated",
        "Could not find session",
        "Session with given ID not found",
        "Invalid session ID",
        "Unknown session. Send initialize first.",
        "No active session",
        "No transport found for sessionId",
        "Your session has expired",
        "Received request before initialization was complete",
    ],
)
def test_words_of_servers_about_lost_sessions_are_recognised(text: str) -> None:
    assert says_session_is_lost(text)


@pytest.mark.defect("M4")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "x must be even",
        "Unknown tool: opened_sessions",
        "The session was opened",
        "not found",
        "Invalid parameters",
    ],
)
def test_other_words_are_not(text: str) -> None:
    assert not says_session_is_lost(text)


@pytest.mark.defect("M4")
def test_a_long_text_is_read_only_at_its_start() -> None:
    assert not says_session_is_lost("x" * 1_000 + " session not found")
