"""Marks for Anthropic's prompt cache, and the cached tokens that providers report."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    SystemMessage,
    ToolResultMessage,
    UserMessage,
)
from kit.provider import PROVIDERS, Provider, answer
from kit.scripted_http import Reply
from kit.weather import desk

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.tokens import CacheMiss
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.limits import RequestAdapted
from casual_mcp_nb.servers.server_manager import ServerManager

MARK = {"type": "ephemeral"}
TOOLS = [
    {"name": name, "description": "x", "parameters": {"type": "object"}} for name in ("a", "b")
]


def call(name: str) -> AssistantToolCall:
    return AssistantToolCall(id=name, function=AssistantToolCallFunction(name=name, arguments="{}"))


HISTORY = [
    SystemMessage(content="Be kind."),
    UserMessage(content="Go."),
    AssistantMessage(content="", tool_calls=[call("a"), call("b")]),
    ToolResultMessage(name="a", tool_call_id="a", content="1"),
    ToolResultMessage(name="b", tool_call_id="b", content="2"),
]


async def sent(
    server: Provider, model: ChatModel, messages: list[Any], tools: list[Any] = TOOLS
) -> Any:
    await model.complete(messages, tools)
    return server.seen[-1].body


async def test_the_ends_of_tools_system_conversation_and_of_the_request_before_are_marked(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel]
) -> None:
    server = loopback(answer("anthropic", "Hi."))
    body = await sent(server, model_of(server, "anthropic"), HISTORY)
    assert [tool.get("cache_control") for tool in body["tools"]] == [None, MARK]
    assert [block.get("cache_control") for block in body["system"]] == [MARK]
    blocks = [block for message in body["messages"] for block in message["content"]]
    assert [block.get("cache_control") for block in blocks] == [
        MARK,
        *[None] * (len(blocks) - 2),
        MARK,
    ]
    assert json.dumps(body).count("cache_control") == 4


async def test_after_many_parallel_calls_the_cache_is_still_read(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel]
) -> None:
    """The cache looks back 20 blocks from a mark for what an earlier request wrote at its own
    marks.
    """
    server = loopback(answer("anthropic", "Hi."))
    model = model_of(server, "anthropic")
    history: list[Any] = list(HISTORY)
    written: set[int] = set()
    for number in range(4):
        body = await sent(server, model, history)
        marks = [index for index, block in enumerate(blocks_of(body)) if "cache_control" in block]
        assert not number or any(set(range(mark - 19, mark + 1)) & written for mark in marks)
        assert json.dumps(body).count("cache_control") <= 4
        written.update(marks)
        calls = [call(f"{number}_{index}") for index in range(24)]
        results = [
            ToolResultMessage(name=each.id, tool_call_id=each.id, content="1") for each in calls
        ]
        history += [AssistantMessage(content="", tool_calls=calls), *results]


def blocks_of(body: Any) -> list[Any]:
    return [block for message in body["messages"] for block in message["content"]]


async def test_a_server_that_refuses_the_marks_is_asked_without(
    serving: Callable[..., Provider], model_of: Callable[..., ChatModel]
) -> None:
    refusal = {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "cache_control: Extra inputs are not permitted",
        },
    }
    server = serving(Reply(400, refusal), answer("anthropic", "Hi."))
    model = model_of(server, "anthropic")
    notices: list[Any] = []
    assert (
        await model.complete(HISTORY, TOOLS, on_event=notices.append, stream=False)
    ).message.content == "Hi."
    await model.complete(HISTORY, TOOLS)
    assert ["cache_control" in json.dumps(request.body) for request in server.seen] == [
        True,
        False,
        False,
    ]
    assert [type(notice) for notice in notices] == [RequestAdapted]


async def test_what_is_not_sent_is_not_marked(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel]
) -> None:
    server = loopback(answer("anthropic", "Hi."))
    body = await sent(server, model_of(server, "anthropic"), [UserMessage(content="Go.")], [])
    assert json.dumps(body).count("cache_control") == 1


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_nothing_is_marked_where_the_config_says_so_and_never_for_others(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel], provider: str
) -> None:
    server = loopback(answer(provider, "Hi."))
    body = await sent(
        server, model_of(server, provider, prompt_caching=provider != "anthropic"), HISTORY
    )
    assert "cache_control" not in json.dumps(body)


async def test_tokens_from_the_cache_are_a_part_of_the_request(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel]
) -> None:
    body = answer("anthropic", "Hi.")
    body["usage"] |= {"cache_read_input_tokens": 1_000, "cache_creation_input_tokens": 200}
    server = loopback(body)
    usage = (await model_of(server, "anthropic").complete(HISTORY)).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens) == (
        1_230,
        1_000,
        200,
    )


@pytest.mark.parametrize(
    ("reported", "prompt", "cached"),
    [
        ({"input_tokens": "30", "cache_read_input_tokens": "10"}, 40, 10),
        ({"input_tokens": "many", "cache_read_input_tokens": 10}, None, 10),
        ({"input_tokens": 30, "cache_read_input_tokens": "many"}, 30, None),
        ({"input_tokens": -1.0, "cache_read_input_tokens": -1.0}, None, None),
    ],
)
async def test_counts_of_a_compatible_server_that_are_no_numbers_cost_no_answer(
    loopback: Callable[..., Provider],
    model_of: Callable[..., ChatModel],
    reported: dict[str, Any],
    prompt: int | None,
    cached: int | None,
) -> None:
    body = answer("anthropic", "Hi.")
    body["usage"] |= reported
    response = await model_of(loopback(body), "anthropic").complete(HISTORY)
    assert response.usage is not None
    assert (response.usage.prompt_tokens, response.usage.cached_tokens) == (prompt, cached)


@pytest.mark.parametrize("provider", ["openai", "openai-responses"])
async def test_tokens_that_openai_writes_to_its_cache_are_counted(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel], provider: str
) -> None:
    body = answer(provider, "Hi.")
    details = "prompt_tokens_details" if provider == "openai" else "input_tokens_details"
    body["usage"][details] = {"cached_tokens": 10, "cache_write_tokens": 20}
    server = loopback(body)
    usage = (await model_of(server, provider).complete(HISTORY)).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens) == (30, 10, 20)


ASKS = {"cache_diagnostics": True}


async def test_anthropic_is_asked_why_its_cache_was_missed_from_the_first_request_on(
    serving: Callable[..., Provider], model_of: Callable[..., ChatModel]
) -> None:
    missed = answer("anthropic", "Hi.")
    missed["diagnostics"] = {
        "cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 900}
    }
    server = serving(
        {**answer("anthropic", "Hi."), "id": "msg_1"}, missed, answer("anthropic", "Hi.")
    )
    model = model_of(server, "anthropic", **ASKS)
    first = await model.complete(HISTORY, TOOLS)
    second = await model.complete(HISTORY, TOOLS, before=first.response_id)
    assert [request.body["diagnostics"] for request in server.seen] == [
        {"previous_message_id": None},
        {"previous_message_id": "msg_1"},
    ]
    assert first.usage is not None
    assert second.usage is not None
    assert (first.usage.cache_miss, second.usage.cache_miss) == (
        None,
        CacheMiss("tools_changed", 900),
    )


async def test_openai_compares_with_the_response_before_from_gpt_5_6_on(
    serving: Callable[..., Provider], factory_for: Callable[..., ModelFactory]
) -> None:
    missed = answer("openai-responses", "Hi.")
    missed["prompt_cache_diagnostics"] = {
        "type": "cache_miss",
        "reason": "tools_changed",
        "cache_missed_tokens": 900,
    }
    hit = {**answer("openai-responses", "Hi."), "prompt_cache_diagnostics": {"type": "cache_hit"}}
    server = serving(missed, hit)
    config = server.config("openai-responses", **ASKS)
    usages = []
    for name, before in (
        ("gpt-5.6", "resp_1"),
        ("gpt-5.6-mini", "resp_1"),
        ("gpt-5.6", None),
        ("gpt-5.5", "resp_1"),
        ("m-1", "resp_1"),
    ):
        config["models"]["small"]["model"] = name
        model = factory_for(Config.model_validate(config)).chat_model()
        answered = await model.complete(HISTORY, TOOLS, before=before)
        assert answered.response_id == "resp_1"
        usages.append(answered.usage)
    compared = [request.body.get("prompt_cache_options") for request in server.seen]
    assert compared == [{"comparison_response_id": "resp_1"}] * 2 + [None] * 3
    assert [usage.cache_miss for usage in usages if usage] == [
        CacheMiss("tools_changed", 900),
        *[None] * 4,
    ]


async def test_steps_turns_and_saved_conversations_are_compared_with_the_response_before(
    serving: Callable[..., Provider], factory_for: Callable[..., ModelFactory]
) -> None:
    called = answer("anthropic", "", ("nothing", {}))
    replies = [
        {**called, "id": "msg_1"},
        *({**answer("anthropic", "Hi."), "id": f"msg_{number}"} for number in (2, 3, 4)),
    ]
    server = serving(*replies)
    factory = factory_for(Config.model_validate(server.config("anthropic", **ASKS)))
    async with McpToolChat(ServerManager({}), factory) as chat:
        turns: list[Turn] = []
        for number in range(3):
            history = Conversation(turns).messages
            before = turns[-1] if turns else None
            turn = await chat.run(
                [UserMessage(content=f"Go {number}.")],
                TurnOptions(stream=False),
                history=history,
                before=before,
            )
            turns = list(Conversation.from_json(Conversation([*turns, turn]).to_json()))
    compared = [request.body["diagnostics"]["previous_message_id"] for request in server.seen]
    assert compared == [None, "msg_1", "msg_2", "msg_3"]


async def test_nobody_else_is_asked_and_a_server_that_refuses_is_asked_without(
    serving: Callable[..., Provider], model_of: Callable[..., ChatModel]
) -> None:
    refusal = {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "diagnostics: Extra inputs are not permitted",
        },
    }
    server = serving(answer("anthropic", "Hi."), Reply(400, refusal), answer("anthropic", "Hi."))
    await model_of(server, "anthropic").complete(HISTORY, TOOLS)
    model = model_of(server, "anthropic", **ASKS)
    await model.complete(HISTORY, TOOLS)
    await model.complete(HISTORY, TOOLS)
    assert ["diagnostics" in request.body for request in server.seen] == [False, True, False, False]


@pytest.mark.parametrize(
    "diagnosis",
    [{"cache_miss_reason": {"type": "<b>x</b>"}}, {"cache_miss_reason": {"type": 3}}, {}, [], "x"],
)
async def test_what_a_gateway_says_of_its_cache_is_a_word_or_nothing(
    loopback: Callable[..., Provider], model_of: Callable[..., ChatModel], diagnosis: Any
) -> None:
    server = loopback({**answer("anthropic", "Hi."), "id": "x" * 1_000, "diagnostics": diagnosis})
    answered = await model_of(server, "anthropic", **ASKS).complete(HISTORY, TOOLS)
    assert answered.usage is not None
    assert (answered.usage.cache_miss, answered.response_id) == (None, None)


@pytest.mark.parametrize(("provider", "causes"), [("anthropic", ["options"]), ("openai", [])])
async def test_a_forced_tool_loses_cached_messages_only_where_it_precedes_them(
    serving: Callable[..., Provider],
    factory_for: Callable[..., ModelFactory],
    provider: str,
    causes: list[str],
) -> None:
    server = serving(
        answer(provider, "", ("desk__note", {"text": "a"})), *[answer(provider, "Hi.")] * 2
    )
    factory = factory_for(Config.model_validate(server.config(provider)))
    async with McpToolChat(
        ServerManager({}, in_process={"desk": desk()}), factory, ChatSetup(system="Be kind.")
    ) as chat:
        turn = await chat.run(
            [UserMessage(content="Go.")], TurnOptions(stream=False, tool_choice="required")
        )
        history = Conversation([turn]).messages
        after = await chat.run(
            [UserMessage(content="And?")], TurnOptions(stream=False), history=history, before=turn
        )
    assert [change.cause for change in turn.prefix_changes] == causes
    assert turn.steps[1].request.reused_messages == (1 if causes else 2)
    # The choice was only for the first step: from then on it is the provider's default.
    assert list(after.prefix_changes) == []
