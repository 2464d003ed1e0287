"""Startup time: `python benchmarks/startup.py`.

Each row is the median over fresh processes, without Python's own startup. The peer is casual-mcp, if it is installed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

REPEATS = 7
CLOCK = "import time; start = time.perf_counter(); {code}; print(time.perf_counter() - start)"
LOAD = "shell.run_line_magic('load_ext', 'casual_mcp_nb')"
SHELL = "from IPython.testing.globalipapp import start_ipython; shell = start_ipython(); "
ROWS = {
    "import casual_mcp_nb": CLOCK.format(code="import casual_mcp_nb"),
    "%load_ext casual_mcp_nb": SHELL + CLOCK.format(code=LOAD),
    "from casual_mcp_nb import Session": CLOCK.format(code="from casual_mcp_nb import Session"),
    "import casual_mcp (peer)": CLOCK.format(code="import casual_mcp"),
}


def seconds(code: str) -> float | None:
    """Return the median time that `code` prints, or None if it cannot run."""
    done = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True) for _ in range(REPEATS)]
    if any(one.returncode for one in done):
        return None
    return statistics.median(float(one.stdout.split()[-1]) for one in done)


def main() -> None:
    times = {name: seconds(code) for name, code in ROWS.items()}
    base = times["import casual_mcp_nb"] or 1
    for name, took in times.items():
        print(f"{name:<36}{'not installed' if took is None else f'{took * 1000:8.1f} ms   x {took / base:.1f}'}")


if __name__ == "__main__":
    main()
