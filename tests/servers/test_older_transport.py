"""Remote servers of the older SSE transport, and the errors of a refusal over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kit.mcp_http import McpHttp, event
from kit.scripted_http import Reply, Request, ScriptedHttp

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.errors import ConnectError
from casual_mcp_nb.servers.connection import Connection

Opened = Callable[..., Any]


def without_transport(server: McpHttp, **fields: Any) -> ServerConfig:
    config = server.config(**fields)
    del config["transport"]
    return ServerConfig.model_validate(config)


@pytest.mark.defect("D9")
@pytest.mark.parametrize("status", [400, 404, 405])
async def test_an_address_that_refuses_streamable_http_is_tried_over_sse(
    opened: Opened, status: int
) -> None:
    with McpHttp(transport="sse") as server:
        server.script("POST", *[Reply(status)] * 2)
        connection = opened(Connection("old", without_transport(server)))
        await connection.connect()
        assert (connection.status.state, connection.status.transport) == ("ready", "sse")
        assert f"HTTP {status}" in connection.status.notes[0]
        assert "servers.old.transport" in connection.status.notes[0]
        assert (await connection.call("a", {})).content[0].text == "ok"
        posts = len(
            [
                request
                for request in server.seen
                if request.method == "POST" and request.path.endswith("/sse")
            ]
        )
        await connection.reconnect()
        again = [
            request
            for request in server.seen
            if request.method == "POST" and request.path.endswith("/sse")
        ]
        # Once it is known, it is not tried again.
        assert len(again) == posts


@pytest.mark.slow
async def test_a_real_server_of_the_older_transport_needs_no_setting(
    opened: Opened, http_server: Callable[..., Any]
) -> None:
    async with http_server("sse") as (address, _):
        connection = opened(Connection("old", ServerConfig(url=address)))
        await connection.connect()
        assert (await connection.call("add", {"a": 1, "b": 2})).content[0].text == "3"


@pytest.mark.defect("D9")
@pytest.mark.parametrize(("transport", "status"), [("http", 405), (None, 401), (None, 500)])
async def test_the_older_transport_is_tried_only_if_allowed_and_likely_to_help(
    opened: Opened, transport: str | None, status: int
) -> None:
    with ScriptedHttp(lambda _request: Reply(status)) as server:
        config = ServerConfig.model_validate(
            {"url": f"{server.url}/sse", "transport": transport, "init_timeout": 5}
        )
        connection = opened(Connection("remote", config))
        with pytest.raises(ConnectError, match=f"HTTP {status}"):
            await connection.connect()
        assert {request.method for request in server.seen} == {"POST"}


@pytest.mark.defect("D9")
async def test_where_both_transports_fail_both_reasons_are_said(opened: Opened) -> None:
    with ScriptedHttp(lambda request: Reply(405 if request.method == "POST" else 500)) as server:
        connection = opened(Connection("remote", ServerConfig(url=f"{server.url}/sse")))
        with pytest.raises(ConnectError, match=r"HTTP 405.*sse.*HTTP 500"):
            await connection.connect()


@pytest.mark.parametrize("transport", ["http", None])
@pytest.mark.parametrize(("path", "helps"), [("", True), ("/", True), ("/shop", False)])
async def test_an_address_without_a_path_at_which_nothing_is_names_the_usual_one(
    opened: Opened, path: str, helps: bool, transport: str | None
) -> None:
    with ScriptedHttp(lambda _request: Reply(404)) as server:
        config = ServerConfig.model_validate({"url": server.url + path, "transport": transport})
        with pytest.raises(ConnectError, match="HTTP 404") as caught:
            await opened(Connection("remote", config)).connect()
        assert ("/mcp" in str(caught.value)) == helps


@pytest.mark.defect("B11")
async def test_an_sse_endpoint_on_another_origin_is_said_at_once(opened: Opened) -> None:
    def answer(request: Request) -> Reply:
        return Reply(
            body=iter([event("endpoint", "http://me:hunter2@other.example:1234/messages")])
        )

    with ScriptedHttp(answer) as server:
        config = ServerConfig(url=f"{server.url}/sse", transport="sse", init_timeout=60)
        connection = opened(Connection("remote", config))
        with pytest.raises(ConnectError, match=r"http://other\.example:1234") as caught:
            await connection.connect()
        assert server.url in str(caught.value)
        assert "hunter2" not in str(caught.value)


@pytest.mark.defect("D9")
@pytest.mark.parametrize(
    "body",
    [
        "Access is only allowed at localhost:39103",
        {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": -32000, "message": "Access is only allowed at localhost:39103"},
        },
    ],
)
async def test_a_servers_reason_for_refusing_access_is_quoted(opened: Opened, body: Any) -> None:
    with ScriptedHttp(lambda _request: Reply(403, body)) as server:
        connection = opened(Connection("remote", ServerConfig(url=f"{server.url}/mcp")))
        with pytest.raises(
            ConnectError,
            match=r"\b403\b.*: 'Access is only .*localhost:39103'",
        ):
            await connection.connect()


@pytest.mark.defect("D9")
async def test_a_servers_reason_for_refusing_access_is_cut_and_masked(opened: Opened) -> None:
    with ScriptedHttp(
        lambda _request: Reply(403, "no access with s3cret-token " + "x" * 100_000)
    ) as server:
        config = ServerConfig.model_validate(
            {"url": f"{server.url}/mcp", "headers": {"Authorization": "Bearer s3cret-token"}}
        )
        connection = opened(Connection("remote", config))
        with pytest.raises(ConnectError, match="no access") as caught:
            await connection.connect()
        assert "s3cret" not in str(caught.value)
        assert len(str(caught.value)) < 1_000
