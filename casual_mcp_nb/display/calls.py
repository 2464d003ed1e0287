"""Views of tool calls and searches, as parts of a turn."""

from __future__ import annotations

from collections.abc import Sequence

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.html import IMAGE_TYPES
from casual_mcp_nb.display.schema import pretty
from casual_mcp_nb.display.structured import structured_blocks
from casual_mcp_nb.display.view import (
    Bar,
    Block,
    Cell,
    DisplayLimits,
    Image,
    KeyValues,
    Name,
    Section,
    Status,
    Table,
    Text,
    View,
    columns,
    fraction,
)
from casual_mcp_nb.types.content import ContentPart
from casual_mcp_nb.types.event import CallStatus, SearchRow, ToolProgress, ToolsSearched
from casual_mcp_nb.types.image import Picture
from casual_mcp_nb.types.step import ToolCall

_STATUS: dict[CallStatus, Status] = {
    "running": Status("▸ running", "busy"),
    "ok": Status("✓ ok", "good"),
    "error": Status("✗ error", "bad"),
    "denied": Status("⊘ denied", "bad"),
    "stopped": Status("■ stopped", "quiet"),
    "timeout": Status("✗ time-out", "bad"),
    "unknown": Status("? outcome not known", "bad"),
}
_WAITING = Status("… waits for you", "busy")
_MAX_ADDRESS = 200


class ImageBudget:
    """The bytes of images that may still be shown; the images of a display share it, in their order."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, size: int) -> bool:
        """Return whether an image of this size may be shown; if so, subtract its bytes."""
        if size > self.left:
            return False
        self.left -= size
        return True


def status_of(call: ToolCall) -> Status:
    """Return how a call is: its symbol and word."""
    return _WAITING if call.waiting else _STATUS[call.status]


def call_view(call: ToolCall, limits: DisplayLimits) -> View:
    """Return the view of a single call."""
    section = call_section(call, False, limits.text, ImageBudget(limits.images))
    return View("call", section.title, section.blocks, mark=section.mark, note=section.note)


def call_section(call: ToolCall, running: bool, limit: int, images: ImageBudget, now: float | None = None) -> Section:
    """Return a call with its arguments and its result, folded if it succeeded.

    Args:
        call: The call.
        running: Whether its turn still runs.
        limit: How many characters of a text are shown.
        images: The bytes left for images.
        now: Seconds since the turn began, for a running call.
    """
    live = running and call.status == "running"
    mark = status_of(call)
    if call.search is not None:
        return _search_section(call, call.search, mark, limit)
    arguments = call.arguments if isinstance(call.arguments, str) else pretty(call.arguments)
    blocks: list[Block] = [Text(arguments, label="Arguments", code=True, limit=limit)]
    if live and not call.waiting:
        blocks.append(KeyValues(_running(call, now)))
    if call.result:
        label = "Result" if call.unedited is None else "Result, edited by hand"
        blocks.append(Text(call.result, label=label, code=True, limit=limit))
    if call.unedited is not None:
        blocks.append(Text(call.unedited, label="Result before the edit", code=True, limit=limit))
    blocks += [_content(part, call, images) for part in call.content if part.kind != "text"]
    blocks += structured_blocks(call.structured)
    note = words.seconds(call.seconds) if call.seconds is not None else ""
    return Section(call.name, tuple(blocks), mark, note, fold="closed" if call.status == "ok" else "open")


def _search_section(call: ToolCall, search: ToolsSearched, mark: Status, limit: int) -> Section:
    new = sum(row.newly_loaded for row in search.rows)
    note = f"{words.count(len(search.rows), 'tool')} found, {new:,} newly loaded, now {words.count(search.offered, 'tool')}"
    best = max((row.score for row in search.rows if row.score is not None), default=None)
    if search.unloaded:
        note = f"{words.count(len(search.unloaded), 'tool')} unloaded, now {words.count(search.offered, 'tool')}"
    rows = tuple(_search_row(row, best) for row in search.rows)
    rows += tuple((Name(str(tool)), "", Status("- unloaded")) for tool in search.unloaded)
    table: Block = Table(columns("Tool", "Score", "State"), rows) if rows else Text("No tool was found.")
    answer = Section("What the model read", (Text(call.result, code=True, limit=limit),), fold="closed")
    query = search.query or "tools by name or server"
    return Section(f"{'Unload' if search.unloaded else 'Search'}: {query}", (table, answer), mark, note, fold="open")


def _search_row(row: SearchRow, best: float | None) -> tuple[Cell, ...]:
    state = Status("+ newly loaded", "good") if row.newly_loaded else "already loaded"
    score = "same server" if row.same_server else words.score(row.score)
    return (Name(str(row.tool)), Bar(score, fraction(row.score, best)), state)


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
    """Return the images of a message, or descriptions of those that do not fit."""
    return tuple(
        Text(f"image at {picture.address.partition('://')[2][:_MAX_ADDRESS]}, from {source} (not fetched)")
        if picture.address
        else _picture("image", picture.media_type.lower(), picture.data, source, images)
        for picture in pictures
    )


def _picture(kind: str, mime_type: str, data: bytes, source: str, images: ImageBudget) -> Block:
    note = f"{mime_type or kind}, {words.size(len(data))}, from {source}"
    if kind == "image" and data and mime_type in IMAGE_TYPES and images.take(len(data)):
        return Image(mime_type, data, note)
    return Text(note)


def _content(part: ContentPart, call: ToolCall, images: ImageBudget) -> Block:
    data = part.data or b""
    mime_type = (part.mime_type or "").lower()
    if part.kind in ("image", "audio"):
        return _picture(part.kind, mime_type, data, call.name, images)
    size = words.size(len(data)) if data else words.count(len(part.text), "character") if part.text else ""
    address = f"{part.uri} (not fetched)" if part.uri and part.kind == "link" else part.uri
    return Text(", ".join(filter(None, (part.kind, mime_type, size if part.kind != "link" else part.text, address))))
