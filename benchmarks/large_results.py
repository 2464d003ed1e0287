"""What a large result costs a conversation: `python benchmarks/large_results.py [--megabytes 5.7]`.

A tool returns a table; a scripted model reads its head, searches it and queries it. The tokens of
the last request are compared with those of a request that has the whole result, by the same
estimate. The time of a call is that of the whole step beside the model, with the worker process
warm; the loop is never held by it, since another process does the work.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from casual_llm.messages import UserMessage
from common.figures import Figure, print_figures
from fastmcp import FastMCP

from casual_mcp_nb.base.tokens import estimate_tokens
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.engine.chat import McpToolChat
from casual_mcp_nb.engine.large_results import handles_in
from casual_mcp_nb.engine.options import TurnOptions
from casual_mcp_nb.providers.scripted import call, scripted_model

CITIES = ("Oslo", "Bergen", "Trondheim")


def table(megabytes: float) -> str:
    """Return a table of orders as JSON, of about this size."""
    row = {
        "order": 100_000,
        "city": CITIES[0],
        "price": 12_345.25,
        "note": "to be delivered in the morning",
    }
    count = round(megabytes * 1_000_000 / (len(json.dumps(row)) + 2))
    return json.dumps(
        [{**row, "order": n, "city": CITIES[n % 3], "price": n / 4} for n in range(count)]
    )


def read(**arguments: Any) -> Any:
    """Return an answer of the model that asks about the large result."""
    return lambda messages, _tools: call(
        "read_result", handle=next(iter(handles_in(messages))), **arguments
    )


async def conversation(text: str) -> Turn:
    """Return a turn in which a model reads the head of a result, searches it and queries it."""
    shop: FastMCP[Any] = FastMCP("shop")

    @shop.tool
    def orders() -> str:
        """Return all orders."""
        return text

    answers = (
        call("shop__orders"),
        read(search="4321"),
        read(sql="SELECT city, count(*), sum(price) FROM result GROUP BY city"),
        read(offset=100),
        "Most are from Oslo.",
    )
    async with McpToolChat.from_config({}, in_process={"shop": shop}) as chat:
        return await chat.run(
            [UserMessage(content="Where do we sell?")], TurnOptions(model=scripted_model(*answers))
        )


def measure(megabytes: float) -> list[Figure]:
    """Measure each call and the last request."""
    text = table(megabytes)
    turn = asyncio.run(conversation(text))
    whole, last = estimate_tokens(text), turn.steps[-1].request.tokens.total
    measured = []
    for made in turn.tool_calls:
        call = next(
            (name for name in ("search", "sql", "offset") if name in made.arguments),
            "the tool itself",
        )
        measured.append(Figure(f"{call} of {megabytes:g} MB", made.seconds or 0.0, "s"))
        measured.append(
            Figure("  what the model reads", estimate_tokens(made.result), "tokens", whole)
        )
    return [*measured, Figure("last request", last, "tokens", whole)]


def figures(quick: bool) -> list[Figure]:
    """The calls that read a large result. The peer is a request with all of it."""
    return measure(0.3 if quick else 5.7)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=5.7)
    print_figures(measure(parser.parse_args().megabytes))
