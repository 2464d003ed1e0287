"""How much of the package runs in a turn with one call: counted, because a clock says little on a
shared machine.

The bounds have room for plain code. They find work that grows with what a turn does not need.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from casual_llm import AssistantToolCall, AssistantToolCallFunction, Model
from casual_llm.messages import AssistantMessage, ChatMessage, UserMessage
from fastmcp import FastMCP

import casual_mcp_nb
from casual_mcp_nb import Session
from casual_mcp_nb.base.config import Config
from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.setup import ChatSetup
from casual_mcp_nb.providers.factory import ModelFactory
from casual_mcp_nb.servers.server_manager import ServerManager

PACKAGE = os.path.dirname(casual_mcp_nb.__file__) + os.sep
MODES = {"desk": "loaded", "many": "deferred"}
WARM = 3

pytestmark = pytest.mark.defect("G10")


class AtOnce:
    """A client that answers immediately: a tool call, and after its result a text.

    It keeps the definitions that it gets.
    """

    def __init__(self) -> None:
        self.sent: list[list[Any]] = []

    async def _chat(
        self, model: str, messages: list[ChatMessage], options: Any
    ) -> tuple[AssistantMessage, None]:
        self.sent.append(options.extra["tools"])
        if messages[-1].role == "tool":
            return AssistantMessage(content="3"), None
        function = AssistantToolCallFunction(name="desk__add", arguments='{"a": 1, "b": 2}')
        return (
            AssistantMessage(content="", tool_calls=[AssistantToolCall(id="1", function=function)]),
            None,
        )


class Work:
    """The work of a run: the number of the package's functions, and of those around the client
    library's call of a tool.
    """

    def __init__(self) -> None:
        self.functions = 0
        self.hops = 0

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        if frame.f_code.co_filename.startswith(PACKAGE):
            self.functions += 1
        elif frame.f_code.co_name == "send_raw_request":
            around, hops = frame.f_back, 0
            while around is not None:
                hops += around.f_code.co_filename.startswith(PACKAGE)
                around = around.f_back
            self.hops = max(self.hops, hops)


@contextmanager
def counted(work: Work) -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(work.profile)
    try:
        yield
    finally:
        sys.setprofile(before)


def servers() -> dict[str, FastMCP[Any]]:
    desk, many = FastMCP[Any]("desk"), FastMCP[Any]("many")

    @desk.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    def read_record(record_id: str, fields: list[str] | None = None, limit: int = 10) -> str:
        """Read a record by its number, with the requested fields."""
        return record_id

    for number in range(29):
        many.tool(read_record, name=f"read_record_{number}")
    return {"desk": desk, "many": many}


def model() -> Model:
    return Model(AtOnce(), "at-once")  # type: ignore[arg-type]


@pytest.mark.parametrize("discovery", [True, False])
async def test_a_chat_of_the_engine_runs_few_functions(discovery: bool) -> None:
    selection = Selection.model_validate({"servers": MODES, "discovery": discovery})
    manager = ServerManager({}, in_process=servers(), cache_ttl=None)
    work, answering = Work(), model()
    async with McpToolChat(manager, ModelFactory(Config()), ChatSetup(selection=selection)) as chat:
        for _ in range(WARM):
            await chat.chat([UserMessage(content="Add 1 and 2")], model=answering)
        with counted(work):
            messages = await chat.chat([UserMessage(content="Add 1 and 2")], model=answering)
    print(
        f"{work.functions} functions of the package in a chat with one call, {work.hops} around the"
        " call of the tool"
    )
    assert messages[-1].content == "3"
    # They were about 525 and 11 when this was written.
    assert work.functions <= 650
    assert work.hops <= 15


async def test_definitions_that_are_sent_again_are_converted_once() -> None:
    selection = Selection.model_validate({"servers": MODES, "discovery": False})
    manager = ServerManager({}, in_process=servers(), cache_ttl=None)
    client = AtOnce()
    answering = Model(client, "at-once")  # type: ignore[arg-type]
    async with McpToolChat(manager, ModelFactory(Config()), ChatSetup(selection=selection)) as chat:
        for _ in range(2):
            await chat.chat([UserMessage(content="Add 1 and 2")], model=answering)
            # A client may change the list of its request.
            client.sent[-1].clear()
    first, _, third, _ = client.sent
    assert len(first) == 30
    assert all(one is other for one, other in zip(first, third, strict=True))


async def test_clients_share_a_copy_of_the_selection_until_it_is_edited() -> None:
    manager = ServerManager({}, in_process=servers(), cache_ttl=None)
    async with McpToolChat(
        manager,
        ModelFactory(Config()),
        ChatSetup(selection=Selection.model_validate({"servers": MODES})),
    ) as chat:
        one, other = chat.apart(private=True), chat.apart(private=True)
        assert one.selection is other.selection is not chat.selection
        chat.selection.servers["many"] = "off"
        edited = chat.apart(private=True)
        assert (one.selection.servers["many"], edited.selection.servers["many"]) == (
            "deferred",
            "off",
        )
        assert chat.apart().selection is not edited.selection
        assert (await edited.view()).deferred == ()


def test_a_turn_of_a_session_runs_few_functions_however_long_the_conversation_is() -> None:
    answering = model()
    with Session(Config(), in_process=servers(), store=None) as session:
        session.selection.assign(Selection.model_validate({"servers": MODES, "discovery": True}))

        async def install(profile: Any) -> None:
            sys.setprofile(profile)

        def work_of_a_turn() -> Work:
            work = Work()
            session.parts.engine.run(install(work.profile))
            try:
                with counted(work):
                    turn = session.chat("Add 1 and 2", model=answering)
            finally:
                session.parts.engine.run(install(None))
            assert turn.answer == "3"
            return work

        turns = [work_of_a_turn() for _ in range(25)]
    # A slow machine draws some turns once more: the least of a few is the work that each of them
    # needs.
    early, late = (
        min(some, key=lambda work: work.functions) for some in (turns[WARM : WARM + 5], turns[-5:])
    )
    print(
        f"{early.functions} functions of the package after turn {WARM}, {late.functions} at turn"
        f" {len(turns)}"
    )
    print(f"{early.hops} around the call of the tool")
    # They were about 720 and 11 when this was written; a busy machine draws a little more.
    assert early.functions <= 900
    assert late.functions <= early.functions * 1.25
    assert early.hops <= 15
