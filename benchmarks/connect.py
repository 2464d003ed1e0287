"""Time to connect six real servers and list their tools: `python benchmarks/connect.py [--rounds
3]`.

Each measurement runs in a separate process, with everything imported before the clock starts; the
variants alternate, and the best round counts. Compared with this package: each server alone through
a fastmcp client, all six through `fastmcp.Client(config)`, and casual-mcp, if it can be imported. A
second chat shows what a chat costs when its servers are already connected; its model answers
immediately.

The lower bound is the time that all six need concurrently on bare pipes, with a hand-written
handshake and no MCP library: it includes the servers' own time, the number of cores, and whatever
else keeps them busy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
from common import real_servers
from common.figures import Figure, be_quiet, in_process, installed, print_figures

QUICK = ("memory",)
"""The servers of a small run."""
Row = dict[str, float]
Config = dict[str, dict[str, Any]]


class AtOnce:
    """A casual-llm client that answers immediately."""

    async def _chat(self, model: str, messages: list[Any], options: Any) -> tuple[Any, None]:
        from casual_llm.messages import AssistantMessage

        return AssistantMessage(content="Hello."), None


class Clock:
    """Measures wall-clock time, and the processor time of this process and its servers, since its
    creation.
    """

    def __init__(self) -> None:
        self._own, self._start = time.process_time(), time.perf_counter()

    def row(self) -> Row:
        """Return the seconds so far."""
        seconds = time.perf_counter() - self._start
        servers = sum(
            sum(each.cpu_times()[:2]) for each in psutil.Process().children(recursive=True)
        )
        return {
            "seconds": seconds,
            "own": time.process_time() - self._own,
            "cpu": time.process_time() - self._own + servers,
        }


async def alone(config: Config, name: str) -> Row:
    """Connect one server through a fastmcp client."""
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    one = config[name]
    clock = Clock()
    client = Client(
        StdioTransport(one["command"], one["args"], env=one.get("env"), log_file=Path(os.devnull))
    )
    async with client:
        await client.list_tools()
        return clock.row()


async def bare(config: Config) -> Row:
    """Connect all concurrently, without an MCP library."""
    clock = Clock()
    processes = await asyncio.gather(*(_shake_hands(one) for one in config.values()))
    row = clock.row()
    for process in processes:
        process.kill()
        await process.wait()
    return row


async def _shake_hands(one: dict[str, Any]) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        one["command"],
        *one["args"],
        env=os.environ | one.get("env", {}),
        limit=2**20,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        # As the SDK does: Linux shares the cores among sessions, so one session for all would get
        # less of a busy machine.
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bare", "version": "1"},
    }
    for number, method, params in ((1, "initialize", hello), (2, "tools/list", {})):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        process.stdin.write(json.dumps(message).encode() + b"\n")
        while json.loads(await process.stdout.readline()).get("id") != number:
            pass
        if number == 1:
            process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    return process


async def fastmcp(config: Config) -> Row:
    """Connect all through one fastmcp client."""
    from fastmcp import Client

    clock = Clock()
    client = Client({"mcpServers": config})
    async with client:
        await client.list_tools()
        return clock.row()


async def ours(config: Config) -> Row:
    """Connect all through this package, and chat a second time."""
    from casual_mcp_nb.engine.chat import McpToolChat
    from casual_mcp_nb.servers.lifecycle import import_sdks

    imports = await _timed(lambda: asyncio.to_thread(import_sdks))
    model, question = _model_and_question()
    chat = McpToolChat.from_config({"mcpServers": config})
    clock = Clock()
    await chat.server_manager.connect()
    await chat.server_manager.list_tools()
    row = clock.row() | {"imports": imports}
    await chat.chat([question], model=model)
    row["second chat"] = await _timed(lambda: chat.chat([question], model=model))
    await chat.close()
    return row


async def casual_mcp(config: Config) -> Row:
    """Connect all through casual-mcp, and chat a second time the way its `chat` does by default,
    outside `async with`.
    """
    from casual_mcp.mcp_tool_chat import McpToolChat
    from casual_mcp.models.config import Config as TheirConfig

    model, question = _model_and_question()
    theirs = TheirConfig.model_validate({"clients": {}, "models": {}, "servers": config})
    chat = McpToolChat.from_config(theirs)
    clock = Clock()
    async with chat:
        await chat.tool_cache.get_tools()
        row = clock.row()
    chat = McpToolChat.from_config(theirs)
    await chat.chat([question], model=model)
    row["second chat"] = await _timed(lambda: chat.chat([question], model=model))
    return row


def _model_and_question() -> tuple[Any, Any]:
    from casual_llm import Model
    from casual_llm.messages import UserMessage

    return Model(AtOnce(), "at-once"), UserMessage(content="Hello")  # type: ignore[arg-type]


async def _timed(run: Callable[[], Awaitable[object]]) -> float:
    start = time.perf_counter()
    await run()
    return time.perf_counter() - start


WAYS: dict[str, Callable[[Config], Coroutine[Any, Any, Row]]] = {
    "bare": bare,
    "ours": ours,
    "fastmcp": fastmcp,
    "casual-mcp": casual_mcp,
}
PEERS = ("bare", "fastmcp", "casual-mcp")


def run_one(way: str, names: list[str]) -> None:
    """Measure one way in this process and print its row."""
    be_quiet()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        config = {
            name: server
            for name, server in real_servers.configs(Path(folder)).items()
            if name in names
        }
        run = WAYS.get(way)
        row = asyncio.run(run(config)) if run else asyncio.run(alone(config, way))
        print(json.dumps(row), flush=True)
    # Anything that a package left running must not slow down the next measurement.
    for child in psutil.Process().children(recursive=True):
        child.kill()
    os._exit(0)


def measure(names: list[str], rounds: int) -> list[Figure]:
    """Measure every way in turn, each time in a separate process."""
    ways = [*names, *(way for way in WAYS if way != "casual-mcp" or installed("casual_mcp"))]
    rows: dict[str, list[Row]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            rows[way].append(in_process(__file__, "--way", way, *names))
    # Other load on the machine only adds to each number.
    best = {
        way: {key: min(row[key] for row in many) for key in many[0]} for way, many in rows.items()
    }
    ours, seconds = best["ours"], best["ours"]["seconds"]
    alone_seconds = [best[name]["seconds"] for name in names]
    return [
        *(
            Figure(f"all {len(names)} ready, beside {way}", seconds, "s", best[way]["seconds"])
            for way in ways
            if way in PEERS
        ),
        Figure("  beside the slowest alone", seconds, "s", max(alone_seconds)),
        Figure("  beside one after the other", seconds, "s", sum(alone_seconds)),
        Figure(
            "  processor time of this process, beside fastmcp",
            ours["own"],
            "s",
            best["fastmcp"]["own"],
        ),
        Figure("  imports before it, once", ours["imports"], "s"),
        Figure(
            "a second chat, beside casual-mcp",
            ours["second chat"] * 1_000,
            "ms",
            second_chat_ms(best.get("casual-mcp")),
        ),
    ]


def second_chat_ms(row: Row | None) -> float | None:
    """Return what the peer's second chat took, if it was measured."""
    return row["second chat"] * 1_000 if row else None


def figures(quick: bool) -> list[Figure]:
    """The time until all servers are ready, and a second chat."""
    names = list(real_servers.configs(Path()))
    return measure(list(QUICK), 1) if quick else measure(names, 3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("servers", nargs="*", metavar="NAME", help="only these servers")
    given = parser.parse_args()
    names = given.servers or list(real_servers.configs(Path()))
    if given.way:
        run_one(given.way, names)
    else:
        print_figures(measure(names, given.rounds))
