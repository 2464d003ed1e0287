"""Cost of starting the bundled servers: `python benchmarks/bundled_servers.py [--rounds 3]`.

Compares servers that are forked from a process that has imported the MCP SDK (Linux) with servers that import it themselves,
as those do that get variables in `env`. Each measurement runs in a separate process, and the best round counts. The seconds are
those of a second session, after the imports of the first.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import psutil

WAYS: dict[str, dict[str, str]] = {"forked": {}, "each alone": {"BENCHMARK": "1"}}
"""The variables that the servers get."""


def start(way: str) -> dict[str, float]:
    """Return what one session costs until all its servers are ready."""
    from casual_mcp_nb import Session
    from casual_mcp_nb.bundled import available

    servers = {name: {**server, "env": WAYS[way]} for name, server in available().servers.items()}
    clock = time.perf_counter()
    with Session.from_config({"servers": servers}) as session:
        session.connect(quiet=True, strict=True)
        seconds = time.perf_counter() - clock
        processes = psutil.Process().children(recursive=True)
        processor = sum(sum(each.cpu_times()[:2]) for each in processes)
        memory = sum(each.memory_full_info().pss for each in processes) / 2**20
    return {"processor": processor, "memory": memory, "seconds": seconds}


def measure(way: str) -> dict[str, float]:
    """Run one measurement in a separate process."""
    done = subprocess.run([sys.executable, __file__, "--way", way], capture_output=True, text=True, check=True, timeout=300)
    row: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return row


def main(rounds: int) -> None:
    """Print the best of so many rounds, and the ratio."""
    rows: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            rows[way].append(measure(way))
    for field, unit in (("processor", "s"), ("memory", "MB"), ("seconds", "s")):
        forked, alone = (min(row[field] for row in rows[way]) for way in WAYS)
        print(f"{field:<10} forked {forked:7.2f} {unit:<3} each alone {alone:7.2f} {unit:<3} x {alone / forked:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", choices=WAYS)
    arguments = parser.parse_args()
    if arguments.way:
        first, second = start(arguments.way), start(arguments.way)
        print(json.dumps(first | {"seconds": second["seconds"]}))
    else:
        main(arguments.rounds)
