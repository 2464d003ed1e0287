"""The view of a turn, also while it runs: a timeline of its steps, then the answer."""

from __future__ import annotations

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.calls import ImageBudget, call_section
from casual_mcp_nb.display.session import model_words, tool_set_words
from casual_mcp_nb.display.stats import answer_tokens, token_table
from casual_mcp_nb.display.view import Block, Cell, Facts, Limits, Mark, Section, Text, View
from casual_mcp_nb.types.event import Notice, ServerLog, StepStarted, TurnStatus
from casual_mcp_nb.types.step import Step
from casual_mcp_nb.types.trace import Turn

_STATUS: dict[TurnStatus, Mark] = {
    "done": Mark("✓ done", "good"),
    "stopped": Mark("■ stopped", "quiet"),
    "failed": Mark("✗ failed", "bad"),
}
_FIRST_STEPS = 3
_FIRST_CALLS = 2


def turn_view(turn: Turn, limits: Limits) -> View:
    """Prompt, steps with their searches and calls, answer, error, notices, logs, tokens."""
    if not len(turn.trace):
        return View("turn", "Turn", (), mark=Mark("… not started", "quiet"))
    steps = turn.steps
    blocks: list[Block] = [
        Facts(_facts(turn)),
        Section("Prompt", (Text(turn.prompt),)),
        *_timeline(steps, turn.running, limits),
        *_answer(turn, steps, limits),
        *_notices(turn.notices, limits),
        *_logs(turn.server_logs, limits),
    ]
    if steps:
        blocks.append(Section("Tokens", (token_table(steps, limits),), fold="closed"))
    mark = Mark("▸ running", "busy") if turn.running else _STATUS[turn.status]
    return View("turn", "Turn", tuple(blocks), mark=mark, note=words.seconds(turn.seconds))


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
    sent = next(iter(turn.trace.of(StepStarted)), None)
    if started.discovery and sent is not None:
        facts.append(("First call's definitions", _definitions(sent, started.undeferred_tokens)))
    return tuple(facts)


def _definitions(sent: StepStarted, without: int) -> str:
    price = sent.request.tokens.definitions
    saving = words.saving(price, without)
    return f"{words.tokens(price, 'estimated')}; with nothing deferred {words.tokens(without, 'estimated')}: {saving}"


def _timeline(steps: list[Step], running: bool, limits: Limits) -> list[Section]:
    if not steps:
        return []
    shown = steps
    if len(steps) > limits.rows:
        shown = steps[:_FIRST_STEPS] + steps[_FIRST_STEPS - limits.rows :]
    calls = max(_FIRST_CALLS, 2 * limits.rows // len(shown))
    drawn = sum(min(calls, len(step.tool_calls)) for step in shown)
    share = max(120, min(limits.text, 4 * limits.text // max(1, drawn)))
    images = ImageBudget(limits.images)
    sections = [_step_section(step, running, calls, share, images) for step in shown]
    if len(shown) < len(steps):
        sections.insert(_FIRST_STEPS, Section(f"{words.count(len(steps) - len(shown), 'step')} more", ()))
    return [Section("Steps", tuple(sections), note=words.count(len(steps), "model call"))]


def _step_section(step: Step, running: bool, calls: int, limit: int, images: ImageBudget) -> Section:
    blocks: list[Block] = []
    if step.text and step.tool_calls:
        blocks.append(Text(step.text, limit=limit))
    blocks += [call_section(call, running, limit, images) for call in step.tool_calls[:calls]]
    if len(step.tool_calls) > calls:
        blocks.append(Text(f"{words.count(len(step.tool_calls) - calls, 'call')} more"))
    return Section(f"Step {step.index + 1}", tuple(blocks), note=_step_note(step))


def _step_note(step: Step) -> str:
    parts = step.request.tokens
    request = f"request {words.tokens(parts.total, parts.origin)}"
    if step.response is None:
        return f"{request}, no answer yet"
    return f"{words.seconds(step.seconds)}, {request}, answer {answer_tokens(step)}"


def _answer(turn: Turn, steps: list[Step], limits: Limits) -> list[Section]:
    last = steps[-1] if steps else None
    text = last.text if last and not last.tool_calls else ""
    sections: list[Section] = []
    if text or turn.status == "done":
        limit = limits.document // 2
        sections.append(
            Section("Answer", (Text(text or "The model said nothing.", limit=limit),), note="so far" if turn.running else "")
        )
    if turn.error:
        sections.append(Section("Error", (Text(turn.error),), mark=_STATUS[turn.status]))
    return sections


def _notices(notices: list[Notice], limits: Limits) -> list[Section]:
    if not notices:
        return []
    lines = [f"{notice.server}: {notice.text}" if notice.server else notice.text for notice in notices[-limits.rows :]]
    return [Section("Notices", (Text("\n".join(lines)),), note=words.count(len(notices), "notice"))]


def _logs(logs: list[ServerLog], limits: Limits) -> list[Section]:
    if not logs:
        return []
    lines = [f"{log.server} {log.level}: {log.text}" for log in logs[-limits.rows :]]
    note = words.count(len(logs), "message")
    return [Section("Server logs", (Text("\n".join(lines), code=True),), note=note, fold="closed")]
