"""Cost of displays: `python benchmarks/display.py`.

Prints the time for the HTML of 1,000 tools and of a turn with 50 steps, the size of each output, and what live output at ten
updates a second costs the engine thread, as a fraction of one core. Fails if a limit is exceeded.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from casual_llm.messages import AssistantMessage, AssistantToolCall, AssistantToolCallFunction, UserMessage

from casual_mcp_nb.display import MAX_BYTES, live_bundle, mimebundle, page
from casual_mcp_nb.notebook.live import LiveOutput
from casual_mcp_nb.types.content import ToolResult
from casual_mcp_nb.types.event import (
    Event,
    Request,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from casual_mcp_nb.types.session import Tools
from casual_mcp_nb.types.tokens import TokenParts, TokenUsage
from casual_mcp_nb.types.tool import Catalog, ToolName, ToolSpec
from casual_mcp_nb.types.trace import Trace, Turn

LIVE_SECONDS = 5.0
EVENTS_A_SECOND = 100
LIMIT_ENGINE = 0.02
ADD = ToolName("math", "add")


def many_tools(count: int) -> Tools:
    """Return tools of ten servers, with schemas of typical size."""
    schema = {"type": "object", "properties": {name: {"type": "number", "description": "A number."} for name in "abc"}}
    text = "Add numbers & return their sum, with a description of typical length. " * 2
    return Tools(Catalog([ToolSpec(f"server{number % 10}", f"tool_{number}", text, schema) for number in range(count)]), {})


def long_turn(steps: int) -> Turn:
    """Return a turn with a call in each step."""
    events: list[Event] = [TurnStarted((UserMessage(content="Add and add."),), "m", None, True, 4, 12, 1_890)]
    for index in range(steps):
        function = AssistantToolCallFunction(name="math__add", arguments='{"a": 1, "b": 2}')
        message = AssistantMessage(content="I go on.", tool_calls=[AssistantToolCall(id=str(index), function=function)])
        result = ToolResult((), {"sum": 3, "carried": False})
        events += [
            StepStarted(index, Request((), (), TokenParts(10, 20, 300, 40 * index, 30 * index)), float(index)),
            StepFinished(index, message, TokenUsage(100, 10), None, index + 0.1),
            ToolStarted(index, str(index), "math__add", ADD, {"a": 1, "b": 2}, index + 0.2),
            ToolFinished(index, str(index), ADD, "ok", "The sum is 3. " * 10, result, index + 0.3),
        ]
    return Turn(Trace(events))


def milliseconds(work: Callable[[], object], runs: int = 15) -> float:
    """Return the median processor time of a run, after a warm-up."""
    work()
    times = []
    for _ in range(runs):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return statistics.median(times) * 1_000


def size(bundle: dict[str, str]) -> int:
    """Return the size of all forms in bytes."""
    return sum(len(form.encode()) for form in bundle.values())


def engine_share(live: bool) -> tuple[float, int]:
    """Measure what streaming events cost their thread, as a fraction of one core, and how often was drawn."""
    turn = Turn(Trace(long_turn(3).trace))
    turn.trace.append(StepStarted(3, Request((), (), TokenParts(10, 20, 300, 400, 300)), 3.0))
    with contextlib.redirect_stdout(io.StringIO()):
        output = LiveOutput(turn) if live else None
    drawn: list[dict[str, str]] = []
    if output is not None:
        output._update = drawn.append  # type: ignore[method-assign]

    async def stream() -> float:
        began, used = time.monotonic(), time.thread_time()
        while (at := time.monotonic() - began) < LIVE_SECONDS:
            event = TextDelta(3, "word ", 3.0 + at)
            turn.trace.append(event)
            if output is not None:
                output.on_event(event)
            await asyncio.sleep(1 / EVENTS_A_SECOND)
        return (time.thread_time() - used) / (time.monotonic() - began)

    shares: list[float] = []
    thread = threading.Thread(target=lambda: shares.append(asyncio.run(stream())))
    thread.start()
    thread.join()
    return shares[0], len(drawn)


def report(name: str, noun: Any, html: Callable[[], object], limit: float) -> bool:
    """Print the cost of a display; return whether it exceeds its limits."""
    took, whole, bundle = milliseconds(html), milliseconds(lambda: mimebundle(noun)), mimebundle(noun)
    print(f"{name}: HTML {took:.1f} ms (limit {limit:.0f}), all forms {whole:.1f} ms, {size(bundle):,} bytes")
    return took > limit or size(bundle) > MAX_BYTES


def main() -> int:
    """Print the figures; return 1 if one exceeds its limit."""
    tools, turn = many_tools(1_000), long_turn(50)
    failed = report("1,000 tools", tools, lambda: page(tools, ""), 50.0)
    failed |= report("a turn of 50 steps", turn, lambda: live_bundle(turn, "output"), 20.0)
    print(f"the most that an output takes: {MAX_BYTES:,} bytes")
    silent, _ = engine_share(live=False)
    shown, updates = engine_share(live=True)
    cost = shown - silent
    failed |= cost > LIMIT_ENGINE
    print(f"live output: {updates / LIVE_SECONDS:.1f} updates a second of {EVENTS_A_SECOND} events")
    print(f"it costs the engine thread {cost:.2%} of a core (limit {LIMIT_ENGINE:.0%}; without it {silent:.2%})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
