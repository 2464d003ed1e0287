"""Keeping what a provider wants back with an answer: thinking that is signed, reasoning that is encrypted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, AssistantToolCall, ChatMessage

Part = dict[str, Any]
_PLAIN = {"type", "text"}


def keep(message: AssistantMessage, wire: str, model: str, parts: Sequence[Part]) -> AssistantMessage:
    """The message with its parts, where they are more than its text and its calls.

    Args:
        message: The answer.
        wire: Which format the parts are in.
        model: The model that can read them.
        parts: The parts of the answer in their order, as `types.kept.Kept` has them.
    """
    # No provider takes back an answer that ends with reasoning.
    last = max((number for number, part in enumerate(parts) if part["type"] in ("text", "call")), default=-1)
    worth = parts[: last + 1]
    if all(part.keys() <= _PLAIN for part in worth):
        return message
    from casual_mcp_nb.types.kept import Kept, KeptMessage

    return KeptMessage(
        content=message.content, tool_calls=message.tool_calls, kept=Kept(wire=wire, model=model, parts=tuple(worth))
    )


def kept(message: ChatMessage, wire: str, model: str) -> list[Part | AssistantToolCall] | None:
    """The parts of a message with its calls in their places; None where this model kept none, or they are not of this text."""
    own = getattr(message, "kept", None)
    if own is None or (own.wire, own.model) != (wire, model):
        return None
    calls = list(getattr(message, "tool_calls", None) or ())
    kinds = [part.get("type") for part in own.parts]
    text = "".join(str(part.get("text")) for part, kind in zip(own.parts, kinds, strict=True) if kind == "text")
    if None in kinds or text != (message.content or "") or len(calls) != kinds.count("call"):
        return None
    waiting = iter(calls)
    return [next(waiting) if kind == "call" else part for part, kind in zip(own.parts, kinds, strict=True)]
