"""What is true of every turn, however it ends: each call that has started has ended, exactly once,
and nothing follows the turn's end.

`RULES` watches all turns that the tests of this process run.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from casual_mcp_nb.conversation.event import (
    TextEdited,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from casual_mcp_nb.conversation.turn import Trace

_CHAT = "casual_mcp_nb.engine.chat"


def broken_rules(trace: Trace) -> Iterator[str]:
    """Yield the rules that the trace of a turn breaks."""
    started: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    is_over = False
    for event in trace:
        if is_over and not isinstance(event, _kinds_of_later()):
            yield f"{type(event).__name__} follows the turn's end: {event!r}"
        if isinstance(event, ToolStarted):
            started[event.call_id] += 1
        elif isinstance(event, ToolFinished):
            ended[event.call_id] += 1
            if ended[event.call_id] > started[event.call_id]:
                yield f"call {event.call_id} of {event.tool} ended without having started"
        elif isinstance(event, TurnFinished):
            is_over = True
            for call_id in started - ended:
                yield f"call {call_id} has no end"


def _kinds_of_later() -> tuple[type[Any], ...]:
    from casual_mcp_nb.notebook.tasks import LaterEvent

    # Tools that the person unloads are marked in the result that had loaded them.
    return (*get_args(LaterEvent), TextEdited)


class TurnRules:
    """The turns that were run since the last look."""

    def __init__(self) -> None:
        self._watching = False
        # Tests check that nothing holds a turn longer than it has to be.
        self._traces: list[weakref.ref[Trace]] = []
        self._broken: list[str] = []

    def watch(self) -> None:
        """Watch turns from now on, if the engine has been imported."""
        module = sys.modules.get(_CHAT)
        if self._watching or not hasattr(module, "McpToolChat"):
            return
        self._watching = True
        chat: Any = module.McpToolChat  # type: ignore[union-attr]
        take_turn = chat.take_turn

        @functools.wraps(take_turn)
        async def watched(chat: Any, setup: Any) -> Any:
            trace = setup.turn.trace
            try:
                return await take_turn(chat, setup)
            finally:
                self._broken += broken_rules(trace)
                self._traces.append(weakref.ref(trace))

        chat.take_turn = watched

    def take(self) -> Sequence[str]:
        """Take the rules that these turns have broken, also after their end."""
        broken = list(self._broken)
        for reference in self._traces:
            if (trace := reference()) is not None:
                broken += broken_rules(trace)
        self._broken, self._traces = [], []
        return list(dict.fromkeys(broken))


RULES = TurnRules()
