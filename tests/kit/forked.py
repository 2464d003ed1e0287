"""Tests in processes of their own, each with a hard time limit, without the start of an interpreter
for each.

A template is forked when the tests have been collected: everything is imported, and no thread and
no loop exists that a fork could tear apart. The template forks a child for each test, and kills it
with its process group when the limit is reached.
"""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

LIMIT_SECONDS = 60.0
"""How long a test may take, unless it says otherwise with `@pytest.mark.timeout`."""

PATIENCE_SECONDS = 30.0
"""How long after a test's limit its reports are waited for."""


class Forked:
    """The template process, and the pipes to it: the number of a test goes in, its reports come out
    as a line.

    Args:
        items: The tests.
        config: pytest's.
    """

    def __init__(self, items: Sequence[pytest.Item], config: pytest.Config) -> None:
        self._numbers = {item.nodeid: number for number, item in enumerate(items)}
        self._config = config
        requests, self._ask = os.pipe()
        answer, replies = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._ask)
                os.close(answer)
                _serve(items, config, requests, replies)
            finally:
                os._exit(0)
        os.close(requests)
        os.close(replies)
        self._answer = os.fdopen(answer)

    def run(self, item: pytest.Item) -> list[pytest.TestReport]:
        """Run a test and give its reports."""
        os.write(self._ask, b"%d\n" % self._numbers[item.nodeid])
        there, _, _ = select.select([self._answer], [], [], limit_of(item) + PATIENCE_SECONDS)
        line = self._answer.readline() if there else ""
        if not line:
            raise RuntimeError(
                "The template process has ended or hangs; no test can be run any more."
            )
        reply = json.loads(line)
        if reply["reports"] is None:
            text = (
                f"The test did not end within {limit_of(item):g} s, or its process"
                f" died.\n{reply['stacks']}"
            )
            return [
                pytest.TestReport(
                    item.nodeid, item.location, {}, "failed", text, "call", duration=limit_of(item)
                )
            ]
        make = self._config.hook.pytest_report_from_serializable
        return [make(config=self._config, data=data) for data in reply["reports"]]

    def close(self) -> None:
        """End the template."""
        os.close(self._ask)
        self._answer.close()
        os.waitpid(self._pid, 0)


def limit_of(item: pytest.Item) -> float:
    """Read how many seconds a test may take."""
    limits = [float(mark.args[0]) for mark in item.iter_markers("timeout")]
    return next(filter(None, limits), LIMIT_SECONDS)


def leave_to_template(item: pytest.Item) -> None:
    """Have pytest-timeout leave a test alone: its alarm would end the process that waits for the
    template, and so the run.
    """
    item.add_marker(pytest.mark.timeout(0), append=False)


def _serve(
    items: Sequence[pytest.Item], config: pytest.Config, requests: int, replies: int
) -> None:
    with os.fdopen(requests) as questions, os.fdopen(replies, "w") as answers:
        for line in questions:
            answers.write(json.dumps(_run_in_child(items[int(line)], config)) + "\n")
            answers.flush()


def _run_in_child(item: pytest.Item, config: pytest.Config) -> dict[str, Any]:
    limit = limit_of(item)
    read, write = os.pipe()
    with tempfile.TemporaryFile("w+") as stacks:
        pid = os.fork()
        if pid == 0:
            try:
                os.setpgid(0, 0)
                os.close(read)
                faulthandler.dump_traceback_later(limit * 0.95, file=stacks)
                _report(item, config, write)
            finally:
                os._exit(0)
        os.close(write)
        data = _read_all(read, limit)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        stacks.seek(0)
        return {"reports": json.loads(data) if data else None, "stacks": stacks.read()}


def _report(item: pytest.Item, config: pytest.Config, write: int) -> None:
    reports = runtestprotocol(item, nextitem=None, log=False)
    data = [
        config.hook.pytest_report_to_serializable(config=config, report=report)
        for report in reports
    ]
    with os.fdopen(write, "w") as out:
        json.dump(data, out)


def _read_all(descriptor: int, seconds: float) -> bytes:
    """Read a pipe to its end; nothing where that takes longer."""
    end = time.monotonic() + seconds
    parts: list[bytes] = []
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        while select.select([pipe], [], [], max(end - time.monotonic(), 0))[0]:
            if not (part := pipe.read(1 << 20)):
                return b"".join(parts)
            parts.append(part)
    return b""
