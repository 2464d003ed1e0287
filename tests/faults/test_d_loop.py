"""Faults 53 to 57: what a model can do wrong in a turn, through a server that plays the
provider.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    UserMessage,
)
from kit.history import assert_valid
from kit.message_rules import GEMINI
from kit.provider import PROVIDERS, Provider, answer
from kit.raw_server import OK
from kit.turns import ask

from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import MaxIterationsError
from casual_mcp_nb.providers.scripted import call

Raw = Callable[..., dict[str, Any]]
Opened = Callable[..., Any]


def asked_for(*made: tuple[str, str, str]) -> AssistantMessage:
    """An answer with calls: id, name, arguments as text."""
    functions = [
        (id, AssistantToolCallFunction(name=name, arguments=text)) for id, name, text in made
    ]
    return AssistantMessage(
        content="",
        tool_calls=[AssistantToolCall(id=id, function=function) for id, function in functions],
    )


async def replayed(provider: str, server: Any, history: list[Any]) -> Any:
    """The body of the request that goes on with a conversation."""
    with Provider(answer(provider, "fine")) as fake:
        async with McpToolChat.from_config(
            fake.config(provider) | {"servers": {"desk": server}}
        ) as chat:
            turn = await chat.run([UserMessage(content="Go on")], TurnOptions(), history=history)
        assert turn.status == "done"
        return fake.seen[-1].body


def as_messages(items: list[Any]) -> list[dict[str, Any]]:
    """The items of a request of the Responses API in the form of messages."""
    messages: list[dict[str, Any]] = []
    for item in items:
        if item.get("type") == "function_call_output":
            messages.append(
                {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
            )
        elif item.get("type") != "function_call":
            messages.append(item)
        elif messages and messages[-1]["role"] == "assistant":
            messages[-1].setdefault("tool_calls", []).append({"id": item["call_id"]})
        else:
            messages.append({"role": "assistant", "tool_calls": [{"id": item["call_id"]}]})
    return messages


def assert_valid_body(provider: str, body: Any) -> None:
    """A request is in the provider's own format a valid conversation: each call has its result,
    right after it.
    """
    if provider == "gemini":
        assert [rule(body) for rule in GEMINI] == [None, None, None]
        return
    waiting: list[str] = []
    for message in body["messages"] if "messages" in body else as_messages(body["input"]):
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if message["role"] == "tool":
            results = [message.get("tool_call_id") or message.get("tool_name") or waiting[0]]
        if results and provider != "ollama":
            assert results == waiting[: len(results)]
        waiting = waiting[len(results) :]
        if not results:
            assert waiting == []
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        calls += [
            one.get("id") or str(number)
            for number, one in enumerate(message.get("tool_calls") or ())
        ]
        assert all(calls)
        assert len(set(calls)) == len(calls)
        waiting += calls
        assert content or calls, "an empty message"
    assert waiting == []


BROKEN = {
    "cut": '{"a": 1',
    "list": "[1, 2]",
    "text": '"a"',
    "number": "7",
    "no JSON": "a=1",
    "nested": "[" * 5_000,
}


@pytest.mark.fault(53)
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_broken_arguments_are_an_error_the_other_calls_run_and_all_can_be_replayed(
    opened: Opened, raw: Raw, provider: str
) -> None:
    server = raw(calls={"a": OK})
    chat = await opened({"desk": server})
    broken = [(name, "desk__a", text) for name, text in BROKEN.items()]
    message = asked_for(
        *broken,
        ("empty", "desk__a", ""),
        ("null", "desk__a", "null"),
        ("good", "desk__a", '{"x": 1}'),
    )
    turn = await ask(chat, message, "done")
    assert [c.status for c in turn.tool_calls] == ["error"] * len(BROKEN) + ["ok"] * 3
    for one in turn.tool_calls[: len(BROKEN)]:
        assert "not a JSON object" in one.result
        assert len(one.result) < 1_000
    assert_valid(turn.messages)
    assert_valid_body(provider, await replayed(provider, server, turn.messages))


@pytest.mark.fault(53)
async def test_a_provider_that_sends_broken_arguments_gets_an_error_back(raw: Raw) -> None:
    first = answer("openai", "", ("desk__a", {}), ("desk__a", {}), ("desk__a", {}))
    for made, text in zip(
        first["choices"][0]["message"]["tool_calls"], ('{"a": ', "", "null"), strict=True
    ):
        made["function"]["arguments"] = text
    with Provider(first, answer("openai", "done")) as fake:
        async with McpToolChat.from_config(
            fake.config("openai") | {"servers": {"desk": raw(calls={"a": OK})}}
        ) as chat:
            turn = await chat.run([UserMessage(content="Do it")])
        body = fake.seen[-1].body
    assert [c.status for c in turn.tool_calls] == ["error", "ok", "ok"]
    assert_valid_body("openai", body)


@pytest.mark.fault(54)
async def test_an_unknown_tool_is_answered_with_close_matches_and_its_sibling_runs(
    opened: Opened, raw: Raw
) -> None:
    chat = await opened({"weather": raw(calls={"forecast": OK, "history": OK})})
    names = ("weather__forcast", "forecasts", "", "x" * 100_000, "<script>")
    message = asked_for(
        *((str(number), name, "{}") for number, name in enumerate(names)),
        ("9", "weather__history", "{}"),
    )
    turn = await ask(chat, message, "done")
    assert [c.status for c in turn.tool_calls] == ["error"] * len(names) + ["ok"]
    assert "Did you mean 'weather__forecast'" in turn.tool_calls[0].result
    assert "weather__forecast" in turn.tool_calls[1].result
    assert all(len(c.result) < 1_000 for c in turn.tool_calls)
    assert turn.stats.tool_calls.by_server == {"_unknown": len(names), "weather": 1}
    assert_valid(turn.messages)


@pytest.mark.fault(55)
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_double_and_empty_ids_are_made_unique_and_the_conversation_can_be_replayed(
    opened: Opened, raw: Raw, provider: str
) -> None:
    server = raw(calls={"a": {"answer": "running"}, "b": OK})
    chat = await opened({"desk": server})
    first = asked_for(
        ("x", "desk__a", "{}"), ("x", "desk__b", "{}"), ("", "desk__a", "{}"), ("", "desk__b", "{}")
    )
    again = asked_for(("x", "desk__b", "{}"), ("x_2", "desk__b", "{}"), ("call_3", "desk__b", "{}"))
    turn = await ask(chat, first, again, "done")
    second = await ask(chat, again, "done", history=turn.messages)
    history = [*turn.messages, *second.messages]
    assert_valid(history)
    assert [m.name for m in history if m.role == "tool"] == [
        "desk__a",
        "desk__b",
        "desk__a",
        "desk__b",
        *["desk__b"] * 6,
    ]
    for made, result in zip(
        (one for m in history for one in getattr(m, "tool_calls", None) or ()),
        (m for m in history if m.role == "tool"),
        strict=True,
    ):
        assert (made.id, made.function.name) == (result.tool_call_id, result.name)
    assert_valid_body(provider, await replayed(provider, server, history))


@pytest.mark.fault(56)
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_empty_answer_ends_the_turn_and_the_conversation_can_be_replayed(
    raw: Raw, provider: str
) -> None:
    server = raw(calls={"a": OK})
    replies = (
        answer(provider, "", ("desk__a", {})),
        answer(provider, ""),
        answer(provider, "fine"),
    )
    with Provider(*replies) as fake:
        async with McpToolChat.from_config(
            fake.config(provider) | {"servers": {"desk": server}}
        ) as chat:
            turn = await chat.run([UserMessage(content="Do it")])
            after = await chat.run([UserMessage(content="Go on")], history=turn.messages)
        body = fake.seen[-1].body
    assert turn.status == "done"
    assert turn.answer == ""
    (notice,) = turn.notices
    assert "empty" in notice.text
    assert [message.role for message in turn.messages] == ["user", "assistant", "tool"]
    assert after.answer == "fine"
    assert_valid_body(provider, body)


@pytest.mark.fault(57)
async def test_a_model_that_never_stops_ends_at_the_limit_and_the_user_can_go_on(
    opened: Opened, raw: Raw
) -> None:
    chat = await opened({"desk": raw(calls={"a": OK})})
    turn = await ask(chat, *(call("desk__a", number=number) for number in range(20)), max_steps=7)
    assert turn.status == "failed"
    assert "7 steps" in str(turn.error)
    assert "max_steps" in str(turn.error)
    assert [c.arguments for c in turn.tool_calls] == [{"number": number} for number in range(7)]
    assert_valid(turn.messages)
    with pytest.raises(MaxIterationsError):
        turn.raise_for_status()
    after: Turn = await ask(chat, call("desk__a"), "done", history=turn.messages)
    assert after.status == "done"
    assert_valid([*turn.messages, *after.messages])


@pytest.mark.fault(57)
async def test_chat_raises_at_the_limit_of_the_environment_and_the_rounds_are_in_the_stats(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_MAX_CHAT_ITERATIONS", "3")
    with Provider(answer("openai", "", ("desk__a", {}))) as fake:
        async with McpToolChat.from_config(
            fake.config("openai") | {"servers": {"desk": raw(calls={"a": OK})}}
        ) as chat:
            with pytest.raises(MaxIterationsError):
                await chat.chat("Do it")
            stats = chat.get_stats()
        assert len(fake.seen) == 3
        assert json.dumps(fake.seen[-1].body).count('"role": "tool"') == 2
    assert stats is not None
    assert stats.tool_calls.total == 3
