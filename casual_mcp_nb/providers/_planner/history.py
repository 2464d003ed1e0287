"""What a conversation says to the planner: the request, the calls made for it, and the call before it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

MAX_REQUEST = 4_000
"""How many characters of a message the planner reads."""


@dataclass(frozen=True)
class Made:
    """A call that was made, and its result.

    Args:
        name: The tool's name on the wire.
        arguments: Its arguments.
        result: The text of the result.
    """

    name: str
    arguments: dict[str, Any]
    result: str

    @property
    def failed(self) -> bool:
        """Whether the result says that the call failed."""
        return self.result.lstrip().casefold().startswith("error")


@dataclass(frozen=True)
class History:
    """A conversation, sorted.

    Args:
        request: The text of the person's last message.
        before: The text of the message before it, and what the assistant said last in between.
        now: Calls since the request.
        earlier: Calls before it.
        calls: How many calls the conversation has in all.
        cut: How many characters of the person's last message are not in the request.
    """

    request: str
    before: str
    now: tuple[Made, ...]
    earlier: tuple[Made, ...]
    calls: int
    cut: int = 0


def read_history(messages: Sequence[ChatMessage]) -> History:
    """Sort a conversation."""
    asked = [index for index, message in enumerate(messages) if message.role == "user"]
    last = asked[-1] if asked else len(messages)
    said = [_text(message.content) for message in messages[:last] if message.role == "assistant" and message.content]
    request = _text(messages[last].content) if asked else ""
    earlier, now = _made(messages[:last]), _made(messages[last:])
    return History(
        request=request[:MAX_REQUEST],
        cut=max(len(request) - MAX_REQUEST, 0),
        before=said[-1] if said else "",
        now=now,
        earlier=earlier,
        calls=sum(len(getattr(message, "tool_calls", None) or ()) for message in messages),
    )


def _made(messages: Sequence[ChatMessage]) -> tuple[Made, ...]:
    results = {message.tool_call_id: message.content for message in messages if message.role == "tool"}
    return tuple(
        Made(call.function.name, _arguments(call.function.arguments), _bare(call.function.name, results.get(call.id, "")))
        for message in messages
        if message.role == "assistant"
        for call in message.tool_calls or ()
    )


def _arguments(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _bare(name: str, result: str) -> str:
    """A result without the tool's name, and its arguments, that some formats put before it."""
    return re.sub(rf"\A{re.escape(name)}(?:\(.*?\))? → ", "", result, count=1, flags=re.S)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.text for part in content if part.type == "text")
    return content or ""
