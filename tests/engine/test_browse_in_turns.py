"""Browsing over turns, and the cost of the first call with and without deferral."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kit.turns import ask
from kit.weather import weather

from casual_mcp_nb.base.config import Config, ToolSetConfig
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.status import Servers, SessionStatus
from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.base.tool import Catalog, ToolSpec
from casual_mcp_nb.config.templates import TemplateLibrary
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.discovery.synthetic import not_loaded_error
from casual_mcp_nb.engine.budget import turn_budget
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.engine.tool_view import ToolView, ViewSources, compile_view
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.scripted import call, calls
from casual_mcp_nb.servers.server_manager import ServerManager

BROWSING = ["browse_toolkit", "load_tools", "unload_tools"]
PARAMETERS = {
    "properties": {
        "path": {"type": "string", "description": "Where it is, as an absolute path."},
        "limit": {"type": "integer", "description": "How many of them are wanted at the most."},
        "order": {
            "type": "string",
            "enum": ["name", "size", "date"],
            "description": "What comes first.",
        },
    },
    "required": ["path"],
}


@pytest.fixture
async def chat() -> AsyncIterator[McpToolChat]:
    selection = Selection.model_validate(
        {
            "servers": {"weather": "deferred"},
            "discovery": True,
            "strategy": "browse",
            "max_active_tools": 1,
        }
    )
    async with McpToolChat(
        ServerManager({}, in_process={"weather": weather()}),
        ModelFactory(Config()),
        ChatSetup(
            selection=selection,
        ),
    ) as chat:
        yield chat


def offered(turn: Turn, step: int) -> list[str]:
    return [tool["name"] for tool in turn.steps[step].request.tools]


async def test_a_tool_is_browsed_loaded_called_and_unloaded(chat: McpToolChat) -> None:
    turn = await ask(
        chat,
        call("browse_toolkit", category="weather"),
        call("load_tools", names=["forecast"]),
        call("weather__forecast", city="Oslo"),
        call("unload_tools", names=["weather:forecast"]),
        call("weather__forecast", city="Oslo"),
        "Sunny.",
    )
    assert [c.status for c in turn.tool_calls] == ["ok", "ok", "ok", "ok", "error"]
    assert offered(turn, 0) == offered(turn, 1) == BROWSING
    assert offered(turn, 2) == offered(turn, 3) == [*BROWSING, "weather__forecast"]
    assert offered(turn, 4) == BROWSING
    assert turn.tool_calls[2].result == "Sunny in Oslo"
    assert turn.tool_calls[4].result == not_loaded_error("weather__forecast", "load_tools")
    loaded, unloaded = turn.searches
    assert (loaded.offered, unloaded.offered) == (1, 0)
    assert [str(name) for name in unloaded.unloaded] == ["weather:forecast"]
    assert turn.stats.discovery is not None
    assert (turn.stats.discovery.search_calls, turn.stats.discovery.tools_discovered) == (1, 1)
    assert "Unloaded 1 tool (0 loaded)" in str(turn)


@pytest.mark.fault(52)
async def test_what_is_loaded_stays_until_it_is_unloaded_whatever_the_strategy(
    chat: McpToolChat,
) -> None:
    first = await ask(chat, call("load_tools", names=["forecast"]), "loaded")
    chat.selection.strategy = "search"
    second = await ask(chat, "still there", history=first.messages)
    assert offered(second, 0) == ["search_tools", "weather__forecast"]
    chat.selection.strategy = "browse"
    third = await ask(
        chat,
        call("unload_tools", names=["forecast"]),
        "gone",
        history=[*first.messages, *second.messages],
    )
    fourth = await ask(chat, "bye", history=[*first.messages, *second.messages, *third.messages])
    assert offered(fourth, 0) == BROWSING


async def test_the_limit_holds_over_turns_and_within_a_step(chat: McpToolChat) -> None:
    first = await ask(
        chat,
        calls(call("load_tools", names=["forecast"]), call("load_tools", names=["history"])),
        "one of them",
    )
    assert [c.status for c in first.tool_calls] == ["ok", "error"]
    second = await ask(chat, call("load_tools", names=["history"]), "full", history=first.messages)
    assert "at most 1 can" in second.tool_calls[0].result
    exchange = calls(
        call("unload_tools", names=["forecast"]), call("load_tools", names=["history"])
    )
    third = await ask(chat, exchange, "exchanged", history=first.messages)
    assert offered(third, 1) == [*BROWSING, "weather__history"]


@pytest.mark.fault(47)
async def test_a_toolset_cannot_be_circumvented_by_browsing(chat: McpToolChat) -> None:
    turn = await ask(
        chat,
        call("browse_toolkit", category="weather"),
        call("load_tools", names=["forecast", "weather__forecast"]),
        call("weather__forecast", city="Oslo"),
        "no",
        tool_set=ToolSetConfig(servers={"weather": ("history",)}),
    )
    assert "forecast" not in turn.tool_calls[0].result
    assert turn.tool_calls[1].status == turn.tool_calls[2].status == "error"
    assert offered(turn, 2) == BROWSING


def view(tools: list[ToolSpec], **options: Any) -> ToolView:
    return compile_view(
        ViewSources(Catalog(tools)), Selection(discovery=True, defer_all=True, **options)
    )


def tools(servers: int, each: int) -> list[ToolSpec]:
    return [
        ToolSpec(
            f"server-{n}",
            f"tool_{place}",
            f"Does thing {place} for people who need it. It is of server {n}.",
            PARAMETERS,
        )
        for n in range(servers)
        for place in range(each)
    ]


@pytest.mark.parametrize(
    ("servers", "each", "saved"),
    [(3, 4, 0.5), (10, 1, 0.5), (5, 10, 0.9), (50, 1, 0.89), (500, 1, 0.97)],
)
@pytest.mark.parametrize("strategy", ["search", "browse"])
def test_the_first_call_saves_more_the_more_is_deferred(
    servers: int, each: int, saved: float, strategy: str
) -> None:
    seen = view(tools(servers, each), strategy=strategy)
    assert 1 - seen.first_call_tokens / seen.undeferred_tokens > saved


def test_the_manifest_keeps_to_its_budget_and_the_model_reads_exactly_that() -> None:
    seen = view(tools(900, 2), manifest_max_tokens=1_200)
    assert 1_000 < estimate_tokens(seen.manifest) <= 1_200
    (search,) = seen.synthetic_tools().values()
    assert f"<manifest>\n{seen.manifest}\n</manifest>" in search.definition["description"]
    small = view(tools(4, 2), strategy="browse")
    assert small.manifest == "server-0 (2), server-1 (2), server-2 (2), server-3 (2)"
    assert (
        small.synthetic_tools()["browse_toolkit"].definition["description"].endswith(small.manifest)
    )


def test_the_template_for_small_models_says_how_to_browse() -> None:
    rendered = TemplateLibrary.for_config(None).render(
        "discovery", tools=view(tools(2, 2), strategy="browse").offered
    )
    assert "browse_toolkit" in rendered
    assert "load_tools" in rendered
    assert "search_tools" not in rendered
    searching = TemplateLibrary.for_config(None).render(
        "discovery", tools=view(tools(2, 2)).offered
    )
    assert "search_tools" in searching
    assert "browse_toolkit" not in searching


def test_where_deferring_costs_more_than_it_saves_the_display_says_so() -> None:
    seen = view([ToolSpec("s", "t", "Tiny.")])
    assert [tool.name for tool in seen.offered] == ["search_tools"]
    budget = turn_budget(seen)
    assert (budget.saved or 0) < 0
    shown = SessionStatus(Servers({}, {}), budget=budget)._repr_mimebundle_()["text/plain"]
    assert re.search(r"\d% more\b", shown)
    many = turn_budget(view(tools(10, 20)))
    assert (many.saved or 0) > 0.5
    shown = SessionStatus(Servers({}, {}), budget=many)._repr_mimebundle_()["text/plain"]
    assert re.search(r"\d% less\b", shown)
    assert turn_budget(ToolView(Catalog(()), Selection(), (), ())).saved is None
