"""Interrupts at each moment of a piece of code in turn, one after another.

A real interrupt comes at any moment, and most moments are rare. Here it comes at each line in turn.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any


class Interrupt:
    """Interrupts this thread at the line with a number, of those that some functions run.

    A line of `call_soon_threadsafe` counts too: the other loop can go on before it returns.

    Args:
        number: The line's, from 0 and in the order in which they run.
        is_ours: Tells whether a function counts, by its code.

    Attributes:
        at: Where it came, or empty if fewer lines were run.
    """

    def __init__(self, number: int, is_ours: Callable[[CodeType], bool]) -> None:
        self.at = ""
        self._left = number
        self._is_ours = is_ours

    def __enter__(self) -> None:
        sys.settrace(self._on_call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if code.co_name == "call_soon_threadsafe" or self._is_ours(code):
            # A coroutine that goes on has one.
            return frame.f_trace or self._tracer()
        return None

    def _tracer(self) -> Callable[..., Any]:
        seen: set[int] = set()

        def on_line(frame: FrameType, event: str, argument: object) -> Any:
            line = frame.f_lineno
            # The second time, a `with` is left: no signal comes before its lock is released.
            if event != "line" or line in seen:
                return on_line
            seen.add(line)
            code = frame.f_code
            if linecache.getline(code.co_filename, line).strip() == "try:":
                # What guards cannot be guarded itself.
                return on_line
            if not self._left:
                sys.settrace(None)
                self.at = f"{code.co_filename}:{line}, {code.co_qualname}"
                raise KeyboardInterrupt
            self._left -= 1
            return on_line

        return on_line


def at_each_line(
    run: Callable[[], object], is_ours: Callable[[CodeType], bool], *, every: int = 1
) -> Iterator[str]:
    """Run something again and again, each time interrupted at a later line, and a last time without
    that.

    Args:
        run: What is run. It may raise only a KeyboardInterrupt.
        is_ours: See `Interrupt`.
        every: How many lines later each time.

    Yields where the interrupt came, after each run.
    """
    number = 0
    while True:
        interrupt = Interrupt(number, is_ours)
        try:
            with interrupt:
                run()
        except KeyboardInterrupt:
            pass
        else:
            assert not interrupt.at, f"nobody heard of the interrupt at {interrupt.at}"
        if not interrupt.at:
            return
        yield interrupt.at
        number += every
