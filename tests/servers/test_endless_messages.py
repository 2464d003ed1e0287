"""A message that has no end: the connection that it makes useless is ended, and the next use makes
a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kit.mcp_http import McpHttp
from kit.raw_server import OK
from kit.scripted_http import Reply

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.errors import ConnectError, ToolCallError, ToolTimeoutError
from casual_mcp_nb.servers.connection import Connection

Raw = Callable[..., ServerConfig]
Opened = Callable[..., Any]

MEGABYTE = b"x" * 1_000_000


@pytest.mark.defect("B10")
async def test_a_line_without_an_end_ends_the_connection_and_the_next_call_works(
    opened: Opened, raw: Raw
) -> None:
    connection = opened(
        Connection(
            "endless", raw({"call_timeout": 60}, calls={"talk": {"endless": True}, "fine": OK})
        )
    )
    await connection.connect()
    with pytest.raises(ToolCallError, match="without an end") as caught:
        await connection.call("talk", {})
    assert not isinstance(caught.value, ToolTimeoutError)
    assert connection.status.state == "failed"
    assert "without an end" in (connection.status.error or "")
    assert (await connection.call("fine", {})).content[0].text == "ok"


@pytest.mark.defect("B10")
async def test_a_message_that_stops_in_its_middle_costs_one_call(opened: Opened, raw: Raw) -> None:
    half = '{"jsonrpc": "2.0", "id": ID, "result": {"content": [{"type": "te'
    connection = opened(
        Connection("half", raw({"call_timeout": 1.5}, calls={"stop": {"raw": half}, "fine": OK}))
    )
    await connection.connect()
    with pytest.raises(ToolTimeoutError, match="did not end it"):
        await connection.call("stop", {})
    assert (await connection.call("fine", {})).content[0].text == "ok"


async def test_a_call_that_runs_out_of_time_without_such_a_message_leaves_the_connection(
    opened: Opened, raw: Raw
) -> None:
    connection = opened(
        Connection("slow", raw({"call_timeout": 0.5}, calls={"hang": {}, "fine": OK}))
    )
    await connection.connect()
    with pytest.raises(ToolTimeoutError):
        await connection.call("hang", {})
    assert connection.status.state == "ready"


@pytest.mark.defect("B10")
async def test_a_banner_without_an_end_fails_the_start_and_is_said(
    opened: Opened, raw: Raw, tmp_path: Any
) -> None:
    script = tmp_path / "flood.py"
    script.write_text("import sys\nwhile True: sys.stdout.write('x' * 1_000_000)\n")
    config = ServerConfig.model_validate(
        {"command": raw().command, "args": (str(script),), "init_timeout": 60}
    )
    connection = opened(Connection("flood", config))
    with pytest.raises(ConnectError, match="without an end"):
        await connection.connect()


@pytest.mark.defect("B10")
@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_an_answer_over_http_without_an_end_costs_one_call(
    opened: Opened, transport: str
) -> None:
    with McpHttp(transport=transport) as server:
        connection = opened(Connection("remote", ServerConfig.model_validate(server.config())))
        await connection.connect()
        if transport == "http":

            def endless() -> Any:
                while not server.stopped.is_set():
                    yield MEGABYTE

            server.script(
                "tools/call", Reply(body=endless(), headers={"content-type": "application/json"})
            )
        else:
            server.script("tools/call", Reply(body=b"event: message\ndata: " + MEGABYTE * 6))
        with pytest.raises(ToolCallError, match=r"too large|without an end") as caught:
            await connection.call("a", {})
        assert not isinstance(caught.value, ToolTimeoutError)
        assert (await connection.call("a", {})).content[0].text == "ok"
