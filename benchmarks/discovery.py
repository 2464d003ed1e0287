"""Quality and speed of tool search, compared with casual-mcp's ToolSearchIndex and FastMCP's BM25
search transform.

    python benchmarks/discovery.py [--data DIR] [--sizes 50,500,5000,50000] [--quality]
        [--embedding MODULE:FUNCTION]

The data folder holds `NAME.catalog.jsonl` (one tool per line) and `NAME.dev.jsonl` (one case per
line: a query, and for each of its needs the tools that meet it). Without one, the small catalog in
`common/sample.py` is used. casual-mcp is measured if it can be imported. An embedding, a function
from a list of texts to an array with one row for each, adds two columns: the embedding alone, and
words and meaning together.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from common import DATA, parser_for
from common.figures import Figure, fastest_ms, milliseconds
from common.rankers import Embed, MakeRanker, Name, Ranker, embedding, rankers
from common.sample import CASES, TOOLS

from casual_mcp_nb.base.tool import ToolSpec
from casual_mcp_nb.discovery.search_tools import SearchToolsTool, ToolSearchIndex
from casual_mcp_nb.discovery.text import embedded_text

CUT, DEPTH = 5, 10
LONG_QUERY_WORDS, LONG_QUERIES = 150, 10
LONG_LIMIT_MS = 4.0
FASTEST_OF = 3
SIZES = (50, 500, 5_000, 50_000)
PEER_QUERIES = 100
SETS = {
    "livemcp": "livemcp",
    "livemcp_steps": "livemcp",
    "livemcp_llm": "livemcp",
    "bfcl_live": "bfcl_live",
    "sealtools": "sealtools",
    "metatool": "metatool",
    "metatool_multi": "metatool",
    "restbench": "restbench",
}
SPEED_CATALOG = "many_servers"
SPEED_QUERIES = "livemcp_llm"
MODEL_QUERIES = "livemcp_llm"
"""The set whose queries a language model wrote, which are closest to those of a search tool."""
SAMPLES, SAMPLE_SEEDS = (10, 50, 200), 5


@dataclass(frozen=True)
class Case:
    """A query and its needs, each with the tools that meet it."""

    query: str
    needs: Sequence[frozenset[Name]]


@dataclass(frozen=True)
class Data:
    """Sets of cases with their catalogs, and the data for measuring speed."""

    sets: dict[str, tuple[list[ToolSpec], list[Case]]]
    speed_tools: list[ToolSpec]
    speed_queries: list[str]


def load(folder: Path) -> Data:
    """Return the data in a folder, without missing sets."""
    catalogs = {
        path.name.split(".")[0]: _catalog(path) for path in sorted(folder.glob("*.catalog.jsonl"))
    }
    there = {path.name.split(".")[0]: path for path in sorted(folder.glob("*.dev.jsonl"))}
    names = [
        name
        for name in dict.fromkeys((*SETS, *there))
        if name in there and SETS.get(name, name) in catalogs
    ]
    sets = {name: (catalogs[SETS.get(name, name)], _cases(there[name])) for name in names}
    if not sets:
        sys.exit(f"no catalogs with cases in {folder}")
    queries = [
        case.query for case in sets[SPEED_QUERIES if SPEED_QUERIES in sets else min(sets)][1]
    ]
    return Data(sets, catalogs.get(SPEED_CATALOG) or max(catalogs.values(), key=len), queries)


def sample() -> Data:
    """Return the built-in sample."""
    cases = [Case(query, [frozenset([name]) for name in needs]) for query, needs in CASES]
    return Data({"sample": (TOOLS, cases)}, TOOLS, [case.query for case in cases])


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def _catalog(path: Path) -> list[ToolSpec]:
    return [
        ToolSpec(row["server"], row["name"], row["description"] or "", row["input_schema"])
        for row in _lines(path)
    ]


def _cases(path: Path) -> list[Case]:
    return [
        Case(
            row["query"],
            [frozenset((server, tool) for server, tool in need) for need in row["gold"]],
        )
        for row in _lines(path)
    ]


def quality(ranker: Ranker, cases: Sequence[Case]) -> tuple[float, float, float]:
    """Means over the cases: any need met at 5, share of needs met at 5, reciprocal rank of the
    first tool that meets one among ten.
    """
    ranker.build()
    rows = []
    for case in cases:
        best = places(ranker, case)
        met = [place <= CUT for place in best]
        rows.append((any(met), sum(met) / len(met), 1 / min(best) if min(best) <= DEPTH else 0.0))
    return tuple(statistics.fmean(column) for column in zip(*rows, strict=True))  # type: ignore[return-value]


def places(ranker: Ranker, case: Case) -> list[int]:
    """Return for each need the rank of the first tool that meets it; 11 if none is among the first
    ten.
    """
    found = {
        name: place for place, name in enumerate(ranker.names(ranker.search(case.query, DEPTH)), 1)
    }
    return [
        min((found[name] for name in need if name in found), default=DEPTH + 1)
        for need in case.needs
    ]


def sampled(
    make: MakeRanker, tools: Sequence[ToolSpec], cases: Sequence[Case], size: int
) -> tuple[float, float]:
    """Return the shares of cases with any need met at 5 and at 10, each case with its own set of
    tools.
    """
    best = []
    for seed in range(SAMPLE_SEEDS):
        for number, case in enumerate(cases):
            ranker = make(around(case, tools, size, random.Random(f"{seed}{number}")))
            ranker.build()
            best.append(min(places(ranker, case)))
    return sum(place <= CUT for place in best) / len(best), sum(
        place <= DEPTH for place in best
    ) / len(best)


def around(case: Case, tools: Sequence[ToolSpec], size: int, draw: random.Random) -> list[ToolSpec]:
    """Return a number of tools: those that meet the case's needs, the rest of their servers, and
    other servers at random.
    """
    wanted = frozenset().union(*case.needs)
    servers: dict[str, list[ToolSpec]] = {}
    for tool in tools:
        servers.setdefault(tool.server, []).append(tool)
    first = sorted({server for server, _ in wanted} & servers.keys())
    others = sorted(servers.keys() - set(first))
    draw.shuffle(first)
    draw.shuffle(others)
    drawn = [tool for server in (*first, *others) for tool in servers[server]]
    right = [tool for tool in drawn if (tool.server, tool.name) in wanted]
    taken = [*right, *(tool for tool in drawn if (tool.server, tool.name) not in wanted)][:size]
    draw.shuffle(taken)
    return taken


def grown(tools: Sequence[ToolSpec], size: int) -> list[ToolSpec]:
    """Return a number of tools: the first ones, or copies on numbered servers if there are not
    enough.
    """
    rounds = -(-size // len(tools))
    copies = (
        tool if n == 0 else replace(tool, server=f"{tool.server}-{n}", wire_name="")
        for n in range(rounds)
        for tool in tools
    )
    return [tool for tool, _ in zip(copies, range(size), strict=False)]


def speed(ranker: Ranker, queries: Sequence[str]) -> tuple[float, float, float]:
    """Milliseconds: of the fastest build, of the median query, and of the median query of 150
    words.

    Each query comes once.
    """
    words = " ".join(queries).split()
    long = [
        " ".join((words * LONG_QUERY_WORDS)[n * 7 : n * 7 + LONG_QUERY_WORDS])
        for n in range(LONG_QUERIES)
    ]
    build = fastest_ms(ranker.build, FASTEST_OF)
    return build, _median_ms(ranker, queries), _median_ms(ranker, long)


def answer_ms(tools: Sequence[ToolSpec], queries: Sequence[str]) -> float:
    """Milliseconds of the median search with its answer, as a turn runs it: a new search tool over
    an index that exists.
    """
    index = ToolSearchIndex(tools)

    async def median() -> float:
        times = []
        for query in queries:
            started = time.perf_counter()
            await SearchToolsTool(tools, index=lambda: index, manifest="").execute({"query": query})
            times.append((time.perf_counter() - started) * 1_000)
        return statistics.median(times)

    return asyncio.run(median())


def on_one_server(tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Return the tools as those of one server, the first of each name."""
    return list(
        {
            tool.name: replace(tool, server="server", wire_name="") for tool in reversed(tools)
        }.values()
    )[::-1]


def _median_ms(ranker: Ranker, queries: Sequence[str]) -> float:
    return statistics.median(
        milliseconds(lambda query=query: ranker.search(query, CUT)) for query in queries
    )  # type: ignore[misc]


def print_quality(data: Data, columns: dict[str, MakeRanker]) -> None:
    """Format one line per set."""
    print(f"\nrecall@{CUT} of any need / of the needs / MRR\n")
    print(f"| set | cases | tools | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 3)}")
    for name, (tools, cases) in data.sets.items():
        cells = [
            " / ".join(f"{value:.3f}" for value in quality(ranker(tools), cases))
            for ranker in columns.values()
        ]
        print(f"| {name} | {len(cases)} | {len(tools)} | {' | '.join(cells)} |", flush=True)


def mixture(data: Data) -> Data:
    """Return the same cases, each over the tools of all their catalogs together."""
    tools = list(
        {
            (tool.server, tool.name): tool
            for tools, _ in reversed(data.sets.values())
            for tool in tools
        }.values()
    )
    return replace(
        data,
        sets={f"{name} in the mixture": (tools, cases) for name, (_, cases) in data.sets.items()},
    )


def print_sampled(data: Data, columns: dict[str, MakeRanker]) -> None:
    """Format one line per number of tools."""
    tools, cases = data.sets[MODEL_QUERIES]
    print(
        f"\nqueries that a model wrote, any need met at {CUT} / at {DEPTH}, with tools drawn around"
        " those that meet it\n"
    )
    print(f"| tools | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for size in SAMPLES:
        cells = [
            " / ".join(f"{share:.3f}" for share in sampled(make, tools, cases, size))
            for make in columns.values()
        ]
        print(f"| {size} | {' | '.join(cells)} |", flush=True)


def print_embedding_speed(data: Data, embed: Embed) -> None:
    """Measure the embedding's time for a new query and for a tool, and the memory of this
    process.
    """
    queries = [f"{query} again" for query in data.speed_queries]
    query = statistics.median(milliseconds(lambda query=query: embed([query])) for query in queries)  # type: ignore[misc]
    texts = [f"{embedded_text(tool)} again" for tool in data.speed_tools[:500]]
    tool = milliseconds(lambda: embed(texts)) / len(texts)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"\nembedding: {query:.1f} ms a query, {tool:.1f} ms a tool, process at most"
        f" {memory:,.0f} MB"
    )


def print_speed(data: Data, columns: dict[str, MakeRanker], sizes: Sequence[int]) -> None:
    """Format one line per size; each peer's figures are followed by their ratio to ours."""
    print(
        f"\nms: build / median query / median query of {LONG_QUERY_WORDS} words (how many times"
        " ours)\n"
    )
    print(f"| tools | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for size in sizes:
        tools = grown(data.speed_tools, size)
        rows = {name: speed(ranker(tools), data.speed_queries) for name, ranker in columns.items()}
        cells = [_cell(row, rows["ours"], name != "ours") for name, row in rows.items()]
        print(f"| {size:,} | {' | '.join(cells)} |", flush=True)


def print_answers(data: Data, columns: dict[str, MakeRanker]) -> None:
    """Format one line for tools of many servers, and one for a large catalog on one server."""
    largest, cases = max(data.sets.values(), key=lambda pair: len(pair[0]))
    print("\nms: median search with its answer (how many times ours: the peer's search alone)\n")
    print(f"| servers | tools | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 2)}")
    questions = [case.query for case in cases]
    for spread, queries in (
        (data.speed_tools, data.speed_queries),
        (on_one_server(largest), questions),
    ):
        ours = answer_ms(spread, queries)
        cells = [f"{ours:.2f}"]
        for make in (make for name, make in columns.items() if name != "ours"):
            ranker = make(spread)
            ranker.build()
            cells.append(_cell([_median_ms(ranker, queries[:PEER_QUERIES])], [ours], True))
        print(
            f"| {len({tool.server for tool in spread})} | {len(spread):,} | {' | '.join(cells)} |",
            flush=True,
        )


def _cell(row: Sequence[float], ours: Sequence[float], compared: bool) -> str:
    values = [f"{value:.1f}" if value >= 10 else f"{value:.2f}" for value in row]
    times = [
        f" ({value / own:.1f}x)" if compared else "" for value, own in zip(row, ours, strict=True)
    ]
    return " / ".join(value + ratio for value, ratio in zip(values, times, strict=True))


def figures(quick: bool) -> list[Figure]:
    """How often a needed tool is among the first five, and how long a search takes."""
    data = load(DATA) if DATA.is_dir() and not quick else sample()
    columns = rankers()
    peer = columns.get("casual-mcp")
    measured = []
    for name, (tools, cases) in data.sets.items():
        theirs = quality(peer(tools), cases)[0] if peer else None
        any_need = quality(columns["ours"](tools), cases)[0]
        measured.append(
            Figure(
                f"{name}: a needed tool among {CUT}", any_need, "share", theirs, more_is_better=True
            )
        )
    names = ("index", "median query", f"query of {LONG_QUERY_WORDS} words")
    for size in (50,) if quick else SIZES:
        tools = grown(data.speed_tools, size)
        times = speed(columns["ours"](tools), data.speed_queries)
        # At the largest size the peer takes minutes.
        peers = (
            speed(peer(tools), data.speed_queries) if peer and size < max(SIZES) else (None,) * 3
        )
        limits = (None, None, LONG_LIMIT_MS)
        measured += [
            Figure(f"{size:,} tools, {names[n]}", times[n], "ms", peers[n], limits[n])
            for n in range(3)
        ]
    return measured


def main(argv: Sequence[str]) -> None:
    """Print the tables."""
    parser = parser_for(__doc__)
    parser.add_argument(
        "--sizes", default=",".join(map(str, SIZES)), help="numbers of tools for the speed table"
    )
    parser.add_argument("--quality", action="store_true", help="only the table of quality")
    parser.add_argument("--embedding", metavar="MODULE:FUNCTION", help="an embedding to measure")
    options = parser.parse_args(argv)
    data = load(options.data) if options.data else sample()
    embed = embedding(options.embedding) if options.embedding else None
    columns = rankers(embed)
    print_quality(data, columns)
    if options.quality:
        return
    if MODEL_QUERIES in data.sets:
        print_quality(mixture(data), {"ours": columns["ours"]})
        print_sampled(data, columns)
    if embed is not None:
        print_embedding_speed(data, embed)
    print_answers(data, rankers())
    print_speed(data, rankers(), [int(size) for size in options.sizes.split(",")])


if __name__ == "__main__":
    main(sys.argv[1:])
