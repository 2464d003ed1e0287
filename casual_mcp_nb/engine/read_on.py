"""Let the model read the rest of a result that was cut, with a synthetic tool offered from then on."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.discovery import SyntheticToolResult
from casual_mcp_nb.engine.results import characters_within, encodable, result_text
from casual_mcp_nb.errors import shown
from casual_mcp_nb.types.event import READ_RESULT, SYNTHETIC, ToolFinished
from casual_mcp_nb.types.tool import ToolSpec

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.types.trace import Turn

MAX_STORED = 32_000_000
"""How many characters of results that were cut a chat stores; the oldest are deleted first."""

DEFINITION: Mapping[str, Any] = {
    "name": READ_RESULT,
    "description": "Read on in a result that was cut. The note where it was cut names the arguments.",
    "parameters": {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "Which result."},
            "offset": {"type": "integer", "description": "The character at which to begin, from 0."},
        },
        "required": ["id", "offset"],
    },
}

TOKENS = ToolSpec(SYNTHETIC, READ_RESULT, DEFINITION["description"], DEFINITION["parameters"], wire_name=READ_RESULT).tokens
"""Estimated tokens of the definition."""

Recall = Callable[[str], str | None]
"""Returns the full text of a result by the id of its call; None where it is not known."""


def how_to_read_on(call_id: str, offset: int) -> str:
    """Return the call that reads the rest of a result, for the note at the point where it was cut."""
    return f"{READ_RESULT}(id={json.dumps(call_id, ensure_ascii=False)}, offset={offset}) reads on"


def was_cut(messages: Sequence[ChatMessage]) -> bool:
    """Return whether a result in a conversation was cut."""
    note = f"{READ_RESULT}(id="
    return any(m.role == "tool" and isinstance(m.content, str) and note in m.content for m in messages)


def recall_from(turns: Sequence[Turn]) -> Recall:
    """Return a function that finds full results on the traces of a conversation's turns."""

    def recall(call_id: str) -> str | None:
        for turn in reversed(turns):
            for event in turn.trace.of(ToolFinished):
                if event.call_id == call_id:
                    return encodable(result_text(event.result)) if event.result is not None else event.text
        return None

    return recall


class CutResults:
    """The full texts of results that were cut, for a chat that knows a conversation only by its messages."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._size = 0

    def store(self, call_id: str, text: str) -> None:
        """Store a text, and delete the oldest ones if the total becomes too large."""
        self.forget(call_id)
        self._texts[call_id] = text
        self._size += len(text)
        while self._size > MAX_STORED and len(self._texts) > 1:
            self.forget(next(iter(self._texts)))

    def forget(self, call_id: str) -> None:
        """Delete the text of an id: another conversation can use the id again."""
        self._size -= len(self._texts.pop(call_id, ""))

    def __call__(self, call_id: str) -> str | None:
        """Return the text of an id, if there is one."""
        return self._texts.get(call_id)


class ReadResultTool:
    """Returns further parts of a result to a model that has read the beginning.

    Args:
        messages: The conversation; no result outside it is read.
        cut_results: Stores the full texts of this chat's results.
        recall: Finds the full text of a result that is not stored there.
        tokens: How many tokens a call returns at most, by estimate.
    """

    name = READ_RESULT

    def __init__(self, messages: Sequence[ChatMessage], cut_results: CutResults, recall: Recall, tokens: int) -> None:
        self._messages = messages
        self._cut_results = cut_results
        self._recall = recall
        self._tokens = tokens

    @property
    def definition(self) -> dict[str, Any]:
        """The definition sent to the model: `name`, `description` and `parameters`."""
        return dict(DEFINITION)

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Return the next part of a result, or an error in words.

        Args:
            args: `id` and `offset`, as the model sent them.
        """
        return SyntheticToolResult(self._part(str(args.get("id", "")), args.get("offset", 0)), [], None)

    def _part(self, call_id: str, offset: Any) -> str:
        if not any(message.role == "tool" and message.tool_call_id == call_id for message in self._messages):
            return f"Error: there is no result with the id {shown(call_id)} in this conversation."
        text = self._cut_results(call_id)
        if text is None:
            text = self._recall(call_id)
        if text is None:
            return f"Error: the full result {shown(call_id)} is not stored any more. Call the tool again, for less at a time."
        start = int(offset) if str(offset).isdecimal() and len(str(offset)) < 12 else -1
        if not 0 <= start < len(text):
            return f"Error: offset must be a whole number from 0 to {len(text) - 1}, the last character of the result."
        part = text[start : start + characters_within(text[start:], self._tokens)]
        end = start + len(part)
        note = f"[… {how_to_read_on(call_id, end)} …]" if end < len(text) else "[This is the end of the result.]"
        return f"[Characters {start:,} to {end:,} of {len(text):,}]\n{part}\n{note}"
