"""A turn written as it runs: text for a person, or JSON lines for a program."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.content import ToolResult
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.cli.terminal import encodable, tell_quietly
from casual_mcp_nb.conversation.codec import followed, plain
from casual_mcp_nb.conversation.event import (
    SYNTHETIC,
    UNKNOWN,
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    ModelRetry,
    ModelWait,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    SkillRead,
    StepFinished,
    TextDelta,
    ToolFinished,
    ToolsSearched,
    ToolStarted,
    TurnFinished,
)
from casual_mcp_nb.conversation.step import text_of
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.view_calls import result_words, skill_words
from casual_mcp_nb.conversation.views import figures_line, instead_of_answer
from casual_mcp_nb.display.words import clean, first

if TYPE_CHECKING:
    from casual_mcp_nb.session import Session


def plain_end(turn: Turn) -> dict[str, Any]:
    """Describe a turn's end: its last event, its answer and its statistics."""
    # A turn whose clean-up takes longer than a person waits has not ended.
    end = next(iter(turn.trace.all_of(TurnFinished)), TurnFinished("running"))
    kind = end.failure.kind if end.failure is not None else None
    ended = {
        **followed(end),
        "kind": kind,
        "answer": turn.answer,
        "seconds": turn.seconds,
        "stats": turn.stats.model_dump(),
    }
    return {"event": TurnFinished.__name__, **plain(ended)}


_MAX_NAME = 120
_MAX_ARGUMENTS = 300
_MAX_RESULT = 300


class TurnWriter(ABC):
    """Writes a turn's events while it runs, and its end."""

    ends_stopped_turns = False
    """Whether to write the end, too, of a turn that the person or a signal stopped."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._broken: OSError | None = None
        self.turn: Turn | None = None

    def on_event(self, turn: Turn, event: Event) -> None:
        """Write an event. Called on the engine's thread."""
        self.turn = turn
        if self._broken is not None:
            return
        try:
            self.write(event)
        except OSError as error:
            self._broken = error
            self._session.stop()

    def finish(self, turn: Turn) -> None:
        """Write how the turn ended."""
        if self._broken is not None:
            raise self._broken
        self.write_end(turn)

    @abstractmethod
    def write(self, event: Event) -> None:
        """Write an event."""

    @abstractmethod
    def write_end(self, turn: Turn) -> None:
        """Write how a turn ended."""

    def interrupted(self) -> None:  # noqa: B027
        """Leave the terminal so that others can write on it."""


class JsonLines(TurnWriter):
    """Writes one JSON object per line, to the stdout at its creation."""

    ends_stopped_turns = True

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._stream = sys.stdout

    def write(self, event: Event) -> None:
        """Write an event, apart from the end, which `finish` writes once the turn is complete."""
        if not isinstance(event, TurnFinished):
            self._line({"event": type(event).__name__, **followed(event)})

    def write_end(self, turn: Turn) -> None:
        """Write how the turn ended, with its answer and statistics."""
        self._line(plain_end(turn))

    def _line(self, fields: Mapping[str, Any]) -> None:
        self._stream.write(f"{json.dumps(fields)}\n")
        self._stream.flush()


class TerminalTranscript(TurnWriter):
    """Writes the model's text to stdout, and its activity meanwhile to stderr.

    On a terminal the text is written as it arrives. Elsewhere only the answer, at the end.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._live = sys.stdout.isatty()
        self._in_line = False
        self._step_written = False

    def write(self, event: Event) -> None:
        """Write an event."""
        match event:
            case TextDelta():
                self._step_written = True
                self._text(event.text)
            case StepFinished():
                if not self._step_written:
                    self._text(text_of(event.message.content))
                self._step_written = False
                self.interrupted()
            case ToolStarted() if event.tool.server != SYNTHETIC:
                self._note(f"→ {_name(event.tool, event.name)} {_arguments(event.arguments)}")
            case ToolFinished() if event.tool.server != SYNTHETIC:
                mark = "✓" if event.status == "ok" else f"✗ {event.status}"
                came = event.result or ToolResult()
                result = result_words(event.status, event.text, came, event.large)
                self._note(f"{mark} {_name(event.tool, '')} → {first(result, _MAX_RESULT)}")
            case ToolsSearched():
                results = [*(row.tool for row in event.rows), *event.skills]
                names = ", ".join(map(str, results[:12])) or "no tools"
                by = f" by {event.ranked_by}" if event.ranked_by != "words" else ""
                self._note(
                    f"search “{first(event.query, _MAX_ARGUMENTS)}”{by} →"
                    f" {first(names, _MAX_RESULT)}"
                )
            case SkillRead():
                self._note(skill_words(event))
            case ModelRetry() | ModelWait():
                self._note(f"waiting {event.seconds:.0f} s: {first(event.reason, _MAX_RESULT)}")
            case Notice():
                self._note(first(event.text, _MAX_RESULT))
            case ApprovalAsked() | QuestionAsked():
                self.interrupted()
                # The prompt ends with the line that the person types.
                self._in_line = self._live
            case ApprovalAnswered() | QuestionAnswered():
                self._in_line = False

    def write_end(self, turn: Turn) -> None:
        """Write the answer, unless it was streamed, or the reason why there is none.

        Then the figures.
        """
        last = turn.steps[-1] if turn.steps else None
        answer = turn.answer if last and not last.tool_calls else ""
        if not self._live and turn.answer:
            sys.stdout.write(f"{encodable(clean(turn.answer), sys.stdout)}\n")
        sys.stdout.flush()
        instead = instead_of_answer(turn, last, answer)
        if instead is not None:
            self._note(instead.text)
        line = figures_line(turn)
        figures = list(line.words)
        if line.mark:
            figures.insert(0, line.mark.text)
        self._note(" · ".join(figures))

    def interrupted(self) -> None:
        """End the current line."""
        if self._in_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._in_line = False

    def _text(self, text: str) -> None:
        if self._live and text:
            sys.stdout.write(encodable(clean(text), sys.stdout))
            sys.stdout.flush()
            self._in_line = not text.endswith("\n")

    def _note(self, text: str) -> None:
        self.interrupted()
        tell_quietly(text)


def _name(tool: ToolName, written: str) -> str:
    if tool.server == UNKNOWN:
        return first(written or tool.tool, _MAX_NAME)
    return first(str(tool), _MAX_NAME)


def _arguments(arguments: dict[str, object] | str) -> str:
    text = arguments
    if not isinstance(text, str):
        text = json.dumps(arguments, ensure_ascii=False, default=str)
    return first(text, _MAX_ARGUMENTS)
