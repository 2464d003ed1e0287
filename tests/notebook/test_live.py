"""Displays that move while the kernel does something else, and that nothing but them comes from the
engine thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kit.kernel import KERNELS, Kernel, Ran, started_kernel

pytestmark = pytest.mark.kernel

SETUP = """
import asyncio, threading, time
import casual_llm
from fastmcp import FastMCP
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
desk = FastMCP("desk")
@desk.tool
async def pause() -> str:
    "Take a moment."
    await asyncio.sleep(0.1)
    return "rested"
session = Session.from_config({}, in_process={"desk": desk})
session.connect()
model = lambda: scripted_model(*[call("desk__pause")] * 6, "awake");
"""


@pytest.fixture(params=KERNELS, scope="module")
def kernel(request: pytest.FixtureRequest) -> Iterator[Kernel]:
    with started_kernel(**request.param) as kernel:
        kernel.printed(SETUP)
        yield kernel


def updates(ran: Ran) -> list[dict[str, Any]]:
    return [message for message in ran.messages if message["msg_type"] == "update_display_data"]


def updates_before(ran: Ran, word: str) -> int:
    """Count the updates of displays before a word was printed."""
    kinds = [
        word if word in message["content"].get("text", "") else message["msg_type"]
        for message in ran.messages
    ]
    return kinds[: kinds.index(word)].count("update_display_data")


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        (
            "thread = threading.Thread(target=session.chat, args=('go',), kwargs={'model':"
            " model()})\nthread.start()\ntime.sleep(1.5)\nprint('slept')\nthread.join()"
        ),
        (
            "task = asyncio.create_task(session.chat_async('go', model=model()))\nawait"
            " asyncio.sleep(0)\ntime.sleep(1.5)\nprint('slept')\nawait task;"
        ),
    ],
    ids=["thread", "task"],
)
def test_the_display_of_a_turn_moves_while_its_cell_sleeps(kernel: Kernel, code: str) -> None:
    ran = kernel.run(code)
    assert ran.status == "ok", ran.text()
    assert updates_before(ran, "slept") >= 4
    assert "awake" in kernel.printed("print(session.turns[-1].answer)")


def test_updates_keep_their_distance_and_the_last_one_is_the_whole_turn(kernel: Kernel) -> None:
    chat = "turn = session.chat('go', model=scripted_model(*[call('desk__pause')] * 10, 'awake'))"
    often = kernel.run(chat)
    seldom = kernel.run(
        "from casual_mcp_nb.notebook import live\n"
        "usual, live._SECONDS_BETWEEN_UPDATES = live._SECONDS_BETWEEN_UPDATES, 600\n"
        f"{chat}\nlive._SECONDS_BETWEEN_UPDATES = usual"
    )
    assert "awake" in often.text()
    assert "awake" in seldom.text()
    assert len(updates(often)) >= 5
    # The start, the first text, and the picture that stays.
    assert len(updates(seldom)) <= 3


def test_nothing_is_printed_or_displayed_from_the_engine_thread(kernel: Kernel) -> None:
    kernel.printed(
        "from IPython.core import displaypub\nimport sys, builtins\nseen = []\nclass Watch:\n   "
        " def __init__(self, stream): self.stream = stream\n    def write(self, text):\n       "
        " seen.append((threading.current_thread().name, text)); return self.stream.write(text)\n   "
        " def __getattr__(self, name): return getattr(self.stream, name)\nout, err = sys.stdout,"
        " sys.stderr\nsys.stdout, sys.stderr = Watch(out), Watch(err)"
    )
    ran = kernel.run(
        "turn = session.chat('go', model=model()); session.tools.call('desk__pause');"
        " session.search('pause');"
    )
    kernel.run("sys.stdout, sys.stderr = out, err")
    assert ran.status == "ok"
    assert kernel.printed("print([each for each in seen if each[0] != 'MainThread'])") == "[]"
    shown = [
        message["msg_type"]
        for message in ran.messages
        if message["msg_type"] not in ("status", "execute_input")
    ]
    assert set(shown) == {"display_data", "update_display_data"}
    assert shown.count("display_data") == 1
