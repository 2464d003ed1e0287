"""An option that a model refuses is left out or changed, the question is asked again, and that is
remembered.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from kit.option_rules import OptionsProvider, Rules, chatting
from kit.provider import Provider, answer
from kit.scripted_http import Reply, Request, ScriptedHttp
from kit.setups import MATH

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import BadRequestError, OverloadedError, ProviderError
from casual_mcp_nb.providers import _model_request
from casual_mcp_nb.providers.factory import ModelFactory


async def say(chat: McpToolChat, **options: Any) -> Turn:
    return await chat.run([UserMessage(content="Do it.")], TurnOptions(**options))


# Texts of the live APIs, as issues of other projects quote them.
REFUSED = [
    (
        "openai",
        "temperature",
        0.2,
        (
            "Unsupported value: 'temperature' does not support 0.2 with this model. Only the"
            " default (1)"
        ),
    ),
    ("openai", "stop", "x", "Unsupported parameter: 'stop' is not supported with this model."),
    (
        "openai",
        "parallel_tool_calls",
        False,
        "Unsupported parameter: 'parallel_tool_calls' is not supported with this model.",
    ),
    (
        "openai",
        "reasoning_effort",
        "low",
        "Unrecognized request argument supplied: reasoning_effort",
    ),
    ("openai", "seed", 7, "Extra inputs are not permitted: seed"),
    (
        "openai-responses",
        "top_p",
        0.5,
        "Unsupported parameter: 'top_p' is not supported with this model.",
    ),
    ("anthropic", "temperature", 0.2, "`temperature` is deprecated for this model"),
    ("anthropic", "reasoning_effort", "low", "adaptive thinking is not supported on this model"),
    ("ollama", "reasoning_effort", "low", '"m-1" does not support thinking'),
]
FIELDS = {
    ("anthropic", "reasoning_effort"): "thinking",
    ("ollama", "reasoning_effort"): "think",
}


@pytest.mark.defect("D7", "D3", "D5")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("provider", "option", "value", "words"), REFUSED)
async def test_a_refused_option_is_left_out_and_that_is_remembered_and_told_once(
    provider: str, option: str, value: Any, words: str, stream: bool
) -> None:
    field = FIELDS.get((provider, option), option)
    server = OptionsProvider(provider, Rules(refuses={field: words}))
    async with chatting(server, {option: value}) as chat:
        first = await say(chat, stream=stream)
        second = await chat.run([UserMessage(content="Again.")], history=first.messages)
    assert (first.status, second.status) == ("done", "done")
    assert [field in body for body in server.bodies] == [True, False, False]
    assert len(first.notices) == 1
    assert option in first.notices[0].text
    assert second.notices == []
    assert option not in second.steps[0].request.options


@pytest.mark.defect("D7")
@pytest.mark.parametrize("model", ["gpt-6-chat-latest", "m-1"])
async def test_a_model_that_requires_max_completion_tokens_gets_it_and_is_remembered(
    model: str,
) -> None:
    words = (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use"
        " 'max_completion_tokens' instead."
    )
    server = OptionsProvider("openai", Rules(refuses={"max_tokens": words}))
    async with chatting(server, {"model": model, "max_tokens": 300}) as chat:
        first, second = await say(chat), await say(chat)
    assert (first.status, second.status) == ("done", "done")
    assert [body.get("max_completion_tokens") for body in server.bodies] == [None, 300, 300]


@pytest.mark.defect("D7")
async def test_a_server_that_knows_only_max_tokens_is_asked_so() -> None:
    words = "Unrecognized request argument supplied: max_completion_tokens"
    server = OptionsProvider("openai", Rules(refuses={"max_completion_tokens": words}))
    async with chatting(server, {"model": "gpt-5-mini-local", "max_tokens": 300}) as chat:
        assert (await say(chat)).status == "done"
    assert server.bodies[-1]["max_tokens"] == 300


@pytest.mark.defect("D7", "C1")
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_limit_that_is_too_high_is_lowered_to_what_the_model_takes(provider: str) -> None:
    server = OptionsProvider(provider, Rules(most_tokens=8_192))
    async with chatting(server, {"max_tokens": 100_000}) as chat:
        first, second = await say(chat), await say(chat)
    assert (first.status, second.status) == ("done", "done")
    assert [body["max_tokens"] for body in server.bodies] == [100_000, 8_192, 8_192]


@pytest.mark.defect("C1")
async def test_an_answer_is_given_the_room_that_a_long_conversation_leaves() -> None:
    server = OptionsProvider("anthropic", Rules(window=(200_000, 180_000)))
    async with chatting(server, {"model": "claude-opus-4-5", "max_tokens": 64_000}) as chat:
        turn = await say(chat)
    assert turn.status == "done"
    first, second = (body["max_tokens"] for body in server.bodies)
    assert first == 64_000
    assert 10_000 < second < 20_000


@pytest.mark.defect("C1")
async def test_requests_at_once_are_each_given_their_own_room() -> None:
    server = OptionsProvider("anthropic", Rules(window=(200_000, 180_000)))
    async with chatting(server, {"model": "claude-opus-4-5", "max_tokens": 64_000}) as chat:
        turns = await asyncio.gather(say(chat), say(chat), say(chat))
    assert [turn.status for turn in turns] == ["done"] * 3
    limits = [body["max_tokens"] for body in server.bodies]
    assert limits.count(64_000) == 3
    assert len([most for most in limits if 10_000 < most < 20_000]) == 3


HOME = [
    ("openai", "gpt-4.1", {}, 8_192),
    ("openai", "gpt-4-turbo", {}, 4_096),
    ("openai", "gpt-5.4", {}, 32_768),
    ("openai", "gpt-5.4", {"reasoning_effort": "none"}, 8_192),
    ("openai-responses", "gpt-5.4", {}, 32_768),
    ("gemini", "gemini-2.0-flash", {}, 8_192),
    ("gemini", "gemini-3-pro", {}, 32_768),
    ("gemini", "gemini-2.5-pro", {"thinking_tokens": 20_000}, 28_192),
]


@pytest.mark.defect("H13")
@pytest.mark.parametrize(("provider", "model", "options", "most"), HOME)
def test_answers_of_other_providers_are_limited_at_their_own_address(
    provider: str, model: str, options: dict[str, Any], most: int
) -> None:
    def limit(client: dict[str, str], **more: Any) -> int | None:
        config = {
            "clients": {"desk": {"provider": provider, "api_key": "sk-not-a-real-key", **client}},
            "models": {"small": {"client": "desk", "model": model, **options, **more}},
        }
        return (
            ModelFactory(Config.model_validate(config))
            .chat_model("small")
            .sendable(tools=False)
            .options.max_tokens
        )

    assert limit({}) == most
    assert limit({}, max_tokens=50_000) == 50_000
    elsewhere = limit({"base_url": "http://127.0.0.1:9/v1"})
    assert elsewhere == (most if "thinking_tokens" in options else None)


@pytest.mark.defect("H13")
async def test_an_answer_that_is_cut_at_the_default_limit_says_which_and_how_to_raise_it() -> None:
    server = OptionsProvider(
        "anthropic", None, {**answer("anthropic", "It is"), "stop_reason": "max_tokens"}
    )
    async with chatting(server, {"model": "claude-opus-4-8"}) as chat:
        turn = await say(chat)
        longer = await say(chat, max_tokens=20_000)
    assert turn.truncated
    assert "max_tokens = 8,192" in turn.notices[0].text
    assert (
        server.bodies[-1]["max_tokens"] == longer.steps[0].request.options["max_tokens"] == 20_000
    )


@pytest.mark.defect("D7")
async def test_a_server_that_refuses_stream_options_is_asked_without() -> None:
    server = OptionsProvider(
        "openai",
        Rules(refuses={"stream_options": "Extra inputs are not permitted: stream_options"}),
    )
    async with chatting(server) as chat:
        first, second = await say(chat), await say(chat)
    assert (first.status, second.status) == ("done", "done")
    assert ["stream_options" in body for body in server.bodies] == [True, False, False]


@pytest.mark.defect("D7")
async def test_of_two_options_that_exclude_each_other_one_is_sent() -> None:
    server = OptionsProvider("anthropic")
    async with chatting(server) as chat:
        turn = await say(chat, temperature=0.5, top_p=0.9)
    assert turn.status == "done"
    assert ("temperature" in server.bodies[-1], "top_p" in server.bodies[-1]) == (True, False)


@pytest.mark.defect("D7")
async def test_a_model_that_thinks_is_free_to_choose_where_it_cannot_be_forced() -> None:
    server = OptionsProvider("anthropic")
    async with chatting(server) as chat:
        turn = await say(chat, tool_choice="required", reasoning_effort="high")
    assert turn.status == "done"
    assert server.bodies[-1]["tool_choice"] == {"type": "auto"}
    assert "thinking" in server.bodies[-1]


@pytest.mark.defect("D7")
async def test_a_provider_that_refuses_everything_is_asked_a_bounded_number_of_times() -> None:
    words = {
        name: f"Unsupported parameter: '{name}'"
        for name in ("temperature", "top_p", "seed", "stop", "messages")
    }
    server = OptionsProvider("openai", Rules(refuses=words))
    async with chatting(server, {"temperature": 0.1, "top_p": 0.5, "seed": 1, "stop": "x"}) as chat:
        turn = await say(chat)
    assert isinstance(turn.exception, BadRequestError)
    assert len(server.seen) == 5


@pytest.mark.defect("D7")
async def test_a_value_that_is_wrong_is_an_error_and_is_not_left_out() -> None:
    server = OptionsProvider("openai-responses")
    async with chatting(server, {"max_tokens": 2}) as chat:
        turn = await say(chat)
    assert isinstance(turn.exception, BadRequestError)
    assert len(server.seen) == 1


_MANY_DIGITS = "9" * 5_000


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens must be at most, for this model, 4096",
        "this model supports at most , completion tokens",
        f"max_tokens: 300 > {_MANY_DIGITS}",
        "maximum context length is , tokens, of which , in the messages",
        f"maximum context length is {_MANY_DIGITS} tokens, of which 5 in the messages",
    ],
)
async def test_a_refusal_with_a_number_that_cannot_be_read_is_the_providers_error(
    words: str,
) -> None:
    server = OptionsProvider("openai", Rules(refuses={"max_tokens": words}))
    async with chatting(server, {"max_tokens": 300}) as chat:
        turn = await say(chat)
    assert isinstance(turn.exception, ProviderError)


@pytest.mark.defect("D7")
async def test_what_one_model_refuses_another_one_of_the_client_is_sent() -> None:
    server = OptionsProvider("openai", Rules(refuses={"seed": "Unsupported parameter: 'seed'"}))
    with server:
        config = {**server.config_of({"seed": 7}), "servers": {"math": MATH}}
        config["models"]["other"] = {"client": "desk", "model": "m-2", "seed": 7}
        async with McpToolChat.from_config(config) as chat:
            await say(chat)
            await say(chat, model="other")
    assert ["seed" in body for body in server.bodies] == [True, False, True, False]


MODELS = [
    ("claude-opus-4-8", {}, 8_192),
    ("claude-3-haiku-20240307", {}, 4_096),
    ("claude-of-tomorrow", {}, 8_192),
    ("claude-opus-4-8", {"reasoning_effort": "high"}, 32_768),
    ("claude-opus-4-8", {"reasoning_effort": "none"}, 8_192),
    ("claude-opus-4-5", {"thinking_tokens": 10_000}, 18_192),
    ("claude-opus-4-1", {"thinking_tokens": 30_000}, 32_000),
    ("claude-opus-4-8", {"max_tokens": 100_000}, 100_000),
]


@pytest.mark.defect("C1", "H13")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("model", "options", "most"), MODELS)
async def test_a_limit_that_nobody_sets_has_room_for_an_answer_and_its_thinking(
    model: str, options: dict[str, Any], most: int, stream: bool
) -> None:
    server = OptionsProvider("anthropic")
    async with chatting(server, {"model": model, **options}) as chat:
        turn = await say(chat, stream=stream)
    turn.raise_for_status()
    assert server.bodies[0]["max_tokens"] == turn.steps[0].request.options["max_tokens"] == most


@pytest.mark.defect("C1")
async def test_an_sdk_with_its_own_timeout_does_not_refuse_a_long_answer_in_one_piece() -> None:
    import casual_llm
    from anthropic import AsyncAnthropic

    with OptionsProvider("anthropic") as server:
        client = casual_llm.AnthropicClient(api_key="sk-not-a-real-key", base_url=server.url)
        client.client = AsyncAnthropic(api_key="sk-not-a-real-key", base_url=server.url)
        model = casual_llm.Model(client, "claude-opus-4-8")
        async with McpToolChat.from_config({"servers": {"math": MATH}}) as chat:
            turn = await chat.run(
                [UserMessage(content="Do it.")], TurnOptions(model=model, stream=False)
            )
        await client.client.close()
    assert turn.answer == answer("anthropic", "Done.")["content"][0]["text"]


@pytest.mark.defect("G7")
async def test_a_500_with_an_option_is_retried_once_without_it_and_remembered() -> None:
    def reply(request: Request) -> Reply:
        lacks = request.body.get("tool_choice") == "required"
        return (
            Reply(500, {"error": {"message": "Internal error"}})
            if lacks
            else Reply(200, answer("openai", "fine"))
        )

    tool = {
        "name": "find",
        "description": "Find.",
        "parameters": {"type": "object", "properties": {}},
    }
    with ScriptedHttp(reply) as server:
        config = Provider.config(server, "openai", max_retries=0)  # type: ignore[arg-type]
        config["models"]["small"] |= {"tool_choice": "required", "parallel_tool_calls": False}
        model = ModelFactory(Config.model_validate(config)).chat_model("small")
        adapted: list[str] = []
        for _ in range(2):
            response = await model.complete(
                [UserMessage(content="Go")],
                [tool],
                on_event=lambda event: adapted.append(type(event).__name__),
                stream=False,
            )
            assert response.message.content == "fine"
    assert [request.body.get("tool_choice") == "required" for request in server.seen] == [
        True,
        False,
        False,
    ]
    assert adapted == ["RequestAdapted"] * 2


@pytest.mark.defect("G7")
async def test_a_server_that_fails_without_the_option_too_keeps_it_and_the_hint_names_it() -> None:
    tool = {
        "name": "find",
        "description": "Find.",
        "parameters": {"type": "object", "properties": {}},
    }
    with Provider(Reply(500, {"error": {"message": "Internal error"}})) as server:
        config = server.config("openai", max_retries=0)
        config["models"]["small"] |= {
            "tool_choice": "required",
            "reasoning_effort": "low",
            "temperature": 0.5,
        }
        model = ModelFactory(Config.model_validate(config)).chat_model("small")
        for count in (2, 4):
            with pytest.raises(OverloadedError) as caught:
                await model.complete([UserMessage(content="Go")], [tool], stream=False)
            assert len(server.seen) == count
            assert "tool_choice and reasoning_effort" in (caught.value.hint or "")
    assert [request.body.get("tool_choice") == "required" for request in server.seen] == [
        True,
        False,
        True,
        False,
    ]
    with Provider(Reply(500, {"error": {"message": "Internal error"}})) as server:
        plain = ModelFactory(
            Config.model_validate(server.config("openai", max_retries=0))
        ).chat_model("small")
        with pytest.raises(OverloadedError, match="Try again later"):
            await plain.complete([UserMessage(content="Go")], [tool], stream=False)
        assert len(server.seen) == 1


async def test_a_provider_that_refuses_every_form_is_asked_only_so_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_model_request, "MAX_CHANGES", 5)

    def reply(request: Request) -> Reply:
        sent = int(request.body["max_tokens"])
        return Reply(400, {"error": {"message": f"max_tokens: {sent} > {sent - 1}"}})

    with ScriptedHttp(reply) as server:
        config = Provider.config(server, "openai", max_retries=0)  # type: ignore[arg-type]
        config["models"]["small"]["max_tokens"] = 4_096
        model = ModelFactory(Config.model_validate(config)).chat_model("small")
        with pytest.raises(BadRequestError):
            await model.complete([UserMessage(content="Go")])
    assert [request.body["max_tokens"] for request in server.seen] == list(range(4_096, 4_090, -1))
