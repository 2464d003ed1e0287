"""Chats from a shell: one message, a conversation on a terminal, approvals, and events as JSON
lines.
"""

from __future__ import annotations

import io
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from kit.lean import lean
from kit.scripted_http import Reply, Request, ScriptedHttp

from casual_mcp_nb.cli.app import FAILED, WRONG_USAGE
from tests.cli.conftest import CONFIG, Run

QUESTION = "What is 17 * 24?"
needs_pty = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pty")


def test_the_answer_is_on_stdout_and_the_steps_on_stderr(config: Path, run: Run) -> None:
    code, out, err = run("chat", *QUESTION.split())
    assert code == 0
    assert "408" in out
    assert len(out.splitlines()) == 1
    assert "math:" in err


def test_a_step_has_the_summary_of_a_result_instead_of_its_json(run: Run) -> None:
    err = run("chat", "--demo", "What time is it in Tokyo when it is 14:30 in Oslo?")[2]
    assert re.search(r"time:convert_time → [^{\n]*14:30[^{\n]*22:30", err)


def test_a_message_from_stdin(config: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{QUESTION}\n"))
    assert "408" in run("chat")[1]
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert run("chat")[0] == WRONG_USAGE


def test_events_as_json_lines(config: Path, run: Run) -> None:
    code, out, err = run("chat", QUESTION, "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert events[0]["event"] == "TurnStarted"
    assert [each["tool"] for each in events if each["event"] == "ToolStarted"] == [
        "math:evaluate_expression"
    ]
    assert events[-1]["event"] == "TurnFinished"
    assert (events[-1]["status"], events[-1]["error"]) == ("done", None)
    assert "408" in events[-1]["answer"]
    assert events[-1]["stats"]["tool_calls"]["total"] == 1
    assert sum(each["event"] == "TurnFinished" for each in events) == 1


def test_the_demo_says_once_which_of_its_servers_needs_a_library(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pint", None)
    code, out, err = run("demo", "What is 17 * 23?")
    assert code == 0
    assert "391" in out
    assert err.count("pint") == 1
    assert "casual-mcp-nb[bundled]" in err


@pytest.mark.parametrize(
    "words", [["--model", "gtp"], ["--toolset", "nmbers"], ["--allow", "maths"]]
)
def test_a_name_that_does_not_exist_is_wrong_usage(
    words: list[str], config: Path, run: Run
) -> None:
    assert run("chat", QUESTION, *words)[0] == WRONG_USAGE


@pytest.mark.defect("F23")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_reason_that_a_turn_stopped_is_written_at_its_end(
    number: signal.Signals, config: Path, run: Run
) -> None:
    def answer(_: Request) -> Reply:
        os.kill(os.getpid(), number)
        server.stopped.wait(20)
        return Reply(500, {})

    with ScriptedHttp(answer) as server:
        desk = {
            "provider": "openai",
            "base_url": f"{server.url}/v1",
            "api_key": "sk-not-a-real-key",
        }
        config.write_text(
            json.dumps(
                {"clients": {"desk": desk}, "models": {"small": {"client": "desk", "model": "m-1"}}}
            )
        )
        code, out, _ = run("chat", QUESTION, "--json")
        server.stopped.set()
    events = [json.loads(line) for line in out.splitlines()]
    assert code == (130 if number == signal.SIGINT else 128 + number)
    assert [each["event"] for each in events].count("TurnFinished") == 1
    assert (events[-1]["event"], events[-1]["status"]) == ("TurnFinished", "stopped")


def ask_always(config: Path) -> None:
    servers = {"math": {**CONFIG["servers"]["math"], "approval": "always"}}
    config.write_text(json.dumps({**CONFIG, "servers": servers, "tool_sets": {}}), encoding="utf-8")


def test_calls_are_denied_if_nobody_can_approve_and_the_server_is_not_allowed(
    config: Path, run: Run
) -> None:
    ask_always(config)
    _, out, _ = run("chat", QUESTION, "--json")
    statuses = [
        each["status"]
        for each in map(json.loads, out.splitlines())
        if each["event"] == "ToolFinished"
    ]
    assert statuses == ["denied"]
    _, out, _ = run("chat", QUESTION, "--json", "--allow", "math")
    statuses = [
        each["status"]
        for each in map(json.loads, out.splitlines())
        if each["event"] == "ToolFinished"
    ]
    assert statuses == ["ok"]


def test_a_failing_model_is_reported(config: Path, run: Run) -> None:
    nowhere = {
        "provider": "openai",
        "base_url": "http://127.0.0.1:1/v1",
        "api_key": "none",
        "max_retries": 0,
    }
    models = {"gpt": {"client": "openai", "model": "gpt-5.4"}}
    config.write_text(
        json.dumps({"clients": {"openai": nowhere}, "models": models}), encoding="utf-8"
    )
    code, out, err = run("chat", "Hello")
    assert (code, out) == (FAILED, "")
    assert "openai" in err
    code, out, _ = run("chat", "Hello", "--json")
    end = json.loads(out.splitlines()[-1])
    assert (code, end["status"]) == (FAILED, "failed")
    assert end["kind"]


class Terminal:
    """A command that runs on a terminal."""

    def __init__(self, *words: str) -> None:
        ours, theirs = os.openpty()
        environ = {**os.environ, **lean(), "COLUMNS": "100", "TERM": "xterm"}
        command = [sys.executable, "-m", "casual_mcp_nb", *words]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, start_new_session=True
        )
        os.close(theirs)
        self.screen = ""
        self._ours = ours
        self._read = 0

    def until(self, text: str) -> str:
        """Read until a text appears, and return the output up to its end; later output is for the
        next call.
        """
        while (end := self.screen.find(text, self._read)) < 0:
            ready, _, _ = select.select([self._ours], [], [], 60)
            assert ready, f"{text!r} is not on the screen: {self.screen[-2_000:]!r}"
            self.screen += os.read(self._ours, 10_000).decode(errors="replace")
        new = self.screen[self._read : end + len(text)]
        self._read = end + len(text)
        return new

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._ours, text.encode())

    def to_the_end(self) -> None:
        """Read to the end."""
        with suppress(OSError):
            while piece := os.read(self._ours, 10_000):
                self.screen += piece.decode(errors="replace")


@pytest.fixture
def terminals() -> Iterator[Any]:
    """Start commands on terminals; ends them."""
    started: list[Terminal] = []

    def start(*words: str) -> Terminal:
        started.append(Terminal(*words))
        return started[-1]

    yield start
    for terminal in started:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal._ours)


@needs_pty
def test_a_conversation_with_approval_on_a_terminal(config: Path, terminals: Any) -> None:
    ask_always(config)
    terminal = terminals("chat")
    terminal.until("> ")
    terminal.type(f"{QUESTION}\n")
    assert '"expression": "17 * 24"' in terminal.until("type why: ")
    terminal.type("not with my numbers\n")
    assert "denied" in terminal.until("\n> ")
    terminal.type(f"{QUESTION}\n")
    terminal.until("type why: ")
    terminal.type("y\n")
    assert "408" in terminal.until("\n> ")
    terminal.type(f"{QUESTION}\n")
    terminal.until("type why: ")
    os.kill(terminal.process.pid, signal.SIGINT)
    terminal.until("\n> ")
    terminal.type("/undo\n")
    terminal.until("\n> ")
    terminal.type("/model nothing\n")
    assert "planner" in terminal.until("\n> ")
    terminal.type("\x04")
    terminal.to_the_end()
    assert terminal.process.wait() == 0
    assert "Traceback" not in terminal.screen


@pytest.mark.slow
@needs_pty
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_no_process_outlives_the_command(
    number: signal.Signals, config: Path, terminals: Any
) -> None:
    config.write_text(
        json.dumps(
            {
                **CONFIG,
                "servers": {"math": {"bundled": "math", "approval": "always"}},
                "tool_sets": {},
            }
        )
    )
    terminal = terminals("chat", QUESTION)
    terminal.until("type why: ")
    children = psutil.Process(terminal.process.pid).children(recursive=True)
    assert children
    os.kill(terminal.process.pid, number)
    terminal.to_the_end()
    expected = 130 if number == signal.SIGINT else 128 + number
    assert terminal.process.wait() == expected
    assert not psutil.wait_procs(children, timeout=10)[1]
    assert "Traceback" not in terminal.screen
