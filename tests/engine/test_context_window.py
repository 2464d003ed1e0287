"""Long conversations: whole exchanges that the model can read, the newest always, and an event
about omitted ones.
"""

from __future__ import annotations

import inspect
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from casual_llm import ChatOptions
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    ChatMessage,
    ImageContent,
    ToolResultMessage,
    UserMessage,
)
from fastmcp import FastMCP
from kit.history import assert_valid

from casual_mcp_nb.base.tokens import IMAGE_TOKENS, TokenUsage, message_tokens
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.window import ContextWindow, TokenCalibration, exchanges, window_of
from casual_mcp_nb.providers import factory as counting
from casual_mcp_nb.providers.chat_model import ChatModel
from casual_mcp_nb.providers.factory import counter_for
from casual_mcp_nb.providers.scripted import call, scripted_model
from casual_mcp_nb.views import mimebundle

LONG = "word " * 500


def asked(text: str) -> UserMessage:
    return UserMessage(content=text)


def said(text: str) -> AssistantMessage:
    return AssistantMessage(content=text)


def with_call(number: int) -> list[ChatMessage]:
    """An exchange with a call and its result."""
    function = AssistantToolCallFunction(name="lab__echo", arguments="{}")
    made = AssistantMessage(
        content="", tool_calls=[AssistantToolCall(id=f"c{number}", function=function)]
    )
    result = ToolResultMessage(name="lab__echo", tool_call_id=f"c{number}", content=LONG)
    return [asked(f"{number}: {LONG}"), made, result, said("Done.")]


@pytest.fixture
async def chat() -> AsyncIterator[McpToolChat]:
    """A chat with one server, whose tool is found by search."""
    server = FastMCP("lab")

    @server.tool
    def echo(text: str = "") -> str:
        """Give a text back."""
        return text or LONG

    config = {"servers": {}, "tool_discovery": {"enabled": True, "defer_all": True}}
    async with McpToolChat.from_config(config, in_process={"lab": server}) as made:
        yield made


def model(*answers: Any, window: int | None = None, max_tokens: int | None = None) -> ChatModel:
    made = scripted_model(*answers)
    made.context_window = window
    made.default_options = ChatOptions(max_tokens=max_tokens)
    return made


async def ask(
    chat: McpToolChat, model: ChatModel, *history: ChatMessage, prompt: str = "And now?"
) -> Turn:
    return await chat.run(
        [asked(prompt)], TurnOptions(model=model, system="Be kind."), history=history
    )


def test_an_exchange_is_what_the_person_says_with_all_that_follows() -> None:
    messages = [said("Hello."), asked("a"), asked("b"), *with_call(1)[1:], asked("c"), said("d")]
    assert list(exchanges(messages)) == [0, 1, 6]
    assert list(exchanges([])) == []


@pytest.mark.defect("N12")
def test_a_message_of_an_earlier_turn_without_an_answer_is_an_exchange_and_a_turns_own_messages_are_one() -> (
    None
):
    messages = [asked("a"), asked("b"), asked("c"), said("d"), asked("e"), asked("f"), asked("g")]
    assert list(exchanges(messages, earlier=5)) == [0, 1, 2, 4, 5]
    assert list(exchanges(messages, earlier=7)) == [0, 1, 2, 4, 5, 6]
    assert list(exchanges(messages, earlier=0)) == [0, 4]


@pytest.mark.defect("N12")
@pytest.mark.parametrize("unanswered", [1, 3])
async def test_messages_without_an_answer_are_left_out_and_those_of_the_turn_are_not(
    chat: McpToolChat, unanswered: int
) -> None:
    history = [asked("First."), said("Yes."), *[asked(LONG)] * unanswered]
    own = [asked("With this:"), asked("And now?")]
    turn = await chat.run(
        own, TurnOptions(model=model("Yes.", window=500), system="Be kind."), history=history
    )
    assert list(turn.steps[0].request.messages[1:]) == own
    assert [(event.messages, event.exchanges) for event in turn.trimmings] == [
        (len(history), 1 + unanswered)
    ]
    assert turn.notices == []


async def test_the_oldest_exchanges_are_left_out_whole_and_an_event_says_how_many(
    chat: McpToolChat,
) -> None:
    history = [message for number in range(4) for message in with_call(number)]
    turn = await ask(chat, model("Yes.", window=3_000, max_tokens=500), *history)
    request = turn.steps[0].request
    (event,) = turn.trimmings
    assert (event.step, event.messages, event.exchanges, event.window) == (0, 8, 2, 3_000)
    assert request.left_out == 8
    assert request.messages[0].content == "Be kind."
    assert list(request.messages[1:]) == [*history[8:], asked("And now?")]
    assert_valid(request.messages)
    assert request.tokens.total <= 2_500
    assert "the oldest 2 exchanges" in mimebundle(turn)["text/plain"]
    assert "8 older ones not sent" in mimebundle(request)["text/plain"]


async def test_a_conversation_that_fits_or_a_window_that_is_not_known_leaves_nothing_out(
    chat: McpToolChat,
) -> None:
    history = with_call(1)
    for window in (None, 100_000):
        turn = await ask(chat, model("Yes.", window=window), *history)
        assert turn.trimmings == turn.notices == []
        assert len(turn.steps[0].request.messages) == len(history) + 2


async def test_what_was_discovered_stays_loaded_when_its_search_is_left_out(
    chat: McpToolChat,
) -> None:
    first = await ask(
        chat, model(call("search_tools", query="give a text back"), "Found."), prompt=LONG
    )
    turn = await ask(
        chat,
        model(call("lab__echo", text="still here"), "Yes.", window=700),
        *first.messages,
        prompt="Go on",
    )
    assert turn.steps[0].request.left_out == len(first.messages)
    assert [(made.name, made.result) for made in turn.tool_calls] == [("lab__echo", "still here")]


async def test_an_exchange_that_grows_pushes_older_ones_out_and_the_difference_says_so(
    chat: McpToolChat,
) -> None:
    answers = [
        call("search_tools", query="give a text back"),
        call("lab__echo"),
        call("lab__echo"),
        "Done.",
    ]
    history = [asked(LONG), said("One."), asked("Short."), said("Two.")]
    turn = await ask(chat, model(*answers, window=1_700, max_tokens=200), *history)
    assert [(event.step, event.messages) for event in turn.trimmings] == [(3, 2)]
    before, last = turn.steps[2].request, turn.steps[3].request
    assert (before.left_out, last.left_out) == (0, 2)
    diff = turn.steps[3].diff()
    assert [message.role for message in diff.messages_added] == ["assistant", "tool"]
    assert diff.messages_left_out == 2
    assert_valid(last.messages)
    assert len(turn.messages) == 8


async def test_the_newest_exchange_is_sent_though_it_is_too_large_and_a_notice_says_so(
    chat: McpToolChat,
) -> None:
    turn = await ask(chat, model("Yes.", window=400), asked("Old."), said("Yes."), prompt=LONG)
    assert [message.content for message in turn.steps[0].request.messages] == ["Be kind.", LONG]
    (notice,) = turn.notices
    assert "can read 400" in notice.text
    assert "sent as it is" in notice.text


async def test_what_the_provider_reports_is_believed_before_the_estimate(chat: McpToolChat) -> None:
    history = [asked(LONG), said("One."), asked(LONG), said("Two.")]
    more = TokenUsage(5_000, 3)
    one = model(ModelResponse(said("Yes."), more), "Yes.", window=4_000, max_tokens=100)
    first = await ask(chat, one, *history)
    assert first.trimmings == []
    second = await ask(chat, one, *history)
    assert second.steps[0].request.left_out == 2


@pytest.mark.parametrize(
    ("usage", "known"),
    [
        (None, 100),
        (TokenUsage(None, 5), 100),
        (TokenUsage(500, 5, origin="estimated"), 100),
        (TokenUsage(1, 5), 75),
        (TokenUsage(200), 200),
    ],
)
def test_a_report_that_cannot_be_right_is_not_believed(
    usage: TokenUsage | None, known: int
) -> None:
    measure = TokenCalibration()
    measure.learn(100, usage)
    assert measure.predict(100) == known


@pytest.mark.parametrize(
    ("window", "most", "reserve"),
    [
        (None, 500, 0),
        (8_000, 500, 500),
        (8_000, None, 1_000),
        (200_000, None, 4_096),
        (1_000, 9_000, 500),
    ],
)
def test_room_is_kept_for_the_answer(window: int | None, most: int | None, reserve: int) -> None:
    assert (
        window_of(model(window=window, max_tokens=most), TokenCalibration(), None).reserve
        == reserve
    )


def test_a_message_that_was_changed_is_measured_anew() -> None:
    messages: list[ChatMessage] = [asked(LONG), said("One."), asked(LONG)]
    context = ContextWindow()
    before = context.trim(messages, 0).text_tokens
    messages[2] = asked("Short.")
    context.forget(2)
    assert context.trim(messages, 0).text_tokens < before - 400


def test_an_image_is_counted_as_an_image_and_not_by_its_text() -> None:
    picture = ImageContent(source={"type": "base64", "data": "A" * 100_000}, media_type="image/png")
    assert message_tokens(UserMessage(content=[picture, picture])) == 4 + 2 * IMAGE_TOKENS


def openai(name: str) -> ChatModel:
    return ChatModel(object(), name, provider="openai")  # type: ignore[arg-type]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Notes each attempt to reach another machine."""
    tried: list[Any] = []

    def refuse(*address: Any) -> None:
        tried.append(address)
        raise OSError("there is no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return tried


@pytest.mark.parametrize("content", [None, b"half a vocabulary"])
def test_a_vocabulary_that_is_not_here_whole_is_never_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_network: list[Any], content: bytes | None
) -> None:
    pytest.importorskip("tiktoken")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    file = tmp_path / "fb374d419588a4632f3f557e76b4b70aebbca790"
    if content is not None:
        file.write_bytes(content)
    assert counter_for(openai("gpt-4.1")) is None
    assert no_network == []
    assert (file.read_bytes() if file.exists() else None) == content


@pytest.mark.parametrize("name", counting._HASHES)
def test_the_file_that_is_looked_for_is_the_one_that_tiktoken_would_take(name: str) -> None:
    source = inspect.getsource(getattr(pytest.importorskip("tiktoken_ext.openai_public"), name))
    assert counting._SOURCE.format(name=name) in source
    assert counting._HASHES[name] in source


def test_models_that_tiktoken_does_not_know_are_estimated(no_network: list[Any]) -> None:
    assert counter_for(openai("llama3.1")) is None
    assert counter_for(scripted_model()) is None
    assert no_network == []


@pytest.fixture
def vocabulary() -> AsyncIterator[Callable[[str], int]]:
    """A vocabulary of single bytes in the place of OpenAI's, loaded as the person's own cells would
    have loaded it.
    """
    tiktoken = pytest.importorskip("tiktoken")
    registry = tiktoken.registry.ENCODINGS
    before = registry.get("o200k_base")
    ranks = {bytes([byte]): byte for byte in range(256)}
    registry["o200k_base"] = tiktoken.Encoding(
        "bytes", pat_str=r"[\s\S]", mergeable_ranks=ranks, special_tokens={}
    )
    yield registry["o200k_base"]
    del registry["o200k_base"]
    if before is not None:
        registry["o200k_base"] = before


def test_a_vocabulary_that_is_loaded_counts(vocabulary: Any, no_network: list[Any]) -> None:
    count = counter_for(openai("gpt-4.1"))
    assert count is not None
    assert count("word <|endoftext|>") == 18
    assert no_network == []


async def test_what_fits_is_counted_with_the_vocabulary(chat: McpToolChat, vocabulary: Any) -> None:
    one = model("Yes.", window=4_000)
    one.provider, one.model = "openai", "gpt-4.1"
    turn = await ask(chat, one, asked(LONG), said("One."), asked("Short."), said("Two."))
    assert turn.steps[0].request.tokens.history > len("Short.Two.And now?")
    assert turn.steps[0].request.left_out == 0
    one = model("Yes.", window=2_900)
    one.provider, one.model = "openai", "gpt-4.1"
    turn = await ask(chat, one, asked(LONG), said("One."), asked("Short."), said("Two."))
    assert turn.steps[0].request.left_out == 2


def test_a_request_from_an_older_file_left_nothing_out() -> None:
    event = {
        "event": "StepStarted",
        "step": 0,
        "request": {"messages": [], "tools": [], "tokens": {}},
    }
    started = {"event": "TurnStarted", "messages": [], "model": "m"}
    text = json.dumps(
        {
            "format": "casual-mcp-nb conversation",
            "version": 1,
            "turns": [{"events": [started, event]}],
        }
    )
    trace = Trace.from_json(text)
    assert [step.request.left_out for step in Turn(trace).steps] == [0]
