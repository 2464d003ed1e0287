"""Tools that the provider adds to the conversation: the engine's requests, records and counts, and
refusals.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from fastmcp import FastMCP

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import Request
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.discovery.manifest import brief_spec
from casual_mcp_nb.discovery.synthetic import SyntheticToolResult
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.run import Run
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.engine.window import ContextWindow
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb.servers.server_manager import ServerManager

SEARCH = "search_tools"


def weather() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("weather")
    for topic in ("forecast", "history", "storms"):

        def tell(city: str, topic: str = topic) -> str:
            return f"{topic} of {city}"

        server.tool(tell, name=topic, description=f"Tell the {topic} of a city.")
    return server


@pytest.fixture
async def chat() -> AsyncIterator[McpToolChat]:
    selection = Selection.model_validate(
        {"servers": {"weather": "deferred"}, "discovery": True, "delivery": "native"}
    )
    manager = ServerManager({}, in_process={"weather": weather()})
    async with McpToolChat(manager, ModelFactory(Config()), ChatSetup(selection=selection)) as chat:
        yield chat


class Deferring(ChatModel):
    """A scripted model of a provider that loads deferred tools itself, and records the definitions
    it receives.
    """

    defers_natively = True  # type: ignore[assignment]
    given: list[list[str] | None]

    async def complete(
        self, messages: Any, tools: Any = (), *, found_tools: Any = None, **more: Any
    ) -> Any:
        self.given.append(None if found_tools is None else [tool["name"] for tool in found_tools])
        return await super().complete(messages, tools, **more)


def deferring(*answers: Any) -> Deferring:
    model = scripted_model(*answers)
    model.__class__ = Deferring
    assert isinstance(model, Deferring)
    model.given = []
    return model


def find(*names: str) -> Any:
    return call(SEARCH, tool_names=[f"weather:{name}" for name in names])


async def ask(chat: McpToolChat, model: ChatModel, history: Any = ()) -> Turn:
    return await chat.run([UserMessage(content="Do it")], TurnOptions(model=model), history=history)


def names(request: Request) -> tuple[list[str], list[str]]:
    return [tool["name"] for tool in request.tools], [tool["name"] for tool in request.found]


async def test_what_was_found_is_passed_on_recorded_and_counted(chat: McpToolChat) -> None:
    model = deferring(
        find("forecast"), call("weather__forecast", city="Oslo"), find("storms"), "ok"
    )
    turn = await ask(chat, model)
    steps = [names(step.request) for step in turn.steps]
    assert {tuple(tools) for tools, _ in steps} == {(SEARCH, "read_result")}
    expected = [
        [],
        ["weather__forecast"],
        ["weather__forecast"],
        ["weather__forecast", "weather__storms"],
    ]
    assert [found for _, found in steps] == expected
    assert model.given == expected
    assert turn.tool_calls[1].result == "forecast of Oslo"
    # The provider adds the definition, so the result is short.
    assert "## weather__forecast" in turn.tool_calls[0].result
    assert "Parameters" not in turn.tool_calls[0].result
    sizes = [event.request.tokens.tools for event in turn.steps]
    assert sizes[1] - sizes[0] == brief_spec(chat.catalog.resolve("weather:forecast")).tokens
    assert turn.steps[1].diff().tools_added == ("weather__forecast",)
    saved = Conversation.from_json(Conversation([turn]).to_json())[0]
    assert [names(step.request) for step in saved.steps] == steps
    assert [step.request.delivery for step in saved.steps] == ["native"] * 4


@pytest.mark.parametrize("setting", ["auto", "native"])
async def test_a_refusal_falls_back_once_and_is_remembered(chat: McpToolChat, setting: Any) -> None:
    chat.selection.delivery = setting
    model = scripted_model(
        find("forecast"), call("weather__forecast", city="Oslo"), "ok", find("storms"), "ok"
    )
    if setting == "auto":
        assert not model.defers_natively
    turn = await ask(chat, model)
    assert turn.status == "done"
    assert turn.tool_calls[-1].result == "forecast of Oslo"
    assert [step.request.delivery for step in turn.steps] == ["native"] * (setting == "native") + [
        "definitions"
    ] * 3
    assert len([notice for notice in turn.notices if "deferred" in notice.text]) == (
        setting == "native"
    )
    again = await ask(chat, model, turn.messages)
    assert [step.request.delivery for step in again.steps] == ["definitions"] * 2
    assert not again.notices
    assert "weather__forecast" in names(again.steps[0].request)[0]


async def test_a_refusal_of_native_deferral_uses_up_no_step(chat: McpToolChat) -> None:
    options = TurnOptions(model=scripted_model("ok"), max_steps=1)
    turn = await chat.run([UserMessage(content="Do it")], options)
    assert turn.status == "done"
    assert [step.request.delivery for step in turn.steps] == ["native", "definitions"]


async def test_a_forced_tool_is_still_forced_after_a_refusal(chat: McpToolChat) -> None:
    options = TurnOptions(model=scripted_model(find("forecast"), "ok"), tool_choice=SEARCH)
    turn = await chat.run([UserMessage(content="Do it")], options)
    assert [step.request.options.get("tool_choice") for step in turn.steps] == [
        SEARCH,
        SEARCH,
        "auto",
    ]


async def test_auto_is_native_where_the_model_is_known_to_support_it(chat: McpToolChat) -> None:
    chat.selection.delivery = "auto"
    assert {step.request.delivery for step in (await ask(chat, deferring("ok"))).steps} == {
        "native"
    }
    chat.selection.discovery = False
    assert {step.request.delivery for step in (await ask(chat, deferring("ok"))).steps} == {
        "definitions"
    }


async def test_what_was_unloaded_stays_known_to_the_provider_and_is_refused(
    chat: McpToolChat,
) -> None:
    chat.selection.strategy = "browse"
    load, unload = (
        call(name, names=["weather:forecast"]) for name in ("load_tools", "unload_tools")
    )
    use = call("weather__forecast", city="Oslo")
    turn = await ask(chat, deferring(load, unload, use, load, use, "ok"))
    assert [names(step.request)[1] for step in turn.steps] == [[], *[["weather__forecast"]] * 5]
    assert [made.status for made in turn.tool_calls] == ["ok", "ok", "error", "ok", "ok"]


async def test_what_an_own_tool_loads_is_defined_with_the_others(chat: McpToolChat) -> None:
    class Finder:
        name = "finder"

        @property
        def definition(self) -> dict[str, Any]:
            return {
                "name": "finder",
                "description": "Find.",
                "parameters": {"type": "object", "properties": {}},
            }

        async def execute(self, args: Any) -> SyntheticToolResult:
            return SyntheticToolResult("Here.", [chat.catalog.resolve("weather:forecast")])

    chat.add_synthetic_tool(Finder())
    turn = await ask(
        chat,
        deferring(
            call("finder"), find("forecast", "storms"), call("weather__forecast", city="Oslo"), "ok"
        ),
    )
    assert [one.status for one in turn.tool_calls] == ["ok"] * 3
    tools, found = names(turn.steps[-1].request)
    assert "weather__forecast" in tools
    assert found == ["weather__storms"]


async def test_what_a_trimmed_conversation_no_longer_presents_is_defined(chat: McpToolChat) -> None:
    first = await ask(chat, deferring(find("forecast"), "ok"))
    run: Run | None = None

    async def gate(step: int, request: Request) -> None:
        nonlocal run
        (run,) = chat.state.running

    options = TurnOptions(model=deferring(find("storms"), "ok"), gate=gate)
    await chat.run([UserMessage(content="Do it")], options, history=first.messages)
    assert isinstance(run, Run)
    assert names(run.request())[1] == ["weather__forecast", "weather__storms"]
    run.window = ContextWindow(window=run.request().tokens.total - 1)
    request = run.request()
    assert request.left_out == len(first.messages)
    assert names(request) == ([SEARCH, "read_result", "weather__forecast"], ["weather__storms"])
