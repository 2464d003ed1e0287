"""How long the event loop is blocked by long input from people, servers and models: `python
benchmarks/responsive.py [NAME ...]`.

Each case runs in a separate process. It prints how long the case took and the longest block of the
loop in it: the longest time for which one callback computed or waited, as `tests/kit/loop_guard.py`
measures it. `--alone NAME` runs a case in this process and prints each block with its frames.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from common.figures import Figure, in_process, print_figures
from kit.loop_guard import LoopGuard
from kit.mcp_http import McpHttp
from kit.provider import Provider, answer
from kit.raw_server import raw_config

BLOCK = 0.25
FIRST_BLOCK = 0.1
OFFLINE = {
    "clients": {"c": {"provider": "offline"}},
    "models": {"planner": {"client": "c", "model": "planner"}},
}
SENTENCE = (
    "Please tell me what time it is in Tokyo when it is 14:30 in Oslo, and convert 12 km to miles. "
)
PATTERN = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
Figures = dict[str, tuple[float, float, str]]
"""Figures by name: the figure, its limit, and its unit."""


def prompt() -> Figures:
    """Send a prompt of 50 KB to the offline planner, and stop it in a second run."""
    from casual_mcp_nb import Session
    from casual_mcp_nb.conversation.event import StepStarted

    text = (SENTENCE * 600)[: 50 * 1024]
    with Session.from_config(
        {**OFFLINE, "servers": {"time": {"bundled": "time", "transport": "in-process"}}}
    ) as session:
        session.chat("hello", echo="none")
        guard = watching()
        started = time.perf_counter()
        session.chat(text, echo="none")
        took = time.perf_counter() - started
        asking = threading.Event()
        end = session.observe(
            lambda _, event: asking.set() if isinstance(event, StepStarted) else None
        )
        session.submit(text)
        asking.wait(60)
        started = time.perf_counter()
        session.stop()
        stopped = time.perf_counter() - started
        end()
        assert session.turns[-1].status == "stopped", (
            stopped,
            [turn.status for turn in session.turns],
        )
    return {
        "answer": (took, 1.0, "s"),
        "stop": (stopped, 0.5, "s"),
        "block": (longest(guard), BLOCK, "s"),
    }


def first_chat() -> Figures:
    """The first chat of `McpToolChat` in a process, on the caller's loop."""
    from casual_mcp_nb import McpToolChat

    async def chat(config: dict[str, Any]) -> tuple[float, LoopGuard]:
        guard = watching()
        started = time.perf_counter()
        await asyncio.sleep(0)
        async with McpToolChat.from_config(config) as chat:
            await chat.chat("hello")
        return time.perf_counter() - started, guard

    with Provider(answer("openai", "hello")) as server:
        took, guard = asyncio.run(chat(server.config("openai")))
    return {"answer": (took, 60.0, "s"), "block": (longest(guard), FIRST_BLOCK, "s")}


def parts() -> Figures:
    """A result of 400,000 parts, and one of 60,000."""
    import casual_mcp_nb.engine.chat  # noqa: F401 (a person's own import statement)

    took = {}
    guard = watching()
    for count in (400_000, 60_000):
        result = {"content": [{"type": "text", "text": "x"}] * count}
        with McpHttp({"many": result}) as server:
            took[f"{count:,} parts"] = (
                asyncio.run(called({"lab": server.config()}, "lab:many")),
                10.0,
                "s",
            )
    return {**took, "block": (longest(guard), BLOCK, "s")}


def pattern() -> Figures:
    """A result whose check against its output schema does not end."""
    import casual_mcp_nb.engine.chat  # noqa: F401

    result = {"content": [], "structuredContent": {"x": "a" * 32 + "!"}}
    tool = {"name": "odd", "inputSchema": {"type": "object"}, "outputSchema": PATTERN}
    guard = watching()
    took = asyncio.run(
        called({"lab": raw_config(tools=[tool], calls={"odd": {"result": result}})}, "lab:odd")
    )
    return {"call": (took, 10.0, "s"), "block": (longest(guard), BLOCK, "s")}


def template() -> Figures:
    """A template with two nested loops of 99,999, and one that ends, when it is warm."""
    from casual_mcp_nb.config.templates import TemplateLibrary
    from casual_mcp_nb.errors import TemplateError

    async def render(templates: TemplateLibrary) -> tuple[float, float]:
        started = time.perf_counter()
        try:
            await templates.render_async("loops", tools=[])
        except TemplateError:
            took = time.perf_counter() - started
        tools = ()
        await templates.render_async("fine", tools=tools, variables={"n": 1})
        started = time.perf_counter()
        for number in range(100):
            await templates.render_async("fine", tools=tools, variables={"n": number})
        return took, (time.perf_counter() - started) * 10

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "loops.j2").write_text(LOOPS)
        Path(folder, "fine.j2").write_text("{{ n + 1 }}")
        guard = watching()
        took, warm = asyncio.run(render(TemplateLibrary([Path(folder)])))
    return {
        "loops": (took, 5.0, "s"),
        "warm": (warm, 20.0, "ms"),
        "block": (longest(guard), BLOCK, "s"),
    }


def calls() -> Figures:
    """Warm calls in memory: of tools without an output schema, with a plain one, and with one that
    the other process checks.
    """
    from fastmcp import FastMCP

    from casual_mcp_nb.servers.connection import Connection

    server: FastMCP[Any] = FastMCP("lab")
    integer = {"type": "object", "properties": {"n": {"type": "integer"}}}
    bounded = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}}
    server.tool(lambda: None, name="none", output_schema=None)
    server.tool(lambda: {"n": 1}, name="plain", output_schema=integer)
    server.tool(lambda: {"n": 1}, name="checked", output_schema=bounded)

    async def each() -> Figures:
        connection = Connection("lab", server=server)
        await connection.connect()
        figures: Figures = {}
        for name in ("none", "plain", "checked"):
            await connection.call(name, {})
            started = time.perf_counter()
            for _ in range(200):
                await connection.call(name, {})
            figures[name] = ((time.perf_counter() - started) * 5, 5.0, "ms")
        await connection.close()
        return figures

    return asyncio.run(each())


def export() -> Figures:
    """200 turns of 1.7 KB, exported as a page."""
    from casual_mcp_nb import Session
    from casual_mcp_nb.providers.scripted import scripted_model

    with Session.from_config({}) as session, tempfile.TemporaryDirectory() as folder:
        for number in range(200):
            session.chat(f"{number} " + "q" * 700, model=scripted_model("a" * 1000), echo="none")
        guard = watching()
        started = time.perf_counter()
        path = session.export(Path(folder, "chat.html"))
        took = time.perf_counter() - started
        size = path.stat().st_size / 2**20
    return {
        "export": (took, 10.0, "s"),
        "size": (size, 3.0, "MB"),
        "block": (longest(guard), BLOCK, "s"),
    }


def query() -> Figures:
    """A search with a query of 1 MB over 1,000 tools."""
    from fastmcp import FastMCP

    from casual_mcp_nb import Session

    server: FastMCP[Any] = FastMCP("many")
    for number in range(1000):
        server.tool(
            lambda city="": city,
            name=f"read_{number}",
            description=f"Read record {number} of a city.",
        )
    with Session.from_config({}, in_process={"many": server}) as session:
        session.connect()
        session.search("warm")
        guard = watching()
        started = time.perf_counter()
        session.search("read the record of a city " * 40_000)
        took = time.perf_counter() - started
    return {"search": (took, 1.0, "s"), "block": (longest(guard), BLOCK, "s")}


CASES: dict[str, Callable[[], Figures]] = {
    case.__name__: case
    for case in (prompt, first_chat, parts, pattern, template, calls, export, query)
}

QUICK = ("prompt", "first_chat", "parts", "calls", "export", "query")
"""Those that need no process of their own and no limit to run out."""


def watching() -> LoopGuard:
    """Return a guard that records every block from here on."""
    guard = LoopGuard(0.02)
    guard.start()
    return guard


def longest(guard: LoopGuard) -> float:
    """Return the longest block in seconds."""
    found = guard.take()
    for held in found:
        print(held, file=sys.stderr)
    return max((held.seconds for held in found), default=0.0)


async def called(servers: dict[str, Any], tool: str) -> float:
    """Return the seconds that one call takes, including errors."""
    from casual_mcp_nb import McpToolChat
    from casual_mcp_nb.errors import ServerError

    async with McpToolChat.from_config({"servers": servers}) as chat:
        catalog = await chat.server_manager.list_tools()
        started = time.perf_counter()
        with contextlib.suppress(ServerError):
            await chat.server_manager.call(catalog.resolve(tool), {})
        return time.perf_counter() - started


def measure(names: Iterable[str]) -> Iterator[Figure]:
    """Run cases, each in a separate process."""
    for name in names:
        for figure, (value, limit, unit) in in_process(__file__, "--alone", name).items():
            yield Figure(f"{name}: {figure}", value, unit, limit=limit)


def figures(quick: bool) -> list[Figure]:
    """The longest blocks. A small run has fewer cases, all in this process."""
    if not quick:
        return list(measure(CASES))
    rows = {f"{name}: {of}": row for name in QUICK for of, row in CASES[name]().items()}
    return [Figure(name, value, unit, limit=limit) for name, (value, limit, unit) in rows.items()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*CASES, []], metavar="NAME")
    parser.add_argument(
        "--alone",
        action="store_true",
        help="run the case in this process and print where the loop is blocked",
    )
    given = parser.parse_args()
    if given.alone:
        print(json.dumps(CASES[given.names[0]]()))
    else:
        print_figures(measure(given.names or CASES))
