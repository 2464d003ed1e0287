"""The turns of a conversation as the panel shows them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from casual_mcp_nb.display import transcript_html
from casual_mcp_nb.display.text import first
from casual_mcp_nb.display.turn import doing
from casual_mcp_nb.types.event import (
    SYNTHETIC,
    UNKNOWN,
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    QuestionAnswered,
    QuestionAsked,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.types.image import pictures_of
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
    """Draws turns as HTML: a finished one once, a running one at most ten times a second.

    Args:
        again: Called when a turn was not drawn again because it was drawn recently, and must be drawn a little later.

    Attributes:
        doing: What the running turn is doing, in words; empty if none is running.
        said: The latest announcement for a person who does not see the panel.
    """

    def __init__(self, again: Callable[[], None]) -> None:
        self.doing = ""
        self.announcement = ""
        self._again = again
        self._started = time.monotonic()
        self._numbers = count(1)
        self._keys: WeakKeyDictionary[Turn, str] = WeakKeyDictionary()
        self._drawings: WeakKeyDictionary[Turn, _Drawing] = WeakKeyDictionary()
        self._images: WeakKeyDictionary[Turn, list[str]] = WeakKeyDictionary()

    def note(self, turn: Turn, event: Event, number: int) -> None:
        """Take note of an event of the running turn.

        Args:
            turn: The turn.
            event: What happened.
            number: Which turn of the conversation it is, from 1.
        """
        self._started = time.monotonic() - event.at
        match event:
            case TurnStarted():
                self.announcement = f"Turn {number} started."
            case StepStarted():
                self.doing = f"Step {event.step + 1}: waiting for the model …"
            case TextDelta():
                self.doing = f"Step {event.step + 1}: the model is answering …"
            case ToolStarted():
                self.doing = f"Step {event.step + 1}: running {first(_tool(event), 60)} …"
            case ToolFinished():
                self.doing = f"Step {event.step + 1}: got a result …"
            case ApprovalAsked() | ApprovalAnswered() | QuestionAsked() | QuestionAnswered():
                steps = turn.steps
                self.doing = doing(turn, steps[-1] if steps else None).text
            case TurnFinished():
                self.doing = ""
                self.announcement = f"Turn {number} is {event.status}."

    def rows(self, turns: list[Turn]) -> dict[str, dict[str, Any]]:
        """Build the rows of the last turns by key: number, prompt, images, steps, status, HTML. Runs on the drawing thread."""
        last = list(enumerate(turns, 1))[-MAX_TURNS:]
        return {self.key(turn): self._row(number, turn) for number, turn in last}

    def key(self, turn: Turn) -> str:
        """Build the key by which the front end knows a turn."""
        if turn not in self._keys:
            self._keys[turn] = f"t{next(self._numbers)}"
        return self._keys[turn]

    def _row(self, number: int, turn: Turn) -> dict[str, Any]:
        drawing = self._drawing(turn)
        row: dict[str, Any] = {"number": number, "prompt": turn.prompt, "html": drawing.html, "steps": drawing.steps}
        row |= {"status": turn.status, "images": self._addresses(turn)}
        before = next((edit.before for edit in turn.edits if edit.call_id is None), None)
        return row if before is None else {**row, "before": before}

    def _addresses(self, turn: Turn) -> list[str]:
        """List, for each image of the prompt, its address; empty where its bytes are there."""
        if turn not in self._images:
            # They are decoded for that, so it is done once.
            self._images[turn] = [picture.address for picture in pictures_of(turn.started.messages)]
        return self._images[turn]

    def _drawing(self, turn: Turn) -> _Drawing:
        drawing, now = self._drawings.get(turn), time.monotonic()
        if drawing is not None:
            if drawing.final:
                return drawing
            if turn.running and now - drawing.at < SECONDS_BETWEEN_DRAWINGS:
                self._again()
                return drawing
        # What arrives while it is drawn is drawn next time.
        final = not turn.running
        drawing = _Drawing(transcript_html(turn, now - self._started), len(turn.steps), now, final)
        self._drawings[turn] = drawing
        return drawing


def _tool(event: ToolStarted) -> str:
    return event.name if event.tool.server in (SYNTHETIC, UNKNOWN) else str(event.tool)
