"""A conversation as slides: the plain values that the player draws."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from casual_mcp_nb.base.content import pictures_of
from casual_mcp_nb.base.tokens import definition_tokens, estimate_tokens
from casual_mcp_nb.conversation.codec import NumberedValues, read_message
from casual_mcp_nb.conversation.conversation import Conversation
from casual_mcp_nb.conversation.event import Event, HostedCall, ServerLog, ToolsSearched
from casual_mcp_nb.conversation.step import Step, ToolCall, text_of
from casual_mcp_nb.conversation.turn import Turn
from casual_mcp_nb.conversation.view_calls import (
    ImageBudget,
    kept_words,
    part_block,
    payload_words,
    picture_blocks,
    search_words,
    status_of,
    tool_words,
    why_found,
)
from casual_mcp_nb.conversation.view_planned import written_program_view
from casual_mcp_nb.conversation.view_requests import PARTS, request_words
from casual_mcp_nb.conversation.view_steps import events_by_step, model_figures, remark
from casual_mcp_nb.conversation.views import figures_line, instead_of_answer, model_words
from casual_mcp_nb.conversation.written_program import WrittenProgram
from casual_mcp_nb.display import words
from casual_mcp_nb.display.render import prose_tree
from casual_mcp_nb.display.view import (
    SIZE_TIERS,
    Block,
    Cell,
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

MAX_TITLE = 80
MAX_NAME = 200
_MAX_ROWS = 200
_LONG = 100
"""From how many characters on a text is in the page only once."""

Row = dict[str, Any]


@dataclass(frozen=True)
class PageLimits:
    """How much a page contains.

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


def slides_of(
    conversation: Conversation, limits: PageLimits, programs: Sequence[WrittenProgram] = ()
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
        self, conversation: Conversation, limits: PageLimits, programs: Sequence[WrittenProgram]
    ) -> None:
        self._conversation = conversation
        self._programs = programs
        self._limits = limits
        self._images = ImageBudget(limits.images)
        self._messages, self._tools = NumberedValues(), NumberedValues()
        self._texts: dict[str, int] = {}

    def document(self) -> Row:
        turns = list(self._conversation)
        slides: list[Row] = []
        for number, turn in enumerate(turns, 1):
            slides += self._turn(number, turn)
        for number, program in enumerate(self._programs, 1):
            slides.append(self._cell(number, program))
        head: Row = {"title": "", "began": None, "model": ""}
        if turns:
            started = turns[0].started
            head = {
                "title": first(turns[0].prompt, MAX_TITLE),
                "began": started.began,
                "model": clean(model_words(started.model, started.provider)),
            }
        return {
            **head,
            "parts": list(PARTS.values()),
            "turns": list(map(self._turn_row, turns)),
            "slides": slides,
            "messages": list(map(self._message, self._messages.rows)),
            "tools": list(map(self._tool, self._tools.rows)),
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
            request = self._request(step, remarks.get(step.index, ()))
            yield {"kind": "request", **position, **request}
            # What the whole answer took is said with its first call.
            figures: Row = {"figures": list(model_figures(step))}
            if step.text and step.tool_calls:
                figures["said"] = prose_tree(self._cut(step.text))
            for hosted in step.hosted_calls:
                yield {"kind": "call", **position, **figures, **self._hosted(hosted)}
                figures = {}
            for call in step.tool_calls:
                kind = "search" if call.search else "call"
                yield {"kind": kind, **position, **figures, **self._call(call)}
                figures = {}
        yield {"kind": "answer", "turn": number, **self._answer(turn, steps)}

    def _prompt(self, turn: Turn) -> Row:
        pictures = picture_blocks(pictures_of(turn.prompt_messages), "the prompt", self._images)
        row: Row = {"text": self._text(turn.prompt), **self._pictures(pictures)}
        users = [message for message in turn.prompt_messages if message.role == "user"]
        if len(users) > 1:
            row["attached"] = [self._text(text_of(message.content)) for message in users[:-1]]
        for edit in turn.edits:
            if edit.call_id is None:
                row["before"] = self._text(edit.before)
                break
        return row

    def _request(self, step: Step, events: Iterable[Event]) -> Row:
        request = step.request
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
        options = []
        for name, value in request.options.items():
            options.append([clean(name), self._text(pretty(value, indent=None))])
        if options:
            row["options"] = options
        remarks = [_mark(remark(event)) for event in events if not isinstance(event, ServerLog)]
        if remarks:
            row["remarks"] = remarks[:_MAX_ROWS]
        return row

    def _call(self, call: ToolCall) -> Row:
        arguments = call.arguments
        if not isinstance(arguments, str):
            arguments = pretty(arguments)
        row: Row = {
            "tool": first(tool_words(call), MAX_NAME),
            "arguments": self._text(arguments),
            "status": _mark(status_of(call)),
        }
        if call.seconds is not None:
            row["seconds"] = words.seconds(call.seconds)
        if call.search is not None:
            row |= self._search(call.search)
        if call.result:
            row["result"] = self._text(call.result)
        if call.edited:
            row["unedited"] = self._text(call.unedited or "")
        pictures = [part for part in call.content if part.kind != "text"]
        row |= self._pictures(part_block(part, call, self._images) for part in pictures)
        notes = []
        if call.previews:
            notes.append(self._text(payload_words(call.previews)))
        if call.large is not None and not call.edited:
            notes.append(self._text(kept_words(call.large)))
        if notes:
            row["notes"] = [*notes, *row.get("notes", ())]
        nested = (*call.nested[:_MAX_ROWS], *call.app_calls[-_MAX_ROWS:])
        if nested:
            row["nested"] = list(map(self._call, nested))
        return row

    def _search(self, search: ToolsSearched) -> Row:
        rows = []
        for hit in search.rows[:_MAX_ROWS]:
            rows.append([first(str(hit.tool), MAX_NAME), hit.score, clean(why_found(hit))])
        return {
            "query": self._text(search.query),
            "words": clean(search_words(search)),
            "rows": rows,
        }

    def _hosted(self, call: HostedCall) -> Row:
        status = Status("run by the provider", "quiet")
        if call.failed:
            status = Status("failed", "bad")
        row = {
            "tool": first(call.name, MAX_NAME),
            "arguments": self._text(call.arguments),
            "status": _mark(status),
        }
        if call.result:
            row["result"] = self._text(call.result)
        return row

    def _answer(self, turn: Turn, steps: Sequence[Step]) -> Row:
        last = steps[-1] if steps else None
        text = ""
        row: Row = {}
        if last and not last.tool_calls:
            text = last.text
            row = {"step": last.index + 1, "figures": list(model_figures(last))}
        row["text"] = prose_tree(self._cut(text))
        status = instead_of_answer(turn, last, text)
        if status:
            row["status"] = _mark(status)
        return row

    def _cell(self, number: int, program: WrittenProgram) -> Row:
        blocks = written_program_view(program, SIZE_TIERS[0]).blocks
        ending = next(block for block in blocks if isinstance(block, Line))
        calls = []
        for cells in _table_rows(blocks)[:_MAX_ROWS]:
            calls.append([first(cell_text(cell), MAX_NAME) for cell in cells])
        row: Row = {
            "kind": "cell",
            "turn": 0,
            "number": number,
            "task": self._text(program.task),
            "code": self._text(program.code),
            "calls": calls,
            "status": _mark(ending.mark or Status("")),
            "figures": list(map(clean, ending.words)),
        }
        if program.difference:
            row["difference"] = self._text(program.difference)
        return row

    def _pictures(self, blocks: Iterable[Block]) -> Row:
        images, notes = [], []
        for block in blocks:
            if isinstance(block, ImageBlock):
                data = base64.b64encode(block.data).decode("ascii")
                images.append([f"data:{block.mime_type};base64,{data}", clean(block.note)])
            elif isinstance(block, TextBlock):
                notes.append(self._text(block.text))
        row: Row = {}
        if images:
            row["images"] = images[:_MAX_ROWS]
        if notes:
            row["notes"] = notes[:_MAX_ROWS]
        return row

    def _message(self, row: Mapping[str, Any]) -> Row:
        sent = read_message(row)
        text = text_of(sent.content)
        message: Row = {
            "role": sent.role,
            "text": self._text(text),
            "tokens": estimate_tokens(text),
        }
        if sent.role == "tool":
            message["name"] = first(sent.name, MAX_NAME)
        if isinstance(sent.content, list):
            images = sum(part.type == "image" for part in sent.content)
            if images:
                message["images"] = images
        if sent.role == "assistant" and sent.tool_calls:
            calls = []
            for call in sent.tool_calls:
                name, arguments = call.function.name, call.function.arguments
                calls.append([first(name, MAX_NAME), self._text(arguments)])
            message["calls"] = calls
        return message

    def _tool(self, definition: Mapping[str, Any]) -> Row:
        description = str(definition.get("description") or "")
        row: Row = {
            "name": first(str(definition.get("name", "")), MAX_NAME),
            "tokens": definition_tokens(definition),
            "description": self._text(description, min(self._limits.text, 500)),
        }
        if self._limits.definition:
            row["definition"] = self._text(pretty(definition), self._limits.definition)
        return row

    def _cut(self, text: str) -> str:
        return cut(clean(text), self._limits.text)

    def _text(self, text: str, limit: int | None = None) -> str | dict[str, int]:
        text = cut(clean(text), self._limits.text if limit is None else limit)
        if len(text) < _LONG:
            return text
        return {"text": self._texts.setdefault(text, len(self._texts))}


def _table_rows(blocks: Iterable[Block]) -> Sequence[Sequence[Cell]]:
    """Find the rows of the first table in a section."""
    for block in blocks:
        if isinstance(block, Section):
            for inner in block.blocks:
                if isinstance(inner, Table):
                    return inner.rows
    return ()


def _mark(status: Status) -> list[str]:
    return [clean(status.text), status.tone]
