"""The process for work that can be endless: it ends overlong jobs, knows nothing, and is gone when
it should be.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.interrupts import at_each_line
from kit.processes import runs
from kit.waiting import wait_until

from casual_mcp_nb.isolation.worker import GaveUp, Worker

CATASTROPHIC = {"schema": json.dumps({"pattern": "^(a+)+$"}), "value": "a" * 32 + "!"}
PLAIN = {"schema": json.dumps({"type": "string"}), "value": "x"}
LINUX = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are looked at through /proc"
)


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


def template(text: str, **context: Any) -> dict[str, Any]:
    return {
        "name": "a",
        "templates": {"a": {"path": "/a.j2", "text": text}},
        "context": context,
        "longest": 1000,
    }


def test_a_job_that_does_not_end_is_given_up_and_the_next_one_is_done(worker: Worker) -> None:
    assert worker.run("validate", PLAIN, 5) is None
    with pytest.raises(GaveUp, match=r"more than 0\.5 s"):
        worker.run("validate", CATASTROPHIC, 0.5)
    assert worker.run("validate", PLAIN, 5) is None


def test_a_job_that_keeps_its_interpreter_is_killed(worker: Worker) -> None:
    # Neither an alarm nor an interrupt is noticed within such a sum.
    with pytest.raises(GaveUp):
        worker.run("render", template("{{ 7 ** (7 ** 9) }}"), 0.5)
    assert worker.run("render", template("{{ x }}", x=1), 5) == {"text": "1"}


def test_the_answer_to_an_interrupted_job_is_not_taken_for_the_next_one(worker: Worker) -> None:
    def run() -> None:
        worker.run("render", template("{{ x }}", x="interrupted"), 5)

    run()
    for where in at_each_line(run, lambda code: code.co_name == "_exchange"):
        assert worker.run("render", template("{{ x }}", x=1), 5) == {"text": "1"}, where


@pytest.mark.defect("G4")
@LINUX
def test_a_statement_over_a_large_result_spills_to_no_file(worker: Worker) -> None:
    sql = (
        "SELECT count(*) FROM (SELECT hex(zeroblob(2400000)) || a.i AS h FROM result a, result b"
        " ORDER BY h LIMIT -1 OFFSET 1)"
    )
    text = json.dumps([{"i": number} for number in range(100)])
    job = {"key": "k", "text": text, "plain": False, "characters": 1_000, "seconds": 60, "sql": sql}
    with pytest.raises(GaveUp, match="memory"):
        worker.run("query", job, 60)


def test_jobs_wait_for_one_another_for_as_long_as_they_may_take(worker: Worker) -> None:
    assert worker.run("validate", PLAIN, 5) is None
    given_up: list[str] = []

    def check() -> None:
        try:
            worker.run("validate", CATASTROPHIC, 1.5)
        except GaveUp as error:
            given_up.append(str(error))

    threads = [threading.Thread(target=check) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(given_up) == 3


@LINUX
def test_the_process_gets_nothing_of_the_environment(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "planted-key")
    worker.run("validate", PLAIN, 5)
    assert b"planted" not in Path(f"/proc/{worker.pid}/environ").read_bytes()
    assert worker.run("render", template("{{ x }}", x="{{ 1 + 1 }}"), 5) == {"text": "{{ 1 + 1 }}"}


@LINUX
def test_the_process_ends_when_it_is_closed_and_when_nobody_holds_it() -> None:
    for end in ("close", "forget"):
        worker = Worker()
        worker.run("validate", PLAIN, 5)
        pid = worker.pid
        assert pid is not None
        if end == "close":
            worker.close()
            with pytest.raises(GaveUp, match="closed"):
                worker.run("validate", PLAIN, 5)
        del worker
        gc.collect()
        wait_until(lambda pid=pid: not runs(pid), f"the end of the process: {end}")


@LINUX
def test_nobody_waits_for_a_process_that_is_collected_as_garbage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = Worker()
    worker.run("validate", PLAIN, 5)
    pid = worker.pid
    assert pid is not None
    # Garbage is collected on any thread, an event loop's too.
    waited: list[object] = []
    monkeypatch.setattr(subprocess.Popen, "wait", lambda *given, **more: waited.append(given))
    del worker
    gc.collect()
    assert waited == []
    monkeypatch.undo()
    wait_until(lambda: not runs(pid), "the end of the process")
    # The next one takes its exit status, so that the system can forget it.
    next_worker = Worker()
    assert next_worker.run("validate", PLAIN, 5) is None
    assert not Path(f"/proc/{pid}").exists()
    next_worker.close()


OWNER = """
import json, sys, threading
from casual_mcp_nb.isolation.worker import Worker
worker = Worker()
worker.run("validate", {plain!r}, 20)
print(worker.pid, flush=True)
threading.Thread(target=worker.run, args=("validate", {busy!r}, 3.0), daemon=True).start()
sys.stdin.read()
"""


@LINUX
def test_the_process_ends_with_an_owner_that_is_killed_in_the_middle_of_a_job() -> None:
    code = OWNER.format(plain=PLAIN, busy=CATASTROPHIC)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert runs(pid)
        owner.kill()
    wait_until(lambda: not runs(pid), "the end of the worker of a killed process")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_starts_a_separate_process(worker: Worker) -> None:
    worker.run("validate", PLAIN, 5)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        worker.run("validate", PLAIN, 10)
        os.write(write, str(worker.pid).encode())
        worker.close()
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as output:
        other = output.read()
    os.waitpid(child, 0)
    assert other.isdigit()
    assert int(other) != worker.pid
    assert worker.run("validate", PLAIN, 5) is None


@pytest.mark.parametrize("value", [5, None, True, "abc", ["abc"]])
def test_a_value_that_is_none_of_many_choices_is_a_problem(worker: Worker, value: Any) -> None:
    choices = [f"choice {number}" for number in range(100)]
    schema = json.dumps({"properties": {"a": {"enum": choices}}})
    (problem,) = worker.run("validate", {"schema": schema, "value": {"a": value}, "all": True}, 5)
    assert problem.startswith(f"a: {value!r} is not one of ['choice 0'")
