"""The player: a conversation as slides in one HTML file that a browser plays without Python and
without a network.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from markupsafe import escape

from casual_mcp_nb.base.content import pictures_of
from casual_mcp_nb.base.tokens import definition_tokens, estimate_tokens
from casual_mcp_nb.cassettes.format import Cassette, scrubbed
from casual_mcp_nb.conversation.codec import PLAYER, NumberedValues, read_message
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import Event, HostedCall, ServerLog
from casual_mcp_nb.conversation.step import Step, ToolCall, text_of
from casual_mcp_nb.conversation.turn import Turn, WrittenProgram
from casual_mcp_nb.conversation.view_calls import (
    PARTS,
    ImageBudget,
    kept_words,
    part_block,
    payload_words,
    picture_blocks,
    request_words,
    search_words,
    status_of,
    tool_words,
    why_found,
)
from casual_mcp_nb.conversation.view_steps import events_by_step, model_figures, remark
from casual_mcp_nb.conversation.views import (
    figures_line,
    instead_of_answer,
    model_words,
    written_program_view,
)
from casual_mcp_nb.display import words
from casual_mcp_nb.display.render import prose_tree
from casual_mcp_nb.display.view import (
    SIZE_TIERS,
    Block,
    ImageBlock,
    Line,
    Section,
    Status,
    Table,
    TextBlock,
    cell_text,
    pretty,
)
from casual_mcp_nb.display.words import clean, cut, first
from casual_mcp_nb.engine.tool_view import ToolView
from casual_mcp_nb.widgets.base import bundle_of

MAX_TITLE = 80
_MAX_NAME = 200
_MAX_DESCRIPTION = 300
_MAX_ROWS = 200
_LONG = 100
"""From how many characters on a text is in the page only once."""

Row = dict[str, Any]


@dataclass(frozen=True)
class SlideLimits:
    """How much the slides contain.

    Args:
        text: Maximum characters per text.
        definition: Maximum characters per tool definition, or 0 for none.
        images: Maximum bytes for all images together.
        tools: Maximum number of tools to look through.
    """

    text: int
    definition: int
    images: int
    tools: int


TIERS = (
    SlideLimits(20_000, 8_000, 300_000, 1_000),
    SlideLimits(6_000, 2_000, 150_000, 1_000),
    SlideLimits(2_000, 500, 0, 300),
    SlideLimits(400, 0, 0, 100),
)
"""From most to least: a page that is too large is built with the next one."""


def slides_of(
    conversation: Conversation, limits: SlideLimits, programs: Sequence[WrittenProgram] = ()
) -> Row:
    """Convert a conversation to plain values for the player, without values that stay in the
    kernel.

    Returns:
        `title`, `began`, `model`; `parts`, the names of request parts; `turns`; `slides`, in order;
        and shared values: `messages` and `tools`, to which requests refer by spans of numbers, and
        long `texts`, which are `{"text": number}` elsewhere.
    """
    return _Slides(conversation.as_in_a_file(), limits, programs).document()


class _Slides:
    def __init__(
        self, conversation: Conversation, limits: SlideLimits, programs: Sequence[WrittenProgram]
    ) -> None:
        self._conversation = conversation
        self._programs = programs
        self._limits = limits
        self._images = ImageBudget(limits.images)
        self._messages, self._tools = NumberedValues(), NumberedValues()
        self._texts: dict[str, int] = {}

    def document(self) -> Row:
        turns = list(self._conversation)
        slides = [
            slide for number, turn in enumerate(turns, 1) for slide in self._turn(number, turn)
        ]
        slides += [self._cell(number, program) for number, program in enumerate(self._programs, 1)]
        started = turns[0].started if turns else None
        return {
            "title": first(turns[0].prompt, MAX_TITLE) if turns else "",
            "began": started.began if started else None,
            "model": clean(model_words(started.model, started.provider)) if started else "",
            "parts": list(PARTS.values()),
            "turns": [self._turn_row(turn) for turn in turns],
            "slides": slides,
            "messages": [self._message(row) for row in self._messages.rows],
            "tools": [self._tool(row) for row in self._tools.rows],
            "texts": list(self._texts),
        }

    def _turn_row(self, turn: Turn) -> Row:
        line = figures_line(turn)
        return {
            "prompt": first(turn.prompt, MAX_TITLE),
            "status": turn.status,
            "figures": list(line.words),
        }

    def _turn(self, number: int, turn: Turn) -> Iterator[Row]:
        steps, (_, remarks) = turn.steps, events_by_step(turn)
        yield {"kind": "prompt", "turn": number, **self._prompt(turn)}
        for step in steps:
            position = {"turn": number, "step": step.index + 1}
            yield {
                "kind": "request",
                **position,
                **self._request(step, remarks.get(step.index, ())),
            }
            figures: Row = {"figures": list(model_figures(step))}
            if step.text and step.tool_calls:
                figures["said"] = prose_tree(self._cut(step.text))
            for hosted in step.hosted_calls:
                yield {"kind": "call", **position, **figures, **self._hosted(hosted)}
                figures = {}
            for call in step.tool_calls:
                yield {
                    "kind": "search" if call.search else "call",
                    **position,
                    **figures,
                    **self._call(call),
                }
                figures = {}
        yield {"kind": "answer", "turn": number, **self._answer(turn, steps)}

    def _prompt(self, turn: Turn) -> Row:
        users = [
            text_of(message.content) for message in turn.prompt_messages if message.role == "user"
        ]
        row: Row = {
            "text": self._text(turn.prompt),
            **self._pictures(
                picture_blocks(pictures_of(turn.prompt_messages), "the prompt", self._images)
            ),
        }
        if users[:-1]:
            row["attached"] = [self._text(text) for text in users[:-1]]
        before = [self._text(edit.before) for edit in turn.edits if edit.call_id is None]
        return {**row, "before": before[0]} if before else row

    def _request(self, step: Step, events: Iterable[Event]) -> Row:
        request = step.request
        remarks = [_mark(remark(event)) for event in events if not isinstance(event, ServerLog)]
        row: Row = {
            "words": request_words(request),
            "parts": list(request.tokens.as_dict().values()),
            "origin": request.tokens.origin,
            "messages": self._messages.spans(request.messages),
            "tools": self._tools.spans((*request.tools, *request.found)),
        }
        if request.reused is not None:
            row["reused"] = request.reused
        if request.left_out:
            row["left_out"] = request.left_out
        if request.options:
            row["options"] = [
                [clean(name), self._text(pretty(value, indent=None))]
                for name, value in request.options.items()
            ]
        return {**row, "remarks": remarks[:_MAX_ROWS]} if remarks else row

    def _call(self, call: ToolCall) -> Row:
        arguments = call.arguments if isinstance(call.arguments, str) else pretty(call.arguments)
        row: Row = {
            "tool": first(tool_words(call), _MAX_NAME),
            "arguments": self._text(arguments),
            "status": _mark(status_of(call)),
        }
        if call.seconds is not None:
            row["seconds"] = words.seconds(call.seconds)
        if call.search is not None:
            search = call.search
            row |= {"query": self._text(search.query), "words": clean(search_words(search))}
            row["rows"] = [
                [first(str(hit.tool), _MAX_NAME), hit.score, clean(why_found(hit))]
                for hit in search.rows[:_MAX_ROWS]
            ]
        if call.result:
            row["result"] = self._text(call.result)
        if call.edited:
            row["unedited"] = self._text(call.unedited or "")
        notes = [payload_words(call.previews)] if call.previews else []
        notes += [kept_words(call.large)] if call.large is not None and not call.edited else []
        row |= self._pictures(
            part_block(part, call, self._images) for part in call.content if part.kind != "text"
        )
        if notes:
            row["notes"] = [*(self._text(note) for note in notes), *row.get("notes", ())]
        nested = (*call.nested[:_MAX_ROWS], *call.app_calls[-_MAX_ROWS:])
        return {**row, "nested": [self._call(each) for each in nested]} if nested else row

    def _hosted(self, call: HostedCall) -> Row:
        status = Status("failed", "bad") if call.failed else Status("run by the provider", "quiet")
        row = {
            "tool": first(call.name, _MAX_NAME),
            "arguments": self._text(call.arguments),
            "status": _mark(status),
        }
        return {**row, "result": self._text(call.result)} if call.result else row

    def _answer(self, turn: Turn, steps: Sequence[Step]) -> Row:
        last = steps[-1] if steps else None
        text = last.text if last and not last.tool_calls else ""
        status = instead_of_answer(turn, last, text)
        row: Row = {"text": prose_tree(self._cut(text))}
        if last and not last.tool_calls:
            row |= {"step": last.index + 1, "figures": list(model_figures(last))}
        return {**row, "status": _mark(status)} if status else row

    def _cell(self, number: int, program: WrittenProgram) -> Row:
        blocks = written_program_view(program, SIZE_TIERS[0]).blocks
        tables = [
            each
            for block in blocks
            if isinstance(block, Section)
            for each in block.blocks
            if isinstance(each, Table)
        ]
        ending = next(block for block in blocks if isinstance(block, Line))
        row: Row = {
            "kind": "cell",
            "turn": 0,
            "number": number,
            "task": self._text(program.task),
            "code": self._text(program.code),
            "calls": [
                [first(cell_text(cell), _MAX_NAME) for cell in row]
                for row in (tables[0].rows if tables else ())[:_MAX_ROWS]
            ],
            "status": _mark(ending.mark or Status("")),
            "figures": [clean(each) for each in ending.words],
        }
        return {**row, "difference": self._text(program.difference)} if program.difference else row

    def _pictures(self, blocks: Iterable[Block]) -> Row:
        images, notes = [], []
        for block in blocks:
            if isinstance(block, ImageBlock):
                source = (
                    f"data:{block.mime_type};base64,{base64.b64encode(block.data).decode('ascii')}"
                )
                images.append([source, clean(block.note)])
            elif isinstance(block, TextBlock):
                notes.append(self._text(block.text))
        return {
            name: rows[:_MAX_ROWS] for name, rows in (("images", images), ("notes", notes)) if rows
        }

    def _message(self, row: Mapping[str, Any]) -> Row:
        sent = read_message(row)
        text = text_of(sent.content)
        message: Row = {
            "role": sent.role,
            "text": self._text(text),
            "tokens": estimate_tokens(text),
        }
        if sent.role == "tool":
            message["name"] = first(sent.name, _MAX_NAME)
        if isinstance(sent.content, list) and (
            images := sum(part.type == "image" for part in sent.content)
        ):
            message["images"] = images
        functions = [call.function for call in (sent.role == "assistant" and sent.tool_calls) or ()]
        calls = [[first(each.name, _MAX_NAME), self._text(each.arguments)] for each in functions]
        return {**message, "calls": calls} if calls else message

    def _tool(self, definition: Mapping[str, Any]) -> Row:
        row: Row = {
            "name": first(str(definition.get("name", "")), _MAX_NAME),
            "tokens": definition_tokens(definition),
            "description": self._text(
                str(definition.get("description") or ""), min(self._limits.text, 500)
            ),
        }
        if self._limits.definition:
            row["definition"] = self._text(pretty(definition), self._limits.definition)
        return row

    def _cut(self, text: str) -> str:
        return cut(clean(text), self._limits.text)

    def _text(self, text: str, limit: int | None = None) -> str | dict[str, int]:
        text = cut(clean(text), self._limits.text if limit is None else limit)
        return (
            text if len(text) < _LONG else {"text": self._texts.setdefault(text, len(self._texts))}
        )


def _mark(status: Status) -> list[str]:
    return [clean(status.text), status.tone]


MAX_BYTES = 950_000
"""Maximum page size."""
MAX_DATA_BYTES = 600_000
"""If its data are larger than this, the page's texts are cut shorter."""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '{script_hash}'; style-src '{style_hash}'; \
img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="root"></div>
<noscript>This page steps through a conversation with JavaScript, which is off in this browser.</noscript>
<script type="application/json" id="player">{data}</script>
{cassette}
<script type="module">{script}</script>
</body>
</html>
"""


def player_page(
    conversation: Conversation,
    title: str,
    *,
    view: ToolView | None = None,
    cassette: Cassette | None = None,
    secrets: Iterable[str] = (),
    programs: Sequence[WrittenProgram] = (),
) -> str:
    """Build an HTML page that steps through a conversation, lists its searches and the session's
    tools, and is a cassette.

    Args:
        conversation: The conversation, without values that stay in the kernel.
        title: The page's title if the conversation has no turns.
        view: The session's tools, which a person can look through.
        cassette: The cassette that replays the conversation.
        secrets: Values to mask, wherever they occur.
        programs: What models wrote for notebook cells meanwhile, shown after the turns.
    """
    secrets = tuple(secrets)
    script, style = bundle_of("player")
    parts = {
        "script": script,
        "script_hash": _hash(script),
        "style": style,
        "style_hash": _hash(style),
    }
    element = cassette.to_element(secrets) if cassette else ""
    fits = len(element.encode()) <= MAX_BYTES - MAX_DATA_BYTES - len(script) - len(style)
    for limits in TIERS:
        document: dict[str, Any] = {
            **PLAYER.head,
            "cassette": bool(element) and fits,
            "catalog": _catalog(view, limits.tools),
            **slides_of(conversation, limits, programs),
        }
        document = scrubbed(document, secrets)
        data = _embedded(document)
        if len(data.encode()) <= MAX_DATA_BYTES:
            break
    return _PAGE.format(
        title=escape(document["title"] or title),
        data=data,
        cassette=element if fits else "",
        **parts,
    )


def _catalog(view: ToolView | None, limit: int) -> Row:
    """List the tools that the session's model can search, or all if none is deferred.

    Returns:
        `deferred`, whether it is the former; `total`, how many there are; and up to `limit` of them
        as `tools`, each with its name and its description.
    """
    if view is None:
        return {"deferred": False, "total": 0, "tools": []}
    tools = sorted(view.deferred or view.loaded, key=attrgetter("tool_name"))
    return {
        "deferred": bool(view.deferred),
        "total": len(tools),
        "tools": [
            [first(str(tool.tool_name), _MAX_NAME), first(tool.description, _MAX_DESCRIPTION)]
            for tool in tools[:limit]
        ],
    }


def _embedded(value: Any) -> str:
    """Format JSON that cannot end the element that it is in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return text.encode("utf-8", "replace").decode()


def _hash(text: str) -> str:
    """Compute the hash by which a content security policy names an inline script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
