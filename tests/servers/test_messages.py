from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from kit.mcp_http import McpHttp
from kit.scripted_http import Reply

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.errors import ToolCallError
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.message_limits import LineLimit

LONG = "x" * 200


def fed(limit: LineLimit, data: bytes, size: int) -> list[bytes]:
    """Feed `data` in pieces of so many bytes, and collect the output."""
    out = b"".join(limit.feed(data[start : start + size]) for start in range(0, len(data), size))
    return (out + limit.feed(b"", final=True)).split(b"\n")


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 7, "result": LONG},
        {"id": 7, "jsonrpc": "2.0", "result": LONG},
        {"result": {"id": 3, "text": LONG}, "jsonrpc": "2.0", "id": 7},
        {"result": {"id": 3, "text": LONG}, "id": 7, "jsonrpc": "2.0"},
        {"jsonrpc": "2.0", "id": "7", "result": LONG},
    ],
)
def test_an_overlong_line_gets_an_error_reply_however_it_is_split(
    message: dict[str, Any], size: int
) -> None:
    for text in (json.dumps(message), json.dumps(message, separators=(",", ":"))):
        before, answer, after = fed(LineLimit(100), b"before\n" + text.encode() + b"\nafter", size)
        assert (before, after) == (b"before", b"after")
        reply = json.loads(answer)
        assert reply["id"] == 7
        assert "too large" in reply["error"]["message"]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_lines_up_to_the_limit_pass_and_longer_ones_without_an_id_are_dropped(size: int) -> None:
    lines = [b"", b"a" * 100, b"\r", b"b" * 101, "é".encode() * 50, b"end"]
    assert fed(LineLimit(100), b"\n".join(lines), size) == [*lines[:3], b"", *lines[4:]]


def test_a_whole_body_is_one_message_and_keeps_its_lines() -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "result": {}}, indent=2).encode()
    assert b"\n".join(fed(LineLimit(100, whole=True), body, 9)) == body
    assert json.loads(b"".join(fed(LineLimit(30, whole=True, request_id=8), body, 9)))["id"] == 8


async def test_the_limit_applies_to_the_unpacked_body(opened: Callable[..., Any]) -> None:
    bomb = gzip.compress(b'{"jsonrpc": "2.0", "id": 1, "result": "' + b"x" * 30_000_000 + b'"}')
    packed = {"content-encoding": "gzip", "content-type": "application/json"}
    with McpHttp() as server:
        connection = opened(Connection("remote", ServerConfig.model_validate(server.config())))
        await connection.connect()
        server.script("tools/call", Reply(body=bomb, headers=packed))
        with pytest.raises(ToolCallError, match=r"too large: 28\.6 MB"):
            await connection.call("a", {})
        assert (await connection.call("a", {})).content[0].text == "ok"


async def test_over_sse_a_message_beyond_the_megabyte_of_the_sdk_costs_that_call_only(
    opened: Callable[..., Any],
) -> None:
    large = {"content": [{"type": "text", "text": "x" * 2_000_000}]}
    fits = {"content": [{"type": "text", "text": "x" * 1_000_000}]}
    with McpHttp({"large": large, "fits": fits}, transport="sse") as server:
        connection = opened(Connection("remote", ServerConfig.model_validate(server.config())))
        await connection.connect()
        with pytest.raises(ToolCallError, match=r"too large: 1\.9 MB\b.* 1 MB\b"):
            await connection.call("large", {})
        assert len((await connection.call("fits", {})).content[0].text) == 1_000_000
        assert len(server.received("initialize")) == 1


async def test_a_partial_line_at_the_end_of_a_server_is_not_a_message(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig]
) -> None:
    connection = opened(
        Connection(
            "half", raw(calls={"half": {"raw": '{"jsonrpc": "2.0", "id": ID, "res', "die": True}})
        )
    )
    await connection.connect()
    with pytest.raises(ToolCallError, match="the connection was closed"):
        await connection.call("half", {})
