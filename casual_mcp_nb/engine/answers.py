"""Receive a model response: join its text, enforce its limits, and clean its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from casual_mcp_nb.base.wire_names import accepted_name, is_wire_name
from casual_mcp_nb.conversation.event import OTHER_SEARCH_TOOLS
from casual_mcp_nb.conversation.repair import with_unique_ids
from casual_mcp_nb.engine.options import TurnLimits
from casual_mcp_nb.engine.throttles import LoopThrottle
from casual_mcp_nb.errors import AnswerLimitError

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, AssistantToolCall


T = TypeVar("T")

CALL_CHARACTERS = 100
"""How many characters a call counts besides its arguments: for its id, its name, and its place in
the conversation.
"""
PIECE_SECONDS = 0.04
"""Seconds from one piece to the next."""
PIECES_AT_FULL_RATE = 250
"""After this many pieces, the interval doubles: the first ten seconds appear as the model writes
them.
"""
MAX_PIECE = 4_000
"""A piece with this many characters does not wait for the interval."""


class TextPieces:
    """Joins a response's text, which arrives token by token, into pieces.

    The first one goes out immediately.
    """

    def __init__(self, emit: Callable[[str], None], limit: int) -> None:
        self._emit = emit
        self._limit = limit
        self._throttle = LoopThrottle(self._pass_on, _piece_interval)
        self._characters = 0
        self._pending: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        """Add the next text."""
        self._characters += len(text)
        if self._characters > self._limit:
            raise too_long(self._limit)
        self._pending.append(text)
        self._size += len(text)
        self._throttle.request(immediately=self._size >= MAX_PIECE)

    def close(self) -> None:
        """Emit the pending text."""
        self._throttle.flush()

    def _pass_on(self) -> None:
        text = "".join(self._pending)
        self._pending, self._size = [], 0
        self._emit(text)


def _piece_interval(pieces: int) -> float:
    if pieces <= PIECES_AT_FULL_RATE:
        return PIECE_SECONDS
    return 2 * PIECE_SECONDS


async def within(limits: TurnLimits, response: Awaitable[T]) -> T:
    """Wait for a model response, as long as the limits allow."""
    limit = asyncio.timeout(limits.answer_seconds)
    try:
        async with limit:
            return await response
    except TimeoutError:
        if not limit.expired():
            raise
    raise AnswerLimitError(
        f"The model's answer did not end within {limits.answer_seconds:,.0f} s.",
        hint=(
            "The part that arrived is kept. Request less at a time, or give the model a smaller"
            " max_tokens."
        ),
    )


def too_long(limit: int) -> AnswerLimitError:
    """Build the error for a response beyond the character limit."""
    return AnswerLimitError(
        f"The model's answer went on for more than {limit:,} characters.",
        hint="Give the model a smaller max_tokens, or ask for less at a time.",
    )


class CallNames:
    """Gives tool calls names and ids that every provider accepts in later requests."""

    def __init__(self, used: Iterable[str], wire_name: Callable[[str], str | None]) -> None:
        self._used = set(used)
        self._wire_name = wire_name

    def clean(self, message: AssistantMessage) -> AssistantMessage:
        """Clean the ids and names in a message's calls.

        Returns an already clean message as it is.
        """
        message, _ = with_unique_ids(message, self._used)
        calls = [self._named(call) for call in message.tool_calls or ()] or None
        if calls == message.tool_calls:
            return message
        return message.model_copy(update={"tool_calls": calls})

    def _named(self, call: AssistantToolCall) -> AssistantToolCall:
        name = clean_name(call.function.name, self._wire_name)
        if name == call.function.name:
            return call
        return call.model_copy(update={"function": call.function.model_copy(update={"name": name})})


def clean_name(name: str, wire_name: Callable[[str], str | None]) -> str:
    """Convert a name to one that every provider accepts: itself, the tool name it means, or its
    allowed characters.
    """
    if is_wire_name(name) and name != OTHER_SEARCH_TOOLS:
        return name
    return wire_name(name) or accepted_name(name)
