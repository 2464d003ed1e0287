"""Resources and prompts of one server: lists that stay fresh, hostile ones, reports of changes,
reconnects.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.errors import ResourceError
from casual_mcp_nb.servers.connection import Connection

Raw = Callable[..., ServerConfig]
Opened = Callable[..., Any]
Until = Callable[..., Awaitable[None]]

OFFERS = {
    "tools": {},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {"listChanged": True},
}
UPDATED = {"method": "notifications/resources/updated", "params": {"uri": "demo://log/today"}}
MODERN_SERVER = """
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resources import TextResource

server = MCPServer("modern")
lines = ["first"]

@server.resource("demo://log")
def log() -> str:
    return "\\n".join(lines)

@server.tool()
async def add(line: str, ctx: Context) -> str:
    lines.append(line)
    await ctx.notify_resource_updated("demo://log")
    return "added"

@server.tool()
async def offer(ctx: Context) -> str:
    server.add_resource(TextResource(uri="demo://new", name="new", text="n"))
    await ctx.notify_resources_changed()
    return "offered"

server.run("stdio")
"""


def _listing(*names: str) -> dict[str, Any]:
    return {"resources": [{"uri": f"demo://{name}", "name": name} for name in names]}


def _answers(**others: Any) -> dict[str, Any]:
    return {
        "resources/list": _listing("log"),
        "resources/subscribe": {},
        "resources/unsubscribe": {},
        **others,
    }


async def test_a_list_is_listed_again_when_the_server_says_that_it_changed(
    opened: Opened, raw: Raw
) -> None:
    changed = {"method": "notifications/resources/list_changed"}
    plan = {"answers": _answers(**{"resources/list": _listing("log", "new")})}
    calls = {"grow": {"notify": changed, "plan": plan, "result": {"content": []}}}
    config = raw(capabilities=OFFERS, answers=_answers(), calls=calls)
    connection: Connection = opened(Connection("docs", config, cache_ttl=None))
    await connection.connect()
    first = await connection.resources.resources()
    assert [resource.name for resource in first] == ["log"]
    assert await connection.resources.resources() is first
    await connection.call("grow", {})
    assert [resource.name for resource in await connection.resources.resources()] == ["log", "new"]


async def test_invalid_offers_cost_only_themselves(opened: Opened, raw: Raw) -> None:
    resources = [{"uri": 3, "name": "a"}, {"uri": "demo://b", "name": "b", "size": -1}, "c"]
    templates = [
        {"uriTemplate": "demo://{", "name": "broken"},
        {"uriTemplate": "demo://{x}/{+y}", "name": "whole"},
    ]
    prompts = [{"name": 1}, {"name": "p", "arguments": [{"name": "x", "required": True}]}]
    answers = {
        "resources/list": {"resources": resources},
        "resources/templates/list": {"resourceTemplates": templates},
        "prompts/list": {"prompts": prompts},
        "prompts/get": {"messages": [{"role": "user", "content": {"type": "hologram"}}]},
    }
    connection: Connection = opened(Connection("docs", raw(capabilities=OFFERS, answers=answers)))
    listed = await connection.resources.resources()
    assert [(each.name, each.size, each.parameters) for each in listed] == [
        ("b", None, None),
        ("whole", None, ("x", "y")),
    ]
    (prompt,) = await connection.resources.prompts()
    assert [(argument.name, argument.required) for argument in prompt.arguments] == [("x", True)]
    (message,) = (await connection.resources.prompt("p", {"x": "1"})).messages
    assert message.content.kind == "unknown"


async def test_secrets_are_hidden_and_the_resource_can_still_be_read(
    opened: Opened, raw: Raw, tmp_path: Path
) -> None:
    secret = "sk-4f8a91c2d7e6b3a05f"
    answers = {
        "resources/list": {
            "resources": [{"uri": f"demo://{secret}/a", "name": "a", "description": secret}]
        },
        "resources/read": {"contents": [{"uri": "demo://a", "text": f"the key is {secret}"}]},
    }
    record = tmp_path / "record"
    config = raw(
        {"env": {"API_KEY": secret}}, capabilities=OFFERS, answers=answers, record=str(record)
    )
    connection: Connection = opened(Connection("docs", config))
    (resource,) = await connection.resources.resources()
    contents = await connection.resources.read(resource.uri)
    assert secret not in f"{resource!r} {contents.parts!r} {contents!r}"
    assert f"demo://{secret}/a" in record.read_text()


async def test_a_resource_that_is_refused_says_why(opened: Opened, raw: Raw) -> None:
    connection: Connection = opened(
        Connection("docs", raw(capabilities=OFFERS, answers=_answers()))
    )
    with pytest.raises(ResourceError) as caught:
        await connection.resources.read("demo://nothing")
    assert caught.value.server == "docs"
    assert "Method not found" in str(caught.value)
    assert connection.status.state == "ready"


async def test_a_request_has_the_time_limit_of_a_call(opened: Opened, raw: Raw) -> None:
    config = raw(
        {"call_timeout": 0.1}, capabilities=OFFERS, answers=_answers(**{"resources/read": "silent"})
    )
    connection: Connection = opened(Connection("docs", config))
    with pytest.raises(ResourceError) as caught:
        await connection.resources.read("demo://log")
    assert "servers.docs.call_timeout" in caught.value.hint
    assert connection.status.state == "ready"


async def test_changes_are_counted_also_of_a_part_and_after_a_reconnect(
    opened: Opened, raw: Raw, until: Until
) -> None:
    calls = {"touch": {"notify": UPDATED, "result": {"content": []}}}
    connection: Connection = opened(
        Connection("docs", raw(capabilities=OFFERS, answers=_answers(), calls=calls))
    )
    resources = connection.resources
    await resources.subscribe("demo://log")
    await resources.subscribe("demo://log")
    await connection.call("touch", {})
    await until(lambda: resources.subscriptions.all[0].updates == 1)
    await connection.reconnect()
    await connection.call("touch", {})
    await until(lambda: resources.subscriptions.all[0].updates == 2)
    assert [(each.server, each.uri, each.problem) for each in resources.subscriptions.all] == [
        ("docs", "demo://log", "")
    ]
    await resources.unsubscribe("demo://log")
    await connection.call("touch", {})
    assert resources.subscriptions.all == ()


async def test_since_2026_07_28_changes_arrive_over_a_stream(
    opened: Opened, until: Until, tmp_path: Path
) -> None:
    script = tmp_path / "server.py"
    script.write_text(MODERN_SERVER)
    changes: list[int] = []
    config = ServerConfig(command=sys.executable, args=[str(script)])
    connection: Connection = opened(
        Connection("modern", config, on_change=lambda: changes.append(1), cache_ttl=None)
    )
    resources = connection.resources
    await connection.connect()
    assert connection.status.protocol_version == "2026-07-28"
    await resources.subscribe("demo://log")
    await connection.call("add", {"line": "second"})
    await until(lambda: resources.subscriptions.all[0].updates == 1)
    assert (await resources.read("demo://log")).text == "first\nsecond"
    assert len(await resources.resources()) == 1
    before = len(changes)
    await connection.call("offer", {})
    await until(lambda: len(changes) > before)
    assert len(await resources.resources()) == 2
    await resources.unsubscribe("demo://log")
    assert resources.subscriptions.all == ()
