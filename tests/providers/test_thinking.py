"""Thinking: switched on by the config, and given back to Anthropic's models with its signature
where they need it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from casual_llm.messages import AssistantMessage, UserMessage
from kit.provider import PROVIDERS, answer
from kit.scripted_http import Reply
from kit.streams import anthropic_blocks, reply
from pydantic import ValidationError

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.messages import ProviderState, StatefulAssistantMessage
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import UsageError
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.factory import ModelFactory

THOUGHT = {
    "type": "thinking",
    "thinking": "What is asked? The time, here and there.",
    "signature": "c2lnbmVk",
}
HIDDEN = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}
TEXT = {"type": "text", "text": "I look."}
CALLS: list[dict[str, Any]] = [
    {"type": "tool_use", "id": id, "name": "time__current_time", "input": {}} for id in ("a", "b")
]
BLOCKS: list[dict[str, Any]] = [
    THOUGHT,
    HIDDEN,
    TEXT,
    CALLS[0],
    {**THOUGHT, "thinking": "And there?"},
    CALLS[1],
]
WAYS = [False, True]


def sent(blocks: list[dict[str, Any]], stream: bool, reason: str = "tool_use") -> Reply:
    """An answer of these blocks."""
    if stream:
        return reply("anthropic", anthropic_blocks(blocks, reason))
    return Reply(200, {**answer("anthropic", ""), "content": blocks, "stop_reason": reason})


@pytest.fixture
def config_of() -> Callable[..., dict[str, Any]]:
    def make(server: Any, provider: str, **model: Any) -> dict[str, Any]:
        config: dict[str, Any] = server.config(provider)
        config["models"]["small"] |= model
        config["servers"] = {
            name: {"bundled": name, "transport": "in-process"} for name in ("time", "math")
        }
        return config

    return make


@pytest.mark.parametrize("stream", WAYS)
async def test_signed_and_hidden_thinking_goes_back_in_its_place(
    stream: bool, serving: Callable[..., Any], config_of: Callable[..., dict[str, Any]]
) -> None:
    server = serving(sent(BLOCKS, stream), sent([TEXT], stream, "end_turn"))
    async with McpToolChat.from_config(
        config_of(server, "anthropic", thinking_tokens=2_000)
    ) as chat:
        turn = await chat.run([UserMessage(content="When?")], TurnOptions(stream=stream))
        loaded = Conversation.from_json(Conversation([turn]).to_json()).messages
        await chat.run([UserMessage(content="Sure?")], TurnOptions(stream=stream), history=loaded)
    assert turn.answer == "I look."
    assert loaded == turn.messages
    for request in server.seen[1:]:
        asked, thought, results = request.body["messages"][:3]
        assert (asked["role"], thought["role"], results["role"]) == ("user", "assistant", "user")
        assert thought["content"] == BLOCKS
        assert [result["tool_use_id"] for result in results["content"]] == ["a", "b"]
        assert request.body["thinking"] == {"type": "enabled", "budget_tokens": 2_000}
        assert request.body["max_tokens"] > 2_000


async def test_thinking_is_no_text_of_the_answer(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(sent([THOUGHT, TEXT], stream=True, reason="end_turn"))
    said: list[Any] = []
    got = await model_of(server, "anthropic").complete(
        [UserMessage(content="When?")], on_event=said.append
    )
    assert "".join(said) == got.message.content == "I look."


async def test_another_model_is_sent_no_thinking_of_this_one(
    serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(sent(BLOCKS, stream=False), sent([TEXT], stream=False, reason="end_turn"))
    model = model_of(server, "anthropic")
    got = await model.complete([UserMessage(content="When?")])
    model.model = "m-2"
    await model.complete([UserMessage(content="When?"), got.message])
    assert [block["type"] for block in server.seen[1].body["messages"][1]["content"]] == [
        "text",
        "tool_use",
        "tool_use",
    ]


@pytest.mark.parametrize(
    "parts",
    [
        [{"thinking": "?"}, {"type": "text", "text": "I look."}],
        [{"type": "text"}],
        [{"type": "text", "text": "I look."}, {"type": "call"}],
    ],
)
async def test_a_saved_message_whose_parts_do_not_fit_goes_back_as_its_text(
    parts: list[dict[str, Any]], serving: Callable[..., Any], model_of: Callable[..., ChatModel]
) -> None:
    server = serving(answer("anthropic", "Yes."))
    damaged = StatefulAssistantMessage(
        content="I look.", kept=ProviderState(wire="anthropic", model="m-1", parts=tuple(parts))
    )
    await model_of(server, "anthropic").complete(
        [UserMessage(content="When?"), damaged, UserMessage(content="So?")]
    )
    assert server.seen[0].body["messages"][1]["content"] == [TEXT]


def test_what_is_kept_does_not_fill_the_text_form_of_a_message() -> None:
    message = StatefulAssistantMessage(
        content="I look.", kept=ProviderState(wire="anthropic", model="m-1", parts=(THOUGHT,))
    )
    assert "signature" not in repr(message)


@pytest.mark.parametrize("stream", WAYS)
@pytest.mark.parametrize(
    "blocks",
    [[TEXT, THOUGHT], [TEXT, {**THOUGHT, "signature": ""}], [{"type": "unheard_of"}, TEXT]],
)
async def test_thinking_that_could_not_be_sent_back_is_not_kept(
    blocks: list[dict[str, Any]],
    stream: bool,
    serving: Callable[..., Any],
    model_of: Callable[..., ChatModel],
) -> None:
    server = serving(sent(blocks, stream, "max_tokens"))
    got = await model_of(server, "anthropic").complete(
        [UserMessage(content="When?")], on_event=lambda _: None, stream=stream
    )
    assert type(got.message) is AssistantMessage
    assert got.message.content == "I look."


EFFORTS = [
    ("openai", "low", {"reasoning_effort": "low"}),
    (
        "openai-responses",
        "xhigh",
        {"reasoning": {"effort": "xhigh"}, "include": ["reasoning.encrypted_content"]},
    ),
    ("anthropic", "high", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
    (
        "anthropic",
        "minimal",
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
    ),
    ("anthropic", "none", {"thinking": {"type": "disabled"}}),
]


@pytest.mark.parametrize(("provider", "effort", "fields"), EFFORTS)
async def test_how_much_a_model_thinks_is_said_in_the_words_of_its_provider(
    provider: str,
    effort: str,
    fields: dict[str, Any],
    serving: Callable[..., Any],
    config_of: Callable[..., dict[str, Any]],
    factory_for: Callable[..., ModelFactory],
) -> None:
    server = serving(answer(provider, "Noon."))
    config = Config.model_validate(config_of(server, provider, reasoning_effort=effort))
    await factory_for(config).chat_model().complete([UserMessage(content="When?")])
    names = {"reasoning_effort", "reasoning", "include", "thinking", "output_config", "think"}
    assert {name: value for name, value in server.seen[0].body.items() if name in names} == fields


@pytest.mark.parametrize("provider", [*PROVIDERS, "offline"])
async def test_a_model_that_is_not_told_how_much_to_think_is_asked_as_before(
    provider: str, serving: Callable[..., Any], factory_for: Callable[..., ModelFactory]
) -> None:
    model = factory_for(Config.model_validate(serving("").config(provider))).chat_model()
    assert model.default_options is not None
    assert model.default_options.extra == {}
    assert model.default_options.max_tokens is None


@pytest.mark.parametrize("provider", ["openai", "openai-responses", "ollama"])
async def test_a_budget_is_refused_where_the_provider_knows_none(
    provider: str,
    serving: Callable[..., Any],
    config_of: Callable[..., dict[str, Any]],
    factory_for: Callable[..., ModelFactory],
) -> None:
    config = Config.model_validate(config_of(serving(""), provider, thinking_tokens=2_000))
    with pytest.raises(UsageError, match=r"no thinking_tokens\. .*reasoning_effort"):
        factory_for(config).chat_model()


@pytest.mark.parametrize(
    "fields", [{"thinking_tokens": 1_023}, {"thinking_tokens": 2_000, "max_tokens": 2_000}]
)
def test_a_budget_that_cannot_be_is_refused_by_the_config(fields: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Config.model_validate(
            {
                "clients": {"c": {"provider": "anthropic"}},
                "models": {"m": {"client": "c", "model": "m", **fields}},
            }
        )
