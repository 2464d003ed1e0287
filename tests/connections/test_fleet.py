from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP

from casual_mcp_nb.connections import Fleet, Handlers
from casual_mcp_nb.errors import ClosedError, ConnectError, ToolCallError, UnknownNameError, UsageError
from casual_mcp_nb.types.server import ServerConfig
from casual_mcp_nb.types.tool import ToolSpec

Raw = Callable[..., ServerConfig]
Opened = Callable[..., Any]

OK = {"result": {"content": [{"type": "text", "text": "ok"}]}}


def _inside(*names: str) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("inside")
    for name in names:
        server.tool(lambda: "done", name=name)
    return server


@pytest.mark.fault(10)
async def test_servers_start_side_by_side(opened: Opened, raw: Raw, tmp_path: Path) -> None:
    server = raw({"init_timeout": 30.0}, meets=[str(tmp_path), 3], calls={"a": {}})
    fleet = opened(Fleet(dict.fromkeys(("one", "two", "three"), server)))
    await fleet.connect()
    assert [status.state for status in fleet.statuses.values()] == ["ready"] * 3


@pytest.mark.fault(1)
async def test_a_server_that_cannot_start_costs_the_others_nothing(opened: Opened, raw: Raw) -> None:
    servers = {
        "gone": ServerConfig(command="/no/such/server"),
        "one": raw(calls={"a": OK}),
        "silent": raw({"init_timeout": 0.5}, handshake="silent"),
        "two": raw(calls={"a": OK}),
    }
    fleet = opened(Fleet(servers))
    await fleet.connect()
    states = {name: status.state for name, status in fleet.statuses.items()}
    assert states == {"gone": "failed", "one": "ready", "silent": "failed", "two": "ready"}
    assert fleet.statuses["gone"].error == "the command '/no/such/server' was not found"
    catalog = await fleet.catalog()
    assert [tool.wire_name for tool in catalog] == ["one__a", "two__a"]
    for tool in catalog:
        assert (await fleet.call(tool, {})).content[0].text == "ok"


@pytest.mark.fault(9)
async def test_when_all_servers_fail_each_has_its_reason_and_the_catalog_is_empty(opened: Opened, raw: Raw) -> None:
    servers = {
        "gone": ServerConfig(command="/no/such/server"),
        "leaver": raw(stderr="out of licences\n", exit=1),
        "silent": raw({"init_timeout": 0.5}, handshake="silent"),
    }
    fleet = opened(Fleet(servers))
    await fleet.connect()
    errors = [status.error for status in fleet.statuses.values()]
    assert errors == [
        "the command '/no/such/server' was not found",
        "it ended before it answered",
        "no answer in 0.5 s (if it needs longer, raise servers.silent.init_timeout)",
    ]
    assert fleet.statuses["leaver"].stderr_tail == "out of licences"
    assert len(await fleet.catalog()) == 0


async def test_a_second_connect_leaves_ready_and_failed_servers_alone(
    opened: Opened, raw: Raw, processes: Callable[[], list[str]]
) -> None:
    fleet = opened(Fleet({"one": raw(), "gone": ServerConfig(command="/no/such/server")}))
    await fleet.connect()
    before = fleet.statuses
    await asyncio.gather(fleet.connect(), fleet.connect(["one"]))
    assert fleet.statuses == before
    assert len(processes()) == 1


async def test_a_connect_waits_for_starts_that_another_one_began_and_does_not_repeat_them(
    opened: Opened, raw: Raw, tmp_path: Path
) -> None:
    records = {name: tmp_path / name for name in ("slow", "silent")}
    slow = raw(slow=0.3, record=str(records["slow"]))
    silent = raw({"init_timeout": 1.0}, handshake="silent", record=str(records["silent"]))
    fleet = opened(Fleet({"slow": slow, "silent": silent}))
    await asyncio.gather(fleet.connect(), fleet.connect())
    assert [record.read_text().count('"initialize"') for record in records.values()] == [1, 1]
    assert [status.state for status in fleet.statuses.values()] == ["ready", "failed"]


async def test_a_connect_that_is_cancelled_leaves_no_process_and_can_be_made_again(
    opened: Opened, raw: Raw, processes: Callable[[], list[str]], until: Callable[..., Any]
) -> None:
    fleet = opened(Fleet({name: raw(slow=0.8) for name in ("one", "two")}))
    connecting = asyncio.create_task(fleet.connect())
    await until(lambda: len(processes()) == 2)
    connecting.cancel()
    await asyncio.wait({connecting}, timeout=3)
    assert connecting.cancelled()
    assert processes() == []
    await fleet.connect()
    assert {status.state for status in fleet.statuses.values()} == {"ready"}


async def test_the_catalog_is_the_same_object_until_a_tool_changes(opened: Opened) -> None:
    server = _inside("a")
    fleet = opened(Fleet({}, in_process={"inside": server}, cache_ttl=1e-9))
    await fleet.connect()
    first = await fleet.catalog()
    assert await fleet.catalog() is first
    server.tool(lambda: "new", name="b")
    second = await fleet.catalog()
    assert [tool.name for tool in second] == ["a", "b"]
    assert second.version != first.version


async def test_the_catalog_is_in_the_order_of_the_config_whoever_was_ready_first(opened: Opened, raw: Raw) -> None:
    servers = {"slow": raw(slow=0.4, calls={"a": {}}), "quick": raw(calls={"b": {}})}
    fleet = opened(Fleet(servers, in_process={"inside": _inside("c")}))
    await fleet.connect()
    assert [tool.wire_name for tool in await fleet.catalog()] == ["slow__a", "quick__b", "inside__c"]


@pytest.mark.fault(43)
async def test_two_servers_with_the_same_tool_are_each_called_by_their_own_name(opened: Opened, raw: Raw) -> None:
    def answering(text: str) -> ServerConfig:
        return raw(calls={"who": {"result": {"content": [{"type": "text", "text": text}]}}})

    fleet = opened(Fleet({"left": answering("I am left"), "right": answering("I am right")}))
    await fleet.connect()
    catalog = await fleet.catalog()
    answers = {tool.wire_name: (await fleet.call(tool, {})).content[0].text for tool in catalog}
    assert answers == {"left__who": "I am left", "right__who": "I am right"}


async def test_a_death_touches_one_call_of_one_server_only(opened: Opened, raw: Raw) -> None:
    fleet = opened(Fleet({"mortal": raw(calls={"die": {"die": True}}), "healthy": raw(calls={"a": OK})}))
    await fleet.connect()
    die, healthy = await fleet.catalog()
    dying = asyncio.create_task(fleet.call(die, {}))
    assert (await fleet.call(healthy, {})).content[0].text == "ok"
    with pytest.raises(ToolCallError):
        await dying
    assert [tool.name for tool in await fleet.catalog()] == ["die", "a"]


async def test_a_server_is_reconnected_by_name_without_touching_the_others(
    opened: Opened, raw: Raw, tmp_path: Path, processes: Callable[[], list[str]]
) -> None:
    flag = tmp_path / "repaired"
    fleet = opened(Fleet({"mended": raw(fails_until=str(flag), calls={"a": {}}), "other": raw(calls={"b": {}})}))
    await fleet.connect()
    other = fleet.statuses["other"]
    with pytest.raises(ConnectError, match="not repaired yet"):
        await fleet.reconnect("mended")
    flag.touch()
    await fleet.reconnect("mended")
    assert fleet.statuses["mended"].state == "ready"
    assert fleet.statuses["other"] == other
    assert [tool.name for tool in await fleet.catalog()] == ["a", "b"]
    await fleet.reconnect("mended")
    assert len(processes()) == 2


async def test_an_unknown_name_is_answered_with_the_closest(opened: Opened, raw: Raw) -> None:
    fleet = opened(Fleet({"weather": raw()}))
    with pytest.raises(UnknownNameError, match="'weather'"):
        await fleet.reconnect("wether")
    with pytest.raises(UnknownNameError, match="'weather'"):
        await fleet.connect(["wether"])
    with pytest.raises(UnknownNameError, match="'weather'"):
        await fleet.call(ToolSpec("wether", "a"), {})


async def test_a_server_is_added_later(opened: Opened) -> None:
    changes: list[int] = []
    fleet = opened(Fleet({}, handlers=Handlers(changed=lambda: changes.append(1))))
    await fleet.connect()
    assert len(await fleet.catalog()) == 0
    await fleet.add("notebook", _inside("a"))
    assert [tool.wire_name for tool in await fleet.catalog()] == ["notebook__a"]
    assert changes
    assert fleet.config_of("notebook") is None
    with pytest.raises(UsageError, match="already a server 'notebook'"):
        await fleet.add("notebook", _inside())


@pytest.mark.fault(74)
async def test_servers_are_closed_side_by_side(opened: Opened, raw: Raw, tmp_path: Path) -> None:
    fleet = opened(Fleet({name: raw(parts=[str(tmp_path), 3]) for name in ("one", "two", "three")}))
    await fleet.connect()
    await fleet.close()
    assert sum(name.startswith("left-") for name in os.listdir(tmp_path)) == 3


@pytest.mark.fault(74)
async def test_closing_is_final_and_leaves_no_stubborn_server_and_no_child(
    opened: Opened, raw: Raw, processes: Callable[[], list[str]]
) -> None:
    stubborn = {"ignore_eof": True, "ignore_sigterm": True, "child": "stubborn"}
    fleet = opened(Fleet({name: raw(**stubborn) for name in ("one", "two", "three")}))
    await fleet.connect()
    assert len(processes()) == 6
    await fleet.close()
    assert processes() == []
    await fleet.close()
    for use in (fleet.connect, fleet.catalog, lambda: fleet.reconnect("one"), lambda: fleet.call(ToolSpec("one", "a"), {})):
        with pytest.raises(ClosedError):
            await use()
    assert {status.state for status in fleet.statuses.values()} == {"closed"}


def test_the_config_of_a_server_can_be_asked_for(raw: Raw) -> None:
    config = raw()
    fleet = Fleet({"one": config})
    assert fleet.config_of("one") is config
    assert fleet.config_of("two") is None
