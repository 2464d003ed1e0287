"""Time to connect six real servers and list their tools: `python benchmarks/connect.py [--rounds 3]`.

Each measurement runs in a separate process, with everything imported before the clock starts; the variants alternate, and the
best round counts. Compared with this package: each server alone through a fastmcp client, all six through
`fastmcp.Client(config)`, and casual-mcp, if it can be imported. A second chat shows what a chat costs when its servers are
already connected; its model answers immediately.

The lower bound is the time that all six need concurrently on bare pipes, with a hand-written handshake and no MCP library: it
includes the servers' own time, the number of cores, and whatever else keeps them busy.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import real_servers

TOOLS = 51
"""Minimum number of tools; server-everything offers more to a client that declares more capabilities."""
Row = dict[str, float]
Config = dict[str, dict[str, Any]]


class AtOnce:
    """A casual-llm client that answers immediately."""

    async def _chat(self, model: str, messages: list[Any], options: Any) -> tuple[Any, None]:
        from casual_llm.messages import AssistantMessage

        return AssistantMessage(content="Hello."), None


class Clock:
    """Measures wall-clock time, and the processor time of this process and its servers, since its creation."""

    def __init__(self) -> None:
        self._own, self._start = time.process_time(), time.perf_counter()

    def row(self) -> Row:
        """Return the seconds so far."""
        seconds = time.perf_counter() - self._start
        servers = sum(sum(each.cpu_times()[:2]) for each in psutil.Process().children(recursive=True))
        return {"seconds": seconds, "own": time.process_time() - self._own, "cpu": time.process_time() - self._own + servers}


async def alone(config: Config, name: str) -> Row:
    """Connect one server through a fastmcp client."""
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    one = config[name]
    clock = Clock()
    client = Client(StdioTransport(one["command"], one["args"], env=one.get("env"), log_file=Path(os.devnull)))
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
        # As the SDK does: Linux shares the cores among sessions, so one session for all would get less of a busy machine.
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bare", "version": "1"}}
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
        assert len(await client.list_tools()) >= TOOLS
        return clock.row()


async def ours(config: Config) -> Row:
    """Connect all through this package, and chat a second time."""
    from casual_mcp_nb.connections._transport import import_sdks
    from casual_mcp_nb.engine.chat import McpToolChat

    imports = await _timed(lambda: asyncio.to_thread(import_sdks))
    model, question = _model_and_question()
    chat = McpToolChat.from_config({"mcpServers": config})
    clock = Clock()
    await chat.server_manager.connect()
    assert len(await chat.server_manager.catalog()) >= TOOLS
    row = clock.row() | {"imports": imports}
    await chat.chat([question], model=model)
    row["second chat"] = await _timed(lambda: chat.chat([question], model=model))
    await chat.close()
    return row


async def casual_mcp(config: Config) -> Row:
    """Connect all through casual-mcp, and chat a second time the way its `chat` does by default, outside `async with`."""
    from casual_mcp.mcp_tool_chat import McpToolChat
    from casual_mcp.models.config import Config as TheirConfig

    model, question = _model_and_question()
    theirs = TheirConfig.model_validate({"clients": {}, "models": {}, "servers": config})
    chat = McpToolChat.from_config(theirs)
    clock = Clock()
    async with chat:
        assert len(await chat.tool_cache.get_tools()) >= TOOLS
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


def measure(way: str) -> Row | None:
    """Run one measurement in a separate process; None if it fails."""
    done = subprocess.run([sys.executable, __file__, "--way", way], capture_output=True, text=True, timeout=300)
    if done.returncode:
        print(f"{way} does not work here: {done.stderr.strip().splitlines()[-1]}")
        return None
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row


def run_one(way: str) -> None:
    """Measure one variant in this process and print its row."""
    warnings.simplefilter("ignore")
    logging.disable()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        config = real_servers.configs(Path(folder))
        run = WAYS.get(way)
        row = asyncio.run(run(config)) if run else asyncio.run(alone(config, way))
        print(json.dumps(row), flush=True)
    # Anything that a package left running must not slow down the next measurement.
    for child in psutil.Process().children(recursive=True):
        child.kill()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", help="measure one variant in this process and print the numbers as JSON")
    args = parser.parse_args()
    if args.way:
        return run_one(args.way)
    names = list(real_servers.configs(Path()))
    ways = [*names, "bare", "ours", "fastmcp"] + (["casual-mcp"] if importlib.util.find_spec("casual_mcp") else [])
    rows: dict[str, list[Row]] = {}
    for _ in range(args.rounds):
        for way in ways:
            if row := measure(way):
                rows.setdefault(way, []).append(row)
    report(names, {way: best(many) for way, many in rows.items()})


def best(rows: list[Row]) -> Row:
    """Return the minimum of each number: other load on the machine only adds to it."""
    return {key: min(row[key] for row in rows) for key in rows[0]}


def report(names: list[str], rows: dict[str, Row]) -> None:
    """Print the numbers and their ratios."""
    slowest, series = (pick(rows[name]["seconds"] for name in names) for pick in (max, sum))
    forced = rows["bare"]["seconds"]
    for name in names:
        print(f"{name + ' alone':<44}{rows[name]['seconds']:7.2f} s")
    print(f"{'the slowest alone':<44}{slowest:7.2f} s")
    print(f"{'the sum, one after the other':<44}{series:7.2f} s")
    print(
        f"{'processor time of all / ' + str(os.cpu_count()) + ' cores':<44}{rows['bare']['cpu'] / (os.cpu_count() or 1):7.2f} s"
    )
    for way in (way for way in WAYS if way in rows):
        row = rows[way]
        print(f"{'all six, ' + way:<44}{row['seconds']:7.2f} s   x {row['seconds'] / forced:.2f} of what the machine forces")
        print(f"{'  processor time of this process in it':<44}{row['own']:7.2f} s")
        if "imports" in row:
            print(f"{'  imports before it, once':<44}{row['imports']:7.2f} s")
        if "second chat" in row:
            print(f"{'  a second chat, ' + way:<44}{row['second chat'] * 1000:7.1f} ms")


if __name__ == "__main__":
    main()
