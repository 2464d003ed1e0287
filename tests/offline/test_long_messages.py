"""Long and odd messages to the offline planner: answered, with the loop free meanwhile."""

from __future__ import annotations

import asyncio
import random
import string

import pytest
from kit.growth import PART, assert_growth
from kit.setups import OFFLINE

from casual_mcp_nb import McpToolChat
from casual_mcp_nb.conversation.event import TextDelta
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.offline.arguments import Filling, parameters_of
from casual_mcp_nb.offline.mentions import MAX_MENTIONS, find_mentions
from casual_mcp_nb.offline.needs import Need
from casual_mcp_nb.offline.planner import MAX_REQUEST

CONFIG = {
    **OFFLINE,
    "servers": {
        name: {"bundled": name, "transport": "in-process"}
        for name in ("math", "time", "text", "units")
    },
}
ODD = [
    "a@b.",
    "a/",
    "1 ",
    "1,",
    "(",
    "(1,(",
    "1+",
    "[",
    '{"a":',
    "select ",
    "-",
    "*",
    "'a ",
    '"',
    " ",
    "\n",
    " and add",
    "A ",
    "\\",
]


@pytest.mark.defect("B1")
@pytest.mark.parametrize("kind", ["words", "noise"])
async def test_a_message_of_50_kb_is_answered_and_a_stop_is_heard_meanwhile(kind: str) -> None:
    letters = random.Random(1)
    words = "Lorem ipsum dolor in Oslo and 5 miles to Tokyo. " * 1_100
    text = words if kind == "words" else "".join(letters.choices(string.printable, k=50_000))
    async with McpToolChat.from_config(CONFIG) as chat:
        turn = await chat.run(as_messages(text))
        assert turn.status == "done"
        assert f"{MAX_REQUEST:,}" in turn.answer
        task = asyncio.create_task(chat.run(as_messages(text)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.slow
@pytest.mark.defect("B1")
@pytest.mark.parametrize("part", ODD)
def test_what_is_looked_for_in_a_message_stays_bounded(part: str) -> None:
    text = (part * MAX_REQUEST)[:MAX_REQUEST]
    mentions = find_mentions(text)
    assert len(mentions) <= MAX_MENTIONS
    assert all(0 <= one.start < one.end <= len(text) for one in mentions)


def test_many_choices_for_many_words_are_looked_up() -> None:
    def fill(length: int) -> None:
        properties = {"kind": {"enum": [f"choice {number}" for number in range(2 * length)]}}
        need = Need(" ".join(["word"] * length))
        assert Filling(need, parameters_of({"properties": properties})).arguments == {}

    assert_growth(lambda: fill(400 // PART), lambda: fill(400))


@pytest.mark.defect("D14")
async def test_the_offline_planner_streams_its_reply() -> None:
    async with McpToolChat.from_config(CONFIG) as chat:
        turn = await chat.run(as_messages("What is 17 * 23 + 4?"), TurnOptions(model="planner"))
    deltas = turn.trace.of(TextDelta)
    assert deltas
    assert "".join(delta.text for delta in deltas) == turn.answer


def as_messages(text: str) -> list[object]:
    from casual_llm.messages import UserMessage

    return [UserMessage(content=text)]
