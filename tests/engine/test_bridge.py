"""The bridge: tools found by search are called through `call_tool`, and the tools of the requests
never change.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from fastmcp import FastMCP
from kit.turns import ask
from kit.weather import desk

from casual_mcp_nb.base.config import Config, ToolSetConfig
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import ApprovalAsked, ToolStarted
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.plan import planned_calls, run_planned
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.errors import UnknownNameError
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.servers.server_manager import ServerManager

SEARCH, CALL = "search_tools", "call_tool"


def weather() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("weather")

    @server.tool
    def forecast(city: str, days: int = 1) -> str:
        """Forecast the weather of a city."""
        return f"{days} sunny in {city}"

    @server.tool
    def history(city: str) -> str:
        """Past weather of a city."""
        return f"Rain in {city}"

    return server


def bridged(tool: str, /, **arguments: Any) -> Any:
    return call(CALL, name=tool, arguments=arguments)


FIND = call(SEARCH, tool_names=["weather:forecast"])


@pytest.fixture
async def chat() -> AsyncIterator[McpToolChat]:
    selection = Selection.model_validate(
        {
            "servers": {"weather": "deferred", "desk": "loaded"},
            "discovery": True,
            "delivery": "bridge",
        }
    )
    server_manager = ServerManager({}, in_process={"weather": weather(), "desk": desk()})
    async with McpToolChat(
        server_manager, ModelFactory(Config()), ChatSetup(selection=selection)
    ) as chat:
        yield chat


async def test_a_found_tool_is_called_and_counted_as_itself_while_the_tools_stay_the_same(
    chat: McpToolChat,
) -> None:
    turn = await ask(chat, FIND, bridged("weather__forecast", city="Oslo", days=3), "Sunny.")
    assert turn.status == "done"
    first, *others = [step.request for step in turn.steps]
    assert [tool["name"] for tool in first.tools] == ["desk__note", SEARCH, CALL]
    assert all(request.tools == first.tools and request.delivery == "bridge" for request in others)
    search, made = turn.tool_calls
    card = search.result.partition("\n\n## weather__forecast\n")[2]
    schema = next(line for line in card.splitlines() if line.startswith("Schema of arguments: "))
    assert json.loads(schema.partition(": ")[2])["properties"]["days"]["type"] == "integer"
    assert (str(made.tool), made.name, made.status) == (
        "weather:forecast",
        "weather__forecast",
        "ok",
    )
    assert made.arguments == {"city": "Oslo", "days": 3}
    assert made.result == "3 sunny in Oslo"
    assert turn.trace.of(ToolStarted)[1].wire_name == "weather__forecast"
    assert turn.stats.tool_calls.by_tool == {SEARCH: 1, "weather__forecast": 1}
    answer, result = turn.messages[-3:-1]
    assert [one.function.name for one in answer.tool_calls] == [CALL]
    assert result.name == CALL


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (bridged("weather__forecast", days="many"), ["city", "Schema of arguments: ", '"days"']),
        (bridged("weather__history", city="Oslo"), ["not yet loaded", SEARCH]),
        (bridged(SEARCH, query="weather"), ["by its name"]),
        (bridged(CALL, name="weather__forecast", arguments={}), ["by its name"]),
        (bridged("weather__storms"), ["not available"]),
        (call(CALL, name="weather__forecast", city="Oslo"), ["arguments"]),
        (call(CALL), ["arguments"]),
        (call(CALL, name="weather__forecast", arguments="[1]"), ["not a JSON object"]),
        (call(CALL, name="weather__forecast", arguments=[1]), ["not a JSON object"]),
    ],
)
async def test_a_call_that_cannot_be_made_is_answered_with_what_to_do(
    chat: McpToolChat, made: Any, words: list[str]
) -> None:
    turn = await ask(chat, FIND, made, bridged("weather__forecast", city="Oslo"), "ok")
    assert [one.status for one in turn.tool_calls] == ["ok", "error", "ok"]
    assert all(word in turn.tool_calls[1].result for word in words), turn.tool_calls[1].result


async def test_arguments_may_be_a_text_of_json(chat: McpToolChat) -> None:
    turn = await ask(chat, FIND, call(CALL, name="forecast", arguments='{"city": "Oslo"}'), "ok")
    assert turn.tool_calls[1].result == "1 sunny in Oslo"


async def test_a_search_and_the_call_of_what_it_finds_cannot_share_an_answer(
    chat: McpToolChat,
) -> None:
    turn = await ask(chat, calls(FIND, bridged("weather__forecast", city="Oslo")), "ok")
    assert [one.status for one in turn.tool_calls] == ["ok", "error"]


async def test_a_loaded_tool_is_called_either_way(chat: McpToolChat) -> None:
    turn = await ask(
        chat, calls(call("desk__note", text="a"), bridged("desk__note", text="b")), "ok"
    )
    assert [one.result for one in turn.tool_calls] == ["Noted a", "Noted b"]


async def test_the_toolset_is_checked_at_each_call(chat: McpToolChat) -> None:
    first = await ask(chat, FIND, "found")
    fenced = ToolSetConfig(servers={"weather": ("history",)})
    second = await ask(
        chat,
        bridged("weather__forecast", city="Oslo"),
        "no",
        history=first.messages,
        tool_set=fenced,
    )
    assert second.tool_calls[0].status == "error"
    third = await ask(chat, bridged("weather__forecast", city="Oslo"), "ok", history=first.messages)
    assert third.tool_calls[0].status == "ok"
    fresh = await ask(chat, bridged("weather__forecast", city="Oslo"), "no")
    assert fresh.tool_calls[0].status == "error"


async def test_approval_asks_about_the_tool_itself(chat: McpToolChat) -> None:
    asked: list[Any] = []

    async def approver(request: Any) -> bool:
        asked.append(request)
        return False

    chat.consent.approver = approver
    chat.consent.overrides["weather"] = {"forecast": "always"}
    turn = await ask(chat, FIND, bridged("weather__forecast", city="Oslo"), "no")
    assert [(str(request.tool.tool_name), dict(request.arguments)) for request in asked] == [
        ("weather:forecast", {"city": "Oslo"})
    ]
    assert turn.tool_calls[1].status == "denied"
    assert turn.trace.of(ApprovalAsked)


def has_schema(turn: Turn) -> list[bool]:
    return ["Schema of arguments: " in one.result for one in turn.tool_calls]


async def test_a_card_is_whole_again_only_where_the_model_cannot_read_it_any_more(
    chat: McpToolChat,
) -> None:
    first = await ask(chat, FIND, FIND, "found")
    assert has_schema(first) == [True, False]
    second = await ask(
        chat,
        FIND,
        "found",
        history=Conversation.from_json(Conversation([first]).to_json()).messages,
    )
    assert has_schema(second) == [False]
    # A card of another delivery, or of an earlier version, has another schema or none.
    shortened = [
        each.model_copy(
            update={
                "content": each.content.replace("Schema of arguments: {", "Schema of arguments: { ")
            }
        )
        if each.role == "tool"
        else each
        for each in first.messages
    ]
    assert has_schema(await ask(chat, FIND, "found", history=shortened)) == [True]
    plain = await ask(chat, FIND, "found", delivery="definitions")
    assert has_schema(await ask(chat, FIND, "found", history=plain.messages)) == [True]


async def test_a_card_is_whole_again_when_its_exchange_is_left_out(chat: McpToolChat) -> None:
    first = await ask(chat, FIND, "found")
    model = scripted_model(FIND, FIND, "found", context_window=2_000)
    text = "word " * 1_500
    second = await chat.run(
        [UserMessage(content=text)], TurnOptions(model=model), history=first.messages
    )
    assert second.steps[0].request.left_out
    assert has_schema(second) == [True, False]


async def test_a_card_names_its_server_only_where_its_name_does_not(chat: McpToolChat) -> None:
    turn = await ask(chat, FIND, "found")
    assert "Server: " not in turn.tool_calls[0].result
    plain = await ask(chat, FIND, "found", delivery="definitions")
    assert "Server: weather" in plain.tool_calls[0].result


async def test_browsing_works_through_the_bridge(chat: McpToolChat) -> None:
    chat.selection.strategy = "browse"
    load = call("load_tools", names=["weather:forecast"])
    unload = call("unload_tools", names=["weather:forecast"])
    use = bridged("weather__forecast", city="Oslo")
    turn = await ask(chat, load, use, unload, use, "ok")
    assert [one.status for one in turn.tool_calls] == ["ok", "ok", "ok", "error"]
    assert len({tuple(tool["name"] for tool in step.request.tools) for step in turn.steps}) == 1
    assert "Schema of arguments: " in turn.tool_calls[0].result


async def test_a_conversation_changes_its_way_and_stays_valid(chat: McpToolChat) -> None:
    use = call("weather__forecast", city="Oslo")
    history: list[Any] = []
    for delivery, made in (
        ("definitions", use),
        ("bridge", bridged("weather__forecast", city="Oslo")),
        ("definitions", use),
        # A model may go on as it did before.
        ("definitions", bridged("weather__forecast", city="Oslo")),
        ("bridge", use),
    ):
        chat.selection.delivery = delivery  # type: ignore[assignment]
        turn = await ask(chat, *([] if history else [FIND]), made, "ok", history=history)
        assert turn.tool_calls[-1].status == "ok", turn.tool_calls[-1].result
        assert str(turn.tool_calls[-1].tool) == "weather:forecast"
        assert {step.request.delivery for step in turn.steps} == {delivery}
        history += turn.messages


async def test_one_turn_has_another_way(chat: McpToolChat) -> None:
    chat.selection.delivery = "definitions"
    turn = await ask(chat, FIND, bridged("weather__forecast", city="Oslo"), "ok", delivery="bridge")
    assert {step.request.delivery for step in turn.steps} == {"bridge"}
    with pytest.raises(UnknownNameError):
        TurnOptions(delivery="brige")  # type: ignore[typeddict-item]


async def test_what_loaded_messages_found_is_offered_at_once(chat: McpToolChat) -> None:
    first = await ask(chat, FIND, "found")
    loaded = Conversation.from_json(Conversation([first]).to_json()).messages
    for delivery, made in (
        ("bridge", bridged("weather__forecast", city="Oslo")),
        ("definitions", call("weather__forecast", city="Oslo")),
    ):
        chat.selection.delivery = delivery  # type: ignore[assignment]
        turn = await chat.run(
            [*loaded, UserMessage(content="Go on")], TurnOptions(model=scripted_model(made, "ok"))
        )
        assert turn.tool_calls[0].status == "ok"


async def test_a_planned_call_is_that_of_the_tool(chat: McpToolChat) -> None:
    turn = await chat.run(
        [UserMessage(content="Do it")],
        TurnOptions(model=scripted_model(FIND, bridged("weather__forecast", city="Oslo"))),
        plan_only=True,
    )
    assert [str(one.tool) for one in turn.tool_calls] == ["_synthetic:search_tools"]
    (planned,) = planned_calls(turn, chat.catalog, (), chat.server_manager.worker)
    assert planned.tool is not None
    assert (str(planned.tool.tool_name), planned.arguments) == (
        "weather:forecast",
        {"city": "Oslo"},
    )
    (made,) = await run_planned(chat, [planned], TurnOptions(), 1, lambda event: None)
    assert made.result == "1 sunny in Oslo"


async def test_a_mock_answers_in_place_of_the_tool(chat: McpToolChat) -> None:
    await chat.view()
    with chat.mocks.add({"weather:forecast": "Mocked"}):
        turn = await ask(chat, FIND, bridged("weather__forecast", city="Oslo"), "ok")
    assert turn.tool_calls[1].mocked
