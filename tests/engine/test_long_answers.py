"""Answers without an end, and answers letter by letter."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from fastmcp import Context, FastMCP
from kit.history import assert_valid
from kit.provider import Provider
from kit.scripted_http import Reply
from kit.streams import KINDS, streamed
from kit.turns import ask

from casual_mcp_nb.base.config import Config
from casual_mcp_nb.conversation.event import ServerLog, TextDelta, TurnFinished
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnLimits
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.errors import AnswerLimitError
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.scripted import call
from casual_mcp_nb.servers.server_manager import ServerManager


class Streaming(Provider):
    """Streams one letter at a time, for ever or so often.

    Args:
        letters: How many; None for ever.
    """

    def __init__(self, letters: int | None, piece: str = "x") -> None:
        self._letters = letters
        self._piece = piece
        super().__init__(Reply(200, self._pieces(), {"content-type": KINDS["openai"]}))

    def _pieces(self) -> Any:
        events = [
            f"{part}\n\n".encode()
            for part in streamed("openai", [self._piece]).decode().split("\n\n")
            if part
        ]
        yield from (
            itertools.repeat(events[0])
            if self._letters is None
            else itertools.repeat(events[0], self._letters)
        )
        yield from events[1:]


@pytest.fixture
def server() -> FastMCP[Any]:
    mcp: FastMCP[Any] = FastMCP("lab")
    mcp.tool(lambda: "ok", name="check")
    return mcp


def made(provider: Provider, limits: TurnLimits | None = None) -> McpToolChat:
    return McpToolChat(
        ServerManager({}),
        ModelFactory(Config.model_validate(provider.config("openai"))),
        ChatSetup(
            limits=limits,
        ),
    )


async def said(chat: McpToolChat) -> Any:
    from casual_llm.messages import UserMessage

    return await chat.run([UserMessage(content="Go on")])


@pytest.mark.defect("B4")
async def test_an_answer_letter_by_letter_leaves_a_small_trace_with_all_its_text() -> None:
    with Streaming(20_000) as provider:
        async with made(provider) as chat:
            turn = await said(chat)
    assert turn.answer == "x" * 20_000
    deltas = turn.trace.of(TextDelta)
    assert "".join(delta.text for delta in deltas) == turn.answer
    assert deltas[0].text == "x"
    assert len(turn.trace.to_json()) < 10 * 20_000
    assert len(deltas) < 20_000 / 10


async def test_a_slow_reader_of_a_stream_delays_nothing_and_reads_the_whole_trace() -> None:
    piece = "blah " * 40
    with Streaming(10_000, piece) as provider:
        async with made(provider, TurnLimits(answer_characters=3_000_000)) as chat:
            stream = chat.stream("Go on")
            read = [await anext(stream)]
            # Nothing more is read before the turn is over.
            await asyncio.wait(
                [
                    task
                    for task in asyncio.all_tasks()
                    if task.get_coro().__qualname__ == "McpToolChat.take_turn"
                ]
            )
            read += [event async for event in stream]
    deltas = [event for event in read if isinstance(event, TextDelta)]
    assert "".join(delta.text for delta in deltas) == piece * 10_000
    assert 100 < len(deltas) < 1_000
    assert isinstance(read[-1], TurnFinished)
    # The trace is the only store.
    assert chat.state.last_turn is not None
    assert all(event is kept for event, kept in zip(read, chat.state.last_turn.trace, strict=True))


@pytest.mark.defect("B4")
async def test_a_stream_that_never_ends_is_ended_at_a_length_and_the_conversation_goes_on() -> None:
    with Streaming(None, "blah " * 40) as provider:
        async with made(provider, TurnLimits(answer_characters=300_000)) as chat:
            turn = await asyncio.wait_for(said(chat), 30)
    assert turn.status == "failed"
    with pytest.raises(AnswerLimitError, match="300,000"):
        turn.raise_for_status()
    assert turn.answer.startswith("blah blah")
    assert len(turn.messages[-1].content) < 101_000
    assert_valid(turn.messages)


@pytest.mark.defect("B4")
async def test_an_answer_that_takes_too_long_is_ended_although_it_still_streams() -> None:
    with Streaming(None) as provider:
        async with made(provider, TurnLimits(answer_seconds=0.5)) as chat:
            turn = await asyncio.wait_for(said(chat), 30)
    with pytest.raises(AnswerLimitError):
        turn.raise_for_status()
    assert turn.answer.startswith("x")


@pytest.mark.defect("B4")
async def test_arguments_that_never_end_are_ended_while_they_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("casual_mcp_nb.providers._model_request.MAX_STREAM_BYTES", 2_000_000)
    events = streamed("openai", (), ("a", "lab__check", "x")).decode().split("\n\n")
    endless = itertools.chain(
        [f"{events[0]}\n\n".encode()], itertools.repeat(f"{events[1]}\n\n".encode() * 100)
    )
    with Provider(Reply(200, endless, {"content-type": KINDS["openai"]})) as provider:
        async with made(provider) as chat:
            turn = await asyncio.wait_for(said(chat), 60)
    with pytest.raises(AnswerLimitError):
        turn.raise_for_status()


@pytest.mark.defect("B4")
async def test_calls_that_are_longer_than_an_answer_may_be_are_not_run(
    server: FastMCP[Any],
) -> None:
    async with McpToolChat(
        ServerManager({}, in_process={"lab": server}),
        ModelFactory(Config()),
        ChatSetup(
            limits=TurnLimits(answer_characters=5_000),
        ),
    ) as chat:
        turn = await ask(chat, call("lab__check", text="x" * 10_000), "never")
    assert turn.tool_calls == []
    with pytest.raises(AnswerLimitError):
        turn.raise_for_status()


@pytest.mark.defect("B4")
async def test_log_messages_of_a_server_are_limited_in_their_length_together() -> None:
    chatty: FastMCP[Any] = FastMCP("chatty")

    @chatty.tool
    async def work(ctx: Context) -> str:
        """Talk."""
        for _ in range(200):
            await ctx.info("x" * 9_000)
        return "done"

    async with McpToolChat.from_config({}, in_process={"chatty": chatty}) as chat:
        turn = await ask(chat, call("chatty__work"), "ok")
    assert sum(len(log.text) for log in turn.trace.of(ServerLog)) <= 500_000
    (notice,) = turn.notices
    assert notice.server == "chatty"
