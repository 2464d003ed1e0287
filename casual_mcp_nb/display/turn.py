"""The view of a turn, also while it runs: a timeline of its steps, then the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.calls import ImageBudget, call_section, picture_blocks
from casual_mcp_nb.display.request import change_blocks, request_blocks
from casual_mcp_nb.display.session import model_words, tool_set_words
from casual_mcp_nb.display.tokens import deferral_facts, step_table
from casual_mcp_nb.display.view import Block, Cell, DisplayLimits, KeyValues, Section, Status, Text, View, unfolded
from casual_mcp_nb.types.event import ContextTrimmed, ModelRetry, ModelWait, Notice, Request, ServerLog, TurnStatus
from casual_mcp_nb.types.image import pictures_of
from casual_mcp_nb.types.stats import ChatStats
from casual_mcp_nb.types.step import Step
from casual_mcp_nb.types.trace import Turn

_STATUS: dict[TurnStatus, Status] = {
    "running": Status("▸ running", "busy"),
    "done": Status("✓ done", "good"),
    "stopped": Status("■ stopped", "quiet"),
    "failed": Status("✗ failed", "bad"),
}
_CUT = Status("✂ cut at the token limit", "bad")
_FIRST_STEPS = 3
_FIRST_CALLS = 2


@dataclass(frozen=True)
class TurnDetail:
    """How much of a turn is shown.

    Args:
        requests: Show in each step what is `new` in its request since the one before; `whole` shows the first request with the
            definitions of its tools; None for nothing of it.
        now: Seconds since the turn began, for a running one; None for the time of its last event.
        since: The request before that of the first step, where the reader has seen it; without it the first one is whole.
    """

    requests: Literal["new", "whole"] | None = None
    now: float | None = None
    since: Request | None = None


def turn_view(turn: Turn, limits: DisplayLimits, detail: TurnDetail | None = None) -> View:
    """Return prompt, steps with their searches and calls, answer, error, notices, logs, tokens."""
    return View(
        "turn", "Turn", turn_blocks(turn, limits, detail or TurnDetail()), mark=turn_mark(turn), note=_took(turn, detail)
    )


def whole_turn_view(turn: Turn, limits: DisplayLimits, now: float | None = None) -> View:
    """Return everything of a turn, unfolded, with the request of each step."""
    return unfolded(turn_view(turn, limits, TurnDetail("new", now)))


def transcript_view(turn: Turn, limits: DisplayLimits, now: float | None = None) -> View:
    """Return what followed the prompt, as a chat shows it: the answer at the end."""
    if not len(turn.trace):
        return turn_view(turn, limits)
    detail, steps, images = TurnDetail(now=now), turn.steps, ImageBudget(limits.images)
    blocks = (*_timeline(turn, steps, limits, detail, images), *_remarks(turn, limits), *_answer(turn, steps, limits))
    title = model_words(turn.started.model, turn.started.provider)
    return View("transcript", title, blocks, mark=turn_mark(turn), note=_took(turn, detail))


def answer_view(turn: Turn, limits: DisplayLimits, now: float | None = None) -> View:
    """Return only the answer so far, and the error."""
    if not len(turn.trace):
        return turn_view(turn, limits)
    parts = _answer(turn, turn.steps, limits)
    mark = parts[0].mark if turn.status == "done" else turn_mark(turn)
    return View("answer", "Answer", tuple(block for part in parts for block in part.blocks), mark=mark)


def turn_mark(turn: Turn) -> Status:
    """Return the status of a turn."""
    if not len(turn.trace):
        return Status("… not started", "quiet")
    return _STATUS[turn.status]


def turn_blocks(turn: Turn, limits: DisplayLimits, detail: TurnDetail) -> tuple[Block, ...]:
    """Return what a turn shows below its title."""
    if not len(turn.trace):
        return ()
    steps = turn.steps
    images = ImageBudget(limits.images)
    blocks: list[Block] = [
        KeyValues(_facts(turn)),
        _prompt(turn, images),
        *_timeline(turn, steps, limits, detail, images),
        *_answer(turn, steps, limits),
        *_remarks(turn, limits),
    ]
    # A whole conversation has one such table for all of its turns.
    if steps and detail.requests != "whole":
        stats = turn.stats
        tokens: tuple[Block, ...] = (step_table(stats.steps, limits),)
        blocks.append(Section("Tokens", (*tokens, deferral_facts(stats)) if stats.discovery else tokens, fold="closed"))
    return tuple(blocks)


def _remarks(turn: Turn, limits: DisplayLimits) -> tuple[Section, ...]:
    return (
        *_trimmings(turn.trimmings),
        *_waits(turn.waits, limits),
        *_retries(turn.retries, limits),
        *_notices(turn.notices, limits),
        *_logs(turn.server_logs, limits),
    )


def _prompt(turn: Turn, images: ImageBudget) -> Section:
    before = [Text(edit.before, label="Before it was edited by hand") for edit in turn.edits if edit.call_id is None]
    pictures = picture_blocks(pictures_of(turn.asked), "the prompt", images)
    return Section("Prompt", (Text(turn.prompt), *before, *pictures), note="edited" if before else "")


def _took(turn: Turn, detail: TurnDetail | None) -> str:
    if not len(turn.trace):
        return ""
    return words.seconds(detail.now if detail and detail.now is not None and turn.running else turn.seconds)


def _facts(turn: Turn) -> tuple[tuple[str, Cell], ...]:
    started = turn.started
    searches = turn.searches
    tools = f"now {words.count(searches[-1].offered if searches else started.loaded, 'tool')}"
    if started.discovery:
        tools += f" ({started.loaded:,} at the start, {started.deferred:,} to be found by search)"
    facts: list[tuple[str, Cell]] = [
        ("Model", model_words(started.model, started.provider)),
        ("Toolset", tool_set_words(started.tool_set)),
        ("Tools", tools),
    ]
    cost = turn.cost if started.price else None
    if cost is not None:
        facts.append(("Cost", str(cost)))
    stats = turn.stats
    if started.discovery and stats.steps:
        facts.append(("Whole turn", _whole(stats)))
    return tuple(facts)


def _whole(stats: ChatStats) -> str:
    """Return what all requests of a turn used, and what they would have used if every tool were loaded."""
    sent, without = stats.sent_tokens, stats.undeferred_tokens
    all_loaded = words.tokens(without, "estimated")
    return f"{words.tokens(sent, stats.parts.origin)}; if every tool were loaded {all_loaded}: {words.saving(sent, without)}"


def _timeline(turn: Turn, steps: list[Step], limits: DisplayLimits, detail: TurnDetail, images: ImageBudget) -> list[Section]:
    if not steps:
        return []
    visible = steps
    if len(steps) > limits.rows:
        visible = steps[:_FIRST_STEPS] + steps[_FIRST_STEPS - limits.rows :]
    calls = max(_FIRST_CALLS, 2 * limits.rows // len(visible))
    drawn = sum(min(calls, len(step.tool_calls)) for step in visible)
    share = max(120, min(limits.text, 4 * limits.text // max(1, drawn)))
    now = (detail.now if detail.now is not None else turn.seconds) if turn.running else None
    sections = [_step_section(step, calls, share, images, now) for step in visible]
    if detail.requests:
        sections = [_with_request(section, step, detail, limits) for section, step in zip(sections, visible, strict=True)]
    if len(visible) < len(steps):
        sections.insert(_FIRST_STEPS, Section(f"{words.count(len(steps) - len(visible), 'step')} more", ()))
    return [Section("Steps", tuple(sections), note=words.count(len(steps), "model call"))]


def _with_request(section: Section, step: Step, detail: TurnDetail, limits: DisplayLimits) -> Section:
    before = step.previous or detail.since
    if before is None and detail.requests == "whole":
        request = Section("Request", request_blocks(step.request, limits), fold="closed")
    else:
        request = Section("New in this request", change_blocks(step.diff(before), limits), fold="closed")
    return replace(section, blocks=(request, *section.blocks))


def _step_section(step: Step, calls: int, limit: int, images: ImageBudget, now: float | None) -> Section:
    """`now`: seconds since the turn began, where it still runs."""
    blocks: list[Block] = []
    if step.text and step.tool_calls:
        blocks.append(Text(step.text, limit=limit, prose=True))
    blocks += [call_section(call, now is not None, limit, images, now) for call in step.tool_calls[:calls]]
    if len(step.tool_calls) > calls:
        blocks.append(Text(f"{words.count(len(step.tool_calls) - calls, 'call')} more"))
    return Section(f"Step {step.index + 1}", tuple(blocks), mark=_CUT if step.truncated else None, note=_step_note(step))


def _step_note(step: Step) -> str:
    parts = step.request.tokens
    request = f"request {words.tokens(parts.total, parts.origin)}"
    if step.response is None:
        return f"{request}, no answer yet"
    cached = step.usage.cached_tokens if step.usage else None
    more = [f"{words.number(cached)} cached"] if cached else []
    answer = f"answer {_answer_tokens(step)}"
    return ", ".join([words.seconds(step.seconds), request, *more, answer, *([str(step.cost)] if step.cost else [])])


def _answer_tokens(step: Step) -> str:
    if step.usage is None or step.usage.completion_tokens is None:
        return words.UNKNOWN
    return f"{words.number(step.usage.completion_tokens)} ({step.usage.origin})"


def _answer(turn: Turn, steps: list[Step], limits: DisplayLimits) -> list[Section]:
    last = steps[-1] if steps else None
    text = last.text if last and not last.tool_calls else ""
    sections: list[Section] = []
    if text or turn.status == "done":
        paragraph = Text(text or "The model said nothing.", limit=limits.document // 2, prose=True)
        cut = _CUT if last is not None and last.truncated else None
        sections.append(Section("Answer", (paragraph,), mark=cut, note="so far" if turn.running else ""))
    if turn.error:
        sections.append(Section("Error", (Text(turn.error),), mark=_STATUS[turn.status]))
    return sections


def _trimmings(trimmings: list[ContextTrimmed]) -> list[Section]:
    if not trimmings:
        return []
    last = trimmings[-1]
    oldest = f"the oldest {words.count(last.exchanges, 'exchange')} of the conversation"
    text = f"From step {last.step + 1} on, {oldest} {'is' if last.exchanges == 1 else 'are'} not sent"
    paragraph = Text(f"{text}: the model can read {words.count(last.window, 'token')}.")
    return [Section("Left out", (paragraph,), note=words.count(last.messages, "message"))]


def _waits(waits: list[ModelWait], limits: DisplayLimits) -> list[Section]:
    if not waits:
        return []
    lines = [f"Step {wait.step + 1}: {words.seconds(wait.seconds)} for {wait.reason}." for wait in waits[-limits.rows :]]
    return [Section("Waits", (Text("\n".join(lines)),), note=words.count(len(waits), "wait"))]


def _retries(retries: list[ModelRetry], limits: DisplayLimits) -> list[Section]:
    if not retries:
        return []
    lines = [
        f"Step {retry.step + 1}, request {retry.attempt}: {retry.reason} Asking again after {words.seconds(retry.seconds)}."
        for retry in retries[-limits.rows :]
    ]
    return [Section("Retries", (Text("\n".join(lines)),), note=words.count(len(retries), "failed request"))]


def _notices(notices: list[Notice], limits: DisplayLimits) -> list[Section]:
    if not notices:
        return []
    lines = [f"{notice.server}: {notice.text}" if notice.server else notice.text for notice in notices[-limits.rows :]]
    return [Section("Notices", (Text("\n".join(lines)),), note=words.count(len(notices), "notice"))]


def _logs(logs: list[ServerLog], limits: DisplayLimits) -> list[Section]:
    if not logs:
        return []
    lines = [f"{log.server} {log.level}: {log.text}" for log in logs[-limits.rows :]]
    note = words.count(len(logs), "message")
    return [Section("Server logs", (Text("\n".join(lines), code=True),), note=note, fold="closed")]
