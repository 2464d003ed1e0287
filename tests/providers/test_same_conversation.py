"""One conversation through every provider, streamed and not: a search, a load, calls, an answer, a
question after it.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from fastmcp import FastMCP
from kit.message_rules import RULES
from kit.provider import PROVIDERS, answer
from kit.scripted_http import Reply
from kit.streams import reply, streamed

from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.discovery.search_tools import SearchToolsTool
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions

Calls = tuple[tuple[str, dict[str, Any]], ...]
SCRIPT: tuple[tuple[str, Calls], ...] = (
    ("", ((SearchToolsTool.name, {"query": "calculate an expression"}),)),
    (
        "I add.",
        (
            ("math__evaluate_expression", {"expression": "2 + 3"}),
            ("math__evaluate_expression", {"expression": "4 / 0"}),
        ),
    ),
    ("Five, and nothing.", ()),
    (
        "",
        (
            ("math__evaluate_expression", {"expression": "5 * 5"}),
            ("time__day_of_week", {"date": "2026-03-01"}),
        ),
    ),
    ("Twenty-five.", ()),
)
FORMATS = {**dict(zip(PROVIDERS, PROVIDERS, strict=True)), "litellm": "openai"}
# What a provider has its own words, numbers and ids for.
OWN = {"options", "at", "began", "response_id", "provider", "usage", "finish_reason"}
WITH_LITELLM = [
    pytest.mark.skipif(
        importlib.util.find_spec("litellm") is None, reason="litellm is not installed"
    ),
    # Its warnings are about its own types, and about connections that its own cache holds.
    *(
        pytest.mark.filterwarnings(f"ignore::{kind}Warning")
        for kind in ("User", "Deprecation", "Resource")
    ),
]
_ORDER = {
    "StepStarted": 0,
    "StepFinished": 1,
    "ToolsSearched": 2,
    "ToolStarted": 3,
    "ToolFinished": 4,
}


def script(provider: str, stream: bool) -> list[Reply]:
    wire = FORMATS[provider]
    if not stream:
        return [Reply(200, answer(wire, text, *calls)) for text, calls in SCRIPT]
    bodies = []
    for number, (text, calls) in enumerate(SCRIPT):
        made = [
            (f"c{number}_{index}", name, json.dumps(given))
            for index, (name, given) in enumerate(calls)
        ]
        bodies.append(reply(wire, streamed(wire, tuple(text), *made)))
    return bodies


async def conversation(server: Any, provider: str, stream: bool) -> Conversation:
    config = server.config(provider)
    config["servers"] = {
        "math": {"bundled": "math", "transport": "in-process", "defer_loading": True},
        "time": {"bundled": "time", "transport": "in-process"},
    }
    config["tool_discovery"] = {"enabled": True}
    options = TurnOptions(stream=stream)
    async with McpToolChat.from_config(config) as chat:
        first = await chat.run([UserMessage(content="Add 2 and 3.")], options)
        second = await chat.run([UserMessage(content="Squared?")], options, history=first.messages)
    return Conversation([first, second])


def seen_by_the_person(talk: Conversation) -> Any:
    """Collect the traces, with ids by their order, texts whole, and without the provider's own
    state.
    """
    ids: dict[str, str] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        if not isinstance(value, dict):
            return value
        made = {name: plain(item) for name, item in value.items() if name not in OWN}
        for name in ("id", "call_id", "tool_call_id"):
            if isinstance(made.get(name), str):
                made[name] = ids.setdefault(made[name], f"call {len(ids)}")
        return made

    def in_order(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        # Calls that run side by side end in any order.
        return sorted(
            events,
            key=lambda one: (
                one.get("step", -1),
                _ORDER.get(one["event"], 1),
                one.get("call_id", ""),
            ),
        )

    turns = json.loads(talk.to_json())["turns"]
    shown = [[event for event in turn["events"] if event["event"] != "TextDelta"] for turn in turns]
    return [in_order([plain(event) for event in turn]) for turn in shown]


@pytest.fixture
async def expected(serving: Callable[..., Any]) -> Any:
    return seen_by_the_person(
        await conversation(serving(*script("openai", False)), "openai", stream=False)
    )


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("provider", [*PROVIDERS, pytest.param("litellm", marks=WITH_LITELLM)])
async def test_the_same_conversation_leaves_the_same_trace(
    provider: str, stream: bool, serving: Callable[..., Any], expected: Any
) -> None:
    server = serving(*script(provider, stream))
    talk = await conversation(server, provider, stream)
    assert [(turn.status, turn.error) for turn in talk] == [("done", None), ("done", None)]
    assert [turn.answer for turn in talk] == ["Five, and nothing.", "Twenty-five."]
    assert seen_by_the_person(talk) == expected
    assert len(server.seen) == len(SCRIPT)
    assert all(request.streams is stream for request in server.seen)


def test_the_conversation_searches_loads_calls_and_fails_once(expected: Any) -> None:
    kinds = [[event["event"] for event in turn] for turn in expected]
    assert kinds[0].count("ToolsSearched") == 1
    assert [turn.count("ToolFinished") for turn in kinds] == [3, 2]
    ended = [
        event["status"] for turn in expected for event in turn if event["event"] == "ToolFinished"
    ]
    assert ended == ["ok", "ok", "error", "ok", "ok"]


SIGNED = {"reasoning_content": "I see."}
THOUGHT = {"type": "thinking", "thinking": "I see.", "signature": "c2lnbmVk"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "b3BhcXVl"}
WANTED_CALLS: Calls = (
    ("desk__plot", {"title": "tide"}),
    ("desk__silent", {}),
    ("desk__broken", {}),
    ("desk__echo", {"text": "x"}),
)


def with_its_own(provider: str) -> Any:
    """Build an answer with text, calls, and state that only this provider can read."""
    made = answer(provider, "I look.", *WANTED_CALLS)
    if provider == "openai":
        made["choices"][0]["message"] |= SIGNED
    elif provider == "anthropic":
        made["content"].insert(0, THOUGHT)
    elif provider == "openai-responses":
        made["output"].insert(0, REASONING)
    elif provider == "gemini":
        made["candidates"][0]["content"]["parts"][1]["thoughtSignature"] = "b3BhcXVl"
    else:
        made["message"]["thinking"] = "I see."
    return made


def own_in(provider: str, body: Any) -> bool:
    """Check whether a request of the same provider has the state that only it can read, in its
    place.
    """
    if provider == "openai-responses":
        return any(item.get("encrypted_content") == "b3BhcXVl" for item in body["input"])
    if provider == "gemini":
        parts = [
            part
            for content in body["contents"]
            for part in content["parts"]
            if "functionCall" in part
        ]
        return parts[0]["thoughtSignature"] == "b3BhcXVl" and not any(
            "thoughtSignature" in part for part in parts[1:4]
        )
    answers = [message for message in body["messages"] if message["role"] == "assistant"]
    if provider == "anthropic":
        return answers[0]["content"][0] == THOUGHT
    return answers[0].get("reasoning_content" if provider == "openai" else "thinking") == "I see."


@pytest.mark.defect("D1", "D2", "D4", "D6")
@pytest.mark.parametrize("second", [*PROVIDERS, pytest.param("litellm", marks=WITH_LITELLM)])
@pytest.mark.parametrize("first", PROVIDERS)
async def test_a_conversation_goes_on_with_another_provider_and_comes_back(
    first: str, second: str, strict: Callable[..., Any], desk: FastMCP
) -> None:
    @desk.tool
    def silent() -> None:
        return None

    wire = FORMATS[second]
    begun = strict(
        RULES[first], with_its_own(first), answer(first, "Tide."), answer(first, "Again.")
    )
    other = strict(RULES[second], answer(wire, "", *WANTED_CALLS), answer(wire, "Low."))
    turns: list[Turn] = []
    for provider, server in ((first, begun), (second, other), (first, begun)):
        config = server.config(provider)
        if provider == "litellm":
            config["models"]["small"]["model"] = "openai/m-1"
        saved = Conversation.from_json(Conversation(turns).to_json()).messages
        async with McpToolChat.from_config(config, in_process={"desk": desk}) as chat:
            turns.append(
                await chat.run(
                    [UserMessage(content="Look.")], TurnOptions(stream=False), history=saved
                )
            )
    assert [(turn.status, turn.answer) for turn in turns] == [
        ("done", "Tide."),
        ("done", "Low."),
        ("done", "Again."),
    ]
    assert begun.refusals == other.refusals == []
    assert all(own_in(first, request.body) for request in begun.seen[1:])
    if second != first:
        sent = json.dumps([request.body for request in other.seen])
        assert "I see." not in sent
        assert "b3BhcXVl" not in sent
