"""Work that a turn need not repeat when nothing has changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.turns import ask

from casual_mcp_nb.base.config import Config, ToolSetConfig
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.errors import ConnectError, UnknownNameError
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.scripted import call
from casual_mcp_nb.servers.server_manager import ServerManager

TOOLS = 1_200


@cache
def many() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("many")
    for number in range(TOOLS):
        server.tool(
            lambda city="": city,
            name=f"read_{number}",
            description=f"Read record {number} of a city.",
        )
    return server


@pytest.fixture
async def chat() -> AsyncIterator[McpToolChat]:
    selection = Selection.model_validate({"servers": {"many": "deferred"}, "discovery": True})
    async with McpToolChat(
        ServerManager({}, in_process={"many": many()}),
        ModelFactory(Config()),
        ChatSetup(selection=selection),
    ) as chat:
        yield chat


async def test_a_view_that_is_there_is_given_without_waiting_for_anything(
    chat: McpToolChat,
) -> None:
    view = await chat.view()
    waiting = chat.view()
    with pytest.raises(StopIteration) as given:
        waiting.send(None)
    assert given.value.value is view


async def test_a_large_view_is_priced_and_its_index_built_once(chat: McpToolChat) -> None:
    view = await chat.view()
    assert "undeferred_tokens" in vars(view)
    assert "index" not in vars(view)
    turn = await ask(
        chat,
        call("search_tools", query="record 77"),
        call("search_tools", query="record 78"),
        "done",
    )
    assert [search.rows[0].tool.tool for search in turn.searches] == ["read_77", "read_78"]
    index = vars(view)["index"]
    assert await view.searchable() is index
    await ask(chat, call("search_tools", query="record 79"), "done")
    assert vars(await chat.view())["index"] is index


async def test_the_steps_of_a_turn_share_the_definitions(chat: McpToolChat) -> None:
    chat.selection.discovery = False
    turn = await ask(chat, call("many__read_1"), "done")
    first, second = (step.request.tools for step in turn.steps)
    assert len(first) == TOOLS
    assert all(one is other for one, other in zip(first, second, strict=True))


async def test_an_empty_answer_is_said(chat: McpToolChat) -> None:
    turn = await ask(chat, "")
    (notice,) = turn.notices
    assert "empty" in notice.text


async def test_a_view_keeps_the_selection_that_it_was_compiled_from(chat: McpToolChat) -> None:
    view = await chat.view()
    chat.selection.servers["many"] = "off"
    assert view.selection.servers["many"] == "deferred"
    assert (await chat.view()).selection.servers["many"] == "off"
    chat.selection.servers["many"] = "deferred"
    assert await chat.view() is view


class Licensed:
    """Servers of this process that start only while they have a licence."""

    def __init__(self, *names: str) -> None:
        self.licences = {"many"}
        self.servers = {name: FastMCP[Any](name, lifespan=self._start) for name in names}

    @asynccontextmanager
    async def _start(self, server: FastMCP[Any]) -> AsyncIterator[dict[str, Any]]:
        if server.name not in self.licences:
            raise RuntimeError("no licence")
        yield {}


async def test_what_is_missing_is_looked_up_again_when_a_server_has_changed() -> None:
    licensed = Licensed("moody")
    server_manager = ServerManager({}, in_process={"many": many(), **licensed.servers})
    async with McpToolChat(server_manager, ModelFactory(Config())) as chat:
        for _ in range(2):
            turn = await ask(chat, "done")
            assert [notice.server for notice in turn.notices] == ["moody"]
        licensed.licences.add("moody")
        await chat.server_manager.reconnect("moody")
        assert not (await ask(chat, "done")).notices


async def test_missing_tools_are_reported_in_the_first_turn_and_after_changes() -> None:
    licensed = Licensed("moody", "sad")
    licensed.licences.add("sad")
    server_manager = ServerManager({}, in_process={"many": many(), **licensed.servers})
    async with McpToolChat(server_manager, ModelFactory(Config())) as chat:

        async def missing(history: list[Any]) -> list[str | None]:
            turn = await ask(chat, "done", history=history)
            history += turn.messages
            return [notice.server for notice in turn.notices]

        history: list[Any] = []
        assert [await missing(history) for _ in range(3)] == [["moody"], [], []]
        assert await missing([]) == ["moody"]
        licensed.licences.remove("sad")
        with pytest.raises(ConnectError):
            await chat.server_manager.reconnect("sad")
        assert [await missing(history) for _ in range(2)] == [["moody", "sad"], []]
        licensed.licences.add("moody")
        await chat.server_manager.reconnect("moody")
        assert [await missing(history) for _ in range(2)] == [["sad"], []]


async def test_an_unknown_name_is_refused_in_each_turn_until_it_is_removed(
    chat: McpToolChat,
) -> None:
    await ask(chat, "done")
    chat.tool_sets["lost"] = ToolSetConfig(servers={})
    chat.selection.tool_set = "lost"
    del chat.tool_sets["lost"]
    for _ in range(2):
        with pytest.raises(UnknownNameError):
            await ask(chat, "done")
    chat.selection.tool_set = None
    assert (await ask(chat, "done")).status == "done"
