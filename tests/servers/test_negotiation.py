"""What a server answers to the question for its versions, and which version is used then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from kit.mcp_http import McpHttp
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.errors import ConnectError
from casual_mcp_nb.servers.connection import Connection

Answer = dict[str, Any]
HINTS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
HANDSHAKE = ["server/discover", "initialize"]


def versions(*supported: str, **more: Any) -> Answer:
    return {"result": {"supportedVersions": supported, "capabilities": {}, **HINTS, **more}}


def refusal(code: int, *supported: str) -> Answer:
    data = {"supported": supported, "requested": LATEST_MODERN_VERSION}
    return {"error": {"code": code, "message": "no", "data": data}}


class Answering(McpHttp):
    """A server with both kinds of versions that answers the question for them as it is told."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._versions = answer

    def _message(self, body: Any) -> dict[str, Any] | None:
        if body.get("method") == "server/discover":
            return {"jsonrpc": "2.0", "id": body["id"], **self._versions}
        answer = super()._message(body)
        if answer is not None and "result" in answer:
            answer["result"] |= HINTS
        return answer


@pytest.mark.parametrize(
    ("answer", "agreed", "methods"),
    [
        (versions(LATEST_MODERN_VERSION), "discover", ["server/discover", "tools/list"]),
        (versions("1.0", LATEST_MODERN_VERSION), "discover", ["server/discover", "tools/list"]),
        (versions(LATEST_HANDSHAKE_VERSION), "handshake", HANDSHAKE),
        (
            versions(LATEST_MODERN_VERSION, capabilities=7, resultType=None),
            "discover",
            ["server/discover", "tools/list"],
        ),
        ({"result": {}}, "handshake", HANDSHAKE),
        (refusal(-32601), "handshake", HANDSHAKE),
        (refusal(-32022, LATEST_HANDSHAKE_VERSION), "handshake", HANDSHAKE),
        (refusal(-32022, "2099-01-01"), "", ["server/discover"]),
    ],
)
async def test_the_answer_decides_how_a_version_is_agreed_on(
    opened: Callable[..., Any], answer: Answer, agreed: str, methods: list[str]
) -> None:
    with Answering(answer) as server:
        config = ServerConfig.model_validate(server.config())
        connection: Connection = opened(Connection("either", config))
        with nullcontext() if agreed else pytest.raises(ConnectError):
            await connection.connect()
        assert connection.status.agreed == agreed
        # The session also opens a stream, whose request has no body.
        bodies = [request.body for request in server.seen if isinstance(request.body, dict)]
        assert [body["method"] for body in bodies[: len(methods)]] == methods
