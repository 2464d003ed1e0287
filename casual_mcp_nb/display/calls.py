"""Calls of tools, and searches, as parts of a turn."""

from __future__ import annotations

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.html import IMAGE_TYPES
from casual_mcp_nb.display.schema import pretty
from casual_mcp_nb.display.search import fraction
from casual_mcp_nb.display.view import Bar, Block, Cell, Facts, Image, Limits, Mark, Name, Section, Table, Text, View, columns
from casual_mcp_nb.types.event import CallStatus, ContentPart, SearchRow, ToolProgress, ToolsSearched
from casual_mcp_nb.types.step import ToolCall

_STATUS: dict[CallStatus, Mark] = {
    "ok": Mark("✓ ok", "good"),
    "error": Mark("✗ error", "bad"),
    "denied": Mark("⊘ denied", "bad"),
    "stopped": Mark("■ stopped", "quiet"),
    "timeout": Mark("✗ time-out", "bad"),
    "unknown": Mark("? outcome not known", "bad"),
}
_RUNNING = Mark("▸ running", "busy")


class ImageBudget:
    """How many bytes of images may still be shown; the images of a display share it, in their order."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, size: int) -> bool:
        """Whether an image of this size may be shown; if so, its bytes are spent."""
        if size > self.left:
            return False
        self.left -= size
        return True


def call_view(call: ToolCall, limits: Limits) -> View:
    """One call by itself."""
    section = call_section(call, False, limits.text, ImageBudget(limits.images))
    return View("call", section.title, section.blocks, mark=section.mark, note=section.note)


def call_section(call: ToolCall, running: bool, limit: int, images: ImageBudget) -> Section:
    """A call with its arguments and its result; folded where it went well.

    Args:
        call: The call.
        running: Whether its turn still runs.
        limit: Characters shown of a text.
        images: What is left for images.
    """
    live = running and call.status == "unknown"
    mark = _RUNNING if live else _STATUS[call.status]
    if call.search is not None:
        return _search_section(call, call.search, mark, limit)
    arguments = call.arguments if isinstance(call.arguments, str) else pretty(call.arguments)
    blocks: list[Block] = [Text(arguments, label="Arguments", code=True, limit=limit)]
    if live and call.progress:
        blocks.append(Facts((("Progress", _progress(call.progress)),)))
    if call.result:
        blocks.append(Text(call.result, label="Result", code=True, limit=limit))
    blocks += [_content(part, call, images) for part in call.content if part.kind in ("image", "audio")]
    note = words.seconds(call.seconds) if call.seconds is not None else ""
    return Section(call.name, tuple(blocks), mark, note, fold="closed" if call.status == "ok" else "open")


def _search_section(call: ToolCall, search: ToolsSearched, mark: Mark, limit: int) -> Section:
    new = sum(row.newly_loaded for row in search.rows)
    note = f"{words.count(len(search.rows), 'tool')} found, {new:,} newly loaded, now {words.count(search.offered, 'tool')}"
    best = max((row.score for row in search.rows if row.score is not None), default=None)
    rows = tuple(_search_row(row, best) for row in search.rows)
    found: Block = Table(columns("Tool", "Score", "State"), rows) if rows else Text("No tool was found.")
    answer = Section("What the model read", (Text(call.result, code=True, limit=limit),), fold="closed")
    query = search.query or "tools by name or server"
    return Section(f"Search: {query}", (found, answer), mark, note, fold="open")


def _search_row(row: SearchRow, best: float | None) -> tuple[Cell, ...]:
    state = Mark("+ newly loaded", "good") if row.newly_loaded else "already loaded"
    return (Name(str(row.tool)), Bar(words.score(row.score), fraction(row.score, best)), state)


def _progress(progress: ToolProgress) -> Bar:
    part = fraction(progress.progress, progress.total)
    text = words.number(progress.progress)
    if part is not None:
        text = f"{text} of {words.number(progress.total)} ({words.percent(part)})"
    return Bar(f"{text}: {progress.message}" if progress.message else text, part)


def _content(part: ContentPart, call: ToolCall, images: ImageBudget) -> Block:
    data = part.data or b""
    mime_type = (part.mime_type or "").lower()
    note = f"{mime_type or part.kind}, {words.size(len(data))}, from {call.name}"
    if part.kind == "image" and data and mime_type in IMAGE_TYPES and images.take(len(data)):
        return Image(mime_type, data, note)
    return Text(note)
