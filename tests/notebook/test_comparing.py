"""Comparisons in the cells of a real kernel: shown while they run, interrupted, and by `%mcp
compare`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.kernel import Kernel, Ran, started_kernel

pytestmark = pytest.mark.kernel

SETUP = """
%load_ext casual_mcp_nb
import asyncio
from fastmcp import FastMCP
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
slow = FastMCP("slow")
@slow.tool
async def wait() -> str:
    "Wait forever."
    print("waiting")
    await asyncio.Event().wait()
    return ""
config = {
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {"math": {"bundled": "math", "transport": "in-process", "defer_loading": True}},
    "tool_discovery": {"enabled": True},
}
session = Session.from_config(config, in_process={"slow": slow})
session.connect();
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started_kernel(SETUP) as kernel:
        yield kernel


def updates(ran: Ran) -> list[str]:
    updates = [message for message in ran.messages if message["msg_type"] == "update_display_data"]
    return [message["content"]["data"]["text/html"] for message in updates]


def test_it_is_shown_live_and_once(kernel: Kernel) -> None:
    ran = kernel.run(
        "session.experiments.compare('What is 17 * 23?', discovery=[False, True], repeats=2,"
        " check='391')"
    )
    assert ran.status == "ok", ran.text()
    (shown,) = ran.outputs
    assert "discovery off" in shown["data"]["text/plain"]
    assert "<script" not in shown["data"]["text/html"]
    drawn = [
        message["content"]["data"]["text/html"]
        for message in ran.messages
        if message["msg_type"] == "update_display_data"
    ]
    assert any("running" in html for html in drawn[:-1])
    assert "running" not in drawn[-1]
    assert (
        kernel.printed(
            "print(len(session.turns), session.experiments.results['discovery on'].right.value)"
        )
        == "0 1.0"
    )


def test_the_magic_does_the_same_and_stores_it(kernel: Kernel) -> None:
    ran = kernel.run("%mcp -o result compare --discovery on,off --check 391 What is 17 * 23?")
    assert ran.status == "ok", ran.text()
    assert len(ran.outputs) == 1
    assert kernel.printed(
        "print([arm.right.value for arm in result.values()], list(result))"
    ).startswith("[1.0, 1.0]")
    assert "discovery on" in kernel.run("result").text()


def test_awaiting_it_shows_it_once(kernel: Kernel) -> None:
    ran = kernel.run(
        "await session.experiments.compare_async('What is 17 * 23?', discovery=[False, True])"
    )
    assert ran.status == "ok", ran.text()
    assert len(ran.outputs) == 1


def test_an_interrupt_keeps_and_shows_what_is_done(kernel: Kernel) -> None:
    started = kernel.start(
        "session.experiments.compare('Go', models=[scripted_model('fine'),"
        " scripted_model(call('slow__wait'))], repeats=2)"
    )
    kernel.wait(started, until="stream")
    ran = kernel.interrupt(started)
    assert ran.status == "error"
    drawn = [
        message["content"]["data"]["text/html"]
        for message in ran.messages
        if message["msg_type"] == "update_display_data"
    ]
    assert "stopped" in drawn[-1]
    statuses = kernel.printed(
        "print(*(run.made for run in session.experiments.results.records),"
        " session.parts.runner.busy, len(session.turns))"
    )
    assert statuses == "True False 0"


def test_stop_ends_it_and_it_is_returned(kernel: Kernel) -> None:
    code = (
        "model = scripted_model(call('slow__wait'))\nstopped ="
        " asyncio.create_task(session.experiments.compare_async('Go', models=[model],"
        " repeats=2))\nwhile not session.parts.runner.busy: await asyncio.sleep(0)\nawait"
        " session.stop_async()\nresult = await stopped\nprint(result.status, len(result.records),"
        " session.parts.runner.busy)"
    )
    assert kernel.printed(code).splitlines()[-1] == "stopped 0 False"
