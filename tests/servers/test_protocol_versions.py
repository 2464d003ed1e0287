"""The protocol version agreed on with a server, and the fallback where the newer one does not
work.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from kit.scripted_http import Reply, ScriptedHttp

from casual_mcp_nb import Session
from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.mcp import QuestionAnswer, ServerQuestion
from casual_mcp_nb.errors import ConnectError, ToolCallError
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.handlers import Handlers

Raw = Callable[..., ServerConfig]
Opened = Callable[..., Any]

OLDER, NEWER = "2025-11-25", "2026-07-28"
ASKING_SERVER = """
from fastmcp import Context, FastMCP
server = FastMCP("asking")

@server.tool
async def ask(ctx: Context) -> str:
    "Ask for a name."
    answer = await ctx.elicit("Your name?", response_type=str)
    return f"hello {answer.data}"

@server.tool
async def wait(seconds: float) -> str:
    "Wait."
    import asyncio
    await asyncio.sleep(seconds)
    return "waited"

server.run(show_banner=False)
"""


def asking(**more: Any) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("asking", **more)

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", response_type=str)
        return f"hello {answer.data}"  # type: ignore[union-attr]

    return server


async def ada(_question: ServerQuestion) -> QuestionAnswer:
    return QuestionAnswer("accept", {"value": "Ada"})


def answering(log: list[str] | None = None) -> Handlers:
    return Handlers(
        elicitation=ada,
        log=lambda _server, _level, text: (log if log is not None else []).append(text),
    )


@pytest.mark.defect("E2")
@pytest.mark.parametrize(
    ("protocol", "version"), [("auto", NEWER), ("legacy", OLDER), (NEWER, NEWER)]
)
async def test_the_config_sets_the_protocol_of_a_server(
    opened: Opened, protocol: str, version: str
) -> None:
    config = ServerConfig.model_validate(
        {"bundled": "math", "transport": "in-process", "protocol": protocol}
    )
    connection = opened(Connection("math", config))
    await connection.connect()
    assert connection.status.protocol_version == version
    assert connection.status.notes == ()
    assert not (await connection.call("add", {"a": 1, "b": 2})).is_error


@pytest.mark.defect("E2")
@pytest.mark.defect("J6")
async def test_a_tool_that_cannot_ask_on_the_newer_protocol_asks_on_the_older_one(
    opened: Opened,
) -> None:
    log: list[str] = []
    connection = opened(Connection("asking", server=asking(), handlers=answering(log)))
    await connection.connect()
    assert connection.status.protocol_version == NEWER
    for _ in range(2):
        result = await connection.call("ask", {})
        assert (result.is_error, result.content[0].text) == (False, "hello Ada")
    assert len(log) == 1
    assert connection.status.protocol_version == OLDER
    assert len(connection.status.notes) == 1


@pytest.mark.defect("J6")
async def test_a_destructive_tool_that_could_not_ask_is_not_called_again_by_itself(
    opened: Opened,
) -> None:
    log: list[str] = []
    server: FastMCP[Any] = FastMCP("asking")
    calls: list[str] = []

    @server.tool(annotations={"destructiveHint": True})
    async def ask(ctx: Context) -> str:
        calls.append("started")
        answer = await ctx.elicit("Your name?", response_type=str)
        return f"hello {answer.data}"  # type: ignore[union-attr]

    connection = opened(Connection("asking", server=server, handlers=answering(log)))
    await connection.connect()
    first = await connection.call("ask", {})
    assert (first.is_error, len(calls)) == (True, 1)
    assert NEWER in first.content[-1].text
    assert "older handshake" in first.content[-1].text
    second = await connection.call("ask", {})
    assert (second.is_error, second.content[0].text, len(calls)) == (False, "hello Ada", 2)


@pytest.mark.slow
@pytest.mark.defect("E2")
async def test_a_server_that_asks_is_restarted_once_and_running_calls_continue(
    opened: Opened, tmp_path: Path
) -> None:
    script = tmp_path / "asking.py"
    script.write_text(ASKING_SERVER)
    config = ServerConfig.model_validate(
        {"command": sys.executable, "args": (str(script),), "init_timeout": 60}
    )
    connection = opened(Connection("asking", config, handlers=answering()))
    await connection.connect()
    waiting = asyncio.create_task(connection.call("wait", {"seconds": 1}))
    await asyncio.sleep(0)
    assert (await connection.call("ask", {})).content[0].text == "hello Ada"
    assert waiting.done()
    assert (await waiting).content[0].text == "waited"
    assert "servers.asking.protocol" in connection.status.notes[0]


def modern(request: Any) -> Reply:
    """A server that speaks only the newer protocol, with a tool that cannot ask."""
    body = request.body
    hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    results = {
        "server/discover": {"supportedVersions": [NEWER], "capabilities": {"tools": {}}, **hints},
        "tools/list": {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}], **hints},
    }
    method = body.get("method") if isinstance(body, dict) else None
    if method in results:
        return Reply(body={"jsonrpc": "2.0", "id": body["id"], "result": results[method]})
    message = "Cannot send 'elicitation/create': no back-channel for server-initiated requests."
    code = -32603 if method == "tools/call" else -32022
    error = {"code": code, "message": message, "data": {"supported": [NEWER], "requested": OLDER}}
    return Reply(body={"jsonrpc": "2.0", "id": (body or {}).get("id"), "error": error})


@pytest.mark.defect("E2")
async def test_where_the_newer_protocol_is_demanded_the_setting_that_would_help_is_named(
    opened: Opened,
) -> None:
    with ScriptedHttp(modern) as server:
        config = ServerConfig.model_validate({"url": f"{server.url}/mcp", "protocol": NEWER})
        connection = opened(Connection("modern", config))
        await connection.connect()
        assert connection.status.protocol_version == NEWER
        with pytest.raises(ToolCallError, match=r"servers\.modern\.protocol to legacy"):
            await connection.call("ask", {})


@pytest.mark.defect("E2")
async def test_a_server_that_refuses_the_older_handshake_keeps_the_newer_protocol(
    opened: Opened,
) -> None:
    with ScriptedHttp(modern) as server:
        connection = opened(
            Connection("modern", ServerConfig.model_validate({"url": f"{server.url}/mcp"}))
        )
        for _ in range(3):
            with pytest.raises(ToolCallError, match="asks a question"):
                await connection.call("ask", {})
        status = connection.status
        assert (status.state, status.protocol_version, len(status.notes)) == ("ready", NEWER, 1)


@pytest.mark.defect("E2")
async def test_a_server_of_the_older_era_is_refused_where_the_newer_protocol_is_demanded(
    opened: Opened, raw: Raw
) -> None:
    connection = opened(Connection("old", raw({"protocol": NEWER})))
    with pytest.raises(ConnectError, match="Method not found"):
        await connection.connect()


@pytest.mark.defect("B11")
@pytest.mark.parametrize("how", ["silent", "garbage"])
async def test_a_server_without_stated_versions_uses_the_older_handshake(
    opened: Opened, raw: Raw, how: str, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    connection = opened(
        Connection("mute", raw({"init_timeout": 6.0}, discover=how, record=str(record)))
    )
    await connection.connect()
    status = connection.status
    assert (status.state, status.protocol_version) == ("ready", "2025-06-18")
    assert "servers.mute.protocol" in status.notes[0]
    assert [json.loads(line)["method"] for line in record.read_text().splitlines()][:2] == [
        "server/discover",
        "initialize",
    ]


@pytest.mark.defect("B11")
async def test_a_server_that_exits_on_an_unknown_request_restarts_with_the_older_one(
    opened: Opened, raw: Raw, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    connection = opened(
        Connection("strict", raw({"init_timeout": 60.0}, discover="end", record=str(record)))
    )
    await connection.connect()
    assert connection.status.state == "ready"
    assert connection.status.notes
    await connection.reconnect()
    methods = [json.loads(line)["method"] for line in record.read_text().splitlines()]
    # Once it is known, it is not asked again.
    assert methods.count("server/discover") == 1
    assert methods.count("initialize") == 2


@pytest.mark.defect("B11")
async def test_legacy_asks_no_server_for_its_versions(
    opened: Opened, raw: Raw, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    connection = opened(
        Connection("strict", raw({"protocol": "legacy"}, discover="end", record=str(record)))
    )
    await connection.connect()
    assert "server/discover" not in record.read_text()


@pytest.mark.defect("D9")
async def test_a_start_that_takes_too_long_names_the_setting_that_allows_more(
    opened: Opened, raw: Raw
) -> None:
    connection = opened(Connection("slow", raw({"init_timeout": 0.5}, handshake="silent")))
    with pytest.raises(ConnectError, match=r" 0\.5 s .*servers\.slow\.init_timeout"):
        await connection.connect()


@pytest.mark.defect("E5")
def test_a_servers_extensions_and_version_are_on_its_card_and_in_doctor() -> None:
    with Session({"servers": {}}, in_process={"asking": asking()}) as session:
        status = session.servers["asking"]
        assert status.extensions == ("io.modelcontextprotocol/ui",)
        text = repr(status)
        assert "io.modelcontextprotocol/ui" in text
        assert NEWER in text
        assert NEWER in next(
            finding.found for finding in session.servers.doctor() if finding.name == "asking"
        )
        session.tools.call("asking:ask")
        note = session.servers["asking"].notes[0]
        assert note.split()[0] in repr(session.servers["asking"])
        assert note in [
            finding.found for finding in session.servers.doctor() if finding.name == "asking"
        ]


@pytest.mark.defect("E5")
async def test_names_of_extensions_are_hostile_text(opened: Opened, raw: Raw) -> None:
    names = {f"\x1b[31m<b>{number}" + "x" * 500: {} for number in range(100)}
    connection = opened(
        Connection("many", raw(capabilities={"tools": {}, "extensions": names}, version=OLDER))
    )
    await connection.connect()
    extensions = connection.status.extensions
    assert 0 < len(extensions) <= 20
    assert all(len(name) <= 100 and "\x1b" not in name for name in extensions)
    assert "<b>" not in connection.status._repr_html_()


@pytest.mark.defect("B1")
async def test_a_long_argument_does_not_hold_the_loop_when_a_status_is_read(opened: Opened) -> None:
    config = ServerConfig(
        command="/no/such/server", args=("x" * 200_000, "-ehttp://ada:hunter2@host.example/")
    )
    connection = opened(Connection("long", config))
    # The guard against a held loop fails this test where it is slow.
    assert "hunter2" not in connection.status.address
    assert "hunter2" not in repr(connection.status)
