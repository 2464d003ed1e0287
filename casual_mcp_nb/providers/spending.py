"""Spend limits: count what requests to models take, and send none that could pass a limit.

Each request first reserves its estimated input and the longest answer to expect. When it has ended,
what it took replaces the reservation. So a limit is passed by no more than the rest of one answer.
A request that could pass a limit only because of what others have reserved waits until they end.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from typing import TypeVar

from casual_mcp_nb.base.config import LimitKind, Period, SpendLimits
from casual_mcp_nb.base.displayable import count
from casual_mcp_nb.base.prices import Price
from casual_mcp_nb.base.status import amount
from casual_mcp_nb.base.tokens import TokenUsage, estimate_tokens
from casual_mcp_nb.conversation.step import ModelResponse, text_of
from casual_mcp_nb.conversation.stored_spending import (
    SpendingFile,
    SpendingInMemory,
    Spent,
    spent_in,
    write_request,
)
from casual_mcp_nb.errors import (
    IncompleteStreamError,
    MalformedAnswerError,
    ProviderError,
    ProviderTimeoutError,
    SpendLimitError,
    UsageError,
    shown,
)

T = TypeVar("T")
logger = logging.getLogger(__name__)

EXPECTED_ANSWER = 4_096
"""How many tokens are first reserved for an answer without a length limit."""
SAMPLE = 10
"""After this many answers, twice the longest one is reserved instead, if that is less."""
LEAST_ANSWER = 256
MARGIN = 1.1
"""How far a token estimate may be too low."""
WARN_AT = 0.8
"""The share of a limit from which the person is told."""
CURRENCY = "USD"
FREE = Price(input=0, output=0)
_IN_REQUEST: ContextVar[bool] = ContextVar("in_request", default=False)
"""Whether a request is made for another one, which cannot end before it."""
_BILLED = (IncompleteStreamError, MalformedAnswerError, ProviderTimeoutError)
_AMOUNTS: dict[LimitKind, str] = {"max_cost": "DOLLARS", "max_total_tokens": "COUNT tokens"}
"""What to write behind `%mcp limit PERIOD`."""
_REMEDIES: dict[Period, str] = {
    "turn": "A smaller max_tokens needs less.",
    "conversation": "Or begin another conversation: %mcp new.",
    "day": "Or wait until tomorrow.",
}


def costs_nothing(error: BaseException | None) -> bool:
    """Check whether a provider asks nothing for a request that failed: it has not answered."""
    return isinstance(error, ProviderError) and not isinstance(error, _BILLED)


def reported_or_estimated(usage: TokenUsage | None, sent: int, answer: str) -> TokenUsage:
    """Return the reported usage, or an estimate if the provider does not report all of it.

    Args:
        usage: The reported usage.
        sent: The request's estimated tokens.
        answer: The answer.
    """
    if usage is None or usage.prompt_tokens is None or usage.completion_tokens is None:
        return TokenUsage(sent, estimate_tokens(answer))
    return usage


class UsualAnswer:
    """How long answers usually are, from those so far."""

    def __init__(self) -> None:
        self._answers = self._longest = 0

    def add(self, usage: TokenUsage) -> None:
        """Take an answer into account."""
        self._answers += 1
        self._longest = max(self._longest, usage.completion_tokens or 0)

    @property
    def tokens(self) -> int:
        """How long the next one may be."""
        if self._answers < SAMPLE:
            return EXPECTED_ANSWER
        return min(EXPECTED_ANSWER, max(LEAST_ANSWER, 2 * self._longest))


class Spending:
    """What the requests of a session may take, and have taken.

    Attributes:
        limits: The limits. They can be replaced at any time.
        file: Where requests are counted.
        usual: How long the answers of each model usually are.
        told: What the person was told.
        thread: Counts one request after the other. Those that are not limited do not wait for it.
        running: How many requests of this session have something reserved.
        waiting: Those that wait until one of these ends.
    """

    def __init__(self, limits: SpendLimits) -> None:
        self.limits = limits
        self.file: SpendingFile = SpendingInMemory()
        self.usual: defaultdict[str, UsualAnswer] = defaultdict(UsualAnswer)
        self.told: set[tuple[str, float]] = set()
        self.thread = ThreadPoolExecutor(1, "casual-mcp-spending")
        self.running = 0
        self.waiting: list[Future[None]] = []

    def spent(self, keys: dict[Period, str]) -> dict[Period, Spent]:
        """Add up what was spent in the periods with these keys. Blocks briefly."""
        return self.thread.submit(self._spent, keys).result()

    def _spent(self, keys: dict[Period, str]) -> dict[Period, Spent]:
        with self.file.counting() as connection:
            return {period: spent_in(connection, period, key) for period, key in keys.items()}

    def close(self) -> None:
        """Wait until everything is counted. Later use goes on."""
        thread, self.thread = self.thread, ThreadPoolExecutor(1, "casual-mcp-spending")
        thread.shutdown()


@dataclass(frozen=True, eq=False)
class Account:
    """What the requests of a turn, or those outside a turn, are counted for.

    Args:
        spending: Their session's.
        conversation: Returns the conversation's key, or an empty text outside of one.
        turn: The turn's key, or empty outside a turn.
        tell: Tells the person that most of a limit is used, or None if nobody listens.
    """

    spending: Spending
    conversation: Callable[[], str]
    turn: str = ""
    tell: Callable[[str], object] | None = None

    def keys(self) -> dict[Period, str]:
        """Name the periods that it belongs to now."""
        keys: dict[Period, str] = {
            "turn": self.turn,
            "conversation": self.conversation(),
            "day": date.today().isoformat(),
        }
        return {period: key for period, key in keys.items() if key}


class Charge:
    """A request that is counted.

    Args:
        account: What it counts for.
        model: The name of the model that is asked.
        price: Its price, or None if that is not known.
        size: Estimates the tokens that are sent. On another thread, since it may take long.
        most: The most tokens of the answer, or None if that is not limited.

    Attributes:
        usage: What it took, or None to find out from the answer.
    """

    def __init__(
        self,
        account: Account,
        model: str,
        price: Price | None,
        size: Callable[[], int],
        most: int | None,
    ) -> None:
        self.usage: TokenUsage | None = None
        self._account, self._spending = account, account.spending
        # It belongs to the periods in which it begins, however late it is counted.
        self._place = uuid.uuid4().hex, account.keys()
        self._model, self._size, self._most = model, size, most
        self._price = price
        if price is not None and price.currency != CURRENCY:
            self._price = None
        self._hosted: list[str] = []
        self._reserved = False
        self._may_wait = True

    async def counted(self, send: Callable[[], Awaitable[T]]) -> T:
        """Reserve for the request, send it, and count what it took.

        It took nothing if no answer is returned, or if the provider has not answered.

        Raises:
            SpendLimitError: It could pass a limit, or cannot be counted. It was not sent.
        """
        answer: T | None = None
        broken = False
        if self._spending.limits.given:
            await self._wait_for_room()
        token = _IN_REQUEST.set(True)
        try:
            answer = await send()
            return answer
        except BaseException as error:
            broken = not costs_nothing(error)
            raise
        finally:
            _IN_REQUEST.reset(token)
            await self._settle(answer, broken)

    async def _wait_for_room(self) -> None:
        self._may_wait = not _IN_REQUEST.get()
        spending = self._spending
        try:
            # Its thread is another one after it was closed.
            while other := await asyncio.wrap_future(spending.thread.submit(self._reserve)):
                await asyncio.wrap_future(other)
        except asyncio.CancelledError:
            # It may be reserved meanwhile.
            spending.thread.submit(self._give_back)
            raise

    def _expected(self) -> TokenUsage:
        """Estimate what it may take at most.

        All input may be written to the cache, which costs most.
        """
        sent = round(self._size() * MARGIN)
        answer = self._most
        if answer is None:
            answer = self._spending.usual[self._model].tokens
        return TokenUsage(sent, answer, cache_write_tokens=sent)

    def _reserve(self) -> Future[None] | None:
        """Reserve, or return what ends with another request if there may be room then."""
        expected = self._expected()
        need = Spent(expected.total_tokens or 0, self._cost(expected) or 0.0)
        waits = False
        try:
            with self._spending.file.counting() as connection:
                for period, key in self._place[1].items():
                    try:
                        self._check(period, spent_in(connection, period, key), need)
                    except SpendLimitError:
                        if not (self._may_wait and self._spending.running):
                            raise
                        # What the others reserved is more than most of them take.
                        self._check(period, spent_in(connection, period, key, ended=True), need)
                        waits = True
                if not waits:
                    self._write(connection, expected, reserved=True)
        except UsageError as error:
            raise SpendLimitError(
                f"What requests to models take cannot be counted, so none was sent: {error}"
            ) from None
        if waits:
            other: Future[None] = Future()
            self._spending.waiting.append(other)
            return other
        self._reserved = True
        self._spending.running += 1
        return None

    def _give_back(self) -> None:
        if self._reserved:
            self._count(None, False)

    def _check(self, period: Period, spent: Spent, need: Spent) -> None:
        model = shown(self._model)
        for kind, limit in self._spending.limits.of(period).items():
            if kind == "max_cost" and self._price is None:
                raise SpendLimitError(
                    f"Model {model} has no price in US dollars, so the {kind} of a {period} cannot"
                    " be kept. Nothing was sent.",
                    hint='Add it to "prices" in the config: its input and output in dollars for a'
                    " million tokens, which is 0 for a model that costs nothing."
                    f" %mcp limit {period} off ends the limit.",
                )
            used, more = spent.of(kind), need.of(kind)
            if used + more > limit:
                running = ""
                if spent.reserved:
                    running = f" (with {count(spent.reserved, 'request')} that still run)"
                raise SpendLimitError(
                    f"The spend limit of this {period} could be passed:"
                    f" {amount(kind, used, limit)} used{running}, and the next request to model"
                    f" {model} may take {amount(kind, more)} with its answer. It was not sent.",
                    hint=f"%mcp limit {period} {_AMOUNTS[kind]} raises the limit. In the config, it"
                    f" is limits.{kind}.{period}. {_REMEDIES[period]}",
                )

    async def _settle(self, answer: object, broken: bool) -> None:
        """Count what it took, and tell the person if most of a limit is used."""
        try:
            counting = self._spending.thread.submit(self._count, answer, broken)
        except RuntimeError:
            # At process exit no thread can be started.
            self._count(answer, broken)
            return
        if not self._spending.limits.given:
            return
        # A stop must not keep it from being counted.
        near = await asyncio.shield(asyncio.wrap_future(counting))
        for told, text in near.items():
            if self._account.tell is not None and told not in self._spending.told:
                self._spending.told.add(told)
                self._account.tell(text)

    def _count(self, answer: object, broken: bool) -> dict[tuple[str, float], str]:
        """Count what it took. Return what to tell the person of limits that are nearly used."""
        if isinstance(answer, ModelResponse):
            self.usage = self._usage_of(answer)
        elif broken:
            # What it has cost is not known.
            self.usage = self._expected()
        try:
            return self._written_down()
        finally:
            if self._reserved:
                self._reserved = False
                self._spending.running -= 1
            waiting, self._spending.waiting = self._spending.waiting, []
            for other in waiting:
                if other.set_running_or_notify_cancel():
                    other.set_result(None)

    def _written_down(self) -> dict[tuple[str, float], str]:
        try:
            with self._spending.file.counting() as connection:
                self._write(connection, self.usage or TokenUsage(0, 0))
                return dict(self._nearly_used(connection))
        except UsageError as error:
            # What was reserved counts for a while.
            logger.warning("What a request to a model took is not counted: %s", error)
            return {}

    def _nearly_used(
        self, connection: sqlite3.Connection
    ) -> Iterator[tuple[tuple[str, float], str]]:
        for period, key in self._place[1].items():
            for kind, limit in self._spending.limits.of(period).items():
                used = spent_in(connection, period, key).of(kind)
                if used >= WARN_AT * limit:
                    yield (
                        (key, limit),
                        f"{used / limit:.0%} of the spend limit of this {period} is used:"
                        f" {amount(kind, used, limit)}.",
                    )

    def _usage_of(self, answer: ModelResponse) -> TokenUsage:
        usage, text = answer.usage, text_of(answer.message.content)
        if usage is None or usage.total_tokens is None:
            for call in answer.message.tool_calls or ():
                text += call.function.arguments
            usage = reported_or_estimated(usage, self._size(), text)
        self._hosted = [call.name for call in answer.hosted_calls]
        self._spending.usual[self._model].add(usage)
        return usage

    def _write(
        self, connection: sqlite3.Connection, usage: TokenUsage, *, reserved: bool = False
    ) -> None:
        tokens = usage.total_tokens or 0
        cost = self._cost(usage) if tokens else 0.0
        write_request(connection, *self._place, tokens, cost, reserved=reserved)

    def _cost(self, usage: TokenUsage) -> float | None:
        if self._price is None:
            return None
        cost = self._price.of(usage, self._hosted)
        return cost.amount if cost is not None else None
