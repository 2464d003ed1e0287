"""Needs met within one and within two searches of a conversation, by number of tools.

    python benchmarks/second_search.py [--data DIR] [--sizes 10,30,50,100] [--cases 100]

The data folder is that of `discovery.py`. Each case has its own set of tools: those that meet its needs, the rest of their
servers, and other servers at random. The first search has the words of the case. The second has them again, or only those that
no tool has which the first one found. A need is met when one of its tools is loaded. Each column is the share of needs that are
met, the mean over the cases; the last one counts the tools that the first answer names on the same servers as well.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from discovery import Case, Data, around, load, sample

from casual_mcp_nb.discovery import SearchToolsTool, SyntheticToolResult
from casual_mcp_nb.discovery._fields import texts
from casual_mcp_nb.discovery.text import spelled, terms
from casual_mcp_nb.types.tool import ToolSpec

COLUMNS = ("one search", "two, the same words", "two, the words not found", "one, and what it names")


async def searched(case: Case, tools: Sequence[ToolSpec]) -> tuple[float, ...]:
    """Return the share of the case's needs met in each way."""
    search = SearchToolsTool(tools)
    first = await search.execute({"query": case.query})
    loaded = set(first.newly_loaded_tools)
    named = {tool for tool in tools if f" {tool.name}" in first.content}
    rest = _words_left(case.query, loaded) or case.query
    again = (await search.execute({"query": case.query})).newly_loaded_tools
    other = await _after(first, tools, rest)
    return tuple(_met(case, found) for found in (loaded, loaded.union(again), loaded.union(other), loaded | named))


async def _after(first: SyntheticToolResult, tools: Sequence[ToolSpec], query: str) -> list[ToolSpec]:
    """Return what another search loads after the first one."""
    search = SearchToolsTool(tools, loaded=[tool.tool_name for tool in first.newly_loaded_tools])
    return (await search.execute({"query": query})).newly_loaded_tools


def _words_left(query: str, tools: set[ToolSpec]) -> str:
    """Return the words of a query that none of the tools has."""
    known = {term for tool in tools for text in texts(tool) for term in terms(text)}
    return " ".join(word for term, word in spelled(query).items() if term not in known and " " not in word)


def _met(case: Case, tools: set[ToolSpec]) -> float:
    names = {(tool.server, tool.name) for tool in tools}
    return statistics.fmean(not need.isdisjoint(names) for need in case.needs)


async def rows(data: Data, sizes: Sequence[int], count: int) -> Iterator[str]:
    """Return one line per set and size, and one per size for all sets, each counting the same."""
    means: dict[int, list[list[float]]] = {size: [] for size in sizes}
    lines = []
    for name, (tools, cases) in data.sets.items():
        for size in sizes:
            met = [
                await searched(case, around(case, tools, size, random.Random(f"{name}{number}")))
                for number, case in enumerate(cases[:count])
                if case.needs
            ]
            means[size].append([statistics.fmean(column) for column in zip(*met, strict=True)])
            lines.append(_line(name, size, means[size][-1]))
    for size, per_set in means.items():
        lines.append(_line("mean", size, [statistics.fmean(column) for column in zip(*per_set, strict=True)]))
    return iter(lines)


def _line(name: str, size: int, shares: Sequence[float]) -> str:
    return f"| {name} | {size} | {' | '.join(f'{share:.3f}' for share in shares)} |"


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=shared if shared.is_dir() else None, help="folder with catalogs and cases")
    parser.add_argument("--sizes", default="10,30,50,100", help="numbers of tools")
    parser.add_argument("--cases", type=int, default=100, help="how many cases of each set")
    options = parser.parse_args(argv)
    data = load(options.data) if options.data else sample()
    print(f"| set | tools | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 2)}")
    for line in asyncio.run(rows(data, [int(size) for size in options.sizes.split(",")], options.cases)):
        print(line)


if __name__ == "__main__":
    main()
