"""A deferred tool that a search has loaded is unloaded by the person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastmcp import FastMCP

from casual_mcp_nb import Conversation, Session
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.magics.commands import set_mode, unload
from casual_mcp_nb.providers.scripted import call, scripted_model

SEARCH = call("search_tools", server_name="weather")


@pytest.fixture
def session() -> Iterator[Session]:
    weather: FastMCP[Any] = FastMCP("weather")
    for name in ("forecast", "history"):
        weather.tool(lambda: "Sunny.", name=name, description=f"The {name} of the weather.")
    with Session({}, in_process={"weather": weather}) as session:
        session.connect()
        session.selection.servers["weather"] = "deferred"
        session.selection.discovery = True
        yield session


def ask(session: Session, *answers: Any, **options: Any) -> Turn:
    return session.chat("Go", model=scripted_model(*answers), **options)


def names(session: Session) -> list[str]:
    return [tool.name for tool in session.tools.discovered]


@pytest.mark.parametrize("delivery", ["definitions", "bridge"])
def test_a_tool_is_unloaded_and_can_be_found_again(session: Session, delivery: Any) -> None:
    session.selection.delivery = delivery
    ask(session, SEARCH, "Found.")
    assert names(session) == ["forecast", "history"]
    session.tools.unload("weather:forecast")
    assert names(session) == ["history"]
    assert "unloaded" in session.conversations.current.messages[2].content
    refused = ask(session, call("weather__forecast"), "No.")
    assert refused.tool_calls[0].status == "error"
    assert "weather__forecast" not in [tool["name"] for tool in refused.steps[0].request.tools]
    again = ask(
        session, call("search_tools", tool_names=["forecast"]), call("weather__forecast"), "Yes."
    )
    assert [each.status for each in again.tool_calls] == ["ok", "ok"]
    assert sorted(names(session)) == ["forecast", "history"]


def test_it_stays_so_in_a_file(session: Session) -> None:
    ask(session, SEARCH, "Found.")
    unload(session, "weather:forecast")
    loaded = Conversation.from_json(session.conversations.current.to_json())
    assert loaded.repairs == ()
    assert loaded.messages == session.conversations.current.messages


def test_what_was_not_loaded_cannot_be_unloaded(session: Session) -> None:
    with pytest.raises(UsageError):
        session.tools.unload("weather:forecast")
    ask(session, call("search_tools", tool_names=["history"]), "Found.")
    with pytest.raises(UsageError, match="weather:history"):
        session.tools.unload("forecast")
    with pytest.raises(UnknownNameError):
        session.tools.unload("weather:nothing")
    assert names(session) == ["history"]


@pytest.mark.defect("H9")
@pytest.mark.parametrize("name", ["weather:forecast", "weather__forecast", "forecast"])
def test_a_deferred_tool_is_loaded_without_a_search_until_it_is_unloaded(
    session: Session, name: str
) -> None:
    session.tools.load(name)
    session.tools.load(name)
    turn = ask(session, call("weather__forecast"), "Sunny.")
    assert turn.tool_calls[0].status == "ok"
    assert "weather__forecast" in [tool["name"] for tool in turn.steps[0].request.tools]
    assert "weather__history" not in [tool["name"] for tool in turn.steps[0].request.tools]
    session.tools.unload(name)
    assert ask(session, call("weather__forecast"), "No.").tool_calls[0].status == "error"
    with pytest.raises(UsageError):
        session.tools.unload(name)


@pytest.mark.defect("H9")
def test_what_is_excluded_or_does_not_exist_cannot_be_loaded(session: Session) -> None:
    for name in ("weather:nothing", "nothing", "wether:forecast"):
        with pytest.raises(UnknownNameError):
            session.tools.load(name)
    session.selection.tools_off.add("weather:forecast")
    with pytest.raises(UsageError):
        session.tools.load("weather:forecast")
    session.selection.tools_off.clear()
    session.selection.servers["weather"] = "off"
    with pytest.raises(UsageError):
        session.tools.load("weather:forecast")
    assert session.selection.always_loaded == ()


@pytest.mark.defect("H9")
def test_the_magic_loads_servers_and_single_tools(session: Session) -> None:
    set_mode(session, "weather:history", "loaded")
    assert session.selection.always_loaded == ("weather:history",)
    assert session.selection.servers["weather"] == "deferred"
    set_mode(session, "weather", "loaded")
    assert session.selection.servers["weather"] == "loaded"


def test_a_tool_with_a_colon_in_its_name_can_be_off_and_kept_loaded() -> None:
    server: FastMCP[Any] = FastMCP("shop")

    @server.tool(name="db:query")
    def query() -> str:
        return "rows"

    with Session({}, in_process={"shop": server, "plugin:shop": server}, quiet=True) as session:
        session.connect()

        def loaded() -> set[str]:
            return {str(tool.tool_name) for tool in session.parts.chat.current_view().loaded}

        both = {"shop:db:query", "plugin:shop:db:query"}
        assert loaded() >= both
        for name in both:
            session.selection.tools_off.add(name)
            assert loaded() & both == both - {name}
            session.selection.tools_off.clear()
            session.selection.always_loaded = (name,)
            assert session.selection.always_loaded == (name,)
