"""The log of a server and the messages to and from it: recorded, bounded, and without secrets."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from fastmcp.utilities.types import Image
from kit.raw_server import raw_config, text_result
from mcp_types import JSONRPCResponse

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.secret import MASK
from casual_mcp_nb.base.wire import Messages
from casual_mcp_nb.errors import ToolCallError, UnknownNameError, UsageError
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.logs import LINE_LENGTH, MAX_CHARACTERS, MAX_LINES, LogBuffer
from casual_mcp_nb.servers.redaction import Redactor
from casual_mcp_nb.servers.server_manager import ServerManager
from casual_mcp_nb.servers.wire import MAX_MESSAGE_LENGTH as MAX_LENGTH
from casual_mcp_nb.servers.wire import MAX_MESSAGES, MAX_STORED, WireLog

SECRET = "s3cr3t-of-the-server"
PIXELS = b"\x89PNG" + bytes(2_000)


def talking() -> FastMCP[Any]:
    server = FastMCP("talking")

    @server.tool
    async def tell(context: Context) -> str:
        await context.warning("careful \x1b[31mnow")
        await context.report_progress(1, 2)
        return "told"

    @server.tool
    def picture() -> Image:
        return Image(data=PIXELS, format="png")

    @server.tool
    def long() -> str:
        return "x" * 1_000_000

    return server


def raw(**plan: Any) -> ServerConfig:
    return ServerConfig.model_validate(raw_config(config={"env": {"TOKEN": SECRET}}, **plan))


def subjects(messages: Messages) -> list[tuple[str, str, str]]:
    return [(message.direction, message.method, message.tool) for message in messages]


async def test_stderr_and_log_messages_are_one_log(
    opened: Callable[..., Any], until: Callable[..., Any]
) -> None:
    connection: Connection = opened(
        Connection("noisy", raw(stderr=f"the token is {SECRET}\n\x1b[1mready\n"))
    )
    await connection.connect()
    await until(lambda: len(connection.log.read()) == 2)
    log = connection.log.read()
    assert [(line.level, line.text) for line in log] == [
        ("stderr", f"the token is {MASK}"),
        ("stderr", "ready"),
    ]
    assert log.dropped == 0
    await connection.reconnect()
    await until(lambda: len(connection.log.read()) == 4)


async def test_log_messages_have_their_level(opened: Callable[..., Any]) -> None:
    connection: Connection = opened(Connection("talking", server=talking()))
    await connection.connect()
    await connection.call("tell", {})
    assert [(line.level, line.text) for line in connection.log.read()] == [
        ("warning", "careful now")
    ]


def test_a_log_is_bounded_in_lines_and_characters() -> None:
    log = LogBuffer("flood")
    feed = log.stderr()
    feed(b"short\n" * (MAX_LINES + 7) + b"no end yet")
    assert (len(log.read()), log.read().dropped) == (MAX_LINES, 7)
    feed(b"")
    assert log.read()[-1].text == "no end yet"
    for _ in range(MAX_LINES):
        feed(b"y" * 1_000_000 + b"\n")
    read = log.read()
    assert {len(line.text) for line in read} == {LINE_LENGTH}
    assert sum(len(line.text) for line in read) <= MAX_CHARACTERS
    assert len(read) + read.dropped == 2 * MAX_LINES + 8


@pytest.mark.parametrize("size", range(1, 40))
def test_no_part_of_a_secret_is_shown_wherever_a_text_is_cut(size: int) -> None:
    key = "-----BEGIN KEY-----\nabcdefghijklmnop\n-----END KEY-----"
    log = LogBuffer("cut", [SECRET, key])
    feed = log.stderr()
    text = f"{'z' * (8 * 1024 - size)}{SECRET}\n{key}\n{SECRET * 400}{SECRET}"
    for start in range(0, len(text), 1_000 + size):
        feed(text[start : start + 1_000 + size].encode())
    feed(b"")
    shown = "\n".join(line.text for line in log.read())
    assert not any(SECRET[:length] in shown for length in (4, 8, 12))
    assert "abcdefgh" not in shown
    assert SECRET[:4] not in Redactor([SECRET]).start(f"{'a' * size}{SECRET[:-1]}", 1_000, cut=True)


async def test_messages_are_recorded_in_both_directions_with_their_tool(
    opened: Callable[..., Any],
) -> None:
    connection: Connection = opened(Connection("talking", server=talking()))
    await connection.connect()
    await connection.call("tell", {})
    recorded = subjects(connection.wire.read())
    assert ("sent", "tools/list", "") in recorded
    assert ("received", "tools/list", "") in recorded
    about = subjects(connection.wire.read("tell"))
    assert about[0] == ("sent", "tools/call", "tell")
    assert about[-1] == ("received", "tools/call", "tell")
    assert ("received", "notifications/progress", "tell") in about
    assert subjects(connection.wire.read("picture")) == []
    sent = json.loads(connection.wire.read("tell")[0].text)
    assert (sent["method"], sent["params"]["name"]) == ("tools/call", "tell")


async def test_messages_hold_no_secret_and_no_picture(opened: Callable[..., Any]) -> None:
    echo = {"echo": {"result": text_result(f"it is {SECRET}")}}
    connection: Connection = opened(Connection("raw", raw(calls=echo)))
    await connection.connect()
    await connection.call("echo", {"key": SECRET, "number": 7})
    texts = "\n".join(message.text for message in connection.wire.read())
    assert SECRET not in texts
    assert f"it is {MASK}" in texts
    own: Connection = opened(Connection("talking", server=talking()))
    await own.connect()
    await own.call("picture", {})
    answer = own.wire.read("picture")[-1].text
    assert base64.b64encode(PIXELS).decode()[:100] not in answer
    assert "characters of base64" in answer


@pytest.mark.slow
async def test_messages_are_bounded_in_number_and_length(opened: Callable[..., Any]) -> None:
    connection: Connection = opened(Connection("talking", server=talking()))
    await connection.connect()
    for _ in range(MAX_MESSAGES // 2):
        await connection.call("picture", {})
    assert len(await asyncio.to_thread(connection.wire.read)) == MAX_MESSAGES
    for _ in range(MAX_STORED // MAX_LENGTH):
        await connection.call("long", {})
    messages = await asyncio.to_thread(connection.wire.read)
    assert MAX_MESSAGES // 2 < len(messages) < MAX_MESSAGES
    assert max(len(message.text) for message in messages) <= MAX_LENGTH + 1
    assert sum(len(message.text) for message in messages) <= MAX_STORED * 1.1


@pytest.mark.parametrize("size", range(1, 30))
def test_a_message_that_is_cut_shows_no_part_of_a_secret(size: int) -> None:
    log = WireLog("cut", [SECRET])
    text = f"{'z' * (MAX_LENGTH - 100 - size)}{SECRET}{'y' * MAX_LENGTH}"
    log.add("received", JSONRPCResponse(jsonrpc="2.0", id=1, result={"text": text}))
    log.add(
        "received",
        JSONRPCResponse(jsonrpc="2.0", id=2, result={"many": [{SECRET: SECRET * 9}] * 10_000}),
    )
    log.add("received", JSONRPCResponse(jsonrpc="2.0", id=3, result={"hidden": "a\u202eb\x1b"}))
    cut, many, hidden = log.read()
    assert SECRET[:4] not in cut.text
    assert SECRET[:4] not in many.text
    assert json.loads(hidden.text)["result"] == {"hidden": "a\u202eb\x1b"}
    assert hidden.text.isascii()


@pytest.mark.defect("G10")
def test_a_message_with_a_value_that_is_not_plain_is_read_like_another_one() -> None:
    log = WireLog("odd", [SECRET])
    values: list[Any] = [
        {"deep": [[1, 2.5, None, True, {"key": SECRET}]]},
        {"deep": [[object()]]},
        {"deep": WireLog},
    ]
    for number, value in enumerate(values):
        log.add("received", JSONRPCResponse(jsonrpc="2.0", id=number, result=value))
        # What was recorded is what arrived.
        value.clear()
    results = [json.loads(message.text)["result"] for message in log.read()]
    assert results == [
        {"deep": [[1, 2.5, None, True, {"key": MASK}]]},
        {"deep": [["(object)"]]},
        {"deep": "(type)"},
    ]


async def test_a_server_is_added_and_removed(opened: Callable[..., Any]) -> None:
    manager: ServerManager = opened(ServerManager({}, in_process={"one": talking()}))
    await manager.connect()
    before = await manager.list_tools()
    manager.add("two", server=talking())
    with pytest.raises(UsageError, match="already"):
        manager.add("two", server=talking())
    await manager.connect()
    both = await manager.list_tools()
    assert list(both.by_server) == ["one", "two"]
    await manager.remove("two")
    assert list((await manager.list_tools()).by_server) == list(before.by_server) == ["one"]
    with pytest.raises(ToolCallError, match="removed"):
        await manager.call(both.resolve("two:tell"), {})
    with pytest.raises(UnknownNameError):
        await manager.remove("two")
    await manager.remove("one")
    assert len(await manager.list_tools()) == 0


async def test_another_server_of_the_same_name_has_its_own_tools(
    opened: Callable[..., Any],
) -> None:
    other = FastMCP("other")
    other.tool(lambda: "here", name="here")
    manager: ServerManager = opened(ServerManager({}, in_process={"one": talking()}))
    await manager.connect()
    assert "tell" in {tool.name for tool in await manager.list_tools()}
    await manager.remove("one")
    manager.add("one", server=other)
    await manager.connect()
    assert [tool.name for tool in await manager.list_tools()] == ["here"]


async def test_a_call_that_waits_for_a_removed_server_fails(
    opened: Callable[..., Any],
    processes: Callable[[], list[str]],
    mark: str,
    until: Callable[..., Any],
) -> None:
    config = ServerConfig.model_validate(raw_config(mark, calls={"wait": {"stderr": "called\n"}}))
    manager: ServerManager = opened(ServerManager({"slow": config}))
    await manager.connect()
    tool = (await manager.list_tools()).resolve("wait")
    waiting = asyncio.create_task(manager.call(tool, {}))
    await until(lambda: "called" in [line.text for line in manager.log_of("slow")])
    await manager.remove("slow")
    with pytest.raises(ToolCallError, match="removed"):
        await waiting
    assert processes() == []


@pytest.mark.parametrize("tools", [3, 3_000])
def test_only_the_beginning_of_a_long_listing_is_copied(tools: int) -> None:
    log = WireLog("many")
    listing = {
        "tools": [{"name": f"tool_{number}", "description": "d" * 50} for number in range(tools)]
    }
    copied: list[str] = []
    sys.setprofile(
        lambda frame, event, called: copied.append(called.__name__) if event == "c_call" else None
    )
    try:
        log.add("received", JSONRPCResponse(jsonrpc="2.0", id=1, result=listing))
    finally:
        sys.setprofile(None)
    assert ("to_json" in copied) == (tools == 3)
    text = log.read()[0].text
    assert "tool_2" in text
    assert (len(text) > MAX_LENGTH // 2) == (tools == 3_000)
