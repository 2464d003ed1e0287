"""A later search of a conversation: tools that were shown and not used step back, so that the model
sees others.
"""

from __future__ import annotations

from typing import Any

from casual_llm.messages import AssistantMessage, AssistantToolCall, AssistantToolCallFunction

from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec
from casual_mcp_nb.conversation.step import loaded_in
from casual_mcp_nb.discovery.search_tools import SearchToolsTool
from casual_mcp_nb.discovery.synthetic import SyntheticToolResult, used_in

CITIES = ("Oslo", "Rome", "Paris", "Berlin", "Madrid", "Vienna")
TOOLS = Catalog(
    [ToolSpec(f"in_{city.lower()}", "forecast", f"Weather of {city}.") for city in CITIES]
)
LIMIT = 2


def tool(**options: Any) -> SearchToolsTool:
    return SearchToolsTool(TOOLS, **({"max_search_results": LIMIT} | options))


def new(result: SyntheticToolResult) -> set[str]:
    return {each.server for each in result.newly_loaded_tools}


async def test_a_repeated_search_finds_others_and_names_the_loaded_ones() -> None:
    search = tool()
    results = [await search.execute({"query": "weather"}) for _ in range(3)]
    assert [len(new(result)) for result in results] == [LIMIT] * 3
    assert set.union(*map(new, results)) == {each.server for each in TOOLS}
    for name in loaded_in(results[0].content):
        assert name in results[1].content
        assert name not in loaded_in(results[1].content)
    rows = [(row.newly_loaded, row.score is not None) for row in results[1].rows or ()]
    assert rows == [(True, True)] * LIMIT + [(False, True)] * LIMIT


async def test_when_nothing_else_matches_it_is_shown_again() -> None:
    search = tool(max_search_results=len(TOOLS))
    first, second = [await search.execute({"query": "weather"}) for _ in range(2)]
    assert new(second) == set()
    assert loaded_in(second.content) == loaded_in(first.content)


async def test_used_tools_keep_their_rank() -> None:
    search = tool(used=(used := set[ToolName]()))
    first = await search.execute({"query": "weather"})
    best = first.newly_loaded_tools[0]
    used.add(best.tool_name)
    second = await search.execute({"query": "weather"})
    assert loaded_in(second.content)[0] == best.wire_name
    assert len(new(second)) == LIMIT - 1


async def test_a_tool_that_the_query_names_keeps_its_place() -> None:
    search = tool(loaded=[each.tool_name for each in TOOLS[:3]])
    result = await search.execute({"query": f"weather with {TOOLS[2].wire_name}"})
    assert loaded_in(result.content)[0] == TOOLS[2].wire_name


async def test_names_and_servers_are_answered_whatever_was_shown() -> None:
    search = tool(loaded=[each.tool_name for each in TOOLS])
    by_name = await search.execute({"tool_names": [TOOLS[0].wire_name]})
    by_server = await search.execute({"server_name": TOOLS[0].server})
    assert loaded_in(by_name.content) == loaded_in(by_server.content) == [TOOLS[0].wire_name]


def test_the_messages_show_the_tools_used() -> None:
    def called(name: str, arguments: str = "{}") -> AssistantMessage:
        function = AssistantToolCallFunction(name=name, arguments=arguments)
        return AssistantMessage(
            content=None, tool_calls=[AssistantToolCall(id=name, function=function)]
        )

    messages = [
        AssistantMessage(content="Well."),
        called(TOOLS[0].wire_name),
        called("gone__tool"),
        called("search_tools"),
    ]
    assert used_in(messages, TOOLS) == {TOOLS[0].tool_name}
    bridged = [
        called("call_tool", f'{{"name": "{TOOLS[1].wire_name}"}}'),
        called("call_tool", "["),
        called("call_tool", "7"),
    ]
    assert used_in(bridged, TOOLS) == {TOOLS[1].tool_name}
