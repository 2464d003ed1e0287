"""The view of a turn, also while it runs: the answer, one line of figures, and everything else folded below."""

from __future__ import annotations

from dataclasses import replace

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.calls import ImageBudget, picture_blocks, tool_words
from casual_mcp_nb.display.payloads import payload_sections
from casual_mcp_nb.display.request import message_blocks
from casual_mcp_nb.display.steps import TurnDetail, step_sections
from casual_mcp_nb.display.text import first
from casual_mcp_nb.display.tokens import deferral_rows, step_table
from casual_mcp_nb.display.view import Block, Cell, DisplayLimits, KeyValues, Line, Section, Status, TextBlock, View, unfolded
from casual_mcp_nb.types.event import ApprovalAsked, QuestionAsked, TurnStatus
from casual_mcp_nb.types.image import pictures_of
from casual_mcp_nb.types.stats import ChatStats
from casual_mcp_nb.types.step import Step, text_of, with_nested
from casual_mcp_nb.types.trace import Turn

PLANNER = "Offline demo planner (not an LLM)"

_STATUS: dict[TurnStatus, Status] = {
    "running": Status("▸ running", "busy"),
    "done": Status("✓ done", "good"),
    "stopped": Status("■ stopped", "quiet"),
    "failed": Status("✗ failed", "bad"),
}
_WAITING = Status("… waiting for you", "busy")
_NOT_STARTED = Status("… not started", "quiet")
_CUT = Status("✂ The answer was cut at the token limit. Raise max_tokens to get all of it.", "bad")
_MAX_PAYLOADS = 10
_NAME = 60
_QUESTIONS = {"form": "asks something", "link": "asks you to open a page", "sampling": "asks for an answer of the model"}
_ADDED = Status("+ Added without asking a model", "quiet")
_NO_TEXT = Status("○ The model returned no text.", "quiet")


def turn_view(turn: Turn, limits: DisplayLimits, now: float | None = None) -> View:
    """Show the answer, the line of figures, the steps, and the details: prompt, model, tools and tokens.

    Args:
        turn: The turn.
        limits: How much is shown.
        now: Seconds since it began, for one that runs.
    """
    requests = limits.requests and not turn.running
    return View("turn", "", turn_blocks(turn, limits, TurnDetail("new" if requests else None, now)))


def line_only(view: View) -> View:
    """Show only the line of figures of a turn, for a text form that is drawn often."""
    return replace(view, blocks=tuple(block for block in view.blocks if isinstance(block, Line)))


def whole_turn_view(turn: Turn, limits: DisplayLimits, now: float | None = None) -> View:
    """Show everything of a turn, unfolded, with the request of each step."""
    return unfolded(View("turn", "", turn_blocks(turn, limits, TurnDetail("new", now))))


def transcript_view(turn: Turn, limits: DisplayLimits, now: float | None = None) -> View:
    """Show the part below the prompt of a chat, without the requests, which the chat offers itself."""
    return View("transcript", "", turn_blocks(turn, limits, TurnDetail(now=now)))


def answer_view(turn: Turn, limits: DisplayLimits) -> View:
    """Show only the answer so far, or the reason why there is none."""
    return View("answer", "", (answer_section(turn, turn.steps, limits),) if len(turn.trace) else (Line(_NOT_STARTED),))


def turn_mark(turn: Turn) -> Status:
    """Describe the status of a turn with its symbol."""
    if len(turn.trace) and turn.added:
        return _ADDED
    if turn.running and turn.person_waits.open_questions:
        return _WAITING
    return _STATUS[turn.status] if len(turn.trace) else _NOT_STARTED


def turn_blocks(turn: Turn, limits: DisplayLimits, detail: TurnDetail) -> tuple[Block, ...]:
    """Show everything after the prompt of a turn, answer first."""
    if not len(turn.trace):
        return (Line(_NOT_STARTED, data=(("part", "figures"),)),)
    steps, images = turn.steps, ImageBudget(limits.images)
    if turn.added:
        return (answer_section(turn, steps, limits), figures_line(turn), added_section(turn, limits))
    return (
        answer_section(turn, steps, limits),
        figures_line(turn, detail.now),
        *_payloads(turn, images),
        *step_sections(turn, steps, limits, detail, images),
        *([] if turn.running else [_details(turn, limits, images, whole=detail.requests != "whole")]),
    )


def added_section(turn: Turn, limits: DisplayLimits) -> Section:
    """Show the messages of a turn that was added."""
    messages = turn.started.messages
    note = words.count(len(messages), "message")
    return Section("Messages", message_blocks(messages, limits), note=note, fold="closed", brief=True)


def _payloads(turn: Turn, images: ImageBudget) -> list[Section]:
    """Show the payloads that functions of the notebook returned for the person, each under its tool."""
    sections = [each for call in turn.tool_calls for each in payload_sections(tool_words(call), call.previews, images.spend)]
    more = len(sections) - _MAX_PAYLOADS
    return [*sections[:_MAX_PAYLOADS], *([Section("", (TextBlock(f"{more:,} more payloads"),))] if more > 0 else [])]


def answer_section(turn: Turn, steps: list[Step], limits: DisplayLimits, limit: int | None = None) -> Section:
    """Show the answer; if it is missing or incomplete, a line before it explains why and suggests a remedy."""
    last = steps[-1] if steps else None
    text = last.text if last and not last.tool_calls else turn.answer if turn.added else ""
    blocks: list[Block] = []
    mark = instead_of_answer(turn, last, text)
    if mark is not None:
        blocks.append(Line(mark))
    if text:
        blocks.append(TextBlock(text, limit=limit or limits.document // 2, prose=True))
    return Section("", tuple(blocks), look="answer", data=(("part", "answer"),))


def instead_of_answer(turn: Turn, last: Step | None, text: str) -> Status | None:
    """Explain why the answer of a turn is missing or incomplete."""
    match turn.status:
        case "failed":
            return Status(f"✗ {turn.error or 'The turn failed.'}", "bad")
        case "stopped":
            return Status(f"■ {turn.error or 'Stopped.'}", "quiet")
        case "running":
            return None if text else doing(turn, last)
    if turn.added:
        return None
    if last is not None and last.truncated:
        return _CUT
    return None if text else _NO_TEXT


def doing(turn: Turn, step: Step | None) -> Status:
    """Describe the current activity of a running turn, or the event that it waits for.

    Args:
        turn: The turn.
        step: Its last step, if there is one.
    """
    calls = [call for call in with_nested(step.tool_calls) if call.status == "running"] if step else []
    match next(iter(turn.person_waits.open_questions), None):
        case ApprovalAsked(call_id=call_id):
            names = [tool_words(call) for call in calls if call.id == call_id]
            return Status(f"Waiting for you to allow {words.listed(names, 1) or 'a call'} …", "busy")
        case QuestionAsked(kind="step"):
            return Status(f"Waiting for you, before step {step.index + 2 if step else 1} …", "busy")
        case QuestionAsked(server=server, kind=kind):
            return Status(f"Waiting for you: server {first(server or '', _NAME)} {_QUESTIONS[kind]} …", "busy")
    return Status(f"Running {words.listed(map(tool_words, calls), 2)} …" if calls else "Waiting for the model …", "quiet")


def figures_line(turn: Turn, now: float | None = None) -> Line:
    """Summarize the whole turn in one line: its status and its usage; unknown and zero figures are left out.

    Args:
        turn: The turn.
        now: Seconds since it began, for one that runs.
    """
    stats, calls = turn.stats, list(with_nested(turn.tool_calls))
    searches = sum(call.search is not None for call in calls)
    failed = sum(call.status in ("error", "timeout") for call in calls)
    seconds = turn.person_waits.taken(0.0, now) if now is not None and turn.running else turn.seconds
    edited = bool(turn.request_edits) or any(edit.call_id is None for edit in turn.edits) or any(call.edited for call in calls)
    counts = {"step": len(stats.steps), "search": searches, "call": len(calls) - searches}
    recorded = turn.started.recorded
    figures = [
        *(words.count(number, unit) for unit, number in counts.items() if number),
        f"{recorded:,} taken over" if recorded else "",
        f"{failed:,} failed" if failed else "",
        _tokens(stats),
        str(stats.cost) if stats.cost else "",
        words.seconds(seconds) if not turn.added else "",
        "edited by hand" if edited else "",
        words.count(len(turn.notices), "notice") if turn.notices else "",
    ]
    return Line(turn_mark(turn), tuple(filter(None, figures)), data=(("part", "figures"),))


def _tokens(stats: ChatStats) -> str:
    """Describe the tokens of all requests of a turn, and the difference from every tool loaded."""
    if not stats.sent_tokens:
        return ""
    taken = f"{words.tokens(stats.sent_tokens, stats.parts.origin)} in"
    other = words.difference(stats.sent_tokens, stats.undeferred_tokens) if stats.discovery else ""
    return f"{taken}, {other} than with every tool loaded" if other else taken


def _details(turn: Turn, limits: DisplayLimits, images: ImageBudget, whole: bool) -> Section:
    """Show model, tools and tokens; `whole` with the prompt and the tokens of each step, which a file has elsewhere."""
    started, stats = turn.started, turn.stats
    model, tools = model_words(started.model, started.provider), _tools(turn)
    rows: list[tuple[str, Cell]] = [("Model", model), ("Toolset", tool_set_words(started.tool_set)), ("Tools", tools)]
    output = stats.tokens.completion_tokens
    if output is not None:
        rows.append(("Output", words.tokens(output, stats.tokens.origin)))
    blocks: list[Block] = [KeyValues((*rows, *(deferral_rows(stats) if stats.discovery and stats.steps else ())))]
    if whole:
        blocks.insert(0, Section("Prompt", prompt_blocks(turn, images), data=(("part", "prompt"),)))
    if whole and stats.steps:
        blocks.append(Section("Tokens by step", (step_table(stats.steps, limits),)))
    return Section(
        "Details",
        tuple(blocks),
        note=f"{model} · {tools}",
        fold="closed",
        look="details",
        data=(("key", "details"),),
        brief=True,
    )


def prompt_blocks(turn: Turn, images: ImageBudget, limit: int | None = None) -> tuple[Block, ...]:
    """Show the person's message with its attachments and images, and its text before it was edited by hand."""
    users = [text_of(message.content) for message in turn.prompt_messages if message.role == "user"]
    # What was attached is a message before the person's own.
    attached = [Section("Attached", (TextBlock(text, limit=limit),), fold="closed", brief=True) for text in users[:-1]]
    before = [TextBlock(edit.before, label="Before it was edited by hand") for edit in turn.edits if edit.call_id is None][:1]
    prompt = TextBlock(turn.prompt, label="Edited by hand" if before else "", limit=limit)
    return (prompt, *attached, *before, *picture_blocks(pictures_of(turn.prompt_messages), "the prompt", images))


def _tools(turn: Turn) -> str:
    started, searches = turn.started, turn.searches
    offered = searches[-1].offered if searches else started.loaded
    loaded = f"{words.count(offered, 'tool')} loaded"
    new = offered - started.loaded
    return f"{loaded} ({started.loaded:,} at start, {new:,} found by search)" if new > 0 else loaded


def model_words(name: str | None, provider: str | None = None) -> str:
    """Format a model's name with its provider; the offline planner by its description."""
    if name is None:
        return "none"
    if "offline" in (provider, name):
        return PLANNER
    return f"{name} ({provider})" if provider else name


def tool_set_words(name: str | None) -> str:
    """Name a toolset; `all tools` for none."""
    return "all tools" if name is None else name
