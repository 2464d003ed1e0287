"""Servers over HTTP that wake up slowly: the first answer counts, whichever request it belongs
to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import mcp.client.session
import pytest
from kit.mcp_http import McpHttp
from kit.scripted_http import Reply, Request
from mcp_types.version import LATEST_MODERN_VERSION

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.errors import ConnectError
from casual_mcp_nb.servers import negotiation
from casual_mcp_nb.servers.connection import Connection

Opened = Callable[..., Any]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handshake is tried after a short time, not shortly before the limit."""
    monkeypatch.setattr(negotiation, "HTTP_DISCOVER_SHARE", 0.05)


HINTS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


class Waking(McpHttp):
    """A server that answers the question for its versions only when something else has happened.

    Args:
        modern: Whether it has only the newer protocol, and refuses the handshake.
        waits_for: The method after which it answers the question; empty for at once, None for
            never.
    """

    def __init__(self, *, modern: bool, waits_for: str | None) -> None:
        super().__init__()
        self._modern = modern
        self._waits_for = waits_for
        self._awake = threading.Event()
        if waits_for == "":
            self._awake.set()

    def _reply(self, request: Request) -> Reply:
        method = request.body.get("method") if isinstance(request.body, dict) else None
        if method == self._waits_for:
            self._awake.set()
        if method == "server/discover":
            while not (self._awake.wait(0.02) or self.stopped.is_set()):
                pass
        return super()._reply(request)

    def _message(self, body: Any) -> dict[str, Any] | None:
        if not self._modern:
            return super()._message(body)
        if body.get("method") == "server/discover":
            result: dict[str, Any] = {
                "supportedVersions": [LATEST_MODERN_VERSION],
                "capabilities": {"tools": {}},
                **HINTS,
            }
        elif body.get("method") == "tools/list":
            result = {"tools": self.tools, **HINTS}
        elif "id" in body:
            data = {"supported": [LATEST_MODERN_VERSION], "requested": "2025-11-25"}
            error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
            return {"jsonrpc": "2.0", "id": body["id"], "error": error}
        else:
            return None
        return {"jsonrpc": "2.0", "id": body["id"], "result": result}


def _connection(opened: Opened, server: McpHttp, **fields: Any) -> Connection:
    connection: Connection = opened(
        Connection("slow", ServerConfig.model_validate(server.config(**fields)))
    )
    return connection


def _methods(server: McpHttp) -> list[str]:
    return [request.body["method"] for request in server.seen if isinstance(request.body, dict)]


@pytest.mark.defect("M14")
@pytest.mark.usefixtures("soon")
async def test_a_server_without_the_handshake_may_answer_after_it_was_tried(opened: Opened) -> None:
    with Waking(modern=True, waits_for="initialize") as server:
        connection = _connection(opened, server, init_timeout=8)
        await connection.connect()
        assert (connection.status.state, connection.status.agreed) == ("ready", "discover")
        assert connection.status.notes == ()
        assert _methods(server)[:3] == ["server/discover", "initialize", "tools/list"]


@pytest.mark.defect("M14")
@pytest.mark.usefixtures("soon")
async def test_a_server_with_only_the_handshake_may_refuse_the_question_after_it(
    opened: Opened,
) -> None:
    with Waking(modern=False, waits_for="initialize") as server:
        server.script("initialize", Reply(delay=0.3))
        connection = _connection(opened, server, init_timeout=8)
        await connection.connect()
        assert (connection.status.state, connection.status.agreed) == ("ready", "handshake")
        assert _methods(server).count("initialize") == 1


@pytest.mark.defect("M14")
@pytest.mark.usefixtures("soon")
async def test_a_server_that_never_answers_the_question_is_used_by_the_handshake(
    opened: Opened,
) -> None:
    with Waking(modern=False, waits_for=None) as server:
        connection = _connection(opened, server, init_timeout=8)
        await connection.connect()
        assert (connection.status.state, connection.status.agreed) == ("ready", "handshake")
        assert "servers.slow.protocol" in connection.status.notes[0]
        assert _methods(server).count("initialize") == 1


@pytest.mark.usefixtures("soon")
async def test_a_late_answer_that_is_not_valid_leaves_the_handshake_that_was_begun(
    opened: Opened,
) -> None:
    with Waking(modern=False, waits_for="initialize") as server:
        late = {"jsonrpc": "2.0", "id": 1, "result": {"supportedVersions": 7}}
        server.script("server/discover", Reply(body=late))
        server.script("initialize", Reply(delay=0.3))
        connection = _connection(opened, server, init_timeout=8)
        await connection.connect()
        assert (connection.status.state, connection.status.agreed) == ("ready", "handshake")
        assert _methods(server).count("initialize") == 1


@pytest.mark.defect("M14")
@pytest.mark.usefixtures("soon")
async def test_a_server_that_answers_too_late_for_its_limit_is_told_the_limit(
    opened: Opened,
) -> None:
    with Waking(modern=True, waits_for=None) as server:
        connection = _connection(opened, server, init_timeout=1.5)
        with pytest.raises(ConnectError, match=r" 1\.5 s .*servers\.slow\.init_timeout") as caught:
            await connection.connect()
        assert "legacy" not in str(caught.value)


@pytest.mark.defect("M14")
@pytest.mark.parametrize("protocol", ["auto", LATEST_MODERN_VERSION])
async def test_the_limit_is_the_connections_and_not_the_librarys(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    # The library gives up after 10 s.
    monkeypatch.setattr(mcp.client.session, "DISCOVER_TIMEOUT_SECONDS", 0.01)
    with Waking(modern=True, waits_for="") as server:
        server.script("server/discover", Reply(delay=0.5))
        connection = _connection(opened, server, protocol=protocol, init_timeout=9)
        await connection.connect()
        assert connection.status.agreed == "discover"
        assert _methods(server)[:2] == ["server/discover", "tools/list"]


@pytest.mark.defect("M14")
@pytest.mark.parametrize("protocol", [LATEST_MODERN_VERSION])
async def test_a_version_that_the_config_sets_is_asked_for_once(
    opened: Opened, protocol: str
) -> None:
    with Waking(modern=True, waits_for=None) as server:
        connection = _connection(opened, server, protocol=protocol, init_timeout=1)
        with pytest.raises(ConnectError, match="no answer in 1 s"):
            await connection.connect()
        assert _methods(server) == ["server/discover"]


@pytest.mark.defect("M14")
async def test_a_server_without_the_handshake_is_not_asked_for_it_while_it_wakes_up(
    opened: Opened,
) -> None:
    with Waking(modern=True, waits_for="") as server:
        server.script("server/discover", Reply(delay=2))
        connection = _connection(opened, server, init_timeout=5)
        await connection.connect()
        assert _methods(server)[:2] == ["server/discover", "tools/list"]
