"""Views for model requests, and for the tool calls in answers.

A call is one line, which unfolds to its details. Results are tables where they are tables. A
request shows its contents and cost, and the changes since the previous step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.base.content import (
    ContentPart,
    LargeResult,
    PayloadPreview,
    Picture,
    pictures_of,
)
from casual_mcp_nb.base.mcp import ServerTask, TaskStatus
from casual_mcp_nb.base.tokens import CacheMiss, TokenParts, definition_tokens, estimate_tokens
from casual_mcp_nb.conversation import event
from casual_mcp_nb.conversation.event import (
    CallStatus,
    HostedCall,
    Request,
    SearchRow,
    SkillRead,
    ToolProgress,
    ToolsSearched,
)
from casual_mcp_nb.conversation.stats import ChatStats, StepStats
from casual_mcp_nb.conversation.step import CallTask, StepDiff, ToolCall, is_program, text_of
from casual_mcp_nb.display import words
from casual_mcp_nb.display.render import IMAGE_TYPES
from casual_mcp_nb.display.view import (
    Bar,
    Block,
    Cell,
    Column,
    Data,
    DisplayLimits,
    ImageBlock,
    KeyValues,
    Line,
    Name,
    Phrase,
    Section,
    Span,
    StackedBar,
    Status,
    Table,
    TextBlock,
    View,
    columns,
    fraction,
    pretty,
)
from casual_mcp_nb.display.words import SUMMARY, first, read_code

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

_COLUMNS = 8
_ROWS = 50
_LIST_IN_AN_OBJECT = 2


def structured_blocks(value: Any) -> tuple[Block, ...]:
    """Show a folded section: a table for a list of flat objects, or a flat object's fields.

    Other values get none: the result's text has them already.
    """
    value = unwrapped(value)
    if isinstance(value, Mapping) and len(value) > 1 and _is_flat(value):
        rows = tuple((str(name), _cell(item)) for name, item in list(value.items())[:_ROWS])
        return (
            Section(
                "As fields",
                (KeyValues(rows),),
                note=words.count(len(value), "field"),
                fold="closed",
            ),
        )
    if (
        isinstance(value, Sequence)
        and not isinstance(value, str | bytes)
        and value
        and all(map(_is_flat, value[:_ROWS]))
    ):
        return (
            Section(
                "As a table", (_table(value),), note=words.count(len(value), "row"), fold="closed"
            ),
        )
    return ()


def unwrapped(value: Any) -> Any:
    """Unwrap a list that a server had to put into an object because MCP's structured content always
    is one.
    """
    if isinstance(value, Mapping) and len(value) <= _LIST_IN_AN_OBJECT:
        lists = [item for item in value.values() if isinstance(item, list)]
        if len(lists) == 1:
            return lists[0]
    return value


def _is_flat(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and bool(value)
        and not any(isinstance(item, Mapping | list) for item in value.values())
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    names = list(dict.fromkeys(str(name) for row in rows[:_ROWS] for name in row))
    visible = names[:_COLUMNS]
    titles = tuple(map(Column, visible))
    cells = tuple(tuple(_cell(row.get(name, "")) for name in visible) for row in rows[:_ROWS])
    return Table(titles, cells, len(rows) - len(cells))


def _cell(value: object) -> str:
    return value if isinstance(value, str) else pretty(value, indent=None)


def payload_sections(
    title: str, previews: Sequence[PayloadPreview], spend: Callable[[int], bool]
) -> tuple[Section, ...]:
    """Show a call's payloads, as far as they can be shown. `spend` decides on images by size."""
    shown = (preview for preview in previews if preview.is_shown)
    return tuple(
        Section(title, (_block(preview, spend),), note=preview.what, look="payload")
        for preview in shown
    )


def payload_words(previews: Sequence[PayloadPreview]) -> str:
    """Describe a call's payloads, which no file has."""
    return f"Payload kept in the kernel: {'; '.join(preview.what for preview in previews)}"


def _block(preview: PayloadPreview, spend: Callable[[int], bool]) -> Block:
    if preview.columns:
        return Table(tuple(map(Column, preview.columns)), preview.rows, preview.more_rows)
    if preview.picture is not None:
        if spend(len(preview.picture)):
            return ImageBlock("image/png", preview.picture, preview.what)
        return TextBlock(f"picture of {len(preview.picture):,} bytes, not shown here")
    return TextBlock(preview.text, code=True)


_STATUS: dict[CallStatus, Status] = {
    "running": Status("▸ running", "busy"),
    "ok": Status("✓ ok", "good"),
    "error": Status("✗ error", "bad"),
    "denied": Status("⊘ denied", "bad"),
    "stopped": Status("■ stopped", "quiet"),
    "timeout": Status("✗ timed out", "bad"),
    "unknown": Status("? outcome unknown", "bad"),
}
_MARKS = {
    "plan": "planned",
    "mock": "mocked",
    "edited": "edited",
    "app": "app",
    "from the app": "from_app",
}
_WAITING = Status("… waiting for you", "busy")
_TASK: dict[TaskStatus, Status] = {
    "working": Status("▸ task {} running", "busy"),
    "input_required": Status("… task {} waiting for you", "busy"),
    "completed": Status("✓ task {} done", "good"),
    "failed": Status("✗ task {} failed", "bad"),
    "cancelled": Status("■ task {} cancelled", "quiet"),
    "lost": Status("? task {} lost", "bad"),
}
_MAX_ADDRESS = 200
_MAX_ID = 200
_ARGUMENTS = 160
_RESULT = 70
_VALUE = 40
_SERVERS = 3
_PAIRS = 8
_SENTENCE = 3
_JSON = '{["'
"""How a text begins that is JSON rather than a sentence."""
_NESTED = 20


class ImageBudget:
    """How many bytes of images may still be shown. All images in a display share it, in order."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, size: int) -> bool:
        """Subtract the bytes of an image if it may be shown, and return whether it may."""
        if size > self.left:
            return False
        self.left -= size
        return True


def status_of(call: ToolCall) -> Status:
    """Describe a call's state: its symbol and word."""
    status = _WAITING if call.waiting else _STATUS[call.status]
    if call.task is not None and call.status != "running" and not call.task.in_call:
        status = task_status(call.task)
    marks = [mark for mark, field in _MARKS.items() if getattr(call, field)]
    return replace(status, text=" · ".join([status.text, *marks])) if marks else status


def task_status(task: CallTask | ServerTask) -> Status:
    """Describe a task's state: a symbol, its number, and a word."""
    # Servers report that they wait for an answer until they have read it.
    status = _TASK[
        "working" if task.status == "input_required" and not task.asking else task.status
    ]
    return replace(status, text=status.text.format(task.number))


def _task_blocks(call: ToolCall, limit: int) -> list[Block]:
    task = call.task
    if task is None or task.in_call:
        return []
    if task.is_over:
        seconds = words.seconds(max(0.0, (task.ended or task.began) - task.began))
        label = f"Result of task {task.number}, after {seconds}"
        blocks: list[Block] = [TextBlock(task.text, label=label, code=True, limit=limit)]
        return [*blocks, *structured_blocks(task.result.structured if task.result else None)]
    state = "waits for your answer" if task.asking else task.text or "running"
    return [KeyValues(((f"Task {task.number}", state),))]


def outcome_of(status: CallStatus) -> Status:
    """Describe how a call ended: its symbol and word."""
    return _STATUS[status]


def call_view(call: ToolCall, limits: DisplayLimits) -> View:
    """Show a single call."""
    images = ImageBudget(limits.images)
    section = call_section(call, False, limits.text, images)
    blocks = (*section.blocks, *payload_sections("Payload", call.previews, images.spend))
    return View("call", tool_words(call), blocks, mark=section.mark, note=section.note)


def tool_words(call: ToolCall) -> str:
    """Format a call's tool as people write it, `server:tool`.

    An unknown name stays as the model wrote it.
    """
    match call.tool.server:
        case event.SYNTHETIC:
            return call.tool.tool
        case event.UNKNOWN:
            return call.name
        case _:
            return str(call.tool)


def call_spans(call: ToolCall) -> tuple[Span, ...]:
    """Describe a call in words: `time:convert_time time “14:30” → 22:30`, or its search and the
    tools loaded.
    """
    if text := (
        search_words(call.search) if call.search else skill_words(call.skill) if call.skill else ""
    ):
        return (Span(text),)
    arguments = (
        first(_pairs(call.arguments), _ARGUMENTS) if isinstance(call.arguments, Mapping) else ""
    )
    if program := _program(call):
        arguments = (
            f"{words.count(len(program.splitlines()), 'line')},"
            f" {words.count(len(call.nested), 'call')}"
        )
    result = first(_result_words(call), _RESULT)
    spans = [
        Span(tool_words(call), "code"),
        Span(arguments, "quiet"),
        Span(f"→ {result}" if result else "", "result"),
    ]
    return tuple(span for span in spans if span.text)


def hosted_section(call: HostedCall, limit: int) -> Section:
    """Show a call that the provider ran itself: its arguments, and the provider's note on the
    result.
    """
    texts = [
        TextBlock(text, code=True, limit=limit) for text in (call.arguments, call.result) if text
    ]
    mark = Status("failed", "bad") if call.failed else None
    return Section(
        Phrase((Span(call.name, "code"), Span("run by the provider"))),
        tuple(texts),
        mark=mark,
        fold="closed",
    )


def call_section(
    call: ToolCall,
    running: bool,
    limit: int,
    images: ImageBudget,
    now: float | None = None,
    key: str = "call-0",
    fold: bool = True,
    nested_in: bool = False,
) -> Section:
    """Show a call with its complete arguments and its result, the calls nested in it, and the last
    calls of its app.

    `now` is in seconds since the turn began, for a running call, and `key` the call's in its turn.
    An unsuccessful call is always open, despite `fold`.
    """
    blocks = (
        _search_blocks(call, call.search, limit)
        if call.search
        else _call_blocks(call, running, limit, images, now)
    )
    nested = (*call.nested[:_NESTED], *call.app_calls[-_NESTED:])
    for number, each in enumerate(nested):
        blocks.append(
            call_section(each, running, limit, images, now, f"{key}-{number}", nested_in=True)
        )
    if more := len(call.nested) + len(call.app_calls) - len(nested):
        blocks.append(TextBlock(f"{words.count(more, 'call')} more"))
    note = words.seconds(call.seconds) if call.seconds is not None else ""
    name = Span(tool_words(call), "code")
    title = Phrase((Span("↳", "quiet"), name) if nested_in else (name,))
    closed = fold and call.status == "ok" and (call.task is None or call.task.is_over)
    data = (("key", key), *_call_data(call))
    return Section(
        title,
        tuple(blocks),
        status_of(call),
        note,
        "closed" if closed else "open",
        look="call",
        data=data,
    )


def _call_data(call: ToolCall) -> Data:
    return (("call", call.id),) if len(call.id) <= _MAX_ID else ()


def _part(call: ToolCall, name: str) -> Data:
    return (("part", name), *_call_data(call))


def _call_blocks(
    call: ToolCall, running: bool, limit: int, images: ImageBudget, now: float | None
) -> list[Block]:
    arguments, label = (
        call.arguments if isinstance(call.arguments, str) else pretty(call.arguments),
        "Arguments",
    )
    if program := _program(call):
        arguments, label = program, "Program"
    blocks: list[Block] = []
    # The question whether it may run shows them complete.
    if not call.needs_approval:
        blocks.append(
            TextBlock(arguments, label=label, code=True, limit=limit, data=_part(call, "arguments"))
        )
    if running and call.status == "running" and not call.waiting:
        blocks.append(KeyValues(_running(call, now)))
    blocks += _task_blocks(call, limit)
    original: list[Block] = [TextBlock(kept_words(call.large))] if call.large is not None else []
    if not call.edited:
        blocks += original
    if call.result:
        label = "Result, edited by hand" if call.edited else "Result"
        blocks.append(
            TextBlock(call.result, label=label, code=True, limit=limit, data=_part(call, "result"))
        )
    above = {preview.picture for preview in call.previews} - {None}
    blocks += [
        part_block(part, call, images)
        for part in call.content
        if part.kind != "text" and part.data not in above
    ]
    if call.previews:
        blocks.append(TextBlock(payload_words(call.previews)))
    original += structured_blocks(call.structured)
    if not call.edited:
        return [*blocks, *structured_blocks(call.structured)]
    before = TextBlock(call.unedited or "", code=True, limit=limit)
    return [*blocks, Section("Result before the edit", (before, *original), fold="closed")]


def _program(call: ToolCall) -> str:
    """Extract the program that a call runs, or nothing if it runs none."""
    if not is_program(call.tool) or not isinstance(call.arguments, Mapping):
        return ""
    code = call.arguments.get("code")
    return code if isinstance(code, str) else ""


def _search_blocks(call: ToolCall, search: ToolsSearched, limit: int) -> list[Block]:
    best = max((row.score for row in search.rows if row.score is not None), default=None)
    rows = tuple(_search_row(row, best) for row in search.rows)
    rows += tuple((Name(str(skill)), "", "a skill") for skill in search.skills)
    rows += tuple((Name(str(tool)), "", "unloaded") for tool in search.unloaded)
    blocks: list[Block] = [Table(columns("Tool", "Match", "Why"), rows)] if rows else []
    result = TextBlock(call.result, code=True, limit=limit, data=_part(call, "result"))
    return (
        [*blocks, Section("Read by the model", (result,), fold="closed", brief=True)]
        if call.result
        else blocks
    )


def _search_row(row: SearchRow, best: float | None) -> tuple[Cell, ...]:
    bar = Bar("" if row.score is None else words.score(row.score), fraction(row.score, best))
    return (Name(str(row.tool)), bar, why_found(row))


def why_found(row: SearchRow) -> str:
    """Explain why a search returned a tool, and whether it was loaded already."""
    why = ", ".join(map(words.quoted, row.words))
    if row.same_server:
        why = "on the server of the best match"
    elif row.score is None:
        why = "named by the model"
    return " · ".join(filter(None, (why, "" if row.newly_loaded else "already loaded")))


def search_words(search: ToolsSearched) -> str:
    """Describe a search and the tools that it loaded."""
    if search.unloaded:
        return f"Unloaded {words.count(len(search.unloaded), 'tool')} ({search.offered:,} loaded)"
    new = [row.tool.server for row in search.rows if row.newly_loaded]
    by = f" by {search.ranked_by}" if search.ranked_by != "words" else ""
    query = words.quoted(first(search.query, _ARGUMENTS))
    what = f"Searched tools for {query}{by}," if search.query else "Requested tools by name,"
    skills = f"found {words.count(len(search.skills), 'skill')}" if search.skills else ""
    tools = f"found {len(search.rows):,}, already loaded" if search.rows else ""
    if new:
        tools = f"loaded {len(new):,} from {words.listed(dict.fromkeys(new), _SERVERS)}"
    return f"{what} {', '.join(filter(None, (tools, skills))) or 'found nothing'}"


def skill_words(read: SkillRead) -> str:
    """Describe a file of a skill that the model read: which, its size, and whether its digest was
    checked.
    """
    price = (
        f"≈ {read.tokens:,} tokens, {'digest checked' if read.checked else 'no digest to check'}"
    )
    return f"Read {first(read.path, _VALUE)} of skill {read.skill} ({price})"


def _pairs(values: Mapping[str, Any]) -> str:
    return words.listed((f"{name} {_value(value)}" for name, value in values.items()), _PAIRS)


def _value(value: object) -> str:
    return (
        words.quoted(first(value, _VALUE))
        if isinstance(value, str)
        else first(pretty(value, indent=None), _VALUE)
    )


def _result_words(call: ToolCall) -> str:
    if call.edited:
        return call.result
    if call.task is not None and not call.task.in_call:
        return "waits for your answer" if call.task.asking else call.task.text or "running"
    return result_words(call.status, call.result, call.content, call.structured, call.large)


def result_words(
    status: CallStatus,
    text: str,
    content: Sequence[ContentPart],
    structured: Any,
    large: LargeResult | None,
) -> str:
    """Describe a result in a few words: the tool's own summary or sentence if it gave one, or else
    its plain values.

    Args:
        status: How the call ended.
        text: The result as the model reads it.
        content: The original result's parts.
        structured: The structured content.
        large: Describes a result that was too large for the model.
    """
    if status != "ok":
        return text.removeprefix("Error: ")
    if large is not None:
        return large.what
    value = unwrapped(structured)
    if isinstance(value, Mapping) and isinstance(value.get("summary"), str):
        return str(value["summary"])
    sentence = " ".join(part.text for part in content if part.kind == "text").strip()
    if structured is not None and " " in sentence and sentence[0] not in _JSON:
        return sentence
    if isinstance(value, Mapping) and len(value) == 1:
        value = next(iter(value.values()))
    match value:
        case Mapping():
            scalars = [
                item
                for item in value.values()
                if not isinstance(item, Mapping | list) and item is not None
            ]
            texts = [item if isinstance(item, str) else pretty(item) for item in scalars[:_PAIRS]]
            # A sentence speaks for the whole.
            return next((text for text in texts if text.count(" ") > _SENTENCE), ", ".join(texts))
        case list() if len(value) > 1:
            return words.count(len(value), "item")
        case str() | int() | float():
            return str(value)
    parts = [part.kind for part in content if part.kind != "text"]
    return text if not parts else words.listed(parts, _PAIRS)


def kept_words(large: LargeResult) -> str:
    """Describe where a large result is, and how much the model read."""
    where = (
        "kept as call.value"
        if large.is_kept
        else "no longer kept"
        if large.source is not None
        else "not in this file"
    )
    return (
        f"{large.size_in_words}, {large.what}: {where}; the model read ≈"
        f" {words.count(large.tokens, 'token')}."
    )


def _running(call: ToolCall, now: float | None) -> tuple[tuple[str, Cell], ...]:
    rows: list[tuple[str, Cell]] = [("Progress", _progress(call.progress))] if call.progress else []
    if now is not None:
        rows.append(("Elapsed", words.seconds(max(0.0, now - call.at - call.waited))))
    return tuple(rows)


def _progress(progress: ToolProgress) -> Bar:
    part = fraction(progress.progress, progress.total)
    text = words.number(progress.progress)
    if part is not None:
        text = f"{text} of {words.number(progress.total)} ({words.percent(part)})"
    return Bar(f"{text}: {progress.text}" if progress.text else text, part)


def picture_blocks(
    pictures: Sequence[Picture], source: str, images: ImageBudget
) -> tuple[Block, ...]:
    """Show a message's images, or descriptions of those that do not fit."""
    return tuple(
        (
            TextBlock(
                f"image at {picture.address.partition('://')[2][:_MAX_ADDRESS]}, from {source} (not"
                " fetched)"
            )
            if picture.address
            else content_block("image", picture.media_type.lower(), picture.data, source, images)
        )
        for picture in pictures
    )


def content_block(
    kind: str, mime_type: str, data: bytes, source: str, images: ImageBudget
) -> Block:
    """Show an image, or a note with type and size if the data is not one or does not fit."""
    note = f"{mime_type or kind}, {words.size(len(data))}, from {source}"
    if kind == "image" and data and mime_type in IMAGE_TYPES and images.spend(len(data)):
        return ImageBlock(mime_type, data, note)
    return TextBlock(note)


def part_block(part: ContentPart, call: ToolCall, images: ImageBudget) -> Block:
    """Show a result part that is not text: an image, or its description."""
    data = part.data or b""
    mime_type = (part.mime_type or "").lower()
    if part.kind in ("image", "audio"):
        return content_block(part.kind, mime_type, data, tool_words(call), images)
    size = (
        words.size(len(data))
        if data
        else words.count(len(part.text), "character")
        if part.text
        else ""
    )
    if part.kind == "link" and part.uri:
        address = (
            read_code(part.uri, call.tool.server) if len(part.uri) <= _MAX_ADDRESS else part.uri
        )
        return TextBlock(", ".join(filter(None, (part.kind, part.text, address))))
    return TextBlock(", ".join(filter(None, (part.kind, mime_type, size, part.uri))))


PARTS = {
    "system": "System prompt",
    "manifest": "Manifest",
    "tools": "Tool definitions",
    "history": "Messages",
    "results": "Tool results",
}

_SHORT = ("System #", "Manifest #", "Tools #", "Messages #", "Results #")


def make_up_table(parts: TokenParts) -> Table:
    """Build a table with one row per request part, with its share."""
    rows: list[tuple[Cell, ...]] = []
    for colour, (name, value) in enumerate(parts.as_dict().items()):
        share = fraction(value, parts.total)
        text = words.UNKNOWN if share is None else words.percent(share)
        rows.append((PARTS[name], words.about(value, parts.origin), Bar(text, share, colour)))
    rows.append(("Total", words.about(parts.total, parts.origin), stack(parts, parts.total, "")))
    return Table(columns("Part", "Tokens #", "Share"), tuple(rows))


def stack(parts: TokenParts, most: int, text: str) -> StackedBar:
    """Draw the breakdown as one bar, in which `most` tokens take the full width."""
    return StackedBar(
        text, tuple(value / most if most > 0 else 0.0 for value in parts.as_dict().values())
    )


def step_table(steps: Sequence[StepStats], limits: DisplayLimits) -> Table:
    """Build a table with each request's breakdown and its answer's tokens.

    If there are many steps, the last ones.
    """
    last = steps[-max(1, limits.rows // 2) :]
    most = max((step.parts.total for step in last), default=0)
    turns = last[-1].turn > 0 if last else False
    reused, output = (
        any(step.reused is not None for step in last),
        any(step.completion_tokens is not None for step in last),
    )
    more = (*(("Reused #",) if reused else ()), *(("Output",) if output else ()))
    titles = columns(*(("Turn",) if turns else ()), "Step", *_SHORT, "Input", *more)
    return Table(
        titles,
        tuple(_step_row(step, most, turns, reused, output) for step in last),
        len(steps) - len(last),
    )


def _step_row(
    step: StepStats, most: int, turns: bool, reused: bool, output: bool
) -> tuple[Cell, ...]:
    return (
        *((str(step.turn + 1),) if turns else ()),
        str(step.step + 1),
        *(words.number(value) for value in step.parts.as_dict().values()),
        stack(step.parts, most, words.about(step.parts.total, step.parts.origin)),
        *((words.about(step.reused, "estimated"),) if reused else ()),
        *((words.about(step.completion_tokens, step.answer_origin),) if output else ()),
    )


def deferral_rows(stats: ChatStats) -> tuple[tuple[str, Cell], ...]:
    """Compare total input with the input if every tool were loaded."""
    sent, without = stats.sent_tokens, stats.undeferred_tokens
    return (
        ("Input", words.tokens(sent, stats.parts.origin)),
        ("With every tool loaded", words.tokens(without, "estimated")),
        *saving_row(sent, without),
    )


def saving_row(price: int, without: int) -> tuple[tuple[str, Cell], ...]:
    """Format the saving or cost of deferring, as a label with its value, or nothing if it makes no
    difference.
    """
    share = words.difference(price, without)
    if not share:
        return ()
    return (
        (("Deferring costs", share),)
        if price > without
        else (("Saved by deferring", share.removesuffix(" less")),)
    )


def change_table(before: TokenParts, after: TokenParts) -> Table:
    """Build a table with the parts in which two requests differ, and both totals."""
    pairs = zip(before.as_dict().items(), after.as_dict().values(), strict=True)
    rows: list[tuple[Cell, ...]] = [
        (
            PARTS[name],
            words.about(old, before.origin),
            words.about(new, after.origin),
            words.change(new - old),
        )
        for (name, old), new in pairs
        if old != new
    ]
    whole = (words.about(before.total, before.origin), words.about(after.total, after.origin))
    bar = stack(after, max(before.total, after.total), "")
    rows = [(*row, "") for row in rows]
    rows.append(("Total", *whole, words.change(after.total - before.total), bar))
    return Table(columns("Part", "Before #", "Now #", "Change #", "Now"), tuple(rows))


_FIRST_MESSAGES = 2
DELIVERIES = {
    "native": "added by the provider",
    "bridge": "called through call_tool",
    "code": "called in programs",
}


def request_view(request: Request, limits: DisplayLimits) -> View:
    """Show one model call's exact input."""
    return View("request", "Request", request_blocks(request, limits), note=request_words(request))


def request_words(request: Request) -> str:
    """Summarize a request: `3 messages, 7 tools, ≈ 824 tokens, ≈ 640 of them reused`."""
    reused = (
        f", {words.about(request.reused, 'estimated')} of them reused" if request.reused else ""
    )
    parts = (
        words.count(len(request.messages), "message"),
        words.count(len(request.tools), "tool"),
        price_words(request),
    )
    return f"{', '.join(parts)}{reused}"


def folded_request_view(request: Request, limits: DisplayLimits) -> View:
    """Show the same in little space: no heading, and only the messages unfolded."""
    folded = tuple(
        (
            replace(block, fold="closed")
            if isinstance(block, Section) and block.title != "Messages"
            else block
        )
        for block in request_blocks(request, limits)
    )
    return View("request", "", folded)


def request_blocks(
    request: Request, limits: DisplayLimits, definitions: bool = True
) -> tuple[Block, ...]:
    """Show a request's options, its breakdown, its messages and the tools that it offers, with
    their definitions.
    """
    options = tuple((name, pretty(value, indent=None)) for name, value in request.options.items())
    return (
        *((Section("Options", (KeyValues(options),)),) if options else ()),
        Section("Breakdown", (make_up_table(request.tokens),)),
        Section(
            "Messages",
            message_blocks(request.messages, limits, _reuse(request)),
            note=_how_many(request),
        ),
        Section(
            "Tools offered",
            _offered(request, limits, definitions),
            note=words.count(len(request.tools), "tool"),
        ),
        *_added_by_provider(request, limits, definitions),
    )


def _added_by_provider(
    request: Request, limits: DisplayLimits, definitions: bool
) -> tuple[Section, ...]:
    if not request.found:
        return ()
    tools = _offered(replace(request, tools=request.found, reused=None), limits, definitions)
    return (
        Section(
            "Tools found, added by the provider",
            tools,
            note=words.count(len(request.found), "tool"),
        ),
    )


def _reuse(request: Request) -> tuple[int, Line] | None:
    """Count the messages in the reused part, or None if it ends before the messages."""
    if request.reused is None or not request.reused_messages:
        return None
    return request.reused_messages, reuse_line(
        request, f"the tools and {words.count(request.reused_messages, 'message')}"
    )


def reuse_line(request: Request, what: str) -> Line:
    """Write the line that ends the part repeated from the previous request."""
    text = (
        f"↑ Reused up to here: {what}, {words.tokens(request.reused, 'estimated')}, are repeated"
        " from the previous request"
    )
    return Line(Status(text, "quiet"), data=(("part", "reused"),))


def _how_many(request: Request) -> str:
    count = words.count(len(request.messages), "message")
    return f"{count}, {request.left_out:,} older ones not sent" if request.left_out else count


def miss_words(miss: CacheMiss) -> str:
    """Explain why a provider did not reuse its cache, in its own word: `tools_changed, 1,200
    tokens`.
    """
    return (
        miss.reason
        if miss.tokens is None
        else f"{miss.reason}, {words.tokens(miss.tokens, 'estimated')}"
    )


def diff_view(diff: StepDiff, limits: DisplayLimits) -> View:
    """Show the parts that a request adds to the previous one."""
    before = diff.tokens_before
    note = (
        f"{words.change(diff.tokens.total - before.total)} tokens"
        if before
        else "first request of its turn"
    )
    return View(
        "diff",
        f"Step {diff.index + 1}: new in this request",
        change_blocks(diff, limits),
        note=note,
    )


def change_blocks(diff: StepDiff, limits: DisplayLimits) -> tuple[Block, ...]:
    """Show how a request differs from the previous one."""
    tokens = (
        make_up_table(diff.tokens)
        if diff.tokens_before is None
        else change_table(diff.tokens_before, diff.tokens)
    )
    added = diff.messages_added
    gone = f", {diff.messages_left_out:,} old ones not sent" if diff.messages_left_out else ""
    return (
        Section("Tokens", (tokens,)),
        Section(
            "Messages added",
            message_blocks(added, limits),
            note=words.count(len(added), "message") + gone,
        ),
        *_tool_changes(diff),
    )


def _tool_changes(diff: StepDiff) -> tuple[Section, ...]:
    lines = [
        *(f"+ {name}" for name in diff.tools_added),
        *(f"- {name}" for name in diff.tools_removed),
    ]
    if not lines:
        return ()
    note = f"{len(diff.tools_added):,} added, {len(diff.tools_removed):,} removed"
    return (Section("Tools", (TextBlock("\n".join(lines), code=True),), note=note),)


def message_blocks(
    messages: Sequence[ChatMessage], limits: DisplayLimits, reuse: tuple[int, Line] | None = None
) -> tuple[Block, ...]:
    """Show messages as a model reads them. If there are many, the first and the last ones.

    `reuse` is a line, and after how many messages it comes.
    """
    if not messages:
        return (TextBlock("None."),)
    numbers = list(range(len(messages)))
    if len(messages) > limits.rows:
        numbers = [*numbers[:_FIRST_MESSAGES], *numbers[_FIRST_MESSAGES - limits.rows :]]
    share = max(80, min(limits.text, 8 * limits.text // len(numbers)))
    sections: list[Block] = [_message(messages[number], number, share) for number in numbers]
    end = sum(number < reuse[0] for number in numbers) if reuse else 0
    if len(numbers) < len(messages):
        sections.insert(
            _FIRST_MESSAGES,
            Section(f"{words.count(len(messages) - len(numbers), 'message')} more", ()),
        )
        end += end >= _FIRST_MESSAGES
    if reuse:
        sections.insert(end, reuse[1])
    return tuple(sections)


def _message(message: ChatMessage, number: int, limit: int) -> Section:
    text = text_of(message.content)
    blocks: list[Block] = [TextBlock(text, code=True, limit=limit)] if text else []
    blocks += picture_blocks(pictures_of([message]), "this message", ImageBudget(0))
    for call in getattr(message, "tool_calls", None) or ():
        blocks.append(
            TextBlock(
                call.function.arguments, label=f"Calls {call.function.name}", code=True, limit=limit
            )
        )
    title = f"{number + 1}. {message.role}"
    name = getattr(message, "name", None)
    note = ", ".join(
        filter(None, (name, words.tokens(estimate_tokens(text), "estimated") if text else ""))
    )
    return Section(
        title,
        tuple(blocks) or (TextBlock("Empty."),),
        note=note,
        fold="closed" if len(text) > limit // 4 else "open",
    )


def _offered(request: Request, limits: DisplayLimits, whole: bool) -> tuple[Block, ...]:
    tools: Sequence[Mapping[str, Any]] = request.tools
    if not tools:
        return (TextBlock("None."),)
    visible = tools[: limits.rows]
    rows = tuple(
        (
            Name(str(tool.get("name", ""))),
            words.about(definition_tokens(tool), "estimated"),
            first(str(tool.get("description", "")), SUMMARY),
        )
        for tool in visible
    )
    titles = columns("Tool", "Tokens #", "Description")
    hidden = len(tools) - len(rows)
    table: tuple[Block, ...] = (Table(titles, rows, hidden),)
    if request.reused is not None and not request.reused_messages:
        same = request.reused_tools
        first_rows = (Table(titles, rows[:same]),) if same else ()
        other_rows = (Table(titles, rows[same:], hidden),) if same < len(tools) else ()
        table = (*first_rows, reuse_line(request, words.count(same, "tool")), *other_rows)
    if not whole:
        return table
    definitions = TextBlock(pretty(list(visible)), code=True, limit=limits.document // 4)
    return (*table, Section("Definitions", (definitions,), fold="closed"))


def price_words(request: Request) -> str:
    """Describe the size of a request in tokens."""
    return words.tokens(request.tokens.total, request.tokens.origin)
