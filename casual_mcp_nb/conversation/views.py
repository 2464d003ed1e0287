"""Views for turns and conversations: the answer, one line of figures, and everything else folded
below.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from casual_mcp_nb.base.content import pictures_of
from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.conversation.conversation import (
    Conversation,
    StoredConversation,
    StoredConversations,
)
from casual_mcp_nb.conversation.event import (
    ApprovalAsked,
    QuestionAsked,
    StepStarted,
    TaskStarted,
    TurnStatus,
)
from casual_mcp_nb.conversation.stats import ChatStats, unsent_step
from casual_mcp_nb.conversation.step import Step, text_of, with_nested
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.view_calls import (
    ImageBudget,
    call_spans,
    payload_sections,
    picture_blocks,
    status_of,
    task_status,
    tool_words,
)
from casual_mcp_nb.conversation.view_requests import (
    deferral_rows,
    make_up_table,
    message_blocks,
    step_table,
)
from casual_mcp_nb.conversation.view_stats import stats_view
from casual_mcp_nb.conversation.view_steps import TurnDetail, step_sections
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import (
    Block,
    Blocks,
    Cell,
    DisplayLimits,
    KeyValues,
    Line,
    Name,
    Row,
    Section,
    Status,
    Table,
    TextBlock,
    View,
    columns,
    complete,
)
from casual_mcp_nb.display.words import SUMMARY, first
from casual_mcp_nb.errors import UsageError

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
_APP_CALLS = 3
_QUESTIONS = {
    "form": "asks something",
    "link": "asks you to open a page",
    "sampling": "asks for a model's answer",
}
_ADDED = Status("+ Added without asking a model", "quiet")
_NO_TEXT = Status("○ The model returned no text.", "quiet")


def turn_view(turn: Turn, limits: DisplayLimits, now: float | None = None) -> View:
    """Show the answer, the line of figures, the steps, and the details: prompt, model, tools and
    tokens.

    `now` is in seconds since it began, for one that runs.
    """
    requests = limits.requests and not turn.running
    return View("turn", "", turn_blocks(turn, limits, TurnDetail("new" if requests else None, now)))


def line_only(view: View) -> View:
    """Show only a turn's line of figures, for a text form that is drawn often."""
    return replace(view, blocks=tuple(of_type(view.blocks, Line)))


def whole_turn_view(turn: Turn, limits: DisplayLimits, now: float | None = None) -> View:
    """Show a whole turn, unfolded, with each step's request."""
    view = View("turn", "", turn_blocks(turn, limits, TurnDetail("new", now)))
    return complete(view, unfold=True)


def transcript_view(turn: Turn, limits: DisplayLimits, now: float | None = None) -> View:
    """Show the part below the prompt of a chat, without the requests, which the chat offers
    itself.
    """
    return View("transcript", "", turn_blocks(turn, limits, TurnDetail(now=now)))


def answer_view(turn: Turn, limits: DisplayLimits) -> View:
    """Show only the answer so far, or the reason why there is none."""
    block: Block = Line(_NOT_STARTED)
    if len(turn.trace):
        block = answer_section(turn, turn.steps, limits)
    return View("answer", "", (block,))


def turn_mark(turn: Turn) -> Status:
    """Describe a turn's status with its symbol."""
    if len(turn.trace) and turn.added:
        return _ADDED
    if turn.running and turn.person_waits.open_questions:
        return _WAITING
    return _STATUS[turn.status] if len(turn.trace) else _NOT_STARTED


def turn_blocks(turn: Turn, limits: DisplayLimits, detail: TurnDetail) -> Blocks:
    """Show everything after a turn's prompt, answer first."""
    if not len(turn.trace):
        return (Line(_NOT_STARTED, data=(("part", "figures"),)),)
    steps, images = turn.steps, ImageBudget(limits.images)
    if turn.added:
        return (
            answer_section(turn, steps, limits),
            figures_line(turn),
            added_section(turn, limits),
        )
    blocks: list[Block] = [
        answer_section(turn, steps, limits),
        figures_line(turn, detail.now),
        *_task_lines(turn, limits),
        *_app_lines(turn),
        *_payloads(turn, images),
        *step_sections(turn, steps, limits, detail, images),
    ]
    if not turn.running:
        blocks.append(_details(turn, limits, images, whole=detail.requests != "whole"))
    return tuple(blocks)


def _task_lines(turn: Turn, limits: DisplayLimits) -> list[Line]:
    """Show the tasks that the turn has started: each outlives it, and nothing else tells that it
    runs.
    """
    if not turn.trace.all_of(TaskStarted):
        return []
    lines: list[Line] = []
    for call in turn.tool_calls:
        task = call.task
        if task is None or task.in_call:
            continue
        state = "waits for your answer" if task.asking else first(task.text, SUMMARY)
        lines.append(Line(task_status(task), (str(call.tool), state)))
    return lines[: limits.rows]


def _app_lines(turn: Turn) -> list[Line]:
    """Show the last calls that apps made: they are of no step, and come after the card is drawn."""
    calls = turn.app_calls
    lines: list[Line] = []
    earlier = len(calls) - _APP_CALLS
    if earlier > 0:
        lines.append(Line(None, (f"{words.count(earlier, 'earlier call')} from the app",)))
    for call in calls[-_APP_CALLS:]:
        text = " ".join(span.text for span in call_spans(call))
        lines.append(Line(status_of(call), (text,)))
    return lines


def added_section(turn: Turn, limits: DisplayLimits) -> Section:
    """Show the messages in an added turn."""
    messages = turn.started.messages
    note = words.count(len(messages), "message")
    return Section(
        "Messages", message_blocks(messages, limits), note=note, fold="closed", brief=True
    )


def _payloads(turn: Turn, images: ImageBudget) -> list[Section]:
    """Show the payloads that notebook functions returned for the person, each under its tool."""
    sections: list[Section] = []
    for call in turn.tool_calls:
        sections += payload_sections(tool_words(call), call.previews, images)
    more = len(sections) - _MAX_PAYLOADS
    if more > 0:
        sections[_MAX_PAYLOADS:] = [Section("", (TextBlock(f"{more:,} more payloads"),))]
    return sections


def answer_section(
    turn: Turn, steps: list[Step], limits: DisplayLimits, limit: int | None = None
) -> Section:
    """Show the answer.

    If it is missing or incomplete, a line before it explains why and suggests a remedy.
    """
    last = steps[-1] if steps else None
    text = ""
    if last and not last.tool_calls:
        text = last.text
    elif turn.added:
        text = turn.answer
    blocks: list[Block] = []
    mark = instead_of_answer(turn, last, text)
    if mark is not None:
        blocks.append(Line(mark))
    if text:
        blocks.append(TextBlock(text, limit=limit or limits.document // 2, prose=True))
    return Section("", tuple(blocks), look="answer", data=(("part", "answer"),))


def instead_of_answer(turn: Turn, last: Step | None, text: str) -> Status | None:
    """Explain why a turn's answer is missing or incomplete."""
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
    """Describe the current activity of a running turn, or the event that it waits for."""
    calls = []
    if step:
        calls = [call for call in with_nested(step.tool_calls) if call.status == "running"]
    match next(iter(turn.person_waits.open_questions), None):
        case ApprovalAsked(call_id=call_id):
            names = [tool_words(call) for call in calls if call.id == call_id]
            what = words.listed(names, 1) or "a call"
            return Status(f"Waiting for you to allow {what} …", "busy")
        case QuestionAsked(kind="step"):
            number = step.index + 2 if step else 1
            return Status(f"Waiting for you, before step {number} …", "busy")
        case QuestionAsked(server=server, kind=kind):
            name = first(server or "", _NAME)
            return Status(f"Waiting for you: server {name} {_QUESTIONS[kind]} …", "busy")
    if calls:
        return Status(f"Running {words.listed(map(tool_words, calls), 2)} …", "quiet")
    return Status("Waiting for the model …", "quiet")


def figures_line(turn: Turn, now: float | None = None) -> Line:
    """Summarize the whole turn in one line: its status and its usage.

    Unknown and zero figures are left out.
    """
    stats, calls = turn.stats, list(with_nested(turn.tool_calls))
    searches = sum(call.search is not None for call in calls)
    failed = sum(call.status in ("error", "timeout") for call in calls)
    seconds = turn.seconds
    if now is not None and turn.running:
        seconds = turn.person_waits.taken(0.0, now)
    edited = (
        bool(turn.request_edits)
        or any(edit.call_id is None for edit in turn.edits)
        or any(call.edited for call in calls)
    )
    counts = {"step": len(stats.steps), "search": searches, "call": len(calls) - searches}
    figures = [words.count(number, unit) for unit, number in counts.items() if number]
    if turn.started.recorded:
        figures.append(f"{turn.started.recorded:,} taken over")
    if failed:
        figures.append(f"{failed:,} failed")
    figures.append(_token_words(stats))
    if not stats.steps and unsent_step(turn.trace) is not None:
        figures.append("nothing was sent")
    if stats.cost:
        figures.append(str(stats.cost))
    if not turn.added:
        figures.append(words.seconds(seconds))
    if edited:
        figures.append("edited by hand")
    if turn.notices:
        figures.append(words.count(len(turn.notices), "notice"))
    return Line(turn_mark(turn), tuple(filter(None, figures)), data=(("part", "figures"),))


def _token_words(stats: ChatStats) -> str:
    """Describe a turn's total tokens, and the difference from every tool loaded."""
    if not stats.sent_tokens:
        return ""
    taken = f"{words.tokens(stats.sent_tokens, stats.parts.origin)} in"
    if not stats.discovery:
        return taken
    other = words.difference(stats.sent_tokens, stats.undeferred_tokens)
    return f"{taken}, {other} than with every tool loaded" if other else taken


def _details(turn: Turn, limits: DisplayLimits, images: ImageBudget, whole: bool) -> Section:
    """Show model, tools and tokens; `whole` adds the prompt and each step's tokens, which a file
    has elsewhere.
    """
    started, stats = turn.started, turn.stats
    model, tools = model_words(started.model, started.provider), _tool_words(turn)
    rows: list[tuple[str, Cell]] = [
        ("Model", model),
        ("Toolset", tool_set_words(started.tool_set)),
        ("Tools", tools),
    ]
    output = stats.tokens.completion_tokens
    if output is not None:
        rows.append(("Output", words.tokens(output, stats.tokens.origin)))
    if stats.discovery and stats.steps:
        rows += deferral_rows(stats)
    blocks: list[Block] = [KeyValues(tuple(rows))]
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


def prompt_blocks(turn: Turn, images: ImageBudget, limit: int | None = None) -> Blocks:
    """Show the person's message with its attachments and images, and its text before it was edited
    by hand.
    """
    messages = turn.prompt_messages
    users = [text_of(message.content) for message in messages if message.role == "user"]
    # What was attached is a message before the person's own.
    attached = [
        Section("Attached", (TextBlock(text, limit=limit),), fold="closed", brief=True)
        for text in users[:-1]
    ]
    edit = next((edit for edit in turn.edits if edit.call_id is None), None)
    label = "Edited by hand" if edit else ""
    blocks: list[Block] = [TextBlock(turn.prompt, label=label, limit=limit), *attached]
    if edit:
        blocks.append(TextBlock(edit.before, label="Before it was edited by hand"))
    return (*blocks, *picture_blocks(pictures_of(messages), "the prompt", images))


def _tool_words(turn: Turn) -> str:
    started, searches = turn.started, turn.searches
    offered = searches[-1].offered if searches else started.loaded
    loaded = f"{words.count(offered, 'tool')} loaded"
    new = offered - started.loaded
    if new <= 0:
        return loaded
    return f"{loaded} ({started.loaded:,} at start, {new:,} found by search)"


def model_words(name: str | None, provider: str | None = None) -> str:
    """Format a model's name with its provider. The offline planner by its description."""
    if name is None:
        return "none"
    if "offline" in (provider, name):
        return PLANNER
    return f"{name} ({provider})" if provider else name


def tool_set_words(name: str | None) -> str:
    """Name a toolset; `all tools` for none."""
    return "all tools" if name is None else name


_EMPTY = "No turns yet."


def conversation_view(conversation: Conversation, limits: DisplayLimits) -> View:
    """Show each turn with its prompt and its answer, and the total usage.

    A long conversation shows its last turns.
    """
    if not len(conversation):
        return View("conversation", "Conversation", (TextBlock(_EMPTY),))
    stats = conversation.stats
    visible = list(enumerate(conversation, 1))[-limits.rows :]
    earlier = len(conversation) - len(visible)
    tokens: Blocks = (
        KeyValues(deferral_rows(stats)),
        Section("Tokens by part", (make_up_table(stats.parts),)),
        Section("Tokens by step", (step_table(stats.steps, limits),)),
    )
    blocks: list[Block] = [*_repairs(conversation)]
    if earlier:
        blocks.append(TextBlock(f"{words.count(earlier, 'earlier turn')} not shown"))
    blocks += [_turn(number, turn, limits, len(visible)) for number, turn in visible]
    note = words.tokens(stats.sent_tokens, stats.parts.origin)
    blocks.append(Section("Tokens", tokens, note=note, fold="closed"))
    return View("conversation", "Conversation", tuple(blocks), note=_note(conversation))


def document_view(conversation: Conversation, limits: DisplayLimits) -> View:
    """Show a whole conversation: every turn, the new parts in each request, and the total usage."""
    turns, last = [], None
    for number, turn in enumerate(conversation, 1):
        blocks = turn_blocks(turn, limits, TurnDetail(requests="whole", since=last))
        turns.append(Section(f"Turn {number}", (_prompt(turn, limits, None), *blocks), look="turn"))
        sent = turn.trace.of(StepStarted)
        last = sent[-1].request if sent else last
    if not turns:
        return View("conversation", "Conversation", (TextBlock(_EMPTY),), note=_note(conversation))
    stats = stats_view(conversation.stats, limits)
    blocks = (
        *_repairs(conversation),
        *turns,
        Section("Stats", stats.blocks, note=stats.note, fold="closed"),
    )
    return View("conversation", "Conversation", blocks, note=_note(conversation))


def _turn(number: int, turn: Turn, limits: DisplayLimits, turns: int) -> Section:
    share = max(80, min(limits.text, 8 * limits.text // turns))
    steps = turn.steps
    few = DisplayLimits(max(2, limits.rows // turns), limits.cell, share // 2, limits.document, 0)
    if turn.added:
        details = added_section(turn, few)
    else:
        lines = step_sections(turn, steps, few, TurnDetail(), ImageBudget(0))
        note = words.count(len(steps), "step")
        details = Section("Steps", tuple(lines), note=note, fold="closed", brief=True)
    blocks = (
        _prompt(turn, limits, share),
        answer_section(turn, steps, limits, share),
        figures_line(turn),
        details,
    )
    return Section(f"Turn {number}", blocks, look="turn", data=(("key", f"turn-{number}"),))


def _prompt(turn: Turn, limits: DisplayLimits, limit: int | None) -> Section:
    return Section(
        "Prompt",
        prompt_blocks(turn, ImageBudget(limits.images), limit),
        look="prompt",
        data=(("part", "prompt"),),
    )


def _repairs(conversation: Conversation) -> tuple[Section, ...]:
    if not conversation.repairs:
        return ()
    return (Section("Noticed when it was loaded", (TextBlock("\n".join(conversation.repairs)),)),)


def _note(conversation: Conversation) -> str:
    return words.count(len(conversation), "turn")


def stored_view(stored: StoredConversations, limits: DisplayLimits) -> View:
    """Show saved conversations, the last changed one first."""
    try:
        stored = stored.read()
    except UsageError as error:
        stored = StoredConversations(problem=str(error))
    visible = stored.conversations[: limits.rows]
    notebooks = list(map(_notebook_of, visible))
    has_notebooks, has_costs = len(set(notebooks)) > 1, any(each.cost for each in visible)
    rows: list[Row] = []
    for each, notebook in zip(visible, notebooks, strict=True):
        rows.append(
            (
                Name(each.id),
                _title_of(each),
                *((notebook,) if has_notebooks else ()),
                each.changed.strftime("%Y-%m-%d %H:%M"),
                words.number(each.turns),
                words.about(each.tokens, each.origin),
                *((str(each.cost or ""),) if has_costs else ()),
            )
        )
    total = max(len(stored), stored.total)
    titles = ["Id", "Title", "Changed", "Turns #", "Tokens #"]
    if has_notebooks:
        titles.insert(2, "Notebook")
    if has_costs:
        titles.append("Cost #")
    blocks: list[Block] = []
    if stored.problem:
        blocks.append(TextBlock(stored.problem))
    table = Table(columns(*titles), tuple(rows), total - len(rows))
    blocks.append(table if rows else TextBlock("None."))
    note = words.count(total, "conversation")
    return View("stored-conversations", "Saved conversations", tuple(blocks), note=note)


def _notebook_of(stored: StoredConversation) -> str:
    """The name of the file or folder in which a conversation was last, or empty."""
    session = stored.head.session
    return PurePath(session.notebook).name if session else ""


def _title_of(stored: StoredConversation) -> str:
    marks: list[str] = []
    if stored.status == "archived":
        marks.append("archived")
    if stored.damaged:
        marks.append(f"damaged: {', '.join(stored.damaged)}")
    return f"{stored.title} ({'; '.join(marks)})" if marks else stored.title


def stored_conversation_view(stored: StoredConversation, limits: DisplayLimits) -> View:
    """Show one saved conversation's known details."""
    view, origin = stored_view(StoredConversations((stored,)), limits), stored.head.forked_from
    if origin is None:
        return view
    position = f"turn {origin.turn + 1:,}"
    if origin.step is not None:
        position = f"step {origin.step + 1:,} of {position}"
    return replace(view, blocks=(*view.blocks, TextBlock(f"Forked from {origin.id}, {position}.")))
