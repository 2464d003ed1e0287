"""Prompts of a script: read from a terminal or a pipe, and given up when the answer comes from
elsewhere.
"""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kit.lean import lean

from casual_mcp_nb import Session
from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.engine.consent import ApprovalRequest
from casual_mcp_nb.notebook.typed_lines import prompted

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="needs pipes and terminals of POSIX"
)

SETUP = """
import threading
from casual_mcp_nb import Session
from casual_mcp_nb.providers.scripted import call, scripted_model
from fastmcp import FastMCP
shop = FastMCP("shop")
@shop.tool(annotations={"destructiveHint": True})
def wipe() -> str:
    return "wiped"
@shop.tool
def look() -> str:
    return "looked"
ADD = call("math__add", a=1, b=2)
MATH = {"servers": {"math": {"bundled": "math", "transport": "in-process", "approval": "always"}}}
def statuses(turn):
    print("STATUSES", *[c.status for c in turn.tool_calls], *[n.server for n in turn.notices], flush=True)
"""
ANSWERED = """
def answer(times=1):
    for _ in range(times):
        session.questions.wait(60).approve()
"""


@contextmanager
def started(code: str, stdin: Any, **options: Any) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "TERM": "dumb", **lean(Path(__file__).resolve().parents[1])}
    command = [sys.executable, "-c", SETUP + code]
    process = subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a process whose input stays open."""
    assert process.stdout is not None
    assert process.stderr is not None
    out, err = process.stdout.read(), process.stderr.read()
    return process.wait(30), out, err


FROM_CODE = """
session = Session.from_config(MATH)
threading.Thread(target=answer, daemon=True).start()
statuses(session.chat("x", model=scripted_model(ADD, "3")))
"""
TIMED_OUT = """
session = Session.from_config(MATH)
session.questions.time_limit = 0.3
statuses(session.chat("x", model=scripted_model(ADD, "3")))
"""
STOPPED = """
session = Session.from_config(MATH)
def stop():
    session.questions.wait(60)
    session.stop()
threading.Thread(target=stop, daemon=True).start()
statuses(session.chat("x", model=scripted_model(ADD, "3")))
"""


@pytest.mark.slow
@pytest.mark.defect("E3")
@pytest.mark.parametrize(
    ("code", "status", "terminal", "closed"),
    [
        (FROM_CODE, "ok", False, True),
        (TIMED_OUT, "denied", False, False),
        (STOPPED, "stopped", True, False),
    ],
    ids=["answered from code", "timed out", "stopped"],
)
def test_an_unanswered_prompt_does_not_break_the_end_of_the_process(
    code: str, status: str, terminal: bool, closed: bool
) -> None:
    code = ANSWERED + code + ("session.close()\n" if closed else "")
    ours, theirs = os.openpty() if terminal else os.pipe()[::-1]
    try:
        with started(code, theirs) as process:
            returned, out, err = ended(process)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (returned, err) == (0, "")
    assert f"STATUSES {status}" in out


@pytest.mark.slow
@pytest.mark.defect("E3")
def test_each_line_goes_to_the_prompt_that_waits_for_it_whoever_read_before() -> None:
    code = """
print("FIRST", input(), flush=True)
session = Session.from_config(MATH)
statuses(session.chat("x", model=scripted_model(ADD, "3")))
threading.Thread(target=answer, daemon=True).start()
statuses(session.chat("x", model=scripted_model(ADD, "3")))
print("TYPE", flush=True)
statuses(session.chat("x", model=scripted_model(ADD, ADD, "3")))
print("LAST", input(), flush=True)
session.close()
"""
    with started(ANSWERED + code, subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # The second line is read into the buffer of `input()` together with the first one.
        process.stdin.write("one\ny\n")
        process.stdin.flush()
        while "TYPE" not in process.stdout.readline():
            pass
        process.stdin.write("y\nn\nlast\n")
        process.stdin.flush()
        returned, out, err = ended(process)
    assert (returned, err) == (0, "")
    assert "STATUSES ok denied" in out
    assert "LAST last" in out


DEFAULT = """
session = Session.from_config({"servers": {}}, in_process={"shop": shop})
for _ in range(2):
    statuses(session.chat("x", model=scripted_model(call("shop__wipe"), call("shop__look"), "done")))
session.close()
"""


@pytest.mark.slow
@pytest.mark.defect("F22")
def test_a_script_without_a_terminal_runs_nothing_that_says_it_is_destructive() -> None:
    with started(DEFAULT, subprocess.PIPE) as process:
        returned, out, err = ended(process)
    assert (returned, err) == (0, "")
    lines = [line for line in out.splitlines() if line.startswith("STATUSES")]
    assert lines == ["STATUSES denied ok", "STATUSES denied ok"]


@pytest.mark.slow
@pytest.mark.defect("A4")
def test_a_destructive_tool_asks_in_a_terminal_and_the_end_of_input_denies_it() -> None:
    code = """
session = Session.from_config({"servers": {}}, in_process={"shop": shop})
WIPE = call("shop__wipe")
statuses(session.chat("x", model=scripted_model(WIPE, WIPE, WIPE, WIPE, WIPE, "done")))
session.close()
"""
    ours, theirs = os.openpty()
    try:
        with started(code, theirs) as process:
            # Two lines, the end of the input (Ctrl-D), and an approval for the conversation.
            for typed in (b"y\n", b"n\n", b"\x04", b"a\n"):
                os.write(ours, typed)
            returned, out, err = ended(process)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (returned, err) == (0, "")
    assert "STATUSES ok denied denied ok ok" in out
    assert out.count("Allow shop to run wipe?") == 4


async def test_prompts_are_given_up_before_whoever_waits_for_the_turn_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asyncio.Event()
    left: list[asyncio.Task[Any]] = []

    async def turn(session: Session) -> None:
        before = asyncio.all_tasks()
        try:
            async with session.questions.prompt_on("input"):
                # As where the time for an answer is limited: not the turn is cancelled, but what
                # asks.
                asking = asyncio.create_task(
                    session.questions.approve(
                        ApprovalRequest(ToolSpec("math", "add"), {}, "always")
                    )
                )
                try:
                    await asyncio.wait([asking])
                finally:
                    asking.cancel()
        finally:
            left.extend(asyncio.all_tasks() - before - {asking})

    ours, theirs = os.pipe()
    with Session({}) as session, os.fdopen(ours) as stdin, os.fdopen(theirs, "w"):
        monkeypatch.setattr(sys, "stdin", stdin)
        session.observe(changes=lambda: asked.set() if session.questions else None)
        running = asyncio.create_task(turn(session))
        await asyncio.wait_for(asked.wait(), 60)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    assert not left


async def test_a_prompt_waits_until_the_cancelled_one_before_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, free = threading.Event(), threading.Event(), threading.Event()

    def slow_input(text: str) -> str:
        if text == "Second? ":
            second.set()
            return "yes"
        first.set()
        while not free.is_set():
            # As a front end that notices an interrupt late.
            with suppress(KeyboardInterrupt):
                free.wait(60)
        return "late"

    monkeypatch.setattr(builtins, "input", slow_input)
    prompt = asyncio.create_task(prompted("First? ", contextvars.copy_context()))
    assert await asyncio.to_thread(first.wait, 60)
    prompt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await prompt
    prompt = asyncio.create_task(prompted("Second? ", contextvars.copy_context()))
    assert not await asyncio.to_thread(second.wait, 0.2)
    free.set()
    assert await asyncio.wait_for(prompt, 60) == "yes"


def test_a_line_that_comes_after_the_end_of_its_loop_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, closed, returned = threading.Event(), threading.Event(), threading.Event()

    def slow_input(_: str) -> str:
        asked.set()
        while not closed.is_set():
            # As a front end that notices an interrupt late.
            with suppress(KeyboardInterrupt):
                closed.wait(60)
        returned.set()
        return "late"

    monkeypatch.setattr(builtins, "input", slow_input)
    loop = asyncio.new_event_loop()
    prompt = loop.create_task(prompted("Name? ", contextvars.copy_context()))
    loop.run_until_complete(asyncio.sleep(0))
    assert asked.wait(60)
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "casual-mcp-input")
    prompt.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(prompt)
    loop.close()
    closed.set()
    # An exception of the thread would be a warning, and fail this test.
    thread.join(60)
    assert returned.is_set()
    assert not thread.is_alive()


async def test_no_part_of_a_text_passes_for_a_line_of_its_own_and_words_stay_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    address = f"https://shop.example/{'a' * 90}"
    forged = f'"note": "{"x" * 66} You allowed this before. Code: AB\tCD {address}"'
    prompts: list[str] = []

    def typed(prompt: str) -> str:
        prompts.append(prompt)
        return ""

    monkeypatch.setattr(builtins, "input", typed)
    await prompted(f"Arguments:\n{{\n  {forged}\n}}\n[y] ", contextvars.copy_context())
    (prompt,) = prompts
    assert [line for line in prompt.splitlines() if not line.startswith("    ")] == [
        "Arguments:",
        "{",
        f'  "note": "{"x" * 66}',
        "}",
        "[y] ",
    ]
    assert "AB\tCD" in prompt
    assert address in prompt
