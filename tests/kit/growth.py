"""How the work for an input grows with its length, as processor time in one run: neither a clock
nor a busy machine counts.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

PART = 8
"""The shorter input has one part in so many of the longer one."""
_TOO_SHORT_TO_TELL = 0.002
_SLACK = 3


def processor_seconds(work: Callable[[], object]) -> float:
    """The processor time of this thread while `work` runs, without collecting the garbage of all
    other tests.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        start = time.thread_time()
        work()
        return time.thread_time() - start
    finally:
        if collects:
            gc.enable()


def assert_growth(short: Callable[[], object], long: Callable[[], object], power: int = 1) -> None:
    """Fail if the work for an input that is `PART` times as long grows faster than with that power
    of the length.

    Args:
        short: The work for the shorter input.
        long: The work for the longer one.
        power: 1 where it must grow with the length, 2 with its square.
    """
    assert_growth_of(
        *(min(processor_seconds(work) for _ in range(3)) for work in (short, long)), power
    )


def assert_growth_of(before: float, after: float, power: int = 1) -> None:
    """Fail if `after`, the time for `PART` times the length, is too long for `before`, see
    `assert_growth`.
    """
    before = max(_TOO_SHORT_TO_TELL, before)
    assert after <= _SLACK * PART**power * before, (
        f"{after / before:.0f} times as much work for {PART} times the length"
    )
