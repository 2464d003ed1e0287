"""Views for tool calls: each is one line, which unfolds to its details. Results are tables where
they are tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from casual_mcp_nb.base.content import ContentPart, LargeResult, PayloadPreview, Picture, ToolResult
from casual_mcp_nb.base.iterables import of_type
from casual_mcp_nb.base.mcp import ServerTask, TaskStatus
from casual_mcp_nb.conversation import event
from casual_mcp_nb.conversation.event import (
    CallStatus,
    HostedCall,
    SearchRow,
    SkillRead,
    ToolProgress,
    ToolsSearched,
)
from casual_mcp_nb.conversation.step import CallTask, ToolCall, is_program
from casual_mcp_nb.display import words
from casual_mcp_nb.display.render import IMAGE_TYPES
from casual_mcp_nb.display.view import (
    Bar,
    Block,
    Blocks,
    Column,
    Data,
    DisplayLimits,
    Facts,
    ImageBlock,
    KeyValues,
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
    fraction,
    pretty,
    readable,
)
from casual_mcp_nb.display.words import first, read_code

_COLUMNS = 8
_ROWS = 50
_LIST_IN_AN_OBJECT = 2


def structured_blocks(value: Any) -> Blocks:
    """Show a folded section: a table for a list of flat objects, or a flat object's fields.

    Other values get none: the result's text has them already.
    """
    value = unwrapped(value)
    if isinstance(value, Mapping) and len(value) > 1 and _is_flat(value):
        rows = tuple((str(name), _cell(item)) for name, item in list(value.items())[:_ROWS])
        note = words.count(len(value), "field")
        return (Section("As fields", (KeyValues(rows),), note=note, fold="closed"),)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return ()
    if value and all(map(_is_flat, value[:_ROWS])):
        note = words.count(len(value), "row")
        return (Section("As a table", (_table(value),), note=note, fold="closed"),)
    return ()


def unwrapped(value: Any) -> Any:
    """Unwrap a list that a server had to put into an object because MCP's structured content always
    is one.
    """
    if isinstance(value, Mapping) and len(value) <= _LIST_IN_AN_OBJECT:
        lists = of_type(value.values(), list)
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
    names: dict[str, None] = {}
    for row in rows[:_ROWS]:
        names |= dict.fromkeys(map(str, row))
    visible = list(names)[:_COLUMNS]

    def cells(row: Mapping[str, Any]) -> Row:
        return tuple(_cell(row.get(name, "")) for name in visible)

    return Table.of(tuple(map(Column, visible)), rows, cells, _ROWS)


def _cell(value: object) -> str:
    return readable(value, indent=None)


def payload_sections(
    title: str, previews: Sequence[PayloadPreview], images: ImageBudget
) -> tuple[Section, ...]:
    """Show a call's payloads, as far as they can be shown."""
    sections = []
    for preview in previews:
        if preview.is_shown:
            block = _block(preview, images)
            sections.append(Section(title, (block,), note=preview.what, look="payload"))
    return tuple(sections)


def payload_words(previews: Sequence[PayloadPreview]) -> str:
    """Describe a call's payloads, which no file has."""
    return f"Payload kept in the kernel: {'; '.join(preview.what for preview in previews)}"


def _block(preview: PayloadPreview, images: ImageBudget) -> Block:
    if preview.columns:
        return Table(tuple(map(Column, preview.columns)), preview.rows, preview.more_rows)
    if preview.picture is not None:
        if images.spend(len(preview.picture)):
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
    if marks:
        status = replace(status, text=" · ".join([status.text, *marks]))
    return status


def task_status(task: CallTask | ServerTask) -> Status:
    """Describe a task's state: a symbol, its number, and a word."""
    # Servers report that they wait for an answer until they have read it.
    state = task.status
    if state == "input_required" and not task.asking:
        state = "working"
    status = _TASK[state]
    return replace(status, text=status.text.format(task.number))


def _task_blocks(call: ToolCall, limit: int) -> list[Block]:
    task = call.task
    if task is None or task.in_call:
        return []
    if task.is_over:
        seconds = words.seconds(max(0.0, (task.ended or task.began) - task.began))
        label = f"Result of task {task.number}, after {seconds}"
        blocks: list[Block] = [TextBlock(task.text, label=label, code=True, limit=limit)]
        structured = task.result.structured if task.result else None
        return [*blocks, *structured_blocks(structured)]
    return [KeyValues(((f"Task {task.number}", _task_words(task)),))]


def _task_words(task: CallTask) -> str:
    """Describe what a task that runs does."""
    return "waits for your answer" if task.asking else task.text or "running"


def outcome_of(status: CallStatus) -> Status:
    """Describe how a call ended: its symbol and word."""
    return _STATUS[status]


def call_view(call: ToolCall, limits: DisplayLimits) -> View:
    """Show a single call."""
    images = ImageBudget(limits.images)
    section = call_section(call, limits.text, images)
    blocks = (*section.blocks, *payload_sections("Payload", call.previews, images))
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
    if call.search:
        return (Span(search_words(call.search)),)
    if call.skill:
        return (Span(skill_words(call.skill)),)
    arguments = ""
    program = _program(call)
    if program:
        lines = words.count(len(program.splitlines()), "line")
        arguments = f"{lines}, {words.count(len(call.nested), 'call')}"
    elif isinstance(call.arguments, Mapping):
        arguments = first(_pairs(call.arguments), _ARGUMENTS)
    spans = [Span(tool_words(call), "code")]
    if arguments:
        spans.append(Span(arguments, "quiet"))
    result = first(_result_words(call), _RESULT)
    if result:
        spans.append(Span(f"→ {result}", "result"))
    return tuple(spans)


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
    limit: int,
    images: ImageBudget,
    now: float | None = None,
    key: str = "call-0",
    fold: bool = True,
    nested_in: bool = False,
) -> Section:
    """Show a call with its complete arguments and its result, the calls nested in it, and the last
    calls of its app.

    `now` is in seconds since the turn began, if the turn runs, and `key` the call's in its turn.
    An unsuccessful call is always open, despite `fold`.
    """
    if call.search:
        blocks = _search_blocks(call, call.search, limit)
    else:
        blocks = _call_blocks(call, limit, images, now)
    nested = (*call.nested[:_NESTED], *call.app_calls[-_NESTED:])
    for number, each in enumerate(nested):
        blocks.append(call_section(each, limit, images, now, f"{key}-{number}", nested_in=True))
    blocks += more_calls(len(call.nested) + len(call.app_calls) - len(nested))
    note = words.seconds(call.seconds) if call.seconds is not None else ""
    title = [Span(tool_words(call), "code")]
    if nested_in:
        title.insert(0, Span("↳", "quiet"))
    closed = fold and call.status == "ok" and (call.task is None or call.task.is_over)
    data = (("key", key), *_call_data(call))
    return Section(
        Phrase(tuple(title)),
        tuple(blocks),
        status_of(call),
        note,
        "closed" if closed else "open",
        look="call",
        data=data,
    )


def more_calls(hidden: int) -> list[TextBlock]:
    """Say how many calls are not shown, if any."""
    if hidden <= 0:
        return []
    return [TextBlock(f"{words.count(hidden, 'call')} more")]


def _call_data(call: ToolCall) -> Data:
    return (("call", call.id),) if len(call.id) <= _MAX_ID else ()


def _code(call: ToolCall, part: str, text: str, limit: int, label: str = "") -> TextBlock:
    """Show a part of a call, by which a page finds it."""
    data = (("part", part), *_call_data(call))
    return TextBlock(text, label=label, code=True, limit=limit, data=data)


def _call_blocks(call: ToolCall, limit: int, images: ImageBudget, now: float | None) -> list[Block]:
    blocks: list[Block] = []
    # The question whether it may run shows them complete.
    if not call.needs_approval:
        program = _program(call)
        label = "Program" if program else "Arguments"
        blocks.append(_code(call, "arguments", program or readable(call.arguments), limit, label))
    if now is not None and call.status == "running" and not call.waiting:
        blocks.append(KeyValues(_running(call, now)))
    blocks += _task_blocks(call, limit)
    kept: list[Block] = []
    if call.large is not None:
        kept.append(TextBlock(kept_words(call.large)))
    if not call.edited:
        blocks += kept
    if call.result:
        label = "Result, edited by hand" if call.edited else "Result"
        blocks.append(_code(call, "result", call.result, limit, label))
    above = {preview.picture for preview in call.previews} - {None}
    for part in call.content:
        if part.kind != "text" and part.data not in above:
            blocks.append(part_block(part, call, images))
    if call.previews:
        blocks.append(TextBlock(payload_words(call.previews)))
    structured = structured_blocks(call.structured)
    if not call.edited:
        return [*blocks, *structured]
    before = TextBlock(call.unedited or "", code=True, limit=limit)
    original = (before, *kept, *structured)
    return [*blocks, Section("Result before the edit", original, fold="closed")]


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
    blocks: list[Block] = []
    if rows:
        blocks.append(Table(columns("Tool", "Match", "Why"), rows))
    if call.result:
        result = _code(call, "result", call.result, limit)
        blocks.append(Section("Read by the model", (result,), fold="closed", brief=True))
    return blocks


def _search_row(row: SearchRow, best: float | None) -> Row:
    bar = Bar("" if row.score is None else words.score(row.score), fraction(row.score, best))
    return (Name(str(row.tool)), bar, why_found(row))


def why_found(row: SearchRow) -> str:
    """Explain why a search returned a tool, and whether it was loaded already."""
    why = ", ".join(map(words.quoted, row.words))
    if row.same_server:
        why = "on the server of the best match"
    elif row.score is None:
        why = "named by the model"
    return words.joined(why, "" if row.newly_loaded else "already loaded", by=" · ")


def search_words(search: ToolsSearched) -> str:
    """Describe a search and the tools that it loaded."""
    if search.unloaded:
        return f"Unloaded {words.count(len(search.unloaded), 'tool')} ({search.offered:,} loaded)"
    new = [row.tool.server for row in search.rows if row.newly_loaded]
    what = "Requested tools by name,"
    if search.query:
        by = f" by {search.ranked_by}" if search.ranked_by != "words" else ""
        what = f"Searched tools for {words.quoted(first(search.query, _ARGUMENTS))}{by},"
    tools = f"found {len(search.rows):,}, already loaded" if search.rows else ""
    if new:
        tools = f"loaded {len(new):,} from {words.listed(dict.fromkeys(new), _SERVERS)}"
    skills = f"found {words.count(len(search.skills), 'skill')}" if search.skills else ""
    return f"{what} {words.joined(tools, skills) or 'found nothing'}"


def skill_words(read: SkillRead) -> str:
    """Describe a file of a skill that the model read: which, its size, and whether its digest was
    checked.
    """
    checked = "digest checked" if read.checked else "no digest to check"
    price = f"≈ {read.tokens:,} tokens, {checked}"
    return f"Read {first(read.path, _VALUE)} of skill {read.skill} ({price})"


def _pairs(values: Mapping[str, Any]) -> str:
    return words.listed((f"{name} {_value(value)}" for name, value in values.items()), _PAIRS)


def _value(value: object) -> str:
    if isinstance(value, str):
        return words.quoted(first(value, _VALUE))
    return first(pretty(value, indent=None), _VALUE)


def _result_words(call: ToolCall) -> str:
    if call.edited:
        return call.result
    if call.task is not None and not call.task.in_call:
        return _task_words(call.task)
    return result_words(call.status, call.result, call.original, call.large)


def result_words(
    status: CallStatus, text: str, original: ToolResult, large: LargeResult | None
) -> str:
    """Describe a result in a few words: the tool's own summary or sentence if it gave one, or else
    its plain values.

    Args:
        status: How the call ended.
        text: The result as the model reads it.
        original: The result as the tool returned it.
        large: Describes a result that was too large for the model.
    """
    if status != "ok":
        return text.removeprefix("Error: ")
    if large is not None:
        return large.what
    value = unwrapped(original.structured)
    if isinstance(value, Mapping) and isinstance(value.get("summary"), str):
        return str(value["summary"])
    sentence = " ".join(part.text for part in original.content if part.kind == "text").strip()
    if original.structured is not None and " " in sentence and sentence[0] not in _JSON:
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
            texts = list(map(readable, scalars[:_PAIRS]))
            # A sentence speaks for the whole.
            return next((text for text in texts if text.count(" ") > _SENTENCE), ", ".join(texts))
        case list() if len(value) > 1:
            return words.count(len(value), "item")
        case str() | int() | float():
            return str(value)
    parts = [part.kind for part in original.content if part.kind != "text"]
    return text if not parts else words.listed(parts, _PAIRS)


def kept_words(large: LargeResult) -> str:
    """Describe where a large result is, and how much the model read."""
    where = "not in this file"
    if large.is_kept:
        where = "kept as call.value, for call in turn.tool_calls"
    elif large.source is not None:
        where = "no longer kept"
    read = words.count(large.tokens, "token")
    return f"{large.size_in_words}, {large.what}: {where}; the model read ≈ {read}."


def _running(call: ToolCall, now: float) -> Facts:
    elapsed = ("Elapsed", words.seconds(max(0.0, now - call.at - call.waited)))
    if call.progress is None:
        return (elapsed,)
    return (("Progress", _progress(call.progress)), elapsed)


def _progress(progress: ToolProgress) -> Bar:
    part = fraction(progress.progress, progress.total)
    text = words.number(progress.progress)
    if part is not None:
        text = f"{text} of {words.number(progress.total)} ({words.percent(part)})"
    if progress.text:
        text = f"{text}: {progress.text}"
    return Bar(text, part)


def picture_blocks(pictures: Sequence[Picture], source: str, images: ImageBudget) -> Blocks:
    """Show a message's images, or descriptions of those that do not fit."""
    blocks: list[Block] = []
    for picture in pictures:
        if picture.address:
            place = picture.address.partition("://")[2][:_MAX_ADDRESS]
            blocks.append(TextBlock(f"image at {place}, from {source} (not fetched)"))
        else:
            kind = picture.media_type.lower()
            blocks.append(content_block("image", kind, picture.data, source, images))
    return tuple(blocks)


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
    if part.kind == "link" and part.uri:
        address = part.uri
        if len(address) <= _MAX_ADDRESS:
            address = read_code(address, call.tool.server)
        return TextBlock(words.joined(part.kind, part.text, address))
    size = ""
    if data:
        size = words.size(len(data))
    elif part.text:
        size = words.count(len(part.text), "character")
    return TextBlock(words.joined(part.kind, mime_type, size, part.uri))
