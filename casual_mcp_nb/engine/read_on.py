"""Reading on in a result that was cut: a tool of our own, offered as soon as something was cut in the conversation."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.discovery import SyntheticToolResult
from casual_mcp_nb.engine.results import characters_within, encodable, result_text
from casual_mcp_nb.errors import shown
from casual_mcp_nb.types.event import READ_RESULT, SYNTHETIC, ToolFinished
from casual_mcp_nb.types.tool import ToolSpec

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.types.trace import Turn

MAX_KEPT = 32_000_000
"""How many characters of results that were cut a chat keeps; the oldest are forgotten first."""

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
"""Estimated price of the definition."""

Recall = Callable[[str], str | None]
"""The full text of a result by the id of its call; None where it is not known."""


def how_to_read_on(call_id: str, offset: int) -> str:
    """The words with which a cut result says how its rest can be read."""
    return f"{READ_RESULT}(id={json.dumps(call_id, ensure_ascii=False)}, offset={offset}) reads on"


def was_cut(messages: Sequence[ChatMessage]) -> bool:
    """Whether a result in a conversation was cut."""
    mark = f"{READ_RESULT}(id="
    return any(m.role == "tool" and isinstance(m.content, str) and mark in m.content for m in messages)


def recall_from(turns: Sequence[Turn]) -> Recall:
    """Find full results on the traces of the turns of a conversation."""

    def recall(call_id: str) -> str | None:
        for turn in reversed(turns):
            for event in turn.trace.of(ToolFinished):
                if event.call_id == call_id:
                    return encodable(result_text(event.result)) if event.result is not None else event.text
        return None

    return recall


class CutResults:
    """The full texts of results that were cut, for a chat whose conversation is known by its messages only."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._size = 0

    def keep(self, call_id: str, text: str) -> None:
        """Keep a text, and forget the oldest where all together become too long."""
        self.forget(call_id)
        self._texts[call_id] = text
        self._size += len(text)
        while self._size > MAX_KEPT and len(self._texts) > 1:
            self.forget(next(iter(self._texts)))

    def forget(self, call_id: str) -> None:
        """Forget what was kept under an id: another conversation can use it again."""
        self._size -= len(self._texts.pop(call_id, ""))

    def __call__(self, call_id: str) -> str | None:
        return self._texts.get(call_id)


class ReadResultTool:
    """Gives a model more of a result that it has read the beginning of.

    Args:
        recall: Finds the full text.
        ids: The ids of the results in the conversation; no other one is read.
        tokens: How much one call gives at most.
    """

    name = READ_RESULT

    def __init__(self, recall: Recall, ids: Callable[[], Collection[str]], tokens: int) -> None:
        self._recall = recall
        self._ids = ids
        self._tokens = tokens

    @property
    def definition(self) -> dict[str, Any]:
        """What the model reads: `name`, `description` and `parameters`."""
        return dict(DEFINITION)

    async def execute(self, args: Mapping[str, Any]) -> SyntheticToolResult:
        """Read on.

        Args:
            args: `id` and `offset`, as the model sent them.

        Returns:
            The next part, or in words why there is none.
        """
        return SyntheticToolResult(self._part(str(args.get("id", "")), args.get("offset", 0)), [], None)

    def _part(self, call_id: str, offset: Any) -> str:
        if call_id not in self._ids():
            return f"Error: there is no result with the id {shown(call_id)} in this conversation."
        text = self._recall(call_id)
        if text is None:
            return f"Error: the full result {shown(call_id)} is not there any more. Call the tool again, for less at a time."
        start = int(offset) if str(offset).isdecimal() and len(str(offset)) < 12 else -1
        if not 0 <= start < len(text):
            return f"Error: offset must be a whole number from 0 to {len(text) - 1}, the last character of the result."
        part = text[start : start + characters_within(text[start:], self._tokens)]
        end = start + len(part)
        rest = f"[… {how_to_read_on(call_id, end)} …]" if end < len(text) else "[This is the end of the result.]"
        return f"[Characters {start:,} to {end:,} of {len(text):,}]\n{part}\n{rest}"
