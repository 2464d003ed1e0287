"""Options of a model and of one call reach each provider in its own words; unsupported ones are
reported.
"""

from __future__ import annotations

from typing import Any

import pytest
from casual_llm.messages import UserMessage
from kit.option_rules import OptionsProvider, Rules, chatting
from kit.provider import PROVIDERS

from casual_mcp_nb import load_config
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import StepStarted, TurnStarted
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import ProviderError, UsageError

SECRET = "hdr-4f9d0a7c1b2e"
TOOL = "math__evaluate_expression"


async def say(chat: McpToolChat, **options: Any) -> Turn:
    history = options.pop("history", ())
    turn = await chat.run([UserMessage(content="Do it.")], TurnOptions(**options), history=history)
    turn.raise_for_status()
    return turn


OPTIONS: dict[str, Any] = {
    "temperature": 0.3,
    "max_tokens": 500,
    "top_p": 0.9,
    "seed": 7,
    "stop": ["END"],
    "tool_choice": "math:evaluate_expression",
    "parallel_tool_calls": False,
    "extra_body": {"user": "me"},
}
NAMED = {"name": TOOL}
SENT = {
    "openai": {
        "temperature": 0.3,
        "max_tokens": 500,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["END"],
        "tool_choice": {"type": "function", "function": NAMED},
        "parallel_tool_calls": False,
        "user": "me",
    },
    "openai-responses": {
        "temperature": 0.3,
        "max_output_tokens": 500,
        "top_p": 0.9,
        "tool_choice": {"type": "function", **NAMED},
        "parallel_tool_calls": False,
        "user": "me",
    },
    "anthropic": {
        "temperature": 0.3,
        "max_tokens": 500,
        "stop_sequences": ["END"],
        "tool_choice": {"type": "tool", **NAMED, "disable_parallel_tool_use": True},
        "user": "me",
    },
    "gemini": {
        "generationConfig": {
            "temperature": 0.3,
            "maxOutputTokens": 500,
            "topP": 0.9,
            "seed": 7,
            "stopSequences": ["END"],
        },
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [TOOL]}},
        "user": "me",
    },
    "ollama": {
        "options": {
            "temperature": 0.3,
            "num_predict": 500,
            "top_p": 0.9,
            "seed": 7,
            "stop": ["END"],
        },
        "user": "me",
    },
}
UNSENT = {
    "openai": [],
    "openai-responses": ["seed", "stop"],
    "anthropic": ["seed"],
    "gemini": ["parallel_tool_calls"],
    "ollama": ["tool_choice", "parallel_tool_calls"],
}
# Anthropic's models take one of temperature and top_p.
GIVEN = {
    name: {n: v for n, v in OPTIONS.items() if name != "anthropic" or n != "top_p"} for name in SENT
}


@pytest.mark.defect("D7", "D3")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("where", ["config", "call"])
@pytest.mark.parametrize("provider", PROVIDERS)
async def test_each_option_goes_to_each_provider_in_its_own_field(
    provider: str, where: str, stream: bool
) -> None:
    server = OptionsProvider(provider, Rules(takes=frozenset({"user"})))
    given = {**GIVEN[provider], "extra_headers": {"X-Team": SECRET}}
    async with chatting(server, given if where == "config" else {}) as chat:
        turn = await say(chat, stream=stream, **(given if where == "call" else {}))
    body = server.bodies[0]
    assert {name: body.get(name) for name in SENT[provider]} == SENT[provider]
    assert server.seen[0].headers["x-team"] == SECRET
    notices = [notice.text for notice in turn.notices]
    assert [next(name for name in OPTIONS if name in text) for text in notices] == UNSENT[provider]
    assert SECRET not in turn.trace.to_json()
    options = turn.steps[0].request.options
    assert options["max_tokens"] == 500
    assert "extra_headers" not in options
    assert not options.keys() & set(UNSENT[provider])


@pytest.mark.defect("D7")
async def test_an_option_of_a_call_wins_and_bodies_and_headers_are_put_together() -> None:
    server = OptionsProvider("openai", Rules(takes=frozenset({"provider", "user"})))
    model = {
        "temperature": 0.2,
        "seed": 1,
        "extra_body": {"user": "me"},
        "extra_headers": {"X-A": "one", "X-B": "two"},
    }
    async with chatting(server, model, headers={"X-C": "three"}) as chat:
        await say(
            chat,
            temperature=0.8,
            extra_body={"provider": {"sort": "price"}},
            extra_headers={"X-B": "other"},
        )
        await say(chat)
    first, second = server.seen
    assert (first.body["temperature"], first.body["seed"]) == (0.8, 1)
    assert (first.body["user"], first.body["provider"]) == ("me", {"sort": "price"})
    assert [first.headers[f"x-{name}"] for name in "abc"] == ["one", "other", "three"]
    assert (second.body["temperature"], "provider" in second.body, second.headers["x-b"]) == (
        0.2,
        False,
        "two",
    )


@pytest.mark.defect("D7")
async def test_what_is_not_sent_is_told_once_in_a_conversation() -> None:
    server = OptionsProvider("anthropic")
    async with chatting(server, {"seed": 7}) as chat:
        first = await say(chat)
        second = await say(chat, history=first.messages)
        another = await say(chat)
    assert [len(turn.notices) for turn in (first, second, another)] == [1, 0, 1]


@pytest.mark.defect("D7")
@pytest.mark.parametrize("choice", ["required", TOOL])
@pytest.mark.parametrize("provider", ["openai", "openai-responses", "anthropic"])
async def test_a_forced_choice_holds_for_the_first_step(provider: str, choice: str) -> None:
    from kit.provider import answer

    called = answer(provider, "", (TOOL, {"expression": "1 + 1"}))
    server = OptionsProvider(provider, None, called, answer(provider, "Two."))
    async with chatting(server) as chat:
        turn = await say(chat, tool_choice=choice)
    forced, free = (body["tool_choice"] for body in server.bodies)
    assert forced not in ("auto", {"type": "auto"})
    assert free in ("auto", {"type": "auto"})
    assert turn.answer == "Two."


@pytest.mark.defect("D7")
async def test_ollama_is_offered_no_tools_where_none_may_be_called() -> None:
    server = OptionsProvider("ollama", Rules(facts={}))
    async with chatting(server) as chat:
        await say(chat, tool_choice="none")
    assert "tools" not in server.bodies[0]


WRONG = [
    ({"tool_choice": "nope"}, "nope"),
    ({"tool_choice": "evaluate_expresion"}, TOOL),
    ({"temperature": 9}, "2"),
    ({"temperature": float("nan")}, "finite"),
    ({"top_p": 1.5}, "1"),
    ({"max_tokens": 0}, "1"),
    ({"reasoning_effort": "hihg"}, "'high'"),
    ({"parallel_tool_calls": "yes"}, "boolean"),
    ({"stop": [""]}, "character"),
    ({"extra_body": {"x": object()}}, "JSON"),
    ({"extra_headers": {"X Team": "x"}}, "X Team"),
    ({"extra_headers": {"X-Team": f"{SECRET}\n"}}, "X-Team"),
]


@pytest.mark.defect("D7")
@pytest.mark.parametrize(("options", "words"), WRONG)
async def test_a_wrong_option_is_an_error_before_anything_is_sent(
    options: dict[str, Any], words: str
) -> None:
    server = OptionsProvider("openai")
    async with chatting(server) as chat:
        with pytest.raises(UsageError) as caught:
            await say(chat, **options)
    assert next(iter(options)) in str(caught.value)
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)
    assert server.seen == []


@pytest.mark.defect("D3")
async def test_a_temperature_above_anthropics_limit_is_an_error_before_any_request() -> None:
    server = OptionsProvider("anthropic")
    async with chatting(server) as chat:
        with pytest.raises(UsageError, match="0 to 1"):
            await say(chat, temperature=1.5)
    assert server.seen == []


@pytest.mark.defect("D7")
async def test_headers_of_a_client_and_of_a_call_are_shown_nowhere() -> None:
    from kit.scripted_http import Reply

    other = "call-8d1f77ab20"
    echo = Reply(400, {"error": {"message": f"bad headers {SECRET} {other}"}})
    server = OptionsProvider("openai", None, echo)
    async with chatting(server, headers={"X-Team": f"Bearer {SECRET}"}) as chat:
        turn = Turn(Trace())
        await chat.run(
            [UserMessage(content="Do it.")],
            TurnOptions(extra_headers={"X-Other": other}),
            turn=turn,
        )
        config = chat.models._config
    assert isinstance(turn.exception, ProviderError)
    texts = [
        str(turn.exception),
        repr(turn.exception),
        turn.trace.to_json(),
        repr(config),
        str(config.model_dump()),
    ]
    assert not any(secret in text for secret in (SECRET, other) for text in texts)
    assert SECRET in server.seen[0].headers["x-team"]


@pytest.mark.defect("D7")
async def test_openrouter_takes_its_own_fields_and_headers() -> None:
    """The settings of README's example, against a server that takes no field but OpenAI's and
    OpenRouter's.
    """
    server = OptionsProvider("openai", Rules(takes=frozenset({"provider", "models", "reasoning"})))
    routes = {
        "provider": {"order": ["anthropic"], "allow_fallbacks": False},
        "reasoning": {"max_tokens": 2_000},
    }
    model = {"model": "anthropic/claude-sonnet-4.5", "extra_body": routes}
    async with chatting(
        server, model, headers={"HTTP-Referer": "https://lab.example", "X-Title": "Lab"}
    ) as chat:
        await say(chat)
    asked = server.seen[0]
    assert {name: asked.body[name] for name in routes} == routes
    assert (asked.headers["http-referer"], asked.headers["x-title"]) == (
        "https://lab.example",
        "Lab",
    )


@pytest.mark.defect("D7")
async def test_the_options_of_a_request_are_saved_with_it_and_old_files_load() -> None:
    server = OptionsProvider("openai")
    async with chatting(server) as chat:
        turn = await say(chat, temperature=0.5)
    loaded = Conversation.from_json(Conversation([turn]).to_json())
    assert loaded[0].steps[0].request.options == {"temperature": 0.5}
    assert "temperature: 0.5" in turn.steps[0].request._repr_mimebundle_()["text/markdown"].replace(
        "\\_", "_"
    )
    old = Trace(event for event in turn.trace if isinstance(event, TurnStarted | StepStarted))
    assert Turn(old).steps[0].truncated is False


NOTED = [
    ("anthropic", {"seed": 7}, "seed"),
    ("anthropic", {"model": "claude-opus-5", "temperature": 0.2}, "temperature"),
    ("openai", {"model": "gpt-5", "temperature": 0.2}, "temperature"),
    ("openai-responses", {"stop": "x"}, "stop"),
    ("ollama", {"tool_choice": "required"}, "tool_choice"),
]


@pytest.mark.defect("D3", "D7")
@pytest.mark.parametrize(("provider", "model", "option"), NOTED)
def test_load_config_says_which_options_are_not_sent(
    provider: str, model: dict[str, Any], option: str
) -> None:
    clients = {"desk": {"provider": provider, "api_key": "sk-not-a-real-key"}}
    config = load_config(
        {"clients": clients, "models": {"small": {"client": "desk", "model": "m-1", **model}}}
    )
    assert any("models.small" in note and option in note for note in config.notes)
    plain = load_config(
        {"clients": clients, "models": {"small": {"client": "desk", "model": "m-1"}}}
    )
    assert plain.notes == ()
