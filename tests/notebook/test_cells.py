"""The magics and the session in the cells of a real kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kit.kernel import Kernel, started_kernel

pytestmark = pytest.mark.kernel

SETUP = """
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
session = Session.from_config({
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {
        "math": {"bundled": "math", "transport": "in-process"},
        "time": {"bundled": "time", "transport": "in-process", "defer_loading": True},
    },
    "tool_sets": {"numbers": {"servers": {"math": True}}},
    "tool_discovery": {"enabled": True},
})
import asyncio, threading
from fastmcp import FastMCP
slow = FastMCP("slow")
cancelled = threading.Event()
@slow.tool
async def wait() -> str:
    "Wait for ever."
    print("waiting")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled.set()
        raise
patient = Session.from_config({}, in_process={"slow": slow})
patient.connect()
session.connect();
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with started_kernel() as kernel:
        assert kernel.run("%load_ext casual_mcp_nb").outputs == []
        assert kernel.run(SETUP).status == "ok"
        yield kernel


def test_a_cell_is_answered_live_and_shows_its_turn_once(kernel: Kernel) -> None:
    ran = kernel.run("%%mcp\nWhat time is it in Tokyo when it is 14:30 in Oslo?")
    assert ran.status == "ok"
    shown = [output for output in ran.outputs if "text/html" in output.get("data", {})]
    assert len(shown) == 1
    assert "time__convert_time" in shown[0]["data"]["text/html"]
    assert "22:30" in shown[0]["data"]["text/plain"]
    assert "<script" not in shown[0]["data"]["text/html"]
    updates = [message for message in ran.messages if message["msg_type"] == "update_display_data"]
    assert updates


def test_the_turn_shows_itself_again_in_another_cell(kernel: Kernel) -> None:
    kernel.run("turn = session.chat('What is 17 * 23 + 4?')")
    assert "395" in kernel.run("turn").text()


def test_the_result_of_a_cell_is_the_turn(kernel: Kernel) -> None:
    kernel.run("%%mcp\nWhat is 2 + 2?")
    assert "done" in kernel.run("session.turns[-1].status").text()


def test_awaiting_in_a_cell_works_and_shows_the_turn_once(kernel: Kernel) -> None:
    ran = kernel.run("await session.chat_async('What is 5 * 5?')")
    assert ran.status == "ok"
    assert (
        len(
            [
                output
                for output in ran.outputs
                if "25" in output.get("data", {}).get("text/html", "")
            ]
        )
        == 1
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%mcp", "Session"),
        ("%mcp servers", "math"),
        ("%mcp tools", "add"),
        ("%mcp tool math__add", "number"),
        ("%mcp search convert a time zone", "convert_time"),
        ('%mcp call math__add {"a": 1, "b": 2}', "3"),
        ("%mcp manifest", "time"),
        ("%mcp toolsets", "numbers"),
        ("%mcp toolset numbers", "numbers"),
        ("%mcp toolset all", "numbers"),
        ("%mcp defer math", "deferred"),
        ("%mcp load math", "loaded"),
        ("%mcp off time", "off"),
        ("%mcp defer time", "deferred"),
        ("%mcp reconnect math", "ready"),
        ("%mcp models", "planner"),
        ("%mcp model planner", "planner"),
        ("%mcp stats", "Model calls"),
        ("%mcp help tools", "%mcp search [--all] WORDS"),
        ("%mcp new", "0 turns"),
    ],
)
def test_each_command_shows_its_noun(kernel: Kernel, line: str, words: str) -> None:
    ran = kernel.run(line)
    assert ran.status == "ok", ran.text()
    assert words in ran.text()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("%mcp tols", "Did you mean 'tools'"),
        ("%mcp toolset number", "Did you mean 'numbers'"),
        ("%mcp off mth", "Did you mean 'math'"),
        ("%mcp call math__ad {}", "math:add"),
        ("%mcp call math__add {", "not JSON"),
        ("%%mcp --modle x\nhello", "Did you mean '--model'"),
        ("%%mcp --model x\nhello", "planner"),
        ("%mcp connect nowhere.json", "nowhere.json"),
    ],
)
def test_a_mistake_is_one_line_and_the_cell_is_an_error(
    kernel: Kernel, code: str, words: str
) -> None:
    ran = kernel.run(code)
    assert ran.status == "error"
    (output,) = [output for output in ran.outputs if "traceback" in output]
    assert words in "\n".join(output["traceback"])
    assert len("\n".join(output["traceback"]).splitlines()) <= 3


def test_braces_and_dollars_in_a_message_reach_the_model_as_they_are(kernel: Kernel) -> None:
    ran = kernel.run("%%mcp --no-discovery\n{x} $y {{ z }} count the words in 'a b'\n")
    assert ran.status == "ok"
    assert "{x} $y {{ z }}" in kernel.run("print(session.turns[-1].prompt)").text()


@pytest.mark.fault(71)
def test_an_interrupt_of_a_blocking_chat_stops_it_and_the_next_cell_works(kernel: Kernel) -> None:
    cell = kernel.start("patient.chat('go', model=scripted_model(call('slow__wait'), 'never'))")
    kernel.wait(cell, until="stream")
    kernel.manager.interrupt_kernel()
    ran = kernel.wait(cell)
    assert ran.status == "error"
    assert "KeyboardInterrupt" in ran.text()
    assert_stopped(kernel)


@pytest.mark.fault(70)
def test_an_interrupt_of_an_awaited_chat_stops_it_with_a_short_message(kernel: Kernel) -> None:
    cell = kernel.start(
        "await patient.chat_async('go', model=scripted_model(call('slow__wait'), 'never'))"
    )
    kernel.wait(cell, until="stream")
    ran = kernel.interrupt(cell, "patient")
    assert ran.status == "error"
    assert_stopped(kernel)


def assert_stopped(kernel: Kernel) -> None:
    told = kernel.run(
        "turn = patient.turns[-1]; print(turn.status, turn.tool_calls[-1].status,"
        " cancelled.wait(2))"
    )
    kernel.run("cancelled.clear()")
    assert told.text().split() == ["stopped", "stopped", "True"]
    after = kernel.run(
        "print(patient.chat('go on', model=scripted_model('fine'), echo='none').answer)"
    )
    assert after.text().strip() == "fine"


@pytest.mark.slow
def test_unloading_closes_the_session_and_takes_the_magics_away() -> None:
    with started_kernel() as kernel:
        kernel.run("%load_ext casual_mcp_nb")
        kernel.run("%load_ext casual_mcp_nb")
        kernel.run("from casual_mcp_nb import Session\nsession = Session.from_config({})")
        assert kernel.run("%unload_ext casual_mcp_nb").status == "ok"
        assert kernel.run("%mcp").status != "ok" or "not found" in kernel.run("%mcp").text()
        assert "closed" in kernel.run("session.connect()").text()


def test_an_error_in_a_loop_over_pauses_and_an_interrupt_stop_the_turn(kernel: Kernel) -> None:
    ran = kernel.run("for pause in patient.pauses('Go', model=scripted_model('never')): 1 / 0")
    assert ran.status == "error"
    assert (
        kernel.printed("print(patient.parts.runner.busy, patient.turns[-1].status)")
        == "False stopped"
    )
    started = kernel.start(
        "for pause in patient.pauses('Go', model=scripted_model(call('slow__wait'), 'never')): pass"
    )
    kernel.wait(started, until="stream")
    assert kernel.interrupt(started, "patient").status == "error"
    assert (
        kernel.printed("print(patient.parts.runner.busy, patient.turns[-1].status)")
        == "False stopped"
    )
    cell = (
        "async for pause in patient.pauses('Go', model=scripted_model('done')): print(pause.step)"
    )
    assert kernel.printed(f"{cell}\nprint(patient.turns[-1].answer)").splitlines() == ["0", "done"]
