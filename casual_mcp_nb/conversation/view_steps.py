"""A turn's steps, and single events: each is one line in words, which unfolds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.base.tokens import TokenUsage
from casual_mcp_nb.base.tool import ToolName
from casual_mcp_nb.conversation.event import (
    SYNTHETIC,
    UNKNOWN,
    AppCalled,
    ApprovalAnswered,
    ApprovalAsked,
    ContextTrimmed,
    Event,
    ModelRetry,
    ModelWait,
    Notice,
    PrefixCause,
    PrefixChanged,
    QuestionAnswered,
    QuestionAsked,
    Request,
    RequestEdited,
    Searches,
    SearchRow,
    ServerLog,
    SkillRead,
    StepFinished,
    StepStarted,
    TaskChanged,
    TaskEnded,
    TaskReported,
    TaskStarted,
    TextDelta,
    TextEdited,
    ToolFinished,
    ToolProgress,
    ToolsSearched,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from casual_mcp_nb.conversation.stats import unsent_step
from casual_mcp_nb.conversation.step import Step, text_of, with_nested
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.view_calls import (
    ImageBudget,
    call_section,
    call_spans,
    hosted_section,
    more_calls,
    outcome_of,
    skill_words,
    status_of,
    tool_words,
)
from casual_mcp_nb.conversation.view_requests import (
    DELIVERIES,
    change_blocks,
    miss_words,
    price_words,
    request_blocks,
    request_words,
)
from casual_mcp_nb.conversation.waits import PersonWaits
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import (
    Block,
    Cell,
    DisplayLimits,
    Facts,
    KeyValues,
    Line,
    Name,
    Phrase,
    Row,
    Section,
    Span,
    Status,
    Table,
    TextBlock,
    View,
    columns,
    known,
    readable,
)
from casual_mcp_nb.display.words import first

CUT = Status("✂ cut at the token limit", "bad")
EDITED = Status("✎ edited by hand", "busy")
_ASIDE = (Notice, ServerLog, TextEdited, QuestionAsked, QuestionAnswered)
_FIRST_STEPS = 3
_FIRST_CALLS = 2
_NAMED_CALLS = 3
_NAMED_TOOLS = 12
_EDIT = 60
_REQUEST_TEXT = 800


@dataclass(frozen=True)
class TurnDetail:
    """How much detail a turn shows.

    Args:
        requests: What each request shows. `new`: its parts since the previous request, shortened.
            `whole`: the same without shortening, and the first request with its tool definitions.
            None: nothing.
        now: For a running turn, the seconds since it began.
        since: The request before the first step, if the reader has seen it.
    """

    requests: Literal["new", "whole"] | None = None
    now: float | None = None
    since: Request | None = None


@dataclass(frozen=True)
class _Timeline:
    """Shared data for drawing a turn's steps: times, events, and the space available."""

    limits: DisplayLimits
    detail: TurnDetail
    images: ImageBudget
    running: bool
    now: float
    last: int
    waits: PersonWaits
    times: dict[int, tuple[float, float]]
    remarks: dict[int, list[Event]]
    calls: int
    share: int
    unsent: int | None


def step_sections(
    turn: Turn, steps: list[Step], limits: DisplayLimits, detail: TurnDetail, images: ImageBudget
) -> list[Section]:
    """Show a line per step, with a heading for the figures.

    If there are many, the first and the last ones.
    """
    if not steps:
        return []
    visible = steps
    if len(steps) > limits.rows:
        visible = steps[:_FIRST_STEPS] + steps[_FIRST_STEPS - limits.rows :]
    # In a long turn each step keeps its line, but only the first and the last ones unfold.
    last = len(steps) - max(_FIRST_STEPS, limits.rows // 4)
    whole = [step for step in visible if step.index < _FIRST_STEPS or step.index >= last]
    calls = max(_FIRST_CALLS, 2 * limits.rows // max(1, len(whole)))
    drawn = sum(min(calls, len(step.tool_calls)) for step in whole)
    times, remarks = events_by_step(turn)
    timeline = _Timeline(
        limits=limits,
        detail=detail,
        images=images,
        running=turn.running,
        now=detail.now if detail.now is not None else turn.trace.last_at,
        last=len(steps) - 1,
        waits=turn.person_waits,
        times=times,
        remarks=remarks,
        calls=calls,
        share=max(120, min(limits.text, 4 * limits.text // max(1, drawn))),
        unsent=unsent_step(turn.trace),
    )
    shown, unfolding = {step.index for step in visible}, {step.index for step in whole}
    first_call = 0
    sections = [Section("Steps", (), figures=("Tokens in", "Time"), look="steps")]
    for step in steps:
        if step.index in shown:
            blocks: list[Block] = [TextBlock(f"See turn.steps[{step.index}].")]
            if step.index in unfolding:
                blocks = _step_blocks(step, first_call, timeline)
            sections.append(_section(step, blocks, timeline))
        first_call += len(step.tool_calls)
    if len(visible) < len(steps):
        sections.insert(1 + _FIRST_STEPS, Section(f"{len(steps) - len(visible):,} more steps", ()))
    return sections


def events_by_step(turn: Turn) -> tuple[dict[int, tuple[float, float]], dict[int, list[Event]]]:
    """Collect for each step its start and end, the edits before it, and the notices, retries, waits
    and logs in it.
    """
    times: dict[int, tuple[float, float]] = {}
    remarks: dict[int, list[Event]] = {}
    current = 0
    searches = {search.call_id for search in turn.searches}
    for event in turn.trace:
        match event:
            case StepStarted():
                current = event.step
                times[current] = (event.at, event.at)
            case Notice() | ServerLog():
                remarks.setdefault(current, []).append(event)
            case TextEdited() if event.call_id in searches:
                pass
            case (
                ModelRetry()
                | ModelWait()
                | ContextTrimmed()
                | PrefixChanged()
                | TextEdited()
                | RequestEdited()
            ):
                remarks.setdefault(event.step, []).append(event)
        # Questions and edits before the next step are not part of this one.
        is_part = getattr(event, "step", current) == current and not isinstance(event, _ASIDE)
        if current in times and is_part:
            times[current] = (times[current][0], max(times[current][1], event.at))
    return times, remarks


def _step_blocks(step: Step, first_call: int, timeline: _Timeline) -> list[Block]:
    blocks: list[Block] = []
    # The last answer is that of the turn, which is shown above its steps.
    if step.text and (step.tool_calls or step.index < timeline.last):
        blocks.append(TextBlock(step.text, limit=timeline.share, prose=True))
    now = timeline.now if timeline.running else None
    blocks += [hosted_section(call, timeline.share) for call in step.hosted_calls[: timeline.calls]]
    fold = len(step.tool_calls) > 1
    for number, call in enumerate(step.tool_calls[: timeline.calls], first_call):
        key = f"call-{number}"
        blocks.append(call_section(call, timeline.share, timeline.images, now, key, fold))
    blocks += more_calls(len(step.tool_calls) - timeline.calls)
    blocks += _remark_blocks(timeline.remarks.get(step.index, []), timeline.limits)
    figures = model_figures(step)
    if figures:
        blocks.append(Line(None, figures))
    if timeline.detail.requests:
        blocks.append(_request(step, timeline.detail, timeline.limits))
    return blocks


def _section(step: Step, blocks: list[Block], timeline: _Timeline) -> Section:
    current = timeline.running and step.index == timeline.last
    began, ended = timeline.times[step.index]
    seconds = timeline.waits.taken(began, timeline.now if current else ended)
    parts = step.request.tokens
    tokens = words.about(parts.total, parts.origin)
    spans = _spans(step, timeline.running)
    if step.index == timeline.unsent:
        tokens, spans = "", (Span("Not sent"),)
    title = str(step.index + 1)
    return Section(
        Phrase((Span(title, "number"), *spans)),
        tuple(blocks),
        mark=_mark(step, timeline.remarks.get(step.index, [])),
        fold="open" if current else "closed",
        figures=(tokens, words.seconds(seconds)),
        look="step",
        data=(("key", f"step-{title}"), ("step", title)),
    )


def _spans(step: Step, running: bool) -> tuple[Span, ...]:
    calls = step.tool_calls
    if len(calls) == 1:
        return call_spans(calls[0])
    if calls:
        names = Counter("search" if call.search else tool_words(call) for call in calls)
        return (Span(f"{words.count(len(calls), 'call')}:"), *_counted(names))
    if step.response is not None:
        ran = Counter(call.name for call in step.hosted_calls)
        if not ran:
            return (Span("Answered"),)
        return (Span("Answered"), Span("after"), *_counted(ran))
    if running:
        return (Span("Answering …" if step.text else "Waiting for the model …"),)
    return (Span("The answer is not complete" if step.text else "The model did not answer"),)


def _counted(names: Mapping[str, int]) -> list[Span]:
    """Name the first tools, each with how often it was called, and count the others."""
    spans = []
    for name, count in list(names.items())[:_NAMED_CALLS]:
        spans.append(Span(f"{name} ({count:,})" if count > 1 else name, "code"))
    if len(names) > _NAMED_CALLS:
        spans.append(Span(f"and {len(names) - _NAMED_CALLS:,} more"))
    return spans


def _mark(step: Step, remarks: Sequence[Event]) -> Status | None:
    calls = step.tool_calls
    running = [call for call in with_nested(calls) if call.waiting or call.status == "running"]
    if running:
        return status_of(next((call for call in running if call.waiting), running[0]))
    failed = [call for call in calls if call.status != "ok"]
    if failed:
        mark = status_of(failed[0])
        if len(calls) == 1:
            return mark
        return Status(f"{mark.text}: {len(failed):,} of {len(calls):,}", mark.tone)
    for call in with_nested(calls):
        if call.mocked or call.edited or call.app:
            return status_of(call)
    if step.truncated:
        return CUT
    if any(isinstance(event, TextEdited | RequestEdited) for event in remarks):
        return EDITED
    return None


def model_figures(step: Step) -> tuple[str, ...]:
    """Describe an answer's usage. Unknown figures are left out."""
    if step.response is None:
        return ()
    usage = step.usage or TokenUsage()
    figures: list[str] = []
    if step.tool_calls and step.seconds is not None:
        figures.append(f"Model {words.seconds(step.seconds)}")
    if step.first_token_seconds is not None:
        figures.append(f"first text after {words.seconds(step.first_token_seconds)}")
    if usage.completion_tokens is not None:
        figures.append(f"{words.tokens(usage.completion_tokens, usage.origin)} out")
    if usage.cached_tokens:
        figures.append(f"{words.number(usage.cached_tokens)} read from the cache")
    if usage.cache_write_tokens:
        figures.append(f"{words.number(usage.cache_write_tokens)} written to it")
    if usage.cache_miss:
        figures.append(f"cache missed: {miss_words(usage.cache_miss)}")
    if step.cost:
        figures.append(str(step.cost))
    figures.append(words.ending(step.finish_reason))
    return tuple(filter(None, figures))


def _request(step: Step, detail: TurnDetail, limits: DisplayLimits) -> Section:
    before = step.previous or detail.since
    if detail.requests == "new":
        limits = replace(limits, text=min(limits.text, _REQUEST_TEXT))
    data = (("key", f"request-{step.index + 1}"),)
    if before is None:
        title, whole = "Request", detail.requests == "whole"
        blocks = request_blocks(step.request, limits, definitions=whole)
    else:
        title, blocks = "New in the request", change_blocks(step.diff(before), limits)
    note = request_words(step.request)
    return Section(title, blocks, note=note, fold="closed", data=data, brief=True)


def _remark_blocks(events: Sequence[Event], limits: DisplayLimits) -> list[Block]:
    blocks: list[Block] = [
        Line(remark(event)) for event in events[-limits.rows :] if not isinstance(event, ServerLog)
    ]
    logs = of_type(events, ServerLog)
    if logs:
        lines = "\n".join(f"{log.server} {log.level}: {log.text}" for log in logs[-limits.rows :])
        note = words.count(len(logs), "message")
        blocks.append(
            Section("Server logs", (TextBlock(lines, code=True),), note=note, fold="closed")
        )
    return blocks


def remark(event: Event) -> Status:
    """Describe a step's other events."""
    match event:
        case Notice():
            source = f"{event.server}: " if event.server else ""
            return Status(f"! {source}{event.text}", "busy")
        case ModelRetry():
            return Status(
                f"↻ Request {event.attempt} failed: {event.reason} Retry after"
                f" {words.seconds(event.seconds)}.",
                "busy",
            )
        case ModelWait():
            return Status(f"… Waited {words.seconds(event.seconds)} for {event.reason}.", "quiet")
        case TextEdited():
            what = "Your message" if event.call_id is None else "A result"
            before = words.quoted(first(event.before, _EDIT))
            after = words.quoted(first(event.text, _EDIT))
            return Status(f"✎ {what} was edited by hand: {before} → {after}", "busy")
        case RequestEdited():
            return Status(f"✎ Edited by hand, for the rest of the turn: {_changes(event)}", "busy")
        case ContextTrimmed():
            left = f"the oldest {words.count(event.exchanges, 'exchange')} of the conversation"
            window = words.count(event.window, "token")
            return Status(f"! Not sent from here on: {left}. The model can read {window}.", "busy")
        case PrefixChanged():
            again = (
                f"{words.tokens(event.lost, 'estimated')} of the previous request are sent in full"
                " again"
            )
            return Status(f"↺ {again}: {_cause(event)}.", "quiet")
        case _:
            return Status("")


def _changes(event: RequestEdited) -> str:
    changes: list[str] = []
    if event.system:
        changes.append(f"the system prompt is now {words.quoted(first(event.system, _EDIT))}")
    elif event.system == "":
        changes.append("there is no system prompt")
    if event.off:
        changes.append(f"without {words.listed(map(str, event.off), _NAMED_TOOLS)}")
    if event.loaded:
        changes.append(f"with {words.listed(map(str, event.loaded), _NAMED_TOOLS)}")
    return ", ".join(changes)


_CAUSES: Mapping[PrefixCause, str] = {
    "found": "a search added",
    "unloaded": "no longer loaded:",
    "definition": "servers changed",
    "large_result": "the tool that reads large results was added",
    "selection": "you changed the selection",
    "delivery": "the delivery of search results changed",
    "tools": "other tools are offered:",
    "system": "the system prompt changed",
    "trimmed": "the oldest messages are no longer sent",
    "messages": "an earlier message changed",
    "options": "the options changed",
    "model": "another model answers",
}


def _cause(event: PrefixChanged) -> str:
    cause = _CAUSES[event.cause]
    if event.cause in ("found", "unloaded", "definition", "tools") and event.names:
        # People write a tool as everywhere else, `server:tool`.
        names = [name.replace("__", ":", 1) for name in event.names]
        return f"{cause} {words.listed(names, _NAMED_CALLS)}"
    return cause.removesuffix(":")


def step_view(step: Step, limits: DisplayLimits) -> View:
    """Show one model call: usage, new request parts, answer and calls."""
    usage = step.usage or TokenUsage()
    facts = known(
        ("Input", price_words(step.request)),
        ("Search results", DELIVERIES.get(step.request.delivery, "")),
        ("Repeated from the previous request", words.tokens(step.request.reused, "estimated")),
        ("Read from the cache", words.tokens(usage.cached_tokens, usage.origin)),
        ("Written to the cache", words.tokens(usage.cache_write_tokens or None, usage.origin)),
        ("Not read from the cache", miss_words(usage.cache_miss) if usage.cache_miss else ""),
        ("Output", words.tokens(usage.completion_tokens, usage.origin)),
        ("Time", words.seconds(step.seconds)),
        ("First text after", words.seconds(step.first_token_seconds)),
        ("Cost", str(step.cost or "")),
        ("Ending", words.ending(step.finish_reason)),
    )
    images = ImageBudget(limits.images)
    blocks: list[Block] = [KeyValues(facts)]
    if step.text:
        blocks.append(Section("Text", (TextBlock(step.text, prose=True),)))
    if step.hosted_calls:
        hosted = [hosted_section(call, limits.text) for call in step.hosted_calls[: limits.rows]]
        note = words.count(len(step.hosted_calls), "call")
        blocks.append(Section("Calls that the provider ran", tuple(hosted), note=note))
    if step.tool_calls:
        calls = []
        for number, call in enumerate(step.tool_calls):
            calls.append(call_section(call, limits.text, images, key=f"call-{number}"))
        blocks.append(Section("Calls", tuple(calls), note=words.count(len(calls), "call")))
    blocks.append(Section("New in this request", change_blocks(step.diff(), limits), fold="closed"))
    blocks.append(Section("The whole request", request_blocks(step.request, limits), fold="closed"))
    return View("step", f"Step {step.index + 1}", tuple(blocks))


EVENTS = get_args(Event)
"""All event classes."""


def event_view(event: Event, limits: DisplayLimits) -> View:
    """Show an event with its name, its time and a description."""
    step = getattr(event, "step", None)
    number = f"step {step + 1}" if step is not None else ""
    note = words.joined(number, f"at {words.seconds(event.at)}", by=" · ")
    title = _title(type(event).__name__)
    return View("event", title, tuple(_event_blocks(event, limits)), note=note)


def _title(name: str) -> str:
    """Split a class name into words: `ToolsSearched` into `Tools searched`."""
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    return spaced.strip().capitalize()


def _event_blocks(event: Event, limits: DisplayLimits) -> list[Block]:
    match event:
        case TurnStarted():
            prompt = "\n".join(text_of(message.content) for message in event.messages)
            tools = f"{event.loaded:,} loaded"
            if event.discovery:
                tools = f"{tools}, {event.deferred:,} searchable"
            rows: Facts = (("Toolset", event.tool_set or "all tools"), ("Tools", tools))
            if event.model:
                rows = (("Model", event.model), *rows)
            return [TextBlock(prompt), KeyValues(rows)]
        case StepStarted():
            return [Line(None, (request_words(event.request),))]
        case TextDelta() | TaskReported():
            return [TextBlock(event.text)]
        case StepFinished():
            calls = [call.function.name for call in event.message.tool_calls or ()]
            text = text_of(event.message.content)
            figures = [words.ending(event.finish_reason), "not used" if event.dropped else ""]
            if calls:
                figures.insert(0, f"calls {words.listed(calls, limits.rows)}")
            answer: list[Block] = [Line(None, tuple(filter(None, figures)))]
            if text:
                answer.insert(0, TextBlock(text))
            return answer
        case ToolProgress():
            progress = f"{event.progress:g}"
            if event.total is not None:
                progress = f"{progress} of {event.total:g}"
            return [Line(None, tuple(filter(None, (progress, event.text))))]
        case ToolsSearched():
            return _search(event, limits)
        case SkillRead():
            return [Line(None, (skill_words(event),))]
        case ServerLog():
            return [TextBlock(f"{event.server} {event.level}: {event.text}", code=True)]
        case TurnFinished():
            end: list[Block] = [Line(None, (event.status,))]
            if event.error:
                end.append(TextBlock(event.error))
            return end
    facts = tuple(_facts(event))
    if not facts:
        return [Line(remark(event))]
    blocks: list[Block] = [KeyValues(facts)]
    if isinstance(event, AppCalled | ToolFinished | TaskChanged | TaskEnded):
        blocks.append(TextBlock(event.text))
    return blocks


def _facts(event: Event) -> Iterator[tuple[str, Cell]]:
    """Yield what calls, tasks and questions have in common."""
    if isinstance(event, TaskStarted | TaskChanged | TaskEnded):
        yield "Task", f"{event.number}"
    if isinstance(event, ToolStarted | AppCalled | ToolFinished | TaskStarted):
        yield "Tool", Name(_tool(event.tool))
    if isinstance(event, ToolStarted | AppCalled):
        yield "Arguments", readable(event.arguments, indent=None)
    if isinstance(event, AppCalled | ToolFinished):
        yield "Outcome", outcome_of(event.status)
    if isinstance(event, TaskChanged | TaskEnded):
        yield "State", event.status
    if isinstance(event, ApprovalAsked | ApprovalAnswered):
        yield "Call", Name(event.call_id)
    if isinstance(event, QuestionAnswered):
        yield "Question", Name(event.id)
    if isinstance(event, QuestionAsked):
        yield "Question", event.kind
        if event.server:
            yield "Server", Name(event.server)


def searches_view(searches: Searches, limits: DisplayLimits) -> View:
    """Show the last searches, each with what it found."""
    shown = searches[max(0, len(searches) - limits.rows) :]
    sections = tuple(Section("", tuple(_search(search, limits))) for search in shown)
    note = words.count(len(searches), "search")
    return View("searches", "The model's searches", sections, note=note)


def _search(event: ToolsSearched, limits: DisplayLimits) -> list[Block]:
    new = sum(row.newly_loaded for row in event.rows)
    figures = [
        words.quoted(event.query),
        f"{words.count(len(event.rows), 'tool')} found, {new:,} of them loaded by this search",
    ]
    if event.skills:
        figures.append(f"skills {words.listed(map(str, event.skills), limits.rows)}")
    if event.ranked_by != "words":
        figures.append(f"ranked by {event.ranked_by}")
    if event.unloaded:
        figures.append(f"unloaded {words.listed(map(str, event.unloaded), limits.rows)}")
    figures.append(f"{words.count(event.offered, 'tool')} loaded now")
    blocks: list[Block] = [Line(None, tuple(figures))]
    if event.rows:
        titles = columns("Tool", "Score #", "", "Matching words")
        blocks.append(Table.of(titles, event.rows, _row, limits.rows))
    return blocks


def _row(row: SearchRow) -> Row:
    state = ""
    if row.same_server:
        state = "same server"
    elif row.score is None:
        state = "by name"
    score = "" if row.score is None else words.score(row.score)
    state = words.joined(state, "" if row.newly_loaded else "already loaded")
    return (Name(str(row.tool)), score, state, ", ".join(row.words))


def _tool(tool: ToolName) -> str:
    return tool.tool if tool.server in (SYNTHETIC, UNKNOWN) else str(tool)
