"""Functions of a notebook in a session: offered, called where their objects live, replaced,
refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pandas
import pytest
from matplotlib.figure import Figure

from casual_mcp_nb import Conversation, Session, ToolContext, ToolOutput, Turn
from casual_mcp_nb.base.tool import ToolAnnotations
from casual_mcp_nb.conversation.event import Notice
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.providers.scripted import call, calls, scripted_model
from casual_mcp_nb.views import transcript_html


class Opaque:
    def __repr__(self) -> str:
        return "<opaque>"


@pytest.fixture
def session() -> Iterator[Session]:
    with Session.from_config({}) as session:
        yield session


def asks(*answers: Any) -> Any:
    return scripted_model(*answers, "done")


def test_a_function_is_called_on_the_thread_that_waits(session: Session) -> None:
    threads = []

    @session.tool
    def where(city: str) -> str:
        """Say where a city is."""
        threads.append(threading.current_thread())
        return f"{city} is far"

    turn = session.chat("Where is Tokyo?", model=asks(calls(call("notebook__where", city="Tokyo"))))
    assert turn.tool_calls[0].result == "Tokyo is far"
    assert threads == [threading.current_thread()]
    assert session.servers["notebook"].state == "ready"
    assert session.stats.tool_calls.by_server["notebook"] == 1


async def test_functions_run_on_a_worker_and_async_ones_on_the_awaiting_callers_loop(
    session: Session,
) -> None:
    here = asyncio.get_running_loop()
    seen: dict[str, Any] = {}

    @session.tool
    def slow() -> None:
        seen["thread"] = threading.current_thread()

    @session.tool
    async def quick() -> None:
        seen["loop"] = asyncio.get_running_loop()

    model = asks(calls(call("notebook__slow"), call("notebook__quick")))
    turn = await session.chat_async("Both", model=model)
    assert [each.status for each in turn.tool_calls] == ["ok", "ok"]
    assert seen["thread"] is not threading.current_thread()
    assert seen["loop"] is here


async def test_an_async_tool_on_the_callers_loop_can_fail_and_is_cancelled_with_its_turn(
    session: Session,
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    @session.tool
    async def fail() -> None:
        """Fail."""
        raise KeyError("no such city")

    @session.tool
    async def wait() -> None:
        """Wait for ever."""
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            raise

    turn = await session.chat_async("Fail", model=asks(call("notebook__fail")))
    assert (turn.status, turn.tool_calls[0].status) == ("done", "error")
    assert "no such city" in turn.tool_calls[0].result
    running = asyncio.create_task(session.chat_async("Wait", model=asks(call("notebook__wait"))))
    await asyncio.wait_for(began.wait(), 20)
    session.stop()
    assert (await running).tool_calls[0].status == "stopped"
    await asyncio.wait_for(ended.wait(), 20)


async def test_a_blocking_call_that_holds_the_loop_of_an_async_tool_is_told(
    session: Session,
) -> None:
    @session.tool
    async def never() -> None: ...

    turn = session.chat("Go", model=asks(calls(call("notebook__never"))))
    assert turn.tool_calls[0].status == "error"
    assert "chat_async" in turn.tool_calls[0].result


def test_an_async_tool_runs_in_a_script_that_blocks(session: Session) -> None:
    @session.tool
    async def late() -> str:
        await asyncio.sleep(0)
        return "here"

    assert session.tools.call("notebook:late").result == "here"


def test_a_cell_that_runs_again_replaces_its_tool_without_a_notice(session: Session) -> None:
    for size in (1, 2):

        def grow(by: int = size) -> int:
            return by

        destructive = ToolAnnotations(destructive=size == 2)
        session.tools.add(
            grow, description=f"Grow by {size}.", annotations=destructive, approval="never"
        )
        turn = session.chat("Grow", model=asks(calls(call("notebook__grow"))))
    assert [tool.name for tool in session.tools.of_server("notebook")] == ["grow"]
    assert turn.tool_calls[0].result == "2"
    assert not session.tools.changed
    assert not [event for event in turn.trace.of(Notice) if "changed" in event.text]


@pytest.mark.defect("F22")
def test_a_destructive_function_is_denied_in_a_script_without_a_policy(session: Session) -> None:
    def wipe() -> str:
        return "wiped"

    session.tools.add(wipe, annotations=ToolAnnotations(destructive=True))
    (denied,) = session.chat("Wipe", model=asks(calls(call("notebook__wipe")))).tool_calls
    assert denied.status == "denied"
    assert 'approval="never"' in denied.result
    session.tools.add(wipe, annotations=ToolAnnotations(destructive=True), approval="never")
    assert (
        session.chat("Wipe", model=asks(calls(call("notebook__wipe")))).tool_calls[0].result
        == "wiped"
    )


def test_a_tool_that_raises_reaches_the_model_as_text_and_the_person_as_a_traceback(
    session: Session,
) -> None:
    @session.tool
    def broken() -> None:
        raise ValueError("no such column")

    turn = session.chat("Go", model=asks(calls(call("notebook__broken"))))
    assert turn.tool_calls[0].result == "Error: ValueError: no such column"
    (line,) = session.servers.log("notebook").lines
    assert "raise ValueError" in line.text
    assert "callers.py" not in line.text


async def test_a_function_that_exits_ends_its_call_only(session: Session) -> None:
    @session.tool
    def leave() -> None:
        raise SystemExit

    turn = await session.chat_async("Go", model=asks(calls(call("notebook__leave"))))
    assert turn.status == "done"
    assert "SystemExit" in turn.tool_calls[0].result


async def test_a_function_that_raises_stop_iteration_ends_its_call_only(session: Session) -> None:
    @session.tool
    def first() -> Any:
        return next(iter(()))

    # No future takes that error: each way to another thread has to pass it on.
    for turn in (
        session.chat("Go", model=asks(calls(call("notebook__first")))),
        await session.chat_async("Go", model=asks(calls(call("notebook__first")))),
    ):
        assert turn.status == "done"
        assert turn.tool_calls[0].status == "error"
        assert "StopIteration" in turn.tool_calls[0].result


def test_wrong_arguments_are_an_error_for_the_model(session: Session) -> None:
    @session.tool
    def double(number: int) -> int:
        return 2 * number

    turn = session.chat("Go", model=asks(calls(call("notebook__double", number="many"))))
    assert turn.tool_calls[0].status == "error"
    assert "number" in turn.tool_calls[0].result


def test_payloads_stay_here_and_out_of_what_is_saved(session: Session, tmp_path: Any) -> None:
    payload = object()
    session.tools.add(lambda: ToolOutput("short", payload), name="compute")
    turn = session.chat("Go", model=asks(calls(call("notebook__compute"))))
    assert turn.payloads == [payload]
    session.export(tmp_path / "chat.json")
    (loaded,) = Conversation.load(tmp_path / "chat.json")
    assert loaded.tool_calls[0].result == "short"
    assert loaded.payloads == []


def test_payloads_are_shown_here_and_only_named_in_files(session: Session, tmp_path: Any) -> None:
    table = pandas.DataFrame({"city": ["<i>Oslo</i>"] * 1_200, "price": range(1_200)})
    figure = Figure()
    session.tools.add(lambda: ToolOutput("many", table), name="orders")
    session.tools.add(lambda: ToolOutput("drawn", figure), name="plot")
    session.tools.add(lambda: ToolOutput("done", Opaque()), name="other")
    names = ("orders", "plot", "other")
    turn = session.chat("Go", model=asks(calls(*(call(f"notebook__{name}") for name in names))))
    html = turn._repr_html_()
    assert html.count("<table") > turn_without_payloads(turn)._repr_html_().count("<table")
    assert "data:image/png" in html
    assert "data:image/png" in transcript_html(turn)
    assert "&lt;i&gt;Oslo" in html
    assert "<i>Oslo" not in html
    assert "&lt;opaque&gt;" in html
    assert "Oslo" in turn._repr_markdown_()
    direct = session.tools.call("notebook:orders")
    assert "Oslo" in direct._repr_html_()
    for name in ("chat.html", "chat.md", "chat.json"):
        text = session.export(tmp_path / name).read_text()
        assert "1,200 rows" in text
        assert not any(word in text for word in ("Oslo", "image/png", "opaque"))
    (loaded,) = Conversation.load(tmp_path / "chat.json")
    assert "1,200 rows" in loaded._repr_html_()


def turn_without_payloads(turn: Turn) -> Turn:
    (bare,) = Conversation([turn]).as_in_a_file()
    return bare


def test_progress_and_log_of_a_function_are_those_of_a_server(session: Session) -> None:
    @session.tool
    def work(context: ToolContext) -> None:
        context.progress(1, 2, "half")
        context.log("working")

    turn = session.chat("Go", model=asks(calls(call("notebook__work"))))
    assert turn.tool_calls[0].status == "ok"
    assert [line.text for line in session.servers.log("notebook").lines] == ["working"]


def test_the_policy_of_a_tool_decides_who_is_asked(session: Session) -> None:
    session.tools.add(lambda: "paid", name="pay", approval="always")
    future = session.submit("Pay", model=asks(calls(call("notebook__pay"))))
    question: Any = session.questions.wait()
    question.deny()
    assert future.result(60).tool_calls[0].status == "denied"


def test_tools_of_the_notebook_are_deferred_found_and_removed(session: Session) -> None:
    session.tools.add(lambda: "sunny", name="forecast", description="Tell the weather of tomorrow.")
    session.selection.discovery = True
    session.selection.servers["notebook"] = "deferred"
    assert session.search("weather tomorrow")[0].tool.name == "forecast"
    session.tools.remove("forecast")
    assert len(session.tools) == 0
    with pytest.raises(UnknownNameError):
        session.tools.remove("forecast")


def test_an_object_with_the_four_names_is_a_tool(session: Session) -> None:
    class Echo:
        name = "echo"
        description = "Say it again."
        input_schema = {"type": "object", "properties": {"text": {"type": "string"}}}  # noqa: RUF012

        async def execute(self, arguments: Any) -> str:
            return str(arguments["text"])

    session.tools.add(Echo)
    assert session.tools.call("notebook:echo", text="hi").result == "hi"
    with pytest.raises(UsageError):
        session.tools.add(Echo, inject={"a": 1})
