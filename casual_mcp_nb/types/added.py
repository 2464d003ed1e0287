"""Turns that a person adds without asking a model."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from casual_mcp_nb.errors import UsageError, brief, shown
from casual_mcp_nb.types.event import TurnFinished, TurnStarted
from casual_mcp_nb.types.history import repaired
from casual_mcp_nb.types.step import EMPTY_RESULT, text_of
from casual_mcp_nb.types.trace import Trace, Turn

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, ChatMessage

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def added_turns(messages: Sequence[ChatMessage], before: Iterable[ChatMessage] = ()) -> list[Turn]:
    """Convert messages to turns: each begins with a person's message, and no model is asked in any.

    Args:
        messages: The messages.
        before: The conversation so far. A call gets another id where one in it has the same.

    Raises:
        UsageError: They are not messages of a person, a model and tools that a provider would accept after each other.
    """
    whole = [_checked(message) for message in messages]
    if not whole:
        raise UsageError("There are no messages to add.")
    _check_order(whole)
    taken = {call.id for message in before for call in _calls(message)}
    whole, _ = repaired(whole, taken)
    starts = [n for n, message in enumerate(whole) if n and message.role == "user" and whole[n - 1].role != "user"]
    now = time.time()
    return [
        Turn(Trace([TurnStarted(tuple(whole[start:end]), model="", began=now), TurnFinished("done")]))
        for start, end in zip([0, *starts], [*starts, len(whole)], strict=True)
    ]


def _checked(message: Any) -> ChatMessage:
    from casual_llm.messages import AssistantMessage, SystemMessage, ToolResultMessage, UserMessage

    match message:
        case SystemMessage():
            raise UsageError("A system message cannot be added.", hint="Set session.system.")
        case ToolResultMessage():
            return message if message.content else message.model_copy(update={"content": EMPTY_RESULT})
        case AssistantMessage():
            for call in _calls(message):
                _check_call(call.function.name, call.function.arguments)
            if not message.tool_calls and not text_of(message.content):
                raise UsageError("A model's message needs a text or a call.")
            return message
        case UserMessage():
            if not message.content:
                raise UsageError("A person's message is empty.")
            return message
    raise UsageError(
        f"A message cannot be {brief(message)}.",
        hint="Use UserMessage, AssistantMessage and ToolResultMessage of casual_llm.",
    )


def _check_call(name: str, arguments: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{shown(name)} cannot be the name of a called tool.", hint="Use its wire name, such as math__add.")
    try:
        is_object = isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise UsageError(f"The arguments of a call of {name} are not a JSON object: {brief(arguments)}.")


def _check_order(messages: Sequence[ChatMessage]) -> None:
    """Check that each call is followed by its result, and each result belongs to a call."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                raise UsageError(f"The result {shown(message.tool_call_id)} does not follow a call with that id.")
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            break
        ids = [call.id for call in _calls(message)]
        if len(set(ids)) < len(ids) or "" in ids:
            raise UsageError("Calls of one message need different ids.")
        waiting = ids
    if waiting:
        raise UsageError(f"The call {shown(waiting[0])} has no result.", hint="Add a ToolResultMessage behind its message.")


def _calls(message: ChatMessage | AssistantMessage) -> Sequence[Any]:
    return getattr(message, "tool_calls", None) or ()
