"""Turns, through a real in-memory MCP server and a model that plays a list."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    UserMessage,
)
from fastmcp import Context, FastMCP
from kit.history import assert_valid
from kit.turns import ask

from casual_mcp_nb import ToolContext
from casual_mcp_nb.base.config import Config, ToolSetConfig
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.conversation.event import (
    Event,
    TextDelta,
    ToolFinished,
    ToolProgress,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.conversation.step import ModelResponse
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.engine.answers import MAX_PIECE
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.consent import ApprovalRequest
from casual_mcp_nb.engine.options import TurnLimits, TurnOptions
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.errors import MaxIterationsError, ProviderError, ToolSetError, UnknownNameError
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.servers.handlers import Handlers
from casual_mcp_nb.servers.server_manager import ServerManager


class Server:
    """An in-memory server with tools that the tests need, and a record of every call that reached
    it.
    """

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.meta: list[Any] = []
        self.running = 0
        self.most_running = 0
        self.hanging = asyncio.Event()
        self.mcp = FastMCP("lab")
        for tool in (
            self.add,
            self.fail,
            self.table,
            self.hang,
            self.slow,
            self.long,
            self.context,
        ):
            self.mcp.tool(tool)

    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        self.seen.append("add")
        return a + b

    def fail(self) -> str:
        """Always fail."""
        self.seen.append("fail")
        raise ValueError("the disk is full")

    def table(self) -> dict[str, int]:
        """Give structured content."""
        self.seen.append("table")
        return {"answer": 42}

    async def hang(self) -> str:
        """Never answer."""
        self.seen.append("hang")
        self.hanging.set()
        await asyncio.Event().wait()
        return "never"

    async def slow(self, ctx: Context) -> str:
        """Report progress, and say how many calls ran at once."""
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await ctx.report_progress(1, 2, "half")
        await asyncio.sleep(0.02)
        self.running -= 1
        return "done"

    def long(self) -> str:
        """Give a long text."""
        return "x" * 1_000_000

    def context(self, ctx: Context) -> str:
        """Note the meta of the request."""
        self.meta.append(dict(ctx.request_context.meta or {}))
        return "noted"


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def chat(server: Server) -> AsyncIterator[McpToolChat]:
    async with made(server) as chat:
        yield chat


def made(server: Server, **more: Any) -> McpToolChat:
    selection = Selection.model_validate(
        {"servers": {"lab": "loaded"}, **more.pop("selection", {})}
    )
    server_manager = ServerManager({}, in_process={"lab": server.mcp}, handlers=Handlers())
    return McpToolChat(
        server_manager, ModelFactory(Config()), ChatSetup(selection=selection, **more)
    )


async def test_a_tool_is_called_and_its_result_reaches_the_model(chat: McpToolChat) -> None:
    model = scripted_model(call("lab__add", a=1, b=2), "It is 3.")
    turn = await chat.run([UserMessage(content="1 + 2?")], TurnOptions(model=model))
    assert turn.status == "done"
    assert turn.answer == "It is 3."
    assert [c.result for c in turn.tool_calls] == ["3"]
    assert turn.tool_calls[0].structured == {"result": 3}
    assert model.client.requests[1].messages[-1].content == "3"
    assert turn.stats.tool_calls.by_tool == {"lab__add": 1}
    assert turn.stats.tool_calls.by_server == {"lab": 1}
    assert turn.stats.llm_calls == 2
    assert_valid(turn.messages)


async def test_the_casual_mcp_names_answer_a_list_of_new_messages(chat: McpToolChat) -> None:
    messages = await chat.chat(
        [UserMessage(content="1 + 2?")], model=scripted_model(call("lab__add", a=1, b=2), "3")
    )
    assert [message.role for message in messages] == ["assistant", "tool", "assistant"]
    stats = chat.get_stats()
    assert stats is not None
    assert stats.tool_calls.total == 1


async def test_chat_is_a_fold_over_the_events_of_stream(chat: McpToolChat) -> None:
    events = [
        event
        async for event in chat.stream(
            "1 + 2?", model=scripted_model(call("lab__add", a=1, b=2), "3")
        )
    ]
    assert isinstance(events[0], TurnStarted)
    assert isinstance(events[-1], TurnFinished)
    names = [type(event).__name__ for event in events]
    assert names.index("ToolStarted") < names.index("ToolFinished")


async def test_results_keep_the_order_of_the_calls_whichever_ends_first(chat: McpToolChat) -> None:
    turn = await ask(
        chat, calls(call("lab__slow"), call("lab__add", a=1, b=1), call("lab__fail")), "ok"
    )
    assert [c.name for c in turn.tool_calls] == ["lab__slow", "lab__add", "lab__fail"]
    assert [m.content for m in turn.messages if m.role == "tool"][:2] == ["done", "2"]
    assert_valid(turn.messages)


@pytest.mark.fault(25)
async def test_a_tools_own_error_text_reaches_the_model(chat: McpToolChat) -> None:
    turn = await ask(chat, call("lab__fail"), "Sorry.")
    (failed,) = turn.tool_calls
    assert failed.status == "error"
    assert failed.result.startswith("Error")
    assert "the disk is full" in failed.result


async def test_structured_content_stays_beside_the_text(chat: McpToolChat) -> None:
    turn = await ask(chat, call("lab__table"), "42")
    assert turn.tool_calls[0].structured == {"answer": 42}
    assert json.loads(turn.tool_calls[0].result) == {"answer": 42}


@pytest.mark.fault(37)
async def test_at_most_the_set_number_of_calls_run_at_once_and_all_have_a_result(
    server: Server,
) -> None:
    async with made(server, limits=TurnLimits(parallel_calls=4, max_calls_per_step=100)) as chat:
        turn = await ask(chat, calls(*(call("lab__slow") for _ in range(100))), "ok")
    assert len(turn.tool_calls) == 100
    assert {c.status for c in turn.tool_calls} == {"ok"}
    assert 1 < server.most_running <= 4
    assert_valid(turn.messages)


async def test_nested_calls_need_none_of_the_places_that_the_calls_around_them_have(
    server: Server,
) -> None:
    both = asyncio.Event()
    waiting = 0

    async def meet() -> str:
        nonlocal waiting
        waiting += 1
        if waiting == 2:
            both.set()
        await both.wait()
        return "met"

    async def gather(context: ToolContext) -> str:
        nested = (context.call_tool_async("notebook:meet") for _ in range(2))
        return ", ".join(call.result for call in await asyncio.gather(*nested))

    async with made(server, limits=TurnLimits(parallel_calls=1)) as chat:
        chat.add_tool(meet)
        chat.add_tool(gather)
        both_calls = calls(call("notebook__gather"), call("notebook__gather"))
        turn = await asyncio.wait_for(ask(chat, both_calls, "ok"), 30)
    assert [c.result for c in turn.tool_calls] == ["met, met"] * 2


async def test_progress_of_a_tool_is_on_the_trace(chat: McpToolChat) -> None:
    turn = await ask(chat, call("lab__slow"), "ok")
    assert [
        (event.progress, event.total, event.message) for event in turn.trace.of(ToolProgress)
    ] == [(1, 2, "half")]


@pytest.mark.fault(47)
async def test_a_tool_outside_the_toolset_is_not_run(chat: McpToolChat, server: Server) -> None:
    turn = await ask(
        chat, call("lab__fail"), "ok", tool_set=ToolSetConfig(servers={"lab": ("add",)})
    )
    assert server.seen == []
    assert "is not available" in turn.tool_calls[0].result
    assert "lab__add" in turn.tool_calls[0].result


@pytest.mark.fault(48)
async def test_a_toolset_with_an_unknown_tool_is_refused_before_the_model_is_called(
    chat: McpToolChat,
) -> None:
    model = scripted_model("never")
    with pytest.raises(ToolSetError, match=r"ad.*add"):
        await chat.run(
            [UserMessage(content="x")],
            TurnOptions(model=model, tool_set=ToolSetConfig(servers={"lab": ("ad",)})),
        )
    assert model.client.requests == []
    with pytest.raises(UnknownNameError):
        await chat.run(
            [UserMessage(content="x")], TurnOptions(model=model, tool_set="nothing like it")
        )


@pytest.mark.fault(53)
@pytest.mark.parametrize(
    ("arguments", "status"),
    [("", "ok"), ("null", "ok"), ("{", "error"), ("[1]", "error"), ('"x"', "error")],
)
async def test_arguments_that_are_no_object_are_an_error_and_nothing_is_no_arguments(
    chat: McpToolChat, arguments: str, status: str
) -> None:
    def tool_call(id: str, name: str, text: str) -> AssistantToolCall:
        return AssistantToolCall(
            id=id, function=AssistantToolCallFunction(name=name, arguments=text)
        )

    message = AssistantMessage(
        content="",
        tool_calls=[
            tool_call("a", "lab__table", arguments),
            tool_call("b", "lab__add", '{"a": 1, "b": 1}'),
        ],
    )
    turn = await ask(chat, message, "ok")
    assert [c.status for c in turn.tool_calls] == [status, "ok"]
    assert_valid(turn.messages)


@pytest.mark.fault(54)
async def test_an_unknown_tool_is_answered_with_the_closest_names(chat: McpToolChat) -> None:
    turn = await ask(chat, call("lab__ad", a=1, b=2), "ok")
    assert turn.tool_calls[0].status == "error"
    assert "Did you mean 'lab__add'" in turn.tool_calls[0].result


@pytest.mark.fault(55)
async def test_ids_that_are_empty_or_double_are_made_unique_over_the_whole_conversation(
    chat: McpToolChat,
) -> None:
    def answer(*ids: str) -> AssistantMessage:
        function = AssistantToolCallFunction(name="lab__add", arguments='{"a": 1, "b": 1}')
        return AssistantMessage(
            content="", tool_calls=[AssistantToolCall(id=id, function=function) for id in ids]
        )

    first = await ask(chat, answer("x", "x", "", ""), answer("x"), "ok")
    second = await ask(chat, answer("x"), "ok", history=first.messages)
    assert_valid(first.messages)
    ids = [c.id for c in (*first.tool_calls, *second.tool_calls)]
    assert len(set(ids)) == len(ids) == 6


@pytest.mark.fault(56)
async def test_an_empty_answer_leaves_no_message_that_a_provider_would_refuse(
    chat: McpToolChat,
) -> None:
    turn = await ask(chat, "")
    assert turn.status == "done"
    assert [message.role for message in turn.messages] == ["user"]


@pytest.mark.fault(57)
async def test_a_model_that_keeps_calling_tools_ends_at_the_limit_with_its_steps(
    chat: McpToolChat,
) -> None:
    turn = await ask(chat, *(call("lab__add", a=i, b=i) for i in range(9)), max_steps=3)
    assert turn.status == "failed"
    assert "3 steps" in (turn.error or "")
    assert len(turn.tool_calls) == 3
    assert_valid(turn.messages)
    with pytest.raises(MaxIterationsError):
        turn.raise_for_status()
    after = await ask(chat, "Here is what I have.", history=turn.messages)
    assert after.status == "done"


@pytest.mark.fault(65)
async def test_a_model_that_fails_in_the_second_round_loses_nothing_of_the_first(
    chat: McpToolChat, server: Server
) -> None:
    turn = await ask(chat, call("lab__add", a=1, b=2), ProviderError("overloaded"))
    assert turn.status == "failed"
    assert "overloaded" in (turn.error or "")
    assert [message.role for message in turn.messages] == ["user", "assistant", "tool"]
    after = await ask(chat, "3", history=turn.messages)
    assert after.status == "done"
    assert server.seen == ["add"]


@pytest.mark.fault(67)
async def test_usage_is_what_the_answer_reported_and_unknown_where_it_did_not(
    chat: McpToolChat,
) -> None:
    reported = ModelResponse(AssistantMessage(content="ok"), TokenUsage(100, 5))
    turn = await ask(chat, call("lab__add", a=1, b=2), reported)
    assert turn.stats.tokens.prompt_tokens == 100
    assert turn.stats.tokens.completion_tokens == 5
    assert turn.stats.tokens.unknown_calls == 1
    first, second = turn.steps
    assert first.usage is None
    assert first.request.tokens.origin == "estimated"
    assert second.request.tokens.origin == "reported"
    assert second.request.tokens.total == 100
    silent = await ask(chat, "ok")
    assert silent.stats.tokens.total_tokens is None


@pytest.mark.fault(69)
async def test_a_cancelled_turn_keeps_what_it_had_and_the_next_one_works(
    chat: McpToolChat, server: Server
) -> None:
    turn = Turn(Trace())
    model = scripted_model(calls(call("lab__add", a=1, b=2), call("lab__hang")), "never")
    added = asyncio.Event()

    def note(event: Event) -> None:
        if isinstance(event, ToolFinished):
            added.set()

    task = asyncio.create_task(
        chat.run([UserMessage(content="x")], TurnOptions(model=model), turn=turn, on_event=note)
    )
    await asyncio.wait_for(asyncio.gather(server.hanging.wait(), added.wait()), 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert turn.status == "stopped"
    assert [c.status for c in turn.tool_calls] == ["ok", "stopped"]
    assert_valid(turn.messages)
    after = await ask(chat, call("lab__add", a=2, b=2), "4", history=turn.messages)
    assert after.answer == "4"


async def test_leaving_a_stream_early_stops_the_turn(chat: McpToolChat, server: Server) -> None:
    stream = chat.stream("x", model=scripted_model(call("lab__hang"), "never"))
    async for event in stream:
        if type(event).__name__ == "ToolStarted":
            await asyncio.wait_for(server.hanging.wait(), 30)
            break
    await stream.aclose()
    after = await ask(chat, "fine")
    assert after.status == "done"


async def test_a_long_result_is_cut_for_the_model_and_kept_whole_as_a_value(server: Server) -> None:
    async with made(server, limits=TurnLimits(result_tokens=100)) as chat:
        turn = await ask(chat, call("lab__long"), "ok")
    (long,) = turn.tool_calls
    assert len(long.result) < 600
    assert "1,000,000 characters" in long.result
    assert len(long.value) == 1_000_000


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("result", "3"),
        ("function_result", "lab__add → 3"),
        ("function_args_result", "lab__add(a=1, b=2) → 3"),
    ],
)
async def test_results_are_put_to_the_model_in_the_set_format(
    server: Server, style: Any, text: str
) -> None:
    async with made(server, limits=TurnLimits(result_format=style)) as chat:
        turn = await ask(chat, call("lab__add", a=1, b=2), "ok")
    assert turn.tool_calls[0].result == text


async def test_meta_is_handed_through_to_the_server(chat: McpToolChat, server: Server) -> None:
    await ask(chat, call("lab__context"), "ok", meta={"user": "ada"})
    assert server.meta[0]["user"] == "ada"


@pytest.mark.parametrize(("answer", "status"), [(True, "ok"), (False, "denied"), (None, "denied")])
async def test_a_call_that_needs_approval_runs_only_when_a_person_says_so(
    answer: bool | None, status: str
) -> None:
    asked: list[ApprovalRequest] = []

    async def approve(request: ApprovalRequest) -> bool:
        asked.append(request)
        return bool(answer)

    config = {
        "servers": {"math": {"bundled": "math", "transport": "in-process", "approval": "always"}}
    }
    async with McpToolChat.from_config(
        config, approver=None if answer is None else approve
    ) as chat:
        turn = await ask(chat, call("math__add", a=1, b=2), "ok")
    assert turn.tool_calls[0].status == status
    assert ("3" in turn.tool_calls[0].result) == (status == "ok")
    assert [request.arguments for request in asked] == (
        [] if answer is None else [{"a": 1, "b": 2}]
    )
    assert_valid(turn.messages)


@pytest.mark.parametrize("answer", [True, False])
async def test_the_time_that_a_person_takes_to_approve_is_not_the_time_of_the_call(
    answer: bool,
) -> None:
    turn = Turn(Trace())
    waited: list[bool] = []

    async def approve(_: ApprovalRequest) -> bool:
        waited.append(turn.tool_calls[0].waiting)
        await asyncio.sleep(0.1)
        return answer

    config = {
        "servers": {"math": {"bundled": "math", "transport": "in-process", "approval": "always"}}
    }
    async with McpToolChat.from_config(config, approver=approve) as chat:
        options = TurnOptions(model=scripted_model(call("math__add", a=1, b=2), "ok"))
        await chat.run([UserMessage(content="x")], options, turn=turn)
    (made,), (end,) = turn.tool_calls, turn.trace.of(ToolFinished)
    assert waited == [True]
    assert not made.waiting
    assert made.waited > 0.08
    assert made.seconds == pytest.approx(end.at - made.at - made.waited)


async def test_an_explicit_system_prompt_overrides_a_message_and_that_the_template(
    chat: McpToolChat,
) -> None:
    from casual_llm.messages import SystemMessage

    model = scripted_model("a", "b", "c")
    await chat.chat(
        [SystemMessage(content="from the message"), UserMessage(content="x")],
        model=model,
        system="explicit",
    )
    await chat.chat(
        [SystemMessage(content="from the message"), UserMessage(content="x")], model=model
    )
    await chat.chat("x", model=model)
    systems = [request.messages[0].content for request in model.client.requests]
    assert systems[:2] == ["explicit", "from the message"]
    assert systems[2]


async def test_what_a_server_logs_in_a_turn_is_on_its_trace() -> None:
    chatty: FastMCP[Any] = FastMCP("chatty")

    @chatty.tool
    async def work(ctx: Context) -> str:
        """Work and talk about it."""
        await ctx.warning("half way")
        return "done"

    chat = McpToolChat.from_config({}, in_process={"chatty": chatty})
    async with chat:
        turn = await ask(chat, call("chatty__work"), "ok")
    assert [(log.server, log.level, log.text) for log in turn.server_logs] == [
        ("chatty", "warning", "half way")
    ]


async def test_streamed_text_is_an_event_as_it_arrives(chat: McpToolChat) -> None:
    model = scripted_model("never used")

    class Streaming(type(model)):  # type: ignore[misc]
        async def complete(
            self, messages: Any, tools: Any = (), *, on_event: Any = None, **more: Any
        ) -> ModelResponse:
            for piece in ("Hel", "lo"):
                on_event(piece)
            return ModelResponse(AssistantMessage(content="Hello"))

    turn = await chat.run(
        [UserMessage(content="x")], TurnOptions(model=Streaming(model.client, "streaming"))
    )
    assert [delta.text for delta in turn.trace.of(TextDelta)] == ["Hel", "lo"]
    assert turn.answer == "Hello"


async def test_text_that_is_not_streamed_is_an_event_all_the_same(chat: McpToolChat) -> None:
    text = "word " * 2_000
    turn = await chat.run(
        [UserMessage(content="x")], TurnOptions(model=scripted_model(text), stream=False)
    )
    deltas = [delta.text for delta in turn.trace.of(TextDelta)]
    assert "".join(deltas) == turn.answer == text
    assert max(map(len, deltas)) <= MAX_PIECE
