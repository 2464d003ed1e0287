"""Damaged JSON-RPC messages of a server: each request ends with an answer or with a clear error,
and the next one works.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.fuzz import broken, mutations
from kit.mcp_http import McpHttp
from kit.scripted_http import Reply

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.mcp import QuestionAnswer, ServerQuestion
from casual_mcp_nb.errors import ConnectError, ServerError
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.handlers import Handlers

MESSAGES = 2_700
HANDSHAKES = 300
SEED = 20260728

ANSWERS: dict[str, Any] = {
    "tools/call": {
        "content": [
            {
                "type": "text",
                "text": "twelve",
                "annotations": {"audience": ["user"], "priority": 0.5},
            },
            {"type": "image", "data": "QUJD", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
            {
                "type": "resource",
                "resource": {"uri": "file:///b", "text": "b", "mimeType": "text/plain"},
            },
        ],
        "structuredContent": {"sum": 12},
        "isError": False,
        "_meta": {"a/b": 1},
    },
    "tools/list": {
        "tools": [
            {
                "name": "add",
                "title": "Add",
                "description": "Add two numbers.",
                "inputSchema": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}},
                    "required": ["a"],
                },
                "outputSchema": {"type": "object", "properties": {"sum": {"type": "integer"}}},
                "annotations": {"readOnlyHint": True},
            }
        ],
        "nextCursor": None,
    },
    "resources/list": {
        "resources": [{"uri": "file:///a", "name": "a", "mimeType": "text/plain", "size": 1}]
    },
    "resources/templates/list": {
        "resourceTemplates": [{"uriTemplate": "file:///{x}", "name": "x"}]
    },
    "resources/read": {
        "contents": [{"uri": "file:///a", "text": "hello"}, {"uri": "file:///b", "blob": "QUJD"}]
    },
    "prompts/list": {"prompts": [{"name": "p", "arguments": [{"name": "x", "required": True}]}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]},
    "completion/complete": {"completion": {"values": ["a"], "total": 1, "hasMore": False}},
}
FORM = {
    "type": "object",
    "properties": {"x": {"type": "string", "format": "email"}, "y": {"enum": ["a"]}},
    "required": ["x"],
}
UNASKED: list[dict[str, Any]] = [
    {
        "method": "notifications/progress",
        "params": {"progressToken": "ID", "progress": 1, "total": 2, "message": "half"},
    },
    {
        "method": "notifications/message",
        "params": {"level": "info", "logger": "x", "data": {"msg": "hello"}},
    },
    {"method": "notifications/tools/list_changed"},
    {"method": "notifications/resources/updated", "params": {"uri": "file:///a"}},
    {"method": "notifications/cancelled", "params": {"requestId": "ID", "reason": "x"}},
    {
        "id": "ask",
        "method": "elicitation/create",
        "params": {"message": "Who?", "requestedSchema": FORM},
    },
    {"id": "ask", "method": "ping"},
]
GREETING: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True},
        "prompts": {},
        "logging": {},
    },
    "serverInfo": {"name": "damaged", "version": "1", "title": "Damaged"},
    "instructions": "Ask.",
}
SERVER = """
import json, sys
folder, answers, greeting = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
lines = open(folder + "/messages", "rb").read().split(b"\\n")
for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    out, method = sys.stdout.buffer, message["method"]
    if method == "initialize":
        answer = {"result": greeting}
    elif method in answers:
        # Kept in a file: a process that is started again goes on behind the message that ended it.
        with open(folder + "/next", "r+") as file:
            number = int(file.read() or 0)
            file.seek(0)
            file.write(str(number + 1))
        out.write(lines[number % len(lines)].replace(b'"ID"', json.dumps(message["id"]).encode()) + b"\\n")
        answer = {"result": answers[method]}
    else:
        answer = {"error": {"code": -32601, "message": "Method not found"}}
    out.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}).encode() + b"\\n")
    out.flush()
"""


def damaged() -> Iterator[bytes]:
    """A line for each message; the text `ID` in quotes stands for the id of the request."""
    whole = [{"jsonrpc": "2.0", "id": "ID", "result": result} for result in ANSWERS.values()]
    whole += [
        {"jsonrpc": "2.0", "id": "ID", "error": {"code": -32000, "message": "no", "data": {"x": 1}}}
    ]
    whole += [{"jsonrpc": "2.0", **message} for message in UNASKED]
    for number, message in enumerate(whole):
        share = MESSAGES // len(whole) + 1
        yield from (
            json.dumps(value).encode()
            for value in mutations(message, SEED + number, share * 3 // 4)
        )
        yield from (
            line.replace(b"\n", b"")
            for line in broken(json.dumps(message), SEED + number, share - share * 3 // 4)
        )


def requests(connection: Connection) -> list[Callable[[], Awaitable[object]]]:
    resources = connection.resources
    return [
        lambda: connection.call("add", {"a": 1}),
        connection.list_tools,
        lambda: resources.read("file:///a"),
        lambda: resources.prompt("p", {"x": "1"}),
        resources.resources,
        resources.prompts,
    ]


async def _answer(_question: ServerQuestion) -> QuestionAnswer:
    return QuestionAnswer("accept", {"x": "ada@example.com"})


@pytest.mark.slow
async def test_damaged_messages_of_a_server_end_in_answers_or_clear_errors(
    opened: Callable[..., Any], tmp_path: Path
) -> None:
    lines = list(damaged())
    assert len(lines) >= MESSAGES
    (tmp_path / "messages").write_bytes(b"\n".join(lines))
    (tmp_path / "next").write_text("0")
    words = ("-I", "-S", "-c", SERVER, str(tmp_path), json.dumps(ANSWERS), json.dumps(GREETING))
    fields = {
        "command": sys.executable,
        "args": words,
        "protocol": "legacy",
        "call_timeout": 20,
        "init_timeout": 20,
    }
    connection = opened(
        Connection(
            "damaged", ServerConfig.model_validate(fields), handlers=Handlers(elicitation=_answer)
        )
    )
    await connection.connect()
    outcomes = {"answered": 0, "refused": 0}
    ways = requests(connection)
    number = unnamed = 0
    while int((tmp_path / "next").read_text()) < MESSAGES:
        # What is cached is asked for again.
        connection.resources.invalidate()
        connection.listing.invalidate()
        try:
            async with asyncio.timeout(60):
                await ways[number % len(ways)]()
            outcomes["answered"] += 1
        except ServerError as error:
            unnamed += "damaged" not in str(error)
            outcomes["refused"] += 1
        number += 1
    print(outcomes, connection.status.state)
    assert unnamed == 0
    assert min(outcomes.values()) > 100
    (tmp_path / "messages").write_bytes(b"")
    assert not (await connection.call("add", {"a": 1})).is_error
    assert connection.status.state == "ready"


@pytest.mark.slow
async def test_damaged_handshakes_end_in_a_connection_or_a_clear_error(
    opened: Callable[..., Any],
) -> None:
    outcomes, unnamed = {"ready": 0, "unlisted": 0, "failed": 0}, 0
    with McpHttp() as server:
        for greeting in mutations(GREETING, SEED, HANDSHAKES):
            server.script("initialize", Reply(body={"jsonrpc": "2.0", "id": 1, "result": greeting}))
            config = server.config(protocol="legacy", init_timeout=5.0)
            connection = Connection("damaged", ServerConfig.model_validate(config))
            try:
                await connection.connect()
            except ConnectError as error:
                unnamed += "damaged" not in str(error)
            outcomes[connection.status.state] += 1
            assert repr(connection.status)
            assert connection.status._repr_html_()
            await connection.close()
    print(outcomes)
    assert unnamed == 0
    assert sum(outcomes.values()) == HANDSHAKES
    assert outcomes["ready"] > 30
    assert outcomes["failed"] > 30
