"""Results that are too long for the model: how much of them it reads, and how it reads on."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from kit.history import assert_valid
from kit.turns import ask

from casual_mcp_nb import Conversation, Session
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.providers import call, calls, scripted_model
from casual_mcp_nb.types.tokens import estimate_tokens

LINES = "".join(f"line {number:06}\n" for number in range(60_000))
NOTE = re.compile(r'read_result\(id="([^"]+)", offset=(\d+)\)')


def desk() -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("desk")

    @server.tool
    def dump(text: str = "") -> str:
        """Give a long text."""
        return text or LINES

    return server


@pytest.fixture
async def chat() -> AsyncIterator[McpToolChat]:
    async with McpToolChat.from_config({}, in_process={"desk": desk()}) as chat:
        yield chat


def names(turn: Any, step: int) -> list[str]:
    return [tool["name"] for tool in turn.steps[step].request.tools]


def reading_on(messages: Any, tools: Any) -> Any:
    """An answer that reads on where the last result says so."""
    found = NOTE.search(messages[-1].content)
    assert found is not None, messages[-1].content[-200:]
    return call("read_result", id=found[1], offset=int(found[2]))


@pytest.mark.defect("D17")
async def test_a_long_result_is_cut_at_about_ten_thousand_tokens(chat: McpToolChat) -> None:
    turn = await ask(chat, calls(call("desk__dump"), call("desk__dump", text="漢字" * 40_000)), "ok")
    for made in turn.tool_calls:
        assert 5_000 < estimate_tokens(made.result) < 11_000
        assert len(made.content[0].text) > 79_000


@pytest.mark.defect("D17")
async def test_the_config_says_how_much_of_a_result_a_model_reads() -> None:
    config = {"tool_results": {"max_tokens": 500}}
    async with McpToolChat.from_config(config, in_process={"desk": desk()}) as chat:
        turn = await ask(chat, call("desk__dump"), reading_on, "ok")
    assert all(estimate_tokens(made.result) < 600 for made in turn.tool_calls)


@pytest.mark.defect("D17")
async def test_a_model_reads_on_to_the_end_and_misses_nothing(chat: McpToolChat) -> None:
    turn = await ask(chat, call("desk__dump"), *[reading_on] * 12, "ok")
    assert names(turn, 0) == ["desk__dump"]
    assert names(turn, 1) == ["desk__dump", "read_result"]
    assert turn.steps[1].request.tokens.tools > turn.steps[0].request.tokens.tools
    first, *parts = [made.result for made in turn.tool_calls]
    offset = int(NOTE.search(first)[2])  # type: ignore[index]
    text = first[:offset] + "".join(part.split("]\n", 1)[1].rsplit("\n[", 1)[0] for part in parts)
    assert len(text) > 200_000
    assert LINES.startswith(text)
    assert turn.stats.tool_calls.by_tool == {"desk__dump": 1, "read_result": 12}
    assert turn.stats.tool_calls.by_server == {"desk": 1, "_synthetic": 12}
    assert_valid(turn.messages)


@pytest.mark.defect("D17")
async def test_the_end_of_a_result_is_told_and_nothing_is_read_beyond_it(chat: McpToolChat) -> None:
    last = call("read_result", id="call_1", offset=len(LINES) - 10)
    turn = await ask(chat, call("desk__dump"), last, call("read_result", id="call_1", offset=len(LINES)), "ok")
    _, end, beyond = turn.tool_calls
    assert LINES[-10:] in end.result
    assert NOTE.search(end.result) is None
    assert beyond.status == "error"


@pytest.mark.defect("D17")
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"id": "call_1", "offset": -1},
        {"id": "call_1", "offset": "x"},
        {"id": "call_1", "offset": 1e300},
        {"id": "no", "offset": 0},
    ],
)
async def test_wrong_arguments_are_an_error_in_words(chat: McpToolChat, arguments: Any) -> None:
    turn = await ask(chat, call("desk__dump"), call("read_result", **arguments), "ok")
    assert turn.tool_calls[1].status == "error"
    assert turn.status == "done"


@pytest.mark.defect("D17")
async def test_only_results_of_the_own_conversation_can_be_read(chat: McpToolChat) -> None:
    secret = await ask(chat, call("desk__dump", text="secret " * 20_000), "ok")
    assert secret.tool_calls[0].id == "call_1"
    both = calls(call("desk__dump", text="short"), call("desk__dump"))
    other = await ask(chat, both, call("read_result", id="call_1", offset=0), "ok")
    assert other.tool_calls[0].id == "call_1"
    assert "secret" not in other.tool_calls[2].result
    alone = await ask(chat, call("read_result", id="call_1", offset=0), "ok")
    assert alone.tool_calls[0].status == "error"
    assert names(alone, 0) == ["desk__dump"]


@pytest.mark.defect("D17")
async def test_a_later_turn_reads_on_and_without_the_text_the_model_is_told_so(chat: McpToolChat) -> None:
    first = await ask(chat, call("desk__dump"), "ok")
    second = await ask(chat, call("read_result", id="call_1", offset=600), "ok", history=first.messages)
    assert names(second, 0) == ["desk__dump", "read_result"]
    assert second.tool_calls[0].status == "ok"
    assert LINES[600:700] in second.tool_calls[0].result
    async with McpToolChat.from_config({}, in_process={"desk": desk()}) as fresh:
        lost = await ask(fresh, call("read_result", id="call_1", offset=600), "ok", history=first.messages)
    assert lost.tool_calls[0].status == "error"


@pytest.mark.defect("D17")
def test_a_session_reads_on_in_what_stands_on_the_traces_of_its_turns(tmp_path: Path) -> None:
    with Session({}, in_process={"desk": desk()}) as session:
        session.chat("Go", model=scripted_model(call("desk__dump"), "ok"))
        saved = Conversation.load(session.export(tmp_path / "chat.json"))
        session._chat.cut_results.forget("call_1")
        later = session.chat("On", model=scripted_model(call("read_result", id="call_1", offset=600), "ok"))
    assert LINES[600:700] in later.tool_calls[0].result
    assert saved[0].tool_calls[0].content[0].text == LINES
