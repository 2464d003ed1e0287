"""Budgets: never passed, over several processes and killed ones, and waited for where others hold a
part of them.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from kit.provider import answer
from kit.scripted_http import Reply, Request, ScriptedHttp

from casual_mcp_nb import Session
from casual_mcp_nb.base.tokens import TokenParts, TokenUsage
from casual_mcp_nb.conversation.event import Request as ModelRequest
from casual_mcp_nb.experiments.budget import Budget, Ledger
from casual_mcp_nb.experiments.cases import ToolUseCase
from casual_mcp_nb.experiments.results_file import ResultsFile

pytestmark = pytest.mark.defect("P6")

ANSWER = 100


class Counting(ScriptedHttp):
    """A provider that bills a fifth of the letters of a request, and 100 tokens for each answer,
    when it is asked.
    """

    def __init__(self) -> None:
        super().__init__(self._reply)
        self.billed = 0
        self.hold_at: int | None = None
        self.held = threading.Event()
        self._lock = threading.Lock()

    def _reply(self, request: Request) -> Reply:
        prompt = sum(len(str(message["content"])) for message in request.body["messages"]) // 5
        with self._lock:
            self.billed += prompt + ANSWER
            hold = self.hold_at is not None and len(self.seen) >= self.hold_at
        if hold:
            self.held.set()
            return Reply(silent=True)
        return Reply(body=answer("openai", "Yes.", usage=(prompt, ANSWER)))

    def config(self) -> dict[str, Any]:
        client = {
            "provider": "openai",
            "base_url": f"{self.url}/v1",
            "api_key": "sk-x",
            "timeout": 60,
        }
        return {"clients": {"desk": client}, "models": {"m": {"client": "desk", "model": "m-1"}}}


CASES = [
    ToolUseCase(f"{number} " + "word " * 200, answer="yes", id=str(number)) for number in range(40)
]
LIMIT = 8_000
OPTIONS: dict[str, Any] = {
    "max_total_tokens": LIMIT,
    "max_tokens": ANSWER,
    "concurrency": 2,
    "progress": False,
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_it_is_not_passed_though_processes_are_killed_and_the_runs_resumed(tmp_path: Path) -> None:
    path, config = tmp_path / "runs.jsonl", tmp_path / "config.json"
    with Counting() as server:
        config.write_text(json.dumps(server.config()))
        script = textwrap.dedent(f"""
            from casual_mcp_nb import Session
            from casual_mcp_nb.experiments.cases import ToolUseCase
            cases = [ToolUseCase(f"{{number}} " + "word " * 200, answer="yes", id=str(number)) for number in range(40)]
            with Session.from_config({str(config)!r}, trust=True, store=None, in_process={{}}, quiet=True) as session:
                session.experiments.run(cases, results={str(path)!r}, **{OPTIONS!r})
            """)
        for resume in range(3):
            server.hold_at, server.held = len(server.seen) + 5, threading.Event()
            process = subprocess.Popen(
                [sys.executable, "-c", script], stderr=subprocess.PIPE, text=True
            )
            assert server.held.wait(60), resume
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)
            assert server.billed <= LIMIT
        server.hold_at = None
        with Session(server.config(), in_process={}, store=None, quiet=True) as session:
            results = session.experiments.run(CASES, results=path, **OPTIONS)
            billed = server.billed
            again = session.experiments.run(CASES, results=path, **OPTIONS)
    assert (results.status, again.status) == ("over budget", "over budget")
    assert server.billed == billed <= LIMIT
    # What was held when a process was killed counts as spent, and nothing else is lost.
    assert results.spent[0] >= billed
    assert LIMIT - results.spent[0] < 2 * 400
    assert results.reused >= 3


async def test_a_call_waits_for_what_others_hold(tmp_path: Path) -> None:
    budget = Budget(tokens=1_000)
    request = ModelRequest(
        messages=(), tools=(), tokens=TokenParts(system=100), options={"max_tokens": 500}
    )
    assert await budget.reserve(1, request, None)
    waiting = [asyncio.create_task(budget.reserve(run, request, None)) for run in (2, 3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    budget.spend(1, TokenUsage(50, 10), request, "", None)
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [task.done() for task in waiting].count(True) == 1
    # The other one waits for this one, and then there is too little for it.
    budget.release(2)
    assert [await task for task in waiting] == [True, False]


async def test_concurrent_runs_spend_the_budget_and_do_not_end_at_reservations() -> None:
    with (
        Counting() as server,
        Session(server.config(), in_process={}, store=None, quiet=True) as session,
    ):
        options = {"max_total_tokens": 9_000, "concurrency": 4, "progress": False}
        results = await session.experiments.run_async(CASES[:20], **options)
        # Four times 4,096 tokens would not fit, if each had to be reserved at once.
        assert len(results.records) > 10
        assert server.billed <= 9_000


def test_what_was_reserved_and_never_ended_counts_as_spent(tmp_path: Path) -> None:
    ledger = Ledger()
    for kind, call, tokens in [
        ("reserved", "a", 100),
        ("spent", "a", 30),
        ("reserved", "b", 200),
        ("spent", "c", 5),
    ]:
        ledger.read(kind, call, (tokens, 0.0))
    assert ledger.spent == (235, 0)
    file = ResultsFile(tmp_path / "runs.jsonl")
    file.ledger.write("reserved", "x", (50.0, 0.5))
    assert ResultsFile(tmp_path / "runs.jsonl").ledger.spent == (50, 0.5)


@pytest.mark.parametrize(
    ("status", "billed"), [(400, False), (429, False), (504, True), (200, True)]
)
def test_what_a_refused_call_held_is_free_again_and_a_broken_ones_is_not(
    status: int, billed: bool, tmp_path: Path
) -> None:
    class Failing(Counting):
        def _reply(self, request: Request) -> Reply:
            whole = super()._reply(request)
            return (
                Reply(body=whole.body, cut=20)
                if status == 200
                else Reply(status, {"error": {"message": "no"}})
            )

    with Failing() as server:
        config = server.config()
        config["clients"]["desk"]["max_retries"] = 0
        with Session(config, in_process={}, store=None, quiet=True) as session:
            results = session.experiments.run(CASES[:1], results=tmp_path / "runs.jsonl", **OPTIONS)
    assert len(results.not_made) == 1
    assert (results.spent[0] >= ANSWER) is billed
