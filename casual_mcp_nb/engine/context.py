"""How much of a conversation a request takes: whole exchanges as far as the model's window goes, the newest always."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from casual_mcp_nb.providers.counting import counter_for
from casual_mcp_nb.types.tokens import TokenUsage, estimate_tokens, message_tokens

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers.chat_model import ChatModel

_ROOM_FOR_AN_ANSWER = 4_096
_LEAST_WINDOW = 1_000
"""Fewer tokens than any server's own window has."""


class TokenCalibration:
    """What a model counts for what is estimated here, learnt from its reports. It outlives turns."""

    def __init__(self) -> None:
        self._ratio = 1.0

    def learn(self, estimated: int, usage: TokenUsage | None) -> None:
        """Take note of what was reported for a request of this estimated size."""
        if usage is None or not usage.prompt_tokens or usage.origin != "reported" or not estimated:
            return
        # Some servers report only what they had not cached: a ratio that no estimate is off by is not believed.
        self._ratio = min(max(usage.prompt_tokens / estimated, 0.75), 4.0)

    def of(self, estimated: int) -> int:
        """What the model will count, as far as its reports tell."""
        return round(estimated * self._ratio)


@dataclass(frozen=True)
class TrimResult:
    """What of a conversation goes into a request.

    Args:
        left_out: How many messages at its beginning do not.
        exchanges: How many exchanges those are.
        history: Estimated tokens of the messages that are sent, without results of tools.
        results: Estimated tokens of the results that are sent.
        over: What the whole request takes, where that is more than there is room for; else None.
    """

    left_out: int = 0
    exchanges: int = 0
    history: int = 0
    results: int = 0
    over: int | None = None


@dataclass
class ContextWindow:
    """The conversation of one turn against the window of its model.

    An exchange is what the person says up to what they say next, with all calls and results between: left out as a whole, a
    call is never separated from its result. The newest exchange is sent in any case: sizes are estimates here, and it is the
    provider who can say that it is too much.

    Args:
        window: How many tokens the model can read; None where that is not known, and nothing is left out.
        reserve: What of it is kept free for the answer.
        measure: What the model counts for an estimate.
        count: Estimates the tokens of a text.
    """

    window: int | None = None
    reserve: int = 0
    measure: TokenCalibration = field(default_factory=TokenCalibration)
    count: Callable[[str], int] = estimate_tokens
    _sizes: list[tuple[bool, int]] = field(default_factory=list)
    _left_out: int = 0

    def seems_cut(self, estimated: int, reported: int) -> bool:
        """Whether a server read so much less than it was sent that it must have cut the request.

        Only where the model's window is not known: then a server has a window of its own. No estimate is off by as much, and a
        count of a few tokens is one without what the server had cached.

        Args:
            estimated: The size of the request.
            reported: What the server counted.
        """
        return self.window is None and reported >= _LEAST_WINDOW and estimated - reported > max(reported, _LEAST_WINDOW)

    def forget(self, place: int) -> None:
        """Measure the messages from this place on anew: one of them was changed."""
        del self._sizes[place:]

    def fit(self, messages: Sequence[ChatMessage], rest: int) -> TrimResult:
        """What goes into the next request.

        Args:
            messages: The conversation without its system message; each time the same with more at its end.
            rest: Estimated tokens of all else in the request.
        """
        for message in messages[len(self._sizes) :]:
            self._sizes.append((message.role == "tool", message_tokens(message, self.count)))
        starts = list(exchanges(messages)) if self.window is not None else []
        exchange = next((n for n, start in enumerate(starts) if start >= self._left_out), 0)
        size = rest + sum(tokens for _, tokens in self._sizes[self._left_out :])
        while self.window is not None and exchange < len(starts) - 1 and self.measure.of(size) > self.window - self.reserve:
            size -= sum(tokens for _, tokens in self._sizes[starts[exchange] : starts[exchange + 1]])
            exchange += 1
            self._left_out = starts[exchange]
        sent = self._sizes[self._left_out :]
        counted = self.measure.of(size)
        return TrimResult(
            left_out=self._left_out,
            exchanges=exchange,
            history=sum(tokens for is_result, tokens in sent if not is_result),
            results=sum(tokens for is_result, tokens in sent if is_result),
            over=counted if self.window is not None and counted > self.window - self.reserve else None,
        )


class ContextWindows:
    """What is known of how each model counts. It outlives turns."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int | None], tuple[TokenCalibration, Callable[[str], int] | None]] = {}

    async def of(self, model: ChatModel) -> ContextWindow:
        """The context for a turn with this model."""
        key = (model.provider, model.model, model.context_window)
        if key not in self._known:
            self._known[key] = (
                TokenCalibration(),
                await asyncio.to_thread(counter_for, model) if model.context_window else None,
            )
        return context_of(model, *self._known[key])


def context_of(model: ChatModel, measure: TokenCalibration, count: Callable[[str], int] | None) -> ContextWindow:
    """The context for a turn with this model; its window is used up to what its answer may take.

    Args:
        model: The model.
        measure: What is known of how it counts.
        count: Counts tokens as the model does; None for an estimate.
    """
    window = model.context_window
    most = model.wanted.max_tokens
    reserve = min(most or min(_ROOM_FOR_AN_ANSWER, window // 8), window // 2) if window else 0
    return ContextWindow(window, reserve, measure, count or estimate_tokens)


def exchanges(messages: Sequence[ChatMessage]) -> Iterator[int]:
    """Where each exchange begins: at the first message, and at each message of the person that follows one of another's."""
    for number, message in enumerate(messages):
        if number == 0 or (message.role == "user" and messages[number - 1].role != "user"):
            yield number
