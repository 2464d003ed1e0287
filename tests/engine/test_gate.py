"""Pausing before a model call, and changing the next request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.history import assert_valid
from kit.turns import ask

from casual_mcp_nb.conversation.event import Request, TextEdited
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.edits import MessageEdit, editable
from casual_mcp_nb.providers.scripted import call, calls, scripted_model


@pytest.fixture
async def chat() -> AsyncIterator[McpToolChat]:
    box: FastMCP[Any] = FastMCP("box")

    @box.tool
    def weigh(thing: str) -> str:
        """Weigh a thing."""
        return f"{thing} weighs 3 kg"

    config = {
        "servers": {"time": {"bundled": "time", "transport": "in-process", "defer_loading": True}},
        "tool_discovery": {"enabled": True},
    }
    async with McpToolChat.from_config(config, in_process={"box": box}) as chat:
        yield chat


def edits(*of_steps: Sequence[MessageEdit] | None) -> Any:
    """Build a gate that makes these edits, and records its requests."""
    shown: list[Request] = []

    async def gate(step: int, request: Request) -> Sequence[MessageEdit] | None:
        shown.append(request)
        return of_steps[step] if step < len(of_steps) else None

    gate.__dict__["shown"] = shown
    return gate


async def test_the_gate_is_shown_each_request_before_it_is_sent(chat: McpToolChat) -> None:
    gate = edits()
    model = scripted_model(call("box__weigh", thing="hat"), "3 kg")
    turn = await ask(chat, model=model, gate=gate)
    assert [request.messages for request in gate.shown] == [
        step.request.messages for step in turn.steps
    ]
    assert len(gate.shown) == 2


async def test_an_edited_message_is_what_the_model_reads_and_what_history_keeps(
    chat: McpToolChat,
) -> None:
    model = scripted_model("ok")
    turn = await ask(chat, model=model, gate=edits([MessageEdit("Do the other thing")]))
    assert model.client.requests[0].messages[-1].content == "Do the other thing"
    assert turn.prompt == turn.messages[0].content == "Do the other thing"
    assert turn.steps[0].request.messages[-1].content == "Do the other thing"
    assert turn.trace.of(TextEdited) == [
        TextEdited(0, None, "Do the other thing", "Do it", turn.edits[0].at)
    ]
    assert "edited" in turn._repr_mimebundle_()["text/html"]
    assert Turn(Trace.from_json(turn.trace.to_json())).messages == turn.messages


async def test_an_edited_result_takes_the_place_of_the_right_call_and_keeps_what_it_was(
    chat: McpToolChat,
) -> None:
    asked_for = calls(call("box__weigh", thing="hat"), call("box__weigh", thing="cat"))
    model = scripted_model(asked_for, "ok")
    seen: list[dict[str | None, int]] = []

    async def gate(step: int, request: Request) -> Sequence[MessageEdit] | None:
        seen.append(editable(request.messages))
        return [MessageEdit("cat weighs 9 kg", list(seen[1])[1])] if step == 1 else None

    turn = await ask(chat, model=model, gate=gate)
    assert list(seen[0]) == [None]
    assert [call.result for call in turn.tool_calls] == ["hat weighs 3 kg", "cat weighs 9 kg"]
    assert [call.unedited for call in turn.tool_calls] == [None, "cat weighs 3 kg"]
    assert [m.content for m in model.client.requests[1].messages if m.role == "tool"] == [
        "hat weighs 3 kg",
        "cat weighs 9 kg",
    ]
    assert "Result before the edit" in turn._repr_mimebundle_()["text/html"]
    assert_valid(turn.messages)


async def test_the_tokens_of_a_request_count_the_edited_text(chat: McpToolChat) -> None:
    gate = edits(None, None)
    long = await ask(chat, model=scripted_model("ok"), gate=edits([MessageEdit("word " * 1000)]))
    short = await ask(chat, model=scripted_model("ok"), gate=gate)
    assert long.steps[0].request.tokens.history > short.steps[0].request.tokens.history + 900


async def test_what_the_model_has_read_and_what_our_own_tools_said_cannot_be_edited(
    chat: McpToolChat,
) -> None:
    model = scripted_model(call("search_tools", query="convert time"), "ok")
    seen: list[dict[str | None, int]] = []

    async def gate(step: int, request: Request) -> Sequence[MessageEdit] | None:
        seen.append(editable(request.messages))
        return [MessageEdit("x")] if step == 1 else None

    turn = await ask(chat, model=model, gate=gate)
    assert [list(places) for places in seen] == [[None], []]
    assert turn.status == "failed"
    assert "cannot be edited" in str(turn.error)


async def test_what_an_earlier_turn_left_unanswered_cannot_be_edited(chat: McpToolChat) -> None:
    first = await ask(chat, model=scripted_model(call("box__weigh", thing="hat")), max_steps=1)
    seen: list[dict[str | None, int]] = []

    async def gate(step: int, request: Request) -> None:
        seen.append(editable(request.messages))

    assert first.messages[-1].role == "tool"
    await ask(chat, "ok", history=first.messages, gate=gate)
    assert [list(places) for places in seen] == [[None]]


async def test_an_edit_that_changes_nothing_leaves_no_trace(chat: McpToolChat) -> None:
    turn = await ask(chat, "ok", gate=edits([MessageEdit("Do it")]))
    assert turn.edits == []


async def test_a_stop_at_the_gate_ends_the_turn_before_the_model_is_called(
    chat: McpToolChat,
) -> None:
    reached = asyncio.Event()

    async def gate(step: int, request: Request) -> None:
        reached.set()
        await asyncio.Event().wait()

    turn, model = Turn(Trace()), scripted_model("never")
    from casual_llm.messages import UserMessage

    from casual_mcp_nb.engine.options import TurnOptions

    task = asyncio.create_task(
        chat.run([UserMessage(content="x")], TurnOptions(model=model, gate=gate), turn=turn)
    )
    await asyncio.wait_for(reached.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert turn.status == "stopped"
    assert model.client.requests == []
    assert_valid(turn.messages)
