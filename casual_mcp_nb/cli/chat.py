"""`casual-mcp-nb chat` and `demo`: one message, or a conversation on the terminal."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from casual_mcp_nb.base.config import DeliverySetting
from casual_mcp_nb.base.model_options import ReasoningEffort
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.cli.exit_codes import FAILED, INTERRUPTED
from casual_mcp_nb.cli.source import Source, connect, demo_config_of, tell_failures
from casual_mcp_nb.cli.terminal import AsJson, encodable, show, tell, tell_quietly
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
    StepFinished,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolsSearched,
    ToolStarted,
    TurnStarted,
)
from casual_mcp_nb.conversation.step import text_of
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.views import figures_line, instead_of_answer
from casual_mcp_nb.display.words import clean, first
from casual_mcp_nb.errors import CasualMcpError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from casual_mcp_nb.base.config import Config
    from casual_mcp_nb.session import Session


def plain_event(event: Event) -> dict[str, Any] | None:
    """Convert an event to the fields that the guide lists; None for one that is not written.

    The end of a turn is not: it is written once the turn is complete, see `plain_end`.

    Args:
        event: The event.
    """
    match event:
        case TurnStarted():
            counts = {"loaded": event.loaded, "deferred": event.deferred}
            return {"event": "turn_started", "model": event.model, "tool_set": event.tool_set, **counts}
        case StepStarted():
            size = {"tools": len(event.request.tools), "tokens": event.request.tokens.total}
            return {"event": "step_started", "step": event.step, **size}
        case TextDelta():
            return {"event": "text", "step": event.step, "text": event.text}
        case StepFinished():
            return {"event": "step_finished", "step": event.step, "text": text_of(event.message.content)}
        case ToolStarted():
            call = {"id": event.call_id, "tool": str(event.tool), "arguments": event.arguments}
            return {"event": "tool_started", "step": event.step, **call}
        case ToolProgress():
            progress = {"progress": event.progress, "total": event.total, "text": event.text}
            return {"event": "tool_progress", "id": event.call_id, **progress}
        case ToolFinished():
            result = {"tool": str(event.tool), "status": event.status, "text": event.text}
            return {"event": "tool_finished", "step": event.step, "id": event.call_id, **result}
        case ToolsSearched():
            hits = [{"tool": str(row.tool), "score": row.score} for row in event.rows]
            return {"event": "tools_searched", "step": event.step, "id": event.call_id, "query": event.query, "found": hits}
        case ApprovalAsked():
            return {"event": "approval_asked", "id": event.call_id}
        case ApprovalAnswered():
            return {"event": "approval_answered", "id": event.call_id}
        case QuestionAsked():
            return {"event": "question_asked", "id": event.id, "kind": event.kind, "server": event.server}
        case QuestionAnswered():
            return {"event": "question_answered", "id": event.id}
        case ModelRetry() | ModelWait():
            kind = "model_retry" if isinstance(event, ModelRetry) else "model_wait"
            return {"event": kind, "step": event.step, "seconds": event.seconds, "reason": event.reason}
        case Notice():
            return {"event": "notice", "text": event.text, "server": event.server}
    return None


def plain_end(turn: Turn) -> dict[str, Any]:
    """Describe the end of a turn: its outcome, its answer and its statistics.

    Args:
        turn: The turn, which has ended.
    """
    stats, discovery = turn.stats, turn.stats.discovery
    tokens, calls = stats.tokens, stats.tool_calls
    kind = turn.exception.kind if isinstance(turn.exception, CasualMcpError) else None
    return {
        "event": "turn_finished",
        "status": turn.status,
        "error": turn.error,
        "kind": kind,
        "failure": turn.failure.given() if turn.failure is not None else None,
        "answer": turn.answer,
        "seconds": turn.seconds,
        "stats": {
            "tokens": {
                "prompt_tokens": tokens.prompt_tokens,
                "completion_tokens": tokens.completion_tokens,
                "total_tokens": tokens.total_tokens,
            },
            "tool_calls": {"by_tool": dict(calls.by_tool), "by_server": dict(calls.by_server), "total": calls.total},
            "llm_calls": stats.llm_calls,
            "discovery": discovery and {"search_calls": discovery.search_calls, "tools_discovered": discovery.tools_discovered},
        },
    }


_MAX_ARGUMENTS = 300
_MAX_RESULT = 300


class TurnWriter(ABC):
    """Writes the events of a turn while it runs, and its end.

    Args:
        session: The session, whose turn is stopped when nobody reads what is written.

    Attributes:
        turn: The turn; None before it began.
    """

    ends_stopped_turns = False
    """Whether the end of a turn that the person or a signal stopped is written too."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._broken: OSError | None = None
        self.turn: Turn | None = None

    def on_event(self, turn: Turn, event: Event) -> None:
        """Write an event; called on the engine's thread."""
        self.turn = turn
        if self._broken is not None:
            return
        try:
            self.write(event)
        except OSError as error:
            self._broken = error
            self._session.stop()

    def finish(self, turn: Turn) -> None:
        """Write how the turn ended.

        Raises:
            OSError: Something could not be written, perhaps earlier.
        """
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
    """Writes one JSON object per line, to the stdout of its creation."""

    ends_stopped_turns = True

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._stream = sys.stdout

    def write(self, event: Event) -> None:
        """Write an event."""
        self._line(plain_event(event))

    def write_end(self, turn: Turn) -> None:
        """Write how the turn ended, with its answer and statistics."""
        self._line(plain_end(turn))

    def _line(self, fields: object) -> None:
        if fields is not None:
            self._stream.write(f"{json.dumps(fields, default=str)}\n")
            self._stream.flush()


class TerminalTranscript(TurnWriter):
    """Writes the model's text to stdout, and its activity meanwhile to stderr.

    On a terminal the text is written as it arrives; elsewhere only the answer, at the end.
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
                self._note(f"{mark} {_name(event.tool, '')} → {first(event.text, _MAX_RESULT)}")
            case ToolsSearched():
                names = ", ".join(str(row.tool) for row in event.rows[:12]) or "no tools"
                self._note(f"search “{first(event.query, _MAX_ARGUMENTS)}” → {first(names, _MAX_RESULT)}")
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
        """Write the answer, unless it was streamed, or the reason why there is none; then the figures."""
        last = turn.steps[-1] if turn.steps else None
        if not self._live and turn.answer:
            sys.stdout.write(f"{encodable(clean(turn.answer), sys.stdout)}\n")
        sys.stdout.flush()
        instead = instead_of_answer(turn, last, turn.answer if last and not last.tool_calls else "")
        if instead is not None:
            self._note(instead.text)
        line = figures_line(turn)
        self._note(" · ".join([*([line.mark.text] if line.mark else []), *line.words]))

    def interrupted(self) -> None:
        """End the line of text that was begun."""
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
    return first(written or tool.tool if tool.server == UNKNOWN else str(tool), 120)


def _arguments(arguments: dict[str, object] | str) -> str:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
    return first(text, _MAX_ARGUMENTS)


Names = Annotated[tuple[str, ...], Parameter(negative=())]
_SOURCE = Source()
_HELP = """\
/model [NAME]    choose a model, or list them
/toolset [NAME]  choose a toolset, or all; or list them
/undo            remove the last turn
/new             start a new conversation
/quit            end; so does Ctrl-D
Ctrl-C stops a turn that runs; what it has done so far stays in the conversation."""


@Parameter(name="*")
@dataclass(frozen=True)
class TurnSettings:
    """How the turns of a chat run.

    Args:
        model: The model; the first one of the config if not given.
        toolset: Only the tools of this toolset.
        system: The system prompt, instead of the model's template.
        allow: Run the tools of this server without asking; can be given several times.
        json: Write the events as JSON lines. Nobody is asked then: calls of destructive tools are denied.
        image: An image for the message: a file, or an address that the provider fetches; can be given several times.
        attach: A resource to add to the message, by its URI; can be given several times.
        template: The template of the system prompt.
        temperature: How freely the model chooses its words.
        max_tokens: Maximum tokens of an answer.
        top_p: Sample from this share of the likeliest tokens.
        seed: Make answers repeatable, if the provider can.
        stop: End the answer at this text; can be given several times.
        tool_choice: auto, none, required, or the tool that the first step calls.
        parallel_tool_calls: Whether one answer may call several tools.
        reasoning_effort: How much the model thinks before it answers.
        discovery: Whether deferred tools are hidden behind the search tool.
        strategy: How the model finds deferred tools.
        delivery: How the model gets what it found.
        max_steps: Maximum number of model calls.
        stream: Whether answers arrive piece by piece.
        repair_calls: Run calls that the model writes as text.
    """

    model: Annotated[str | None, Parameter(alias="-m")] = None
    toolset: Annotated[str | None, Parameter(alias="-t")] = None
    system: str | None = None
    allow: Names = ()
    json: AsJson = False
    image: Names = ()
    attach: Names = ()
    template: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: Names = ()
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: ReasoningEffort | None = None
    discovery: bool | None = None
    strategy: Literal["search", "browse"] | None = None
    delivery: DeliverySetting | None = None
    max_steps: int | None = None
    stream: bool | None = None
    repair_calls: bool | None = None

    def of_a_turn(self) -> dict[str, Any]:
        """Collect the options that each turn of the chat gets."""
        apart = ("model", "toolset", "allow", "json", "image", "attach")
        named = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in apart}
        return {name: value for name, value in named.items() if value not in (None, ())}

    def of_the_message(self) -> dict[str, Any]:
        """Collect the options for the message alone."""
        given = {"images": self.image, "attach": self.attach}
        return {name: list(value) for name, value in given.items() if value}


_SETTINGS = TurnSettings()


def chat(*message: str, source: Source = _SOURCE, settings: TurnSettings = _SETTINGS) -> int:
    """Send a message to a model, which can call the tools; without one, begin a conversation.

    The message can also come from stdin. The answer goes to stdout, what the model does meanwhile to stderr.

    Args:
        message: The message.
    """
    return _chat(source, source.load(), " ".join(message), settings)


def demo(*message: str, model: str | None = None, allow: Names = (), json: AsJson = False) -> int:
    """Chat with the bundled demo servers: with an offline planner, which needs no key, or with a model.

    Args:
        message: The message; without one, begin a conversation.
        model: A model instead of the planner, such as openai:gpt-5.4 or ollama:qwen3.
        allow: Run the tools of this server without asking; can be given several times.
        json: Write the events as JSON lines.
    """
    if not message and sys.stdin.isatty():
        tell("The bundled servers with " + (model or "an offline planner, which is not a language model") + ".")
        tell("For example: What is 17 * 24?  ·  What time is it in Tokyo when it is 14:30 in Oslo?")
    return _chat(Source(demo=True), demo_config_of(model), " ".join(message), TurnSettings(allow=allow, json=json))


def _chat(source: Source, config: Config, message: str, settings: TurnSettings) -> int:
    interactive = not message and sys.stdin.isatty() and sys.stdout.isatty()
    if interactive and settings.of_the_message():
        raise UsageError(
            "--image and --attach go with a message.", hint='For example: casual-mcp-nb chat --image a.png "What is this?"'
        )
    if interactive and settings.json:
        raise UsageError("--json takes one message.", hint='Give it as an argument or on stdin: casual-mcp-nb chat --json "…"')
    if not message and not interactive:
        message = sys.stdin.read().strip()
        if not message:
            raise UsageError("The message is empty.", hint='For example: casual-mcp-nb chat "What is 17 * 24?"')
    with source.open(config, approval=dict.fromkeys(settings.allow, "never")) as session:
        if settings.model is not None:
            session.model = settings.model
        connect(session)
        tell_failures(session)
        if settings.toolset is not None:
            session.selection.tool_set = settings.toolset
        if interactive:
            return _converse(session, settings.of_a_turn())

        # A question would be written between the JSON lines, and a pipe is not a person.
        session.questions.unattended = settings.json or not sys.stdin.isatty()
        writer = JsonLines(session) if settings.json else TerminalTranscript(session)
        return _run(session, message, writer, {**settings.of_a_turn(), **settings.of_the_message()})


def _run(session: Session, message: str, writer: TurnWriter, options: dict[str, Any]) -> int:
    """Run a turn, write it as it runs, and return the exit code."""
    forget = session.observe(writer.on_event)
    try:
        turn = session.chat(message, echo="none", **options)
    except (KeyboardInterrupt, SystemExit) as end:
        if not writer.ends_stopped_turns or writer.turn is None:
            raise
        writer.finish(writer.turn)
        return INTERRUPTED if isinstance(end, KeyboardInterrupt) else end.code if isinstance(end.code, int) else FAILED
    finally:
        forget()
        writer.interrupted()
    writer.finish(turn)
    return 0 if turn.status == "done" else FAILED


def _converse(session: Session, options: dict[str, Any]) -> int:
    """Run turns until the person ends the conversation."""
    with suppress(ImportError):
        # It gives `input` a history and keys to edit a line.
        import readline  # noqa: F401
    tell(f"Model: {session.model or 'none'}. /help lists what else you can type; Ctrl-D ends.")
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            tell("")
            return 0
        except KeyboardInterrupt:
            tell("")
            continue
        try:
            if line in ("/quit", "/exit"):
                return 0
            if line.startswith("/"):
                _command(session, *line[1:].split(maxsplit=1))
            elif line:
                _run(session, line, TerminalTranscript(session), options)
        except KeyboardInterrupt:
            tell("Stopped. Completed steps are kept.")
        except CasualMcpError as error:
            tell(str(error))


def _command(session: Session, command: str = "", value: str = "") -> None:
    """Run a slash command."""
    value = value.strip()
    match command:
        case "help":
            tell(_HELP)
        case "new":
            session.new_conversation()
        case "undo":
            if session.undo() is None:
                raise UsageError("There is no turn to undo.")
        case "model" if value:
            session.model = value
        case "model":
            show(session.models)
        case "toolset" if value:
            session.selection.tool_set = None if value == "all" else value
        case "toolset":
            show(session.toolsets)
        case _:
            raise UnknownNameError("command", f"/{command}", ["/help", "/model", "/new", "/quit", "/toolset", "/undo"])
