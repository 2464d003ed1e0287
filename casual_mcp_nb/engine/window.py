"""The part of a conversation that fits into the model's context window."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from casual_mcp_nb.base.tokens import TokenUsage, estimate_tokens, message_tokens
from casual_mcp_nb.conversation.event import ContextTrimmed, Event, Notice
from casual_mcp_nb.providers.factory import counter_for

if TYPE_CHECKING:
    from casual_llm.messages import ChatMessage

    from casual_mcp_nb.providers.chat_model import ChatModel


_ANSWER_RESERVE = 4_096
_MIN_WINDOW = 1_000
"""No server's default window is smaller."""


class TokenCalibration:
    """The ratio between a model's own token counts and our estimates, learnt from its reports.

    It outlives turns.
    """

    def __init__(self) -> None:
        self._ratio = 1.0

    def learn(self, estimated: int, usage: TokenUsage | None) -> None:
        """Learn from the tokens that the model reported for a request."""
        if usage is None or not usage.prompt_tokens or usage.origin != "reported" or not estimated:
            return
        self.correct(estimated, usage.prompt_tokens)

    def correct(self, estimated: int, counted: int, *, at_least: bool = False) -> None:
        """Correct later estimates by the tokens that a provider counted in a request, or counted
        `at_least`.
        """
        # Some servers report only what they had not cached; no estimate is off by more than these
        # bounds.
        ratio = min(max(counted / max(estimated, 1), 0.75), 4.0)
        self._ratio = max(ratio, self._ratio) if at_least else ratio

    def predict(self, estimated: int) -> int:
        """Predict how many tokens the model will count, corrected by its earlier reports."""
        return round(estimated * self._ratio)


class TrimResult(NamedTuple):
    """The part of a conversation that goes into a request.

    Args:
        text_tokens: Estimated tokens in these messages, without tool results.
        result_tokens: Those in the tool results.
        over: The whole request's tokens if they exceed the window. Otherwise, None.
    """

    left_out: int = 0
    exchanges: int = 0
    text_tokens: int = 0
    result_tokens: int = 0
    over: int | None = None


@dataclass
class ContextWindow:
    """Trims one turn's conversation to its model's context window.

    An exchange is everything from one message by the person to the next, or that message alone if
    it got no answer. Trimming leaves it out as a whole, so that a call always stays with its
    result. The person's last messages, and everything after them, always go into the request: sizes
    are estimates here, and the provider can tell whether it is too long. What a turn begins with can
    be a whole conversation, or an example with its answer: its older exchanges can be left out.

    Args:
        earlier: How many of the conversation's first messages are from earlier turns.
        window: The model's context window in tokens, or None if unknown: then nothing is left out.
        counted: Messages with known token counts, at first those from the previous turn. Grows.
    """

    window: int | None = None
    reserve: int = 0
    calibration: TokenCalibration = field(default_factory=TokenCalibration)
    count: Callable[[str], int] = estimate_tokens
    counted: list[tuple[ChatMessage, int]] = field(default_factory=list)
    earlier: int = 0
    _begun: bool = False
    _left_out: int = 0
    _left_out_reported: int = 0
    _over_reported: bool = False

    def forget(self, index: int) -> None:
        """Recount the messages from an index on, because one of them changed."""
        del self.counted[index:]

    def trim(self, messages: Sequence[ChatMessage], other_tokens: int) -> TrimResult:
        """Trim the conversation to the messages that fit into the next request.

        Args:
            messages: The conversation. From call to call it only grows.
            other_tokens: Estimated tokens in the rest of the request.
        """
        self._count_new(messages)
        texts = results = 0
        for message, tokens in self.counted[self._left_out :]:
            if message.role == "tool":
                results += tokens
            else:
                texts += tokens
        if self.window is None:
            return TrimResult(text_tokens=texts, result_tokens=results)
        limit = self.window - self.reserve
        size = self.calibration.predict(other_tokens + texts + results)
        if size <= limit and not self._left_out:
            return TrimResult(text_tokens=texts, result_tokens=results)
        starts = list(exchanges(messages, self.earlier))
        exchange = next((n for n, start in enumerate(starts) if start >= self._left_out), 0)
        while size > limit and exchange < len(starts) - 1:
            for message, tokens in self.counted[starts[exchange] : starts[exchange + 1]]:
                if message.role == "tool":
                    results -= tokens
                else:
                    texts -= tokens
            size = self.calibration.predict(other_tokens + texts + results)
            exchange += 1
            self._left_out = starts[exchange]
        return TrimResult(
            left_out=self._left_out,
            exchanges=exchange,
            text_tokens=texts,
            result_tokens=results,
            over=size if size > limit else None,
        )

    def _count_new(self, messages: Sequence[ChatMessage]) -> None:
        """Count the tokens in the messages that are new since the last time."""
        if not self._begun:
            self._begun = True
            same = 0
            for previous, message in zip(self.counted, messages, strict=False):
                if previous[0] is not message:
                    break
                same += 1
            del self.counted[same:]
        for message in messages[len(self.counted) :]:
            self.counted.append((message, message_tokens(message, self.count)))

    def tokens_of(self, messages: int) -> int:
        """Estimate the tokens in the first messages that the last `trim` returned."""
        return sum(
            [tokens for _, tokens in self.counted[self._left_out : self._left_out + messages]]
        )

    def shrink(self, model: ChatModel, estimated: int, counted: int | None) -> None:
        """Leave out more, because the provider refused a request as too long."""
        window = model.window or max(self.calibration.predict(estimated) // 2, 1)
        self.window, self.reserve = window, reserve_of(model, window)
        self.calibration.correct(
            estimated, counted or window - self.reserve + 1, at_least=counted is None
        )

    def cut_by_server(self, estimated: int, reported: int | None) -> str:
        """Write a notice if a server must have cut a request, since it counted far fewer tokens than
        estimated. Otherwise, return an empty text.

        A server cuts where its default window applies, so only a model whose window is unknown is
        checked. No estimate is off by that much. A count below any window is no sign: it leaves out
        the tokens that the server had cached.
        """
        if self.window is not None or reported is None or reported < _MIN_WINDOW:
            return ""
        if estimated - reported <= max(reported, _MIN_WINDOW):
            return ""
        size = f"The model read {reported:,} tokens of a request of about {estimated:,}"
        return (
            f"{size}: its server seems to have cut the beginning. Set context_window in the model's"
            " config."
        )

    def events(self, step: int, trimmed: TrimResult, at: float) -> Iterator[Event]:
        """Yield notices about a request's size, each only once."""
        window = self.window or 0
        if trimmed.left_out and trimmed.left_out != self._left_out_reported:
            self._left_out_reported = trimmed.left_out
            yield ContextTrimmed(
                step,
                messages=trimmed.left_out,
                exchanges=trimmed.exchanges,
                window=window,
                at=at,
            )
        if trimmed.over is not None and not self._over_reported:
            self._over_reported = True
            limit = f"the model can read {window:,}, of which {self.reserve:,} are for its answer"
            yield Notice(
                f"The request is about {trimmed.over:,} tokens, and {limit}: it is sent as it is.",
                at=at,
            )


class ContextWindows:
    """The token calibration and each model's token counter. It outlives turns."""

    def __init__(self) -> None:
        self._calibrations: dict[tuple[str, str], TokenCalibration] = {}
        self._counters: dict[tuple[str, str], Callable[[str], int] | None] = {}
        self._last: dict[tuple[str, str], ContextWindow] = {}

    async def of(self, model: ChatModel, earlier: int) -> ContextWindow:
        """Create the context window for a turn with a model, after so many messages of earlier
        turns.
        """
        key = (model.provider, model.model)
        if model.window and key not in self._counters:
            self._counters[key] = await asyncio.to_thread(counter_for, model)
            if self._counters[key] is not None:
                # What was learnt corrects the estimates that were made without it.
                self._calibrations.pop(key, None)
                self._last.pop(key, None)
        calibration = self._calibrations.get(key)
        if calibration is None:
            calibration = self._calibrations[key] = TokenCalibration()
        window = window_of(model, calibration, self._counters.get(key))
        if last := self._last.get(key):
            window.counted = last.counted.copy()
        window.earlier = earlier
        self._last[key] = window
        return window


def window_of(
    model: ChatModel, calibration: TokenCalibration, count: Callable[[str], int] | None
) -> ContextWindow:
    """Create the context window for a turn with a model, with a reserve for its answer."""
    window = model.window
    return ContextWindow(
        window=window,
        reserve=reserve_of(model, window) if window else 0,
        calibration=calibration,
        count=count or estimate_tokens,
    )


def reserve_of(model: ChatModel, window: int) -> int:
    """Compute how many tokens in a window to reserve for a model's answer."""
    return min(model.wanted.max_tokens or min(_ANSWER_RESERVE, window // 8), window // 2)


def exchanges(messages: Sequence[ChatMessage], earlier: int = 0) -> Iterator[int]:
    """Yield the index at which each exchange begins, the newest last.

    In the messages of earlier turns, each message by the person begins an exchange, even if the one
    before got no answer. In the present turn, messages by the person that follow each other begin
    one exchange, because they were sent together.

    Args:
        messages: The conversation.
        earlier: How many of its first messages are from earlier turns.
    """
    for number, message in enumerate(messages):
        is_persons = message.role == "user"
        follows_another = number > earlier and messages[number - 1].role == "user"
        if number == 0 or (is_persons and not follows_another):
            yield number
