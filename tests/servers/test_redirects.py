"""Addresses that redirect: within their own origin they are followed, elsewhere they are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kit.mcp_http import McpHttp
from kit.scripted_http import Reply, Request

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.errors import ConnectError
from casual_mcp_nb.servers.connection import Connection

Opened = Callable[..., Any]


def _config(url: str, transport: str) -> ServerConfig:
    return ServerConfig.model_validate({"url": url, "transport": transport, "init_timeout": 10})


class Redirecting(McpHttp):
    """A server whose address without a slash at its end redirects to `target`."""

    def __init__(
        self, status: int, target: Callable[[Redirecting], str], transport: str = "http"
    ) -> None:
        super().__init__(transport=transport)
        self._status = status
        self._target = target

    def _reply(self, request: Request) -> Reply:
        if request.path in ("/mcp", "/sse"):
            return Reply(self._status, headers={"location": self._target(self)})
        return super()._reply(request)


@pytest.mark.slow
@pytest.mark.defect("M1")
@pytest.mark.parametrize(("transport", "path"), [("http", "/mcp/"), ("sse", "/sse/")])
async def test_a_server_at_a_path_with_a_slash_is_used_by_its_address_without(
    opened: Opened, http_server: Callable[..., Any], transport: str, path: str
) -> None:
    async with http_server(transport, path) as (url, _):
        assert not url.endswith("/")
        connection = opened(Connection("remote", _config(url, transport)))
        await connection.connect()
        assert connection.status.tools == 2
        assert (await connection.call("add", {"a": 1, "b": 2})).structured == {"result": 3}


@pytest.mark.defect("M1")
@pytest.mark.parametrize("whole", [False, True], ids=["path", "whole address"])
@pytest.mark.parametrize(
    ("transport", "status"),
    [("http", 307), ("http", 308), ("sse", 301), ("sse", 307), ("sse", 308)],
)
async def test_redirects_within_an_origin_are_followed_by_every_request(
    opened: Opened, transport: str, status: int, whole: bool
) -> None:
    path = "/mcp/" if transport == "http" else "/sse/"
    with Redirecting(
        status, lambda server: server.url + path if whole else path, transport
    ) as server:
        connection = opened(Connection("remote", _config(server.url + path.rstrip("/"), transport)))
        await connection.connect()
        assert (await connection.call("a", {})).content[0].text == "ok"
        exchanges = [record.http for record in connection.read_wire() if record.http is not None]
        assert {status, 200} <= {exchange.status for exchange in exchanges}
        await connection.close()
        assert [request.path for request in server.seen if request.method == "DELETE"] == (
            ["/mcp", "/mcp/"] if transport == "http" else []
        )


@pytest.mark.defect("M1")
async def test_a_connection_that_breaks_behind_a_redirect_fails_only_its_call(
    opened: Opened,
) -> None:
    with Redirecting(307, lambda _: "/mcp/") as server:
        connection = opened(Connection("remote", _config(f"{server.url}/mcp", "http")))
        await connection.connect()
        server.script("tools/call", Reply(reset=True))
        with pytest.raises(Exception, match="the connection was closed"):
            await connection.call("a", {})
        assert (await connection.call("a", {})).content[0].text == "ok"
        assert len(server.received("initialize")) == 2  # one at each address


@pytest.mark.defect("M1")
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_redirect_to_another_origin_is_refused_and_named(
    opened: Opened, transport: str
) -> None:
    with (
        McpHttp(transport=transport) as other,
        Redirecting(307, lambda _: f"{other.url}/mcp/", transport) as server,
    ):
        connection = opened(
            Connection(
                "remote",
                _config(f"{server.url}/{'mcp' if transport == 'http' else 'sse'}", transport),
            )
        )
        with pytest.raises(ConnectError, match=f"edirect.*{other.url}"):
            await connection.connect()
        assert other.seen == []


@pytest.mark.defect("M1")
@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_would_drop_the_message_is_refused_and_named(
    opened: Opened, status: int
) -> None:
    with Redirecting(status, lambda _: "/mcp/") as server:
        connection = opened(Connection("remote", _config(f"{server.url}/mcp", "http")))
        with pytest.raises(ConnectError, match=f"edirect.*{server.url}/mcp/"):
            await connection.connect()
