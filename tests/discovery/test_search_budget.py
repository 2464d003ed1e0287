"""A limit in tokens on the tools that one search loads; the others are named, and a narrower search
loads them.
"""

from __future__ import annotations

from typing import Any

import pytest
from fastmcp import FastMCP

from casual_mcp_nb import Session
from casual_mcp_nb.base.tool import Catalog, ToolSpec
from casual_mcp_nb.conversation.step import loaded_in
from casual_mcp_nb.discovery.search_tools import SearchToolsTool
from casual_mcp_nb.providers.scripted import call, scripted_model

pytestmark = pytest.mark.defect("H9")

TOOLS = Catalog(
    [ToolSpec("desk", f"file_{number}", "File a letter. " + "word " * 300) for number in range(30)]
)
EACH = TOOLS[0].tokens


def tool(**options: Any) -> SearchToolsTool:
    return SearchToolsTool(TOOLS, max_search_results=5, **options)


@pytest.mark.parametrize(
    "arguments",
    [{"query": "file a letter"}, {"server_name": "desk"}, {"tool_names": [t.name for t in TOOLS]}],
)
@pytest.mark.parametrize("delivery", ["definitions", "native", "bridge"])
async def test_a_search_loads_only_tools_that_fit_and_names_the_others(
    arguments: Any, delivery: Any
) -> None:
    result = await tool(max_search_tokens=2 * EACH + 1, delivery=delivery).execute(arguments)
    assert len(result.newly_loaded_tools) == len(result.rows) == 2
    assert loaded_in(result.content) == [each.wire_name for each in result.newly_loaded_tools]
    assert len(result.content) <= 12_000
    others = {each.wire_name for each in TOOLS} - {
        each.wire_name for each in result.newly_loaded_tools
    }
    assert sum(name in result.content for name in others) >= 3


async def test_a_narrower_search_loads_tools_that_did_not_fit() -> None:
    search = tool(max_search_tokens=1)
    (first,) = (await search.execute({"query": "file a letter"})).newly_loaded_tools
    other = next(each for each in TOOLS if each != first)
    # Loaded before, the first one takes nothing of the room.
    (second,) = (await search.execute({"tool_names": [first.name, other.name]})).newly_loaded_tools
    assert second == other


async def test_without_need_nothing_is_left_out() -> None:
    small = Catalog([ToolSpec("desk", f"file_{number}", "File a letter.") for number in range(30)])
    assert (
        len((await SearchToolsTool(small).execute({"server_name": "desk"})).newly_loaded_tools)
        == 30
    )


def test_the_config_sets_the_limit_and_the_selection_changes_it() -> None:
    server: FastMCP[Any] = FastMCP("desk")
    for each in TOOLS[:4]:
        server.tool(lambda: "Filed.", name=each.name, description=each.description)
    discovery = {"enabled": True, "defer_all": True, "max_search_tokens": 1}
    with Session({"tool_discovery": discovery}, in_process={"desk": server}) as session:
        each = 10_000
        for limit, loaded in ((1, 1), (20_000, 4), (None, 2)):
            session.selection.max_search_tokens = limit or 2 * each + 1
            session.conversations.new()
            session.chat(
                "Go",
                model=scripted_model(call("search_tools", server_name="desk"), "Done."),
                echo="none",
            )
            each = max(tool.tokens for tool in session.tools.discovered)
            assert len(session.tools.discovered) == loaded
