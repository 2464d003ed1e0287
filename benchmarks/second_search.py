"""Needs met within one and within two searches of a conversation, by number of tools.

    python benchmarks/second_search.py [--data DIR] [--sizes 10,30,50,100] [--cases 100]

The data folder is that of `discovery.py`. Each case has its own set of tools: those that meet its
needs, the rest of their servers, and other servers at random. The first search has the words of the
case. The second has them again, or only those that no tool has which the first one found. A need is
met when one of its tools is loaded. Each column is the share of needs that are met, the mean over
the cases; the last one counts the tools that the first answer names on the same servers as well.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Sequence

from common import DATA, parser_for
from common.figures import Figure
from discovery import Case, Data, around, load, sample

from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.search_tools import SearchToolsTool
from casual_mcp_nb.discovery.synthetic import SyntheticToolResult
from casual_mcp_nb.discovery.text import spelled, terms, texts

COLUMNS = (
    "one search",
    "two, the same words",
    "two, the words not found",
    "one, and what it names",
)


async def searched(case: Case, tools: Sequence[ToolSpec]) -> tuple[float, ...]:
    """Return the share of the case's needs met in each way."""
    search = SearchToolsTool(tools)
    first = await search.execute({"query": case.query})
    loaded = set(first.newly_loaded_tools)
    named = {tool for tool in tools if f" {tool.name}" in first.content}
    rest = _words_left(case.query, loaded) or case.query
    again = (await search.execute({"query": case.query})).newly_loaded_tools
    other = await _after(first, tools, rest)
    return tuple(
        _met(case, found)
        for found in (loaded, loaded.union(again), loaded.union(other), loaded | named)
    )


async def _after(
    first: SyntheticToolResult, tools: Sequence[ToolSpec], query: str
) -> list[ToolSpec]:
    """Return what another search loads after the first one."""
    search = SearchToolsTool(tools, loaded=[tool.tool_name for tool in first.newly_loaded_tools])
    return (await search.execute({"query": query})).newly_loaded_tools


def _words_left(query: str, tools: set[ToolSpec]) -> str:
    """Return the words of a query that none of the tools has."""
    known = {term for tool in tools for text in texts(tool) for term in terms(text)}
    return " ".join(
        word for term, word in spelled(query).items() if term not in known and " " not in word
    )


def _met(case: Case, tools: set[ToolSpec]) -> float:
    names = {(tool.server, tool.name) for tool in tools}
    return statistics.fmean(not need.isdisjoint(names) for need in case.needs)


async def shares(
    data: Data, sizes: Sequence[int], count: int
) -> dict[tuple[str, int], list[float]]:
    """Return the columns by set and size, and by size for all sets, each counting the same."""
    by_set: dict[tuple[str, int], list[float]] = {}
    for name, (tools, cases) in data.sets.items():
        for size in sizes:
            met = [
                await searched(case, around(case, tools, size, random.Random(f"{name}{number}")))
                for number, case in enumerate(cases[:count])
                if case.needs
            ]
            by_set[name, size] = [statistics.fmean(column) for column in zip(*met, strict=True)]
    for size in sizes:
        columns = zip(*(by_set[name, size] for name in data.sets), strict=True)
        by_set["mean", size] = [statistics.fmean(column) for column in columns]
    return by_set


def figures(quick: bool) -> list[Figure]:
    """The needs met with a second search; the peer is one search."""
    data = load(DATA) if DATA.is_dir() and not quick else sample()
    by_set = asyncio.run(shares(data, (10,) if quick else (30, 100), 4 if quick else 40))
    rows = ((size, columns) for (name, size), columns in by_set.items() if name == "mean")
    return [
        Figure(
            f"needs met, {size} tools, {COLUMNS[place]}",
            columns[place],
            "share",
            columns[0],
            more_is_better=True,
        )
        for size, columns in rows
        for place in (2, 3)
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = parser_for(__doc__)
    parser.add_argument("--sizes", default="10,30,50,100", help="numbers of tools")
    parser.add_argument("--cases", type=int, default=100, help="how many cases of each set")
    options = parser.parse_args(argv)
    data = load(options.data) if options.data else sample()
    print(f"| set | tools | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 2)}")
    by_set = asyncio.run(
        shares(data, [int(size) for size in options.sizes.split(",")], options.cases)
    )
    for (name, size), columns in by_set.items():
        print(f"| {name} | {size} | {' | '.join(f'{share:.3f}' for share in columns)} |")


if __name__ == "__main__":
    main()
