"""The HTTP API beside casual-mcp's, and under many clients: `python benchmarks/serve.py [--requests 100] [--turns 1000]`.

Both services get the same config: a model on a loopback server, which answers immediately and asks for one call where a message
says so, and two MCP servers over stdio. The same clients ask one service and then the other, in turn. casual-mcp is measured
if `.third-party/casual-mcp` has it (`python .ci/third_party.py casual-mcp`).

Then many clients at a time ask ours; each turn has numbers that only it has, so that a mix-up shows. Its memory is read after a
quarter and at the end, and it is ended while turns are running.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from kit.many_clients import Mixed, ask_many  # noqa: E402

THEIRS = ROOT / ".third-party" / "casual-mcp" / "bin" / "python"
ROUNDS = 5
WARM_UP = 10
MB = 1_000_000


def main(requests: int, clients: int, turns: int) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder, started(sys.executable, __file__, "--model") as model:
        Path(folder, "casual_mcp_config.json").write_text(json.dumps(config(model)), encoding="utf-8")
        compare(folder, requests)
        load(folder, clients, turns)


def config(model: str) -> dict[str, Any]:
    """The config of both services."""
    server = {"command": sys.executable, "args": [str(Path(__file__).resolve()), "--server"]}
    return {
        "clients": {"desk": {"provider": "openai", "base_url": f"{model}/v1", "api_key": "sk-of-nobody"}},
        "models": {"small": {"client": "desk", "model": "m-1"}},
        "servers": {"desk": {**server, "transport": "stdio"}, "shelf": {**server, "transport": "stdio"}},
    }


def compare(folder: str, requests: int) -> None:
    """Print requests a second of both, and their ratio."""
    commands = {"ours": [sys.executable, "-m", "casual_mcp_nb", "serve", "--trust", "--port"]}
    if THEIRS.exists():
        commands["casual-mcp"] = [str(THEIRS), "-m", "uvicorn", "casual_mcp.main:app", "--log-level", "warning", "--port"]
    else:
        print("casual-mcp is not installed: its column is left out.")
    services = {name: served(folder, command) for name, command in commands.items()}
    urls = {name: service.__enter__() for name, service in services.items()}
    try:
        print(
            f"{'requests a second, median of ' + str(ROUNDS):<44}"
            + "".join(f"{name:>12}" for name in urls)
            + "   ours / theirs"
        )
        for calls, at_a_time in ((0, 1), (0, 16), (1, 1), (1, 16)):
            rates: dict[str, list[float]] = {name: [] for name in urls}
            for url in urls.values():
                asyncio.run(rate(url, WARM_UP, at_a_time, calls))
            for _ in range(ROUNDS):
                for name, url in urls.items():
                    rates[name].append(asyncio.run(rate(url, requests, at_a_time, calls)))
            medians = {name: sorted(each)[ROUNDS // 2] for name, each in rates.items()}
            ratio = f"x {medians['ours'] / medians['casual-mcp']:.2f}" if "casual-mcp" in medians else ""
            what = f"{'one call' if calls else 'no call'}, {at_a_time} client{'s' * (at_a_time > 1)}"
            print(f"{what:<44}" + "".join(f"{value:12.1f}" for value in medians.values()) + f"   {ratio}", flush=True)
    finally:
        for service in services.values():
            service.__exit__(None, None, None)


async def rate(url: str, requests: int, at_a_time: int, calls: int) -> float:
    """Requests a second of so many clients."""
    start = time.perf_counter()
    await ask_many(url, clients=at_a_time, turns=requests, calls=calls, checked=False)
    return requests / (time.perf_counter() - start)


def load(folder: str, clients: int, turns: int) -> None:
    """Print what many clients got, what memory it took, and how the service ended with turns running."""
    with served(folder, [sys.executable, "-m", "casual_mcp_nb", "serve", "--trust", "--port"]) as url:
        process = psutil.Process(served.process.pid)  # type: ignore[attr-defined]
        start = time.perf_counter()
        mixed = asyncio.run(ask_many(url, clients=clients, turns=turns // 4))
        first = process.memory_info().rss
        mixed += asyncio.run(ask_many(url, clients=clients, turns=turns - turns // 4))
        seconds = time.perf_counter() - start
        last = process.memory_info().rss
        print(f"{turns:,} turns of {clients} clients at a time: {turns / seconds:.0f} turns a second, {report(mixed)}")
        print(f"memory after a quarter {first / MB:.0f} MB, at the end {last / MB:.0f} MB: {(last - first) / MB:+.1f} MB")
        children = process.children(recursive=True)
        asyncio.run(ended_while_running(url, process, clients))
        left = [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        print(f"processes left: {len(left)} of {len(children)}")


def report(mixed: Mixed) -> str:
    """The problems in words."""
    return f"{mixed.failed} failed, {mixed.wrong} with another's answer or stats"


async def ended_while_running(url: str, process: psutil.Process, clients: int) -> None:
    """End the service while turns run, and print how their clients were answered."""
    running = asyncio.create_task(ask_many(url, clients=clients, turns=clients * 20, calls=3))
    await asyncio.sleep(1.0)
    start = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(served.process.wait, 30)  # type: ignore[attr-defined]
    seconds = time.perf_counter() - start
    mixed = await running
    print(f"ended in {seconds:.2f} s with turns running: {mixed.wrong} wrong answers, {dict(mixed.kinds)}")


@contextmanager
def served(folder: str, command: list[str]) -> Iterator[str]:
    """Run a service at a free port, until the end of the block; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "MCP_STORE": "off", "LOG_LEVEL": "ERROR"}
    process = subprocess.Popen([*command, str(port)], cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    served.process = process  # type: ignore[attr-defined]
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                httpx.get(f"{url}/toolsets")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
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

    with socket.create_server(("127.0.0.1", 0), backlog=1_024) as bound:
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
        main(given.requests, given.clients, given.turns)
