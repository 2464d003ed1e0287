"""How well and how fast tools are found, beside casual-mcp's ToolSearchIndex and FastMCP's BM25 search transform.

    python benchmarks/discovery.py [--data DIR] [--sizes 50,500,5000,50000]

The data folder holds `NAME.catalog.jsonl` (a tool a line) and `NAME.dev.jsonl` (a case a line: a query, and for each of its
needs the tools that meet it). Without one, the small catalog in `discovery_sample.py` is used. casual-mcp is measured where it
can be imported.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import discovery_sample

from casual_mcp_nb.discovery.index import ToolSearchIndex
from casual_mcp_nb.types.tool import ToolSpec

Name = tuple[str, str]

CUT, DEPTH = 5, 10
LONG_QUERY_WORDS, LONG_QUERIES = 150, 10
FASTEST_OF = 3
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


@dataclass(frozen=True)
class Case:
    """A query and its needs, each with the tools that meet it."""

    query: str
    needs: Sequence[frozenset[Name]]


@dataclass(frozen=True)
class Data:
    """Sets of cases with their catalogs, and what speed is measured with."""

    sets: dict[str, tuple[list[ToolSpec], list[Case]]]
    speed_tools: list[ToolSpec]
    speed_queries: list[str]


class Ranker(Protocol):
    """One way to find tools. Made with the tools, so that `build` is the index alone."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None: ...
    def build(self) -> None:
        """Make the index."""

    def search(self, query: str, count: int) -> Any:
        """Find the best tools."""

    def names(self, found: Any) -> list[Name]:
        """Server and name of each tool that a search found."""


class Ours:
    """This package."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tools

    def build(self) -> None:
        self._index = ToolSearchIndex(self._tools)

    def search(self, query: str, count: int) -> Any:
        return self._index.search(query, count)

    def names(self, found: Any) -> list[Name]:
        return [(hit.tool.server, hit.tool.name) for hit in found]


class CasualMcp:
    """casual-mcp; its tools are called `server_tool`."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        import mcp.types

        self._by_name = {f"{tool.server}_{tool.name}": tool for tool in tools}
        self._tools = [
            mcp.types.Tool(name=name, description=tool.description, input_schema=dict(tool.input_schema))
            for name, tool in self._by_name.items()
        ]
        self._owners = {name: tool.server for name, tool in self._by_name.items()}

    def build(self) -> None:
        from casual_mcp.tool_search_index import ToolSearchIndex as Theirs

        self._index = Theirs(self._tools, self._owners)

    def search(self, query: str, count: int) -> Any:
        return self._index.search(query, count)

    def names(self, found: Any) -> list[Name]:
        return [(server, self._by_name[tool.name].name) for server, tool in found]


class FastMcp:
    """FastMCP's transform as it searches: it builds at the first search, and hashes the catalog at each one."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        from fastmcp.tools.base import Tool

        self._by_name = {tool.wire_name: tool for tool in tools}
        self._tools = [
            Tool(name=name, description=tool.description, parameters=dict(tool.input_schema))
            for name, tool in self._by_name.items()
        ]
        self._loop = asyncio.new_event_loop()

    def build(self) -> None:
        from fastmcp.server.transforms.search import BM25SearchTransform

        self._transform = BM25SearchTransform(max_results=CUT)
        self.search("", CUT)

    def search(self, query: str, count: int) -> Any:
        self._transform._max_results = count
        return self._loop.run_until_complete(self._transform._search(self._tools, query))

    def names(self, found: Any) -> list[Name]:
        owners = (self._by_name[tool.name] for tool in found)
        return [(tool.server, tool.name) for tool in owners]


def load(folder: Path) -> Data:
    """The data of a folder; sets that are not there are left out."""
    catalogs = {path.name.split(".")[0]: _catalog(path) for path in sorted(folder.glob("*.catalog.jsonl"))}
    found = {name: folder / f"{name}.dev.jsonl" for name, catalog in SETS.items() if catalog in catalogs}
    sets = {name: (catalogs[SETS[name]], _cases(path)) for name, path in found.items() if path.exists()}
    if not sets:
        sys.exit(f"no catalogs with cases in {folder}")
    queries = [case.query for case in sets[SPEED_QUERIES if SPEED_QUERIES in sets else min(sets)][1]]
    return Data(sets, catalogs.get(SPEED_CATALOG) or max(catalogs.values(), key=len), queries)


def sample() -> Data:
    """The data of this folder's own sample."""
    cases = [Case(query, [frozenset([name]) for name in needs]) for query, needs in discovery_sample.CASES]
    return Data({"sample": (discovery_sample.TOOLS, cases)}, discovery_sample.TOOLS, [case.query for case in cases])


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def _catalog(path: Path) -> list[ToolSpec]:
    return [ToolSpec(row["server"], row["name"], row["description"] or "", row["input_schema"]) for row in _lines(path)]


def _cases(path: Path) -> list[Case]:
    return [
        Case(row["query"], [frozenset((server, tool) for server, tool in need) for need in row["gold"]]) for row in _lines(path)
    ]


def quality(ranker: Ranker, cases: Sequence[Case]) -> tuple[float, float, float]:
    """Means over the cases: any need met at 5, share of needs met at 5, reciprocal rank of the first tool that meets one
    among ten."""
    ranker.build()
    rows = []
    for case in cases:
        places = {name: place for place, name in enumerate(ranker.names(ranker.search(case.query, DEPTH)), 1)}
        best = [min((places[name] for name in need if name in places), default=DEPTH + 1) for need in case.needs]
        met = [place <= CUT for place in best]
        rows.append((any(met), sum(met) / len(met), 1 / min(best) if min(best) <= DEPTH else 0.0))
    return tuple(statistics.fmean(column) for column in zip(*rows, strict=True))  # type: ignore[return-value]


def grown(tools: Sequence[ToolSpec], size: int) -> list[ToolSpec]:
    """So many tools: the first ones, or copies on numbered servers where there are not enough."""
    rounds = -(-size // len(tools))
    copies = (
        tool if n == 0 else replace(tool, server=f"{tool.server}-{n}", wire_name="") for n in range(rounds) for tool in tools
    )
    return [tool for tool, _ in zip(copies, range(size), strict=False)]


def speed(ranker: Ranker, queries: Sequence[str]) -> tuple[float, float, float]:
    """Milliseconds: of the fastest build, of the median query, and of the median query of 150 words. Each query comes once."""
    words = " ".join(queries).split()
    long = [" ".join((words * LONG_QUERY_WORDS)[n * 7 : n * 7 + LONG_QUERY_WORDS]) for n in range(LONG_QUERIES)]
    build = min(_ms(ranker.build) for _ in range(FASTEST_OF))
    return build, _median_ms(ranker, queries), _median_ms(ranker, long)


def _median_ms(ranker: Ranker, queries: Sequence[str]) -> float:
    return statistics.median(_ms(lambda query=query: ranker.search(query, CUT)) for query in queries)  # type: ignore[misc]


def _ms(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1_000


def rankers() -> dict[str, type[Ranker]]:
    """The rankers that can be measured here, ours first."""
    found: dict[str, type[Ranker]] = {"ours": Ours}
    if importlib.util.find_spec("casual_mcp"):
        found["casual-mcp"] = CasualMcp
    else:
        print("casual-mcp not installed, column left out")
    return found | {"FastMCP BM25": FastMcp}


def print_quality(data: Data, columns: dict[str, type[Ranker]]) -> None:
    """A line a set."""
    print(f"\nrecall@{CUT} of any need / of the needs / MRR\n")
    print(f"| set | cases | tools | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 3)}")
    for name, (tools, cases) in data.sets.items():
        cells = [" / ".join(f"{value:.3f}" for value in quality(ranker(tools), cases)) for ranker in columns.values()]
        print(f"| {name} | {len(cases)} | {len(tools)} | {' | '.join(cells)} |", flush=True)


def print_speed(data: Data, columns: dict[str, type[Ranker]], sizes: Sequence[int]) -> None:
    """A line a size; behind each peer's figures, how many times ours they are."""
    print(f"\nms: build / median query / median query of {LONG_QUERY_WORDS} words (how many times ours)\n")
    print(f"| tools | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for size in sizes:
        tools = grown(data.speed_tools, size)
        rows = {name: speed(ranker(tools), data.speed_queries) for name, ranker in columns.items()}
        cells = [_cell(row, rows["ours"], name != "ours") for name, row in rows.items()]
        print(f"| {size:,} | {' | '.join(cells)} |", flush=True)


def _cell(row: Sequence[float], ours: Sequence[float], compared: bool) -> str:
    values = [f"{value:.1f}" if value >= 10 else f"{value:.2f}" for value in row]
    times = [f" ({value / own:.1f}x)" if compared else "" for value, own in zip(row, ours, strict=True)]
    return " / ".join(value + ratio for value, ratio in zip(values, times, strict=True))


def main(argv: Sequence[str]) -> None:
    """Print both tables."""
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=shared if shared.is_dir() else None, help="folder with catalogs and cases")
    parser.add_argument("--sizes", default="50,500,5000,50000", help="numbers of tools for the speed table")
    options = parser.parse_args(argv)
    data = load(options.data) if options.data else sample()
    columns = rankers()
    print_quality(data, columns)
    print_speed(data, columns, [int(size) for size in options.sizes.split(",")])


if __name__ == "__main__":
    main(sys.argv[1:])
