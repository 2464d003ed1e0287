"""Functions of a notebook that call other tools: the same way, below their own call, ended with
it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import pytest

from casual_mcp_nb import Conversation, Inject, McpToolChat, Session, ToolContext
from casual_mcp_nb.conversation.event import ServerLog, ToolFinished, ToolStarted
from casual_mcp_nb.conversation.step import with_nested
from casual_mcp_nb.engine.nesting import MAX_NESTED_CALLS
from casual_mcp_nb.errors import ToolCallError, UsageError
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

CONFIG: dict[str, Any] = {"servers": {"math": {"bundled": "math", "transport": "in-process"}}}


@pytest.fixture
def session() -> Iterator[Session]:
    with Session.from_config(CONFIG) as session:
        yield session


def asks(name: str, **arguments: Any) -> Any:
    return scripted_model(calls(call(name, **arguments)), "done")


def twice(number: float, context: ToolContext) -> float:
    """Add a number to itself."""
    sum_of: float = context.call_tool("math:add", a=number, b=number).structured["result"]
    return sum_of


async def twice_async(number: float, context: ToolContext) -> float:
    """Add a number to itself."""
    sum_of: float = (await context.call_tool_async("math__add", a=number, b=number)).structured[
        "result"
    ]
    return sum_of


def test_a_function_calls_a_server_tool_and_only_the_functions_result_is_sent(
    session: Session, tmp_path: Any
) -> None:
    session.tools.add(twice)
    turn = session.chat("Double 2", model=asks("notebook__twice", number=2), echo="none")
    (outer,) = turn.tool_calls
    (inner,) = outer.nested
    assert (outer.result, inner.result, str(inner.tool)) == ("4.0", "4.0", "math:add")
    assert [event.parent for event in turn.trace.of(ToolStarted)] == [None, outer.id]
    assert [message.role for message in turn.messages] == ["user", "assistant", "tool", "assistant"]
    assert turn.stats.tool_calls.by_server == {"notebook": 1, "math": 1}
    assert all("↳" in text for text in turn._repr_mimebundle_().values())
    session.export(tmp_path / "chat.json")
    (loaded,) = Conversation.load(tmp_path / "chat.json")
    assert loaded.tool_calls[0].nested[0].result == "4.0"


async def test_an_async_function_awaits_its_calls_and_one_that_would_block_is_told(
    session: Session,
) -> None:
    session.tools.add(twice_async)

    @session.tool
    async def blocks(context: ToolContext) -> None:
        context.call_tool("math:add", a=1, b=2)

    turn = await session.chat_async(
        "Double 2", model=asks("notebook__twice_async", number=2), echo="none"
    )
    assert turn.tool_calls[0].result == "4.0"
    turn = await session.chat_async("Block", model=asks("notebook__blocks"), echo="none")
    assert "call_tool_async" in turn.tool_calls[0].result


def test_functions_that_call_each_other_share_the_thread_that_waits(session: Session) -> None:
    threads = []

    @session.tool
    def inner() -> str:
        threads.append(threading.current_thread())
        return "in"

    @session.tool
    async def between(context: ToolContext) -> str:
        return (await context.call_tool_async("inner")).result

    @session.tool
    def outer(context: ToolContext) -> str:
        threads.append(threading.current_thread())
        return context.call_tool("inner").result + context.call_tool("notebook:between").result

    turn = session.chat("Go", model=asks("notebook__outer"), echo="none")
    assert turn.tool_calls[0].result == "inin"
    assert threads[:2] == [threading.current_thread()] * 2
    # Its thread is busy with the loop of the async function.
    assert threads[2] is not threading.current_thread()
    assert session.tools.call("outer").result == "inin"


async def test_while_a_caller_awaits_nested_functions_run_on_workers_and_on_its_loop(
    session: Session,
) -> None:
    here = asyncio.get_running_loop()

    @session.tool
    async def inner() -> bool:
        return asyncio.get_running_loop() is here

    @session.tool
    def outer(context: ToolContext) -> str:
        return context.call_tool("inner").result

    turn = await session.chat_async("Go", model=asks("notebook__outer"), echo="none")
    assert turn.tool_calls[0].result == "True"


async def test_waiting_functions_leave_threads_for_nested_calls_without_a_notebook() -> None:
    async with McpToolChat.from_config({}) as chat:

        def down(depth: int, context: ToolContext) -> int:
            return 1 + int(context.call_tool("down", depth=depth - 1).result) if depth else 0

        chat.add_tool(down)
        many = calls(*(call("notebook__down", depth=4) for _ in range(8)))
        messages = await chat.chat("Go", model=scripted_model(many, "done"))
    assert [message.content for message in messages if message.role == "tool"] == ["4"] * 8


def test_calls_are_nested_only_so_deep(session: Session) -> None:
    @session.tool
    def endless(context: ToolContext) -> str:
        return context.call_tool("endless").result

    turn = session.chat("Go", model=asks("notebook__endless"), echo="none")
    assert len(list(with_nested(turn.tool_calls))) == 1 + MAX_NESTED_CALLS
    assert turn.tool_calls[0].status == "error"
    with pytest.raises(ToolCallError):
        session.tools.call("endless")


def test_a_nested_call_is_approved_or_denied_like_any_other(session: Session) -> None:
    session.tools.add(lambda: "paid", name="pay", approval="always")
    refused = []

    @session.tool
    def shop(context: ToolContext) -> str:
        try:
            return context.call_tool("pay").result
        except ToolCallError as error:
            refused.append(error)
            return "not paid"

    future = session.submit("Pay", model=asks("notebook__shop"))
    question: Any = session.questions.wait()
    question.deny("too dear")
    (outer,) = future.result(60).tool_calls
    assert (outer.result, outer.nested[0].status) == ("not paid", "denied")
    assert "too dear" in str(refused[0])


def test_stubs_answer_nested_calls_too(session: Session) -> None:
    session.tools.add(twice)
    with session.tools.mock({"math:*": lambda a, b: {"result": 100.0}}):
        turn = session.chat("Double 2", model=asks("notebook__twice", number=2), echo="none")
    (outer,) = turn.tool_calls
    assert (outer.result, outer.mocked, outer.nested[0].mocked) == ("100.0", False, True)
    assert all("mock" in text for text in turn._repr_mimebundle_().values())


async def test_a_nested_call_ends_with_the_call_around_it(session: Session) -> None:
    started, told = threading.Event(), threading.Event()

    @session.tool
    async def waits() -> None:
        started.set()
        await asyncio.Event().wait()

    @session.tool
    def outer(context: ToolContext) -> None:
        try:
            context.call_tool("waits")
        except ToolCallError:
            assert context.cancelled
            told.set()

    running = asyncio.ensure_future(
        session.chat_async("Go", model=asks("notebook__outer"), echo="none")
    )
    await asyncio.to_thread(started.wait, 60)
    await session.stop_async()
    turn = await running
    assert await asyncio.to_thread(told.wait, 60)
    assert turn.status == "stopped"
    assert [call.status for call in with_nested(turn.tool_calls)] == ["stopped", "stopped"]
    assert isinstance(turn.trace.since(len(turn.trace) - 2)[0], ToolFinished)


def test_an_unknown_name_and_what_is_no_json_are_errors_of_the_function(session: Session) -> None:
    @session.tool
    def lost(context: ToolContext) -> str:
        return context.call_tool("math:ad").result

    @session.tool
    def objects(context: ToolContext) -> str:
        return context.call_tool("math:add", a=object(), b=1).result

    model = scripted_model(calls(call("notebook__lost"), call("notebook__objects")), "done")
    first, second = session.chat("Go", model=model, echo="none").tool_calls
    assert "UnknownNameError" in first.result
    assert "math" in first.result
    assert "UsageError" in second.result


def test_what_a_function_logs_and_raises_is_shown_in_its_turn(session: Session) -> None:
    @session.tool
    def broken(context: ToolContext) -> None:
        context.log("looking")
        raise ValueError("no such column")

    turn = session.chat("Go", model=asks("notebook__broken"), echo="none")
    first, second = turn.trace.of(ServerLog)
    assert (first.server, first.text, second.level) == ("notebook", "looking", "error")
    assert "raise ValueError" in second.text
    assert "callers.py" not in second.text


def user_of(user: Annotated[str, Inject("user_id")], context: ToolContext) -> str:
    """Say who asks."""
    return f"{user} {sorted(context.values)}"


def test_the_conversation_context_fills_marked_parameters_and_is_never_recorded(
    session: Session, tmp_path: Any
) -> None:
    session.tools.add(user_of)
    session.tools.context = {"user_id": "ada", "token": "s3cret-value"}

    def ask(**options: Any) -> Any:
        return session.chat(
            "Who?", model=asks("notebook__user_of"), echo="none", **options
        ).tool_calls[0]

    assert ask().result == "ada ['token', 'user_id']"
    assert ask(context={"user_id": "eve"}).result.startswith("eve")
    assert session.tools.call("user_of").result.startswith("ada")
    for name in ("chat.json", "chat.html"):
        assert "s3cret-value" not in session.export(tmp_path / name).read_text(encoding="utf-8")
    session.conversations.new()
    assert session.tools.context == {}
    missing = ask()
    assert missing.status == "error"
    assert "user_id" in missing.result


def test_a_context_that_is_no_mapping_is_refused(session: Session) -> None:
    for wrong in (3, [("a", 1)], {1: 2}):
        with pytest.raises(UsageError):
            session.chat("Go", model=asks("x"), context=wrong, echo="none")  # type: ignore[arg-type]
