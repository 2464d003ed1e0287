from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware
from kit.raw_server import OK

from casual_mcp_nb.base.config import ServerConfig
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.errors import (
    ClosedError,
    ConnectError,
    ToolCallError,
    UnknownNameError,
    UsageError,
)
from casual_mcp_nb.servers.connection import Connection
from casual_mcp_nb.servers.lifecycle import StartSlots
from casual_mcp_nb.servers.server_manager import ServerManager

Raw = Callable[..., ServerConfig]
Opened = Callable[..., Any]


def _inside(*names: str) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("inside")
    for name in names:
        server.tool(lambda: "done", name=name)
    return server


@pytest.mark.fault(10)
async def test_servers_start_side_by_side(opened: Opened, raw: Raw, tmp_path: Path) -> None:
    server = raw({"init_timeout": 30.0}, meets=[str(tmp_path), 3], calls={"a": {}})
    server_manager = opened(ServerManager(dict.fromkeys(("one", "two", "three"), server)))
    await server_manager.connect()
    assert [status.state for status in server_manager.statuses.values()] == ["ready"] * 3


@pytest.mark.defect("G5")
async def test_only_so_many_processes_start_at_the_same_time_and_a_slow_one_makes_room() -> None:
    slots = StartSlots(number=2, seconds=0.05)
    running, most, end = 0, 0, asyncio.Event()

    async def start(ends: bool) -> None:
        nonlocal running, most
        async with slots.slot():
            running += 1
            most = max(most, running)
            await (asyncio.sleep(0) if ends else end.wait())
            running -= 1

    await asyncio.gather(*(start(ends=True) for _ in range(10)))
    assert (running, most) == (0, 2)
    hanging = [asyncio.create_task(start(ends=False)) for _ in range(3)]
    async with asyncio.timeout(30):
        # The third gets the slot of one that takes too long.
        while running < 3:  # noqa: ASYNC110 (the clock of the slots signals nothing)
            await asyncio.sleep(0.01)
        end.set()
        await asyncio.gather(*hanging)
        await asyncio.gather(*(start(ends=True) for _ in range(10)))
    assert running == 0


@pytest.mark.defect("G5")
async def test_the_limit_of_a_start_counts_from_its_own_start(opened: Opened, raw: Raw) -> None:
    slots = StartSlots(number=1, seconds=60)
    silent = opened(
        Connection("silent", raw({"init_timeout": 2.0}, handshake="silent"), slots=slots)
    )
    behind = opened(Connection("behind", raw({"init_timeout": 2.0}), slots=slots))
    results = await asyncio.gather(silent.connect(), behind.connect(), return_exceptions=True)
    assert [type(result) for result in results] == [ConnectError, type(None)]
    assert behind.status.state == "ready"
    assert behind.status.seconds is not None
    assert silent.status.seconds is not None
    assert behind.status.seconds < silent.status.seconds


class _FailsOnce(Middleware):
    def __init__(self) -> None:
        self.listings = 0

    async def on_list_tools(self, context: Any, call_next: Any) -> Any:
        self.listings += 1
        if self.listings == 1:
            raise RuntimeError("still loading")
        return await call_next(context)


@pytest.mark.defect("G5")
async def test_a_listing_that_failed_is_tried_again_once(
    opened: Opened, until: Callable[..., Any]
) -> None:
    server, listing, states = _inside("a"), _FailsOnce(), []
    server.add_middleware(listing)
    connection = opened(
        Connection(
            "late",
            server=server,
            on_change=lambda: states.append(connection.status.state),
        )
    )
    await connection.connect()
    await until(lambda: connection.status.tools)
    assert "unlisted" in states
    assert (connection.status.state, connection.status.error, listing.listings) == (
        "ready",
        None,
        2,
    )


@pytest.mark.fault(1)
async def test_a_server_that_cannot_start_costs_the_others_nothing(
    opened: Opened, raw: Raw
) -> None:
    servers = {
        "gone": ServerConfig(command="/no/such/server"),
        "one": raw(calls={"a": OK}),
        "silent": raw({"init_timeout": 0.5}, handshake="silent"),
        "two": raw(calls={"a": OK}),
    }
    server_manager = opened(ServerManager(servers))
    await server_manager.connect()
    states = {name: status.state for name, status in server_manager.statuses.items()}
    assert states == {"gone": "failed", "one": "ready", "silent": "failed", "two": "ready"}
    assert "'/no/such/server'" in (server_manager.statuses["gone"].error or "")
    catalog = await server_manager.list_tools()
    assert [tool.wire_name for tool in catalog] == ["one__a", "two__a"]
    for tool in catalog:
        assert (await server_manager.call(tool, {})).content[0].text == "ok"


@pytest.mark.fault(9)
async def test_when_all_servers_fail_each_has_its_reason_and_the_catalog_is_empty(
    opened: Opened, raw: Raw
) -> None:
    servers = {
        "gone": ServerConfig(command="/no/such/server"),
        "leaver": raw(stderr="out of licences\n", exit=1),
        "silent": raw({"init_timeout": 0.5}, handshake="silent"),
    }
    server_manager = opened(ServerManager(servers))
    await server_manager.connect()
    gone, leaver, silent = (status.error or "" for status in server_manager.statuses.values())
    assert "'/no/such/server'" in gone
    assert "exited" in leaver
    assert re.search(r" 0\.5 s .*servers\.silent\.init_timeout", silent)
    assert server_manager.statuses["leaver"].stderr_tail == "out of licences"
    assert len(await server_manager.list_tools()) == 0


async def test_a_second_connect_leaves_ready_and_failed_servers_alone(
    opened: Opened, raw: Raw, processes: Callable[[], list[str]]
) -> None:
    server_manager = opened(
        ServerManager({"one": raw(), "gone": ServerConfig(command="/no/such/server")})
    )
    await server_manager.connect()
    before = server_manager.statuses
    await asyncio.gather(server_manager.connect(), server_manager.connect(["one"]))
    assert server_manager.statuses == before
    assert len(processes()) == 1


async def test_a_connect_waits_for_starts_that_another_one_began_and_does_not_repeat_them(
    opened: Opened, raw: Raw, tmp_path: Path
) -> None:
    records = {name: tmp_path / name for name in ("slow", "silent")}
    slow = raw(slow=0.3, record=str(records["slow"]))
    silent = raw({"init_timeout": 1.0}, handshake="silent", record=str(records["silent"]))
    server_manager = opened(ServerManager({"slow": slow, "silent": silent}))
    await asyncio.gather(server_manager.connect(), server_manager.connect())
    assert [record.read_text().count('"initialize"') for record in records.values()] == [1, 1]
    assert [status.state for status in server_manager.statuses.values()] == ["ready", "failed"]


async def test_a_connect_that_is_cancelled_leaves_no_process_and_can_be_made_again(
    opened: Opened, raw: Raw, processes: Callable[[], list[str]], until: Callable[..., Any]
) -> None:
    server_manager = opened(ServerManager({name: raw(slow=0.8) for name in ("one", "two")}))
    connecting = asyncio.create_task(server_manager.connect())
    await until(lambda: len(processes()) == 2)
    connecting.cancel()
    await asyncio.wait({connecting}, timeout=3)
    assert connecting.cancelled()
    assert processes() == []
    await server_manager.connect()
    assert {status.state for status in server_manager.statuses.values()} == {"ready"}


async def test_the_catalog_is_the_same_object_until_a_tool_changes(opened: Opened) -> None:
    server = _inside("a")
    server_manager = opened(ServerManager({}, in_process={"inside": server}, cache_ttl=1e-9))
    await server_manager.connect()
    first = await server_manager.list_tools()
    assert await server_manager.list_tools() is first
    server.tool(lambda: "new", name="b")
    second = await server_manager.list_tools()
    assert [tool.name for tool in second] == ["a", "b"]
    assert second.version != first.version


async def test_the_catalog_is_in_the_order_of_the_config_whoever_was_ready_first(
    opened: Opened, raw: Raw
) -> None:
    servers = {"slow": raw(slow=0.4, calls={"a": {}}), "quick": raw(calls={"b": {}})}
    server_manager = opened(ServerManager(servers, in_process={"inside": _inside("c")}))
    await server_manager.connect()
    assert [tool.wire_name for tool in await server_manager.list_tools()] == [
        "slow__a",
        "quick__b",
        "inside__c",
    ]


@pytest.mark.fault(43)
async def test_two_servers_with_the_same_tool_are_each_called_by_their_own_name(
    opened: Opened, raw: Raw
) -> None:
    def answering(text: str) -> ServerConfig:
        return raw(calls={"who": {"result": {"content": [{"type": "text", "text": text}]}}})

    server_manager = opened(
        ServerManager({"left": answering("I am left"), "right": answering("I am right")})
    )
    await server_manager.connect()
    catalog = await server_manager.list_tools()
    answers = {
        tool.wire_name: (await server_manager.call(tool, {})).content[0].text for tool in catalog
    }
    assert answers == {"left__who": "I am left", "right__who": "I am right"}


async def test_a_death_touches_one_call_of_one_server_only(opened: Opened, raw: Raw) -> None:
    server_manager = opened(
        ServerManager(
            {"mortal": raw(calls={"die": {"die": True}}), "healthy": raw(calls={"a": OK})}
        )
    )
    await server_manager.connect()
    die, healthy = await server_manager.list_tools()
    dying = asyncio.create_task(server_manager.call(die, {}))
    assert (await server_manager.call(healthy, {})).content[0].text == "ok"
    with pytest.raises(ToolCallError):
        await dying
    assert [tool.name for tool in await server_manager.list_tools()] == ["die", "a"]


async def test_a_server_is_reconnected_by_name_without_touching_the_others(
    opened: Opened, raw: Raw, tmp_path: Path, processes: Callable[[], list[str]]
) -> None:
    flag = tmp_path / "repaired"
    server_manager = opened(
        ServerManager(
            {"mended": raw(fails_until=str(flag), calls={"a": {}}), "other": raw(calls={"b": {}})}
        )
    )
    await server_manager.connect()
    other = server_manager.statuses["other"]
    with pytest.raises(ConnectError, match="not repaired yet"):
        await server_manager.reconnect("mended")
    flag.touch()
    await server_manager.reconnect("mended")
    assert server_manager.statuses["mended"].state == "ready"
    assert server_manager.statuses["other"] == other
    assert [tool.name for tool in await server_manager.list_tools()] == ["a", "b"]
    await server_manager.reconnect("mended")
    assert len(processes()) == 2


async def test_an_unknown_name_is_answered_with_the_closest(opened: Opened, raw: Raw) -> None:
    server_manager = opened(ServerManager({"weather": raw()}))
    with pytest.raises(UnknownNameError, match="'weather'"):
        await server_manager.reconnect("wether")
    with pytest.raises(UnknownNameError, match="'weather'"):
        await server_manager.connect(["wether"])
    # A turn may still have the tool of a server that was removed.
    with pytest.raises(ToolCallError):
        await server_manager.call(ToolSpec("wether", "a"), {})


async def test_an_in_process_server_has_no_config_and_a_distinct_name(
    opened: Opened, raw: Raw
) -> None:
    changes: list[int] = []
    server_manager = opened(
        ServerManager(
            {}, in_process={"notebook": _inside("a")}, on_change=lambda: changes.append(1)
        )
    )
    await server_manager.connect()
    assert [tool.wire_name for tool in await server_manager.list_tools()] == ["notebook__a"]
    assert changes
    assert server_manager.config_of("notebook") is None
    with pytest.raises(UsageError, match="already a server 'notebook'"):
        ServerManager({"notebook": raw()}, in_process={"notebook": _inside()})


@pytest.mark.fault(74)
async def test_servers_are_closed_side_by_side(opened: Opened, raw: Raw, tmp_path: Path) -> None:
    server_manager = opened(
        ServerManager({name: raw(parts=[str(tmp_path), 3]) for name in ("one", "two", "three")})
    )
    await server_manager.connect()
    await server_manager.close()
    assert sum(name.startswith("left-") for name in os.listdir(tmp_path)) == 3


@pytest.mark.fault(74)
async def test_closing_is_final_and_leaves_no_stubborn_server_and_no_child(
    opened: Opened, raw: Raw, processes: Callable[[], list[str]]
) -> None:
    stubborn = {"ignore_eof": True, "ignore_sigterm": True, "child": "stubborn"}
    server_manager = opened(
        ServerManager({name: raw(**stubborn) for name in ("one", "two", "three")})
    )
    await server_manager.connect()
    assert len(processes()) == 6
    await server_manager.close()
    assert processes() == []
    await server_manager.close()
    for use in (
        server_manager.connect,
        server_manager.list_tools,
        lambda: server_manager.reconnect("one"),
        lambda: server_manager.call(ToolSpec("one", "a"), {}),
    ):
        with pytest.raises(ClosedError):
            await use()
    assert {status.state for status in server_manager.statuses.values()} == {"closed"}


def test_the_config_of_a_server_can_be_asked_for(raw: Raw) -> None:
    config = raw()
    server_manager = ServerManager({"one": config})
    assert server_manager.config_of("one") is config
    assert server_manager.config_of("two") is None
