"""With `native` and `bridge`, each request begins with the one before, whatever happens in a
conversation.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from fastmcp import FastMCP
from kit.deferral_rules import DEFERRING
from kit.message_rules import RULES, StrictProvider
from kit.provider import answer
from kit.scripted_http import Reply
from kit.weather import desk

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import Event, PrefixChanged, ToolStarted
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.edits import MessageEdit
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.servers.server_manager import ServerManager

TOPICS = ("forecast", "history", "storms", "tides", "alerts", "snow")
MARK = ', "cache_control": {"type": "ephemeral"}'
TURNS = 7


def weather() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("weather")
    for topic in TOPICS:

        def tell(city: str, topic: str = topic) -> str:
            return f"{topic} of {city}"

        server.tool(tell, name=topic, description=f"Tell the {topic} of a city.")

    @server.tool
    def fails(city: str) -> str:
        """Tell the drought of a city."""
        raise ValueError(f"No drought in {city}")

    @server.tool
    def archive(city: str) -> str:
        """Tell everything about a city."""
        return "\n".join(f"{day} {city}" for day in range(9_000))

    @server.tool
    async def waits(city: str) -> str:
        """Wait for rain in a city."""
        await asyncio.Event().wait()
        return city

    return server


def vault() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("vault")

    @server.tool(name="open")
    def opened(city: str) -> str:
        """Nothing that is searched for."""
        return city

    return server


def rendered(provider: str, body: Mapping[str, Any]) -> list[str]:
    """The parts of a request in the order in which the provider reads them, without marks for the
    cache.
    """
    tools: Sequence[Any] = body.get("tools") or ()
    if provider == "anthropic":
        loaded = [tool for tool in tools if not tool.get("defer_loading")]
        blocks = [
            (message["role"], block) for message in body["messages"] for block in message["content"]
        ]
        parts: Sequence[Any] = [*loaded, len(loaded) < len(tools), *body.get("system", ()), *blocks]
    elif provider == "openai-responses":
        parts = [*tools, body.get("instructions"), *body["input"]]
    else:
        parts = [*tools, *body["messages"]]
    return [json.dumps(part).replace(MARK, "") for part in parts]


class Conversing:
    """A conversation in which anything can happen, chosen by a seed."""

    def __init__(
        self, seed: int, provider: str, delivery: str, server: StrictProvider, model: ChatModel
    ) -> None:
        self.chance = random.Random(seed)
        self.provider, self.delivery, self.server, self.model = provider, delivery, server, model
        self.turns: list[Turn] = []
        self.found: set[str] = set()

    async def new_chat(self) -> McpToolChat:
        selection = Selection.model_validate(
            {
                "servers": {"weather": "deferred", "vault": "deferred", "desk": "loaded"},
                "discovery": True,
                "delivery": self.delivery,
            }
        )
        manager = ServerManager(
            {}, in_process={"weather": weather(), "vault": vault(), "desk": desk()}
        )
        return McpToolChat(
            manager, ModelFactory(Config()), ChatSetup(selection=selection, system="Be brief.")
        )

    def call(self) -> tuple[str, dict[str, Any]]:
        kind = self.chance.choice(
            ["search", "search", "found", "found", "found", "loaded", "unknown", "unseen", "empty"]
        )
        city = self.chance.choice(["Oslo", "Rome", "Bergen"])
        if kind == "search":
            names = self.chance.sample((*TOPICS, "fails", "archive"), 2)
            self.found.update(names)
            return "search_tools", self.chance.choice(
                [{"tool_names": names}, {"query": " ".join(names)}]
            )
        if kind == "empty":
            return "search_tools", self.chance.choice(
                [{}, {"query": "zzz"}, {"tool_names": ["nothing"]}]
            )
        if kind == "loaded" or (kind == "found" and not self.found):
            return "desk__note", {"text": city}
        name = {"unknown": "nobody__knows", "unseen": "vault__open"}.get(kind)
        return self.using(
            name or f"weather__{self.chance.choice(sorted(self.found))}", {"city": city}
        )

    def using(self, name: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return (
            ("call_tool", {"name": name, "arguments": arguments})
            if self.delivery == "bridge"
            else (name, arguments)
        )

    def script(self, stops: bool) -> list[Reply]:
        steps: list[Any] = []
        for _ in range(self.chance.randint(0, 3)):
            steps.append([self.call() for _ in range(self.chance.choice([1, 1, 2, 3]))])
        if stops:
            steps += [
                [("search_tools", {"tool_names": ["waits"]})],
                [self.call(), self.using("weather__waits", {"city": "Oslo"})],
            ]
        texts = self.chance.choices(["", "Well."], k=len(steps))
        replies = [
            Reply(body=answer(self.provider, text, *calls))
            for text, calls in zip(texts, steps, strict=True)
        ]
        last = Reply(body=answer(self.provider, "So."))
        return [
            *replies,
            self.chance.choice(
                [last, last, last, Reply(400, {"error": {"message": "No.", "type": "x"}})]
            ),
        ]

    async def turn(self, chat: McpToolChat) -> None:
        stops = self.chance.random() < 0.2
        self.server.replies[:] = self.script(stops)
        turn = Turn(Trace())

        def on_event(event: Event) -> None:
            if stops and isinstance(event, ToolStarted) and event.tool.tool == "waits":
                asyncio.get_running_loop().call_soon(task.cancel)

        async def gate(step: int, request: Any) -> Any:
            return [MessageEdit("Edited.")] if step == 0 else None

        options = TurnOptions(model=self.model, gate=gate if self.chance.random() < 0.3 else None)
        running = chat.run(
            [UserMessage(content="Go on.")],
            options,
            history=Conversation(self.turns).messages,
            turn=turn,
            before=self.turns[-1] if self.turns else None,
            on_event=on_event,
        )
        task = asyncio.ensure_future(running)
        with suppress(asyncio.CancelledError):
            await task
        self.turns.append(turn)

    async def run(self) -> None:
        chat = await self.new_chat()
        for _ in range(TURNS):
            await self.turn(chat)
            match self.chance.choice(["", "", "refresh", "resume"]):
                case "refresh":
                    await chat.server_manager.reconnect("weather")
                case "resume":
                    await chat.close()
                    chat = await self.new_chat()
                    self.turns = list(Conversation.from_json(Conversation(self.turns).to_json()))
        await chat.close()


WAYS = [
    ("anthropic", "native", DEFERRING["anthropic"]),
    ("openai-responses", "native", DEFERRING["openai-responses-default"]),
    ("anthropic", "bridge", RULES["anthropic"]),
    ("openai-responses", "bridge", RULES["openai-responses"]),
    ("openai", "bridge", RULES["openai"]),
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("provider", "delivery", "rules"), WAYS, ids=[f"{name} {way}" for name, way, _ in WAYS]
)
async def test_each_request_of_a_conversation_begins_with_the_one_before(
    strict: Callable[..., StrictProvider],
    model_of: Callable[..., ChatModel],
    provider: str,
    delivery: str,
    rules: Any,
    seed: int,
) -> None:
    server = strict(rules, answer(provider, "So."))
    conversing = Conversing(
        seed, provider, delivery, server, model_of(server, provider, native_deferral=True)
    )
    await conversing.run()
    assert server.refusals == []
    assert {step.request.delivery for turn in conversing.turns for step in turn.steps} == {delivery}
    assert not [event for turn in conversing.turns for event in turn.trace.of(PrefixChanged)]
    sent = [rendered(provider, request.body) for request in server.seen]
    assert len(sent) > TURNS
    for number, (before, after) in enumerate(pairwise(sent)):
        where = next(
            (at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new),
            len(after),
        )
        # After a turn that failed, the next message of the person is sent as one with its message.
        *whole, last = before
        begins = after[: len(whole)] == whole and after[len(whole)].startswith(
            last.removesuffix('"}')
        )
        assert begins, f"{number}: {before[where : where + 1]}\n{after[where : where + 1]}"


def used(provider: str, name: str, own: bool) -> Any:
    """The answer that calls a tool that was found; in the tool's own namespace where the model has
    one for each.
    """
    body = answer(provider, "", (f"weather__{name}", {"city": "Oslo"}))
    if own and provider == "openai-responses":
        body["output"][0]["namespace"] = f"weather__{name}"
    return body


def breaks(provider: str, server: StrictProvider) -> int:
    """How many requests do not begin with the one before."""
    sent = [rendered(provider, request.body) for request in server.seen]
    return sum(after[: len(before)] != before for before, after in pairwise(sent))


@pytest.mark.parametrize("own", [True, False])
async def test_a_change_of_the_provider_and_back_breaks_nothing(
    strict: Callable[..., StrictProvider], model_of: Callable[..., ChatModel], own: bool
) -> None:
    names = ("anthropic", "openai-responses")
    rules = {
        "anthropic": DEFERRING["anthropic"],
        "openai-responses": DEFERRING[f"openai-responses{'' if own else '-default'}"],
    }
    servers = {name: strict(rules[name], answer(name, "So.")) for name in names}
    models = {name: model_of(servers[name], name, native_deferral=True) for name in names}
    selection = Selection.model_validate(
        {"servers": {"weather": "deferred"}, "discovery": True, "delivery": "native"}
    )
    turns: list[Turn] = []
    manager = ServerManager({}, in_process={"weather": weather(), "desk": desk()})
    async with McpToolChat(
        manager, ModelFactory(Config()), ChatSetup(selection=selection, system="Be brief.")
    ) as chat:
        # Each finds one tool, and calls it and the one that the other found.
        parts = [
            ("anthropic", "tides"),
            ("openai-responses", "storms"),
            ("anthropic", "snow"),
            ("openai-responses", "alerts"),
        ]
        before: list[str] = []
        for name, topic in parts:
            before.append(topic)
            found = [Reply(body=answer(name, "", ("search_tools", {"tool_names": [topic]})))]
            calls = [Reply(body=used(name, each, own)) for each in before]
            servers[name].replies[:] = [*found, *calls, Reply(body=answer(name, "So."))]
            history = Conversation(turns).messages
            turns.append(
                await chat.run(
                    [UserMessage(content="Go on.")],
                    TurnOptions(model=models[name], stream=False),
                    history=history,
                )
            )
            assert [call.status for call in turns[-1].tool_calls] == ["ok"] * (len(before) + 1)
    assert [(server.refusals, breaks(name, server)) for name, server in servers.items()] == [
        ([], 0),
        ([], 0),
    ]


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("provider", ["anthropic", "openai-responses"])
async def test_a_server_that_is_deferred_later_breaks_the_prefix_once(
    strict: Callable[..., StrictProvider],
    model_of: Callable[..., ChatModel],
    provider: str,
    own: bool,
) -> None:
    server = strict(
        DEFERRING[f"{provider}-default" if provider != "anthropic" and not own else provider]
    )
    model = model_of(server, provider, native_deferral=True)
    selection = Selection.model_validate(
        {"servers": {"vault": "deferred"}, "discovery": True, "delivery": "native"}
    )
    in_process = {"weather": weather(), "vault": vault(), "desk": desk()}
    turns: list[Turn] = []
    async with McpToolChat(
        ServerManager({}, in_process=in_process),
        ModelFactory(Config()),
        ChatSetup(selection=selection),
    ) as chat:
        for mode in ("loaded", "deferred", "deferred"):
            chat.selection.servers["weather"] = mode
            found = [answer(provider, "", ("search_tools", {"tool_names": ["tides", "snow"]}))] * (
                mode == "deferred"
            )
            calls = [used(provider, "tides", own and mode == "deferred")]
            server.replies[:] = [
                Reply(body=body) for body in (*found, *calls, answer(provider, "So."))
            ]
            history = Conversation(turns).messages
            turns.append(
                await chat.run(
                    [UserMessage(content="Go on.")],
                    TurnOptions(model=model, stream=False),
                    history=history,
                )
            )
            assert turns[-1].status == "done", turns[-1].error
            assert turns[-1].tool_calls[-1].status == "ok"
    assert server.refusals == []
    assert breaks(provider, server) == 1
