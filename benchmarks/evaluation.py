"""How fast runs are judged. What their statistics find is in `simulations.py`.

The time and the processor time of 500 cases in two arms with three repeats, answered by a cassette;
and the time of runs whose model takes 100 ms for an answer, in two processes of a Dask cluster and
in this one.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import common
from common.figures import Figure, installed, print_figures

from casual_mcp_nb import Session
from casual_mcp_nb.experiments.cases import ToolUseCase

CONFIG: dict[str, Any] = {
    "clients": {"offline": {"provider": "offline"}},
    "models": {"planner": {"client": "offline", "model": "planner"}},
    "servers": {
        name: {"bundled": name, "transport": "in-process", "defer_loading": True}
        for name in ("math", "units")
    },
    "tool_discovery": {"enabled": True},
}


WAIT = 0.1


class SlowModel(BaseHTTPRequestHandler):
    """A model in the wire format of OpenAI that calls one tool and then answers, each after a
    while.
    """

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a request."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(WAIT)
        message: dict[str, Any] = {"role": "assistant", "content": "12"}
        if body["messages"][-1]["role"] != "tool":
            function = {"name": "math__evaluate_expression", "arguments": '{"expression": "3 * 4"}'}
            message |= {
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
            }
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if message["content"] is None else "stop",
        }
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        document = {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "slow",
            "choices": [choice],
            "usage": usage,
        }
        data = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


@contextmanager
def slow_config(folder: Path) -> Iterator[Path]:
    """Write a config whose model is slow, and serve that model."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), SlowModel)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/v1"
    config = {
        "clients": {
            "slow": {"provider": "openai", "base_url": address, "api_key": "sk-not-a-real-key"}
        },
        "models": {"slow": {"client": "slow", "model": "slow"}},
        "servers": {"math": {"bundled": "math", "transport": "in-process"}},
    }
    path = folder / "slow.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    try:
        yield path
    finally:
        server.shutdown()
        server.server_close()


def seconds_here_and_in_two_processes(cases: int, folder: Path) -> tuple[float, float]:
    """Measure the time of runs that wait for their model, made by this process and by two of a
    cluster.

    The processes have opened their sessions before.
    """
    from distributed import Client, LocalCluster

    listed = [
        ToolUseCase(f"What is 3 * 4? ({n})", ["math:evaluate_expression"], answer="12", id=str(n))
        for n in range(cases)
    ]
    options: dict[str, Any] = {"concurrency": 1, "progress": False}
    with (
        slow_config(folder) as path,
        Session.from_config(path, store=None, trust=True, quiet=True) as session,
    ):
        session.experiments.run(listed[:2], **options)
        start = time.perf_counter()
        here = session.experiments.run(listed, **options)
        seconds_here = time.perf_counter() - start
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            executor = client.get_executor()
            session.experiments.run(listed[:8], executor=executor, **options)
            start = time.perf_counter()
            there = session.experiments.run(
                listed, executor=executor, results=folder / "dask.jsonl", **options
            )
            seconds_there = time.perf_counter() - start
        again = session.experiments.run(listed, results=folder / "dask.jsonl", **options)

    def outcome(results: Any) -> list[tuple[Any, ...]]:
        return [
            (each.key, each.right, each.called, each.input_tokens, each.output_tokens)
            for each in results.records
        ]

    assert outcome(here) == outcome(there)
    assert (len(there.records), again.reused) == (cases, cases)
    return seconds_here, seconds_there


def seconds_from_a_cassette(cases: int, folder: Path) -> tuple[float, float]:
    """Measure the time and the processor time of runs in two arms with three repeats that a
    cassette answers.
    """
    listed = [
        ToolUseCase(
            f"What is {n} * {n + 3}?", ["math:evaluate_expression"], answer=str(n * (n + 3))
        )
        for n in range(cases)
    ]
    deliveries: Any = ["definitions", "bridge"]
    path = folder / "cassette.json"
    with (
        Session.from_config(CONFIG, store=None, quiet=True) as session,
        session.cassettes.use(path, "all"),
    ):
        session.experiments.run(listed, deliveries=deliveries, max_runs=10_000, progress=False)
    with Session.quick(cassette=path, store=None, quiet=True, pace=0) as session:
        start, processor = time.perf_counter(), time.process_time()
        results = session.experiments.run(
            listed,
            deliveries=deliveries,
            repeats=3,
            results=folder / "runs.jsonl",
            max_runs=10_000,
            progress=False,
        )
        str(results)
        taken = time.perf_counter() - start, time.process_time() - processor
    assert results.not_made == ()
    assert len(results.records) == cases * 6
    return taken


def figures(quick: bool) -> list[Figure]:
    """The time of judging."""
    result = []
    count = 10 if quick else 500
    with tempfile.TemporaryDirectory() as folder:
        taken, processor = seconds_from_a_cassette(count, Path(folder))
        result.append(
            Figure(f"{count} cases x 2 arms x 3 repeats from a cassette", taken, "s", limit=60.0)
        )
        result.append(
            Figure(
                f"{count} cases x 2 arms x 3 repeats from a cassette, processor time",
                processor,
                "s",
            )
        )
        if installed("distributed"):
            cases = 8 if quick else 80
            here, there = seconds_here_and_in_two_processes(cases, Path(folder))
            limit = None if quick else 0.7 * here
            result.append(
                Figure(f"{cases} runs with a slow model in two processes", there, "s", here, limit)
            )
    return result


if __name__ == "__main__":
    assert common.ROOT
    print_figures(figures(quick=False))
