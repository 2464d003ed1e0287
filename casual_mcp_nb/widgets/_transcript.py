"""The turns of a conversation as they stand in a panel."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from casual_mcp_nb.display import transcript_html
from casual_mcp_nb.display.text import first
from casual_mcp_nb.types.event import Event, StepStarted, TextDelta, ToolFinished, ToolStarted, TurnFinished, TurnStarted
from casual_mcp_nb.types.trace import Turn

MAX_TURNS = 50
SECONDS_BETWEEN_DRAWINGS = 0.1


@dataclass(frozen=True)
class _Drawing:
    html: str
    steps: int
    at: float
    final: bool


class Transcript:
    """Turns as HTML. One that ended is drawn once; one that runs at most ten times a second.

    Args:
        again: Is called when a turn was left as it was drawn before, and must be drawn a little later.

    Attributes:
        doing: What the running turn does at this moment, in words; empty where none runs.
        said: The last thing that a person who does not see the panel should hear of.
    """

    def __init__(self, again: Callable[[], None]) -> None:
        self.doing = ""
        self.said = ""
        self._again = again
        self._began = time.monotonic()
        self._numbers = count(1)
        self._keys: WeakKeyDictionary[Turn, str] = WeakKeyDictionary()
        self._drawings: WeakKeyDictionary[Turn, _Drawing] = WeakKeyDictionary()

    def note(self, turn: Turn, event: Event, number: int) -> None:
        """Take note of an event of the turn that runs.

        Args:
            turn: The turn.
            event: What happened.
            number: Which turn of the conversation it is, from 1.
        """
        self._began = time.monotonic() - event.at
        match event:
            case TurnStarted():
                self.said = f"Turn {number} began."
            case StepStarted():
                self.doing = f"Step {event.step + 1}: the model is asked …"
            case TextDelta():
                self.doing = f"Step {event.step + 1}: the model answers …"
            case ToolStarted():
                self.doing = f"Step {event.step + 1}: {first(event.name, 60)} runs …"
            case ToolFinished():
                self.doing = f"Step {event.step + 1}: results come in …"
            case TurnFinished():
                self.doing = ""
                self.said = f"Turn {number} is {event.status}."

    def rows(self, turns: list[Turn]) -> dict[str, dict[str, Any]]:
        """The last turns by key: number, prompt, how many steps, status and HTML. Runs on the drawing thread."""
        shown = list(enumerate(turns, 1))[-MAX_TURNS:]
        return {self.key(turn): self._row(number, turn) for number, turn in shown}

    def key(self, turn: Turn) -> str:
        """By what the front end knows a turn."""
        if turn not in self._keys:
            self._keys[turn] = f"t{next(self._numbers)}"
        return self._keys[turn]

    def _row(self, number: int, turn: Turn) -> dict[str, Any]:
        drawing = self._drawing(turn)
        row: dict[str, Any] = {"number": number, "prompt": turn.prompt, "html": drawing.html, "steps": drawing.steps}
        row["status"] = turn.status
        before = next((edit.before for edit in turn.edits if edit.call_id is None), None)
        return row if before is None else {**row, "before": before}

    def _drawing(self, turn: Turn) -> _Drawing:
        known, now = self._drawings.get(turn), time.monotonic()
        if known is not None:
            if known.final:
                return known
            if turn.running and now - known.at < SECONDS_BETWEEN_DRAWINGS:
                self._again()
                return known
        # What comes while it is drawn is drawn next time.
        final = not turn.running
        drawing = _Drawing(transcript_html(turn, now - self._began), len(turn.steps), now, final)
        self._drawings[turn] = drawing
        return drawing
