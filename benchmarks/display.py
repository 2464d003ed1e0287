"""Cost of displays: `python benchmarks/display.py`.

Prints the time for the HTML of 1,000 tools and of a turn with 50 steps, the size of each output,
and what live output at ten updates a second costs the engine thread, as a fraction of one core.
Fails if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import sys
import time
from collections.abc import Callable
from typing import Any

from casual_llm.messages import (
    AssistantMessage,
    AssistantToolCall,
    AssistantToolCallFunction,
    UserMessage,
)
from common.figures import Figure, median_ms, print_figures

from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.status import Tools
from casual_mcp_nb.base.tokens import TokenParts, TokenUsage
from casual_mcp_nb.base.tool import Catalog, ToolName, ToolSpec
from casual_mcp_nb.conversation.event import (
    Event,
    Request,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from casual_mcp_nb.conversation.turn import Trace, Turn
from casual_mcp_nb.notebook.live import LiveOutput
from casual_mcp_nb.notebook.loop import EngineThread
from casual_mcp_nb.views import MAX_BYTES, live_bundle, mimebundle, page

RUNS, LIVE_SECONDS = 15, 5.0
EVENTS_A_SECOND = 100
LIMIT_ENGINE = 2.0
"""Per cent of a core."""
ADD = ToolName("math", "add")


def many_tools(count: int) -> Tools:
    """Return tools of ten servers, with schemas of typical size."""
    schema = {
        "type": "object",
        "properties": {name: {"type": "number", "description": "A number."} for name in "abc"},
    }
    text = "Add numbers & return their sum, with a description of typical length. " * 2
    return Tools(
        Catalog(
            [
                ToolSpec(f"server{number % 10}", f"tool_{number}", text, schema)
                for number in range(count)
            ]
        ),
        {},
    )


def long_turn(steps: int) -> Turn:
    """Return a turn with a call in each step."""
    events: list[Event] = [
        TurnStarted((UserMessage(content="Add and add."),), "m", None, True, 4, 12, 1_890)
    ]
    for index in range(steps):
        function = AssistantToolCallFunction(name="math__add", arguments='{"a": 1, "b": 2}')
        message = AssistantMessage(
            content="I go on.", tool_calls=[AssistantToolCall(id=str(index), function=function)]
        )
        result = ToolResult((), {"sum": 3, "carried": False})
        events += [
            StepStarted(
                index,
                Request((), (), TokenParts(10, 20, 300, 40 * index, 30 * index)),
                float(index),
            ),
            StepFinished(index, message, TokenUsage(100, 10), None, index + 0.1),
            ToolStarted(index, str(index), "math__add", ADD, {"a": 1, "b": 2}, index + 0.2),
            ToolFinished(index, str(index), ADD, "ok", "The sum is 3. " * 10, result, index + 0.3),
        ]
    return Turn(Trace(events))


def size(bundle: dict[str, str]) -> int:
    """Return the size of the largest form in bytes."""
    return max(len(form.encode()) for form in bundle.values())


def engine_share(live: bool, seconds: float) -> tuple[float, int]:
    """Measure what streaming events cost their thread, in per cent of a core, and how often was
    drawn.
    """
    turn = Turn(Trace(long_turn(3).trace))
    turn.trace.append(StepStarted(3, Request((), (), TokenParts(10, 20, 300, 400, 300)), 3.0))
    engine = EngineThread()
    with contextlib.redirect_stdout(io.StringIO()):
        output = LiveOutput(engine, turn) if live else None
    drawn: list[dict[str, str]] = []
    if output is not None:
        output._update = drawn.append  # type: ignore[method-assign]

    async def stream() -> float:
        began, used = time.monotonic(), time.thread_time()
        while (at := time.monotonic() - began) < seconds:
            event = TextDelta(3, "word ", 3.0 + at)
            turn.trace.append(event)
            if output is not None:
                output.on_event(event)
            await asyncio.sleep(1 / EVENTS_A_SECOND)
        return 100 * (time.thread_time() - used) / (time.monotonic() - began)

    share = engine.run(stream())
    engine.stop()
    return share, len(drawn)


def cost(name: str, noun: Any, html: Callable[[], object], limit: float, runs: int) -> list[Figure]:
    """Measure a display: processor time of its HTML and of all its forms, and the size of the
    largest.
    """
    whole = median_ms(lambda: mimebundle(noun), runs, clock=time.thread_time)
    return [
        Figure(f"{name}, HTML", median_ms(html, runs, clock=time.thread_time), "ms", limit=limit),
        Figure(f"{name}, all forms", whole, "ms"),
        Figure(
            f"{name}, size of the largest form",
            size(mimebundle(noun)) / 1_000,
            "kB",
            limit=MAX_BYTES / 1_000,
        ),
    ]


def figures(quick: bool) -> list[Figure]:
    """A long table, a long turn, and what streaming costs."""
    runs, seconds = (2, 0.5) if quick else (RUNS, LIVE_SECONDS)
    tools, turn = many_tools(1_000), long_turn(50)
    silent, _ = engine_share(False, seconds)
    shown, updates = engine_share(True, seconds)
    return [
        *cost("1,000 tools", tools, lambda: page(tools, ""), 50.0, runs),
        *cost("a turn of 50 steps", turn, lambda: live_bundle(turn, "output"), 20.0, runs),
        Figure(f"updates a second of {EVENTS_A_SECOND} events", updates / seconds, "1/s"),
        Figure(
            "live output, of a core of the engine thread", shown - silent, "%", limit=LIMIT_ENGINE
        ),
    ]


def main() -> int:
    """Print the figures; return 1 if one exceeds its limit."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    measured = figures(quick=False)
    print_figures(measured)
    return 1 if any((figure.to_limit or 0) > 1 for figure in measured) else 0


if __name__ == "__main__":
    sys.exit(main())
