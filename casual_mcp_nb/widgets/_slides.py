"""The turns of a conversation as the slides of a player: prompt, request, search, call, answer."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from casual_mcp_nb.display import format as words
from casual_mcp_nb.display.calls import (
    ImageBudget,
    kept_words,
    part_block,
    picture_blocks,
    search_words,
    status_of,
    tool_words,
    why_found,
)
from casual_mcp_nb.display.payloads import payload_words
from casual_mcp_nb.display.prose import prose_tree
from casual_mcp_nb.display.request import request_words
from casual_mcp_nb.display.schema import pretty
from casual_mcp_nb.display.steps import events_by_step, model_figures, remark
from casual_mcp_nb.display.text import clean, cut, first
from casual_mcp_nb.display.tokens import PARTS
from casual_mcp_nb.display.turn import figures_line, instead_of_answer, model_words
from casual_mcp_nb.display.view import Block, ImageBlock, Status, TextBlock
from casual_mcp_nb.types._tables import NumberedValues
from casual_mcp_nb.types.conversation import Conversation
from casual_mcp_nb.types.event import Event, HostedCall, ServerLog
from casual_mcp_nb.types.image import pictures_of
from casual_mcp_nb.types.step import Step, ToolCall, text_of
from casual_mcp_nb.types.tokens import definition_tokens, estimate_tokens
from casual_mcp_nb.types.trace import Turn

MAX_TITLE = 80
_MAX_NAME = 200
_MAX_ROWS = 200
_LONG = 100
"""From how many characters on a text is in the page only once."""

Row = dict[str, Any]


@dataclass(frozen=True)
class SlideLimits:
    """How much the slides hold.

    Args:
        text: Characters of a text.
        definition: Characters of the definition of a tool; 0 for none.
        images: Bytes of all images together.
    """

    text: int
    definition: int
    images: int


TIERS = (
    SlideLimits(20_000, 8_000, 300_000),
    SlideLimits(6_000, 2_000, 150_000),
    SlideLimits(2_000, 500, 0),
    SlideLimits(400, 0, 0),
)
"""From the most to the least: a page that is too large is made with the next one."""


def slides_of(conversation: Conversation, limits: SlideLimits) -> Row:
    """Convert a conversation to plain values for the player, without values that stay in the kernel.

    Args:
        conversation: The conversation.
        limits: How much of it.

    Returns:
        `title`, `began`, `model`; `parts`, the names of the parts of a request; `turns`; `slides`, in order; and what is in
        several places: `messages` and `tools`, to which requests refer by spans of numbers, and long `texts`, which are
        `{"text": number}` elsewhere.
    """
    return _Slides(conversation.as_in_a_file(), limits).document()


class _Slides:
    def __init__(self, conversation: Conversation, limits: SlideLimits) -> None:
        self._conversation = conversation
        self._limits = limits
        self._images = ImageBudget(limits.images)
        self._messages, self._tools = NumberedValues(), NumberedValues()
        self._texts: dict[str, int] = {}

    def document(self) -> Row:
        turns = list(self._conversation)
        slides = [slide for number, turn in enumerate(turns, 1) for slide in self._turn(number, turn)]
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
        return {"prompt": first(turn.prompt, MAX_TITLE), "status": turn.status, "figures": list(line.words)}

    def _turn(self, number: int, turn: Turn) -> Iterator[Row]:
        steps, (_, remarks) = turn.steps, events_by_step(turn)
        yield {"kind": "prompt", "turn": number, **self._prompt(turn)}
        for step in steps:
            position = {"turn": number, "step": step.index + 1}
            yield {"kind": "request", **position, **self._request(step, remarks.get(step.index, ()))}
            figures: Row = {"figures": list(model_figures(step))}
            if step.text and step.tool_calls:
                figures["said"] = prose_tree(self._cut(step.text))
            for hosted in step.hosted_calls:
                yield {"kind": "call", **position, **figures, **self._hosted(hosted)}
                figures = {}
            for call in step.tool_calls:
                yield {"kind": "search" if call.search else "call", **position, **figures, **self._call(call)}
                figures = {}
        yield {"kind": "answer", "turn": number, **self._answer(turn, steps)}

    def _prompt(self, turn: Turn) -> Row:
        users = [text_of(message.content) for message in turn.prompt_messages if message.role == "user"]
        row: Row = {
            "text": self._text(turn.prompt),
            **self._pictures(picture_blocks(pictures_of(turn.prompt_messages), "the prompt", self._images)),
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
            row["options"] = [[clean(name), self._text(pretty(value, indent=None))] for name, value in request.options.items()]
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
                [first(str(hit.tool), _MAX_NAME), hit.score, clean(why_found(hit))] for hit in search.rows[:_MAX_ROWS]
            ]
        if call.result:
            row["result"] = self._text(call.result)
        if call.edited:
            row["unedited"] = self._text(call.unedited or "")
        notes = [payload_words(call.previews)] if call.previews else []
        notes += [kept_words(call.large)] if call.large is not None and not call.edited else []
        row |= self._pictures(part_block(part, call, self._images) for part in call.content if part.kind != "text")
        if notes:
            row["notes"] = [*(self._text(note) for note in notes), *row.get("notes", ())]
        return {**row, "nested": [self._call(each) for each in call.nested[:_MAX_ROWS]]} if call.nested else row

    def _hosted(self, call: HostedCall) -> Row:
        status = Status("failed", "bad") if call.failed else Status("run by the provider", "quiet")
        row = {"tool": first(call.name, _MAX_NAME), "arguments": self._text(call.arguments), "status": _mark(status)}
        return {**row, "result": self._text(call.result)} if call.result else row

    def _answer(self, turn: Turn, steps: Sequence[Step]) -> Row:
        last = steps[-1] if steps else None
        text = last.text if last and not last.tool_calls else ""
        status = instead_of_answer(turn, last, text)
        row: Row = {"text": prose_tree(self._cut(text))}
        if last and not last.tool_calls:
            row |= {"step": last.index + 1, "figures": list(model_figures(last))}
        return {**row, "status": _mark(status)} if status else row

    def _pictures(self, blocks: Iterable[Block]) -> Row:
        images, notes = [], []
        for block in blocks:
            if isinstance(block, ImageBlock):
                source = f"data:{block.mime_type};base64,{base64.b64encode(block.data).decode('ascii')}"
                images.append([source, clean(block.note)])
            elif isinstance(block, TextBlock):
                notes.append(self._text(block.text))
        return {name: rows[:_MAX_ROWS] for name, rows in (("images", images), ("notes", notes)) if rows}

    def _message(self, row: Mapping[str, Any]) -> Row:
        content = row.get("content") or ""
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        text = "\n".join(str(part.get("text") or "") for part in parts if part.get("type") == "text")
        images = sum(part.get("type") == "image" for part in parts)
        message: Row = {"role": row["role"], "text": self._text(text), "tokens": estimate_tokens(text)}
        if row.get("name"):
            message["name"] = first(str(row["name"]), _MAX_NAME)
        if images:
            message["images"] = images
        functions = [call["function"] for call in row.get("tool_calls") or ()]
        calls = [[first(each["name"], _MAX_NAME), self._text(each["arguments"])] for each in functions]
        return {**message, "calls": calls} if calls else message

    def _tool(self, definition: Mapping[str, Any]) -> Row:
        row: Row = {
            "name": first(str(definition.get("name", "")), _MAX_NAME),
            "tokens": definition_tokens(definition),
            "description": self._text(str(definition.get("description") or ""), min(self._limits.text, 500)),
        }
        if self._limits.definition:
            row["definition"] = self._text(pretty(definition), self._limits.definition)
        return row

    def _cut(self, text: str) -> str:
        return cut(clean(text), self._limits.text)

    def _text(self, text: str, limit: int | None = None) -> str | dict[str, int]:
        text = cut(clean(text), self._limits.text if limit is None else limit)
        return text if len(text) < _LONG else {"text": self._texts.setdefault(text, len(self._texts))}


def _mark(status: Status) -> list[str]:
    return [clean(status.text), status.tone]
