"""A conversation that outgrows the model goes on: its window is in a table, or the provider states
it in a refusal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from casual_llm.messages import AssistantMessage, ChatMessage, UserMessage
from fastmcp import FastMCP
from kit.history import assert_valid
from kit.provider import PROVIDERS, Provider, answer
from kit.scripted_http import Reply, Request, ScriptedHttp

from casual_mcp_nb import Session
from casual_mcp_nb.base.config import ClientConfig, Config, ModelConfig
from casual_mcp_nb.conversation.event import StepStarted
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import ContextOverflowError
from casual_mcp_nb.providers._reading import stated_window
from casual_mcp_nb.providers.registry import specs, window_of

WINDOW = 4_096
WORDINGS: dict[str, list[str]] = {
    "openai": [
        # OpenAI, vLLM (three versions), OpenRouter, llama.cpp (two versions), llama-cpp-python, LM
        # Studio, Mistral, xAI.
        (
            "This model's maximum context length is {window} tokens. However, your messages"
            " resulted in {tokens} tokens."
        ),
        (
            "Input tokens exceed the configured limit of {window} tokens. Your messages resulted in"
            " {tokens} tokens."
        ),
        (
            "This model's maximum context length is {window} tokens. However, you requested 99999"
            " tokens ({tokens} in the messages, 512 in the completion). Please reduce the length of"
            " the messages or completion."
        ),
        (
            "This model's maximum context length is {window} tokens. However, your request has"
            " {tokens} input tokens."
        ),
        "The decoder prompt (length {tokens}) is longer than the maximum model length of {window}.",
        (
            "This endpoint's maximum context length is {window} tokens. However, you requested"
            " about 99999 tokens ({tokens} of text input, 10 of tool input). Please reduce the"
            " length of either one."
        ),
        "the request exceeds the available context size, try increasing it|llama.cpp",
        (
            "request ({tokens} tokens) exceeds the available context size ({window} tokens), try"
            " increasing it"
        ),
        "Requested tokens ({tokens}) exceed context window of {window}",
        (
            "Trying to keep the first {tokens} tokens when context the overflows. However, the"
            " model is loaded with context length of only {window} tokens, which is not enough."
        ),
        (
            "Prompt contains {tokens} tokens and 0 draft tokens, too large for model with {window}"
            " maximum context length"
        ),
        "This model's maximum prompt length is {window} but the request contains {tokens} tokens.",
    ],
    "openai-responses": [
        "Input tokens exceed the configured limit of {window} tokens. Your messages resulted in"
        " {tokens} tokens."
    ],
    "anthropic": [
        "prompt is too long: {tokens} tokens > {window} maximum",
        (
            "input length and `max_tokens` exceed context limit: {tokens} + 64000 > {window},"
            " decrease input length"
        ),
    ],
    "gemini": [
        "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window})."
    ],
    "ollama": [
        "prompt is too long; this model's maximum context length is {window} tokens and the request"
        " has {tokens} input tokens"
    ],
}
SILENT = {
    "openai": (
        "Your input exceeds the context window of this model. Please adjust your input and try"
        " again."
    ),
    "ollama": "the input length exceeds the context length",
}


class Small(ScriptedHttp):
    """A provider with a small window, which counts a token for four letters and refuses larger
    requests.

    Args:
        provider: Its wire format.
        wording: How it says so.
    """

    def __init__(self, provider: str, wording: str) -> None:
        self.provider = provider
        self._wording, _, self._fields = wording.partition("|")
        super().__init__(self._reply)

    def _reply(self, request: Request) -> Reply:
        tokens = (
            len(
                json.dumps(
                    request.body.get("messages")
                    or request.body.get("contents")
                    or request.body.get("input")
                )
            )
            // 4
        )
        if tokens <= WINDOW * 7 // 8:
            return Reply(200, answer(self.provider, "fine", usage=(tokens, 1)))
        error: dict[str, Any] = {"message": self._wording.format(window=WINDOW, tokens=tokens)}
        if self._fields:
            error |= {
                "type": "exceed_context_size_error",
                "n_prompt_tokens": tokens,
                "n_ctx": WINDOW,
            }
        return Reply(400, {"error": error})

    config = Provider.config


def conversation(exchanges: int = 12) -> list[ChatMessage]:
    messages: list[ChatMessage] = []
    for number in range(exchanges):
        messages += [
            UserMessage(content=f"{number}: {'word ' * 400}"),
            AssistantMessage(content="Noted."),
        ]
    return messages


async def ask(chat: McpToolChat, history: Sequence[ChatMessage], prompt: str = "And now?") -> Turn:
    return await chat.run([UserMessage(content=prompt)], TurnOptions(stream=False), history=history)


CASES = [(provider, wording) for provider in PROVIDERS for wording in WORDINGS[provider]]


@pytest.mark.defect("G8")
@pytest.mark.parametrize(("provider", "wording"), CASES)
async def test_the_window_is_learned_from_a_refusal_and_the_turn_goes_on(
    provider: str, wording: str
) -> None:
    with Small(provider, wording) as server:
        async with McpToolChat.from_config(server.config(provider, max_retries=0)) as chat:
            first = await ask(chat, conversation())
            second = await ask(chat, [*conversation(), *first.messages])
            assert (await chat.models.ready(None)).window == WINDOW
    for turn in (first, second):
        assert (turn.status, turn.answer) == ("done", "fine")
        assert turn.steps[-1].request.left_out > 0
        assert_valid(turn.messages)
    # One refusal in all: the second turn is trimmed before it is sent.
    assert [len(turn.steps) for turn in (first, second)] == [2, 1]
    assert len(server.seen) == 3
    assert [event.window for turn in (first, second) for event in turn.trimmings] == [
        WINDOW,
        WINDOW,
    ]
    assert len(first.notices) == 1
    assert f"{WINDOW:,}" in first.notices[0].text


async def test_a_refused_length_uses_up_no_step() -> None:
    with Small("openai", WORDINGS["openai"][0]) as server:
        async with McpToolChat.from_config(server.config("openai", max_retries=0)) as chat:
            options = TurnOptions(stream=False, max_steps=1)
            prompt = [UserMessage(content="And now?")]
            turn = await chat.run(prompt, options, history=conversation())
    assert (turn.status, turn.answer) == ("done", "fine")
    # The record has both requests, each with a number of its own.
    assert [event.step for event in turn.trace.of(StepStarted)] == [0, 1]


@pytest.mark.defect("G8")
@pytest.mark.parametrize("provider", SILENT)
async def test_a_refusal_without_a_number_leaves_out_the_older_half(provider: str) -> None:
    with Small(provider, SILENT[provider]) as server:
        async with McpToolChat.from_config(server.config(provider, max_retries=0)) as chat:
            turn = await ask(chat, conversation(9))
            assert (await chat.models.ready(None)).window is None
    assert turn.status == "done"
    assert 8 <= turn.steps[-1].request.left_out < 18
    assert len(server.seen) == 2


@pytest.mark.defect("G8")
async def test_a_message_that_is_too_long_by_itself_is_refused_once() -> None:
    with Small("openai", WORDINGS["openai"][0]) as server:
        async with McpToolChat.from_config(server.config("openai")) as chat:
            turn = await ask(chat, [], prompt="word " * 9_000)
    with pytest.raises(ContextOverflowError) as caught:
        turn.raise_for_status()
    assert (caught.value.window, caught.value.tokens is not None) == (WINDOW, True)
    assert len(server.seen) == 1


@pytest.mark.defect("N12")
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("window", [None, WINDOW])
def test_a_message_that_was_too_long_does_not_spoil_the_conversation(
    provider: str, window: int | None
) -> None:
    with Small(provider, WORDINGS[provider][0]) as server:
        config = server.config(provider, max_retries=0)
        config["models"]["small"]["context_window"] = window
        with Session(config, store=None, quiet=True) as session:
            first = session.chat("Hello.")
            failed = [session.chat("word " * 9_000) for _ in range(2)]
            later = [session.chat(prompt) for prompt in ("Still there?", "And now?")]
    assert "defer tools" not in failed[0].error
    assert [turn.status for turn in failed] == ["failed"] * 2
    assert [turn.status for turn in (first, *later)] == ["done"] * 3
    # Only what cannot be read is left out for good, and what came before it.
    assert [len(turn.steps[-1].request.messages) for turn in later] == [2, 4]
    assert [sum(event.messages for event in turn.trimmings) for turn in later] == [4, 4]
    assert_valid(later[-1].steps[-1].request.messages)


@pytest.mark.defect("N12")
@pytest.mark.parametrize("provider", SILENT)
def test_a_message_that_was_too_long_is_left_out_where_no_window_is_stated(provider: str) -> None:
    with (
        Small(provider, SILENT[provider]) as server,
        Session(server.config(provider, max_retries=0), store=None) as session,
    ):
        failed = session.chat("word " * 9_000)
        turn = session.chat("Still there?")
    assert [failed.status, turn.status, len(turn.steps[-1].request.messages)] == [
        "failed",
        "done",
        2,
    ]


@pytest.mark.defect("N12")
@pytest.mark.parametrize(
    ("mode", "advised"), [("loaded", True), ("deferred", False), ("off", False)]
)
async def test_deferring_is_advised_where_there_are_tools_to_defer(
    mode: str, advised: bool
) -> None:
    server = FastMCP("lab")

    @server.tool
    def measure(text: str) -> int:
        """Count the letters."""
        return len(text)

    with Small("openai", WORDINGS["openai"][0]) as provider:
        config = {**provider.config("openai"), "tool_discovery": {"enabled": True}}
        async with McpToolChat.from_config(config, in_process={"lab": server}) as chat:
            chat.selection.servers["lab"] = mode
            turn = await ask(chat, [], prompt="word " * 9_000)
    with pytest.raises(ContextOverflowError) as caught:
        turn.raise_for_status()
    assert ("defer tools" in (caught.value.hint or "")) is advised


@pytest.mark.parametrize(
    "text",
    [
        "",
        "maximum context length is 3 tokens",
        "maximum context length is " * 2_000,
        "n_ctx" * 9_000,
    ],
)
def test_what_states_no_window_is_not_taken_for_one(text: str) -> None:
    assert stated_window(text) == (None, None)


@pytest.mark.defect("G8")
def test_the_table_knows_the_models_that_are_named_as_examples_and_no_others() -> None:
    for spec in specs().values():
        if spec.models:
            assert spec.example_model is not None or spec.name == "openai-responses"
            assert all(limits.answer <= limits.window for limits in spec.models.values())
            assert spec.example_model is None or spec.limits_of(spec.example_model) is not None
            assert spec.limits_of("a-model-of-tomorrow") is None
    assert {name for name, spec in specs().items() if spec.models} >= {
        "openai",
        "openai-responses",
        "anthropic",
        "gemini",
    }
    limits = {
        name: specs()["openai"].limits_of(name)
        for name in ("gpt-4.1-mini", "gpt-4-0613", "gpt-4.5-preview", "gpt-5.1")
    }
    assert [each and each.window for each in limits.values()] == [1_047_576, 8_192, None, 400_000]


@pytest.mark.defect("G8")
@pytest.mark.parametrize(
    ("given", "address", "window"),
    [
        (None, None, 1_047_576),
        (None, "https://eu.api.openai.com/v1", 1_047_576),
        (9_000, None, 9_000),
        (None, "http://localhost:1234/v1", None),
        (None, "https://openai.com.evil.example/v1", None),
    ],
)
def test_the_table_holds_at_the_providers_own_address(
    given: int | None, address: str | None, window: int | None
) -> None:
    model = ModelConfig(client="c", model="gpt-4.1", context_window=given)
    client = ClientConfig(provider="openai", base_url=address, api_key="sk-none")
    assert window_of(model, client) == window


@pytest.mark.defect("G8")
def test_doctor_and_automatic_discovery_read_the_same_table() -> None:
    clients = {
        "home": {"provider": "anthropic", "api_key": "sk-none"},
        "local": {"provider": "openai", "base_url": "http://localhost:1"},
    }
    models = {
        "known": {"client": "home", "model": "claude-haiku-4-5"},
        "unknown": {"client": "local", "model": "gpt-4.1"},
    }
    config = Config.model_validate({"clients": clients, "models": models})
    with Session(config) as session:
        found = {
            finding.name
            for finding in session.servers.doctor().findings
            if finding.part == "Models"
        }
        windows = []
        for name in models:
            session.model = name
            windows.append(session.parts.turn_service._chat.tools.window())
    assert found == {"unknown"}
    assert windows == [200_000, None]
