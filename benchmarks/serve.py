"""The HTTP API beside casual-mcp's, and under many clients: `python benchmarks/serve.py [--requests
100] [--turns 1000]`.

Both services get the same config: a model on a loopback server, which answers immediately and asks
for one call where a message says so, and two MCP servers over stdio. The same clients ask one
service and then the other, in turn. casual-mcp is measured if `.third-party/casual-mcp` has it
(`python .ci/third_party.py casual-mcp`).

Then many clients at a time ask ours; each turn has numbers that only it has, so that a mix-up
shows. Its memory is read after a quarter and at the end, and it is ended while turns are running.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from common import ROOT
from common.figures import Figure, print_figures
from kit.many_clients import Mixed, ask_many

THEIRS = ROOT / ".third-party" / "casual-mcp" / "bin" / "python"
ROUNDS = 5
WARM_UP = 10
MB = 1_000_000


def measure(
    requests: int, clients: int, turns: int, *, rounds: int = ROUNDS, with_peer: bool = True
) -> list[Figure]:
    """Measure both services, and ours under load."""
    with (
        tempfile.TemporaryDirectory() as folder,
        started(sys.executable, __file__, "--model") as model,
    ):
        Path(folder, "casual_mcp_config.json").write_text(
            json.dumps(config(model)), encoding="utf-8"
        )
        command = [sys.executable, "-m", "casual_mcp_nb", "serve", "--trust", "--port"]
        with served(folder, command) as (url, process):
            compared = compare(folder, url, requests, rounds, with_peer)
            return [*compared, *load(url, process, clients, turns)]


def figures(quick: bool) -> list[Figure]:
    """Requests a second beside casual-mcp, and what a load leaves behind."""
    return measure(3, 3, 8, rounds=1, with_peer=False) if quick else measure(100, 50, 1_000)


def config(model: str) -> dict[str, Any]:
    """The config of both services."""
    server = {"command": sys.executable, "args": [str(Path(__file__).resolve()), "--server"]}
    return {
        "clients": {
            "desk": {"provider": "openai", "base_url": f"{model}/v1", "api_key": "sk-of-nobody"}
        },
        "models": {"small": {"client": "desk", "model": "m-1"}},
        "servers": {
            "desk": {**server, "transport": "stdio"},
            "shelf": {**server, "transport": "stdio"},
        },
    }


def compare(folder: str, ours: str, requests: int, rounds: int, with_peer: bool) -> list[Figure]:
    """Measure requests a second of both."""
    measured = []
    with ExitStack() as stack:
        urls = {"ours": ours}
        if with_peer and THEIRS.exists():
            command = [
                str(THEIRS),
                "-m",
                "uvicorn",
                "casual_mcp.main:app",
                "--log-level",
                "warning",
                "--port",
            ]
            urls["casual-mcp"], _ = stack.enter_context(served(folder, command))
        for calls, at_a_time in ((0, 1), (0, 50), (1, 1), (1, 50)):
            rates: dict[str, list[float]] = {name: [] for name in urls}
            for url in urls.values():
                asyncio.run(rate(url, min(WARM_UP, requests), at_a_time, calls))
            for _ in range(rounds):
                for name, url in urls.items():
                    rates[name].append(asyncio.run(rate(url, requests, at_a_time, calls)))
            medians = {name: sorted(each)[rounds // 2] for name, each in rates.items()}
            what = (
                f"requests with {'one call' if calls else 'no call'}, {at_a_time}"
                f" client{'s' * (at_a_time > 1)}"
            )
            measured.append(
                Figure(what, medians["ours"], "1/s", medians.get("casual-mcp"), more_is_better=True)
            )
    return measured


async def rate(url: str, requests: int, at_a_time: int, calls: int) -> float:
    """Requests a second of so many clients."""
    start = time.perf_counter()
    await ask_many(url, clients=at_a_time, turns=requests, calls=calls, checked=False)
    return requests / (time.perf_counter() - start)


def load(url: str, service: subprocess.Popen[bytes], clients: int, turns: int) -> list[Figure]:
    """Measure what many clients get, what memory it takes, and how the service ends with turns
    running.
    """
    process = psutil.Process(service.pid)
    start = time.perf_counter()
    mixed = asyncio.run(ask_many(url, clients=clients, turns=turns // 4))
    first = process.memory_info().rss
    mixed += asyncio.run(ask_many(url, clients=clients, turns=turns - turns // 4))
    seconds = time.perf_counter() - start
    last = process.memory_info().rss
    children = process.children(recursive=True)
    ending, ended = asyncio.run(ended_while_running(url, service, clients))
    why = (
        f" ({', '.join(f'{count} {kind}' for kind, count in mixed.kinds.most_common(2))})"
        if mixed.kinds
        else ""
    )
    left = [
        child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE
    ]
    return [
        Figure(f"{turns:,} turns of {clients} clients", turns / seconds, "1/s"),
        Figure(f"  that failed{why}", mixed.failed, "", limit=0),
        Figure("  with another's answer or stats", mixed.wrong + ended.wrong, "", limit=0),
        Figure("memory at the end", last / MB, "MB"),
        Figure("  more than after a quarter", (last - first) / MB, "MB"),
        Figure("ended with turns running", ending, "s"),
        Figure(f"  processes left of {len(children)}", len(left), "", limit=0),
    ]


async def ended_while_running(
    url: str, service: subprocess.Popen[bytes], clients: int
) -> tuple[float, Mixed]:
    """End the service while turns run; return the seconds until it has ended and how their clients
    were answered.
    """
    running = asyncio.create_task(ask_many(url, clients=clients, turns=clients * 20, calls=3))
    await asyncio.sleep(1.0)
    start = time.perf_counter()
    service.terminate()
    await asyncio.to_thread(service.wait, 30)
    seconds = time.perf_counter() - start
    return seconds, await running


@contextmanager
def served(folder: str, command: list[str]) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run a service at a free port, until the end of the block; yield its address and its
    process.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "MCP_STORE": "off", "LOG_LEVEL": "ERROR"}
    process = subprocess.Popen(
        [*command, str(port)], cwd=folder, env=environment, stdout=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                httpx.get(f"{url}/toolsets")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url, process
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def started(*command: str) -> Iterator[str]:
    """Run a process that prints its address first."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def serve_model() -> None:
    """Be the model: a loopback server in the wire format of OpenAI."""
    from kit.many_clients import model_app
    from uvicorn import Config, Server

    from casual_mcp_nb.serve.listener import bound_socket

    # Not `create_server`, whose connections asyncio gives no TCP_NODELAY: each answer would wait 40
    # ms for an acknowledgement.
    with bound_socket("127.0.0.1", 0) as bound:
        print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
        asyncio.run(Server(Config(model_app, log_level="error", access_log=False)).serve([bound]))


def serve_tools() -> None:
    """Be an MCP server over stdio."""
    from fastmcp import FastMCP

    server: FastMCP[Any] = FastMCP("desk")

    @server.tool(annotations={"readOnlyHint": True})
    def echo(text: str) -> str:
        """Return a text."""
        return text

    server.run("stdio", show_banner=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100, help="requests of a round")
    parser.add_argument("--clients", type=int, default=50, help="clients at a time")
    parser.add_argument("--turns", type=int, default=1_000, help="turns of these clients in all")
    parser.add_argument("--model", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--server", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.model:
        serve_model()
    elif given.server:
        serve_tools()
    else:
        print_figures(measure(given.requests, given.clients, given.turns))
