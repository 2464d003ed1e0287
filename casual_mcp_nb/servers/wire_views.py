"""Views for the wire: message groups, single messages, and the HTTP exchanges that carried them.

Views of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from casual_mcp_nb.base.iterables import labelled
from casual_mcp_nb.base.mcp import ServerTask, Tasks
from casual_mcp_nb.base.wire import Direction, Wire, WireRecord
from casual_mcp_nb.conversation.view_calls import task_status
from casual_mcp_nb.display import words
from casual_mcp_nb.display.view import (
    Block,
    Cell,
    DisplayLimits,
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
    pretty,
)
from casual_mcp_nb.display.words import SUMMARY, first
from casual_mcp_nb.doors import in_words_of
from casual_mcp_nb.servers.views import clock

_OPPOSITE: Mapping[Direction, Direction] = {"sent": "received", "received": "sent"}


def wire_view(wire: Wire, limits: DisplayLimits) -> View:
    """Show the last message groups, folded, the newest last."""
    groups = wire.groups
    several = len({record.server for record in wire}) > 1
    visible = groups[-max(1, limits.rows // 2) :]
    sections = tuple(_wire_group(group, limits, several) for group in visible)
    counts = [words.count(len(wire), "message"), words.count(len(groups), "group")]
    if len(visible) < len(groups):
        counts.append(f"the last {len(visible):,} of them")
    if wire.dropped:
        counts.append(f"{wire.dropped:,} earlier ones are not kept")
    title = "Wire" if several or not wire else f"Wire of {wire[0].server}"
    return View("wire", title, sections or (TextBlock("None."),), note=", ".join(counts))


def wire_record_view(record: WireRecord, limits: DisplayLimits) -> View:
    """Show one message with the HTTP exchange that carried it."""
    blocks = (Table(_WIRE_COLUMNS, (_wire_row(record),)), *_wire_blocks(record))
    return View(
        "wire", f"{_arrow(record)} {record.method or record.kind}", blocks, note=record.server
    )


def _wire_group(group: Sequence[WireRecord], limits: DisplayLimits, several: bool) -> Section:
    first_record, last = group[0], group[-1]
    rounds, outcome = rounds_of(group), outcome_of_group(group)
    notes = [
        first_record.server if several else "",
        clock(first_record.at),
        words.count(len(group), "message"),
        words.count(rounds, "round") if rounds > 1 else "",
    ]
    title = Phrase(
        (Span(first_record.method or first_record.kind, "code"), Span(first_record.tool))
    )
    return Section(
        title,
        (
            Table.of(_WIRE_COLUMNS, group, _wire_row, limits.rows),
            *map(_wire_message, group[: limits.rows]),
        ),
        mark={"error": Status("✗ error", "bad"), "open": Status("… no answer", "busy")}.get(
            outcome
        ),
        note=", ".join(filter(None, notes)),
        fold="closed",
        figures=(words.seconds(last.at - first_record.at),) if len(group) > 1 else (),
    )


def rounds_of(group: Sequence[WireRecord]) -> int:
    """Count how often a group's request was sent."""
    return sum(record.kind == "request" and record.direction == "sent" for record in group)


def outcome_of_group(group: Sequence[WireRecord]) -> Literal["ok", "error", "open"]:
    """Tell how a group of messages ended.

    Returns:
        `error`: the group has an error. `open`: a request in it has no answer yet. `ok`: neither.
    """
    if any(record.kind == "error" for record in group):
        return "error"
    requests = {(record.direction, record.id) for record in group if record.kind == "request"}
    answers = {(record.direction, record.id) for record in group if record.kind == "response"}
    if requests - {(_OPPOSITE[direction], id) for direction, id in answers}:
        return "open"
    return "ok"


def exchange_texts(record: WireRecord) -> dict[str, str]:
    """Format the HTTP exchange's halves that belong to a message: `request` and `response`, each
    with its headers.
    """
    texts: dict[str, str] = {}
    if (exchange := record.http) is None:
        return texts
    if record.direction == "sent":
        texts["request"] = "\n".join(
            [f"{exchange.method} {exchange.url}", *labelled(exchange.request_headers)]
        )
    if exchange.status is not None and (record.direction == "received" or record.kind != "request"):
        texts["response"] = "\n".join(
            [f"HTTP {exchange.status}", *labelled(exchange.response_headers)]
        )
    return texts


_WIRE_COLUMNS = columns("Direction", "At", "Kind", "Method", "ID", "Size #", "Time #", "HTTP")


def _wire_row(record: WireRecord) -> tuple[Cell, ...]:
    kind: Cell = record.kind
    if record.kind == "error":
        kind = Status(record.kind, "bad")
    request_id = size = seconds = http = ""
    if record.id is not None:
        request_id = str(record.id)
    if record.size:
        size = words.size(record.size)
    if record.size and record.cut:
        size = f"≈ {size}"
    if record.seconds is not None:
        seconds = words.seconds(record.seconds)
    if record.http:
        http = str(record.http.status or "…")
    direction = f"{_arrow(record)} {record.direction}"
    method = Name(record.method)
    return (direction, clock(record.at), kind, method, request_id, size, seconds, http)


def _wire_message(record: WireRecord) -> Section:
    title = f"{_arrow(record)} {record.kind}"
    if record.id is not None:
        title += f" {record.id}"
    return Section(title, _wire_blocks(record), note=record.method, fold="closed", brief=True)


def _wire_blocks(record: WireRecord) -> tuple[Block, ...]:
    texts = exchange_texts(record).items()
    blocks: list[Block] = [TextBlock(text, label=f"HTTP {name}", code=True) for name, text in texts]
    if record.text:
        blocks.append(
            TextBlock(pretty(record.message), label="Cut" if record.cut else "", code=True)
        )
    return tuple(blocks)


def _arrow(record: WireRecord) -> str:
    if record.direction == "sent":
        return "→"
    return "←"


def tasks_view(tasks: Tasks, limits: DisplayLimits) -> View:
    """Show each task: its tool, its state, and how long it has run."""
    if not tasks:
        return View(
            "tasks",
            "Tasks",
            (TextBlock("None. Servers that support tasks make one of a long call."),),
        )
    heads = columns("#", "Tool", "State", "Progress", "Age #")
    rows = tuple(map(_task_row, tasks[-limits.rows :]))
    blocks: list[Block] = [Table(heads, rows, len(tasks) - len(rows))]
    running = [task.number for task in tasks if not task.is_over]
    asking = [task.number for task in tasks if task.asking]
    if asking:
        blocks.append(
            TextBlock(in_words_of(f"To answer its question: %mcp tasks wait {asking[0]}"))
        )
    if running:
        blocks.append(TextBlock(in_words_of(f"To cancel it: %mcp tasks cancel {running[0]}")))
    done = "none running"
    if running:
        done = f"{words.count(len(running), 'task')} running"
    return View("tasks", "Tasks", tuple(blocks), note=done)


def _task_row(task: ServerTask) -> tuple[Cell, ...]:
    return (
        str(task.number),
        Name(f"{task.server}:{task.tool}"),
        task_status(task),
        first(task.problem or task.text, SUMMARY),
        words.seconds(task.seconds),
    )


def task_view(task: ServerTask, limits: DisplayLimits) -> View:
    """Show one task."""
    rows: list[tuple[str, Cell]] = [
        ("Tool", Name(f"{task.server}:{task.tool}")),
        ("Age", words.seconds(task.seconds)),
    ]
    if task.text:
        rows.append(("Progress", task.text))
    if task.problem:
        rows.append(("Not polled", task.problem))
    if task.asking:
        rows.append(("Waits for", "your answer"))
    how = "To wait for it: %mcp tasks wait {}"
    if task.is_over:
        how = "To read its result: %mcp tasks result {}"
    blocks: tuple[Block, ...] = (
        KeyValues(tuple(rows)),
        TextBlock(in_words_of(how.format(task.number))),
    )
    return View("task", f"Task {task.number}", blocks, mark=task_status(task))
