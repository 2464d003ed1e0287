"""Receive a model response: join its text into chunks, enforce its limits, clean the names and ids of its calls."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from casual_mcp_nb.engine.limits import TurnLimits
from casual_mcp_nb.engine.throttle import LoopThrottle
from casual_mcp_nb.errors import AnswerLimitError
from casual_mcp_nb.types.time_limit import TimeLimit

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, AssistantToolCall

T = TypeVar("T")

MAX_NAME = 64
CALL_CHARACTERS = 100
"""What a call counts beside its arguments: its id, its name, and that it stays in the conversation."""
PIECE_SECONDS = 0.04
PIECES_AT_FULL_RATE = 250
"""After this many pieces they are emitted half as often: the first ten seconds are shown as the model writes them."""
MAX_PIECE = 4_000

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_INVALID = re.compile(r"[^A-Za-z0-9_-]")


class TextPieces:
    """Joins the text of a response, which arrives token by token, into pieces. The first one is passed on immediately.

    Args:
        emit: Called with each piece.
        limit: Maximum number of characters in total.
    """

    def __init__(self, emit: Callable[[str], None], limit: int) -> None:
        self._emit = emit
        self._limit = limit
        self._throttle: LoopThrottle | None = None
        self._characters = 0
        self._pending: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        """Add the next text.

        Raises:
            AnswerLimitError: The response has become too long.
        """
        self._characters += len(text)
        if self._characters > self._limit:
            raise too_long(self._limit)
        self._pending.append(text)
        self._size += len(text)
        if self._throttle is None:
            # Not every response has text.
            self._throttle = LoopThrottle(self._pass_on, _piece_interval)
        self._throttle.request(immediately=self._size >= MAX_PIECE)

    def close(self) -> None:
        """Emit the pending text."""
        if self._throttle is not None:
            self._throttle.flush()
            self._throttle = None

    def _pass_on(self) -> None:
        text = "".join(self._pending)
        self._pending, self._size = [], 0
        self._emit(text)


def _piece_interval(pieces: int) -> float:
    return PIECE_SECONDS * (1 if pieces <= PIECES_AT_FULL_RATE else 2)


async def within(limits: TurnLimits, response: Awaitable[T]) -> T:
    """Wait for a response of the model, as long as the limits allow.

    Raises:
        AnswerLimitError: It took too long.
    """
    limit = TimeLimit(asyncio.get_running_loop().time() + limits.answer_seconds)
    try:
        with limit:
            return await response
    except TimeoutError:
        if not limit.expired:
            raise
    raise AnswerLimitError(
        f"The model's answer did not end within {limits.answer_seconds:,.0f} s.",
        hint="What arrived until then is kept. Ask for less at a time, or give the model a smaller max_tokens.",
    )


def too_long(limit: int) -> AnswerLimitError:
    """Build the error for a response with more characters than the limit."""
    return AnswerLimitError(
        f"The model's answer went on for more than {limit:,} characters.",
        hint="Give the model a smaller max_tokens, or ask for less at a time.",
    )


class CallNames:
    """Gives tool calls names and ids that every provider accepts when they are sent back.

    Args:
        used: The ids that the conversation has already.
        wire_name: Returns the wire name of the tool that a name means; None where it means none.
    """

    def __init__(self, used: Iterable[str], wire_name: Callable[[str], str | None]) -> None:
        self._used = set(used)
        self._wire_name = wire_name

    def clean(self, message: AssistantMessage) -> AssistantMessage:
        """Clean the ids and names of a message's calls; an already clean message is returned as it is."""
        calls = [self._call(call) for call in message.tool_calls or ()] or None
        return message if calls == message.tool_calls else message.model_copy(update={"tool_calls": calls})

    def _call(self, call: AssistantToolCall) -> AssistantToolCall:
        unique = call.id
        while not unique or unique in self._used:
            unique = f"call_{len(self._used) + 1}" if not unique else f"{unique}_{len(self._used) + 1}"
        self._used.add(unique)
        if unique != call.id:
            call = call.model_copy(update={"id": unique})
        name = self._name(call.function.name)
        if name != call.function.name:
            call = call.model_copy(update={"function": call.function.model_copy(update={"name": name})})
        return call

    def _name(self, name: str) -> str:
        return clean_name(name, self._wire_name)


def clean_name(name: str, wire_name: Callable[[str], str | None]) -> str:
    """Convert a name to one that every provider accepts: itself, the name of the tool it means, or its allowed characters.

    Args:
        name: The name as a model wrote it.
        wire_name: Returns the wire name of the tool that a name means; None where it means none.
    """
    return name if _NAME.fullmatch(name) else wire_name(name) or _INVALID.sub("_", name[:MAX_NAME]) or "unnamed"
