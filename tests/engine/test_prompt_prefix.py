"""The part of each request that repeats the one before, and the event that names the cause where it
ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from fastmcp import FastMCP
from kit.weather import desk, weather

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.tokens import message_tokens
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import READ_RESULT, Request
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.prefix import PromptPrefix
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.servers.server_manager import ServerManager

SEARCH = "search_tools"


def growing_desk() -> FastMCP[Any]:
    server = desk()

    @server.tool
    def archive() -> str:
        """Read the archive."""
        return "word " * 40_000

    @server.tool
    def grow() -> str:
        """Offer another tool."""
        server.tool(lambda: "later", name="later", description="Added later.")
        return "Grown."

    return server


@pytest.fixture
async def chat() -> AsyncIterator[McpToolChat]:
    selection = Selection.model_validate(
        {"servers": {"weather": "deferred", "desk": "loaded"}, "discovery": True}
    )
    server_manager = ServerManager(
        {}, in_process={"weather": weather(), "desk": growing_desk()}, cache_ttl=0
    )
    async with McpToolChat(
        server_manager, ModelFactory(Config()), ChatSetup(selection=selection, system="Be brief.")
    ) as chat:
        yield chat


async def ask(chat: McpToolChat, *answers: Any, after: Sequence[Turn] = (), **options: Any) -> Turn:
    """Run the next turn of a conversation."""
    model = options.pop("model", None) or scripted_model(*answers)
    asked, before = [UserMessage(content=f"Do {len(after)}")], after[-1] if after else None
    history = Conversation(after).messages
    return await chat.run(
        asked, TurnOptions(model=model, **options), history=history, before=before
    )


def causes(turn: Turn) -> list[str]:
    return [change.cause for change in turn.prefix_changes]


async def test_each_step_repeats_the_whole_request_before_it(chat: McpToolChat) -> None:
    turn = await ask(
        chat,
        call("desk__note", text="a"),
        calls(call("desk__note", text="b"), call("desk__note", text="c")),
        "Done.",
    )
    requests = [step.request for step in turn.steps]
    assert requests[0].reused is None
    assert [request.reused for request in requests[1:]] == [
        request.tokens.total for request in requests[:2]
    ]
    assert [request.reused_messages for request in requests] == [0, 2, 4]
    assert causes(turn) == []
    assert turn.stats.reused_tokens == sum(request.tokens.total for request in requests[:2])


async def test_it_counts_over_turns_and_after_saving(chat: McpToolChat) -> None:
    first = await ask(chat, call("desk__note", text="a"), "Done.")
    saved = Conversation.from_json(Conversation([first]).to_json())[0]
    for before in (first, saved):
        request = (await ask(chat, "Again.", after=[before])).steps[0].request
        assert (request.reused, request.reused_messages) == (first.steps[1].request.tokens.total, 4)


async def test_a_search_that_adds_definitions_breaks_everything_behind_the_tools(
    chat: McpToolChat,
) -> None:
    turn = await ask(
        chat,
        call(SEARCH, query="weather forecast"),
        call("weather__forecast", city="Oslo"),
        "Sunny.",
    )
    before, after = (step.request for step in turn.steps[:2])
    assert (after.reused_tools, after.reused_messages) == (len(before.tools), 0)
    assert after.reused == before.tokens.definitions
    (change,) = turn.prefix_changes
    assert (change.step, change.cause) == (1, "found")
    assert set(change.names) == {tool["name"] for tool in after.tools} - {
        tool["name"] for tool in before.tools
    }
    assert (change.kept, change.lost) == (after.reused, before.tokens.total - after.reused)
    # From there on it stands again, also in the next turn, which offers what was found.
    assert turn.steps[2].request.reused == after.tokens.total
    later = await ask(chat, "Yes.", after=[turn])
    assert (causes(later), later.steps[0].request.reused) == (
        [],
        turn.steps[2].request.tokens.total,
    )


async def test_the_event_says_what_changed(chat: McpToolChat) -> None:
    turns = [await ask(chat, call(SEARCH, query="weather forecast"), "Found.")]
    turns.append(await ask(chat, call("desk__archive"), "Long.", after=turns))
    assert [(change.cause, change.names) for change in turns[-1].prefix_changes] == [
        ("large_result", (READ_RESULT,))
    ]
    turns.append(await ask(chat, "Hi.", after=turns, system="Be long."))
    assert causes(turns[-1]) == ["system"]
    assert turns[-1].steps[0].request.reused == turns[-1].steps[0].request.tokens.definitions
    chat.selection.servers["weather"] = "off"
    turns.append(await ask(chat, "Hi.", after=turns, system="Be long."))
    assert causes(turns[-1]) == ["selection"]
    model = scripted_model("Hi.", name="another")
    turns.append(await ask(chat, model=model, after=turns, system="Be long."))
    assert (causes(turns[-1]), turns[-1].steps[0].request.reused) == (["model"], 0)


async def test_a_model_under_another_name_is_the_same_model(chat: McpToolChat) -> None:
    first = await ask(chat, "Hi.")
    renamed = scripted_model("Hi.")
    renamed.name = "scripted:scripted"
    second = await ask(chat, model=renamed, after=[first])
    third = await ask(chat, "Hi.", after=[first, second])
    assert [causes(second), causes(third)] == [[], []]


async def test_tools_of_servers_that_change_are_named(chat: McpToolChat) -> None:
    turn = await ask(chat, call("desk__grow"), "Done.")
    (change,) = turn.prefix_changes
    assert (change.cause, change.names) == ("tools", ("desk__later",))


async def test_what_is_trimmed_is_lost_and_only_the_tools_and_the_system_prompt_stand(
    chat: McpToolChat,
) -> None:
    model = scripted_model(*["word " * 400] * 3)
    model.context_window = 1_000
    turns: list[Turn] = []
    for _ in range(3):
        turns.append(await ask(chat, model=model, after=turns))
    request = turns[-1].steps[0].request
    assert request.left_out > 0
    assert causes(turns[-1]) == ["trimmed"]
    assert request.reused == request.tokens.definitions + request.tokens.system
    assert request.reused_messages == 1


async def test_another_conversation_is_not_compared(chat: McpToolChat) -> None:
    await chat.chat("One", model=scripted_model("1"))
    await chat.chat("Two", model=scripted_model("2"))
    assert chat.state.last_turn is not None
    assert chat.state.last_turn.steps[0].request.reused is None
    answered = await chat.chat("Three", model=scripted_model("3"))
    await chat.chat(
        [UserMessage(content="Three"), *answered, UserMessage(content="Four")],
        model=scripted_model("4"),
    )
    assert chat.state.last_turn.steps[0].request.reused is not None
    assert causes(chat.state.last_turn) == []


async def test_a_found_tool_that_changes_breaks_native_delivery_at_its_search(
    chat: McpToolChat,
) -> None:
    turn = await ask(
        chat, call("desk__note", text="a"), call(SEARCH, query="weather forecast"), "Found."
    )
    tool = {"name": "weather__forecast", "description": "Forecast.", "parameters": {}}
    request = turn.steps[2].request
    sent = replace(request, tools=request.tools[:4], delivery="native", found=(tool,))

    def compared(next_request: Request) -> Request:
        def tokens(count: int) -> int:
            return sum(map(message_tokens, next_request.messages[:count]))

        return PromptPrefix(sent).compared(
            next_request, lambda definitions: 100 * len(definitions), tokens
        )

    assert compared(sent).reused_messages == len(sent.messages)
    more = replace(sent, found=(tool, {**tool, "name": "weather__history"}))
    assert compared(more).reused_messages == len(sent.messages)
    # What the provider adds behind a new search is new.
    assert (compared(sent).reused or 0) - (compared(more).reused or 0) == 100
    assert (
        compared(replace(sent, found=({**tool, "description": "Another."},))).reused_messages
        == len(sent.messages) - 1
    )
    assert compared(replace(sent, delivery="definitions", found=())).reused_tools == 0
