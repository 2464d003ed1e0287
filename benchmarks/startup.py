"""Startup time: `python benchmarks/startup.py`.

Each figure is the median over fresh processes, with bytecode and without Python's own startup. The
peer is casual-mcp's import, if it is installed.
"""

from __future__ import annotations

import os
import statistics

from common import PEER as FOLDER
from common.figures import Figure, in_process, installed, print_figures

REPEATS = 8
CLOCK = (
    "import time; start = time.perf_counter(); {code}; print((time.perf_counter() - start) * 1_000)"
)
LOAD = "shell.run_line_magic('load_ext', 'casual_mcp_nb')"
SHELL = "from IPython.testing.globalipapp import start_ipython; shell = start_ipython(); "
ROWS = {
    "import casual_mcp_nb": (CLOCK.format(code="import casual_mcp_nb"), 100),
    "%load_ext casual_mcp_nb": (SHELL + CLOCK.format(code=LOAD), 300),
    "from casual_mcp_nb import Session": (
        CLOCK.format(code="from casual_mcp_nb import Session"),
        200,
    ),
}
PEER = f"import sys; sys.path.append({str(FOLDER)!r}); " + CLOCK.format(code="import casual_mcp")


def median(code: str, repeats: int) -> float:
    """Return the median of the milliseconds that `code` prints, without the first, which may write
    bytecode.
    """
    return statistics.median([in_process("-c", code) for _ in range(repeats)][repeats > 1 :])


def figures(quick: bool) -> list[Figure]:
    """The import, the extension and the session."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    repeats = 1 if quick else REPEATS
    peer = median(PEER, repeats) if installed("casual_mcp") else None
    return [
        Figure(name, median(code, repeats), "ms", peer, limit)
        for name, (code, limit) in ROWS.items()
    ]


if __name__ == "__main__":
    print_figures(figures(quick=False))
