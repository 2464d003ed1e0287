"""Whether a conversation is one that every provider takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def assert_valid(messages: Sequence[Any]) -> None:
    """Each call is followed by exactly one result with its id before any other message; ids are
    unique and not empty.
    """
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if message.role == "tool":
            assert waiting, f"the result {message.tool_call_id!r} stands alone"
            assert message.tool_call_id == waiting.pop(0)
            assert message.content
        else:
            assert waiting == [], f"no result for {waiting} before a message of role {message.role}"
        for tool_call in getattr(message, "tool_calls", None) or ():
            assert tool_call.id
            assert tool_call.id not in seen, f"the id {tool_call.id!r} comes twice"
            seen.add(tool_call.id)
            waiting.append(tool_call.id)
    assert waiting == [], f"no result for {waiting}"
