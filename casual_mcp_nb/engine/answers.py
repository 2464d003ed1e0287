"""An answer of a model on its way into the conversation: text in pieces, limits, names and ids that any provider takes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from casual_mcp_nb.engine.limits import TurnLimits
from casual_mcp_nb.errors import AnswerLimitError

if TYPE_CHECKING:
    from casual_llm.messages import AssistantMessage, AssistantToolCall

T = TypeVar("T")

MAX_NAME = 64
SECONDS_BETWEEN = 0.04
PIECES_AT_FULL_RATE = 250
"""After so many pieces they come half as often: ten seconds of an answer are read as they are written."""
LARGEST_PIECE = 4_000

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


class TextPieces:
    """Joins the text of an answer, which comes letter by letter, into pieces. The first one is passed on immediately.

    Args:
        emit: Takes each piece.
        limit: How many characters all of it may have.
    """

    def __init__(self, emit: Callable[[str], None], limit: int) -> None:
        self._emit = emit
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._next = 0.0
        self._pieces = 0
        self._characters = 0
        self._waiting: list[str] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def take(self, text: str) -> None:
        """Take what came.

        Raises:
            AnswerLimitError: It is more than an answer may have.
        """
        self._characters += len(text)
        if self._characters > self._limit:
            raise too_long(self._limit)
        self._waiting.append(text)
        self._size += len(text)
        if self._size >= LARGEST_PIECE or self._loop.time() >= self._next:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._next, self.flush)

    def flush(self) -> None:
        """Pass on what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        text = "".join(self._waiting)
        self._waiting, self._size = [], 0
        self._pieces += 1
        self._next = self._loop.time() + SECONDS_BETWEEN * (1 if self._pieces <= PIECES_AT_FULL_RATE else 2)
        self._emit(text)


async def within(limits: TurnLimits, answer: Awaitable[T]) -> T:
    """Wait for an answer of a model as long as one may take.

    Raises:
        AnswerLimitError: It took longer.
    """
    try:
        async with asyncio.timeout(limits.answer_seconds) as limit:
            return await answer
    except TimeoutError:
        if not limit.expired():
            raise
    raise AnswerLimitError(
        f"The model's answer did not end within {limits.answer_seconds:,.0f} s.",
        hint="What came up to there is kept. Ask for less at a time, or give the model a smaller max_tokens.",
    )


def too_long(limit: int) -> AnswerLimitError:
    """The error for an answer with more characters than one may have."""
    return AnswerLimitError(
        f"The model's answer went on for more than {limit:,} characters.",
        hint="Give the model a smaller max_tokens, or ask for less at a time.",
    )


class CallNames:
    """Gives the calls of answers names and ids that every provider accepts when they are sent back.

    Args:
        used: The ids that the conversation has already.
        wire_name: The name on the wire of the tool that a name means; None where it means none.
    """

    def __init__(self, used: Iterable[str], wire_name: Callable[[str], str | None]) -> None:
        self._used = set(used)
        self._wire_name = wire_name

    def clean(self, message: AssistantMessage) -> AssistantMessage:
        """Return the message with unique ids and clean names on its calls; the same one where it has them already."""
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
        if _NAME.fullmatch(name):
            return name
        return self._wire_name(name) or _NOT_IN_A_NAME.sub("_", name[:MAX_NAME]) or "unnamed"
