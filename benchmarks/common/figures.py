"""The figures that benchmarks measure, the table that shows them, and the ways in which they are
measured.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

SECONDS = 600
"""The most that a measurement in a separate process may take."""


class Unavailable(Exception):
    """A benchmark cannot run here, because something that it needs is not installed."""


@dataclass(frozen=True)
class Figure:
    """Something that was measured.

    Args:
        name: What was measured.
        value: How much it is.
        unit: The unit of all three values.
        peer: How much it is with what this package is compared with, if it was measured.
        limit: How much it may be.
        more_is_better: Whether the value should be above the others rather than below them.
    """

    name: str
    value: float
    unit: str
    peer: float | None = None
    limit: float | None = None
    more_is_better: bool = False

    @property
    def to_peer(self) -> float | None:
        """The ratio to the peer: below 1 is better than the peer."""
        return self._ratio(self.peer)

    @property
    def to_limit(self) -> float | None:
        """The ratio to the limit: above 1 it is exceeded."""
        return self._ratio(self.limit)

    def _ratio(self, other: float | None) -> float | None:
        if other is None:
            return None
        over, under = (other, self.value) if self.more_is_better else (self.value, other)
        return over / under if under else math.inf if over > 0 else 0.0

    def __str__(self) -> str:
        cells = [
            _cell(self.value),
            _cell(self.peer),
            _times(self.to_peer),
            _cell(self.limit),
            _times(self.to_limit),
        ]
        exceeded = "  EXCEEDED" if (self.to_limit or 0) > 1 else ""
        return (
            f"{self.name[:59]:<60}{self.unit:<9}"
            + "".join(f"{cell:>11}" for cell in cells)
            + exceeded
        )


HEAD = f"{'':<60}{'unit':<9}" + "".join(
    f"{title:>11}" for title in ("ours", "peer", "to peer", "limit", "to limit")
)


def print_figures(figures: Iterable[Figure]) -> None:
    """Print a table. A ratio below 1 is always better."""
    print(HEAD)
    for figure in figures:
        print(figure, flush=True)


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return (
        f"{value:,.0f}"
        if abs(value) >= 1_000
        else f"{value:.3g}"
        if abs(value) < 10
        else f"{value:.1f}"
    )


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"x {ratio:.2f}"


def installed(package: str) -> bool:
    """Whether a peer can be imported."""
    return importlib.util.find_spec(package) is not None


def be_quiet() -> None:
    """Keep warnings and logs of libraries out of what is printed and measured."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")


def milliseconds(
    work: Callable[[], object], *, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return how long something takes."""
    start = clock()
    work()
    return (clock() - start) * 1_000


def median_ms(
    work: Callable[[], object], runs: int, *, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return how long something takes after one run to warm up."""
    work()
    return statistics.median(milliseconds(work, clock=clock) for _ in range(runs))


def fastest_ms(work: Callable[[], object], runs: int) -> float:
    """Return how long something takes at least: other load on the machine only adds to it."""
    return min(milliseconds(work) for _ in range(runs))


def in_process(*command: str) -> Any:
    """Run Python with these arguments in a separate process and return the JSON that it prints
    last.

    Raises:
        RuntimeError: It failed.
    """
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=SECONDS
    )
    if done.returncode:
        raise RuntimeError(
            (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        )
    return json.loads(done.stdout.splitlines()[-1])
