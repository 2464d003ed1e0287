"""Views of a plan: the calls that a model would make, and the results of those that were run."""

from __future__ import annotations

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.calls import ImageBudget, call_section, status_of
from casual_mcp_nb.display.schema import pretty
from casual_mcp_nb.display.view import Block, DisplayLimits, Line, Phrase, Section, Span, Status, TextBlock, View
from casual_mcp_nb.types.plan import PlannedCall, PlannedCalls, ToolCalls

_PLANNED = Status("○ planned", "quiet")
_SKIPPED = Status("⊘ skipped", "quiet")
_HINT = (
    "Edit .arguments or .skip() calls; .run() runs those that were not run yet, .run(0, 2) only these; "
    ".resume() gives the results to the model."
)


def plan_view(plan: PlannedCalls, limits: DisplayLimits) -> View:
    """Show the planned calls with their arguments and problems, and the results of those that were run."""
    turn, images = plan.turn, ImageBudget(limits.images)
    waiting = [each for each in plan if each.call is None]
    figures = [
        f"{words.count(len(plan), 'call')} planned",
        f"{len(plan) - len(waiting):,} run" if len(waiting) < len(plan) else "",
        words.count(len(turn.searches), "search") if turn.searches else "",
        words.tokens(turn.stats.sent_tokens, turn.stats.parts.origin),
        words.seconds(turn.seconds),
    ]
    blocks: list[Block] = [Line(None, tuple(filter(None, figures)))]
    if plan.answer:
        blocks.append(TextBlock(plan.answer, limit=limits.text, prose=True))
    for number, call in enumerate(plan[: limits.rows]):
        blocks.append(_section(call, str(number), limits, images))
    if len(plan) > limits.rows:
        blocks.append(TextBlock(f"{words.count(len(plan) - limits.rows, 'call')} more"))
    if not plan:
        blocks.append(TextBlock("The model would call no tool."))
    elif waiting:
        blocks.append(TextBlock(_HINT))
    return View("plan", "Plan", tuple(blocks))


def planned_call_view(call: PlannedCall, limits: DisplayLimits) -> View:
    """Show a single planned call."""
    section = _section(call, "", limits, ImageBudget(limits.images))
    return View("planned-call", _name(call), section.blocks, mark=section.mark, note=section.note)


def calls_view(calls: ToolCalls, limits: DisplayLimits) -> View:
    """Show calls that were run from a plan."""
    images = ImageBudget(limits.images)
    sections = [
        call_section(call, False, limits.text, images, key=f"call-{number}", fold=len(calls) > 1)
        for number, call in enumerate(calls[: limits.rows])
    ]
    more = (TextBlock(f"{words.count(len(calls) - limits.rows, 'call')} more"),) if len(calls) > limits.rows else ()
    return View("calls", "Calls", (*sections, *more) or (TextBlock("None."),), note=words.count(len(calls), "call"))


def _name(call: PlannedCall) -> str:
    return str(call.tool.tool_name) if call.tool is not None else call.name


def _section(call: PlannedCall, number: str, limits: DisplayLimits, images: ImageBudget) -> Section:
    title = Phrase((*((Span(number, "number"),) if number else ()), Span(_name(call), "code")))
    data = (("key", f"planned-{number}"),)
    if call.call is not None:
        ran = call_section(call.call, False, limits.text, images)
        return Section(title, ran.blocks, status_of(call.call), ran.note, ran.fold, look="call", data=data)
    arguments = call.arguments if isinstance(call.arguments, str) else pretty(call.arguments)
    problems = [Line(Status(f"✗ {problem}", "bad")) for problem in call.problems]
    blocks: tuple[Block, ...] = (TextBlock(arguments, label="Arguments", code=True, limit=limits.text), *problems)
    return Section(title, blocks, _SKIPPED if call.skipped else _PLANNED, fold="open", look="call", data=data)
