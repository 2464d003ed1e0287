from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.secret import MASK
from casual_mcp_nb.errors import ClosedError, ConnectError
from casual_mcp_nb.servers.connection import Connection

FASTMCP_SCRIPT = """
from fastmcp import FastMCP
server = FastMCP("scripted", version="2.5", instructions="Ask for sums.")

@server.tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

server.run()
"""


async def test_a_fastmcp_server_over_stdio_is_started_listed_called_and_closed(
    tmp_path: Path, opened: Callable[..., Any], mark: str, processes: Callable[[], list[str]]
) -> None:
    script = tmp_path / "server.py"
    script.write_text(FASTMCP_SCRIPT)
    config = ServerConfig.model_validate(
        {"command": sys.executable, "args": (str(script),), "env": {"CASUAL_TEST_MARK": mark}}
    )
    connection = opened(Connection("scripted", config))
    assert connection.status.state == "closed"
    await connection.connect()
    status = connection.status
    assert (status.state, status.error, status.transport, status.tools) == (
        "ready",
        None,
        "stdio",
        1,
    )
    assert (status.version, status.instructions) == ("scripted 2.5", "Ask for sums.")
    assert status.protocol_version
    assert status.tokens > 0
    assert status.seconds is not None
    assert [tool.wire_name for tool in await connection.list_tools()] == ["scripted__add"]
    result = await connection.call("add", {"a": 1, "b": 2})
    assert (result.content[0].text, result.structured, result.is_error) == (
        "3",
        {"result": 3},
        False,
    )
    # It logs, but it draws no banner.
    assert "scripted" in connection.status.stderr_tail
    assert not {"╭", "│", "╰"} & set(connection.status.stderr_tail)
    await connection.close()
    assert connection.status.state == "closed"
    assert processes() == []


async def test_a_server_object_in_this_process_is_connected(opened: Callable[..., Any]) -> None:
    server = FastMCP("inside")
    server.tool(lambda: "hello", name="greet")
    connection = opened(Connection("inside", server=server))
    await connection.connect()
    assert connection.status.transport == "in-process"
    assert (await connection.call("greet", {})).content[0].text == "hello"


@pytest.mark.parametrize("transport", ["stdio", "in-process"])
async def test_a_bundled_server_is_connected(opened: Callable[..., Any], transport: str) -> None:
    connection = opened(
        Connection("math", ServerConfig.model_validate({"bundled": "math", "transport": transport}))
    )
    await connection.connect()
    assert connection.status.transport == transport
    result = await connection.call("add", {"a": 1, "b": 2})
    assert not result.is_error
    assert "3" in result.content[0].text


async def test_a_bundled_server_that_does_not_exist_fails_with_the_valid_names(
    opened: Callable[..., Any],
) -> None:
    with pytest.raises(ConnectError, match="math"):
        await opened(Connection("maths", ServerConfig(bundled="maths"))).connect()


async def test_a_command_that_does_not_exist_is_named(opened: Callable[..., Any]) -> None:
    connection = opened(Connection("gone", ServerConfig(command="/no/such/server")))
    with pytest.raises(ConnectError, match="'/no/such/server' was not found") as caught:
        await connection.connect()
    assert caught.value.server == "gone"
    assert connection.status.state == "failed"
    assert "'/no/such/server'" in (connection.status.error or "")


async def test_a_missing_folder_and_a_file_that_is_not_a_program_are_named(
    opened: Callable[..., Any], tmp_path: Path
) -> None:
    with pytest.raises(ConnectError, match="'/no/such/folder' does not exist"):
        await opened(
            Connection("x", ServerConfig(command=sys.executable, cwd="/no/such/folder"))
        ).connect()
    plain = tmp_path / "plain"
    plain.write_text("no program")
    with pytest.raises(ConnectError, match="not executable"):
        await opened(Connection("x", ServerConfig(command=str(plain)))).connect()


@pytest.mark.fault(2)
async def test_a_server_that_exits_immediately_fails_with_the_end_of_its_stderr(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig], processes: Callable[[], list[str]]
) -> None:
    config = raw(
        {"env": {"KEY": "s3cret-key"}},
        stderr="\x1b[31mKeyError: 'MY_TOKEN' is not set, s3cret-key\x1b[0m\n",
        exit=1,
    )
    connection = opened(Connection("leaver", config))
    with pytest.raises(ConnectError, match="KeyError: 'MY_TOKEN'") as caught:
        await connection.connect()
    assert "exited" in (connection.status.error or "")
    assert connection.status.stderr_tail == f"KeyError: 'MY_TOKEN' is not set, {MASK}"
    assert "s3cret" not in str(caught.value)
    assert processes() == []


@pytest.mark.fault(3)
async def test_a_silent_server_is_failed_at_its_limit_and_its_process_is_gone(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig], processes: Callable[[], list[str]]
) -> None:
    connection = opened(
        Connection("silent", raw({"init_timeout": 1.0}, handshake="silent", ignore_eof=True))
    )
    with pytest.raises(ConnectError, match="no answer in 1 s"):
        await connection.connect()
    assert processes() == []


@pytest.mark.fault(4)
async def test_a_banner_instead_of_an_answer_is_quoted(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig]
) -> None:
    connection = opened(
        Connection(
            "proud", raw({"init_timeout": 2.0}, handshake="silent", banner="Welcome to 1.0!")
        )
    )
    with pytest.raises(ConnectError, match=r" 2 s .*stdout .*'Welcome to 1\.0!'"):
        await connection.connect()


async def test_a_banner_before_the_answers_does_no_harm(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig]
) -> None:
    connection = opened(Connection("proud", raw(banner="Welcome to 1.0!", calls={"a": {}})))
    await connection.connect()
    assert connection.status.tools == 1


@pytest.mark.fault(5)
async def test_a_handshake_that_is_refused_fails_with_the_servers_words(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig], processes: Callable[[], list[str]]
) -> None:
    connection = opened(Connection("refuser", raw(handshake="error")))
    with pytest.raises(ConnectError, match="licence"):
        await connection.connect()
    assert processes() == []


@pytest.mark.fault(6)
async def test_an_unknown_protocol_version_fails_with_both_versions(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig]
) -> None:
    with pytest.raises(ConnectError, match=r"1999-01-01\b.* 20\d\d-\d\d-\d\d to 20"):
        await opened(Connection("old", raw(version="1999-01-01"))).connect()


@pytest.mark.fault(7)
async def test_a_listing_that_fails_leaves_the_server_unlisted_and_says_why(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig]
) -> None:
    connection = opened(Connection("bare", raw(listing="error")))
    await connection.connect()
    assert connection.status.state == "unlisted"
    assert (connection.status.error or "").endswith(": the index is broken")
    assert (await connection.call("anything", {})).content[0].text == "ok"


@pytest.mark.fault(8)
async def test_a_listing_that_never_answers_ends_at_the_limit_of_the_start(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig]
) -> None:
    connection = opened(Connection("slow", raw({"init_timeout": 1.0}, listing="silent")))
    await connection.connect()
    assert connection.status.state == "unlisted"
    assert " 1 s " in (connection.status.error or "")
    assert "servers.slow.init_timeout" in (connection.status.error or "")
    assert connection.status.seconds is not None
    assert connection.status.seconds > 0.9


@pytest.mark.fault(46)
async def test_a_listing_without_end_and_a_tool_listed_twice_are_cut_with_a_warning(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig], caplog: pytest.LogCaptureFixture
) -> None:
    connection = opened(Connection("endless", raw(listing="endless", calls={"a": {}, "b": {}})))
    await connection.connect()
    assert [tool.name for tool in await connection.list_tools()] == ["a", "b"]
    assert "does not end" in caplog.text
    assert caplog.text.count("it is listed twice") == 2


@pytest.mark.fault(40)
async def test_invalid_tools_of_a_listing_are_left_out_and_the_others_work(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig], caplog: pytest.LogCaptureFixture
) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    bad = [
        {"name": "no-schema"},
        {"inputSchema": schema},
        {"name": 7, "inputSchema": schema},
        {"name": "null", "inputSchema": {"type": "object", "properties": None}},
        "not even an object",
    ]
    tools = [{"name": "good", "inputSchema": schema}, *bad, {"name": "fine", "inputSchema": schema}]
    connection = opened(Connection("mixed", raw(tools=tools)))
    await connection.connect()
    assert [tool.name for tool in await connection.list_tools()] == ["good", "fine"]
    assert caplog.text.count("is left out") == len(bad)
    assert "'no-schema'" in caplog.text


@pytest.mark.fault(41)
async def test_a_tool_without_a_description_is_offered_under_its_name(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig]
) -> None:
    connection = opened(Connection("terse", raw(calls={"a": {}})))
    await connection.connect()
    assert connection.tools[0].definition["description"] == "a"


@pytest.mark.fault(11)
async def test_a_server_that_was_repaired_is_reconnected_by_hand(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig], tmp_path: Path
) -> None:
    flag = tmp_path / "repaired"
    connection = opened(Connection("mended", raw(fails_until=str(flag), calls={"a": {}})))
    with pytest.raises(ConnectError, match="not repaired yet"):
        await connection.connect()
    with pytest.raises(ConnectError, match="not repaired yet"):
        await connection.call("a", {})
    flag.touch()
    await connection.reconnect()
    assert connection.status.state == "ready"
    assert connection.status.error is None
    assert connection.status.tools == 1


@pytest.mark.fault(14)
async def test_a_cancelled_start_leaves_no_process_and_can_be_repeated(
    opened: Callable[..., Any],
    raw: Callable[..., ServerConfig],
    processes: Callable[[], list[str]],
    until: Callable[..., Any],
    tmp_path: Path,
) -> None:
    # It is ready when it is started for the second time.
    connection = opened(
        Connection("slow", raw({"init_timeout": 600.0}, meets=[str(tmp_path), 2], calls={"a": {}}))
    )
    start = asyncio.create_task(connection.connect())
    await until(lambda: list(tmp_path.iterdir()))
    start.cancel()
    await asyncio.wait({start})
    assert start.cancelled()
    assert processes() == []
    await connection.connect()
    assert connection.status.state == "ready"


async def test_connecting_at_the_same_time_starts_one_process(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig], processes: Callable[[], list[str]]
) -> None:
    connection = opened(Connection("one", raw()))
    await asyncio.gather(*(connection.connect() for _ in range(5)))
    await connection.connect()
    assert len(processes()) == 1


async def test_closing_while_a_start_is_under_way_ends_the_start(
    opened: Callable[..., Any],
    raw: Callable[..., ServerConfig],
    processes: Callable[[], list[str]],
    until: Callable[..., Any],
) -> None:
    connection = opened(Connection("slow", raw({"init_timeout": 20}, handshake="silent")))
    start = asyncio.create_task(connection.connect())
    await until(processes)
    async with asyncio.timeout(30):
        await connection.close()
        with pytest.raises((ConnectError, ClosedError)):
            await start
    assert connection.status.state == "closed"
    assert processes() == []


async def test_closing_twice_is_harmless_and_use_afterwards_is_an_error(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig]
) -> None:
    connection = opened(Connection("done", raw(calls={"a": {}})))
    await connection.connect()
    await asyncio.gather(connection.close(), connection.close())
    await connection.close()
    for use in (
        connection.connect,
        connection.reconnect,
        connection.list_tools,
        lambda: connection.call("a", {}),
    ):
        with pytest.raises(ClosedError, match="'done' is closed"):
            await use()
    assert connection.status.tools == 0


async def test_every_change_of_the_status_is_announced(
    opened: Callable[..., Any], raw: Callable[..., ServerConfig]
) -> None:
    seen: list[str] = []
    connection = Connection("shown", raw(), on_change=lambda: seen.append(connection.status.state))
    opened(connection)
    await connection.connect()
    await connection.close()
    assert list(dict.fromkeys(seen)) == ["starting", "ready", "closed"]


def test_importing_the_room_imports_no_sdk() -> None:
    code = (
        "import sys, casual_mcp_nb.servers; print([m for m in ('fastmcp', 'mcp', 'mcp_types') if m"
        " in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "[]"
