"""Cost of starting the bundled servers: `python benchmarks/bundled_servers.py [--rounds 3]`.

Servers in this process, as those of the demo; the peer is the same servers, each in a separate
process. Each measurement runs in a separate process, and the best round counts. The seconds are of
a second session, after the imports of the first.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import islice

import psutil
from common.figures import Figure, in_process, print_figures

WAYS = {"in this process": "in-process", "each alone": "stdio"}
"""The transports."""
UNITS = {"processor": "s", "memory": "MB", "seconds": "s"}
FEW, ALL = 1, 99


def start(way: str, count: int) -> dict[str, float]:
    """Return what one session costs until its servers are ready."""
    from casual_mcp_nb import Session
    from casual_mcp_nb.bundled import available

    servers = {
        name: {**server, "transport": WAYS[way]}
        for name, server in islice(available().servers.items(), count)
    }
    me = psutil.Process()
    clock, worked, had = time.perf_counter(), time.process_time(), me.memory_full_info().pss
    with Session.from_config({"servers": servers}) as session:
        session.connect(quiet=True, strict=True)
        seconds = time.perf_counter() - clock
        processes = me.children(recursive=True)
        processor = (
            sum(sum(each.cpu_times()[:2]) for each in processes) + time.process_time() - worked
        )
        memory = (sum(each.memory_full_info().pss for each in [me, *processes]) - had) / 2**20
    return {"processor": processor, "memory": memory, "seconds": seconds}


def measure(rounds: int, count: int) -> list[Figure]:
    """Measure both in turn, each time in a separate process."""
    rows: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            rows[way].append(in_process(__file__, "--way", way, "--count", str(count)))
    best = {way: {field: min(row[field] for row in rows[way]) for field in UNITS} for way in WAYS}
    return [
        Figure(field, best["in this process"][field], unit, best["each alone"][field])
        for field, unit in UNITS.items()
    ]


def figures(quick: bool) -> list[Figure]:
    """Processor time, memory and seconds of all servers, or of a few."""
    return measure(1, FEW) if quick else measure(3, ALL)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=ALL, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        first = start(arguments.way, arguments.count)
        second = start(arguments.way, arguments.count) if arguments.count > FEW else first
        print(json.dumps(first | {"seconds": second["seconds"]}))
    else:
        print_figures(measure(arguments.rounds, ALL))
