"""Views of single events: one line in words, with its few details."""

from __future__ import annotations

from typing import get_args

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.calls import outcome_of
from casual_mcp_nb.display.request import request_words
from casual_mcp_nb.display.schema import pretty
from casual_mcp_nb.display.steps import remark
from casual_mcp_nb.display.view import Block, Cell, DisplayLimits, KeyValues, Line, Name, Table, TextBlock, View, columns
from casual_mcp_nb.types.event import (
    SYNTHETIC,
    UNKNOWN,
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    QuestionAnswered,
    QuestionAsked,
    SearchRow,
    ServerLog,
    StepFinished,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolsSearched,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.types.step import text_of
from casual_mcp_nb.types.tool import ToolName

EVENTS = get_args(Event)
"""The classes of all events."""


def event_view(event: Event, limits: DisplayLimits) -> View:
    """Show an event with its name, its time and a description."""
    step = getattr(event, "step", None)
    note = " · ".join(filter(None, (f"step {step + 1}" if step is not None else "", f"at {words.seconds(event.at)}")))
    return View("event", _title(type(event).__name__), tuple(_blocks(event, limits)), note=note)


def _title(name: str) -> str:
    """Split the name of a class into words: `ToolsSearched` into `Tools searched`."""
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    return spaced.strip().capitalize()


def _blocks(event: Event, limits: DisplayLimits) -> list[Block]:
    match event:
        case TurnStarted():
            prompt = "\n".join(text_of(message.content) for message in event.messages)
            tools = f"{event.loaded:,} loaded, {event.deferred:,} searchable" if event.discovery else f"{event.loaded:,} loaded"
            rows = (("Model", event.model), ("Toolset", event.tool_set or "all tools"), ("Tools", tools))
            return [TextBlock(prompt), KeyValues(tuple((name, value) for name, value in rows if value))]
        case StepStarted():
            return [Line(None, (request_words(event.request),))]
        case TextDelta():
            return [TextBlock(event.text)]
        case StepFinished():
            calls = [call.function.name for call in event.message.tool_calls or ()]
            text = text_of(event.message.content)
            figures = (f"calls {words.listed(calls, limits.rows)}" if calls else "", words.ending(event.finish_reason))
            return [*([TextBlock(text)] if text else []), Line(None, tuple(filter(None, figures)))]
        case ToolStarted():
            arguments = event.arguments if isinstance(event.arguments, str) else pretty(event.arguments, indent=None)
            return [KeyValues((("Tool", Name(_tool(event.tool))), ("Arguments", arguments)))]
        case ToolFinished():
            return [
                KeyValues((("Tool", Name(_tool(event.tool))), ("Outcome", outcome_of(event.status)))),
                TextBlock(event.text),
            ]
        case ToolProgress():
            total = f" of {event.total:g}" if event.total is not None else ""
            return [Line(None, tuple(filter(None, (f"{event.progress:g}{total}", event.text or ""))))]
        case ToolsSearched():
            return _search(event, limits)
        case ApprovalAsked() | ApprovalAnswered():
            return [KeyValues((("Call", Name(event.call_id)),))]
        case QuestionAsked():
            who = (("Server", Name(event.server)),) if event.server else ()
            return [KeyValues((("Question", event.kind), *who))]
        case QuestionAnswered():
            return [KeyValues((("Question", Name(event.id)),))]
        case ServerLog():
            return [TextBlock(f"{event.server} {event.level}: {event.text}", code=True)]
        case TurnFinished():
            return [Line(None, (event.status,)), *([TextBlock(event.error)] if event.error else [])]
        case _:
            return [Line(remark(event))]


def _search(event: ToolsSearched, limits: DisplayLimits) -> list[Block]:
    rows = tuple(_row(row) for row in event.rows[: limits.rows])
    table = Table(columns("Tool", "Score #", "", "Matching words"), rows, len(event.rows) - len(rows))
    new = sum(row.newly_loaded for row in event.rows)
    figures = [
        words.quoted(event.query),
        f"{words.count(len(event.rows), 'tool')} found, {new:,} of them loaded by this search",
    ]
    if event.unloaded:
        figures.append(f"unloaded {words.listed(map(str, event.unloaded), limits.rows)}")
    return [Line(None, (*figures, f"{words.count(event.offered, 'tool')} loaded now")), *([table] if rows else [])]


def _row(row: SearchRow) -> tuple[Cell, ...]:
    state = "same server" if row.same_server else "by name" if row.score is None else ""
    loaded = "" if row.newly_loaded else "already loaded"
    score = "" if row.score is None else words.score(row.score)
    return Name(str(row.tool)), score, ", ".join(filter(None, (state, loaded))), ", ".join(row.words)


def _tool(tool: ToolName) -> str:
    return tool.tool if tool.server in (SYNTHETIC, UNKNOWN) else str(tool)
