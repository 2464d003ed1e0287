"""Each call that starts also ends, before its turn does, whatever happens meanwhile: the turn is
stopped, the connection is closed, another call fails the turn, a server's question is still open.

The rule itself is checked for every turn of every test, see `kit.turn_rules`. Here are the ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from casual_llm.messages import UserMessage
from fastmcp import Context, FastMCP
from kit.history import assert_valid
from kit.turn_rules import broken_rules
from kit.turns import ask

from casual_mcp_nb import ToolContext
from casual_mcp_nb.base.mcp import QuestionAnswer
from casual_mcp_nb.conversation.event import ToolFinished, ToolStarted, TurnFinished, TurnStarted
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import ToolCallError
from casual_mcp_nb.providers.scripted import call, calls, scripted_model


class Desk:
    """A server with a tool that hangs, one that asks, and one that adds."""

    def __init__(self) -> None:
        self.hanging = asyncio.Event()
        self.mcp: FastMCP[Any] = FastMCP("desk")
        for tool in (self.hang, self.add, self.ask):
            self.mcp.tool(tool)

    async def hang(self) -> str:
        """Never end."""
        self.hanging.set()
        await asyncio.Event().wait()
        return "never"

    def add(self, a: int, b: int) -> int:
        """Add."""
        return a + b

    async def ask(self, ctx: Context) -> str:
        """Ask the person."""
        return str(await ctx.elicit("Your name?", response_type=str))


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def chat(desk: Desk) -> AsyncIterator[McpToolChat]:
    async with McpToolChat.from_config({}, in_process={"desk": desk.mcp}) as chat:
        yield chat


def begun(chat: McpToolChat, *made: Any) -> tuple[Turn, asyncio.Task[Turn]]:
    """Begin a turn in which the model makes these calls in one answer."""
    turn = Turn(Trace())
    options = TurnOptions(model=scripted_model(calls(*made), "never"))
    running = chat.run([UserMessage(content="Do it")], options, turn=turn)
    return turn, asyncio.create_task(running)


async def stopped(task: asyncio.Task[Turn]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def statuses(turn: Turn) -> list[str]:
    return [each.status for each in turn.tool_calls]


async def test_the_rules_see_a_call_without_an_end_one_with_two_and_what_comes_too_late(
    chat: McpToolChat,
) -> None:
    turn = await ask(chat, call("desk__add", a=1, b=2), "3")
    events = list(turn.trace)
    (end,) = (event for event in events if isinstance(event, ToolFinished))
    (start,) = (event for event in events if isinstance(event, ToolStarted))
    assert list(broken_rules(turn.trace)) == []
    for broken in (
        [event for event in events if event is not end],
        [event for event in events if event is not start],
        [*events[:-1], end, events[-1]],
        [*events, start],
    ):
        assert len(list(broken_rules(Trace(broken)))) == 1


async def test_a_call_that_waits_for_the_others_ends_when_the_turn_is_stopped(
    chat: McpToolChat, desk: Desk
) -> None:
    turn, task = begun(chat, call("desk__hang"), call("no_such_tool"))
    await asyncio.wait_for(desk.hanging.wait(), 30)
    await stopped(task)
    assert statuses(turn) == ["stopped", "stopped"]
    assert_valid(turn.messages)


async def test_a_closed_connection_fails_its_calls_and_the_turn_goes_on(
    chat: McpToolChat,
) -> None:
    async def close(context: ToolContext) -> str:
        await chat.server_manager._connections["desk"].close()
        with pytest.raises(ToolCallError):
            await context.call_tool_async("desk:add", a=1, b=2)
        return "closed"

    chat.add_tool(close)
    turn = await ask(chat, call("notebook__close"), "Done.")
    assert turn.status == "done"
    ends = {event.tool.tool: event.status for event in turn.trace.of(ToolFinished)}
    assert ends == {"add": "error", "close": "ok"}


async def test_a_call_that_takes_time_to_stop_has_ended_before_its_turn(
    chat: McpToolChat, desk: Desk
) -> None:
    stopping, go_on = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            with suppress(asyncio.CancelledError):
                await go_on.wait()
            ended.append(turn.status)

    chat.add_tool(tidy)
    turn, task = begun(chat, call("desk__hang"), call("notebook__tidy"))
    await asyncio.wait_for(desk.hanging.wait(), 30)
    task.cancel()
    await asyncio.wait_for(stopping.wait(), 30)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["running"]
    assert statuses(turn) == ["stopped", "stopped"]


async def test_stopping_twice_still_ends_each_call_before_the_turn(
    chat: McpToolChat, desk: Desk
) -> None:
    stopping = asyncio.Event()

    async def tidy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await asyncio.Event().wait()

    chat.add_tool(tidy)
    turn, task = begun(chat, call("desk__hang"), call("notebook__tidy"))
    await asyncio.wait_for(desk.hanging.wait(), 30)
    task.cancel()
    await asyncio.wait_for(stopping.wait(), 30)
    await stopped(task)
    assert statuses(turn) == ["stopped", "stopped"]


async def test_what_fails_the_turn_stops_its_other_calls_before_its_end(
    chat: McpToolChat, desk: Desk
) -> None:
    def fail(event: Any) -> None:
        if isinstance(event, ToolFinished) and event.status == "ok":
            raise ValueError("no")

    turn = Turn(Trace())
    both = calls(call("desk__hang"), call("desk__add", a=1, b=2))
    options = TurnOptions(model=scripted_model(both, "never"))
    await chat.run([UserMessage(content="Do it")], options, turn=turn, on_event=fail)
    assert turn.status == "failed"
    assert statuses(turn) == ["stopped", "ok"]


async def test_an_observer_that_fails_leaves_no_call_without_an_end(chat: McpToolChat) -> None:
    def fail(event: Any) -> None:
        if isinstance(event, ToolStarted):
            raise ValueError("no")

    turn = Turn(Trace())
    options = TurnOptions(model=scripted_model(call("desk__add", a=1, b=2), "3"))
    await chat.run([UserMessage(content="Do it")], options, turn=turn, on_event=fail)
    assert turn.status == "failed"
    assert statuses(turn) == ["error"]


async def test_a_question_that_is_closed_after_the_turn_was_stopped_adds_nothing_to_it(
    desk: Desk,
) -> None:
    asked, stopping, go_on, closed = (asyncio.Event() for _ in range(4))

    async def person(question: Any) -> QuestionAnswer:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await go_on.wait()
            closed.set()
        return QuestionAnswer("cancel")

    servers = {"desk": desk.mcp}
    async with McpToolChat.from_config({}, in_process=servers, elicitation=person) as chat:
        turn, task = begun(chat, call("desk__ask"))
        await asyncio.wait_for(asked.wait(), 30)
        await stopped(task)
        await asyncio.wait_for(stopping.wait(), 30)
        go_on.set()
        await asyncio.wait_for(closed.wait(), 30)
        assert isinstance(list(turn.trace)[-1], TurnFinished)
        # The chat still works.
        assert statuses(await ask(chat, call("desk__add", a=1, b=2), "3")) == ["ok"]


async def test_an_observer_that_fails_as_a_turn_starts_leaves_no_turn_without_an_end(
    chat: McpToolChat,
) -> None:
    def fail(event: Any) -> None:
        if isinstance(event, TurnStarted):
            raise ValueError("no")

    turn = Turn(Trace())
    options = TurnOptions(model=scripted_model("never"))
    with pytest.raises(ValueError, match="no"):
        await chat.run([UserMessage(content="Do it")], options, turn=turn, on_event=fail)
    assert turn.status == "failed"
    assert isinstance(turn.exception, ValueError)


@pytest.mark.parametrize("status", ["done", "failed"])
async def test_an_observer_that_fails_at_the_end_does_not_change_how_a_turn_ended(
    chat: McpToolChat, status: str
) -> None:
    def fail(event: Any) -> None:
        if isinstance(event, TurnFinished):
            raise ValueError("no")

    turn = Turn(Trace())
    # Without an answer left, the model fails.
    answers = ["3"] if status == "done" else [call("desk__add", a=1, b=2)]
    options = TurnOptions(model=scripted_model(*answers))
    await chat.run([UserMessage(content="Do it")], options, turn=turn, on_event=fail)
    assert turn.status == status
    assert not isinstance(turn.exception, ValueError)
    assert (turn.exception is None) == (status == "done")
    assert [type(event) for event in turn.trace][-1] is TurnFinished
