"""The outcome of a model's calls: empty results, names, nesting, how many there are, the same
failure again.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from casual_llm import AssistantMessage, AssistantToolCall, AssistantToolCallFunction
from casual_llm.messages import UserMessage
from fastmcp import Context, FastMCP
from fastmcp.tools import ToolResult
from kit.history import assert_valid
from kit.turns import ask

from casual_mcp_nb import Conversation, Session
from casual_mcp_nb.conversation.event import ToolFinished, ToolProgress
from casual_mcp_nb.conversation.step import EMPTY_RESULT, UNANSWERED
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.edits import MessageEdit
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.errors import MaxIterationsError, RepeatedCallError, UsageError
from casual_mcp_nb.providers.scripted import Call, call, calls, scripted_model

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Desk:
    """A server whose tools return nothing, fail, report progress, or hang."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.hanging = asyncio.Event()
        self.mcp: FastMCP[Any] = FastMCP("desk")
        for tool in (self.send, self.fail, self.echo, self.chatter, self.hang, self.add, self.both):
            self.mcp.tool(tool)

    def send(self, to: str = "ada") -> None:
        """Send a mail."""
        self.ran.append(f"send {to}")

    def fail(self, why: str = "full") -> None:
        """Fail."""
        self.ran.append("fail")
        raise ValueError(f"the disk is {why}")

    def echo(self, value: Any = None) -> ToolResult:
        """Give a value back as structured content alone."""
        return ToolResult(content=[], structured_content={"value": value})

    def both(self, text: str, number: int = 7) -> ToolResult:
        """Give a text and structured content."""
        return ToolResult(content=text, structured_content={"number": number})

    def add(self, a: int, b: int) -> int:
        """Add."""
        return a + b

    async def chatter(self, ctx: Context, times: int = 2_000) -> str:
        """Report progress again and again."""
        for i in range(times):
            await ctx.report_progress(i + 1, times, f"part {i + 1}")
        return "done"

    async def hang(self) -> str:
        """Never end."""
        self.hanging.set()
        await asyncio.Event().wait()
        return "never"


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def chat(desk: Desk) -> AsyncIterator[McpToolChat]:
    async with McpToolChat.from_config({}, in_process={"desk": desk.mcp}) as chat:
        yield chat


def raw(*made: tuple[str, str, str]) -> AssistantMessage:
    """An answer with calls: id, name and arguments exactly as they are given."""
    return AssistantMessage(
        content="",
        tool_calls=[
            AssistantToolCall(id=id, function=AssistantToolCallFunction(name=name, arguments=text))
            for id, name, text in made
        ],
    )


def results_of(messages: list[Any]) -> list[str]:
    return [message.content for message in messages if message.role == "tool"]


@pytest.mark.defect("A1")
async def test_a_tool_that_returns_nothing_is_remembered_as_having_succeeded(
    chat: McpToolChat, desk: Desk
) -> None:
    first = await ask(chat, call("desk__send"), "Sent.")
    assert first.tool_calls[0].status == "ok"
    assert first.steps[1].request.messages[-1].content == EMPTY_RESULT
    assert results_of(first.messages) == [EMPTY_RESULT]
    second = await ask(chat, "Yes.", history=first.messages)
    assert results_of(list(second.steps[0].request.messages)) == [EMPTY_RESULT]
    loaded = Conversation.from_json(Conversation([first, second]).to_json())
    assert results_of(loaded.messages) == [EMPTY_RESULT]
    assert desk.ran == ["send ada"]


@pytest.mark.defect("A1")
async def test_the_messages_that_chat_returns_say_of_an_empty_result_that_it_is_empty(
    chat: McpToolChat,
) -> None:
    messages = await chat.chat("Mail her", model=scripted_model(call("desk__send"), "Sent."))
    assert results_of(messages) == [EMPTY_RESULT]


@pytest.mark.defect("A1")
async def test_an_empty_result_in_an_older_file_is_not_a_call_that_was_stopped(
    chat: McpToolChat,
) -> None:
    turn = await ask(chat, call("desk__send"), "Sent.")
    document = json.loads(turn.trace.to_json())
    for event in document["turns"][0]["events"]:
        if event["event"] == "ToolFinished":
            event["text"] = ""
    old = Turn(Trace.from_json(json.dumps(document)))
    assert results_of(old.messages) == [EMPTY_RESULT]


@pytest.mark.defect("A1")
async def test_a_result_that_the_person_empties_by_hand_is_a_valid_result(
    chat: McpToolChat,
) -> None:
    async def empty(step: int, request: Any) -> list[MessageEdit]:
        return [MessageEdit("", call_id=request.messages[-1].tool_call_id)] if step else []

    turn = await ask(chat, call("desk__add", a=1, b=2), "Nothing.", gate=empty)
    assert results_of(turn.messages) == [EMPTY_RESULT]
    assert_valid(turn.messages)


@pytest.mark.defect("A1")
@pytest.mark.parametrize("value", [0, False, "", [], {}, None])
async def test_structured_content_that_is_falsy_is_a_result(chat: McpToolChat, value: Any) -> None:
    turn = await ask(chat, call("desk__echo", value=value), "ok")
    assert turn.tool_calls[0].structured == {"value": value}
    assert turn.tool_calls[0].result == (
        json.dumps({"value": value}) if value != "" else EMPTY_RESULT
    )


@pytest.mark.defect("A1")
async def test_no_steps_at_all_are_refused_and_not_taken_for_the_default(chat: McpToolChat) -> None:
    with pytest.raises(UsageError, match="max_steps"):
        await ask(chat, "never", max_steps=0)


@pytest.mark.defect("D11")
async def test_structured_content_that_differs_from_the_text_reaches_the_model_beside_it(
    chat: McpToolChat,
) -> None:
    texts = ("It is warm.", '{"number":  7}')
    turn = await ask(
        chat,
        calls(*(call("desk__both", text=text) for text in texts), call("desk__add", a=1, b=2)),
        "ok",
    )
    differs, same, wrapped = (c.result for c in turn.tool_calls)
    assert differs.startswith("It is warm.")
    assert json.loads(differs.splitlines()[-1]) == {"number": 7}
    assert same == '{"number":  7}'
    assert wrapped == "3"


@pytest.mark.defect("A7")
@pytest.mark.parametrize("depth", [150, 300, 5_000])
async def test_too_deeply_nested_arguments_are_an_error_and_the_conversation_can_be_saved(
    chat: McpToolChat, desk: Desk, depth: int
) -> None:
    text = '{"value": ' + "[" * depth + "]" * depth + "}"
    turn = await ask(chat, raw(("a", "desk__echo", text)), call("desk__add", a=1, b=2), "ok")
    refused, added = turn.tool_calls
    assert refused.status == "error"
    assert "nested" in refused.result
    assert "desk" not in refused.result.replace("'desk__echo'", "")
    assert refused.arguments == text
    assert added.result == "3"
    loaded = Conversation.from_json(Conversation([turn]).to_json())
    assert_valid(loaded.messages)


@pytest.mark.defect("A7")
def test_a_person_who_nests_arguments_too_deep_is_told_so_and_not_the_server(
    desk: Desk, tmp_path: Path
) -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    around: list[Any] = []
    around.append(around)
    with Session({}, in_process={"desk": desk.mcp}) as session:
        for value in (deep, around):
            with pytest.raises(UsageError, match="nested"):
                session.tools.call("desk:echo", value=value)
        session.chat("Hi", model=scripted_model("Hello."))
        assert session.export(tmp_path / "chat.json").exists()


@pytest.mark.defect("A7")
async def test_a_structured_result_nested_too_deep_is_left_out_with_a_note(
    chat: McpToolChat,
) -> None:
    deep = "[" * 98 + "]" * 98
    fits = await ask(chat, raw(("a", "desk__echo", f'{{"value": {deep}}}')), "ok")
    assert fits.tool_calls[0].structured is not None
    deeper: FastMCP[Any] = FastMCP("deeper")

    @deeper.tool
    def dig() -> ToolResult:
        """Dig."""
        value: list[Any] = []
        for _ in range(150):
            value = [value]
        return ToolResult(content="dug", structured_content={"value": value})

    async with McpToolChat.from_config({}, in_process={"deeper": deeper}) as other:
        turn = await ask(other, call("deeper__dig"), "ok")
    assert turn.tool_calls[0].structured is None
    assert turn.tool_calls[0].result.startswith("dug")
    assert Conversation.from_json(Conversation([turn]).to_json())[0].tool_calls[0].status == "ok"


@pytest.mark.defect("C2")
async def test_a_turn_and_its_call_are_running_while_they_run(
    chat: McpToolChat, desk: Desk
) -> None:
    turn = Turn(Trace())
    options = TurnOptions(model=scripted_model(call("desk__hang"), "never"))
    task = asyncio.create_task(chat.run([UserMessage(content="x")], options, turn=turn))
    await asyncio.wait_for(desk.hanging.wait(), 30)
    assert turn.status == "running"
    assert turn.tool_calls[0].status == "running"
    assert "running" in repr(turn)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert turn.status == "stopped"
    assert turn.tool_calls[0].status == "stopped"


@pytest.mark.defect("C2")
async def test_a_call_without_an_end_is_unknown_and_no_file_has_a_running_turn(
    chat: McpToolChat,
) -> None:
    turn = await ask(chat, call("desk__add", a=1, b=2), "3")
    lost = Turn(Trace(event for event in turn.trace if not isinstance(event, ToolFinished)))
    assert lost.tool_calls[0].status == "unknown"
    assert results_of(lost.messages) == [UNANSWERED]
    cut = Trace(list(turn.trace)[:-1])
    assert Turn(cut).status == "running"
    assert Conversation.from_json(cut.to_json())[0].status == "stopped"


@pytest.mark.defect("C17")
async def test_calls_are_counted_by_the_tool_whatever_spelling_the_model_used(
    chat: McpToolChat,
) -> None:
    names = ["desk__add", "add", "desk:add", "desk_add"]
    turn = await ask(
        chat,
        calls(*(Call(name, {"a": 1, "b": 2}) for name in names)),
        calls(Call("nope", {}), Call("not", {})),
        "ok",
    )
    assert [c.status for c in turn.tool_calls] == ["ok"] * 4 + ["error"] * 2
    assert turn.stats.tool_calls.by_tool == {"desk__add": 4, "_unknown": 2}
    assert turn.stats.tool_calls.by_server == {"desk": 4, "_unknown": 2}
    assert turn.stats.tool_calls.total == 6
    old = Trace(turn.trace)
    assert Turn(Trace.from_json(old.to_json())).stats.tool_calls == turn.stats.tool_calls


@pytest.mark.defect("B5")
@pytest.mark.parametrize("name", ["r.t", "x" * 14_000, "a\x1b[31mred", "", "wo ist/das", "ä"])
async def test_names_that_a_model_invents_are_clean_wherever_they_go(
    chat: McpToolChat, name: str
) -> None:
    turn = await ask(chat, raw(("a", name, "{}")), "ok")
    (made,) = turn.tool_calls
    names = [made.name, *turn.stats.tool_calls.by_tool]
    names += [c.function.name for m in turn.messages for c in getattr(m, "tool_calls", None) or ()]
    names += [m.name for m in turn.messages if m.role == "tool"]
    assert all(NAME.fullmatch(each) for each in names), names
    assert_valid(turn.messages)
    assert name in made.name or len(turn.trace.to_json()) < 12_000


@pytest.mark.defect("B5")
async def test_a_tool_name_with_characters_that_providers_refuse_becomes_its_wire_name(
    chat: McpToolChat,
) -> None:
    turn = await ask(chat, raw(("a", "desk:add", '{"a": 1, "b": 2}')), "3")
    assert turn.tool_calls[0].result == "3"
    assert turn.tool_calls[0].name == "desk__add"


@pytest.mark.defect("B5")
async def test_at_most_the_set_number_of_calls_in_one_answer_runs(desk: Desk) -> None:
    async with McpToolChat.from_config({}, in_process={"desk": desk.mcp}) as chat:
        turn = await ask(chat, calls(*(call("desk__send", to=str(i)) for i in range(1_000))), "ok")
    assert len(desk.ran) == 64
    assert [c.status for c in turn.tool_calls] == ["ok"] * 64 + ["error"] * 936
    assert any("1,000" in notice.text for notice in turn.notices)
    assert_valid(turn.messages)


@pytest.mark.defect("B5")
async def test_the_environment_sets_how_many_calls_of_an_answer_run(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_MAX_CALLS_PER_STEP", "3")
    async with McpToolChat.from_config({}, in_process={"desk": desk.mcp}) as chat:
        await ask(chat, calls(*(call("desk__send", to=str(i)) for i in range(5))), "ok")
    assert len(desk.ran) == 3


@pytest.mark.defect("B6")
async def test_a_repeated_failing_call_is_reported_after_three_and_ends_after_five(
    chat: McpToolChat, desk: Desk
) -> None:
    turn = await ask(chat, *(call("desk__fail") for _ in range(50)))
    assert turn.status == "failed"
    assert desk.ran == ["fail"] * 5
    told = ["again" in c.result for c in turn.tool_calls]
    assert told == [False, False, True, True, True]
    with pytest.raises(RepeatedCallError, match="the disk is full"):
        turn.raise_for_status()
    assert_valid(turn.messages)
    after = await ask(chat, "I cannot.", history=turn.messages)
    assert after.status == "done"


@pytest.mark.defect("G6")
async def test_a_repeated_successful_call_is_reported_and_the_error_has_its_last_result(
    chat: McpToolChat,
) -> None:
    chat.limits = replace(chat.limits, max_steps=5)
    turn = await ask(chat, *(call("desk__add", a=17, b=23) for _ in range(50)))
    assert [("again" in c.result, c.result.startswith("40")) for c in turn.tool_calls] == [
        (False, True),
        (False, True),
        (True, True),
        (True, True),
        (True, True),
    ]
    assert [notice.server for notice in turn.notices] == ["desk"]
    with pytest.raises(MaxIterationsError, match=r"desk:add.*40"):
        turn.raise_for_status()
    assert_valid(turn.messages)


@pytest.mark.defect("G6")
async def test_other_arguments_another_result_or_one_step_are_not_a_repetition(
    chat: McpToolChat,
) -> None:
    count = iter(range(100))
    chat.add_tool(lambda: next(count), name="take")
    varied = await ask(
        chat,
        *(call("desk__add", a=i, b=1) for i in range(6)),
        *(call("notebook__take") for _ in range(6)),
        "5",
    )
    together = await ask(chat, calls(*(call("desk__add", a=1, b=1) for _ in range(6))), "2")
    for turn in (varied, together):
        assert turn.status == "done"
        assert [each for each in turn.tool_calls if "again" in each.result] == []
        assert len(turn.notices) == 0


@pytest.mark.defect("B6")
async def test_other_arguments_another_error_or_one_step_are_no_repetition(
    chat: McpToolChat,
) -> None:
    varied = await ask(chat, *(call("desk__fail", why=str(i)) for i in range(10)), "I cannot.")
    assert varied.status == "done"
    at_once = await ask(chat, calls(*(call("desk__fail") for _ in range(10))), "I cannot.")
    assert at_once.status == "done"


@pytest.mark.defect("B6")
async def test_a_call_with_arguments_that_cannot_be_read_counts_as_the_same_failure(
    chat: McpToolChat,
) -> None:
    turn = await ask(chat, *(raw((str(i), "desk__add", '{"a": 1')) for i in range(50)))
    assert len(turn.tool_calls) == 5
    with pytest.raises(RepeatedCallError):
        turn.raise_for_status()


@pytest.mark.defect("B6")
@pytest.mark.parametrize("name", ["add", "DESK__ADD", "desk-add", "Desk_Add", "ADD"])
async def test_a_name_that_fits_one_tool_runs_it_or_is_told_that_tools_name(name: str) -> None:
    two: FastMCP[Any] = FastMCP("off")
    two.tool(lambda a, b: 0, name="add")
    async with McpToolChat.from_config({}, in_process={"desk": Desk().mcp, "off": two}) as chat:
        chat.selection.servers["off"] = "off"
        turn = await ask(chat, Call(name, {"a": 1, "b": 2}), "ok")
    (made,) = turn.tool_calls
    assert made.result == "3" or "'desk__add'" in made.result
    assert "off__add" not in made.result


@pytest.mark.defect("B6")
async def test_a_bare_name_that_fits_several_tools_is_answered_with_all_of_them() -> None:
    servers = {"desk": Desk().mcp, "other": Desk().mcp}
    async with McpToolChat.from_config({}, in_process=servers) as chat:
        turn = await ask(chat, call("add", a=1, b=2), "ok")
    assert "'desk__add'" in turn.tool_calls[0].result
    assert "'other__add'" in turn.tool_calls[0].result


@pytest.mark.defect("B4")
async def test_only_the_first_and_last_of_many_progress_reports_are_recorded(
    chat: McpToolChat,
) -> None:
    turn = await ask(chat, call("desk__chatter"), "ok")
    reports = [event.progress for event in turn.trace.of(ToolProgress)]
    assert reports[0] == 1
    assert reports[-1] == 2_000
    assert len(reports) < 500
    assert turn.tool_calls[0].progress is not None
    (notice,) = turn.notices
    assert notice.server == "desk"
    assert f"{2_000 - len(reports):,}" in notice.text


async def test_few_reports_of_progress_leave_nothing_out(chat: McpToolChat) -> None:
    turn = await ask(chat, call("desk__chatter", times=1), "ok")
    assert [event.progress for event in turn.trace.of(ToolProgress)] == [1]
    assert turn.notices == []
