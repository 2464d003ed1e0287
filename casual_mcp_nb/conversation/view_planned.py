"""Views for what a person reads before it runs: planned calls, and programs that a model wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from casual_mcp_nb.base.tool import Risk
from casual_mcp_nb.conversation.event import CallStatus
from casual_mcp_nb.conversation.planned import PlannedCall, PlannedCalls, ToolCalls
from casual_mcp_nb.conversation.view_calls import (
    ImageBudget,
    call_section,
    more_calls,
)
from casual_mcp_nb.conversation.written_program import WrittenCall, WrittenProgram
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import (
    Block,
    DisplayLimits,
    Line,
    Name,
    Phrase,
    Section,
    Span,
    Status,
    Table,
    TextBlock,
    Tone,
    View,
    columns,
    readable,
)

_PLANNED = Status("○ planned", "quiet")
_SKIPPED = Status("⊘ skipped", "quiet")
_HINT = (
    "Edit .arguments or .skip() calls. .run() runs the remaining ones, .run(0, 2) only these. "
    ".resume() passes the results to the model."
)


def plan_view(plan: PlannedCalls, limits: DisplayLimits) -> View:
    """Show the planned calls with their arguments and problems, and results once they were run."""
    turn, images = plan.turn, ImageBudget(limits.images)
    waiting = [each for each in plan if each.call is None]
    figures = [f"{words.count(len(plan), 'call')} planned"]
    if len(waiting) < len(plan):
        figures.append(f"{len(plan) - len(waiting):,} run")
    if turn.searches:
        figures.append(words.count(len(turn.searches), "search"))
    figures.append(words.tokens(turn.stats.sent_tokens, turn.stats.parts.origin))
    figures.append(words.seconds(turn.seconds))
    blocks: list[Block] = [Line(None, tuple(figures))]
    if plan.answer:
        blocks.append(TextBlock(plan.answer, limit=limits.text, prose=True))
    for number, call in enumerate(plan[: limits.rows]):
        blocks.append(_planned_section(call, str(number), limits, images))
    blocks += more_calls(len(plan) - limits.rows)
    if not plan:
        blocks.append(TextBlock("The model would call no tool."))
    elif waiting:
        blocks.append(TextBlock(_HINT))
    return View("plan", "Plan", tuple(blocks))


def planned_call_view(call: PlannedCall, limits: DisplayLimits) -> View:
    """Show a single planned call."""
    section = _planned_section(call, "", limits, ImageBudget(limits.images))
    return View("planned-call", _name(call), section.blocks, mark=section.mark, note=section.note)


def calls_view(calls: ToolCalls, limits: DisplayLimits) -> View:
    """Show calls that were run from a plan."""
    images = ImageBudget(limits.images)
    fold = len(calls) > 1
    blocks: list[Block] = []
    for number, call in enumerate(calls[: limits.rows]):
        key = f"call-{number}"
        blocks.append(call_section(call, limits.text, images, key=key, fold=fold))
    note = words.count(len(calls), "call")
    blocks += more_calls(len(calls) - limits.rows)
    if not blocks:
        blocks.append(TextBlock("None."))
    return View("calls", "Calls", tuple(blocks), note=note)


def _name(call: PlannedCall) -> str:
    return str(call.tool.tool_name) if call.tool is not None else call.name


def _planned_section(
    call: PlannedCall, number: str, limits: DisplayLimits, images: ImageBudget
) -> Section:
    title = Phrase((Span(_name(call), "code"),))
    if number:
        title = Phrase((Span(f"[{number}]", "number"), *title.spans))
    data = (("key", f"planned-{number}"),)
    if call.call is not None:
        return replace(call_section(call.call, limits.text, images), title=title, data=data)
    blocks: list[Block] = [
        TextBlock(readable(call.arguments), label="Arguments", code=True, limit=limits.text)
    ]
    blocks += [Line(Status(f"✗ {problem}", "bad")) for problem in call.problems]
    mark = _SKIPPED if call.skipped else _PLANNED
    return Section(title, tuple(blocks), mark, fold="open", look="call", data=data)


def written_program_view(cell: WrittenProgram, limits: DisplayLimits) -> View:
    """Show a program with the tools that it calls, what a correction changed, what writing cost,
    and whether it has run.
    """
    marks: dict[int, Tone] = {}
    rows = []
    for call in cell.calls:
        tone: Tone = "busy" if call.reason else "quiet"
        if call.tool.risk is Risk.DESTRUCTIVE or not call.included:
            tone = "bad"
        if tone != "quiet" and marks.get(call.line) != "bad":
            marks[call.line] = tone
        name, tokens = Name(str(call.tool.tool_name)), f"≈ {call.tool.tokens:,}"
        rows.append((name, str(call.line), tokens, call.policy, Status(_asks(call), tone)))
    for line, _ in cell.remarks:
        marks.setdefault(line, "busy")
    blocks: list[Block] = [
        TextBlock(
            cell.code.rstrip("\n"), code=True, limit=limits.document, language="python", marks=marks
        )
    ]
    if rows:
        asking = sum(bool(call.reason) for call in cell.calls)
        note = f"{asking} will ask" if asking else "none will ask"
        calls = Table(columns("Tool", "Line #", "Tokens #", "Policy", "In run()"), tuple(rows))
        blocks.append(
            Section(words.count(len(rows), "tool call"), (calls,), note=note, fold="open")
        )
    if cell.may_call_any_tool:
        blocks.append(
            Line(
                Status("⚠ This cell may call any tool.", "busy"), ("Its text does not show which.",)
            )
        )
    if cell.remarks:
        remarks = tuple((str(line), text) for line, text in cell.remarks)
        table = Table(columns("Line #", "What the program does"), remarks)
        blocks.append(Section("Before you run it", (table,), fold="open"))
    if cell.difference:
        title = f"Correction {cell.round} of up to {cell.rounds}"
        blocks.append(Section(title, (TextBlock(cell.difference, code=True),), fold="open"))
    stats = cell.stats
    requests = words.count(stats.llm_calls, "request")
    written = f"written with {requests}, ≈ {stats.sent_tokens:,} tokens in"
    if stats.cost:
        written = f"{written}, {stats.cost}"
    blocks.append(Line(_ending(cell), (*_calls_words(cell.call_counts), written)))
    if cell.state == "not run":
        hint = "insert() puts it into a new cell, where nothing is asked. run() asks as the table says."
        blocks.append(Line(None, (hint,)))
    return View("written", "Written cell", tuple(blocks), note=cell.task)


def _asks(call: WrittenCall) -> str:
    if not call.included:
        return "off: will be refused"
    words_for = f"asks first: {call.reason}" if call.reason else "runs without asking"
    if call.tool.risk is Risk.DESTRUCTIVE and call.reason != "destructive":
        words_for = f"destructive, {words_for}"
    return words_for


def _ending(cell: WrittenProgram) -> Status:
    match cell.state:
        case "not run":
            return Status("Nothing has run.", "quiet")
        case "failed":
            return Status(f"✗ {cell.error}", "bad")
        case "stopped":
            return Status("stopped", "busy")
    return Status("✓ ran", "good")


def _calls_words(counts: Mapping[CallStatus, int]) -> tuple[str, ...]:
    if not counts:
        return ()
    total = words.count(sum(counts.values()), "call")
    others = ", ".join(f"{count:,} {status}" for status, count in counts.items() if status != "ok")
    return (f"{total}: {others}",) if others else (total,)
