"""The options of a turn: spelled out in every signature, completed, and checked before anything is
sent.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from kit.setups import MATH, OFFLINE
from pydantic import BaseModel

from casual_mcp_nb import McpToolChat, Session
from casual_mcp_nb.base.config_base import RequestOptions
from casual_mcp_nb.base.model_options import ModelOptions
from casual_mcp_nb.conversation.event import TextDelta, TurnFinished, TurnStarted
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.engine.turn_fields import ChatOptions, NamedTurnFields
from casual_mcp_nb.errors import UnknownNameError, UsageError
from casual_mcp_nb.providers.scripted import call, scripted_model

CONFIG: dict[str, Any] = {
    **OFFLINE,
    "servers": {"math": MATH},
}
METHODS = ["chat", "chat_async", "stream", "submit", "rerun", "rerun_async", "panel"]


class Person(BaseModel):
    name: str


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session.from_config(CONFIG)
    yield session
    session.close()


async def _done(started: Any) -> Any:
    return await started if inspect.isawaitable(started) else started


@pytest.mark.defect("C4")
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("option", "nearest"),
    [("modle", "model"), ("max_step", "max_steps"), ("temprature", "temperature")],
)
async def test_an_option_that_does_not_exist_is_refused_and_the_nearest_is_named(
    session: Session, name: str, option: str, nearest: str
) -> None:
    given = () if name == "panel" or "rerun" in name else ("hello",)
    with pytest.raises(UnknownNameError) as caught:
        await _done(getattr(session, name)(*given, **{option: 3}))
    assert nearest in caught.value.matches
    assert session.turns == []
    assert {status.state for status in session.servers.values()} == {"closed"}


@pytest.mark.defect("C4")
@pytest.mark.parametrize("name", ["extract", "extract_async"])
async def test_so_it_is_in_an_extraction(session: Session, name: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        await _done(getattr(session, name)("Ann is here", Person, temprature=0))
    assert "temperature" in caught.value.matches


@pytest.mark.defect("C4")
@pytest.mark.parametrize("name", ["chat", "stream"])
async def test_so_it_is_in_a_chat_without_a_session(name: str) -> None:
    chat = McpToolChat.from_config(CONFIG)
    with pytest.raises(UnknownNameError) as caught:
        await _done(getattr(chat, name)("hello", max_step=3))
    assert "max_steps" in caught.value.matches


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    """IPython's shell, which the tests that follow in this process do not find."""
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


@pytest.mark.defect("C4")
def test_so_it_is_in_a_cell(shell: InteractiveShell) -> None:
    shell.run_line_magic("load_ext", "casual_mcp_nb")
    with pytest.raises(UnknownNameError) as caught:
        shell.run_cell_magic("mcp", "--modle planner", "hello")
    assert "--model" in caught.value.matches


@pytest.mark.defect("C4")
@pytest.mark.parametrize("name", METHODS)
def test_a_signature_lists_every_option(session: Session, name: str) -> None:
    parameters = inspect.signature(getattr(session, name)).parameters
    wanted = {
        "model",
        "tool_set",
        "system",
        "template",
        "discovery",
        "max_steps",
        "variables",
        "meta",
        "step",
    }
    assert wanted | ModelOptions.__annotations__.keys() <= parameters.keys()
    assert not [p for p in parameters.values() if p.kind is p.VAR_KEYWORD]
    assert "self" not in parameters


@pytest.mark.defect("C4")
def test_options_are_completed(session: Session, shell: InteractiveShell) -> None:
    shell.user_ns["session"] = session
    for text in ("session.chat('x', mo", "session.chat_async('x', mo", "session.submit('x', mo"):
        with provisionalcompleter():
            completions = [
                completion.text for completion in shell.Completer.completions(text, len(text))
            ]
        assert "model=" in completions


def test_what_is_awaited_is_a_coroutine_function(session: Session) -> None:
    for name in ("chat_async", "rerun_async", "extract_async"):
        assert inspect.iscoroutinefunction(getattr(session, name))


@pytest.mark.defect("C4")
@pytest.mark.parametrize(
    "options",
    [
        {"max_steps": 0},
        {"max_steps": True},
        {"discovery": "off"},
        {"stream": "no"},
        {"step": "off"},
        {"temperature": 9},
        {"model": ""},
    ],
)
def test_a_value_that_an_option_cannot_have_is_refused_and_nothing_is_sent(
    session: Session, options: dict[str, Any]
) -> None:
    with pytest.raises(UsageError):
        session.chat("hello", **options)
    assert session.turns == []


async def test_a_stream_gives_the_events_of_the_turn_on_the_callers_loop(session: Session) -> None:
    events = [event async for event in session.stream("hello", model=scripted_model("one two"))]
    assert isinstance(events[0], TurnStarted)
    assert isinstance(events[-1], TurnFinished)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "one two"
    assert list(session.turns[-1].trace) == events


async def test_whoever_leaves_a_stream_stops_its_turn_and_the_conversation_goes_on(
    session: Session,
) -> None:
    async def never(messages: Any, tools: Any) -> str:
        await asyncio.Event().wait()
        return "never"

    stream = session.stream("go", model=scripted_model(call("math__add", a=1, b=2), never))
    async for event in stream:
        if isinstance(event, TurnStarted):
            break
    await stream.aclose()
    assert session.turns[-1].status == "stopped"
    assert not session.parts.runner.busy
    assert (await session.chat_async("go on", model=scripted_model("fine"))).answer == "fine"


async def test_a_stream_that_cannot_begin_raises(session: Session) -> None:
    with pytest.raises(UnknownNameError):
        async for _ in session.stream("hello", tool_set="nope"):
            pass
    await session.close_async()
    with pytest.raises(UsageError):
        async for _ in session.stream("hello"):
            pass


async def test_a_slow_reader_of_a_stream_gets_every_event_and_holds_nothing_up(
    session: Session,
) -> None:
    answers = [call("math__add", a=n, b=1) for n in range(8)]
    read, ended = [], threading.Event()
    session.observe(lambda turn, event: ended.set() if isinstance(event, TurnFinished) else None)
    async for event in session.stream("go", model=scripted_model(*answers, "done")):
        read.append(event)
        if len(read) == 1:
            await asyncio.to_thread(ended.wait, 20)
    assert read == list(session.turns[-1].trace)


@pytest.mark.defect("D14")
def test_the_system_prompt_of_a_call_overrides_the_sessions_and_that_the_template() -> None:
    model = scripted_model(*["ok"] * 4)

    def system_sent() -> str:
        return str(model.client.requests[-1].messages[0].content).partition("\n\nThe servers")[0]

    with Session.from_config(CONFIG, system="Be brief.") as session:
        session.chat("x", model=model)
        assert system_sent() == "Be brief."
        assert str(session.models.preview()).startswith("Be brief.")
        session.chat("x", model=model, system="Be long.")
        assert system_sent() == "Be long."
        session.chat("x", model=model, template="default")
        assert str(session.models.preview("default")).startswith(system_sent())
        assert system_sent() != "Be brief."
        session.system = None
        session.chat("x", model=model)
        assert str(session.models.preview("default")).startswith(system_sent())
        assert system_sent() not in ("Be brief.", "Be long.")
        with pytest.raises(UsageError):
            session.system = 3  # type: ignore[assignment]


@pytest.mark.defect("D14")
async def test_a_chat_without_a_session_has_a_system_prompt_too() -> None:
    model = scripted_model("ok", "ok")
    async with McpToolChat.from_config(CONFIG, system="Be brief.") as chat:
        await chat.chat("x", model=model)
        await chat.chat("x", None, None, model, "Be long.")
    assert [request.messages[0].content[:9] for request in model.client.requests] == [
        "Be brief.",
        "Be long.\n",
    ]


@pytest.mark.defect("C4")
def test_the_options_of_the_engine_are_those_that_are_declared() -> None:
    assert inspect.signature(TurnOptions).parameters.keys() == {
        "gate",
        *NamedTurnFields.__annotations__,
    }
    assert (
        ChatOptions.__annotations__.keys() - {"step", "attach"}
        == NamedTurnFields.__annotations__.keys()
    )
    assert RequestOptions.model_fields.keys() == ModelOptions.__annotations__.keys()
