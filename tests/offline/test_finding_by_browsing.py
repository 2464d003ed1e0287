"""The offline planner where tools are found by browsing: sessions over real servers, in this
process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.setups import OFFLINE

from casual_mcp_nb import Session
from casual_mcp_nb.conversation.turn import Turn

ON_THE_WAY = ["browse_toolkit", "load_tools", "unload_tools"]
CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {
        name: {"bundled": name, "transport": "in-process", "defer_loading": True}
        for name in ("math", "text", "time", "units")
    },
    "tool_discovery": {"enabled": True, "strategy": "browse"},
}


@pytest.fixture
def session() -> Iterator[Session]:
    with Session.from_config(CONFIG) as session:
        yield session


def called(turn: Turn) -> list[str]:
    return [call.tool.tool for call in turn.tool_calls]


def test_a_deferred_tool_is_browsed_loaded_and_called(session: Session) -> None:
    turn = session.chat("How much is 5 miles in km?", echo="none")
    assert called(turn) == ["browse_toolkit", "load_tools", "convert_units"]
    assert "units" in turn.tool_calls[0].arguments["query"]
    assert all(call.status == "ok" for call in turn.tool_calls)
    assert "8.04672 km" in turn.answer


def test_what_is_loaded_is_used_again_without_browsing(session: Session) -> None:
    session.chat("How much is 5 miles in km?", echo="none")
    assert called(session.chat("And 7 miles in km?", echo="none")) == ["convert_units"]


def test_where_there_is_no_room_the_person_reads_why(session: Session) -> None:
    session.selection.max_active_tools = 1
    session.chat("How much is 5 miles in km?", echo="none")
    turn = session.chat("What is 12 * 7?", echo="none")
    assert called(turn) == ["browse_toolkit", "load_tools"]
    assert re.search("`load_tools` failed: .*units:convert_units", turn.answer)


def test_what_no_tool_can_do_ends_after_a_look_and_names_the_categories(session: Session) -> None:
    turn = session.chat("Sing a song", echo="none")
    assert turn.status == "done"
    assert len(turn.steps) < 10
    assert not set(called(turn)) - set(ON_THE_WAY)
    assert "time (9 tools), units (3 tools)" in turn.answer


@pytest.mark.parametrize(
    "request_text",
    ["Load the tools", "Unload all tools", "Browse the toolkit", "What tools can be loaded?"],
)
def test_the_ways_to_tools_are_no_answer_to_a_request(session: Session, request_text: str) -> None:
    turn = session.chat(request_text, echo="none")
    assert turn.status == "done"
    assert "(from\u00a0`load_tools`)" not in turn.answer
    assert "(from\u00a0`browse_toolkit`)" not in turn.answer
    assert "I can use `" not in turn.answer or "`load_tools`" not in turn.answer


def many_categories() -> dict[str, FastMCP[Any]]:
    servers: dict[str, FastMCP[Any]] = {}
    for number in range(60):
        servers[f"shelf{number:02}"] = server = FastMCP(f"shelf{number:02}")
        server.tool(lambda: "dust", name=f"dust_{number}", description="Wipes dust.")
    servers["zoo"] = zoo = FastMCP("zoo")
    zoo.tool(
        lambda name: f"{name} got hay", name="feed_animal", description="Feed an animal of the zoo."
    )
    return servers


def test_a_tool_is_found_among_many_categories() -> None:
    servers = many_categories()
    config = {**CONFIG, "servers": {}}
    with Session.from_config(config, in_process=servers) as session:
        session.selection.defer_all = True
        turn = session.chat("Feed the animal 'Elsa'", echo="none")
    assert called(turn) == ["browse_toolkit", "load_tools", "feed_animal"]
    assert "Elsa got hay" in turn.answer


def test_tools_that_do_not_help_are_loaded_once() -> None:
    with Session.from_config({**CONFIG, "servers": {}}, in_process=many_categories()) as session:
        session.selection.defer_all = True
        turn = session.chat("Is there any dust on the moon?", echo="none")
    assert called(turn) == ["browse_toolkit", "load_tools"]
