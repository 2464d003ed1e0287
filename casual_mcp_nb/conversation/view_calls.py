"""Tool calls in words: one line for each, which unfolds to its details; results as tables where they are tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from casual_mcp_nb.base.content import ContentPart, LargeResult, PayloadPreview, Picture
from casual_mcp_nb.conversation import event
from casual_mcp_nb.conversation.event import CallStatus, HostedCall, SearchRow, ToolProgress, ToolsSearched
from casual_mcp_nb.conversation.step import ToolCall
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
    Name,
    Phrase,
    Section,
    Span,
    Status,
    Table,
    TextBlock,
    View,
    columns,
    fraction,
    pretty,
)
from casual_mcp_nb.display.words import first, read_code

_COLUMNS = 8
_ROWS = 50
_LIST_IN_AN_OBJECT = 2


def structured_blocks(value: Any) -> tuple[Block, ...]:
    """Show a folded section: a table for a list of flat objects, or the fields of a flat object.

    Other values get none: they are in the text of the result already.
    """
    value = unwrapped(value)
    if isinstance(value, Mapping) and len(value) > 1 and _is_flat(value):
        rows = tuple((str(name), _cell(item)) for name, item in list(value.items())[:_ROWS])
        return (Section("As fields", (KeyValues(rows),), note=words.count(len(value), "field"), fold="closed"),)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes) and value and all(map(_is_flat, value[:_ROWS])):
        return (Section("As a table", (_table(value),), note=words.count(len(value), "row"), fold="closed"),)
    return ()


def unwrapped(value: Any) -> Any:
    """Unwrap a list that a server had to put into an object because MCP's structured content always is one."""
    if isinstance(value, Mapping) and len(value) <= _LIST_IN_AN_OBJECT:
        lists = [item for item in value.values() if isinstance(item, list)]
        if len(lists) == 1:
            return lists[0]
    return value


def _is_flat(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value) and not any(isinstance(item, Mapping | list) for item in value.values())


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    names = list(dict.fromkeys(str(name) for row in rows[:_ROWS] for name in row))
    visible = names[:_COLUMNS]
    titles = tuple(map(Column, visible))
    cells = tuple(tuple(_cell(row.get(name, "")) for name in visible) for row in rows[:_ROWS])
    return Table(titles, cells, len(rows) - len(cells))


def _cell(value: object) -> str:
    return value if isinstance(value, str) else pretty(value, indent=None)


def payload_sections(title: str, previews: Sequence[PayloadPreview], spend: Callable[[int], bool]) -> tuple[Section, ...]:
    """Show the payloads of a call, as far as they can be shown; `spend` returns whether an image of a size may be."""
    shown = (preview for preview in previews if preview.is_shown)
    return tuple(Section(title, (_block(preview, spend),), note=preview.what, look="payload") for preview in shown)


def payload_words(previews: Sequence[PayloadPreview]) -> str:
    """Describe the payloads of a call, and that they are in no file."""
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
    "unknown": Status("? outcome not known", "bad"),
}
_WAITING = Status("… waiting for you", "busy")
_MAX_ADDRESS = 200
_MAX_ID = 200
_ARGUMENTS = 160
_RESULT = 70
_VALUE = 40
_SERVERS = 3
_PAIRS = 8
_SENTENCE = 3
_NESTED = 20


class ImageBudget:
    """The bytes of images that may still be shown. The images of a display share it, in their order."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, size: int) -> bool:
        """Subtract the bytes of an image if it may be shown, and return whether it may."""
        if size > self.left:
            return False
        self.left -= size
        return True


def status_of(call: ToolCall) -> Status:
    """Describe the state of a call: its symbol and word."""
    status = _WAITING if call.waiting else _STATUS[call.status]
    marks = [mark for mark, applies in (("plan", call.planned), ("mock", call.mocked), ("edited", call.edited)) if applies]
    return replace(status, text=" · ".join([status.text, *marks])) if marks else status


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
    """Format the tool of a call as people write it, `server:tool`. A name that is not a tool's as the model wrote it."""
    match call.tool.server:
        case event.SYNTHETIC:
            return call.tool.tool
        case event.UNKNOWN:
            return call.name
        case _:
            return str(call.tool)


def call_spans(call: ToolCall) -> tuple[Span, ...]:
    """Describe a call in words: `time:convert_time time “14:30” → 22:30`, or its search and the tools loaded."""
    if call.search is not None:
        return (Span(search_words(call.search)),)
    arguments = first(_pairs(call.arguments), _ARGUMENTS) if isinstance(call.arguments, Mapping) else ""
    result = first(_result_words(call), _RESULT)
    spans = [Span(tool_words(call), "code"), Span(arguments, "quiet"), Span(f"→ {result}" if result else "", "result")]
    return tuple(span for span in spans if span.text)


def hosted_section(call: HostedCall, limit: int) -> Section:
    """Show a call that the provider ran itself: its arguments, and the provider's note on the result."""
    texts = [TextBlock(text, code=True, limit=limit) for text in (call.arguments, call.result) if text]
    mark = Status("failed", "bad") if call.failed else None
    return Section(Phrase((Span(call.name, "code"), Span("run by the provider"))), tuple(texts), mark=mark, fold="closed")


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
    """Show a call with its complete arguments and its result, and the calls nested in it.

    `now` is in seconds since the turn began, for a running call, and `key` that of the call in its turn. One that did not
    succeed is always open, whatever `fold` says.
    """
    blocks = _search_blocks(call, call.search, limit) if call.search else _call_blocks(call, running, limit, images, now)
    nested = call.nested[:_NESTED]
    for number, each in enumerate(nested):
        blocks.append(call_section(each, running, limit, images, now, f"{key}-{number}", nested_in=True))
    if len(nested) < len(call.nested):
        blocks.append(TextBlock(f"{words.count(len(call.nested) - len(nested), 'call')} more"))
    note = words.seconds(call.seconds) if call.seconds is not None else ""
    name = Span(tool_words(call), "code")
    title = Phrase((Span("↳", "quiet"), name) if nested_in else (name,))
    closed = fold and call.status == "ok"
    data = (("key", key), *_call_data(call))
    return Section(title, tuple(blocks), status_of(call), note, "closed" if closed else "open", look="call", data=data)


def _call_data(call: ToolCall) -> Data:
    return (("call", call.id),) if len(call.id) <= _MAX_ID else ()


def _part(call: ToolCall, name: str) -> Data:
    return (("part", name), *_call_data(call))


def _call_blocks(call: ToolCall, running: bool, limit: int, images: ImageBudget, now: float | None) -> list[Block]:
    arguments = call.arguments if isinstance(call.arguments, str) else pretty(call.arguments)
    blocks: list[Block] = []
    # The question whether it may run shows them complete.
    if not call.needs_approval:
        blocks.append(TextBlock(arguments, label="Arguments", code=True, limit=limit, data=_part(call, "arguments")))
    if running and call.status == "running" and not call.waiting:
        blocks.append(KeyValues(_running(call, now)))
    original: list[Block] = [TextBlock(kept_words(call.large))] if call.large is not None else []
    if not call.edited:
        blocks += original
    if call.result:
        label = "Result, edited by hand" if call.edited else "Result"
        blocks.append(TextBlock(call.result, label=label, code=True, limit=limit, data=_part(call, "result")))
    above = {preview.picture for preview in call.previews} - {None}
    blocks += [part_block(part, call, images) for part in call.content if part.kind != "text" and part.data not in above]
    if call.previews:
        blocks.append(TextBlock(payload_words(call.previews)))
    original += structured_blocks(call.structured)
    if not call.edited:
        return [*blocks, *structured_blocks(call.structured)]
    before = TextBlock(call.unedited or "", code=True, limit=limit)
    return [*blocks, Section("Result before the edit", (before, *original), fold="closed")]


def _search_blocks(call: ToolCall, search: ToolsSearched, limit: int) -> list[Block]:
    best = max((row.score for row in search.rows if row.score is not None), default=None)
    rows = tuple(_search_row(row, best) for row in search.rows)
    rows += tuple((Name(str(tool)), "", "unloaded") for tool in search.unloaded)
    blocks: list[Block] = [Table(columns("Tool", "Match", "Why"), rows)] if rows else []
    result = TextBlock(call.result, code=True, limit=limit, data=_part(call, "result"))
    return [*blocks, Section("Read by the model", (result,), fold="closed", brief=True)] if call.result else blocks


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
    if new:
        return f"{what} loaded {len(new):,} from {words.listed(dict.fromkeys(new), _SERVERS)}"
    return f"{what} found {len(search.rows):,}, already loaded" if search.rows else f"{what} found nothing"


def _pairs(values: Mapping[str, Any]) -> str:
    return words.listed((f"{name} {_value(value)}" for name, value in values.items()), _PAIRS)


def _value(value: object) -> str:
    return words.quoted(first(value, _VALUE)) if isinstance(value, str) else first(pretty(value, indent=None), _VALUE)


def _result_words(call: ToolCall) -> str:
    if call.status != "ok" or call.edited:
        return call.result.removeprefix("Error: ")
    if call.large is not None:
        return call.large.what
    value = unwrapped(call.structured)
    if isinstance(value, Mapping) and isinstance(value.get("summary"), str):
        return str(value["summary"])
    if isinstance(value, Mapping) and len(value) == 1:
        value = next(iter(value.values()))
    match value:
        case Mapping():
            scalars = [item for item in value.values() if not isinstance(item, Mapping | list) and item is not None]
            texts = [item if isinstance(item, str) else pretty(item) for item in scalars[:_PAIRS]]
            # A sentence speaks for the whole.
            return next((text for text in texts if text.count(" ") > _SENTENCE), ", ".join(texts))
        case list() if len(value) > 1:
            return words.count(len(value), "item")
        case str() | int() | float():
            return str(value)
    parts = [part.kind for part in call.content if part.kind != "text"]
    return call.result if not parts else words.listed(parts, _PAIRS)


def kept_words(large: LargeResult) -> str:
    """Describe where the whole of a large result is, and how much of it the model read."""
    where = "kept as call.value" if large.is_kept else "no longer kept" if large.source is not None else "not in this file"
    return f"{large.size_in_words}, {large.what}: {where}; the model read ≈ {words.count(large.tokens, 'token')}."


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


def picture_blocks(pictures: Sequence[Picture], source: str, images: ImageBudget) -> tuple[Block, ...]:
    """Show the images of a message, or descriptions of those that do not fit."""
    return tuple(
        TextBlock(f"image at {picture.address.partition('://')[2][:_MAX_ADDRESS]}, from {source} (not fetched)")
        if picture.address
        else content_block("image", picture.media_type.lower(), picture.data, source, images)
        for picture in pictures
    )


def content_block(kind: str, mime_type: str, data: bytes, source: str, images: ImageBudget) -> Block:
    """Show an image, or a note of type and size if the data is not one or does not fit."""
    note = f"{mime_type or kind}, {words.size(len(data))}, from {source}"
    if kind == "image" and data and mime_type in IMAGE_TYPES and images.spend(len(data)):
        return ImageBlock(mime_type, data, note)
    return TextBlock(note)


def part_block(part: ContentPart, call: ToolCall, images: ImageBudget) -> Block:
    """Show a part of a result that is not text: an image, or its description."""
    data = part.data or b""
    mime_type = (part.mime_type or "").lower()
    if part.kind in ("image", "audio"):
        return content_block(part.kind, mime_type, data, tool_words(call), images)
    size = words.size(len(data)) if data else words.count(len(part.text), "character") if part.text else ""
    if part.kind == "link" and part.uri:
        address = read_code(part.uri, call.tool.server) if len(part.uri) <= _MAX_ADDRESS else part.uri
        return TextBlock(", ".join(filter(None, (part.kind, part.text, address))))
    return TextBlock(", ".join(filter(None, (part.kind, mime_type, size, part.uri))))
