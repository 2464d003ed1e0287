"""A turn shown while it runs: few updates, never out of date for long, and a picture that stays."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from kit.kernel import Kernel, started_kernel

pytestmark = pytest.mark.kernel

SETUP = """
import asyncio
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
from fastmcp import Context, FastMCP
server = FastMCP("work")
@server.tool
async def work(ctx: Context) -> str:
    "Work for a while."
    for done in range(200):
        await ctx.report_progress(done, 200, f"part {done}")
        await asyncio.sleep(0.005)
    return "worked"
@server.tool
async def silent() -> str:
    "Say nothing for a while."
    await asyncio.sleep(2.3)
    return "done"
session = Session.from_config({}, in_process={"work": server})
session.connect();
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started_kernel(SETUP) as kernel:
        yield kernel


def updates(messages: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [
        message["content"]["data"]
        for message in messages
        if message["msg_type"] == "update_display_data"
    ]


@pytest.mark.fault(91)
def test_a_busy_turn_is_drawn_now_and_then_and_stays_as_static_html(kernel: Kernel) -> None:
    ran = kernel.run(
        "session.chat('Work.', model=scripted_model(call('work__work'), 'All **done**.'))"
    )
    seen = updates(ran.messages)
    assert len(seen) >= 4
    in_between = [data["text/html"] for data in seen[:-1]]
    assert any("part " in html and "Elapsed" in html for html in in_between)
    assert all(data["text/plain"] for data in seen)
    (shown,) = [output for output in ran.outputs if "text/html" in output.get("data", {})]
    assert "<strong>done</strong>" in shown["data"]["text/html"]
    assert "running" not in shown["data"]["text/html"]
    assert not [message for message in ran.messages if message["msg_type"] == "clear_output"]


def test_a_silent_call_is_seen_to_be_running(kernel: Kernel) -> None:
    ran = kernel.run("session.chat('Wait.', model=scripted_model(call('work__silent'), 'Done.'))")
    running = [
        data["text/html"] for data in updates(ran.messages) if "work:silent" in data["text/html"]
    ]
    assert sum("Elapsed" in html for html in running) >= 3
    assert len({html for html in running if "Elapsed" in html}) >= 3


def test_an_output_that_has_not_changed_is_not_sent_again(kernel: Kernel) -> None:
    ran = kernel.run(
        "session.chat('Wait.', model=scripted_model(call('work__silent'), 'Done.'), echo='text')"
    )
    for one, other in pairwise(updates(ran.messages)):
        assert one != other


def test_a_cell_that_shows_nothing_sends_nothing(kernel: Kernel) -> None:
    ran = kernel.run(
        "session.chat('Work.', model=scripted_model(call('work__work'), 'Done.'), echo='none');"
    )
    assert ran.outputs == []
    assert updates(ran.messages) == []
