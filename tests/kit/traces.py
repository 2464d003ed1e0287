"""Compare traces apart from times: `same_apart_from_times(turn)`."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any

from casual_mcp_nb.conversation.event import Event, ServerLog, TextDelta, TurnStarted
from casual_mcp_nb.conversation.turn import Turn


def same_apart_from_times(turn: Turn) -> list[Event]:
    """List the events of a turn without times and their consequences: the pieces of an answer in
    one, calls one by one.
    """
    events: list[Any] = []
    for event in _one_by_one(turn.trace):
        changed: Any = dataclasses.replace(event, at=0.0)
        if isinstance(event, TurnStarted):
            changed = dataclasses.replace(changed, began=None)
        if isinstance(event, TextDelta) and events and isinstance(events[-1], TextDelta):
            events[-1] = dataclasses.replace(events[-1], text=events[-1].text + event.text)
        else:
            events.append(changed)
    return events


def _one_by_one(trace: Iterable[Event]) -> list[Event]:
    """Order the events so that those of each concurrent call are together, in the order in which
    the calls began.
    """
    events: list[Event] = []
    for in_calls, group in itertools.groupby(
        trace, lambda event: hasattr(event, "call_id") or isinstance(event, ServerLog)
    ):
        of_call: dict[str, list[Event]] = {}
        call_id = ""
        for event in group:
            call_id = getattr(event, "call_id", call_id) if in_calls else ""
            of_call.setdefault(call_id, []).append(event)
        events += itertools.chain.from_iterable(of_call.values())
    return events
