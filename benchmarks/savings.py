"""Tokens that discovery saves on the first call: random mixes of tools from real catalogs, with and
without deferral.

    python benchmarks/savings.py [--data DIR] [--mixes 1000]

The data folder holds `NAME.catalog.jsonl` (one tool per line); without one, the catalog in
`common/sample.py` is used. A mix is a number of tools, drawn either as whole servers (the last one
cut) or one by one from all servers, which is the worst case: nearly every tool is on a different
server, with two lines in the manifest.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from common import DATA, parser_for, sample
from common.figures import Figure

from casual_mcp_nb.base.selection import Selection
from casual_mcp_nb.base.tool import Catalog, ToolSpec
from casual_mcp_nb.engine.tool_view import ViewSources, compile_view
from casual_mcp_nb.experiments.evaluate import load_catalog

GOALS = {10: 0.5, 50: 0.9, 500: 0.97}
SELECTION = Selection(discovery=True, defer_all=True)


def saved(tools: Sequence[ToolSpec]) -> float:
    """Return the share of the first call's tokens saved by deferring these tools; below 0 if it
    costs more.
    """
    view = compile_view(ViewSources(Catalog(tools)), SELECTION)
    return 1 - view.first_call_tokens / view.undeferred_tokens


def mix(catalog: Catalog, size: int, whole: bool, draw: random.Random) -> list[ToolSpec]:
    """Return a number of random tools: whole servers, the last one cut, or one by one."""
    if not whole:
        return draw.sample(list(catalog), size)
    servers = draw.sample(list(catalog.by_server), len(catalog.by_server))
    return [tool for server in servers for tool in catalog.by_server[server]][:size]


def shares_saved(name: str, catalog: Catalog, size: int, whole: bool, mixes: int) -> list[float]:
    """Return what is saved in each of a number of mixes, the least first."""
    draw = random.Random(f"{name} {size}")
    return sorted(saved(mix(catalog, size, whole, draw)) for _ in range(mixes))


def line(name: str, catalog: Catalog, size: int, whole: bool, mixes: int) -> str:
    """Return a row of the table."""
    shares = shares_saved(name, catalog, size, whole, mixes)
    reached = sum(share > GOALS[size] for share in shares) / mixes
    cells = [
        name,
        "whole servers" if whole else "single tools",
        f"{size}",
        f"{statistics.median(shares):.1%}",
    ]
    cells += [
        f"{shares[len(shares) // 20]:.1%}",
        f"{shares[0]:.1%}",
        f"> {GOALS[size]:.0%}: {reached:.1%}",
    ]
    return f"| {' | '.join([*cells, f'{sum(share < 0 for share in shares) / mixes:.1%}'])} |"


def read(data: Path | None) -> dict[str, Catalog]:
    """Return the catalogs of a folder, or the sample."""
    if data is None:
        return {"sample": Catalog(sample.TOOLS)}
    return {
        path.name.split(".")[0]: load_catalog(path) for path in sorted(data.glob("*.catalog.jsonl"))
    }


def figures(quick: bool) -> list[Figure]:
    """The median share that deferring whole servers saves."""
    catalogs = read(None if quick or not DATA.is_dir() else DATA)
    mixes = 5 if quick else 100
    return [
        Figure(
            f"tokens saved, {size} tools of {name}",
            statistics.median(shares_saved(name, catalog, size, True, mixes)) * 100,
            "%",
            limit=goal * 100,
            more_is_better=True,
        )
        for name, catalog in catalogs.items()
        for size, goal in GOALS.items()
        if size <= len(catalog)
    ]


def main(argv: Sequence[str]) -> None:
    """Print the table."""
    parser = parser_for(__doc__)
    parser.add_argument(
        "--mixes", type=int, default=1_000, help="mixes of ten; a tenth as many of the others"
    )
    options = parser.parse_args(argv)
    catalogs = read(options.data)
    print(
        "| catalog | mix | tools | median saved | 5% save less than | least | goal: reached by |"
        " lose |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, catalog in catalogs.items():
        for size in (size for size in GOALS if size <= len(catalog)):
            for whole in (True, False):
                mixes = options.mixes if size == 10 else max(1, options.mixes // 10)
                print(line(name, catalog, size, whole, mixes), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
