"""Cost of calling a notebook's own function, beside the function itself: `python
benchmarks/own_tools.py [--repeats 300]`.

A scripted model calls a function that adds two numbers, in a blocking `session.chat`, where the
function runs on the thread that waits, and in an awaited one, where it runs on a worker thread or,
if it is async, on the caller's loop. The time of a call is that between its events on the trace:
arguments checked, policy looked up, function run on its thread, result formatted; what the function
itself takes is subtracted. A nested call is one that the function makes itself. What a call adds to
a step, with its share of the messages, is the difference between turns with eleven calls and with
one.

The peer is the same function on an in-memory FastMCP server, called through FastMCP's client. All
are measured alternately. The fastest tenth shows the cost where nothing else runs; on a busy
machine the median shows mostly the other load. So does the time of the clock altogether: the rows
of processor time, of all threads, show how much work a call is.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from contextlib import AsyncExitStack
from typing import Any, Self

from common.figures import Figure, be_quiet, print_figures
from fastmcp import Client, FastMCP

from casual_mcp_nb import Session, ToolContext
from casual_mcp_nb.conversation.step import with_nested
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.providers.scripted import call, calls, scripted_model

LIMIT = 0.3
"""Milliseconds that one call may cost."""
REPEATS, WARM_UP = 300, 10
MORE = 10
PEER = "FastMCP, in memory"
ONE, MANY = "turn with a call", "turn with many"
BLOCKING, AWAITED, ASYNC = (
    "blocking, the waiting thread",
    "awaited, a worker thread",
    "awaited, async, the caller's loop",
)
NESTED, STEP = "nested, blocking", "what a call adds to a step"
ITSELF = "the function itself"
PROCESSOR = ", processor time"
WAYS, PEERS = (BLOCKING, AWAITED, ASYNC, NESTED), (PEER, PEER + PROCESSOR)
Times = dict[str, list[float]]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def add_async(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def add_nested(a: int, b: int, context: ToolContext) -> str:
    """Add two numbers with another tool."""
    return context.call_tool("notebook:add", a=a, b=b).result


def model(name: str, count: int = 1) -> Any:
    """A model that calls a tool a number of times, and ends."""
    return scripted_model(calls(*(call(f"notebook__{name}", a=1, b=2) for _ in range(count))), "3")


def seconds_of(turn: Turn) -> float:
    """The time of the innermost call of a turn."""
    assert all(each.status == "ok" for each in turn.tool_calls)
    return [*with_nested(turn.tool_calls)][-1].seconds or 0.0


def blocking(session: Session, name: str) -> float:
    """The time of a call in a turn that blocks."""
    turn = session.chat("Add", model=model(name), echo="none")
    session.conversations.new()
    return seconds_of(turn)


async def awaited(session: Session, name: str) -> float:
    """The time of a call in a turn that is awaited."""
    turn = await session.chat_async("Add", model=model(name), echo="none")
    session.conversations.new()
    return seconds_of(turn)


class Watch:
    """Measures what its body takes: `taken` by the clock, `worked` of the processor."""

    def __enter__(self) -> Self:
        self.taken, self.worked = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.taken, self.worked = (
            time.perf_counter() - self.taken,
            time.process_time() - self.worked,
        )

    def named(self, name: str) -> dict[str, float]:
        """Both, by name."""
        return {name: self.taken, name + PROCESSOR: self.worked}


def whole(session: Session, count: int) -> Watch:
    """The time of a turn with a number of calls in its first step."""
    answers = model("add", count)
    with Watch() as watch:
        session.chat("Add", model=answers, echo="none")
    session.conversations.new()
    return watch


async def peer(client: Client[Any]) -> Watch:
    """The time of a call through FastMCP's client."""
    with Watch() as watch:
        await client.call_tool("add", {"a": 1, "b": 2})
    return watch


def itself() -> float:
    """The time of a call of the function alone."""
    with Watch() as watch:
        add(a=1, b=2)
    return watch.taken


def measure(session: Session, repeats: int) -> Times:
    """Measure all alternately."""
    server: FastMCP[Any] = FastMCP("bench")
    server.tool(add)
    times: Times = {}
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        client = runner.run(stack.enter_async_context(Client(server)))
        for number in range(WARM_UP + repeats):
            taken = {
                BLOCKING: blocking(session, "add"),
                AWAITED: runner.run(awaited(session, "add")),
                ASYNC: runner.run(awaited(session, "add_async")),
                NESTED: blocking(session, "add_nested"),
                ITSELF: itself(),
                **whole(session, 1).named(ONE),
                **whole(session, 1 + MORE).named(MANY),
                **runner.run(peer(client)).named(PEER),
            }
            for name, value in taken.items() if number >= WARM_UP else ():
                times.setdefault(name, []).append(value * 1_000)
        runner.run(stack.aclose())
    return times


def figures(quick: bool) -> list[Figure]:
    """What a call costs beside the function itself."""
    return measured(5 if quick else REPEATS)


def measured(repeats: int) -> list[Figure]:
    """The fastest tenth of each way, and the median."""
    with Session.from_config({}) as session:
        for function in (add, add_async, add_nested):
            session.tools.add(function)
        times = measure(session, repeats)
    fastest = costs({name: statistics.quantiles(values, n=10)[0] for name, values in times.items()})
    medians = costs({name: statistics.median(values) for name, values in times.items()})
    rows = []
    for name in (name for name in fastest if name not in PEERS):
        peer = PEER + PROCESSOR if name.endswith(PROCESSOR) else PEER
        limit = None if name.endswith(PROCESSOR) else LIMIT
        rows.append(Figure(name, fastest[name], "ms", fastest[peer], limit))
        rows.append(Figure("  median", medians[name], "ms", medians[peer]))
    return rows


def costs(of: dict[str, float]) -> dict[str, float]:
    """The costs of a call beside the function itself, from the times of calls and of whole
    turns.
    """
    ways = {name: of[name] - of[ITSELF] for name in WAYS}
    steps = {
        STEP + kind: (of[MANY + kind] - of[ONE + kind]) / MORE - of[ITSELF]
        for kind in ("", PROCESSOR)
    }
    return ways | steps | {name: of[name] - of[ITSELF] for name in PEERS}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS, help="turns of each kind")
    given = parser.parse_args()
    be_quiet()
    print_figures(measured(given.repeats))
