"""Deferred tools over turns: search, load, call, and the tools that remain loaded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from kit.turns import ask
from kit.weather import desk, weather

from casual_mcp_nb.base.config import Config, ToolSetConfig
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.discovery.synthetic import not_loaded_error
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.servers.server_manager import ServerManager

SEARCH = "search_tools"


@pytest.fixture
async def chat() -> AsyncIterator[McpToolChat]:
    selection = Selection.model_validate(
        {"servers": {"weather": "deferred", "desk": "loaded"}, "discovery": True}
    )
    server_manager = ServerManager({}, in_process={"weather": weather(), "desk": desk()})
    async with McpToolChat(
        server_manager, ModelFactory(Config()), ChatSetup(selection=selection)
    ) as chat:
        yield chat


def offered(turn: Turn, step: int) -> list[str]:
    return [tool["name"] for tool in turn.steps[step].request.tools]


async def test_a_deferred_tool_is_found_loaded_and_called(chat: McpToolChat) -> None:
    turn = await ask(
        chat,
        call(SEARCH, query="weather forecast"),
        call("weather__forecast", city="Oslo"),
        "Sunny.",
    )
    assert offered(turn, 0) == ["desk__note", SEARCH]
    assert "weather__forecast" in offered(turn, 1)
    assert [c.status for c in turn.tool_calls] == ["ok", "ok"]
    assert turn.tool_calls[1].result == "Sunny in Oslo"
    (search,) = turn.searches
    assert search.query == "weather forecast"
    assert search.rows[0].tool.tool == "forecast"
    assert search.rows[0].score > 0
    assert search.offered == len(offered(turn, 1)) - 1
    assert turn.stats.discovery is not None
    assert turn.stats.discovery.search_calls == 1
    assert turn.stats.discovery.tools_discovered == len(
        [row for row in search.rows if row.newly_loaded]
    )
    assert turn.stats.tool_calls.by_server == {"_synthetic": 1, "weather": 1}


@pytest.mark.parametrize(
    ("prompt", "answers", "missed"),
    [
        ("What was the past weather in Oslo?", ["Rain."], True),
        ("What was the past weather in Oslo?", [call(SEARCH, query="weather"), "Rain."], False),
        ("What was the past weather in Oslo?", [call("desk__note", text="x"), "Rain."], False),
        ("Write a note.", ["Done."], False),
        ("Thanks, that was kind of you!", ["Welcome."], False),
        ("", ["Welcome."], False),
    ],
)
async def test_a_turn_without_a_search_names_the_tool_that_would_have_fitted(
    chat: McpToolChat, prompt: str, answers: list[Any], missed: bool
) -> None:
    options = TurnOptions(model=scripted_model(*answers))
    turn = await chat.run([UserMessage(content=prompt)], options)
    assert ["weather:history" in notice.text for notice in turn.notices] == [True] * missed
    again = [UserMessage(content=prompt)]
    first = await ask(chat, call(SEARCH, tool_names=["history"]), "found")
    later = await chat.run(again, TurnOptions(model=scripted_model("ok")), history=first.messages)
    assert not later.notices


async def test_stats_say_what_was_found_and_what_of_it_was_called(chat: McpToolChat) -> None:
    both = call(SEARCH, tool_names=["forecast", "history"])
    first = await ask(
        chat, both, call("weather__forecast", city="Oslo"), call("desk__note", text="x"), "ok"
    )
    again = await ask(
        chat, both, call("weather__forecast", city="Rome"), "ok", history=first.messages
    )
    discovery = (first.stats + again.stats).discovery
    assert discovery is not None
    assert discovery.found == {"weather:forecast": 2, "weather:history": 2}
    assert discovery.called == {"weather:forecast": 2, "desk:note": 1}


@pytest.mark.fault(52)
async def test_what_was_discovered_stays_loaded_in_the_next_turn_and_after_a_refresh(
    chat: McpToolChat,
) -> None:
    first = await ask(chat, call(SEARCH, tool_names=["forecast"]), "loaded")
    await chat.server_manager.reconnect("weather")
    second = await ask(chat, call("weather__forecast", city="Rome"), "ok", history=first.messages)
    assert offered(second, 0) == ["desk__note", SEARCH, "weather__forecast"]
    assert second.tool_calls[0].result == "Sunny in Rome"
    fresh = await ask(chat, call("weather__forecast", city="Rome"), "ok")
    assert fresh.tool_calls[0].status == "error"


async def test_a_search_by_its_name_in_casual_mcp_is_the_search(chat: McpToolChat) -> None:
    first = await ask(chat, call("search-tools", tool_names=["forecast"]), "loaded")
    assert [c.status for c in first.tool_calls] == ["ok"]
    assert first.stats.tool_calls.by_tool == {SEARCH: 1}
    second = await ask(chat, call("weather__forecast", city="Rome"), "ok", history=first.messages)
    assert [c.status for c in second.tool_calls] == ["ok"]


async def test_a_later_search_shows_what_was_not_shown_before(chat: McpToolChat) -> None:
    chat.selection.max_search_results = 1
    first = await ask(chat, call(SEARCH, query="weather"), call(SEARCH, query="weather"), "ok")
    loaded = [
        [row.tool.tool for row in search.rows if row.newly_loaded] for search in first.searches
    ]
    assert sorted(loaded) == [["forecast"], ["history"]]


async def test_what_was_used_in_this_turn_or_an_earlier_one_is_shown_again(
    chat: McpToolChat,
) -> None:
    chat.selection.max_search_results = 1
    search, used = call(SEARCH, query="weather forecast"), call("weather__forecast", city="Oslo")
    first = await ask(chat, search, used, search, "ok")
    second = await ask(chat, search, "ok", history=first.messages)
    for found in (*first.searches, *second.searches):
        assert [row.tool.tool for row in found.rows] == ["forecast"]


async def test_a_deferred_tool_that_is_called_unseen_is_refused_with_the_way_to_it(
    chat: McpToolChat,
) -> None:
    turn = await ask(chat, call("weather__forecast", city="Oslo"), "ok")
    assert turn.tool_calls[0].result == not_loaded_error("weather__forecast")


async def test_a_search_and_the_call_of_what_it_finds_cannot_share_a_step(
    chat: McpToolChat,
) -> None:
    turn = await ask(
        chat, calls(call(SEARCH, query="forecast"), call("weather__forecast", city="Oslo")), "ok"
    )
    assert [c.status for c in turn.tool_calls] == ["ok", "error"]


async def test_a_toolset_cannot_be_circumvented_by_search(chat: McpToolChat) -> None:
    only = ToolSetConfig(servers={"weather": ("history",), "desk": True})
    turn = await ask(
        chat,
        call(SEARCH, query="weather forecast"),
        call(SEARCH, tool_names=["forecast"]),
        call("weather__forecast", city="Oslo"),
        "no",
        tool_set=only,
    )
    assert "weather__forecast" not in offered(turn, 3)
    assert turn.tool_calls[2].status == "error"


async def test_a_toolset_that_forbids_a_discovered_tool_takes_it_away_and_gives_it_back(
    chat: McpToolChat,
) -> None:
    first = await ask(chat, call(SEARCH, tool_names=["forecast"]), "loaded")
    without = await ask(
        chat, "ok", history=first.messages, tool_set=ToolSetConfig(servers={"desk": True})
    )
    assert offered(without, 0) == ["desk__note"]
    history = [*first.messages, *without.messages]
    again = await ask(chat, "ok", history=history)
    assert "weather__forecast" in offered(again, 0)


async def test_found_again_is_already_loaded(chat: McpToolChat) -> None:
    turn = await ask(
        chat, call(SEARCH, tool_names=["forecast"]), call(SEARCH, tool_names=["forecast"]), "ok"
    )
    assert "already loaded" in turn.tool_calls[1].result
    assert turn.stats.discovery is not None
    assert turn.stats.discovery.tools_discovered == 1


async def test_with_discovery_off_all_tools_are_offered_and_nothing_tells_of_a_search(
    chat: McpToolChat,
) -> None:
    turn = await ask(chat, "ok", discovery=False)
    assert sorted(offered(turn, 0)) == ["desk__note", "weather__forecast", "weather__history"]
    assert turn.steps[0].request.tokens.manifest == 0
    assert turn.stats.discovery is None


async def test_the_selection_is_read_when_a_turn_begins(chat: McpToolChat) -> None:
    chat.selection.servers["weather"] = "off"
    assert offered(await ask(chat, "ok"), 0) == ["desk__note"]
    chat.selection.servers["weather"] = "loaded"
    chat.selection.tools_off.add("weather:history")
    assert offered(await ask(chat, "ok"), 0) == ["weather__forecast", "desk__note"]


async def test_the_view_is_compiled_once_for_the_same_catalog_and_selection(
    chat: McpToolChat,
) -> None:
    first = await chat.view()
    assert await chat.view() is first
    chat.selection.max_search_results = 2
    assert await chat.view() is not first


async def test_a_later_step_is_compared_with_the_one_before(chat: McpToolChat) -> None:
    turn = await ask(chat, call(SEARCH, tool_names=["forecast"]), "ok")
    diff = turn.steps[1].diff()
    assert diff.tools_added == ("weather__forecast",)
    assert diff.tools_removed == ()
    assert [message.role for message in diff.messages_added] == ["assistant", "tool"]
    assert diff.tokens.total > diff.tokens_before.total


async def test_what_a_server_marks_stays_loaded_when_the_server_is_deferred() -> None:
    server = weather()

    @server.tool(meta={"anthropic/alwaysLoad": True})
    def now(city: str) -> str:
        """The weather now."""
        return f"Snow in {city}"

    selection = Selection.model_validate({"servers": {"weather": "deferred"}, "discovery": True})
    async with McpToolChat(
        ServerManager({}, in_process={"weather": server}),
        ModelFactory(Config()),
        ChatSetup(
            selection=selection,
        ),
    ) as chat:
        turn = await ask(chat, call("weather__now", city="Oslo"), "ok")
        assert offered(turn, 0) == ["weather__now", SEARCH]
        assert turn.tool_calls[0].result == "Snow in Oslo"
        chat.selection.always_loaded = ("weather:history",)
        assert offered(await ask(chat, "ok"), 0) == ["weather__history", "weather__now", SEARCH]
